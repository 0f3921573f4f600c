/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Engines one at a time, for suites that unmap them, kill their process, or run them in several: which there are, their folders, the
 * bytes that they have to hold, child processes, and rounds.
 */
#ifndef ATO_BENCHMARKS_SUITES_ALONE_H
#define ATO_BENCHMARKS_SUITES_ALONE_H

#include "suite.h"

#include <sys/types.h>

namespace suite
{

struct Side {
    const engine::Kind *kind;
    engine::Options options; /* without a folder */
    std::string name;

    std::string guarantee() const
    {
        return engine::name_of(kind->promise(options), options.domain);
    }
};

/* The engines that take part and are asked for; the floor is the first. */
std::vector<Side> sides_of(const engine::Options &options);

/* A new folder in another one; removed with all that is in it. */
class Folder
{
  public:
    explicit Folder(const std::string &parent);
    ~Folder();
    Folder(const Folder &) = delete;
    Folder &operator=(const Folder &) = delete;

    const std::string &path() const
    {
        return path_;
    }

    uint64_t bytes() const; /* of storage that its files take */

  private:
    std::string path_;
};

/* What an engine's file has to hold: zeros, and what is written here. */
class Content
{
  public:
    explicit Content(uint64_t bytes) : bytes_(bytes)
    {
    }

    /* Makes the same write to both; null: only here. */
    void write(const engine::Operation &operation, engine::Engine *engine);

    /* Returns the nanoseconds of reading all, 4 KiB after 4 KiB. Fails if these are other bytes. */
    double ns_of_reading(engine::Engine &engine, const char *name) const;

  private:
    std::vector<char> bytes_;
};

const char *source(); /* of the bytes that are written: SOURCE_BYTES */
constexpr size_t SOURCE_BYTES = MAX_BYTES + (64 << 10);

/* `count` writes of `bytes` bytes, each in another block of `block` bytes of a file of `file_bytes`, all at random. */
std::vector<engine::Operation> scattered(uint64_t file_bytes, size_t count, uint32_t block,
                                         uint32_t bytes, unsigned seed);

/*
 * Rounds in which each side, in random order, gives a value for each metric; at least two, and no further one that would take longer
 * than the seconds. Then the rows of the cell.
 */
using Metrics = std::vector<const char *>;
using Take = std::function<std::vector<double>(const Side &, unsigned round)>;
void compare(const char *suite, const Cell &cell, const std::vector<Side> &sides,
             const Metrics &metrics, double seconds, const Take &take);

/* Forks. The child does this, and ends without any clearing up, as if it was killed then. */
pid_t start_child(const std::function<void()> &what);
void wait_for_child(pid_t child, const char *name); /* fails if it has failed */

} // namespace suite

#endif
