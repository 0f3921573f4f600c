/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What does a commit cost on a disk?
 *
 *   write/1K       1 KiB at random places of a file, each write a commit: libato, beside the floor
 *   threads/1K     the same by 8 threads, on pages of their own, beside one thread
 *   processes/1K   the same by 8 processes, beside one
 *   relaxed/1K     1 KiB at random places for half a second: libato with ATO_RELAXED, beside pwrite() with an fdatasync() every 100 ms
 *   tx/32x256      256 bytes in each of 32 pages, as one transaction: libato, libpmemobj, beside the floor
 *   put/100        a value of 100 bytes under one of 10,000 keys, a transaction each: a record of 108 bytes in its place, beside LMDB
 *                  without flags, if that is installed
 *   recover/16M    a map after a kill that finds 16 MiB of records of 1 KiB in the log, when neither file is in memory
 *
 * The floor appends as many bytes to a file of 16 MiB, which was filled with zeros, and calls fdatasync(): it is durable, and neither
 * atomic nor in its place. `ns` is of a commit, so with 8 threads an eighth of the time between two commits of one of them. `flushes` and
 * `kib`: of the block device below the folder, a commit, whoever asked for them. Checkpoints are in the times where they fall.
 */
#include "disk_sides.h"

#include <algorithm>
#include <ato.h>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <pthread.h>
#include <random>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace
{

using namespace disk_sides;
using bench::Case;
using bench::Values;

std::unique_ptr<File> file, relaxed_file, plain_file;
std::unique_ptr<Floor> floor_side;
std::unique_ptr<bench::Backend> pool; /* of libpmemobj */
std::minstd_rand dice(1);

/* ---- relaxed ---- */

/* Writes at random places for so long, and returns how many. */
double write_for(int ms, const std::function<void(uint64_t)> &write)
{
    enum { AT_ONCE = 16 };
    double writes = 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
    for (; std::chrono::steady_clock::now() < end; writes += AT_ONCE)
        for (int i = 0; i < AT_ONCE; i++)
            write(dice() % (settings.file_bytes() / WRITE) * WRITE);
    return writes;
}

/* A repetition is half a second of writes by each side; at its end all of them are on the disk. */
Case relaxed()
{
    enum { SYNC_MS = 100, SYNCS = 5 };
    Case c;
    c.name = "relaxed/1K";
    c.sides = {"pwrite", "libato"};
    c.promise = [](const std::string &side) {
        return std::string(side == "libato" ? "atomic, in order; durable later"
                                            : "not atomic, in no order; durable later");
    };
    c.repeat = [] {
        if (!relaxed_file) {
            relaxed_file = std::make_unique<File>("relaxed");
            plain_file = std::make_unique<File>("plain");
            relaxed_file->map();
        }
        const auto measure = [](const std::function<double()> &work) {
            double writes = 0;
            const Disk before = disk();
            const double ns = bench::ns_of([&] { writes = work(); });
            const Disk after = disk();
            return Values{{"ns", ns / writes},
                          {"kib", (after.kib - before.kib) / writes},
                          {"flushes", (after.flushes - before.flushes) / writes}};
        };
        Values floor = measure([&] {
            double writes = 0;
            for (int i = 0; i < SYNCS; i++) {
                writes += write_for(SYNC_MS, [&](uint64_t at) { plain_file->write_plain(at); });
                plain_file->sync_plain();
            }
            return writes;
        });
        Values libato = measure([&] {
            const double writes =
                write_for(SYNCS * SYNC_MS, [&](uint64_t at) { relaxed_file->write_relaxed(at); });
            relaxed_file->sync();
            return writes;
        });
        floor["ratio"] = 1;
        libato["ratio"] = libato["ns"] / floor["ns"];
        return std::vector<Values>{floor, libato};
    };
    return c;
}

/* ---- many ---- */

void write_by_threads(size_t n)
{
    std::vector<std::thread> all;
    for (size_t lane = 0; lane < MANY; lane++)
        all.emplace_back([n, lane, seed = dice()] {
            std::minstd_rand random(seed);
            file->write(n / MANY, lane, random);
        });
    for (std::thread &t : all)
        t.join();
}

/* Eight processes that have the file mapped, and sleep between rounds. */
class Herd
{
  public:
    Herd()
    {
        void *shared =
            mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (shared == MAP_FAILED)
            fail("mmap: %s", std::strerror(errno));
        board_ = new (shared) Board();
        pthread_barrierattr_t a;
        pthread_barrierattr_init(&a);
        pthread_barrierattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
        pthread_barrier_init(&board_->barrier, &a, MANY + 1);
        for (size_t lane = 0; lane < MANY; lane++)
            if ((pids_[lane] = fork()) == 0)
                live(lane);
        pthread_barrier_wait(&board_->barrier); /* all have mapped the file */
    }

    ~Herd()
    {
        write(0);
        for (pid_t pid : pids_)
            waitpid(pid, nullptr, 0);
        munmap(board_, sizeof(Board));
    }

    Herd(const Herd &) = delete;
    Herd &operator=(const Herd &) = delete;

    void write(size_t n)
    {
        board_->each = n / MANY;
        pthread_barrier_wait(&board_->barrier);
        pthread_barrier_wait(&board_->barrier);
    }

  private:
    struct Board {
        pthread_barrier_t barrier;
        size_t each = 0;
    };

    [[noreturn]] void live(size_t lane)
    {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        file->map();
        std::minstd_rand random(static_cast<unsigned>(lane) + 77);
        pthread_barrier_wait(&board_->barrier);
        for (bool goes_on = true; goes_on;) {
            pthread_barrier_wait(&board_->barrier);
            goes_on = board_->each > 0;
            file->write(board_->each, lane, random);
            pthread_barrier_wait(&board_->barrier);
        }
        file->unmap();
        _exit(0);
    }

    Board *board_;
    pid_t pids_[MANY];
};

/* ---- puts ---- */

/* Records of a key and its value, each in its place. */
void put_records(size_t n)
{
    struct Record {
        uint64_t key;
        char value[VALUE];
    } r;
    std::memcpy(r.value, source, VALUE);
    while (n--) {
        r.key = dice() % KEYS;
        if (!ato_memcpy(file->at(r.key * sizeof(r)), &r, sizeof(r)))
            fail("ato_memcpy: %s", ato_errormsg());
    }
}

/* ---- recovery ---- */

/* Leaves a file with a full log of the longest ring, as after a kill. */
void fill_log(File &f)
{
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        f.map();
        const auto write_all = [&f](size_t n) {
            std::vector<std::thread> all;
            for (size_t lane = 0; lane < MANY; lane++)
                all.emplace_back([&f, n, lane] {
                    std::minstd_rand random(static_cast<unsigned>(lane) + 77);
                    f.write(n / MANY, lane, random);
                });
            for (std::thread &t : all)
                t.join();
        };
        /* It is empty when it has become so long. */
        while (f.log_bytes() < RING)
            write_all(MANY * 20);
        write_all(RING / (WRITE + 2 * 64) - MANY * 40);
        _exit(0);
    }
    int status = 1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
        fail("cannot fill a log");
}

