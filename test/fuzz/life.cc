// SPDX-License-Identifier: BSD-3-Clause
#include "verdict.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ato.h"

extern "C" {
#include "tools/ato/tool.h"
}

namespace fuzz
{

namespace
{

// ---- files afterwards ----

// Lanes that are committed, or were cut, are retired, by two if the recovery comes to them twice.
void forget_retired(Image &was, const Image &is)
{
    for (uint64_t lane = MANIFEST; lane < was.size && lane <= LONG_LANE; lane += SLOT_LANE_BYTES)
        if (is.word(lane + 64) - was.word(lane + 64) - 1 <= 1)
            was.set_word(lane + 64, is.word(lane + 64));
}

// Equal apart from words of reflections and manifests that lanes name, if an error may have interrupted a
// replay; from the lanes of another boot, which are dropped; and from zeros that complete the last area, or are the first.
bool same_but(Image was, Image is, const Replay &replay, const std::string &name)
{
    if (name.find(".manifest") != std::string::npos) {
        if (is.size == MANIFEST)
            was.pages.erase(was.pages.lower_bound(MANIFEST), was.pages.end());
        if (is.size == MANIFEST || (is.size > was.size && is.size <= was.size + AREA))
            was.size = is.size;
        forget_retired(was, is);
    }
    auto lanes = replay.find(name);
    if (lanes != replay.end())
        for (const auto &[at, value] : lanes->second)
            if (is.word(at) == value)
                is.set_word(at, was.word(at));
    return was == is;
}

// Does it exist, under its own name or set aside?
bool survives(const World &w, const std::string &name, const Image &was, const Replay &replay)
{
    std::string stale = w.file.name() + ".stale-", end = ".manifest";
    bool manifest = name.size() > end.size() && name.compare(name.size() - 9, 9, end) == 0;
    for (const auto &[there, image] : w.names()) {
        bool as_manifest =
            there.size() > end.size() && there.compare(there.size() - 9, 9, end) == 0;
        bool aside = there.compare(0, stale.size(), stale) == 0 && as_manifest == manifest;
        if ((there == name || aside) && same_but(was, image, replay, name))
            return true;
    }
    return false;
}

void check_original(const Paired &p, const Bytes &expected, const char *when)
{
    Bytes now = read_all(p.path);
    if (now.size() != expected.size())
        wrong("%s: %s is %zu bytes long, not %zu", when, p.path.c_str(), now.size(),
              expected.size());
    auto differ = std::mismatch(now.begin(), now.end(), expected.begin());
    if (differ.first != now.end())
        wrong("%s: byte %td of %s is 0x%02x, not 0x%02x", when, differ.first - now.begin(),
              p.path.c_str(), *differ.first, *differ.second);
}

void check_other(const World &w, const Replay &replay, const char *when)
{
    check_original(w.other, w.other.content, when);
    if (attribute_of(w.other.path) != w.other.attribute)
        wrong("%s: the other file's attribute was touched", when);
    std::string name = w.other.name();
    if (!same_but(w.other.reflection, image_at(w.folder_fd, name), replay, name))
        wrong("%s: the other file's reflection was touched", when);
    name += ".manifest";
    if (!same_but(image_of(w.other.manifest), image_at(w.folder_fd, name), replay, name))
        wrong("%s: the other file's manifest was touched", when);
}

// ---- the tools ----

struct Null {
    FILE *file = fopen("/dev/null", "w");
};

void run_tool(const tool_command &command, std::vector<std::string> names, bool json)
{
    static Null null;
    FILE *out = stdout, *err = stderr;
    std::vector<char *> operands;
    for (std::string &name : names)
        operands.push_back(name.data());
    tool_request request = {};
    request.json = json;
    request.names = operands.data();
    request.count = static_cast<int>(operands.size());
    stdout = stderr = null.file;
    int status = command.run(&request);
    stdout = out;
    stderr = err;
    if (status < TOOL_GOOD || status > TOOL_BLIND)
        wrong("ato %s answers %d", command.name, status);
}

void look(const World &w, const Uses &uses)
{
    if (!uses.tools)
        return;
    run_tool(info_command, {w.file.path}, !uses.text);
    run_tool(check_command, {w.file.path, w.root, w.folder}, !uses.text);
}

// ---- mapping ----

void ignore(void * /*arg*/, int /*level*/, const char * /*sentence*/)
{
}

class Mapping
{
  public:
    Mapping(const std::string &path, size_t length, const Uses &uses, int policy)
        : length_(std::max<size_t>(length, 1))
    {
        int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
        ato_options o = {};
        o.struct_size = sizeof(o);
        o.read_policy = policy;
        o.domain = uses.domain;
        o.format = uses.format;
        o.flags = uses.flags;
        o.max_size = 16 << 20;
        errno = 0;
        void *at = ato_mmap_opt(length_, fd, 0, &o);
        error = at == MAP_FAILED ? errno : 0;
        close(fd);
        if (at == MAP_FAILED) {
            if (!error)
                wrong("refused, and errno is 0");
            sentence = ato_errormsg();
            return;
        }
        base = static_cast<char *>(at);
    }
    ~Mapping()
    {
        if (base)
            ato_munmap(base, length_, ATO_UNMAP_FAST);
    }
    Mapping(const Mapping &) = delete;
    Mapping &operator=(const Mapping &) = delete;

