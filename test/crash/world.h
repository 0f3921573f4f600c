// SPDX-License-Identifier: BSD-3-Clause
//
// A small world for the library to live in: a folder of real files in memory (files.h), the two
// seams (recorder.h), and what stands in for the rest (standins.h). Who lives in it? A process that
// maps the files, and can die without a process; then another, that finds what a crash left.
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
    uint64_t length; // as it was made
    uint64_t bytes;  // of the file
    bool epochs = false;
};

enum class After { PowerCut, Kill };

class World
{
  public:
    // `sizes`: of the originals, which are called a, b, ... and hold bytes that all differ.
    World(const std::string &folder, const std::vector<uint64_t> &sizes, uint64_t seed);
    ~World();
    World(const World &) = delete;
    World &operator=(const World &) = delete;

    // Everything that is done to the media goes there, until record(nullptr).
    void record(Trace *trace)
    {
        recorder.record(trace);
    }
    // From here on the files may hold these contents, says the trace.
    void allow(std::vector<uint64_t> contents, const Demand &demand)
    {
        recorder.allow(std::move(contents), demand);
    }
    // Called by threads of the run before each thing that they do; for a scheduler.
    void set_pause(std::function<void()> pause)
    {
        recorder.pause = std::move(pause);
    }

    // The files as they lie there now.
    Disk look() const
    {
        return files.look();
    }
    // Lays these files out. The originals keep their inodes.
    void stage(const Disk &disk, After after);
    // The same, as after a crash of a process of that boot: whatever other processes left since then in
    // shared memory is gone.
    void stage(const Disk &disk, After after, uint64_t boot);

    // Whoever maps a file that others wrote prefers it to its reflection, from here on.
    void prefer_files()
    {
        preferring = ATO_PREFER_FILE;
    }
    bool prefers_files() const
    {
        return preferring != 0;
    }

    // Where the reflection of a file is to be, in the folder of the files, for whoever maps it.
    void reflect_in(int file, const std::string &folder)
    {
        places[file] = files.path() + "/" + folder;
    }
    // Violation on failure.
    Mapping *map(int file, int domain, int policy, unsigned flags);
    // By who may only read it.
    Mapping *map_to_read(int file, int domain);
    void unmap(Mapping *m, int mode);
    // One that is open when the process dies comes to nothing.
    void opened(ato_tx *tx)
    {
        transactions.push_back(tx);
    }
    // It will be dead after so many events more, of any kind or of one: whatever it does then
    // reaches nothing.
    void cut_short(size_t events, std::optional<Kind> of = {})
    {
        recorder.cut_short(events, of);
    }
    // Another process with nothing mapped does this beside the run, and is killed when it is through, or earlier
    // (peer.h); or it stays, until all die. What it has to say is `last`.
    struct Beside {
        std::vector<uint64_t>
            allowed; // what the files may hold, as it said last; nothing: it said nothing
        std::string words;
    };
    Beside beside(const std::function<void()> &what, const std::function<void(Pack &)> &last);
    void beside_for_good(const std::function<void()> &what);
    // The process dies, and all beside it: memory, locks and descriptors are gone, the media stay as they are.
    void die();

    // How many are mapped now, and the n-th of them.
    size_t mapped() const
    {
        return mappings.size();
    }
    Mapping *mapping(size_t n) const
    {
        return mappings.at(n);
    }
    // Another program writes to an original; Violation if a map is not refused for it.
    void write_outside(int file, uint64_t at, const Bytes &bytes, const Time &mtime)
    {
        recorder.write_outside(file, at, bytes, mtime);
    }
    void refuse(int file, int domain);
    // Into a file, past everything.
    void poke(const std::string &name, uint64_t at, const std::vector<uint64_t> &words)
    {
        files.poke(name, at, words);
    }
    // With `persist` as it is without this world.
    void quietly(const std::function<void()> &what)
    {
        recorder.quietly(what);
    }

    // What the process has open besides. It goes when the process dies, and reaches nothing any more.
    std::shared_ptr<void> company;

    const std::string &path() const // of the folder
    {
        return files.path();
    }
    std::string path_of(int file) const
    {
        return files.path() + "/" + files.originals()[static_cast<size_t>(file)].name;
    }
    // Where its reflection is to be; "": anywhere.
    std::string reflected_in(int file) const
    {
        auto place = places.find(file);
        return place == places.end() ? "" : place->second;
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
    Bytes plain_content(int file) const // as read(2) sees it
    {
        return files.plain_content(file);
    }
    Time time_of(int file) const // mtime
    {
        return mtime_of(files.originals()[static_cast<size_t>(file)].fd);
    }

  private:
    void forget(); // in another process: what it did not inherit

    Files files;
    Recorder recorder;
    std::vector<Mapping *> mappings;
    std::map<int, std::string> places;        // of reflections
    std::vector<ato_tx *> transactions;       // of this process, also those that are over
    std::vector<std::unique_ptr<Peer>> peers; // that stay
    unsigned preferring = 0;                  // flags of every map
};

} // namespace crash

#endif
