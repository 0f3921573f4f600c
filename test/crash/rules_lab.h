// SPDX-License-Identifier: BSD-3-Clause
//
// Traces made by hand, and all images that a crash at the end of each allows: a test compares them
// with a set written by hand. An image is named by its differences from the disk that every trace
// starts with.
#ifndef ATO_TEST_CRASH_RULES_LAB_H
#define ATO_TEST_CRASH_RULES_LAB_H

#include "choices.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

namespace crash
{

constexpr int F = 1, G = 2, D = 3; // two files, a folder
constexpr int NEW = 4;             // the first inode made in a run
constexpr uint64_t SIZE = 4 * PAGE;

inline Disk start_disk()
{
    Disk disk;
    Inode file, folder;
    file.size = SIZE;
    folder.folder = true;
    EXPECT_EQ(disk.add(file), F);
    EXPECT_EQ(disk.add(file), G);
    EXPECT_EQ(disk.add(folder), D);
    disk.edit(Disk::ROOT).names = {{"f", F}, {"g", G}, {"d", D}};
    return disk;
}

struct Word {
    uint64_t at, value;
};
using Words = std::vector<Word>;

inline Event event(Kind kind, int thread = 1, int inode = -1)
{
    Event e;
    e.kind = kind;
    e.thread = thread;
    e.inode = inode;
    return e;
}

inline Event store(Kind kind, const Words &words, int thread, int inode)
{
    Event e = event(kind, thread);
    for (const Word &w : words)
        e.chunks.push_back({inode, w.at, w.value});
    return e;
}

inline Event cached(const Words &words, int thread = 1, int inode = F)
{
    return store(Kind::Store, words, thread, inode);
}

inline Event streamed(const Words &words, int thread = 1, int inode = F)
{
    return store(Kind::Stream, words, thread, inode);
}

inline Event whole(Event e)
{
    e.whole = true;
    return e;
}

inline Event range(Kind kind, uint64_t at, uint64_t bytes, int thread, int inode)
{
    Event e = event(kind, thread, inode);
    e.at = at;
    e.bytes = bytes;
    return e;
}

inline Event flush(uint64_t at, uint64_t bytes = 8, int thread = 1, int inode = F)
{
    return range(Kind::Flush, at, bytes, thread, inode);
}

inline Event fence(int thread = 1)
{
    return event(Kind::Fence, thread);
}

inline Event msync_of(uint64_t at, uint64_t bytes, int inode = F)
{
    return range(Kind::Sync, at, bytes, 1, inode);
}

inline Event fsync_of(int inode)
{
    return event(Kind::SyncFile, 1, inode);
}

inline Event make(const std::string &name, int child, int folder = Disk::ROOT)
{
    Event e = event(Kind::Make, 1, folder);
    e.name = name;
    e.child = child;
    return e;
}

inline Event rename_of(const std::string &name, const std::string &to, int folder = Disk::ROOT)
{
    Event e = event(Kind::Rename, 1, folder);
    e.name = name;
    e.to = to;
    return e;
}

inline Event removal(const std::string &name, int folder = Disk::ROOT)
{
    Event e = event(Kind::Remove, 1, folder);
    e.name = name;
    return e;
}

inline Event resize(uint64_t bytes, int inode = F)
{
    Event e = event(Kind::Resize, 1, inode);
    e.bytes = bytes;
    return e;
}

inline Event attribute(const std::string &value, int inode = F)
{
    Event e = event(Kind::Attribute, 1, inode);
    e.name = value;
    return e;
}

inline Event times(int64_t sec, int inode = F)
{
    Event e = event(Kind::Times, 1, inode);
    e.time = {sec, 0};
    return e;
}

inline Event allow()
{
    return event(Kind::Allow);
}

inline Event at_site(Event e, const char *site = "x.c:1")
{
    e.site = site;
    return e;
}

inline Mutation fault(Fault f, const char *site = "x.c:1")
{
    return {f, site};
}

// The differences from the start: "offset=value", "size=", "attr=", "mtime=", "name>inode",
// "-name"; with "inode:" before it, unless it concerns F or the root.
inline std::string tell(const Disk &disk)
{
    static const Disk start = start_disk();
    std::ostringstream out;
    for (int id = 0; id < static_cast<int>(disk.count()); id++) {
        const Inode none, &i = disk.at(id),
                          &was = id < static_cast<int>(start.count()) ? start.at(id) : none;
        std::string of = id == F || id == Disk::ROOT ? "" : std::to_string(id) + ":";
        for (const auto &page : i.pages)
            for (uint64_t at = page.first * PAGE; at < (page.first + 1) * PAGE; at += 8)
                if (i.word(at))
                    out << " " << of << at << "=" << i.word(at);
        if (i.size != was.size)
            out << " " << of << "size=" << i.size;
        if (i.attribute != was.attribute)
            out << " " << of << "attr=" << i.attribute;
        if (!(i.mtime == was.mtime))
            out << " " << of << "mtime=" << i.mtime.sec;
        for (const auto &name : i.names) {
            auto before = was.names.find(name.first);
            if (before == was.names.end() || before->second != name.second)
                out << " " << of << name.first << ">" << name.second;
        }
        for (const auto &name : was.names)
            if (!i.names.count(name.first))
                out << " " << of << "-" << name.first;
    }
    return out.str().empty() ? "" : out.str().substr(1);
}

using Images = std::set<std::string>;

class Past
{
  public:
    explicit Past(Loss loss, bool faults_sync = true, const Mutation &mutation = {})
        : media(start_disk(), loss, faults_sync, mutation)
    {
    }

    Past &operator<<(const Event &e)
    {
        media.feed(e);
        return *this;
    }

    Images images()
    {
        Images all = look(nullptr);
        EXPECT_EQ(last, tell(media.visible()))
            << "everything is kept, and differs from the visible content";
        return all;
    }

    // A crash while `next` is under way.
    Images during(const Event &next)
    {
        return look(&next);
    }

    Media media;

  private:
    std::string last;

    Images look(const Event *next)
    {
        Images all;
        Choices choices(media.units(next), 1);
        EXPECT_NE(choices.all(), 0u);
        for (uint64_t i = 0; i < choices.all(); i++)
            all.insert(last = tell(media.image(choices.pick(i))));
        return all;
    }
};

} // namespace crash

#endif
