// SPDX-License-Identifier: BSD-3-Clause
//
// Is the file of a journal made, kept and removed as it should be? It is locked while its owner
// lives; a file that is no journal is an error and no signal.
#include "support/child.h"
#include "support/faults.h"
#include "support/temp.h"

extern "C" {
#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/pairing/area.h"
#include "reflection/recovery/redo.h"
}

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace support;

namespace
{

class Redo : public testing::Test
{
  protected:
    Redo()
    {
        persist_init(&p, PERSIST_PMEM);
        EXPECT_EQ(folder_open(&f, dir.path().c_str(), false), 0) << report_sentence();
    }
    ~Redo() override
    {
        folder_close(&f);
    }

    int create(redo *out)
    {
        return redo_create(out, &f, &p, &like);
    }

    int open_again(redo *out, const redo &made)
    {
        return redo_open(out, &f, made.number, &like);
    }

    const struct trust like = {geteuid(), getegid(), 0640};

    TempDir dir;
    folder f = {};
    struct persist p;
};

TEST_F(Redo, IsLockedBeforeItIsFilled)
{
    FsFaults faults;
    faults.before = [&](const FsCall &c) {
        for (const std::string &name : names_in(dir.path())) {
            Fd other(dir / name);
            EXPECT_EQ(locks_ask(other, 0, 1), LOCKS_TAKEN) << name << " before " << c.op;
        }
        return GO_ON;
    };
    redo made;
    ASSERT_EQ(create(&made), 0) << report_sentence();
    ASSERT_EQ(names_in(dir.path()).size(), 1u);
    std::string name = names_in(dir.path())[0];
    EXPECT_EQ(name, made.name);
    EXPECT_EQ(name.rfind(REDO_PREFIX, 0), 0u);
    EXPECT_EQ(name.size(), strlen(REDO_PREFIX) + 12);
    EXPECT_EQ(stat_of(dir / name).st_mode & 07777, 0640u);
    EXPECT_GE(stat_of(dir / name).st_blocks * 512, static_cast<blkcnt_t>(size_of(dir / name)))
        << "all of its space is allocated";
    {
        Fd other(dir / name);
        EXPECT_EQ(locks_ask(other, 0, 1), LOCKS_TAKEN);
    }
    faults.before = nullptr;
    redo_close(&made, &f, true);
    EXPECT_TRUE(names_in(dir.path()).empty());
    EXPECT_GE(faults.count("fsync"), 2) << "journal, folder; a removal need not be durable";
}

TEST_F(Redo, HoldsAJournalThatAnotherProcessCanRead)
{
    std::string name;
    int status = in_child([&] {
        redo made;
        if (create(&made) < 0)
            return 1;
        journal_file file = {};
        file.inode = 7;
        journal_writer w;
        journal_begin(&w, &made.journal, &p, 2, 1, 1);
        journal_name(&w, &file);
        journal_add(&w, 0, 8, 99);
        return journal_commit(&w) < 0 ? 2 : 0; // and dies
    });
    ASSERT_EQ(status, 0);
    ASSERT_EQ(names_in(dir.path()).size(), 1u);
    name = names_in(dir.path())[0];
    uint64_t number;
    ASSERT_TRUE(redo_name_of(name.c_str(), &number));
    redo found;
    ASSERT_EQ(redo_open(&found, &f, number, &like), 0) << report_sentence();
    {
        Fd other(dir / name);
        EXPECT_EQ(locks_ask(other, 0, 1), LOCKS_FREE) << "its owner is dead";
        EXPECT_EQ(locks_ask(other, 1, 1), LOCKS_TAKEN) << "it is being recovered";
    }
    journal_view v;
    ASSERT_EQ(journal_look(&found.journal, 2, &v), JOURNAL_COMMITTED);
    EXPECT_EQ(v.words[0].value, 99u);
    EXPECT_EQ(found.journal.domain, PERSIST_PMEM);
    redo_close(&found, &f, false);
    EXPECT_TRUE(exists(dir / name));
}

TEST_F(Redo, BeginsOnACacheLine)
{
    redo a, b;
    ASSERT_EQ(create(&a), 0);
    ASSERT_EQ(create(&b), 0);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a.journal.lanes_at) % 64, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(b.journal.lanes_at) % 64, 0u);
    EXPECT_NE(strcmp(a.name, b.name), 0);
    redo_close(&a, &f, true);
    redo_close(&b, &f, true);
}

