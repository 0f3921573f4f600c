// SPDX-License-Identifier: BSD-3-Clause
//
// Several transactions that are committed in one step: all take effect, or all stay as they
// are. (Two folders: two_folders_test.cc; a crash in the commit: events_test.cc.)
#include "tx_lab.h"

using namespace support;
using tx_lab::refused;

namespace
{

constexpr size_t PAGE = 4096, SIZE = 20 * PAGE + 300, MOST = 4 << 20;

struct File {
    std::string path;
    Bytes model; // after the commit
    std::unique_ptr<Mapped> m;
};

class TxAll : public testing::TestWithParam<int>
{
  protected:
    TxAll()
    {
        for (File *f : {&a, &b}) {
            f->path = dir / (f == &a ? "a" : "b");
            f->model = pattern(SIZE, f == &a ? 1 : 2);
            write_file(f->path, f->model);
            ato_options o = options(GetParam(), ATO_READ_GATHER, ATO_NO_RTM);
            o.max_size = MOST;
            f->m = std::make_unique<Mapped>(f->path, o, SIZE);
            EXPECT_TRUE(*f->m) << f->m->sentence;
        }
        begin();
    }
    ~TxAll()
    {
        for (ato_tx *t : all)
            ato_tx_abort(t);
    }

    void begin()
    {
        for (ato_tx *&t : all)
            t = ato_tx_begin(0);
    }
    static void put(ato_tx *t, File &f, size_t at, const Bytes &bytes, unsigned flags = 0)
    {
        ASSERT_NE(ato_tx_memcpy(t, f.m->base + at, bytes.data(), bytes.size(), flags), nullptr)
            << ato_errormsg();
        std::copy(bytes.begin(), bytes.end(), f.model.begin() + static_cast<long>(at));
    }
    static void resize(ato_tx *t, File &f, size_t to)
    {
        ASSERT_EQ(ato_tx_ftruncate(t, f.m->base, static_cast<off_t>(to)), 0) << ato_errormsg();
        f.model.resize(to);
    }
    static void look(ato_tx *t, const File &f, size_t at)
    {
        char byte;
        EXPECT_NE(ato_tx_memcpy(t, &byte, f.m->base + at, 1, 0), nullptr) << ato_errormsg();
    }
    // By another thread, which then writes to every page: none is held.
    void expect_models()
    {
        std::thread([&] {
            for (File *f : {&a, &b}) {
                ASSERT_EQ(ato_size(f->m->base), static_cast<off_t>(f->model.size()));
                EXPECT_EQ(f->m->read(0, f->model.size()), f->model);
                EXPECT_TRUE(f->m->write(0, f->model)) << f->m->sentence;
            }
        }).join();
    }
    int commit() const
    {
        return ato_tx_commit_all(all, 2);
    }

