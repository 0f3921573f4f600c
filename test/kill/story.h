/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A story: a list of steps of a process on its files, and the contents that the files may have when it is
 * killed meanwhile. One function does a step, another one computes the contents after it; so each operation
 * is a line.
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

constexpr unsigned A = 0, B = 1;
constexpr size_t PAGE = 4096, SIZE = 6 * PAGE + 500;

struct Step {
    enum What {
        Map,   /* all files, the first one first */
        Unmap, /* all files; n: the mode */
        Write,
        WriteEager,
        Fill,
        Copy, /* the bytes at the same place of file B */
        Deploy,
        Resize, /* to n bytes */
        Guard,  /* and writes the mask */
        Restore, /* all files, each as another inode; n: with their attributes. They are not mapped */
        Begin,
        Commit,
    } what;
    unsigned file = 0;
    size_t at = 0, n = 0;
    bool tx = false; /* in the transaction */
};
using Steps = std::vector<Step>;

inline Step in_tx(Step s)
{
    s.tx = true;
    return s;
}

struct Story {
    const char *name;
    unsigned files;
    Steps before; /* by the process that is killed in `steps` */
    Steps steps;
    int policy = ATO_READ_GATHER;
    unsigned flags = ATO_NO_RTM;
    /* Another process did this before, and was killed in the last step, before the n-th word of its flip. */
    Steps dead = {};
    unsigned words = 0;

    bool has(Step::What what) const;
};

using Contents = std::vector<Bytes>; /* of each file */

Contents begin_with(const Story &s);

/* The contents of the files. */
class Model
{
  public:
    explicit Model(const Contents &first) : now(first)
    {
    }
    /* Before the steps, and after each step with a change. */
    std::vector<Contents> after(const Steps &steps);
    /* The index of the contents after so many of the steps. */
    std::vector<size_t> reached;
    unsigned seed = 0;

  private:
    Contents now, staged;
    size_t guarded = 0; /* where the guard of file A begins */
    Bytes plain;        /* its bytes; empty: there is no guard */
};

/* Follows the contents that are read. They move forward through a list of contents, never back, and all files
 * at once. */
class Follower
{
  public:
    Follower(const std::vector<Contents> &contents, size_t from) : all(contents), is(from)
    {
    }
    /* False: the file cannot have these bytes now or later. `grown`: the file may be longer by a page of
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

/* The files of a story, as a process has them mapped. Ends the process if a call fails. */
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
    ato_tx *tx = nullptr;
};

/* The whole file: reads again if the operation of a dead process is finished meanwhile. */
Bytes content(const Mapped &m);

} // namespace kills

#endif
