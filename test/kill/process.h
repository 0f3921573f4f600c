/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Starts processes, reads their notes and kills them. This process never maps a file with libato, so that
 * each forked child uses the library anew. A child sends notes through a pipe, which outlives it.
 */
#ifndef ATO_TEST_KILL_PROCESS_H
#define ATO_TEST_KILL_PROCESS_H

#include "../model/rig.h"

#include <functional>

namespace kills
{

enum class Say : uint32_t {
    Begin,   /* about to write a record; thread, record, content */
    Told,    /* the call returned: the write is acknowledged */
    Verdict, /* the result of a check; record, value: enum Found */
    Object,  /* a shared-memory object was made; text: its path */
    Event,   /* text: the name of a store, flush, fence or file operation */
};

/* What a record holds. */
struct Content {
    enum Kind : uint32_t { Initial, Stamped, Filled } kind = Initial;
    uint32_t source = 0; /* Initial, Stamped: the record that it was first written to */
    uint64_t version = 0;

    bool operator==(const Content &other) const
    {
        return kind == other.kind && source == other.source && version == other.version;
    }
};

struct Note {
    Say say;
    uint32_t thread, record, value;
    Content content;
    char text[64];
};

/* Where a child writes its notes. One note is one write(2), whole or not at all. */
class Teller
{
  public:
    explicit Teller(int to) : fd(to)
    {
    }
    void tell(const Note &n) const;
    void tell_text(Say say, const std::string &text) const;

  private:
    int fd;
};

/* Ends the child, with a sentence to stderr unless `why` is empty; never returns into the test. */
[[noreturn]] void leave(const std::string &why);

class Process
{
  public:
    /* Runs `body` in a child, which ends by leave(""). */
    explicit Process(const std::function<void(const Teller &)> &body);
    ~Process();
    Process(const Process &) = delete;
    Process &operator=(const Process &) = delete;

    /* Reads notes for this time; with `from`, counted from the first note of that kind, or for two seconds
     * without one. */
    void listen(uint64_t ns);
    void listen(uint64_t ns, Say from);
    /* Sends SIGKILL, unless the child ended by itself; reads the remaining notes. */
    void kill();
    /* Reads all notes until the child ends. */
    void wait();

    bool was_killed() const;
    bool ended_well() const;
    std::string end() const; /* a description of its end */

    std::vector<Note> notes;

  private:
    bool hear(int64_t ns); /* false: there is nothing more */
    int pid = -1, fd = -1, status = -1;
};

} // namespace kills

#endif
