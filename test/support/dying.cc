// SPDX-License-Identifier: BSD-3-Clause
#include "dying.h"

#include "child.h"
#include "faults.h"
#include "mapped.h"

#define _Thread_local __thread // C++ has no _Thread_local
extern "C" {
#include "lib/file/shared.h"
#include "reflection/format/manifest.h"
#include "reflection/media/seam.h"
}

#include <gtest/gtest.h>

#include <cstring>

#include <unistd.h>

namespace support
{

bool dies_at(int n, const std::string &path, const ato_options &o,
             const std::function<bool(Mapped &)> &act, const std::function<bool(Mapped &)> &before)
{
    static int left;
    const int status = in_child([&] {
        alarm(30);
        Mapped own(path, o);
        if (!own || (before && !before(own)))
            return 1;
        left = n;
        FsFaults fs;
        PersistFaults stores;
        fs.before = [](const FsCall &) { return left-- == 0 ? DIE : GO_ON; };
        stores.before = [](const PersistCall &) { return left-- == 0 ? DIE : GO_ON; };
        seam_hook = [](enum seam_point here, const void *) {
            if (here != SEAM_WAIT && left-- == 0)
                _exit(CUT);
        };
        const bool done = act(own);
        seam_hook = nullptr;
        left = -1;
        return done ? 0 : 2;
    });
    EXPECT_TRUE(status == CUT || status == 0) << status;
    return status == CUT;
}

int die_in_commit(const std::string &path)
{
    return in_child([&] {
        Mapped m(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER, ATO_NO_RTM));
        PersistFaults faults;
        faults.die_at_flip(1);
        ato_tx *tx = ato_tx_begin(0);
        ato_tx_memcpy(tx, m.base, pattern(100, 2).data(), 100, 0);
        ato_tx_memcpy(tx, m.base + 4096, pattern(100, 3).data(), 100, 0);
        ato_tx_commit(tx);
        return 1;
    });
}

void edit_manifest(const std::string &path, const std::function<void(manifest_record &)> &edit)
{
    alignas(64) char bytes[MANIFEST_BYTES];
    const Bytes was = read_file(manifest_of(path));
    memcpy(bytes, was.data(), sizeof(bytes));
    struct manifest_record record;
    struct persist p;
    int copy;
    EXPECT_EQ(manifest_read(bytes, &record, &copy), MANIFEST_VALID);
    edit(record);
    persist_init(&p, PERSIST_PROCESS);
    EXPECT_EQ(manifest_write(&p, bytes, &record, &copy), 0);
    write_at(manifest_of(path), 0, bytes, sizeof(bytes));
}

std::string memory_of(const std::string &path)
{
    const Bytes manifest = read_file(manifest_of(path));
    struct manifest_record record;
    int copy;
    EXPECT_EQ(manifest_read(manifest.data(), &record, &copy), MANIFEST_VALID);
    char name[64];
    shared_name(name, record.id, record.shm_generation);
    return std::string("/dev/shm") + name;
}

} // namespace support
