/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The model: two files, mapped once as a whole and once in part each, beside two byte arrays with their
 * content. Each step does one random operation on both sides and compares.
 *
 * Operations: copies in, out and between all mappings (overlapping ones too), memset, deploy, reclaim, msync, each
 * with every flag; growing; unmapping fast and spatial, and mapping again in any order.
 *
 * Compares plain loads where the library defines their result: after ato_deploy(), after an eager write,
 * after a lazy read. Counts commits, so that a test can check that the intended path was taken.
 */
#ifndef ATO_TEST_MODEL_WORLD_H
#define ATO_TEST_MODEL_WORLD_H

#include "rig.h"

#include <functional>
#include <gtest/gtest.h>
#include <ostream>

namespace model
{

enum class Commit {
    Single,  /* every write stays within one page */
    Rtm,     /* hardware transactions, where they commit */
    Journal, /* hardware transactions forbidden */
};

struct Setup {
    int policy, domain;
    Commit commit;
    rig::Medium medium = rig::Medium::Memory;
    /* Called with the address of each new mapping, before it is used. */
    std::function<void(const void *)> prepare = [](const void *) {};
};

std::string name_of(const Setup &s);

/* Every policy, domain and way to commit. */
std::vector<Setup> setups();

ato_options options_of(const Setup &s, int policy);

inline void PrintTo(const Setup &s, std::ostream *out)
{
    *out << name_of(s);
}

/* What was done in a world: some of it is counted twice. */
struct Tally {
    uint64_t single = 0, rtm = 0, journal = 0, deployed = 0;
};

class World
{
  public:
    World(const Setup &setup, rig::Random &random, size_t bytes);

    void step();
    void compare_all();
    /* Makes both files plain, and checks that no file of libato's is left. */
    void finish();

    Tally tally;

  private:
    struct File {
        std::string path;
        std::vector<unsigned char> bytes; /* the model */
        rig::Map whole, part;
        size_t part_begin = 0;
    };
    /* The place of an operation: through which mapping. */
    struct Place {
        File *file;
        rig::Map *map;
        size_t offset, n; /* in the file */
        unsigned char *address() const;
        unsigned char *model() const;
    };

    Place place(size_t n);
    size_t length(const File &f);
    size_t position(size_t room, size_t n);
    bool within_page(size_t offset, size_t n) const;

    void map_whole(File &f);
    void map_part(File &f);
    void map_both(File &f);
    void unmap_part(File &f, int mode);
    void unmap_whole(File &f, int mode);
    void count(const rig::Map &m);

    void copy_in();
    void copy_out();
    void fill();
    void copy_across();
    void deploy();
    void reclaim();
    void sync();
    void grow();
    void map_again();
    void make_plain(File &f);
    void start_plain();

    /* True if the call was done; otherwise the test has failed. */
    bool accepted(const void *returned, const Place &p);
    void expect_read(const Place &p);
    void expect_plain_loads(const Place &p, const char *when);

    const Setup setup;
    rig::Random &random;
    rig::Folder folder;
    File files[2];
    std::vector<unsigned char> scratch;
    std::string doing;
    uint64_t steps = 0;
};

} // namespace model

#endif
