/* SPDX-License-Identifier: BSD-3-Clause */
#include "rig.h"

#include "support/child.h"
#include "support/temp.h"

#include <cstdio>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace engines_test
{

Options Case::options(const std::string &folder, uint64_t bytes) const
{
    Options o;
    o.folder = folder;
    o.bytes = bytes;
    o.domain = domain;
    o.unit = unit;
    return o;
}

Promise Case::promise() const
{
    return kind->promise(options("", 1 << 20));
}

std::string Case::name() const
{
    std::string name = kind->name;
    for (char &c : name)
        if (!isalnum(c))
            c = '_';
    return name + (unit == Unit::write ? "_write_" : "_sync_") + engine::name_of(domain);
}

std::ostream &operator<<(std::ostream &out, const Case &one)
{
    return out << one.name();
}

std::vector<Case> cases(const std::vector<Domain> &domains)
{
    std::vector<Case> all;
    for (const Kind &kind : engine::ENGINES)
        for (Domain domain : domains)
            for (Unit unit : {Unit::write, Unit::sync}) {
                const Case one{&kind, unit, domain};
                if (kind.takes_part(one.options("", 1 << 20)))
                    all.push_back(one);
            }
    return all;
}

bool goes_through_media(const Kind &kind)
{
    for (const char *other : {"ato", "pmemobj", "fallback-pmemobj"})
        if (std::string(kind.name).rfind(other, 0) == 0)
            return false;
    return true;
}

bool has_steps(const Kind &kind)
{
    return std::string(kind.name) != "pmemobj";
}

std::string place(Domain domain)
{
    return domain == Domain::disk ? support::disk_folder() : "/dev/shm";
}

const Bytes SOURCE = [] {
    Bytes bytes(2 * MAX_WRITE);
    rig::Random(rig::seed()).fill(bytes.data(), bytes.size());
    return bytes;
}();

Write random_write(rig::Random &random, uint64_t begin, uint64_t end, uint32_t largest)
{
    constexpr uint64_t PAGE = 4096, HOT = 3 * PAGE;
    Write w;
    const uint64_t most = std::min<uint64_t>(largest, end - begin);
    w.bytes = static_cast<uint32_t>(random.chance(70) ? random.log_uniform(most)
                                                      : random.within(1, most));
    if (random.chance(25) && w.bytes >= 64)
        w.bytes = w.bytes / 64 * 64;
    w.source = static_cast<uint32_t>(random.below(SOURCE.size() - w.bytes + 1));
    const uint64_t last = end - w.bytes;
    w.offset =
        begin + random.below((random.chance(30) ? std::min(HOT, last - begin) : last - begin) + 1);
    if (random.chance(40)) { /* begins or ends at a border, or around one */
        w.offset = w.offset / PAGE * PAGE + (random.chance(50) ? PAGE - w.bytes % PAGE : 0);
        if (random.chance(50))
            w.offset += random.below(129) - 64;
        else if (random.chance(50))
            w.offset += 8 * random.below(17) - 64;
        w.offset = w.offset > UINT64_MAX / 2 ? begin : std::min(std::max(w.offset, begin), last);
    }
    return w;
}

void apply(const Write &write, Bytes *file)
{
    std::memcpy(file->data() + write.offset, SOURCE.data() + write.source, write.bytes);
}

std::string difference(const Bytes &is, const Bytes &should)
{
    for (size_t i = 0; i < should.size(); i++)
        if (is[i] != should[i]) {
            size_t end = i, wrong = 0;
            for (size_t j = i; j < should.size(); j++)
                if (is[j] != should[j]) {
                    wrong++;
                    end = j + 1;
                }
            char text[160];
            std::snprintf(text, sizeof(text),
                          "byte %zu of page %zu is 0x%02x, not 0x%02x (%zu wrong bytes up to %zu)",
                          i, i / 4096, static_cast<unsigned char>(is[i]),
                          static_cast<unsigned char>(should[i]), wrong, end);
            return text;
        }
    return "";
}

Shared::Shared(size_t n)
    : at(static_cast<char *>(
          mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))),
      bytes(n)
{
    if (at == MAP_FAILED)
        std::abort();
}

Shared::~Shared()
{
    munmap(at, bytes);
}

std::string in_process(const std::function<std::string()> &what)
{
    Shared text(4096);
    const int status = support::in_child([&] {
        alarm(60);
        const std::string wrong = what();
        std::snprintf(text.at, text.bytes, "%s", wrong.c_str());
        return 0;
    });
    if (*text.at)
        return text.at;
    if (status == 256 + SIGALRM)
        return "the engine stands still";
    return status ? "the engine ended with status " + std::to_string(status) +
                        " (256 and more: by a signal); its error is on stderr"
                  : "";
}

} // namespace engines_test
