/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A backend, and the writes that it gets.
 *
 * Every backend holds the same file in its own way and gets the same stream of writes from the same source,
 * so that their times differ only by their work for a write, and their files are the same at the end. Those are
 * libato, plain stores (files of that name), and engines of the evaluation.
 */
#ifndef ATO_BENCHMARKS_BENCH_H
#define ATO_BENCHMARKS_BENCH_H

#include "engines/engine.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace bench
{

using engine::Domain;

/* One write: `bytes` bytes at `offset` of the file, from byte `source` of the source. */
using Write = engine::Operation;

/* The source of the bytes: small enough to stay in the first-level cache. */
constexpr size_t SOURCE_SPAN = 16384; /* a write begins at one of its 64-byte lines ... */
constexpr size_t MAX_WRITE = 16384;   /* ... and is at most that long */

class Backend
{
  public:
    virtual ~Backend() = default;

    virtual const char *name() const = 0;

    /* The guarantee for a write when the call has returned. */
    virtual const char *guarantee() const = 0;

    /* The timed function: each write by itself, with all work that the guarantee needs. */
    virtual void write(const char *source, const Write *writes, size_t count) = 0;

    /* All of them as one transaction, if the backend has transactions. */
    virtual void write_at_once(const char *source, const Write *writes, size_t count)
    {
        write(source, writes, count);
    }

    /* Writes the same content in the fastest way. Touches all memory that the writes use. */
    virtual void fill(const char *source, const Write *writes, size_t count)
    {
        write(source, writes, count);
    }

    virtual void read(void *dst, uint64_t offset, size_t n) = 0;
};

/* An engine of the evaluation. write_at_once() is one unit only with Unit::sync. */
std::unique_ptr<Backend> make_engine(const char *name, Domain domain, engine::Unit unit,
                                     size_t file_bytes);

/* Print a sentence to stderr and exit(1): only the folder has to be removed. */
[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Starts the program again with these variables, NAME=VALUE, unless it has them. The environment must not change the result: it
 * has no other variables of libato, libpmem and libpmemobj then. */
void restart_with(char **argv, const std::vector<std::string> &wanted);

/* The folder that the files lie in: made at the first call under `where`, removed at exit. */
const std::string &folder(const char *where = "/dev/shm");

/* Once there is a folder, signals that ask the process to end (SIGPIPE too) only set a note: exit() has to
 * remove gigabytes in memory and libato's shared states. Every loop calls this now and then; it exits if
 * there is a note. */
void stop_if_asked();

/* A new file of that size in the folder, mapped for reading and writing. */
class MappedFile
{
  public:
    MappedFile(const char *name, size_t bytes);
    explicit MappedFile(const MappedFile &other); /* another view of the same file */
    ~MappedFile();
    MappedFile &operator=(const MappedFile &) = delete;

    char *at(uint64_t offset) const
    {
        return base_ + offset;
    }

    void populate(); /* page tables for all of it */
    void unmap();

  private:
    void map();

    char *base_ = nullptr;
    size_t bytes_;
    int fd_;
};

std::string medium_name(); /* of the folder: "tmpfs (DRAM)" */
std::string cpu_name();
uint64_t free_bytes();

/* The nanoseconds of a call. */
double ns_of(const std::function<void()> &what);

double median(std::vector<double> values);

} // namespace bench

#endif