    TempDir dir;
    File a, b;
    ato_tx *all[2];
};

TEST_P(TxAll, IsOneCommitOfAllFiles)
{
    for (bool large : {false, true}) {
        put(all[0], a, 70, pattern(5, 3)); // short writes wait in their queues
        put(all[1], b, 90, pattern(7, 4));
        put(all[1], a, 5 * PAGE, pattern(7, 5)); // both write to it
        if (large) {
            resize(all[1], b, 300 * PAGE);
            put(all[1], b, PAGE - 10, pattern(200 * PAGE, 6));
        }
        const uint64_t before = a.m->stat().commits_journal;
        ASSERT_EQ(commit(), 0) << ato_errormsg();
        EXPECT_EQ(a.m->stat().commits_journal, before + 1);
        EXPECT_EQ(b.m->stat().commits_journal, before + 1);
        for (ato_tx *t : all)
            EXPECT_TRUE(refused(ato_tx_abort(t) < 0, EINVAL, "open"));
        expect_models();
        begin();
    }
}

TEST_P(TxAll, HasTheSizesOfAll)
{
    for (size_t to : {30 * PAGE + 40, 7 * PAGE + 1000, PAGE, SIZE}) {
        put(all[0], a, 10, pattern(60, 3));
        resize(all[0], b, 5 * PAGE + to / 2);
        resize(all[1], a, 9 * PAGE);
        resize(all[1], a, to);
        ASSERT_EQ(commit(), 0) << ato_errormsg();
        expect_models();
        ASSERT_TRUE(ato_ftruncate(a.m->base, SIZE) == 0 && ato_ftruncate(b.m->base, SIZE) == 0)
            << ato_errormsg();
        a.model.resize(SIZE);
        b.model.resize(SIZE);
        begin();
    }
}

TEST_P(TxAll, OneMayHaveReadWhatAnotherWrites)
{
    look(all[0], b, 5 * PAGE);
    put(all[1], b, 5 * PAGE, pattern(9, 3));
    look(all[0], b, 5 * PAGE + 70);
    put(all[0], a, 0, pattern(9, 4));
    look(all[1], a, 7);
    resize(all[1], b, 9 * PAGE); // holds what it cuts off
    look(all[0], b, 12 * PAGE);
    ASSERT_EQ(commit(), 0) << ato_errormsg();
    expect_models();
}

// The one that is not refused can still be committed.
TEST_P(TxAll, HasNoEffectIfOneIsRefused)
{
    for (size_t i : {0, 1}) {
        look(all[i], b, 3 * PAGE);
        put(all[1 - i], a, 2 * PAGE, pattern(9, 3 + i));
        std::thread([&] { ASSERT_TRUE(b.m->write(3 * PAGE, pattern(9, 5 + i))); }).join();
        EXPECT_TRUE(refused(commit() < 0, EAGAIN, "changed"));
        EXPECT_NE(a.m->read(2 * PAGE, 9), pattern(9, 3 + i));
        EXPECT_TRUE(refused(ato_tx_commit(all[i]) < 0, EAGAIN, "refused"));
        EXPECT_TRUE(refused(commit() < 0, EAGAIN, "refused"));
        EXPECT_EQ(ato_tx_abort(all[i]), 0);
        ASSERT_EQ(ato_tx_commit(all[1 - i]), 0) << ato_errormsg();
        b.model = b.m->read(0, SIZE);
        expect_models();
        begin();
    }
}

TEST_P(TxAll, FailureLeavesAllAsTheyAre)
{
    write_file(dir / "other", pattern(SIZE, 3));
    Mapped other(dir / "other",
                 options(GetParam() == ATO_DOMAIN_PMEM ? ATO_DOMAIN_PROCESS : ATO_DOMAIN_PMEM));
    ASSERT_TRUE(other) << other.sentence;
    ato_tx *elsewhere = ato_tx_begin(0);
    put(all[0], a, 5, pattern(2 * PAGE, 3));
    put(all[1], b, 70, pattern(PAGE, 4));
    resize(all[1], b, 10 * PAGE + 5);
    ASSERT_NE(ato_tx_memcpy(elsewhere, other.base, "else", 4, 0), nullptr) << ato_errormsg();
    const auto fails = [&](ato_tx *last, int error, const char *words) {
        ato_tx *const three[] = {all[0], all[1], last};
        EXPECT_TRUE(refused(ato_tx_commit_all(three, 3) < 0, error, words));
    };
    fails(all[0], EINVAL, "twice");
    fails(nullptr, EINVAL, "open");
    fails(elsewhere, EXDEV, "domain");
    EXPECT_TRUE(refused(ato_tx_commit_all(all, -1) < 0, EINVAL, "-1"));
    EXPECT_EQ(ato_tx_commit_all(nullptr, 0), 0);
    EXPECT_EQ(other.read(), pattern(SIZE, 3));
    ASSERT_EQ(commit(), 0) << ato_errormsg();
    ASSERT_EQ(ato_tx_commit(elsewhere), 0) << ato_errormsg();
    expect_models();
}

// Files that are only read are in no commit.
TEST_P(TxAll, FilesThatAreOnlyReadMayBeOfAnyDomain)
{
    write_file(dir / "other", pattern(SIZE, 3));
    Mapped other(dir / "other",
                 options(GetParam() == ATO_DOMAIN_PMEM ? ATO_DOMAIN_PROCESS : ATO_DOMAIN_PMEM));
    char byte;
    ASSERT_NE(ato_tx_memcpy(all[0], &byte, other.base, 1, 0), nullptr) << ato_errormsg();
    put(all[1], b, 70, pattern(PAGE, 4));
    ASSERT_EQ(commit(), 0) << ato_errormsg();
    expect_models();
}

TEST_P(TxAll, EagerWritesAreDeployed)
{
    put(all[0], a, 5, pattern(64, 3));
    put(all[1], b, 100, pattern(5 * PAGE, 3), ATO_EAGER);
    ASSERT_EQ(commit(), 0) << ato_errormsg();
    EXPECT_EQ(b.m->stat().slices_in_reflection, 0u);
    EXPECT_GT(a.m->stat().slices_in_reflection, 0u);
}

INSTANTIATE_TEST_SUITE_P(Domains, TxAll,
                         testing::Values(ATO_DOMAIN_PMEM, ATO_DOMAIN_EADR, ATO_DOMAIN_MSYNC,
                                         ATO_DOMAIN_PROCESS));

} // namespace
