/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cost of an atomic write or a read with libato: ato_memcpy() to and from a mapping with the chosen
 * domain and policy.
 */
#ifndef ATO_BENCHMARKS_LIBATO_H
#define ATO_BENCHMARKS_LIBATO_H

#include "bench.h"

#include <ato.h>
#include <memory>

namespace bench
{

class World;

/* A new file in a folder of its own, removed with all of libato's files beside it. Calls fail() on any
 * error. */
class AtoFile
{
  public:
    /* allocated: has space for every byte before it is mapped. */
    AtoFile(size_t bytes, bool allocated);
    ~AtoFile(); /* must not be mapped */
    AtoFile(const AtoFile &) = delete;
    AtoFile &operator=(const AtoFile &) = delete;

    void map(Domain domain, int read_policy);
    void map_to_read(); /* by another descriptor, which may only read */
    void unmap(int mode, unsigned threads = 0);
    /* Touches all memory; neighbouring slices lie in different homes. */
    void fill_at_random(World *world);
    struct ato_stat stat() const;
    bool has_reflection() const;
    uint64_t reflection_bytes() const; /* storage of the reflection and its manifest */

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

  private:
    std::string folder_;
    size_t bytes_;
    int fd_;
    char *base_ = nullptr;
};

struct LibatoOptions {
    Domain domain = Domain::pmem;
    int read_policy = ATO_READ_GATHER; /* looking at the content deploys nothing */
    unsigned write_flags = 0;          /* of ato_memcpy_opt() */
    const char *name = "libato";
};

class Libato : public Backend
{
  public:
    virtual struct ato_stat stat() const = 0;

    /* Brings every slice home. */
    virtual void deploy() = 0;

    /* In a forked child, which has inherited no mapping: the same file, mapped anew. */
    virtual void map_in_child() = 0;

    /* About half of all slices must lie in the reflection; fail() if not. */
    void check_bitmaps_at_random() const;
};

std::unique_ptr<Libato> make_libato(const LibatoOptions &options, size_t file_bytes);

} // namespace bench

#endif
