// SPDX-License-Identifier: BSD-3-Clause
//
// The recorder at both seams: the functions that its two tables share. They are in recorder.cc
// (`persist`) and seams_files.cc (`fsops`); no other file includes this one.
#ifndef ATO_TEST_CRASH_SEAMS_H
#define ATO_TEST_CRASH_SEAMS_H

#include "recorder.h"
#include "standins.h"
#include "violation.h"

extern "C" {
#include "reflection/media/fsops.h"
#include "reflection/media/persist.h"
}

#include <algorithm>
#include <cstring>

namespace crash
{

// Shared by the functions of both tables; the seams pass them no recorder.
struct Seams {
    inline static Recorder *recorder = nullptr;
    inline static thread_local int thread_number = 1;

    static bool dead()
    {
        return recorder->dead;
    }

    static Trace *trace()
    {
        return dead() ? nullptr : recorder->trace;
    }

    static void pause()
    {
        if (recorder->pause && !dead())
            recorder->pause();
    }

    static int inode_of(int fd)
    {
        return recorder->files.inode_of_open(fd);
    }

    static bool is_original(int inode)
    {
        return inode > 0 && static_cast<size_t>(inode) <= recorder->files.originals().size();
    }

    static int add(ino_t number)
    {
        return recorder->files.add(number);
    }

    static std::set<std::string> &objects()
    {
        return recorder->objects;
    }

    // The name contains that of the folder, so that the objects of other workers have other names.
    static std::string object_name(const char *name)
    {
        std::string own = recorder->files.path() + "-" + (name + 1);
        own.erase(0, own.find('/', 1) + 1); // /dev
        own.erase(0, own.find('/') + 1);    // shm
        std::replace(own.begin(), own.end(), '/', '-');
        return "/" + own;
    }

    static Event &tell(Kind kind, const char *site = "")
    {
        Event e;
        e.kind = kind;
        e.thread = thread_number;
        e.site = site;
        Trace *to = trace();
        to->push_back(std::move(e));
        return to->back();
    }

    // An event of the process itself, which may be its last.
    static Event &emit(Kind kind, const char *site = "")
    {
        Event &e = tell(kind, site);
        bool counts = recorder->events_to_live && kind == recorder->counted.value_or(kind);
        if (counts && --recorder->events_to_live == 0)
            recorder->dead = true;
        return e;
    }

    // Changes that the kernel made to the times of the originals.
    static void see_times()
    {
        const auto &originals = recorder->files.originals();
        for (size_t i = 0; i < originals.size(); i++) {
            Time now = mtime_of(originals[i].fd);
            if (now == recorder->times[i])
                continue;
            recorder->times[i] = now;
            Event &e = tell(Kind::Times);
            e.inode = Files::inode_of(static_cast<int>(i));
            e.time = now;
        }
    }

    static const Region &region(const void *address)
    {
        const Region *r = standins::region(address);
        if (!r || recorder->files.inode_of_number(r->inode) < 0)
            throw Violation("a store to an address that belongs to no file of the media");
        return *r;
    }

    // Is this memory of the process, where a logged write is put together? A crash leaves nothing of it.
    static bool is_memory(const void *address)
    {
        const Region *r = standins::region(address);
        return r && r->inode == 0;
    }

    static void capture(Event &e, const void *address, size_t n)
    {
        const Region &r = region(address);
        int inode = recorder->files.inode_of_number(r.inode);
        uint64_t at = static_cast<uint64_t>(static_cast<const char *>(address) - r.begin) + r.at;
        for (size_t i = 0; i < n; i += 8) {
            uint64_t value;
            memcpy(&value, static_cast<const char *>(address) + i, 8);
            e.chunks.push_back({inode, at + i, value});
        }
    }

    // How slices are stored, also while nothing is recorded: all files of a world have one domain.
    inline static Kind last_kind = Kind::Store;

    static Kind kind_of(const struct persist *p)
    {
        last_kind =
            p->domain == PERSIST_PMEM || p->domain == PERSIST_EADR ? Kind::Stream : Kind::Store;
        return last_kind;
    }

    static void range(Event &e, const void *address, size_t n)
    {
        const Region &r = region(address);
        e.inode = recorder->files.inode_of_number(r.inode);
        e.at = static_cast<uint64_t>(static_cast<const char *>(address) - r.begin) + r.at;
        e.bytes = n;
    }

    static int flush(const struct persist *p, const void *address, size_t n, const char *site,
                     bool streamed)
    {
        if (dead())
            return 0;
        pause();
        if (trace() && p->domain == PERSIST_DISK) {
            see_times();
            range(emit(Kind::Sync, site), address, n);
        } else if (trace() && p->domain == PERSIST_PMEM && !streamed) {
            range(emit(Kind::Flush, site), address, n);
        }
        return 0;
    }
};

// Does each file operation on the real files, and adds it to the trace.
extern const struct fsops recorded_fsops;

} // namespace crash

#endif
