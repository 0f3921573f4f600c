/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One engine: a way to change a mapped file, which the evaluation compares with the others.
 *
 * Every engine has the same file in its own way, gets the same operations in the same order, and has to hold the same bytes at
 * the end. An engine is a source of its own in this folder: a class with read(), write(), sync(), and a line in ENGINES
 * (engines.cc), which says what it promises.
 *
 * What is atomic is chosen at the map: each write by itself, or all writes of a thread between two calls of sync(). An engine
 * that cannot promise that there offers its weaker promise, which each table shows, or does not take part.
 */
#ifndef ATO_BENCHMARKS_ENGINES_ENGINE_H
#define ATO_BENCHMARKS_ENGINES_ENGINE_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace engine
{

/* Where the files lie, as libato's domains: stores are durable when they are flushed from the caches (pmem), when the kernel
 * has written them to the disk (disk), or need only survive the process (process). */
enum class Domain { pmem, disk, process };

/* What belongs together: a write by itself, or the writes of a thread between two calls of sync(). */
enum class Unit { write, sync };

/* How far durable reaches depends on the domain. */
enum class Promise {
    none,    /* not durable, and a crash tears it */
    durable, /* durable when its unit has ended; a crash in its midst tears it */
    page,    /* the same, but a page is never torn */
    shared,  /* atomic, but a sync() ends the units of all threads, between two writes */
    atomic,  /* all or nothing, and durable when its unit has ended */
};

struct Options {
    std::string folder; /* of the engine's files: exists, and is the engine's alone */
    uint64_t bytes = 0; /* of the file: whole pages */
    Domain domain = Domain::pmem;
    Unit unit = Unit::write;
    uint64_t log_bytes =
        0; /* room for a log or a cache, where an engine has one; 0: as it chooses */
    std::string log_folder; /* where that lies; empty: in `folder` */
    bool plain_at_end =
        false; /* the unmap leaves an ordinary file, where the engine has the choice */
};

struct Operation {
    uint64_t offset;
    uint32_t bytes;
    uint32_t source : 31, is_read : 1; /* a write: from this byte of the source on */

    Operation() = default;
    Operation(uint64_t at, uint32_t n, uint32_t from, bool reads = false)
        : offset(at), bytes(n), source(from & INT32_MAX), is_read(reads)
    {
    }
};

class Engine
{
  public:
    /* Unmaps. All that was acknowledged is kept; a later map() of the same folder finds it. */
    virtual ~Engine() = default;

    /* Several threads may call these at once, on ranges that do not overlap (Unit::sync: in pages of their own). With Unit::write a write has kept the engine's
     * promise when it returns; with Unit::sync, when the thread's next sync() has. A thread sees what it has written. */
    virtual void write(uint64_t offset, const void *src, size_t n) = 0;
    virtual void read(void *dst, uint64_t offset, size_t n) = 0;

    /* Ends a unit. With Unit::write there is nothing left to do. */
    virtual void sync() = 0;

    /* The timed function: all of them, one after the other, without a virtual call for each. Reads go to `target`. */
    virtual void run(const Operation *operations, size_t count, const char *source,
                     char *target) = 0;

    /* Waits until nothing is done in the background any more: before contents or counts are compared. */
    virtual void settle()
    {
    }
};

/* What an engine derives from: Base<Itself>, a final class. */
template <class Itself> class Base : public Engine
{
  public:
    void run(const Operation *operations, size_t count, const char *source, char *target) override
    {
        auto *self = static_cast<Itself *>(this);
        for (const Operation *o = operations; o < operations + count; o++)
            if (o->is_read)
                self->Itself::read(target, o->offset, o->bytes);
            else
                self->Itself::write(o->offset, source + o->source, o->bytes);
    }
};

struct Kind {
    const char *name;
    const char *what; /* a sentence for the report */

    /* May it be mapped like this, and what does it promise then? */
    bool (*takes_part)(const Options &);
    Promise (*promise)(const Options &);

    /* Makes the file, all zeros, or opens what is in the folder; brings it back to a state that the promise allows if the last
     * one that had it was killed. Calls bench::fail() on any error. */
    std::unique_ptr<Engine> (*map)(const Options &);
};

extern const std::vector<Kind> ENGINES;

const Kind &kind(const std::string &name); /* bench::fail() if there is none */

const char *name_of(Domain domain);
const char *name_of(Promise promise, Domain domain);

} // namespace engine

#endif
