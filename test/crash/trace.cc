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

} // namespace crash
