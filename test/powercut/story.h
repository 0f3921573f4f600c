// SPDX-License-Identifier: BSD-3-Clause
//
// What is done on the disk until the power goes, and what has to be there afterwards. A story has parts, each a process with a
// file, a region of a file, or a database, of its own. A part does its steps one after another. For each step a board in shared
// memory has how much was on the tape when it began, and when it was acknowledged. So it is known how many steps an image must
// have, and may have: it has to show the first so many steps of each part, all of them wholly. A relaxed step is acknowledged by a later
// one that makes all durable; or by a step of another part in the same file.
#ifndef ATO_TEST_POWERCUT_STORY_H
#define ATO_TEST_POWERCUT_STORY_H

#include "disk.h"

#include <string>
#include <vector>

namespace powercut
{

// How a part stores its bytes.
enum class Way {
    Region,   // libato, within its region: writes, ranges, transactions
    File,     // libato, a whole file: also changes of its size, checkpoints, unmaps of both kinds
    Stores,   // plain stores, from `at` to the end of a file: the same, and relaxed commits
    Database, // SQLite, through the VFS: transactions, closes, VACUUM
    Plain,    // the control: mmap() and msync()
};

struct Part {
    Way way;
    std::string file;
    size_t at, n;         // the region; with the end of a file: its size at first
    bool relaxed = false; // its commits, until a step makes them durable
    bool has_end() const
    {
        return way == Way::File || way == Way::Stores;
    }
};

// What the library leaves out.
enum class Fault { None, SyncOfLog, SyncOfFile };

constexpr unsigned MOST_STEPS = 400, MOST_PARTS = 6;

// The number of steps of a part that are done: from `least` to `most`, if it is not known or steps leave the content as it is.
// After a life: how long the tape was when that had read them, and when it had done one more (if it did).
struct Steps {
    unsigned least = 0, most = 0;
    uint64_t read_at = UINT64_MAX, more_at = UINT64_MAX;
};

struct Board;

class Story
{
  public:
    Story(const std::vector<Part> &parts, uint64_t seed);
    ~Story();
    Story(const Story &) = delete;
    Story &operator=(const Story &) = delete;

    // Makes the files, and then does so many steps of each part, all parts at once, on a disk that is mounted. Returns "", or what
    // failed.
    std::string play(Disk &disk, unsigned steps, Fault fault);
    uint64_t begin = 0; // of the tape, when the files are there and durable

    // What a power cut at `moment` may leave of each part: the fewest and the most of its first steps.
    std::vector<Steps> expected(uint64_t moment) const;

    // What the life after the power cut does with a part that it has read. GoOn: the next step.
    enum Then { Die, MakePlain, GoOn, THENS };

    // A life: a process that recovers and reads all. Returns "", or what is wrong. *steps are those expected, and then those found, of
    // parts that were read.
    std::string live(Disk &disk, std::vector<Steps> *steps, Then then) const;

    // After a power cut of that life at `moment`, or a later one.
    static std::vector<Steps> expected(const std::vector<Steps> &before,
                                       const std::vector<Steps> &found, Then then, uint64_t moment);

  private:
    const std::vector<Part> parts_;
    const uint64_t seed_;
    Board *board_;
};

} // namespace powercut

#endif