/* A repetition is one recovery. */
Case recovery()
{
    Case c;
    c.name = "recover/16M";
    c.sides = {"libato"};
    c.goals = {{"libato", "ns", 1e9}};
    c.promise = [](const std::string &) { return std::string("all that was committed"); };
    c.repeat = [] {
        File f("recovered");
        fill_log(f);
        f.drop_from_memory();
        const double ns = bench::ns_of([&f] { f.map(); });
        return std::vector<Values>{{{"ns", ns}, {"ratio", 1}}};
    };
    return c;
}

/* ---- the cases ---- */

struct Side {
    std::string name, promise;
    std::function<void(size_t)> commit; /* so many times */
};

/* `share`: of a batch, one commit in so many is made. */
Case make_case(const char *name, const std::vector<Side> &sides, std::vector<bench::Goal> goals,
               uint64_t share = 1)
{
    Case c;
    c.name = name;
    for (const Side &s : sides)
        c.sides.push_back(s.name);
    c.goals = std::move(goals);
    c.promise = [sides](const std::string &side) {
        for (const Side &s : sides)
            if (s.name == side)
                return s.promise;
        return std::string();
    };
    c.repeat = [sides, share] {
        if (!file) {
            file = std::make_unique<File>("file");
            file->map();
            floor_side = std::make_unique<Floor>();
        }
        bench::Medians medians;
        const uint64_t commits = std::max<uint64_t>(settings.batch / share, 1);
        const auto ops = static_cast<double>(commits);
        std::vector<Values> values = bench::interleave(
            sides.size(), settings.rounds(), [] {},
            [&](size_t side) {
                const Disk before = disk();
                const double ns = bench::ns_of([&] { sides[side].commit(commits); });
                const Disk after = disk();
                medians.add(side, "kib", (after.kib - before.kib) / ops);
                medians.add(side, "flushes", (after.flushes - before.flushes) / ops);
                return ns / ops;
            });
        std::vector<Values> others = medians.medians(sides.size());
        for (size_t i = 0; i < sides.size(); i++)
            values[i].insert(others[i].begin(), others[i].end());
        return values;
    };
    return c;
}