TEST_F(Redo, GrowsToWhatACommitNeeds)
{
    redo made, found;
    ASSERT_EQ(create(&made), 0) << report_sentence();
    const std::string path = dir / made.name;
    EXPECT_EQ(size_of(path), journal_bytes(0));
    EXPECT_EQ(size_of(path), 2 << 20);
    for (uint64_t words : {1ull << 18, 1ull << 20, 1ull << 22}) {
        journal_file file = {};
        journal_writer w;
        EXPECT_LT(journal_capacity(&made.journal, JOURNAL_LANES, 1), words);
        ASSERT_EQ(redo_grow(&made, words), 0) << report_sentence();
        EXPECT_EQ(size_of(path), journal_bytes(words));
        EXPECT_GE(stat_of(path).st_blocks * 512, static_cast<blkcnt_t>(journal_bytes(words)));
        ASSERT_GE(journal_capacity(&made.journal, JOURNAL_LANES, JOURNAL_MAX_FILES), words);
        journal_begin(&w, &made.journal, &p, JOURNAL_LANES, 1, words);
        journal_name(&w, &file);
        for (uint64_t i = 0; i < words; i++)
            journal_add(&w, 0, 8, i);
        ASSERT_EQ(journal_commit(&w), 0);
        ASSERT_EQ(open_again(&found, made), 0) << report_sentence();
        journal_view v;
        ASSERT_EQ(journal_look(&found.journal, JOURNAL_LANES, &v), JOURNAL_COMMITTED);
        EXPECT_EQ(v.words[words - 1].value, words - 1);
        redo_close(&found, &f, false);
        ASSERT_EQ(journal_retire(&w), 0);
    }
    redo_close(&made, &f, true);
}

TEST_F(Redo, GrowthThatFailsLeavesTheJournalAsItWas)
{
    redo made;
    ASSERT_EQ(create(&made), 0) << report_sentence();
    const uint64_t before = journal_length(&made.journal);
    {
        FsFaults faults;
        faults.fail_at(0, ENOSPC);
        EXPECT_EQ(redo_grow(&made, 1 << 20), -1);
        EXPECT_EQ(errno, ENOSPC);
        EXPECT_NE(std::string(report_sentence()).find(made.name), std::string::npos);
        EXPECT_EQ(journal_length(&made.journal), before);
    }
    EXPECT_EQ(redo_grow(&made, 1 << 20), 0) << report_sentence();
    redo_close(&made, &f, true);
}

// What is cut off is missed: nothing is mapped, or the lane that had it is damaged.
TEST_F(Redo, ShortenedJournalIsRefused)
{
    redo made, found;
    journal_file file = {};
    journal_writer w;
    ASSERT_EQ(create(&made), 0) << report_sentence();
    const std::string path = dir / made.name;
    journal_begin(&w, &made.journal, &p, JOURNAL_LANES, 1, 1000);
    journal_name(&w, &file);
    for (unsigned i = 0; i < 1000; i++)
        journal_add(&w, 0, 8, i);
    ASSERT_EQ(journal_commit(&w), 0);
    const off_t large = 4096 + JOURNAL_LANES * JOURNAL_LANE_BYTES;
    for (off_t bytes : {large + 8192, large + 4096}) {
        ASSERT_EQ(truncate(path.c_str(), bytes), 0);
        journal_view v;
        ASSERT_EQ(open_again(&found, made), 0) << report_sentence();
        EXPECT_EQ(journal_look(&found.journal, JOURNAL_LANES, &v), JOURNAL_DAMAGED);
        redo_close(&found, &f, false);
    }
    for (off_t bytes : {large + 4095, large, off_t{4096}, off_t{100}, off_t{0}}) {
        ASSERT_EQ(truncate(path.c_str(), bytes), 0);
        EXPECT_EQ(open_again(&found, made), -1) << bytes;
        EXPECT_EQ(errno, EUCLEAN);
        EXPECT_EQ(found.map.base, nullptr);
    }
    redo_close(&made, &f, true);
}

