/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The only way in which the engines that are written here reach their files, so that all of them pay alike, and can be stopped at
 * any store.
 *
 *             pmem                          process             disk
 *   copy      non-temporal stores: durable  memcpy()            memcpy()
 *             after the next fence
 *   flush     by cache line: durable after  nothing             notes the pages
 *             the next fence
 *   fence     drains                        orders the stores   msync(), once for each file,
 *                                                               from its first page noted to
 *                                                               its last
 *
 * An engine may also store to the mapped memory itself, and flush that.
 */
#ifndef ATO_BENCHMARKS_ENGINES_MEDIA_H
#define ATO_BENCHMARKS_ENGINES_MEDIA_H

#include "engine.h"

namespace engine
{

/* What went to persistent memory, of all threads: 64-byte lines flushed or stored past the caches, fences, bytes in these lines. */
struct Counts {
    uint64_t lines = 0, fences = 0, bytes = 0;
};

/* Counts and charges what the engines of domain pmem do, libato and libpmemobj too, without a cost for what is only timed: it is in
 * a program of its own, evaluate_counted (counting.cc). Null elsewhere. */
struct Meter {
    Counts (*counts)();
    /* From now on each line and each fence takes so many nanoseconds more. */
    void (*charge)(unsigned ns_line, unsigned ns_fence);
};
extern const Meter *meter;

/* For tests: called before each copy, flush and fence. `bytes` is 0 for a fence. Null: nobody. */
enum class Step { copy, flush, fence };
extern void (*watcher)(Step step, const void *at, size_t bytes);

class Medium
{
  public:
    explicit Medium(Domain domain) : domain_(domain)
    {
    }

    Domain domain() const
    {
        return domain_;
    }

    void copy(void *dst, const void *src, size_t n) const;
    void flush(const void *at, size_t n) const;
    void fence() const;

    /* An 8-byte atomic store, visible at once; flushed. */
    void store(uint64_t *word, uint64_t value) const;

  private:
    Domain domain_;
};

/* A file that is mapped for reading and writing, made if it is not there, of zeros. */
class File
{
  public:
    File(const std::string &path, size_t bytes);
    ~File();
    File(const File &) = delete;
    File &operator=(const File &) = delete;

    char *at(uint64_t offset) const
    {
        return base_ + offset;
    }

    size_t bytes() const
    {
        return bytes_;
    }

    int descriptor() const
    {
        return fd_;
    }

    bool is_new() const /* made by this object */
    {
        return is_new_;
    }

  private:
    char *base_;
    size_t bytes_;
    int fd_;
    bool is_new_;
};

} // namespace engine

#endif
