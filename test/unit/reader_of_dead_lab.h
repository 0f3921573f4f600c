// SPDX-License-Identifier: BSD-3-Clause
//
// A process reads pages that another process was killed in writing or in taking over: for the tests
// of what it sees.
#ifndef ATO_TEST_UNIT_READER_OF_DEAD_LAB_H
#define ATO_TEST_UNIT_READER_OF_DEAD_LAB_H

#include "support/dying.h"
#include "support/faults.h"
#include "unit/watched.h"

extern "C" {
#include "reflection/media/seam.h"
}

#include <functional>
#include <string>

namespace reader_of_dead
{

using namespace watched;

// A process dies when it reaches `where` for the n-th time, from 0.
struct Moment {
    enum seam_point where;
    int n;
    bool shown; // are the new bytes read after that?
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

// Reads a file that an idle process, which may write, has mapped.
class ReaderOfTheDead : public Reader
{
  protected:
    ReaderOfTheDead() : idle(path, {[](Mapped &) { return true; }})
    {
        idle.act();
    }
    // A writer dies in a write of three pages.
    void writer_dies(const Moment &moment)
    {
        const Bytes part = pattern(9000, ++seed);
        before = after = content;
        std::copy(part.begin(), part.end(), after.begin() + 3000);
        about = std::to_string(moment.where) + "/" + std::to_string(moment.n);
        ASSERT_EQ(die_in_a_write(path, 3000, part, moment), CUT) << about;
    }
    // The next process, which takes over the pages, dies too.
    void another_dies(const Moment &moment)
    {
        about += ", then " + std::to_string(moment.where) + "/" + std::to_string(moment.n);
        ASSERT_EQ(die_in_a_write(path, 4096, Bytes(1), moment), CUT) << about;
    }
    void expect(Watched &r, bool shown)
    {
        const Bytes &now = shown ? after : before;
        EXPECT_EQ(r.read(), now) << about;
        for (size_t at = 0; at < SIZE; at += 4096) {
            const size_t n = std::min<size_t>(4096, SIZE - at);
            EXPECT_EQ(r.read(at, n), Bytes(now.begin() + at, now.begin() + at + n))
                << about << ", page " << at / 4096;
        }
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

} // namespace reader_of_dead

#endif