// A copy may have holes: they get space before they are read.
TEST_F(Redo, HolesOfACopyGetSpace)
{
    redo made, found;
    ASSERT_EQ(create(&made), 0) << report_sentence();
    const std::string path = dir / made.name;
    ASSERT_EQ(truncate(path.c_str(), 4 << 20), 0);
    ASSERT_EQ(open_again(&found, made), 0) << report_sentence();
    EXPECT_GE(stat_of(path).st_blocks * 512, 4 << 20);
    redo_close(&found, &f, false);
    redo_close(&made, &f, true);
}

TEST_F(Redo, NamesAreClassified)
{
    const std::string name = "journal-00000000002a";
    uint64_t number = 0;
    char made[REDO_NAME_BYTES];
    EXPECT_TRUE(redo_name_of(name.c_str(), &number));
    EXPECT_EQ(number, 42u);
    redo_name(made, number);
    EXPECT_EQ(made, name);
    for (const std::string &other :
         {name + "a", name + ".", name + ".tmp", name.substr(1), name.substr(0, 19),
          "journal-" + std::string(32, 'a'), "journal-" + std::string(13, '1'),
          "journal-" + std::string(16, 'a'), std::string("journal-00000000002A")})
        EXPECT_FALSE(redo_name_of(other.c_str(), nullptr)) << other;
}

TEST_F(Redo, StepThatFailsLeavesNothing)
{
    for (long k = 0;; k++) {
        SCOPED_TRACE(k);
        FsFaults faults;
        faults.fail_at(k, ENOSPC);
        redo made;
        int r = create(&made);
        if (r == 0) {
            bool done = k >= static_cast<long>(faults.calls.size());
            faults.before = nullptr;
            redo_close(&made, &f, true);
            if (done)
                break;
            continue; // fchown may fail
        }
        EXPECT_EQ(errno, ENOSPC) << faults.calls[static_cast<size_t>(k)];
        EXPECT_STRNE(report_sentence(), "");
        EXPECT_TRUE(names_in(dir.path()).empty()) << faults.calls[static_cast<size_t>(k)];
    }
}

// Another process removes the journal after it is made and before it is locked.
TEST_F(Redo, IsMadeAgainIfItIsRemovedBeforeItIsLocked)
{
    static int clear;
    static struct fsops table;
    clear = 2;
    table = fsops_real;
    table.create = [](int folder, const char *name, int flags, mode_t mode) {
        int fd = fsops_real.create(folder, name, flags, mode);
        if (clear-- > 0)
            unlinkat(folder, name, 0);
        return fd;
    };
    fsops = &table;
    redo made;
    int r = create(&made);
    fsops = &fsops_real;
    ASSERT_EQ(r, 0) << report_sentence();
    EXPECT_LT(clear, 0);
    ASSERT_EQ(names_in(dir.path()), std::vector<std::string>{made.name});
    {
        Fd other(dir / made.name);
        EXPECT_EQ(locks_ask(other, 0, 1), LOCKS_TAKEN);
    }
    redo_close(&made, &f, true);
}

