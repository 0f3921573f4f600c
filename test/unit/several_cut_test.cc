// SPDX-License-Identifier: BSD-3-Clause
//
// Does a commit of files in several folders survive a process that dies anywhere in it? Entries of the
// table, pointers and the journal are born and removed meanwhile. A child dies before the k-th change of
// a name, and before the k-th store or flush, for every k; whoever maps the files next, in whatever order,
// finds the commit in all or in none, and leaves nothing behind.
#include "several_lab.h"

#include <sys/mman.h>

namespace
{

class SeveralCut : public Several, public testing::WithParamInterface<int>
{
  protected:
    SeveralCut() : Several(GetParam())
    {
        void *at = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        committed = new (at) bool(false);
    }
    ~SeveralCut() override
    {
        munmap(committed, 4096);
    }

    // In the child. Cuts begin behind the mapping.
    template <class Faults> int live(long k)
    {
        All all = map(3);
        if (all.size() != 3)
            return 1;
        Faults faults;
        faults.cut_at(k);
        Commit c;
        if (!commit(c, files_of(all)))
            return 2;
        *committed = true;
        if (!complete(c))
            return 3;
        for (auto &m : all)
            if (m->unmap(ATO_UNMAP_FAST) < 0)
                return 4;
        _exit(0);
    }

    void expect_all_or_none(const size_t order[3])
    {
        for (int i = 0; i < 3; i++) {
            Mapped m(paths[order[i]], wish());
            ASSERT_TRUE(m) << m.sentence;
        }
        if (*committed || word_of(paths[0]) != 0)
            expect_words(3);
        else
            for (const std::string &path : paths)
                EXPECT_EQ(word_of(path), 0u);
        expect_nothing_left();
        for (const std::string &path : paths) {
            Mapped m(path, wish());
            ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        }
    }

    template <class Faults> long cut_everywhere()
    {
        static const size_t orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 2, 0}};
        for (long k = 0;; k += NEXT_CUT) {
            SCOPED_TRACE("cut before call " + std::to_string(k));
            *committed = false;
            int status = in_child([&] { return live<Faults>(k); });
            expect_all_or_none(orders[k % 3]);
            if (HasFailure() || k > 1000)
                return -1;
            if (status == 0)
                return k;
            EXPECT_EQ(status, CUT);
        }
    }

    bool *committed;
};

TEST_P(SeveralCut, AnyNameChangeMayBeTheLast)
{
    EXPECT_GT(cut_everywhere<FsFaults>(), 25);
}

TEST_P(SeveralCut, AnyStoreOrFlushMayBeTheLast)
{
    EXPECT_GT(cut_everywhere<PersistFaults>(), 30);
}

std::string name_of(const testing::TestParamInfo<int> &info)
{
    static const char *const names[] = {"auto", "pmem", "eadr", "msync", "process"};
    return names[info.param];
}

INSTANTIATE_TEST_SUITE_P(Domains, SeveralCut,
                         testing::Values(ATO_DOMAIN_PMEM, ATO_DOMAIN_MSYNC, ATO_DOMAIN_PROCESS),
                         name_of);

} // namespace
