// SPDX-License-Identifier: BSD-3-Clause
//
// The environment of the library: a folder of real files in memory (files.h), the two seams
// (recorder.h), and the replacements of the rest (standins.h). In it a process maps the files, and
// can die without a real process; then another one finds the state after the crash.
//
// One at a time in a process.
#ifndef ATO_TEST_CRASH_WORLD_H
#define ATO_TEST_CRASH_WORLD_H

#include "peer.h"
#include "recorder.h"
#include "violation.h"

#include "ato.h"

#include <memory>

namespace crash
{

struct Mapping {
    int file; // number of the original
    char *base;
    uint64_t length; // at the start
    uint64_t bytes;  // of the file
    bool epochs = false;
    bool stores = false; // plain ones
};

enum class After { PowerCut, Kill };

class World
{
  public:
    // `sizes`: of the originals, which are called a, b, ... and have different bytes. `sparse`: makes sparse reflections, not dense
    // ones.
    World(const std::string &folder, const std::vector<uint64_t> &sizes, uint64_t seed,
          bool sparse = false);
    ~World();
    World(const World &) = delete;
    World &operator=(const World &) = delete;

    // Adds everything that is done to the media to `trace`, until record(nullptr).
    void record(Trace *trace)
    {
        recorder.record(trace);
    }
    // Adds to the trace: from here on the files may have these contents.
    void allow(std::vector<uint64_t> contents, const Demand &demand)
    {
        recorder.allow(std::move(contents), demand);
    }
    // How often it was waited for the media since record().
    uint64_t syncs() const
    {
        return recorder.syncs();
    }
    // Called by threads of the run before each of their events; for a scheduler.
    void set_pause(std::function<void()> pause)
    {
        recorder.pause = std::move(pause);
    }

    // The current files.
    Disk look() const
    {
        return files.look();
    }
    // Lays these files out. The originals keep their inodes.
    void stage(const Disk &disk, After after);
    // The same, as after a crash of a process of that boot: removes what other processes left in
    // shared memory.
    void stage(const Disk &disk, After after, uint64_t boot);

    // From here on, each map of a file that others wrote prefers the file to its reflection.
    void prefer_files()
    {
        preferring = ATO_PREFER_FILE;
    }
    bool prefers_files() const
    {
        return preferring == ATO_PREFER_FILE;
    }
    // Or its reflection, with which it is reunited if it was restored.
    void prefer_reflections()
    {
        preferring = ATO_PREFER_REFLECTION;
    }

    const bool sparse;

    // Throws Violation on failure.
    Mapping *map(int file, int domain, int policy, unsigned flags);
    // Maps read-only.
    Mapping *map_to_read(int file, int domain);
    void unmap(Mapping *m, int mode);
    // A transaction that is open when the process dies is dropped.
    void opened(ato_tx *tx)
    {
        transactions.push_back(tx);
    }
    // The process dies after so many more events, of any kind or of one: its later calls have no
    // effect.
    void cut_short(size_t events, std::optional<Kind> of = {})
    {
        recorder.cut_short(events, of);
    }
    // Another process with nothing mapped runs `what` beside the run, and is killed at its end or
    // earlier (peer.h); or it stays until all die. `last` is its message.
    struct Beside {
        std::vector<uint64_t>
            allowed; // the contents that the files may have, from its last message; empty: there
                     // was none
        std::string words;
    };
    Beside beside(const std::function<void()> &what, const std::function<void(Pack &)> &last);
    void beside_for_good(const std::function<void()> &what);
    // The process dies, and all processes beside it: memory, locks and descriptors are gone, the
    // media stay.
    void die();

    // The number of mappings, and the n-th of them.
    size_t mapped() const
    {
        return mappings.size();
    }
    Mapping *mapping(size_t n) const
    {
        return mappings.at(n);
    }
    // Another program writes to an original; Violation if a map is not refused after it.
    void write_outside(int file, uint64_t at, const Bytes &bytes, const Time &mtime)
    {
        recorder.write_outside(file, at, bytes, mtime);
    }
    void refuse(int file, int domain);
    // Writes into a file, around the seams.
    void poke(const std::string &name, uint64_t at, const std::vector<uint64_t> &words)
    {
        files.poke(name, at, words);
    }
    // Runs `what` with the `persist` table that is used without this world.
    void quietly(const std::function<void()> &what)
    {
        recorder.quietly(what);
    }

    // An object of the process, destroyed when the process dies, without effect on the media.
    std::shared_ptr<void> company;

    const std::string &path() const // of the folder
    {
        return files.path();
    }
    std::string path_of(int file) const
    {
        return files.path() + "/" + files.originals()[static_cast<size_t>(file)].name;
    }

    size_t originals() const
    {
        return files.originals().size();
    }
    uint64_t size_of(int file) const
    {
        return files.size_of(file);
    }
    int inode_of(int file) const // on every Disk of this world
    {
        return Files::inode_of(file);
    }
    uint64_t number_of(int file) const // the kernel's inode number
    {
        return files.originals()[static_cast<size_t>(file)].number;
    }
    Bytes plain_content(int file) const // as read(2) returns it
    {
        return files.plain_content(file);
    }
    Time time_of(int file) const // mtime
    {
        return mtime_of(files.originals()[static_cast<size_t>(file)].fd);
    }

  private:
    void forget(); // in another process: drops what it did not inherit

    Files files;
    Recorder recorder;
    std::vector<Mapping *> mappings;
    std::vector<ato_tx *> transactions;       // of this process, including ended ones
    std::vector<std::unique_ptr<Peer>> peers; // that stay
    unsigned preferring = 0;                  // flags of every map
};

} // namespace crash

#endif
