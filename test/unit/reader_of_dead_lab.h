// SPDX-License-Identifier: BSD-3-Clause
//
// A process that may only read reads pages that another process was killed in writing or in taking
// over: for the tests of what it sees. Each read of a marked page waits for a tenth of a second.
#ifndef ATO_TEST_UNIT_READER_OF_DEAD_LAB_H
#define ATO_TEST_UNIT_READER_OF_DEAD_LAB_H

#include "support/dying.h"
#include "support/faults.h"
#include "unit/watched.h"

#define _Thread_local __thread // C++ has no _Thread_local
extern "C" {
#include "lib/read/reader.h"
#include "reflection/media/seam.h"
}

#include <cerrno>
#include <functional>
#include <string>

namespace reader_of_dead
{

using namespace watched;

// A process dies when it reaches `where` for the n-th time, from 0.
struct Moment {
    enum seam_point where;
    int n;
    // What each of the pages that are written reads as after that: O as before, N as written, - not
    // at all.
    std::string pages;
};

inline int die_at(const Moment &moment, const std::function<void()> &act)
{
    static enum seam_point point;
    static int left;
    point = moment.where;
    left = moment.n;
    return in_child([&] {
        seam_hook = [](enum seam_point here, const void *) {
            if (here == point && left-- == 0)
                _exit(CUT);
        };
        act();
        return 1;
    });
}

inline ato_options by_journal()
{
    return options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, ATO_NO_RTM);
}

// The process dies in a write, or before it, in the map that takes over the pages of a dead
// process.
inline int die_in_a_write(const std::string &path, size_t at, const Bytes &part,
                          const Moment &moment)
{
    return die_at(moment, [&] {
        Mapped m(path, by_journal());
        m.write(at, part);
    });
}

// A letter for each page: O for its old content, N for its new content. "none": the read failed.
inline std::string kinds(const Bytes &got, const Bytes &before, const Bytes &after)
{
    std::string all;
    for (size_t at = 0; at < got.size(); at += 4096) {
        const auto is = [&](const Bytes &what) {
            return std::equal(got.begin() + at, got.begin() + at + 4096, what.begin() + at);
        };
        all += is(before) ? 'O' : is(after) ? 'N' : '?';
    }
    return got.empty() ? "none" : all;
}

// Reads a file that an idle process, which may write, has mapped.
class ReaderOfTheDead : public Reader
{
  protected:
    static constexpr size_t PIECE = 3 * 4096;

    ReaderOfTheDead() : idle(path, {[](Mapped &) { return true; }})
    {
        idle.act();
        reader_patience_ms = 100;
    }
    ~ReaderOfTheDead() override
    {
        reader_patience_ms = 1000;
    }
    // A writer dies in a write of three pages.
    void writer_dies(const Moment &moment)
    {
        const Bytes part = pattern(PIECE, ++seed);
        before = after = content;
        std::copy(part.begin(), part.end(), after.begin());
        about = std::to_string(moment.where) + "/" + std::to_string(moment.n);
        ASSERT_EQ(die_in_a_write(path, 0, part, moment), CUT) << about;
    }
    // The next process, which takes over the pages, dies too.
    void another_dies(const Moment &moment)
    {
        about += ", then " + std::to_string(moment.where) + "/" + std::to_string(moment.n);
        ASSERT_EQ(die_in_a_write(path, 4096, Bytes(1), moment), CUT) << about;
    }
    // Reads all that is written, and then each page that is not marked.
    void expect(Watched &r, const std::string &pages)
    {
        const bool whole = pages.find('-') == std::string::npos;
        EXPECT_EQ(kinds(r.read(0, PIECE), before, after), whole ? pages : "none") << about;
        if (!whole) {
            expect_refused(r);
        }
        for (size_t i = 0; i < pages.size(); i++)
            if (pages[i] != '-') {
                EXPECT_EQ(r.read(i * 4096, 4096), page_of(pages[i] == 'O' ? before : after, i))
                    << about << ", page " << i;
            }
        EXPECT_EQ(r.read(PIECE, 4096), page_of(before, 3)) << about;
    }
    void expect_refused(const Watched &r) const
    {
        EXPECT_EQ(r.error, EAGAIN) << about;
        EXPECT_NE(std::string(ato_errormsg()).find("a dead process"), std::string::npos)
            << ato_errormsg();
    }
    static Bytes page_of(const Bytes &all, size_t page)
    {
        return {all.begin() + page * 4096, all.begin() + (page + 1) * 4096};
    }
    // A process takes over the pages, and lives.
    void recover()
    {
        Mapped m(path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
        EXPECT_TRUE(m.write(4096, Bytes(after.begin() + 4096, after.begin() + 4097))) << about;
        content = after;
    }

    Writer idle;
    int seed = 2;
    Bytes before, after;
    std::string about;
};

// Called when this process itself reaches a point.
inline std::function<void(enum seam_point)> here;

inline void do_here(enum seam_point point, const void *)
{
    here(point);
}

} // namespace reader_of_dead

#endif
