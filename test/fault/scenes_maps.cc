// SPDX-License-Identifier: BSD-3-Clause
//
// Maps of files in every state that a file may be in.
#include "world.h"

#include "support/child.h"
#include "support/faults.h"
#include "support/mapped.h"

#include "ato_engine.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fault
{

using namespace support;

static const std::vector<int> EVERY = {ATO_DOMAIN_PROCESS, ATO_DOMAIN_PMEM, ATO_DOMAIN_DISK};
static const std::vector<int> TWO = {ATO_DOMAIN_PROCESS, ATO_DOMAIN_DISK};

static constexpr size_t BYTES = 8 * 4096 + 100, GROWN = 11 * 4096 + 300, SHRUNK = 3 * 4096 + 70,
                        LONG = 249 * 4096;

// Slices of all kinds in the reflection; and the end of that process.
static void store(World &w, bool unmap)
{
    Bytes one = w.news(4096 + 100, 700, 2), two = w.news(5 * 4096 - 60, 60, 3);
    another(
        [&] {
            if (!w.map() || !w.write(4096 + 100, one) || !w.write(5 * 4096 - 60, two))
                return 1;
            return unmap && !w.unmap(ATO_UNMAP_FAST) ? 2 : 0;
        },
        0);
    w.before = w.after;
}

static void unmapped_fast(World &w)
{
    store(w, true);
}

static void killed(World &w)
{
    store(w, false);
}

static void killed_in_a_commit(World &w)
{
    killed(w);
    killed_in_a_write(w, 4096 - 50, 2 * 4096, 3);
}

static void cut_at(const char *op, const char *name, const std::function<void()> &what)
{
    another(
        [&] {
            FsFaults faults;
            faults.before = [&](const FsCall &c) {
                return c.op == std::string(op) && c.name.find(name) != std::string::npos ? DIE
                                                                                         : GO_ON;
            };
            what();
            return 2;
        },
        CUT);
}

static void cut_birth(World &w)
{
    cut_at("fsetxattr", "", [&] { w.map(); });
}

static void cut_removal(World &w)
{
    killed(w);
    cut_at("fremovexattr", "", [&] {
        if (w.map())
            w.unmap(ATO_UNMAP_SPATIAL);
    });
}

static void cut_removal_of_a_guarded(World &w)
{
    killed(w);
    Bytes plain(w.after.begin() + 8, w.after.begin() + 18);
    cut_at("fremovexattr", "", [&] {
        if (w.map() && ato_set_guard(w.base, 8, plain.data(), plain.size()) == 0 &&
            w.write(8, Bytes(plain.size(), 0xff), ATO_EAGER))
            w.unmap(ATO_UNMAP_SPATIAL);
    });
}

// In one of more pages than a small lane takes, and of more bytes than a new log.
static void killed_in_a_long_commit(World &w)
{
    killed_in_a_write(w, 100, LONG, 100);
}

// Both files are longer already, and their manifest has the old size.
static void cut_growth(World &w)
{
    killed(w);
    another(
        [&] {
            if (!w.map())
                return 1;
            FsFaults faults;
            bool longer = false;
            faults.before = [&](const FsCall &c) {
                if (longer && !strcmp(c.op, "fsync") && size_of(w.file) == GROWN)
                    return DIE;
                longer = longer || !strcmp(c.op, "ftruncate");
                return GO_ON;
            };
            ato_ftruncate(w.base, GROWN);
            return 2;
        },
        CUT);
    w.mapped_bytes = BYTES;
}

// Its process died before the file was cut.
static void cut_shrink(World &w)
{
    killed(w);
    another([&] { return w.map() && ato_ftruncate(w.base, SHRUNK) == 0 ? 0 : 1; }, 0);
    w.after.resize(SHRUNK);
    w.before = w.after;
    w.mapped_bytes = SHRUNK;
}

// The pairing of a removed file lies under the inode number of this one.
static void reused_number(World &w)
{
    std::string gone = w.dir / "gone";
    write_file(gone, pattern(BYTES, 7));
    another(
        [&] {
            Mapped m(gone, w.options);
            return m.write(100, pattern(3000, 8)) && m.unmap(ATO_UNMAP_FAST) == 0 ? 0 : 1;
        },
        0);
    rename(manifest_of(gone).c_str(), manifest_of(w.file).c_str());
    rename(reflection_of(gone).c_str(), reflection_of(w.file).c_str());
    unlink(gone.c_str());
    w.left = ".stale-";
}

// With the bytes, the attribute and the times of the second file, which is plain apart from its pairing.
static void copied(World &w)
{
    another(
        [&] {
            Mapped m(w.beside, w.options);
            return m && m.unmap(ATO_UNMAP_FAST) == 0 ? 0 : 1;
        },
        0);
    write_file(w.file, w.near);
    w.before = w.after = w.near;
    set_attribute(w.file, attribute_of(w.beside));
    struct stat st = stat_of(w.beside);
    struct timespec times[2] = {st.st_atim, st.st_mtim};
    if (utimensat(AT_FDCWD, w.file.c_str(), times, 0) < 0)
        throw std::runtime_error("utimensat");
}

// With its attribute and another inode; a dead process left a commit.
static void restored(World &w)
{
    killed_in_a_commit(w);
    const std::string copy = w.dir / "copy";
    write_file(copy, read_file(w.file));
    set_attribute(copy, attribute_of(w.file));
    remove_shared_objects(id_of(w.file));
    rename(copy.c_str(), w.file.c_str());
    w.descriptor = std::make_unique<Fd>(w.file);
    w.options.flags |= ATO_PREFER_REFLECTION;
}

static void written_by_others(World &w)
{
    unmapped_fast(w);
    w.before = w.after = pattern(BYTES, 6);
    write_file(w.file, w.before);
    w.options.flags |= ATO_PREFER_FILE;
    w.left = ".stale-";
}

static void lost_reflection(World &w)
{
    unmapped_fast(w);
    unlink(reflection_of(w.file).c_str());
    unlink(manifest_of(w.file).c_str());
    w.before = w.after = read_file(w.file);
    w.options.flags |= ATO_PREFER_FILE;
}

static void killed_in_memory(World &w)
{
    w.options.domain = ATO_DOMAIN_PROCESS;
    killed(w);
    w.options.domain = ATO_DOMAIN_DISK;
}

static bool map(World &w)
{
    return w.map();
}

static bool map_once_more(World &w)
{
    if (!w.map())
        return false;
    w.second = w.base;
    w.base = nullptr;
    return true;
}

static bool name_folder_from_here(World &w)
{
    w.options.reflection_dir = ".ato";
    return chdir(w.dir.path().c_str()) == 0;
}

static bool is_written_again(World &w)
{
    return w.write(300, w.news(300, 100, 33));
}

std::vector<Scene> scenes_of_maps()
{
    return {
        {"MapOfANewFile", MAPS, BYTES, EVERY, {}, {}, map, {}},
        {"MapWithAFolderThatIsNamed", MAPS, BYTES, TWO, {}, name_folder_from_here, map, {}},
        {"MapAfterAFastUnmap", MAPS, BYTES, EVERY, unmapped_fast, {}, map, is_written_again},
        {"MapAfterAKill", MAPS, BYTES, EVERY, killed, {}, map, is_written_again},
        {"MapAfterAKillInACommit", MAPS, BYTES, EVERY, killed_in_a_commit, {}, map, {}},
        {"MapAfterACutBirth", MAPS, BYTES, TWO, cut_birth, {}, map, {}},
        {"MapAfterACutRemoval", MAPS, BYTES, EVERY, cut_removal, {}, map, {}},
        {"MapAfterACutRemovalOfAGuarded", MAPS, BYTES, TWO, cut_removal_of_a_guarded, {}, map, {}},
        {"MapAfterACutShrink", MAPS, BYTES, EVERY, cut_shrink, {}, map, {}},
        {"MapAfterACutGrowth", MAPS, BYTES, EVERY, cut_growth, {}, map, {}},
        {"MapAfterAKillInALongCommit",
         MAPS,
         LONG + 4096,
         TWO,
         killed_in_a_long_commit,
         {},
         map,
         {}},
        {"MapOfAReusedInode", MAPS, BYTES, TWO, reused_number, {}, map, {}},
        {"MapOfACopy", MAPS, BYTES, TWO, copied, {}, map, {}},
        {"MapOfARestoredFile", MAPS, BYTES, TWO, restored, {}, map, {}},
        {"MapOfWhatOthersWrote", MAPS, BYTES, TWO, written_by_others, {}, map, {}},
        {"MapOfAFileWithALostReflection", MAPS, BYTES, TWO, lost_reflection, {}, map, {}},
        {"MapInAStrongerDomain", MAPS, BYTES, {ATO_DOMAIN_DISK}, killed_in_memory, {}, map, {}},
        {"MapOnceMore", MAPS, BYTES, TWO, {}, map_once_more, map, {}},
    };
}

} // namespace fault
