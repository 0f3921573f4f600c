// SPDX-License-Identifier: BSD-3-Clause
//
// A process that uses the library and knows the content that the files must have. It tells the
// trace which contents a crash may leave: before a write the old one, during it either, after it
// the new one.
#ifndef ATO_TEST_CRASH_ACTOR_H
#define ATO_TEST_CRASH_ACTOR_H

#include "reader.h"
#include "world.h"

namespace crash
{

// For a call of the library that has to succeed.
inline void must(bool ok, const char *call)
{
    if (!ok)
        throw Violation(std::string(call) + ": " + ato_errormsg());
}

// A hash of the contents of all originals.
uint64_t hash_of(const std::vector<Bytes> &contents);

class Actor
{
  public:
    Actor(World &world, int domain, uint64_t seed, std::vector<Bytes> contents);
    Actor(World &world, int domain, uint64_t seed, const std::vector<Found> &found);

    World &world;
    const int domain;
    Random random;
    std::vector<Bytes> contents; // by original

    std::map<int, Guard> guards; // by original
    void know_guard(int file, const Guard &guard);
    bool mute = false; // true: the trace is not told of contents
    Demand demand;     // recorded with the contents

    void allow(std::vector<uint64_t> hashes); // tells the trace
    void allow_this()
    {
        allow({hash_of(contents)});
    }

    Mapping *map(int file, int policy = ATO_READ_GATHER, unsigned flags = 0);
    void unmap(Mapping *m, int mode);
    Bytes some(uint64_t n);                                     // random bytes
    Bytes some_like(const Bytes &now, uint64_t at, uint64_t n); // half of them as in `now`
    Bytes read(const Mapping *m, uint64_t at, uint64_t n);      // checks the bytes
    void check(const Mapping *m);                               // checks the whole file

    void write(Mapping *m, uint64_t at, uint64_t n, unsigned flags = 0); // random bytes
    void write_like(Mapping *m, uint64_t at, uint64_t n,
                    unsigned flags = 0);                      // half of them unchanged
    void write_sparsely(Mapping *m, uint64_t at, uint64_t n); // changes one slice of each page
    void fill(Mapping *m, uint64_t at, uint64_t n);
    void copy(Mapping *to, uint64_t at, Mapping *from, uint64_t from_at, uint64_t n);
    void deploy(Mapping *m, uint64_t at, uint64_t n);
    void reclaim(Mapping *m, uint64_t at, uint64_t n);
    void resize(Mapping *m, uint64_t to);
    void guard(Mapping *m, uint64_t at, uint64_t n); // guards the current bytes, and stores others
                                                     // there

    // Runs `what` in another process with a copy of this actor; it is killed (World::beside). It
    // changes the content of the files at most once. The content is undecided until look().
    void beside(const std::function<void()> &what);
    // Reads the whole file, of any size.
    Bytes read_all(Mapping *m);
    void deploy_all(Mapping *m);
    void look_once(); // reads the mapped files
    void look();      // maps and reads all files; then the content is decided
    // Allowed while the content is undecided:
    void write_blindly(Mapping *m, uint64_t at, uint64_t n);
    // `act` changes the content of a file as `to` does.
    void change_blindly(int file, const std::function<void(Bytes &)> &to,
                        const std::function<void()> &act);
    // A line of each of so many pages, in one step.
    void write_slices_blindly(Mapping *m, uint64_t at, uint64_t pages);

    // Writes at random places, so that slices lie in both homes in every mixture.
    void scatter(Mapping *m, unsigned writes);

  private:
    std::vector<std::vector<Bytes>> may_be; // while the content is undecided: in this order

    void write_ranges_blindly(Mapping *m, const std::vector<uint64_t> &places, uint64_t n);
    template <typename F> void change(int file, uint64_t at, const Bytes &bytes, F call);
};

} // namespace crash

#endif
