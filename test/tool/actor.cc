// SPDX-License-Identifier: BSD-3-Clause
//
// Brings files into the states that the tests of the tool need: maps a file, writes, and ends as told.
//
//   actor fast|spatial FILE    unmaps it so
//   actor deployed FILE        writes and deploys all of it; unmaps it fast
//   actor empty FILE           cuts it to nothing first; unmaps it fast
//   actor hold FILE            prints 'ready', waits for the end of its input, unmaps it fast
//   actor write FILE           dies in the middle of a write, before it is decided
//   actor commit FILE          dies in the middle of a commit of several words
//   actor appended FILE        makes it longer, writes there, and dies
//   actor large FILE           makes it longer, and dies in the middle of a commit in the long lane
//   actor emptied FILE         makes commits of several words, cuts it to nothing; dies
//   actor mapped FILE          maps it, dies
//   actor birth|death FILE     dies while the reflection is made, or removed
//   actor grow FILE            makes it longer again and again, until the end of its input
//   actor count FILE           prints 'ready', and writes the same number to some pages in a transaction again and again, until the
//                              end of its input; unmaps it spatially
//   actor growth FILE          dies while the file grows, to 30000 bytes
//   actor guard FILE           guards bytes 18 and 19, stores 255 there; unmaps it fast
//   actor guarded FILE         guards bytes 21 to 27 with their current values; dies
//   actor unguard FILE         the same, and dies when it is plain, before the bytes are put back
//
// ACTOR_DOMAIN, ACTOR_FOLDER: options of the mapping.
#include "support/child.h"
#include "support/faults.h"
#include "support/mapped.h"

#include "ato_engine.h"

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

using namespace support;

// Makes a commit visible: stores a bitmap; or copies a page of a log to the file.
static bool flips(const PersistCall &c)
{
    const std::string op = c.op, site = c.site;
    return (op == "store_word" && site.find("commit/commit.") != std::string::npos) ||
           (op == "scatter" && site.find("commit/show.") != std::string::npos);
}

