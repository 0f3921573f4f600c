/* SPDX-License-Identifier: BSD-3-Clause */
#include "ledger.h"

#include <algorithm>
#include <sys/xattr.h>

namespace kills
{

static constexpr size_t PAGE = 4096;

/* The first 8 bytes say what the rest follows from. */
void render(const Content &c, unsigned char *to, size_t n)
{
    if (c.kind == Content::Filled) {
        std::memset(to, static_cast<int>(c.version), n);
        return;
    }
    uint64_t word = c.version << 16 | c.source << 1 | (c.kind == Content::Initial);
    rig::Random rest(word);
    for (size_t at = 0; at < n; at += 8) {
        std::memcpy(to + at, &word, std::min<size_t>(8, n - at));
        word = rest.next();
    }
}

Ledger::Ledger(const rig::Folder &f, unsigned records, size_t bytes, bool within_page)
    : record_bytes(bytes), contents(records), folder(f.at)
{
    /* Back to back at odd offsets; or each in a page of its own, across slices. */
    first = within_page ? 1001 : 2741;
    step = within_page ? PAGE : bytes;
    file_bytes = first + records / FILES * step + 4321;
    for (unsigned i = 0; i < records; i++)
        contents[i].source = i;
    for (unsigned i = 0; i < FILES; i++)
        paths[i] = f / ("records" + std::to_string(i));
}

/* Objects of any pairing these files ever had, also those whose maker died before he could tell:
 * the same 32 digits begin their names. */
std::vector<std::string> Ledger::shared_memory() const
{
    std::vector<std::string> found;
    for (const std::string &name : rig::names_in("/dev/shm"))
        for (const std::string &object : objects)
            if (("/dev/shm/" + name).compare(0, 13 + 32, object, 0, 13 + 32) == 0) {
                found.push_back("/dev/shm/" + name);
                break;
            }
    return found;
}

Ledger::~Ledger()
{
    for (const std::string &object : shared_memory())
        unlink(object.c_str());
}

std::string Ledger::folder_of_reflections() const
{
    return folder + "/.ato";
}

bool Ledger::write_files() const
{
    return rig::write_file(paths[0], image(0, {})) && rig::write_file(paths[1], image(1, {}));
}

void Ledger::hear(const std::vector<Note> &notes)
{
    for (const Note &n : notes) {
        if (n.say == Say::Begin) {
            pending[n.thread] = n;
        } else if (n.say == Say::Told) {
            contents[n.record] = n.content;
            pending.erase(n.thread);
            told++;
        } else if (n.say == Say::Object &&
                   std::find(objects.begin(), objects.end(), n.text) == objects.end()) {
            objects.push_back(n.text);
        }
    }
}

void Ledger::settle(const std::vector<Note> &verdicts)
{
    for (const auto &p : pending)
        for (const Note &v : verdicts)
            if (v.say == Say::Verdict && v.record == p.second.record &&
                v.value == static_cast<uint32_t>(Found::New))
                contents[v.record] = p.second.content;
    pending.clear();
}

Found Ledger::judge(unsigned record, const unsigned char *bytes) const
{
    std::vector<unsigned char> want(record_bytes);
    auto is = [&](const Content &c) {
        render(c, want.data(), record_bytes);
        return std::memcmp(want.data(), bytes, record_bytes) == 0;
    };
    if (is(contents[record]))
        return Found::Old;
    for (const auto &p : pending)
        if (p.second.record == record && is(p.second.content))
            return Found::New;
    /* Whole, but what? An older write than the last acknowledged one. */
    uint64_t word;
    std::memcpy(&word, bytes, 8);
    Content stamped{word & 1 ? Content::Initial : Content::Stamped,
                    static_cast<uint32_t>(word >> 1) & 0x7fff, word >> 16};
    Content filled{Content::Filled, 0, bytes[0]};
    return is(stamped) || is(filled) ? Found::Lost : Found::Torn;
}

std::vector<unsigned char> Ledger::image(unsigned file, const std::vector<Found> &found) const
{
    std::vector<unsigned char> bytes(file_bytes);
    rig::Random gaps(4711 + file);
    gaps.fill(bytes.data(), file_bytes);
    for (unsigned r = file; r < records(); r += FILES) {
        const Content *c = &contents[r];
        for (const auto &p : pending)
            if (p.second.record == r && !found.empty() && found[r] == Found::New)
                c = &p.second.content;
        render(*c, bytes.data() + offset(r), record_bytes);
    }
    return bytes;
}

std::string Ledger::leftovers() const
{
    std::vector<std::string> all;
    std::error_code ignored;
    for (const std::string &name : rig::names_in(folder_of_reflections())) {
        auto bytes = std::filesystem::file_size(folder_of_reflections() + "/" + name, ignored);
        all.push_back(".ato/" + name + " of " + std::to_string(bytes) + " bytes");
    }
    for (const std::string &object : shared_memory())
        all.push_back(object);
    for (const std::string &p : paths)
        if (getxattr(p.c_str(), "user.ato", nullptr, 0) >= 0)
            all.push_back("the attribute of " + p);
    if (all.empty())
        return "";
    return std::to_string(all.size()) + " things, the first " + all.front() + ", the last " +
           all.back();
}

} // namespace kills
