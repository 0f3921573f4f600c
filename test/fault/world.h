// SPDX-License-Identifier: BSD-3-Clause
//
// A world is a folder with two files: the one of the scene, and one beside it that must not change. A scene
// is data: the state before, made by other processes and by this one, the operation, and the content after
// it. life.h plays it.
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
    Bytes before;            // the content before the operation,
    Bytes after;             // and after it. Equal at first
    Bytes near;              // the second file's
    std::string left;        // names with this part may stay in the reflection folder
    size_t mapped_bytes = 0; // 0: the whole file
    std::unique_ptr<support::Fd> descriptor; // of the file
    char *base = nullptr;
    size_t length = 0;
    char *other = nullptr;  // the second file, mapped
    char *second = nullptr; // another mapping of the file
    Bytes got;              // bytes that the scene read
    struct ato_stat said = {};

    bool map();
    bool map_beside();
    bool write(size_t at, const Bytes &bytes, unsigned flags = 0);
    bool unmap(int mode, unsigned threads = 0);
    bool is_mapped() const;
    // A part of `after` that the file does not have yet.
    Bytes news(size_t at, size_t n, unsigned seed);
};

// Runs another process, which has to leave with this status.
void another(const std::function<int()> &what, int status);

// Another process writes new bytes and dies when the commit counts: the lane, or the log, has all pages. It dies before the n-th word is
// stored, or the n-th page copied.
void killed_in_a_write(World &w, size_t at, size_t bytes, int n);

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
    std::function<bool(World &)> act;    // the operation: returns false with errno if a call fails
    std::function<bool(World &)> effect; // its effect besides the bytes; may be empty
    bool threads = false;                // the thread that makes a call depends on chance
};

void PrintTo(const Scene &scene, std::ostream *out);

// All of them, from scenes_*.cc.
std::vector<Scene> scenes_of_maps();
std::vector<Scene> scenes_of_moves();
std::vector<Scene> scenes_of_unmaps();

} // namespace fault

#endif
