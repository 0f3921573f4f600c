/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The files of a measurement, and their content: one for each side, all filled alike, with the stream of
 * random operations that all of them get.
 */
#ifndef ATO_BENCHMARKS_WORLD_H
#define ATO_BENCHMARKS_WORLD_H

#include "bench.h"

#include <memory>
#include <random>
#include <vector>

namespace bench
{

class World
{
  public:
    World(std::vector<std::unique_ptr<Backend>> sides, uint64_t file_bytes);

    Backend *side(size_t i) const
    {
        return sides_[i].get();
    }

    /* Touches all memory, and gives each page a random bitmap: neighbouring slices lie in different
     * homes, as after a long run of small writes. */
    void fill_at_random();

    /* 64-byte aligned: an unaligned source would cost every side the same, but more. */
    const char *source() const;

    /* At random offsets of [first, first + span), aligned to their size. */
    std::vector<Write> random_writes(uint32_t bytes, size_t count, uint64_t first, uint64_t span);

    std::vector<Write> random_writes(uint32_t bytes, size_t count)
    {
        return random_writes(bytes, count, 0, file_bytes_);
    }

    /* The source of the bytes of a write. */
    uint32_t random_source();

    std::mt19937_64 &random()
    {
        return random_;
    }

    /* Every side must hold what the first holds; fail() if not. */
    void check_content();

  private:
    void fill_all(const std::vector<Write> &writes);
    void add_runs(std::vector<Write> *writes, uint64_t page, uint64_t mask);

    std::vector<std::unique_ptr<Backend>> sides_;
    uint64_t file_bytes_;
    std::mt19937_64 random_{20240229};
    std::vector<char> source_;
};

/* The end of the files of a setup, of which there is one at a time: their contents are compared. */
template <class Files> void end_files(std::unique_ptr<Files> *files)
{
    if (*files)
        (*files)->world->check_content();
    files->reset();
}

} // namespace bench

#endif