static int act(const std::string &what, const std::string &path)
{
    const char *domain = getenv("ACTOR_DOMAIN"), *folder = getenv("ACTOR_FOLDER");
    ato_options o = options(domain ? atoi(domain) : 0, ATO_READ_GATHER, ATO_NO_RTM);
    o.reflection_dir = folder;
    FsFaults files;
    if (what == "birth")
        files.before = [](const FsCall &c) {
            return c.name == "user.ato" ? DIE : GO_ON; // the last step
        };
    if (what == "empty")
        write_file(path, {});
    Mapped m(path, o, what == "empty" || what == "mapped" ? 4096 : 0);
    if (!m) {
        fprintf(stderr, "%s\n", m.sentence.c_str());
        return 1;
    }
    if (what == "empty")
        return m.unmap(ATO_UNMAP_FAST) < 0;
    if (what == "mapped")
        _exit(77);
    if (what == "grow") {
        // In bursts: without pauses the file would reach its maximum of 1 GiB before a slow machine has
        // looked at it.
        struct pollfd end = {0, POLLIN, 0};
        for (off_t size = 20300; poll(&end, 1, 1) == 0;)
            for (int i = 0; i < 30; i++, size += 300)
                if (ato_ftruncate(m.base, size) < 0 || !ato_memset(m.base + size - 100, 1, 100)) {
                    fprintf(stderr, "grow: %s\n", ato_errormsg());
                    return 6;
                }
        return m.unmap(ATO_UNMAP_SPATIAL) < 0;
    }
    if (what == "count") {
        struct pollfd end = {0, POLLIN, 0};
        for (uint64_t n = 1; n == 1 || poll(&end, 1, 0) == 0; n++) {
            ato_tx *tx = ato_tx_begin(0);
            for (size_t at : {0, 4100, 9000, 19000})
                if (!ato_tx_memcpy(tx, m.base + at, &n, sizeof(n), 0))
                    break;
            if (ato_tx_commit(tx) < 0 && errno != EAGAIN && errno != ECANCELED)
                fprintf(stderr, "count: %s\n", ato_errormsg());
            if (n == 1) {
                puts("ready");
                fflush(stdout);
            }
        }
        return m.unmap(ATO_UNMAP_SPATIAL) < 0;
    }
    if (what == "busy") { // with a page in an open transaction
        struct pollfd end = {0, POLLIN, 0};
        ato_tx *tx = ato_tx_begin(0);
        bool good = ato_tx_memcpy(tx, m.base + 16384, "held", 4, 0);
        while (good && poll(&end, 1, 1) == 0)
            for (int i = 0; i < 30; i++)
                good = good && m.write(3000, pattern(6000, i)) && !m.read(0, 9000).empty() &&
                       ato_deploy(m.base, 9000) == 0;
        return !good || ato_tx_abort(tx) < 0 || m.unmap(ATO_UNMAP_SPATIAL) < 0;
    }
    if (what == "logged") // in domain disk
        return m.write(2000, pattern(9000, 3)) ? (_exit(CUT), 0) : 10;
    if (what == "appended")
        return ato_ftruncate(m.base, 60000) == 0 && m.write(50000, pattern(9000, 3))
                   ? (_exit(CUT), 0)
                   : 11;
    if (what == "large") {
        constexpr size_t MANY = 250 * 4096; // more pages than a small lane takes
        PersistFaults fault;
        int flipped = 0;
        if (ato_ftruncate(m.base, MANY) < 0)
            return 7;
        fault.before = [&](const PersistCall &c) {
            return flips(c) && ++flipped == 4 ? DIE : GO_ON;
        };
        return m.write(0, pattern(MANY, 4)) ? 8 : 9;
    }
    if (what == "longer") { // the words of new pages are stored, and the size word is not
        PersistFaults fault;
        int stored = 0;
        ato_tx *tx = ato_tx_begin(0);
        if (ato_tx_ftruncate(tx, m.base, 60000) < 0 ||
            !ato_tx_memcpy(tx, m.base + 100, "x", 1, 0) ||
            !ato_tx_memcpy(tx, m.base + 50000, pattern(9000, 3).data(), 9000, 0))
            return 7;
        fault.before = [&](const PersistCall &c) {
            return strcmp(c.op, "store_word") == 0 && ++stored == 4 ? DIE : GO_ON;
        };
        return ato_tx_commit(tx) == 0 ? 8 : 9;
    }
    if (what == "deployed")
        return !ato_memset(m.base, 5, m.length) || ato_deploy(m.base, m.length) < 0 ||
               m.unmap(ATO_UNMAP_FAST) < 0;
    if (what == "guarded")
        _exit(ato_set_guard(m.base, 21, read_file(path).data() + 21, 7) < 0);
    Bytes record = pattern(6000, 2);
    if (!m.write(3000, record))
        return 2;
    if (what == "emptied")
        _exit(ato_ftruncate(m.base, 0) < 0 ? 6 : 77);
    PersistFaults faults;
    int words = 0;
    faults.before = [&](const PersistCall &c) {
        if (what == "write" && strcmp(c.op, "scatter") == 0)
            return ++words == 2 ? DIE : GO_ON;
        if (what == "growth" && strcmp(c.op, "store_word") == 0)
            return ++words == 2 ? DIE : GO_ON;
        if (what == "commit" && flips(c))
            return ++words == 2 ? DIE : GO_ON;
        return GO_ON;
    };
    if (what == "growth")
        files.before = [](const FsCall &c) { // the record of the log
            return strcmp(c.op, "pwrite") == 0 ? DIE : GO_ON;
        };
    if ((what == "write" || what == "commit") && !m.write(2000, pattern(9000, 3)))
        return 3;
    if (what == "growth" && ato_ftruncate(m.base, 30000) < 0)
        return 4;
    if (what == "guard" || what == "unguard") {
        Bytes plain = m.read(18, 2);
        if (ato_set_guard(m.base, 18, plain.data(), 2) < 0 ||
            !m.write(18, Bytes(2, 255), ATO_EAGER))
            return 5;
    }
    if (what == "unguard")
        faults.before = [](const PersistCall &c) { // the record `deployed` is stored
            return strcmp(c.op, "store_pair") == 0 ? DIE : GO_ON;
        };
    if (what == "death")
        files.before = [](const FsCall &c) { // the first removed name is the reflection's
            return strcmp(c.op, "unlinkat") == 0 && isdigit(c.name[0]) ? DIE : GO_ON;
        };
    if (what == "hold") {
        prctl(PR_SET_NAME, "a\"holder\n");
        puts("ready");
        fflush(stdout);
        getchar();
    }
    bool spatial = what == "spatial" || what == "death" || what == "unguard";
    return m.unmap(spatial ? ATO_UNMAP_SPATIAL : ATO_UNMAP_FAST) < 0;
}

int main(int argc, char **argv)
{
    return argc == 3 ? act(argv[1], argv[2]) : 64;
}
