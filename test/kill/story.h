/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What does a process do to its files, and what may they hold when it is killed meanwhile? A story is a list of
 * steps. One function does a step, another one says what the files hold after it; so each operation is a line.
 *
 * Two files lie in one folder, three in a folder each.
 */
#ifndef ATO_TEST_KILL_STORY_H
#define ATO_TEST_KILL_STORY_H

#include "process.h"
#include "support/mapped.h"

#include <memory>

namespace kills
{

using support::Bytes;
using support::Mapped;

constexpr unsigned A = 0, B = 1, C = 2;
constexpr size_t PAGE = 4096, SIZE = 6 * PAGE + 500;

struct Step {
    enum What {
        Map,     /* all files, the first one first */
        MapBack, /* all files, the last one first */
        Unmap,   /* all files; n: the mode */
        Write,
        WriteEager,
        Fill,
        Copy, /* what lies at the same place of file B */
        Deploy,
        Resize, /* to n bytes */
        Guard,  /* and writes the mask */
        Begin,
        Join, /* the second transaction to the first */
        Commit,
    } what;
    unsigned file = 0;
    size_t at = 0, n = 0;
    unsigned tx = 0; /* 0: not in a transaction */
};
using Steps = std::vector<Step>;

inline Step in(unsigned tx, Step s)
{
    s.tx = tx;
    return s;
}

struct Story {
    const char *name;
    unsigned files;
    Steps before; /* by the process that is killed in `steps` */
    Steps steps;
    int policy = ATO_READ_GATHER;
    unsigned flags = ATO_NO_RTM;
    /* Another process did this before, and was killed in the last step before the so-many-th word of its flip. */
    Steps dead = {};
    unsigned words = 0;

    bool has(Step::What what) const;
};

using Contents = std::vector<Bytes>; /* of each file */

Contents begin_with(const Story &s);

/* What the files hold. */
class Model
{
  public:
    explicit Model(const Contents &first) : now(first)
    {
    }
    /* Before the steps, and after each step that changes something. */
    std::vector<Contents> after(const Steps &steps);
    /* Which of these it is after so many of the steps. */
    std::vector<size_t> reached;
    unsigned seed = 0;

  private:
    Contents now, staged;
    size_t guarded = 0; /* where the guard of file A begins */
    Bytes plain;        /* its bytes; none: there is no guard */
};

/* Follows what is seen of files. They go from one of some contents to the next, never back, and all of them at once. */
class Follower
{
  public:
    Follower(const std::vector<Contents> &contents, size_t from) : all(contents), is(from)
    {
    }
    /* False: these bytes are not the file's at this moment or later. `grown`: the file may be longer by a page of
     * zeros. */
    bool see(unsigned file, const Bytes &bytes, bool grown = false);
    size_t at() const
    {
        return is;
    }

  private:
    const std::vector<Contents> &all;
    size_t is;
};

/* The files of a story, as a process has them mapped. Ends the process where a call fails. */
class Hands
{
  public:
    Hands(const std::vector<std::string> &files, const ato_options &opt)
        : paths(files), options(opt)
    {
    }
    void map(bool from_the_last = false);
    void unmap(int mode);
    /* `seed` counts them. `done`, if given, is called after each. */
    void act(const Steps &steps, unsigned *seed, const std::function<void()> &done = {});
    Mapped &operator[](unsigned file)
    {
        return *maps[file];
    }

  private:
    void act(const Step &s, unsigned seed);

    const std::vector<std::string> &paths;
    const ato_options options;
    std::vector<std::unique_ptr<Mapped>> maps;
    ato_tx *tx[3] = {};
};

/* All of a file: again if what a dead process left is finished meanwhile. */
Bytes content(const Mapped &m);

} // namespace kills

#endif