    void expect(const Bytes &content, const char *when) const
    {
        Bytes read(content.size());
        // In pieces, the last one across all that is left.
        for (size_t at = 0, n = 1000; at < read.size(); at += n) {
            n = std::min(at < 8 * n ? n : read.size(), read.size() - at);
            if (!ato_memcpy(&read[at], base + at, n))
                wrong("%s: cannot be read: %s", when, ato_errormsg());
        }
        auto differ = std::mismatch(read.begin(), read.end(), content.begin());
        if (differ.first != read.end())
            wrong("%s: byte %td reads as 0x%02x, not 0x%02x", when, differ.first - read.begin(),
                  *differ.first, *differ.second);
    }
    void write(Bytes &content, size_t at, size_t n, unsigned char byte, unsigned flags = 0) const
    {
        if (n > content.size() || at > content.size() - n)
            return;
        Bytes bytes(n, byte);
        if (!ato_memcpy_opt(base + at, bytes.data(), n, flags))
            wrong("cannot be written: %s", ato_errormsg());
        std::copy(bytes.begin(), bytes.end(), content.begin() + static_cast<long>(at));
    }
    void unmap(int mode, const char *when)
    {
        if (ato_munmap(base, length_, mode) < 0)
            wrong("%s: %s", when, ato_errormsg());
        base = nullptr;
    }

    char *base = nullptr;
    int error = 0;
    std::string sentence;

