/* SPDX-License-Identifier: BSD-3-Clause */
/* Engines one at a time. See alone.h. */
#include "alone.h"

#include "../bench.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <random>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace suite
{

std::vector<Side> sides_of(const engine::Options &options)
{
    std::vector<Side> sides;
    for (const engine::Kind &kind : engine::ENGINES) {
        const bool is_asked =
            sides.empty() || settings.only.empty() ||
            std::find(settings.only.begin(), settings.only.end(), kind.name) != settings.only.end();
        if (is_asked && kind.takes_part(options))
            sides.push_back({&kind, options, kind.name});
    }
    if (sides.empty())
        bench::fail("no engine takes part");
    return sides;
}

Folder::Folder(const std::string &parent) : path_(parent + "/alone-XXXXXX")
{
    if (!mkdtemp(path_.data()))
        bench::fail("cannot make a folder in %s: %s", parent.c_str(), std::strerror(errno));
}

Folder::~Folder()
{
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

uint64_t Folder::bytes() const
{
    uint64_t blocks = 0;
    for (const auto &entry : std::filesystem::recursive_directory_iterator(path_)) {
        struct stat st;
        if (stat(entry.path().c_str(), &st) == 0 && S_ISREG(st.st_mode))
            blocks += static_cast<uint64_t>(st.st_blocks);
    }
    return blocks * 512;
}

void Content::write(const engine::Operation &operation, engine::Engine *engine)
{
    const char *from = source() + operation.source;
    std::memcpy(&bytes_[operation.offset], from, operation.bytes);
    if (engine)
        engine->write(operation.offset, from, operation.bytes);
}

double Content::ns_of_reading(engine::Engine &engine, const char *name) const
{
    constexpr size_t BLOCK = 1 << 20, PAGE = 4096;
    static std::vector<char> found(BLOCK);
    double ns = 0;
    for (uint64_t at = 0; at < bytes_.size(); at += BLOCK) {
        bench::stop_if_asked();
        const size_t n = std::min<uint64_t>(BLOCK, bytes_.size() - at);
        ns += ns_of([&] {
            for (size_t page = 0; page < n; page += PAGE)
                engine.read(&found[page], at + page, PAGE);
        });
        if (std::memcmp(found.data(), &bytes_[at], n) != 0)
            bench::fail(
                "%s holds other bytes than were written within %zu bytes from offset %" PRIu64,
                name, n, at);
    }
    return ns;
}

const char *source()
{
    static const std::vector<uint64_t> words = [] {
        std::vector<uint64_t> made(SOURCE_BYTES / 8);
        std::mt19937_64 generator(7);
        std::generate(made.begin(), made.end(), generator);
        return made;
    }();
    return reinterpret_cast<const char *>(words.data());
}

std::vector<engine::Operation> scattered(uint64_t file_bytes, size_t count, uint32_t block,
                                         uint32_t bytes, unsigned seed)
{
    std::mt19937_64 generator(seed);
    std::vector<uint64_t> blocks(file_bytes / block);
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), generator);
    std::vector<engine::Operation> writes(std::min(count, blocks.size()));
    for (size_t i = 0; i < writes.size(); i++) {
        writes[i] = {blocks[i] * block, bytes, 0, 0};
        writes[i].offset += generator() % (block / bytes) * bytes;
        writes[i].source = generator() % 1024 * 64;
    }
    return writes;
}

void compare(const char *suite, const Cell &cell, const std::vector<Side> &sides,
             const Metrics &metrics, double seconds, const Take &take)
{
    const unsigned most = settings.full ? 11 : 5, least = 2;
    static std::mt19937 generator(11);
    using Rounds = std::vector<std::vector<double>>; /* [metric][round] */
    std::vector<Rounds> values(sides.size(), Rounds(metrics.size()));
    std::vector<size_t> order(sides.size());
    std::iota(order.begin(), order.end(), 0);
    double ns = 0;
    for (unsigned round = 0;
         round < least || (round < most && ns / round * (round + 1) < seconds * 1e9); round++) {
        std::shuffle(order.begin(), order.end(), generator);
        ns += ns_of([&] {
            for (const size_t side : order) {
                bench::stop_if_asked();
                const std::vector<double> taken = take(sides[side], round);
                for (size_t metric = 0; metric < metrics.size(); metric++)
                    values[side][metric].push_back(taken[metric]);
            }
        });
    }
    for (size_t metric = 0; metric < metrics.size(); metric++)
        for (size_t side = 0; side < sides.size(); side++)
            put_rounds(suite, sides[side].name, sides[side].guarantee(), cell, metrics[metric],
                       values[side][metric], values[0][metric]);
}

pid_t start_child(const std::function<void()> &what)
{
    source();
    std::fflush(nullptr); /* the child has nothing to print */
    const pid_t child = fork();
    if (child < 0)
        bench::fail("fork: %s", std::strerror(errno));
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        what();
        _exit(0);
    }
    return child;
}

void wait_for_child(pid_t child, const char *name)
{
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        bench::fail("%s: the process that writes has failed", name);
}

} // namespace suite
