// SPDX-License-Identifier: BSD-3-Clause
//
// A process that reads what another one was killed over, or had begun to free: for the tests of what it sees.
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

// The moment of a death: when the process comes to a point for the n-th time, from 0.
struct Moment {
    enum seam_point where;
    int n;
    bool shown; // is it the new bytes that are read then?
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

// In a call that writes, or before it, when it maps the file and frees what another one left.
inline int die_in_a_write(const std::string &path, size_t at, const Bytes &part,
                          const Moment &moment)
{
    return die_at(moment, [&] {
        Mapped m(path, by_journal());
        m.write(at, part);
    });
}

// Reads beside a process that may write to the file, and does nothing.
class ReaderOfTheDead : public Reader
{
  protected:
    ReaderOfTheDead() : idle(path, {[](Mapped &) { return true; }})
    {
        idle.act();
    }
    // In a write of three pages.
    void somebody_dies(const Moment &moment)
    {
        const Bytes part = pattern(9000, ++seed);
        before = after = content;
        std::copy(part.begin(), part.end(), after.begin() + 3000);
        about = std::to_string(moment.where) + "/" + std::to_string(moment.n);
        ASSERT_EQ(die_in_a_write(path, 3000, part, moment), CUT) << about;
    }
    // The next one, which comes to free the pages.
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
    // The one that frees them.
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

// What this process does where it comes to a point itself.
inline std::function<void(enum seam_point)> here;

inline void do_here(enum seam_point point, const void *)
{
    here(point);
}

// What of three pages is as it was, and what as it became: "OOO", "NNN"; "none": it could not be read.
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
