// SPDX-License-Identifier: BSD-3-Clause
#include "disk.h"

#include <algorithm>
#include <cstring>

namespace crash
{

uint64_t hash_bytes(const void *bytes, size_t n)
{
    const char *p = static_cast<const char *>(bytes);
    uint64_t h = n + 1;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        h = mix(h ^ w) + 0x9e3779b97f4a7c15ull;
    }
    uint64_t rest = 0;
    memcpy(&rest, p, n);
    return mix(h ^ rest);
}

uint64_t Page::hash() const
{
    if (!known) {
        bool zeros = std::all_of(words.begin(), words.end(), [](uint64_t w) { return w == 0; });
        kept = zeros ? 0 : hash_bytes(words.data(), PAGE) | 1;
        known = true;
    }
    return kept;
}

uint64_t Inode::word(uint64_t at) const
{
    auto page = pages.find(at / PAGE);
    return page == pages.end() ? 0 : page->second->words[at % PAGE / 8];
}

void Inode::set_word(uint64_t at, uint64_t value)
{
    std::shared_ptr<Page> &page = pages[at / PAGE];
    if (!page)
        page = std::make_shared<Page>();
    else if (page.use_count() > 1)
        page = std::make_shared<Page>(*page);
    page->words[at % PAGE / 8] = value;
    page->changed();
}

void Inode::resize(uint64_t bytes)
{
    if (bytes < size) {
        pages.erase(pages.lower_bound((bytes + PAGE - 1) / PAGE), pages.end());
        for (uint64_t at = (bytes + 7) / 8 * 8; at % PAGE && pages.count(at / PAGE); at += 8)
            set_word(at, 0);
        if (bytes % 8 && pages.count(bytes / PAGE))
            set_word(bytes / 8 * 8, word(bytes / 8 * 8) & ((1ull << bytes % 8 * 8) - 1));
    }
    size = bytes;
}

void Inode::read(uint64_t at, void *to, uint64_t n) const
{
    char *out = static_cast<char *>(to);
    while (n) {
        uint64_t here = std::min(n, PAGE - at % PAGE);
        auto page = pages.find(at / PAGE);
        if (page == pages.end())
            memset(out, 0, here);
        else
            memcpy(out, reinterpret_cast<const char *>(page->second->words.data()) + at % PAGE,
                   here);
        out += here;
        at += here;
        n -= here;
    }
}

Bytes Inode::content() const
{
    Bytes all(size);
    read(0, all.data(), size);
    return all;
}

Disk::Disk()
{
    Inode root;
    root.folder = true;
    add(std::move(root));
}

int Disk::add(Inode inode)
{
    inodes.push_back(std::make_shared<Inode>(std::move(inode)));
    return static_cast<int>(inodes.size()) - 1;
}

Inode &Disk::edit(int id)
{
    std::shared_ptr<Inode> &inode = inodes[static_cast<size_t>(id)];
    if (inode.use_count() > 1)
        inode = std::make_shared<Inode>(*inode);
    return *inode;
}

int Disk::find(int folder, const std::string &name) const
{
    const auto &names = at(folder).names;
    auto found = names.find(name);
    return found == names.end() ? -1 : found->second;
}

uint64_t Disk::hash_of(int id) const
{
    const Inode &inode = at(id);
    uint64_t h = mix(inode.size * 2 + inode.folder);
    h = mix(h ^ hash_bytes(inode.attribute.data(), inode.attribute.size()));
    h = mix(h ^ static_cast<uint64_t>(inode.mtime.sec)) + static_cast<uint64_t>(inode.mtime.nsec);
    for (const auto &page : inode.pages)
        if (page.second->hash())
            h += mix(page.second->hash() ^ mix(page.first));
    for (const auto &name : inode.names)
        h += mix(hash_bytes(name.first.data(), name.first.size()) ^ hash_of(name.second));
    return h;
}

uint64_t Disk::hash() const
{
    return hash_of(ROOT);
}

} // namespace crash
