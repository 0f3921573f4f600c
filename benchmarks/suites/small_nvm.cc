/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Can two programs share a small persistent memory, with their files on a disk? What the vNVML paper is for (its figures 7 and 8 run
 * four MongoDBs over 128 MB to 8 GB of log and cache).
 *
 *   log on the disk            the file and the log of a program lie on the disk
 *   N MiB of log in memory     the log lies in memory that stands for persistent memory, and has so many bytes
 *
 * A program is a process that makes random writes of one size, each a unit, to a file of its own. The values are its writes a second
 * when it runs alone; the mean of two when both run at once, each with a log of its own; and that relative to alone. The floor and
 * pwrite have no log: they show the disk. Where /dev/shm is no persistent memory the log does not survive a power cut. The paper's
 * programs share one log and one cache, divided anew when a program comes or goes; here each has its share. With two processors
 * the background threads of an engine compete with the programs.
 */
#include "alone.h"
#include "pace.h"
#include "suites.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <linux/magic.h>
#include <memory>
#include <optional>
#include <random>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace suite
{

namespace
{

constexpr size_t PROGRAMS = 2;
const char *const LOGGED[] = {"ato", "redo-cache"};   /* those that can have their log elsewhere */
const char *const REFERENCES[] = {"floor", "pwrite"}; /* of what the disk does */

bool is_tmpfs(const std::string &folder)
{
    struct statfs fs;
    return statfs(folder.c_str(), &fs) == 0 && fs.f_type == TMPFS_MAGIC;
}

/* A process with an engine, which writes when it is told to. */
class Program
{
  public:
    Program(const Side &side, const std::string &disk, const std::string &memory, uint32_t bytes)
        : name_(side.name), folder_(disk), log_folder_(memory)
    {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
            bench::fail("socketpair: %s", std::strerror(errno));
        engine::Options options = side.options;
        options.folder = folder_.path();
        if (options.log_bytes)
            options.log_folder = log_folder_.path();
        child_ = start_child([&] {
            close(ends[0]);
            serve(ends[1], *side.kind, options, bytes);
        });
        close(ends[1]);
        fd_ = ends[0];
        rate(); /* it is ready */
    }

    ~Program()
    {
        start(0);
        close(fd_);
        wait_for_child(child_, name_.c_str());
    }

    Program(const Program &) = delete;
    Program &operator=(const Program &) = delete;

    void start(double seconds) const /* 0: compare the content, and end */
    {
        if (::write(fd_, &seconds, sizeof(seconds)) != sizeof(seconds))
            bench::fail("%s: a program has ended", name_.c_str());
    }

    double rate() const /* writes a second, when it is done */
    {
        double rate;
        if (::read(fd_, &rate, sizeof(rate)) != sizeof(rate))
            bench::fail("%s: a program has ended", name_.c_str());
        return rate;
    }

  private:
    static void serve(int fd, const engine::Kind &kind, const engine::Options &options,
                      uint32_t bytes)
    {
        std::unique_ptr<engine::Engine> engine = kind.map(options);
        Content content(options.bytes);
        for (uint64_t at = 0; at < options.bytes; at += MAX_BYTES) /* gives it its blocks */
            content.write({at, MAX_BYTES, 0, 0}, engine.get());
        engine->settle();
        std::mt19937_64 generator(5);
        double seconds, rate = 0;
        while (::write(fd, &rate, sizeof(rate)) == sizeof(rate) &&
               ::read(fd, &seconds, sizeof(seconds)) == sizeof(seconds) && seconds > 0) {
            size_t count = 0;
            double ns = 0;
            while (ns < seconds * 1e9) {
                std::array<engine::Operation, 16> batch;
                for (engine::Operation &o : batch) {
                    o = {generator() % (options.bytes / bytes) * bytes, bytes, 0, 0};
                    o.source = generator() % 512 * 64;
                    content.write(o, nullptr);
                }
                ns += ns_of([&] { engine->run(batch.data(), batch.size(), source(), nullptr); });
                count += batch.size();
            }
            rate = static_cast<double>(count) / ns * 1e9;
        }
        content.ns_of_reading(*engine, kind.name);
    }

    std::string name_;
    Folder folder_, log_folder_;
    pid_t child_;
    int fd_;
};

struct Shape {
    uint64_t log_bytes; /* 0: on the disk */
    uint32_t bytes;     /* of a write */
};

void run_cell(const Shape &shape, const std::string &disk, const std::string &memory,
              double seconds)
{
    engine::Options options;
    options.bytes = settings.file_mib << 20;
    options.domain = engine::Domain::disk;
    options.log_bytes = shape.log_bytes;
    const Cell cell = {shape.log_bytes
                           ? std::to_string(shape.log_bytes >> 20) + " MiB of log in memory"
                           : "log on the disk",
                       shape.bytes};
    say("small_nvm: %s, writes of %u bytes", cell.workload.c_str(), shape.bytes);
    std::vector<Side> sides;
    for (const Side &side : sides_of(options))
        if (std::find(std::begin(LOGGED), std::end(LOGGED), side.name) != std::end(LOGGED) ||
            std::find(std::begin(REFERENCES), std::end(REFERENCES), side.name) !=
                std::end(REFERENCES))
            sides.push_back(side);

    std::vector<std::array<std::optional<Program>, PROGRAMS>> programs(sides.size());
    const double start = ns_of([&] {
        for (size_t side = 0; side < sides.size(); side++)
            for (std::optional<Program> &program : programs[side])
                program.emplace(sides[side], disk, memory, shape.bytes);
    });
    const unsigned rounds = settings.full ? 9 : 3;
    const double each = std::max(0.02, (seconds - start / 1e9) * 0.9 /
                                           static_cast<double>(2 * rounds * sides.size()));
    const auto take = [&](const Side &side, unsigned) -> std::vector<double> {
        const auto &both = programs[static_cast<size_t>(&side - sides.data())];
        both[0]->start(each);
        const double alone = both[0]->rate();
        double together = 0;
        for (const std::optional<Program> &program : both)
            program->start(each);
        for (const std::optional<Program> &program : both)
            together += program->rate() / PROGRAMS;
        return {alone, together, together / alone};
    };
    compare("small_nvm", cell, sides, {"writes/s alone", "writes/s of two", "two to alone"},
            seconds, take);
}

void run()
{
    const bool on_disk = settings.domain == engine::Domain::disk;
    const Folder disk(on_disk ? bench::folder() : "/var/tmp"),
        memory(on_disk ? "/dev/shm" : bench::folder());
    if (is_tmpfs(disk.path())) {
        say("small_nvm: %s is no disk: left out", disk.path().c_str());
        return;
    }
    std::vector<Shape> shapes = {{0, 1024}, {4 << 20, 1024}, {32 << 20, 1024}};
    if (settings.full)
        shapes = {{0, 1024},         {4 << 20, 1024}, {16 << 20, 1024},  {64 << 20, 1024},
                  {256 << 20, 1024}, {0, 65536},      {16 << 20, 65536}, {256 << 20, 65536}};
    size_t cells = shapes.size();
    for (const Shape &shape : shapes)
        run_cell(shape, disk.path(), memory.path(), time_of_cell(cells--));
}

} // namespace

const Suite SMALL_NVM = {"small_nvm",
                         "two programs with files on a disk and logs in a small memory, which is "
                         "taken for persistent (vNVML)",
                         run};

} // namespace suite
