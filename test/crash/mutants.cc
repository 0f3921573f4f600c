// SPDX-License-Identifier: BSD-3-Clause
#include "mutants.h"

extern "C" {
#include "reflection/media/seam.h"
extern const struct seam_site __start_seam_sites[], __stop_seam_sites[];
}

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>

namespace crash
{

namespace
{

// The comment that ends on the line of the place or in one of the lines before it, if it says that
// this fault survives.
std::string argument_of(const std::string &fault, const std::string &place)
{
    size_t colon = place.rfind(':');
    size_t line = std::stoul(place.substr(colon + 1));
    std::ifstream in(std::string(SOURCE_FOLDER) + "/" + place.substr(0, colon));
    std::vector<std::string> lines(1);
    for (std::string l; lines.size() <= line && std::getline(in, l);)
        lines.push_back(l);
    std::string text;
    constexpr size_t NEAR = 16;
    for (size_t i = line > NEAR ? line - NEAR : 1; i < lines.size(); i++) {
        text += lines[i] + " ";
        // There is another place in between: the comment belongs to that one.
        if (i < line && (lines[i].find("persist_fence(") != std::string::npos ||
                         lines[i].find("sync(") != std::string::npos))
            text.clear();
    }
    std::string tag = "explorer: " + fault + " survives: ";
    size_t at = text.find(tag);
    if (at == std::string::npos)
        return "";
    std::string argument = text.substr(at + tag.size());
    argument = argument.substr(0, std::min(argument.find("explorer: "), argument.find("*/")));
    std::string plain;
    for (size_t i = 0; i < argument.size(); i++) {
        bool margin = argument[i] == '*' || argument[i] == '\n';
        bool blank = argument[i] == ' ' && (plain.empty() || plain.back() == ' ');
        if (!margin && !blank)
            plain += argument[i];
    }
    return plain;
}

void add(std::vector<Mutant> &list, const std::string &fault, Fault kind, const std::string &site)
{
    Mutant m;
    m.fault = fault;
    m.place = short_place(site);
    m.mutation = {kind, site};
    m.argument = argument_of(fault, m.place);
    // The conditions for these are rare: these cases have them.
    static const struct {
        const char *fault, *place, *cases;
    } made_for[] = {
        {"", "lib/api/files.c", "two chunks, two dead|two dead"},
        {"", "lib/file/page.c", "two dead|threads, one page"},
        {"drop fence", "lib/file/page.c", "two dead"},
        {"delay fence", "lib/file/page.c", "two dead"},
        {"drop flush", "reflection/format/lane.c", "dead in a commit"},
        {"drop fence", "reflection/format/lane.c", "dead in a commit|threads, beside"},
        {"delay fence", "reflection/format/lane.c", "dead in a commit|threads, beside"},
        {"tear word", "reflection/format/lane.c", "write, two pages' seam|write, pages"},
        {"", "lib/file/place.c", "places, at seams|places, mapped again"},
        {"drop flush", "lib/file/place.c", "places, exchanged|places, at seams"},
        {"drop fence", "lib/file/place.c", "places, a note"},
        {"delay fence", "lib/file/place.c", "places, a note"},
        {"", "reflection/recovery/pairing_open.c", "unmap|domain changed, unmapped|restored"},
        {"drop fsync", "reflection/pairing/adoption.c",
         "file preferred|unmap|domain changed|restored"},
        {"", "reflection/recovery/replay.c", "recovery|dead in a commit|long lane, dead"},
        {"", "reflection/recovery/log_replay.c", "full log, dead"},
        {"", "reflection/recovery/homecoming.c", "domain changed, durable"},
        {"drop flush", "lib/commit/log.c", "shrink, disk"},
        {"", "reflection/pairing/area.c", "long lane|peers, long lane"},
        {"", "reflection/pairing/length.c", "growth cut, unmap|transaction, size|grow|shrink"},
        {"", "reflection/pairing/guard.c", "guarded"},
        {"", "reflection/pairing/orphan.c", "restored"},
        {"", "lib/recovery/takeover.c",
         "peers, in a deploy|peers, in several pages|peers, long lane|peers, in a word"},
        {"drop fsync", "lib/recovery/takeover.c", "peers, in a page, disk|peers, in a word, disk"},
        {"drop flush", "lib/recovery/takeover.c", "peers, in a deploy, pmem"},
        {"drop fence", "lib/recovery/takeover.c", "peers, in a deploy"},
        {"delay fence", "lib/recovery/takeover.c", "peers, in a deploy"},
    };
    for (const auto &h : made_for)
        if (m.fault.compare(0, strlen(h.fault), h.fault) == 0 &&
            m.place.compare(0, strlen(h.place), h.place) == 0)
            m.cases = h.cases;
    list.push_back(m);
}

} // namespace

// The prefixes are separated by |.
bool Mutant::has_case(const std::string &name) const
{
    for (size_t at = 0, end; at < cases.size(); at = end + 1) {
        end = std::min(cases.find('|', at), cases.size());
        if (name.compare(0, end - at, cases, at, end - at) == 0)
            return true;
    }
    return false;
}

std::string short_place(const std::string &site)
{
    for (const char *top : {"reflection/", "lib/"}) {
        size_t at = site.rfind(top);
        if (at != std::string::npos)
            return site.substr(at);
    }
    return site;
}

std::vector<Mutant> all_mutants()
{
    std::vector<Mutant> list;
    std::set<std::pair<std::string, std::string>> sites; // place, entry of the table
    for (const struct seam_site *s = __start_seam_sites; s != __stop_seam_sites; s++)
        sites.insert({s->where, s->op});
    for (const auto &s : sites) {
        const std::string &where = s.first, &op = s.second;
        if (op == "fence") {
            add(list, "drop fence", Fault::Drop, where);
            add(list, "delay fence", Fault::Delay, where);
        } else if (op == "fence_threads") {
            add(list, "drop fence", Fault::Drop, where);
        } else if (op == "fsync" || op == "fdatasync") {
            add(list, "drop fsync", Fault::Drop, where);
        } else if (op.compare(0, 6, "flush_") == 0) {
            add(list, "drop flush", Fault::Drop, where);
        } else if (op == "store_word" || op == "flip_rtm") {
            add(list, "tear word", Fault::Tear, where);
            if (where.find("format/lane.c") != std::string::npos)
                add(list, "retire late", Fault::Late, where);
        }
    }
    const struct {
        CodeFault fault;
        const char *what, *cases;
    } code[] = {
        {CodeFault::AnyIdentity, "any file is the manifest's", "inode number reused"},
        {CodeFault::AnyTime, "a clean file is believed whatever its size and mtime",
         "written by others"},
        {CodeFault::NoReplay, "lanes of the dead are not replayed", "lanes made|long lane"},
        {CodeFault::LeftToOthers, "pages of the dead are free before their lanes are replayed",
         "peers, in several pages|peers, long lane"},
        {CodeFault::NoChecksum, "a lane counts without its checksum", "lanes made|long lane"},
        {CodeFault::NeverRetired, "a lane is never retired", "lanes made|long lane"},
#ifdef WITH_SQLITE
        {CodeFault::NeverForgotten, "what SQLite gives up is not forgotten",
         "SQLite, spill, rollback"},
        {CodeFault::WrittenThrough, "what SQLite writes counts before it commits", "SQLite, spill"},
        {CodeFault::NoMask, "a database is not masked before the first commit", "SQLite, closed"},
#endif
    };
    for (const auto &c : code) {
        Mutant m;
        m.fault = "code";
        m.place = c.what;
        m.code = c.fault;
        m.cases = c.cases;
        list.push_back(m);
    }
    return list;
}

} // namespace crash
