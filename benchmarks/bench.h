/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is a backend, and what does it get to write?
 *
 * Every backend holds the same file in its own way and gets the same stream of writes from the same
 * source, so that their times differ only by what they do for a write, and their files are the same
 * at the end. A backend is a file of its own: floor, plain, pmemobj, libato.
 */
#ifndef ATO_BENCHMARKS_BENCH_H
#define ATO_BENCHMARKS_BENCH_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace bench
{

/* One write: `bytes` bytes at `offset` of the file, from byte `source` of the source. */
struct Write {
    uint64_t offset;
    uint32_t bytes;
    uint32_t source;
};

/* Where the bytes come from: small enough to stay in the first-level cache. */
constexpr size_t SOURCE_SPAN = 16384; /* a write begins at one of its 64-byte lines ... */
constexpr size_t MAX_WRITE = 16384;   /* ... and is at most that long */

enum class Domain { pmem, process };

const char *domain_name(Domain domain);

class Backend
{
  public:
    virtual ~Backend() = default;

    virtual const char *name() const = 0;

    /* What a write is worth when the call returned. */
    virtual const char *guarantee() const = 0;

    /* The timed thing: each write by itself, with all that the guarantee takes. */
    virtual void write(const char *source, const Write *writes, size_t count) = 0;

    /* All of them as one transaction, where there is such a thing. */
    virtual void write_at_once(const char *source, const Write *writes, size_t count)
    {
        write(source, writes, count);
    }

    /* The same content by whatever is quickest. Leaves all memory of the writes touched. */
    virtual void fill(const char *source, const Write *writes, size_t count)
    {
        write(source, writes, count);
    }

    virtual void read(void *dst, uint64_t offset, size_t n) = 0;
};

/* Print a sentence to stderr and exit(1): a benchmark has nothing to save but its folder. */
[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The folder that the files lie in: made at the first call under `where`, removed at exit. */
const std::string &folder(const char *where = "/dev/shm");

/* Once there is a folder, signals that ask to end (SIGPIPE too) only leave a note: gigabytes in memory and
 * libato's shared states are to be cleared away by exit(), which this calls if there is one. Every
 * loop asks now and then. */
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

double median(std::vector<double> values);

} // namespace bench

#endif
