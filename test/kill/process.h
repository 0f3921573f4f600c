/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How is a process made, listened to and killed? A child is forked before this process ever mapped
 * a file with libato (it never does), so that each child is a fresh user of the library. It tells
 * what it does by notes through a pipe: those outlive it.
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
    Verdict, /* what a checker found; record, value: enum Found */
    Object,  /* a shared-memory object was made; text: its path */
    Event,   /* text: what a store, flush, fence or file operation is called */
};

/* What a record holds. */
struct Content {
    enum Kind : uint32_t { Initial, Stamped, Filled } kind = Initial;
    uint32_t source = 0; /* Initial, Stamped: the record that it was written to first */
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

/* Never returns into the test: ends the child, after a sentence to stderr unless `why` is empty. */
[[noreturn]] void leave(const std::string &why);

class Process
{
  public:
    /* Runs `body` in a child, which ends by leave(""). */
    explicit Process(const std::function<void(const Teller &)> &body);
    ~Process();
    Process(const Process &) = delete;
    Process &operator=(const Process &) = delete;

    /* Listens for so long; with `from`, beginning when that is first said, or given up after two seconds. */
    void listen(uint64_t ns);
    void listen(uint64_t ns, Say from);
    /* Sends SIGKILL, unless the child ended by itself; hears the rest. */
    void kill();
    /* Hears everything until the child ends. */
    void wait();

    bool was_killed() const;
    bool ended_well() const;
    std::string end() const; /* for people */

    std::vector<Note> notes;

  private:
    bool hear(int64_t ns); /* false: nothing more to come */
    int pid = -1, fd = -1, status = -1;
};

} // namespace kills

#endif
