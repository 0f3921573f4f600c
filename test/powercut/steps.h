// SPDX-License-Identifier: BSD-3-Clause
//
// The steps of a part that stores bytes: which there are, what a file has after them, and how they are done, by calls and by plain
// stores.
#ifndef ATO_TEST_POWERCUT_STEPS_H
#define ATO_TEST_POWERCUT_STEPS_H

#include "story.h"

#include "support/mapped.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace powercut
{

using support::Bytes;

enum class What {
    Write,
    Ranges,
    Transaction,
    Resize,
    Eager,
    Sync,
    Deploy,
    MapAgain,
    MakePlain,
    Async,   // plain stores only: MS_ASYNC,
    Wait,    // the same, until the sync that comes by itself has made it durable,
    Grow,    // and no commit,
    Discard, // nor here
};

struct Step {
    What what;
    unsigned seed; // of its bytes
    std::vector<std::pair<size_t, size_t>> ranges;
    size_t size;  // of the file from this step on; 0: as before
    bool shrinks; // it is less than before

    Bytes bytes(size_t range) const
    {
        return support::pattern(ranges[range].second, seed + static_cast<unsigned>(range));
    }
    bool is_durable(const Part &part) const
    {
        if (what == What::Async || what >= What::Grow)
            return false;
        return !part.relaxed || what >= What::Eager || shrinks;
    }
};

// The same for a seed, however often and in which process it is asked.
std::vector<Step> steps_of(const Part &part, uint64_t seed);

// The part's bytes after so many steps.
Bytes content_after(const Part &part, const std::vector<Step> &steps, unsigned n);

// Throws what a call of libato has failed of.
void must(bool good, const std::string &what);

// A file that is mapped with libato.
class Hand
{
  public:
    Hand(const std::string &path, const Part &part, bool relaxed);
    void map();
    void unmap(int mode);
    void act(const Step &step);
    Bytes read();
    void leave(); // it stays mapped

  private:
    void act_by_calls(const Step &step);
    void act_by_stores(const Step &step);
    void act_as_a_whole(What what);
    void resize(const Step &step);
    void sync(int flags);

    const std::string path_;
    const Part part_;
    const bool relaxed_;
    std::unique_ptr<support::Mapped> m_;
};

} // namespace powercut

#endif
