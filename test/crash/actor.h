// SPDX-License-Identifier: BSD-3-Clause
//
// A process that uses the library, and knows what the files have to hold. It tells the trace which
// contents a crash may leave: before a write the old one, during it either, after it the new one.
#ifndef ATO_TEST_CRASH_ACTOR_H
#define ATO_TEST_CRASH_ACTOR_H

#include "reader.h"
#include "world.h"

namespace crash
{

// Of the contents of all originals.
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
    bool mute = false; // nothing is said about contents
    Demand demand;     // goes along with contents

    void allow(std::vector<uint64_t> hashes); // to the trace
    void allow_this()
    {
        allow({hash_of(contents)});
    }

    Mapping *map(int file, int policy = ATO_READ_GATHER, unsigned flags = 0);
    void unmap(Mapping *m, int mode);
    Bytes some(uint64_t n);                                     // bytes at random
    Bytes some_like(const Bytes &now, uint64_t at, uint64_t n); // half of them as they are there
    Bytes read(const Mapping *m, uint64_t at, uint64_t n);      // as it is
    void check(const Mapping *m);                               // the whole file is as it has to be

    void write(Mapping *m, uint64_t at, uint64_t n, unsigned flags = 0); // bytes at random
    void write_like(Mapping *m, uint64_t at, uint64_t n,
                    unsigned flags = 0);                      // half of them as before
    void write_sparsely(Mapping *m, uint64_t at, uint64_t n); // a slice of each page is new
    void fill(Mapping *m, uint64_t at, uint64_t n);
    void copy(Mapping *to, uint64_t at, Mapping *from, uint64_t from_at, uint64_t n);
    void deploy(Mapping *m, uint64_t at, uint64_t n);
    void resize(Mapping *m, uint64_t to);
    void guard(Mapping *m, uint64_t at, uint64_t n); // as it is; then others are stored there

    // Another process does this, with this actor as it is now, and is killed (World::beside). It changes what the files hold once at most. What they hold then is not known, until it is
    // looked at.
    void beside(const std::function<void()> &what);
    // A file of whatever size it is now.
    Bytes read_all(Mapping *m);
    void deploy_all(Mapping *m);
    void look_once(); // at those that are mapped
    void look();      // at all, which are mapped for it; then it is known
    // While it is not known:
    void write_blindly(Mapping *m, uint64_t at, uint64_t n);

    // Some writes here and there, so that slices lie in both homes in every mixture.
    void scatter(Mapping *m, unsigned writes);

  private:
    std::vector<std::vector<Bytes>> may_be; // while it is not known; in this order

    template <typename F> void change(int file, uint64_t at, const Bytes &bytes, F call);
};

} // namespace crash

#endif