  private:
    size_t length_;
};

// A refusal names the file, or a part of its pairing.
void check_sentence(const World &w, const Mapping &m)
{
    if (m.sentence.empty())
        wrong("refused with errno %d, and without a sentence", m.error);
    // Or the folder that the attribute leads to.
    if (m.sentence.find(w.root) == std::string::npos &&
        m.sentence.find("reflection folder") == std::string::npos)
        wrong("a sentence that does not say what it is about: %s", m.sentence.c_str());
}

void check_refused(const World &w, const Verdict &v, const Replay &replay)
{
    const Paired &p = w.file;
    Bytes now = read_all(p.path);
    if (now != v.content && now != v.tolerated)
        check_original(p, p.content, "refused");
    bool forgotten = v.anew || v.drop || v.prefer_file;
    if (!forgotten && attribute_of(p.path) != p.attribute)
        wrong("refused: the attribute was touched");
    if (v.anew)
        return;
    auto before = [&](const std::string &name, Kind kind, const Image &image) {
        if (kind == Kind::FILE && !survives(w, name, image, replay))
            wrong("refused: %s is not there as it was", name.c_str());
    };
    // Sparse: places are looked at when all else is recovered.
    if (!(v.format == SPARSE && survives(w, p.name(), v.reflection, {})))
        before(p.name(), p.reflection_kind, p.reflection);
    if (v.held.found != Holding::UNBORN)
        before(p.name() + ".manifest", p.manifest_kind, p.manifest_image());
}

// Checks of every mapping, and its content. *bare: the file itself has no sign of the pairing, so that no
// unmap leaves one.
Bytes check_taken(const World &w, Verdict &v, const Mapping &m, const Replay &replay, bool *bare)
{
    const Paired &p = w.file;
    Image manifest = image_at(w.folder_fd, p.name() + ".manifest");
    Holding now = holding(manifest.bytes(0, MANIFEST));
    if (now.found != Holding::VALID || now.field(STATE, 4) != IN_USE)
        wrong("mapped, and the manifest does not say so");
    v.adopted = v.held.found == Holding::VALID &&
                std::equal(&now.record[ID], &now.record[ID] + 16, &v.held.record[ID]);
    if (v.adopted && !v.adopt)
        wrong("taken, although it is not in order");
    if (v.gone && read_all(p.path) == p.content)
        v.content = p.content;
    Bytes content = v.content;
    *bare = attribute_of(p.path).empty();
    if (v.adopted) {
        Paired q = p;
        q.content = v.content;
        q.reflection = v.reflection;
        content = q.gathered(v.content.size(), v.format);
        if (v.format == LOG && v.held.field(STATE, 4) == IN_USE) // else it counts for nothing
            v.log.apply(content);
        if (v.format == LOG) // all of it is in the file now
            v.content = content;
    } else if (!v.anew && p.reflection_kind == Kind::FILE &&
               !survives(w, p.name(), p.reflection, replay)) {
        wrong("begun anew, and the reflection that was there is gone");
    }
    m.expect(content, "gathered");
    check_original(p, v.content, "mapped and read");
    Image reflection = image_at(w.folder_fd, p.name());
    const bool replayed = v.adopted && v.format == LOG && v.held.field(STATE, 4) == IN_USE;
    if (replayed && !read_log(reflection).is_empty)
        wrong("recovered, and the log has records");
    // The header of a log changes at each recovery.
    for (Image *image : {&v.reflection, &reflection})
        if (v.format == LOG)
            image->pages.erase(0);
    if (v.adopted && !(reflection == v.reflection))
        wrong("reading has changed the reflection");
    struct ato_stat st = {};
    st.struct_size = sizeof(st);
    if (ato_stat(m.base, &st) < 0 || st.size != content.size())
        wrong("ato_stat: size %llu", static_cast<unsigned long long>(st.size));
    return content;
}

void write_some(const Mapping &m, Bytes &content, const Uses &uses)
{
    m.write(content, 70, 5, 0xee);
    m.write(content, 4200, 300, 0xed, ATO_EAGER);
    m.write(content, content.size() - 3, 3, 0xec, ATO_SKIP_EQUAL);
    if (uses.journal)
        m.write(content, 3000, 6000, 0xeb);
    if (!uses.grow)
        return;
    size_t size = content.size() + 5000;
    if (ato_ftruncate(m.base, static_cast<off_t>(size)) == 0)
        content.resize(size);
    else if (errno != EUCLEAN)
        wrong("cannot grow: %s", ato_errormsg());
}

// The guard of the last record, which gives the plain bytes back.
void take_guard_off(const Holding &h, Bytes &content)
{
    uint64_t at = h.field(GUARD_OFFSET, 8), n = h.field(GUARD_BYTES, 4);
    if (at <= content.size() && n <= content.size() - at)
        std::copy_n(&h.record[GUARD_PLAIN], n, content.begin() + static_cast<long>(at));
}

void use(const World &w, const Uses &uses, Verdict &v, Mapping &first, const Replay &replay)
{
    const Paired &p = w.file;
    bool bare;
    Bytes content = check_taken(w, v, first, replay, &bare);
    look(w, uses);
    first.unmap(ATO_UNMAP_FAST, "unmapped fast");
    if (bare)
        take_guard_off(v.held, content);
    check_original(p, bare ? content : v.content, "unmapped fast");
    Uses later = uses;
    later.domain = uses.domain == ATO_DOMAIN_DISK ? uses.domain : 0;
    {
        // Before a growth nothing is deployed.
        Mapping m(p.path, content.size(), later, uses.grow ? ATO_READ_GATHER : ATO_READ_LAZY);
        if (!m.base)
            wrong("cannot be mapped again: %s", m.sentence.c_str());
        m.expect(content, "mapped again");
        if (!v.full)
            write_some(m, content, uses);
        m.expect(content, "written");
        m.unmap(ATO_UNMAP_FAST, "unmapped fast again");
    }
    Mapping m(p.path, content.size(), later, ATO_READ_LAZY);
    if (!m.base)
        wrong("cannot be mapped once more: %s", m.sentence.c_str());
    for (int i = 0; i < 2; i++)
        m.expect(content, "lazy");
    if (ato_deploy(m.base, content.size()) < 0)
        wrong("cannot be deployed: %s", ato_errormsg());
    if (memcmp(m.base, content.data(), content.size()) != 0)
        wrong("deployed, and loads see something else");
    Holding last = holding(image_at(w.folder_fd, p.name() + ".manifest").bytes(0, MANIFEST));
    m.unmap(ATO_UNMAP_SPATIAL, "unmapped spatially");
    take_guard_off(last, content);
    check_original(p, content, "plain");
    for (const auto &[name, image] : w.names())
        if (name == p.name() || name == p.name() + ".manifest")
            wrong("plain, and %s is there", name.c_str());
    if (!attribute_of(p.path).empty())
        wrong("plain, and the attribute is there");
}

} // namespace

Uses uses_from(Input &in)
{
    static const int domains[] = {ATO_DOMAIN_AUTO, ATO_DOMAIN_EADR, ATO_DOMAIN_PMEM,
                                  ATO_DOMAIN_PROCESS};
    static const unsigned flags[] = {0, ATO_PREFER_FILE, ATO_PREFER_REFLECTION, 0};
    unsigned bits = in.u8();
    Uses u;
    u.domain = domains[bits & 3];
    u.flags = flags[bits >> 2 & 3];
    u.format = bits & 128 ? ATO_FORMAT_SPARSE : ATO_FORMAT_DENSE; // of a new reflection
    u.grow = bits & 16;
    u.journal = (bits & 0xe0) == 0xe0;
    u.text = bits & 64;
    u.tools = !(bits & 32);
    return u;
}

bool live(World &w, const Uses &uses, const Replay &replay, bool must_be_refused)
{
    ato_set_log(ignore, nullptr);
    Verdict v = judge(w, uses, replay, must_be_refused);
    look(w, uses);
    check_original(w.file, w.file.content, "looked at");
    check_other(w, {}, "looked at");
    Mapping m(w.file.path, w.file.content.size(), uses, ATO_READ_GATHER);
    if (m.base) {
        use(w, uses, v, m, replay);
    } else {
        check_sentence(w, m);
        check_refused(w, v, replay);
    }
    check_other(w, replay, m.error ? "refused" : "used");
    return v.adopted;
}

} // namespace fuzz
