// SPDX-License-Identifier: BSD-3-Clause
#include "trace.h"

#include <sstream>

namespace crash
{

const char *name_of(Kind kind)
{
    static const char *const names[] = {"store",     "stream", "flush",  "fence",  "msync",
                                        "fsync",     "make",   "rename", "remove", "resize",
                                        "attribute", "times",  "death",  "allow"};
    return names[static_cast<int>(kind)];
}

bool is_store(const Event &e)
{
    return e.kind == Kind::Store || e.kind == Kind::Stream;
}

std::string describe(const Event &e)
{
    std::ostringstream out;
    out << name_of(e.kind);
    if (e.thread > 1)
        out << " by thread " << e.thread;
    switch (e.kind) {
    case Kind::Store:
    case Kind::Stream:
        out << " of " << e.chunks.size() * 8 << " bytes to inode " << e.chunks[0].inode << " at "
            << e.chunks[0].at;
        break;
    case Kind::Flush:
    case Kind::Sync:
        out << " of inode " << e.inode << " [" << e.at << ", +" << e.bytes << ")";
        break;
    case Kind::SyncFile:
        out << " of inode " << e.inode;
        break;
    case Kind::Make:
    case Kind::Remove:
        out << " " << e.name << " in inode " << e.inode;
        break;
    case Kind::Rename:
        out << " " << e.name << " to " << e.to;
        break;
    case Kind::Resize:
        out << " inode " << e.inode << " to " << e.bytes << " bytes";
        break;
    case Kind::Attribute:
        out << " of inode " << e.inode << " := '" << e.name << "'";
        break;
    case Kind::Times:
    case Kind::Fence:
    case Kind::Death:
        break;
    case Kind::Allow:
        out << " " << e.allowed.size() << " contents";
        break;
    }
    if (*e.site)
        out << " (" << e.site << ")";
    return out.str();
}

void pack(Pack &p, const Time &t)
{
    p.number(static_cast<uint64_t>(t.sec));
    p.number(static_cast<uint64_t>(t.nsec));
}

Time unpack_time(Unpack &u)
{
    Time t;
    t.sec = static_cast<int64_t>(u.number());
    t.nsec = static_cast<int64_t>(u.number());
    return t;
}

void pack(Pack &p, const Event &e)
{
    p.number(static_cast<uint64_t>(e.kind));
    p.number(static_cast<uint64_t>(e.thread));
    p.number(reinterpret_cast<uintptr_t>(e.site)); // the address is valid in the other process, too
    p.number(e.chunks.size());
    for (const Chunk &c : e.chunks) {
        p.number(static_cast<uint64_t>(c.inode));
        p.number(c.at);
        p.number(c.value);
    }
    p.number(e.whole);
    p.number(e.alone);
    p.number(static_cast<uint64_t>(e.inode));
    p.number(e.at);
    p.number(e.bytes);
    p.word(e.name);
    p.word(e.to);
    p.number(static_cast<uint64_t>(e.child));
    p.number(e.folder);
    pack(p, e.time);
    p.number(e.allowed.size());
    for (uint64_t a : e.allowed)
        p.number(a);
    p.number(e.demand.plain);
    p.number(e.demand.kept.size());
    for (int inode : e.demand.kept)
        p.number(static_cast<uint64_t>(inode));
}

Event unpack_event(Unpack &u)
{
    Event e;
    e.kind = static_cast<Kind>(u.number());
    e.thread = static_cast<int>(u.number());
    e.site = reinterpret_cast<const char *>(u.number());
    for (uint64_t n = u.number(); n; n--) {
        Chunk c;
        c.inode = static_cast<int>(u.number());
        c.at = u.number();
        c.value = u.number();
        e.chunks.push_back(c);
    }
    e.whole = u.number();
    e.alone = u.number();
    e.inode = static_cast<int>(u.number());
    e.at = u.number();
    e.bytes = u.number();
    e.name = u.word();
    e.to = u.word();
    e.child = static_cast<int>(u.number());
    e.folder = u.number();
    e.time = unpack_time(u);
    for (uint64_t n = u.number(); n; n--)
        e.allowed.push_back(u.number());
    e.demand.plain = u.number();
    for (uint64_t n = u.number(); n; n--)
        e.demand.kept.push_back(static_cast<int>(u.number()));
    return e;
}

} // namespace crash