// A user with write access to the folder replaces the unfinished journal by a link to a file of the
// victim.
TEST_F(Redo, LinkInPlaceOfTheUnfinishedJournalIsNotFollowed)
{
    const std::string precious = dir / "precious";
    const Bytes zeros(2 << 20);
    for (const char *moment : {"fallocate", "fsync"}) {
        write_file(precious, zeros);
        FsFaults faults;
        faults.before = [&](const FsCall &c) {
            for (const std::string &name : names_in(dir.path()))
                if (std::string(c.op) == moment && redo_name_of(name.c_str(), nullptr)) {
                    EXPECT_EQ(unlink((dir / name).c_str()), 0);
                    EXPECT_EQ(symlink(precious.c_str(), (dir / name).c_str()), 0);
                }
            return GO_ON;
        };
        redo made;
        ASSERT_EQ(create(&made), 0) << moment << report_sentence();
        faults.before = nullptr;
        EXPECT_TRUE(read_file(precious) == zeros) << moment;
        redo_close(&made, &f, true);
        EXPECT_EQ(names_in(dir.path()), std::vector<std::string>{"precious"});
    }
}

TEST_F(Redo, FileThatIsNoJournalIsAnErrorThatNamesIt)
{
    for (int kind = 0; kind < 4; kind++) {
        Bytes content(2 << 20);
        if (kind == 1)
            content = pattern(2 << 20, 1);
        if (kind == 2)
            content.resize(100);
        if (kind == 3)
            content.resize(0);
        write_file(dir / "journal-000000000001", content);
        int status = in_child([&] {
            redo found;
            EXPECT_EQ(redo_open(&found, &f, 1, &like), -1);
            EXPECT_EQ(errno, EUCLEAN);
            EXPECT_NE(std::string(report_sentence()).find("journal-000000000001"),
                      std::string::npos);
            return static_cast<int>(HasFailure());
        });
        EXPECT_EQ(status, 0) << "kind " << kind;
    }
}

TEST_F(Redo, WithTheNumberOfAnotherIsRefused)
{
    redo made, found;
    ASSERT_EQ(create(&made), 0) << report_sentence();
    ASSERT_EQ(rename((dir / made.name).c_str(), (dir / "journal-000000000001").c_str()), 0);
    EXPECT_EQ(redo_open(&found, &f, 1, &like), -1);
    EXPECT_EQ(errno, EUCLEAN);
    EXPECT_NE(std::string(report_sentence()).find("was renamed"), std::string::npos);
    EXPECT_EQ(redo_open(&found, &f, made.number, &like), -1);
    EXPECT_EQ(errno, ENOENT);
    redo_close(&made, &f, false);
}

// ---- those that no manifest names ---------------------------------------------------------------

TEST_F(Redo, SweepRemovesAJournalOfADeadProcessThatNoManifestNames)
{
    redo made;
    ASSERT_EQ(create(&made), 0) << report_sentence();
    write_file(dir / "journal-000000000001", {});
    write_file(dir / "journal-1", {});
    redo_sweep(&f);
    EXPECT_TRUE(exists(dir / made.name)) << "its owner lives";
    EXPECT_TRUE(exists(dir / "journal-1")) << "not the name of a journal";
    EXPECT_EQ(names_in(dir.path()).size(), 2u);
    redo_close(&made, &f, false);
    redo_sweep(&f);
    EXPECT_EQ(names_in(dir.path()), std::vector<std::string>{"journal-1"});
}

TEST_F(Redo, SweepKeepsAJournalThatAManifestNamesOrMayName)
{
    redo made;
    ASSERT_EQ(create(&made), 0) << report_sentence();
    redo_close(&made, &f, false);
    Bytes manifest(manifest_area(8));
    for (uint64_t word : {manifest_encode_size(made.number), uint64_t(1)}) { // 1: it is damaged
        memcpy(&manifest[manifest_area(7)], &word, 8);
        write_file(dir / "17.manifest", manifest);
        redo_sweep(&f);
        EXPECT_TRUE(exists(dir / made.name)) << word;
    }
    const uint64_t other = manifest_encode_size(made.number + 1);
    memcpy(&manifest[manifest_area(7)], &other, 8);
    write_file(dir / "17.manifest", manifest);
    redo_sweep(&f);
    EXPECT_FALSE(exists(dir / made.name));
}

} // namespace