const std::string DURABLE = "durable, not atomic", BOTH = "atomic and durable";

std::vector<Case> cases()
{
    const Side floor = {"floor", DURABLE, [](size_t n) {
                            while (n--)
                                floor_side->commit(WRITE);
                        }};
    const Side one = {"libato", BOTH, [](size_t n) { file->write(n, 0, dice); }};
    const Side threads = {"8threads", BOTH, write_by_threads};
    const Side processes = {"8processes", BOTH, [](size_t n) {
                                static auto *const herd = new Herd();
                                herd->write(n);
                                (void)herd;
                            }};
    const Side floor_tx = {"floor", DURABLE, [](size_t n) {
                               while (n--)
                                   floor_side->commit(PAGES * PART);
                           }};
    const Side tx = {"libato", BOTH, [](size_t n) { file->transact(n, dice); }};
    const Side pmemobj = {"libpmemobj", BOTH, [](size_t n) {
                              if (!pool)
                                  pool =
                                      bench::make_engine("pmemobj", bench::Domain::disk,
                                                         engine::Unit::sync, settings.file_bytes());
                              while (n--) {
                                  bench::Write parts[PAGES];
                                  for (bench::Write &w : parts)
                                      w = {dice() % (settings.file_bytes() / PAGE) * PAGE, PART, 0};
                                  pool->write_at_once(source, parts, PAGES);
                              }
                          }};
    const Side record = {"libato", BOTH, put_records};
    std::vector<Side> puts = {record};
    std::vector<bench::Goal> put_goals;
#ifdef WITH_LMDB
    puts.insert(puts.begin(), {"lmdb", BOTH, [](size_t n) {
                                   static auto *const lmdb = new Lmdb();
                                   lmdb->commit(n, dice);
                                   (void)lmdb;
                               }});
    put_goals = {{"libato", "ratio", 1}};
#endif
    return {make_case("write/1K", {floor, one}, {{"libato", "ratio", 1 / 0.95}}),
            make_case("threads/1K", {one, threads}, {{"8threads", "ratio", 1 / 4.0}}),
            make_case("processes/1K", {one, processes}, {{"8processes", "ratio", 1 / 3.0}}),
            relaxed(),
            make_case("tx/32x256", {floor_tx, tx, pmemobj}, {{"libato", "ratio", 1 / 0.9}}, 20),
            make_case("put/100", puts, put_goals),
            recovery()};
}

} // namespace

int main(int argc, char **argv)
{
    bench::Program program = {"Commits on a disk.",
                              {64, 2000, 400},
                              [] { return settings.file_bytes() * 5 + (64ull << 20); },
                              cases,
                              [] {
                                  file.reset();
                                  relaxed_file.reset();
                                  plain_file.reset();
                                  floor_side.reset();
                                  pool.reset();
                              }};
    program.defaults.dir = ".";
    program.forces_pmem = false; /* libpmemobj calls msync() on a disk */
    return bench::run(argc, argv, program);
}
