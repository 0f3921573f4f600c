// SPDX-License-Identifier: BSD-3-Clause
#include "demand.h"

namespace crash
{

namespace
{

bool is_plain(const Disk &disk)
{
    for (const auto &name : disk.at(Disk::ROOT).names)
        if (!disk.at(name.second).attribute.empty())
            return false;
    for (const auto &folder : disk.at(Disk::ROOT).names) // of originals there are no names
        for (const auto &name : disk.at(folder.second).names)
            if (folder.first.find(".tmp") == std::string::npos &&
                name.first.find(".stale-") == std::string::npos)
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

bool is_orderly(const Disk &disk)
{
    int own = disk.find(Disk::ROOT, ".ato");
    if (own < 0)
        return true;
    for (const auto &name : disk.at(own).names)
        if (name.first.find_first_not_of("0123456789") == std::string::npos &&
            disk.find(own, name.first + ".manifest") < 0)
            return false;
    return true;
}

} // namespace

std::string broken_demand(const Disk &disk, const Demand &demand)
{
    if (demand.plain && !is_plain(disk))
        return "the file was made plain, and something is left";
    if (demand.orderly && !is_orderly(disk))
        return "there is a reflection without a manifest";
    for (int inode : demand.kept)
        if (!has_name(disk, Disk::ROOT, inode))
            return "a file that had to be kept is gone";
    return "";
}

} // namespace crash
