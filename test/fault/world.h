// SPDX-License-Identifier: BSD-3-Clause
//
// What is a file like before an operation, what is done to it, and what must it be like after? A
// world is a folder of its own with two files: the one that the scene is about, and one beside it
// that must not be harmed. A scene is data: how it comes to its state, in other processes and in
// this one, and what is done then. life.h plays it.
#ifndef ATO_TEST_FAULT_WORLD_H
#define ATO_TEST_FAULT_WORLD_H

#include "support/temp.h"

#include "ato.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fault
{

using support::Bytes;

struct World {
    World(const std::string &below, int domain, size_t bytes);

    support::TempDir dir;
    const std::string file, beside;
    ato_options options;     // of the mapping
    Bytes before;            // what the file holds: before what is done,
    Bytes after;             // and after it. The same at first
    Bytes near;              // and the one beside
    std::string left;        // names with this part may stay in the reflection folder
    size_t mapped_bytes = 0; // what is asked for; 0: the file
    std::unique_ptr<support::Fd> descriptor; // of the file
    char *base = nullptr;
    size_t length = 0;
    char *other = nullptr;  // the one beside, mapped
    char *second = nullptr; // another mapping of the file
    Bytes got;              // what the scene read
    struct ato_status said = {};

    bool map();
    bool map_beside();
    bool write(size_t at, const Bytes &bytes, unsigned flags = 0);
    bool unmap(int mode, unsigned threads = 0);
    bool is_mapped() const;
    // A piece of `after` that is not yet what the file holds.
    Bytes news(size_t at, size_t n, unsigned seed);
};

enum Kind {
    MAPS,   // ends with the file mapped
    MOVES,  // begins and ends so
    UNMAPS, // begins so
};

struct Scene {
    const char *name;
    Kind kind;
    size_t bytes; // of the file
    std::vector<int> domains;
    std::function<void(World &)> past;   // other processes; may be empty
    std::function<bool(World &)> ready;  // this process, before; may be empty
    std::function<bool(World &)> act;    // what is to fail: as a call does, with errno
    std::function<bool(World &)> effect; // is it there, beside the bytes? may be empty
    bool threads = false; // which of them makes a call, and whether it comes to it, is chance
};

void PrintTo(const Scene &scene, std::ostream *out);

// All of them, from scenes_*.cc.
std::vector<Scene> scenes_of_maps();
std::vector<Scene> scenes_of_moves();
std::vector<Scene> scenes_of_unmaps();

} // namespace fault

#endif
