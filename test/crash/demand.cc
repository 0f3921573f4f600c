// SPDX-License-Identifier: BSD-3-Clause
#include "demand.h"

extern "C" {
#include "reflection/format/layout.h"
#include "reflection/format/manifest.h"
}

namespace crash
{

namespace
{

// The records and words of a manifest, without its lanes.
Bytes records_of(const Inode &manifest)
{
    Bytes bytes(MANIFEST_BYTES);
    manifest.read(0, bytes.data(), bytes.size());
    return bytes;
}

// A reflection, or a manifest, that nothing needs any more: the next map of the file removes it.
bool is_left_over(const Disk &disk, int folder, const std::string &name)
{
    struct manifest_record record;
    int which;
    const int found = disk.find(folder, name.substr(0, name.find('.')) + ".manifest");
    if (found < 0)
        return true;
    const Inode &file = disk.at(found);
    return file.size >= MANIFEST_BYTES &&
           manifest_read(records_of(file).data(), &record, &which) == MANIFEST_VALID &&
           record.state == MANIFEST_DEPLOYED;
}

bool is_plain(const Disk &disk, bool bare)
{
    for (const auto &name : disk.at(Disk::ROOT).names)
        if (!disk.at(name.second).attribute.empty())
            return false;
    for (const auto &folder : disk.at(Disk::ROOT).names) // originals have no names there
        for (const auto &name : disk.at(folder.second).names)
            if (folder.first.find(".tmp") == std::string::npos &&
                name.first.find(".stale-") == std::string::npos && name.first != "README" &&
                (bare || !is_left_over(disk, folder.second, name.first)))
                return false;
    return true;
}

bool has_name(const Disk &disk, int folder, int inode)
{
    for (const auto &name : disk.at(folder).names)
        if (name.second == inode || has_name(disk, name.second, inode))
            return true;
    return false;
}

// Does no manifest record a growth under way? `clean`: looks only at manifests in a state without
// growth.
bool is_settled(const Disk &disk, bool clean)
{
    int own = disk.find(Disk::ROOT, ".ato");
    if (own < 0)
        return true;
    for (const auto &name : disk.at(own).names) {
        const Inode &file = disk.at(name.second);
        struct manifest_record record;
        struct manifest_sizes sizes;
        int which;
        if (name.first.find(".manifest") == std::string::npos || file.size < MANIFEST_BYTES)
            continue;
        const Bytes bytes = records_of(file);
        const bool valid = manifest_read(bytes.data(), &record, &which) == MANIFEST_VALID;
        // With a log a size may be in a record, and not in the manifest yet.
        const bool counts =
            clean ? valid && record.state == MANIFEST_CLEAN : !valid || record.format != LAYOUT_LOG;
        if (counts && manifest_sizes(bytes.data(), &sizes) && sizes.growth > sizes.size)
            return false;
    }
    return true;
}

} // namespace

std::string broken_demand(const Disk &disk, const Demand &demand)
{
    if (demand.plain && !is_plain(disk, demand.bare))
        return "the file was made plain, and something is left";
    if (!is_settled(disk, !demand.settled))
        return "a growth is over, and its manifest still tells of it";
    for (int inode : demand.kept)
        if (!has_name(disk, Disk::ROOT, inode))
            return "a file that had to be kept is gone";
    return "";
}

} // namespace crash
