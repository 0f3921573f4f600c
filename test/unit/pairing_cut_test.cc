// SPDX-License-Identifier: BSD-3-Clause
//
// Does a pairing survive a process that dies anywhere in its life? A child maps a file, writes a
// record of several pages and unmaps; it dies before the k-th change of a name, a size or an
// attribute, and before the k-th store or flush, for every k. Whoever maps the file next must find
// the record whole, old or new, new if the write had returned.
#include "support/child.h"
#include "support/faults.h"
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <sys/mman.h>

using namespace support;

namespace
{

constexpr size_t SIZE = 5 * 4096 + 100;
constexpr uint64_t AT = 4000; // the record lies in three pages
constexpr size_t RECORD = 6000;

// What the parent is told, however the child ends.
struct Told {
    bool written, unmapped;
};

class Teller
{
  public:
    Teller()
        : told_(static_cast<Told *>(mmap(nullptr, sizeof(Told), PROT_READ | PROT_WRITE,
                                         MAP_SHARED | MAP_ANONYMOUS, -1, 0)))
    {
    }
    ~Teller()
    {
        munmap(told_, sizeof(Told));
    }
    Told *operator->()
    {
        return told_;
    }

  private:
    Told *told_;
};

class PairingCut : public testing::TestWithParam<int>
{
  protected:
    PairingCut() : before_(pattern(SIZE, 1)), after_(before_), record_(pattern(RECORD, 2))
    {
        std::copy(record_.begin(), record_.end(), after_.begin() + AT);
    }

    // A whole life, in the child: map, write, unmap. RTM is left out: its commits have no moments
    // to be cut at, and the journal's many.
    int live(const std::string &path, int mode, Teller &told) const
    {
        Mapped m(path, options(GetParam(), ATO_READ_GATHER, ATO_NO_RTM));
        if (!m || !m.write(AT, record_))
            return 1;
        told->written = true;
        if (m.unmap(mode) < 0)
            return 2;
        told->unmapped = true;
        return 0;
    }

    // The next user finds everything, can write, and can leave a plain file behind.
    void expect_in_order(const std::string &path, Teller &told)
    {
        // No attribute: the file must be plain by now, or still be.
        if (attribute_of(path).empty()) {
            Bytes plain = read_file(path);
            ASSERT_TRUE(plain == after_ || (plain == before_ && !told->written));
        }
        Mapped m(path, options(GetParam()));
        ASSERT_TRUE(m) << m.sentence;
        Bytes found = m.read();
        ASSERT_TRUE(found == before_ || found == after_) << "a torn record";
        if (told->written) {
            ASSERT_EQ(found, after_) << "an acknowledged write was lost";
        }
        for (uint64_t at = AT; at < AT + RECORD; at = (at / 4096 + 1) * 4096) { // page by page
            size_t n = std::min<uint64_t>((at / 4096 + 1) * 4096, AT + RECORD) - at;
            auto begin = record_.begin() + static_cast<long>(at - AT);
            ASSERT_TRUE(m.write(at, Bytes(begin, begin + static_cast<long>(n)))) << m.sentence;
        }
        ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        ASSERT_EQ(read_file(path), after_);
        ASSERT_EQ(attribute_of(path), "");
        ASSERT_EQ(names_in(folder_of(path)), std::vector<std::string>());
    }

    // Cuts at every k; returns how many there were.
    template <class Faults> long cut_everywhere(int mode)
    {
        for (long k = 0;; k += NEXT_CUT) {
            SCOPED_TRACE("cut before call " + std::to_string(k));
            TempDir dir;
            std::string path = dir / "file";
            write_file(path, before_);
            Teller told;
            int status = in_child([&] {
                Faults faults;
                faults.cut_at(k);
                return live(path, mode, told);
            });
            if (status == 0)
                return k;
            EXPECT_EQ(status, CUT);
            expect_in_order(path, told);
            if (HasFatalFailure() || HasNonfatalFailure() || k > 1000)
                return -1;
        }
    }

    Bytes before_, after_, record_;
};

TEST_P(PairingCut, AnyNameChangeOfAFastLifeMayBeTheLast)
{
    long cuts = cut_everywhere<FsFaults>(ATO_UNMAP_FAST);
    EXPECT_GT(cuts, 20); // birth, journal, clean unmap
}

TEST_P(PairingCut, AnyNameChangeOfASpatialLifeMayBeTheLast)
{
    long cuts = cut_everywhere<FsFaults>(ATO_UNMAP_SPATIAL);
    EXPECT_GT(cuts, 25); // also the removal
}

TEST_P(PairingCut, AnyStoreOrFlushOfAFastLifeMayBeTheLast)
{
    long cuts = cut_everywhere<PersistFaults>(ATO_UNMAP_FAST);
    EXPECT_GT(cuts, 20);
}

TEST_P(PairingCut, AnyStoreOrFlushOfASpatialLifeMayBeTheLast)
{
    long cuts = cut_everywhere<PersistFaults>(ATO_UNMAP_SPATIAL);
    EXPECT_GT(cuts, 25);
}

// A file that has a history: adopted, not born.
TEST_P(PairingCut, AnyNameChangeAfterAnAdoptionMayBeTheLast)
{
    for (long k = 0;; k += NEXT_CUT) {
        SCOPED_TRACE("cut before call " + std::to_string(k));
        TempDir dir;
        std::string path = dir / "file";
        write_file(path, pattern(SIZE, 4));
        {
            Mapped m(path, options(GetParam()));
            ASSERT_TRUE(m) << m.sentence;
            ASSERT_TRUE(m.write(0, before_)) << m.sentence;
        }
        Teller told;
        int status = in_child([&] {
            FsFaults faults;
            faults.cut_at(k);
            return live(path, ATO_UNMAP_SPATIAL, told);
        });
        if (status == 0) {
            EXPECT_GT(k, 10);
            break;
        }
        ASSERT_EQ(status, CUT);
        expect_in_order(path, told);
        ASSERT_FALSE(HasFailure());
    }
}

std::string name_of(const testing::TestParamInfo<int> &info)
{
    static const char *const names[] = {"auto", "pmem", "eadr", "msync", "process"};
    return names[info.param];
}

// eadr has pmem's calls.
INSTANTIATE_TEST_SUITE_P(Domains, PairingCut,
                         testing::Values(ATO_DOMAIN_PMEM, ATO_DOMAIN_MSYNC, ATO_DOMAIN_PROCESS),
                         name_of);

} // namespace
