/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cost of two processes on one file for each other.
 *
 *   write/SIZE   random writes by two processes on two halves of a file, against one on one half
 *   read/SIZE    reads of the same bytes of the same page by two processes, against one
 *   beside/360K  reads of 360 KB, each of one moment, while two other processes write 64 bytes there without a pause: by a
 *                descriptor that may only read, against one that may write; `slowest_ms`: of all these reads
 *   modify/SIZE/2  the transactions of modify.h, while another process does the same with 64 other records of the file
 *
 * Sides of write and read: the base of the comparison (the floor of a write, memcpy() of a read) and libato, each by one
 * process and by two; `scaling` is the work of two in the time of one: the sum, over both, of the time alone
 * divided by the time beside the other. (A process by itself may be slower than the other, because of the
 * place of its memory.) `to_floor` and `to_memcpy`: libato's scaling relative to the base's. The second
 * process has the file mapped all the time. In domain pmem.
 */
#include "libato.h"
#include "measure.h"
#include "modify.h"
#include "plain.h"
#include "world.h"

#include "reflection/format/layout.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
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

using bench::Backend;
using bench::Case;
using bench::fail;
using bench::settings;
using bench::Values;
using bench::Write;

constexpr uint64_t LONGER = 10; /* rounds, so that waking the second process does not count */

/* One thing to do: writes, or reads of the same places. */
struct Job {
    size_t side;
    bool reads;
    std::vector<Write> places;
};

struct Buffer {
    alignas(4096) char bytes[bench::MAX_WRITE];
};

void do_job(const bench::World &world, const Job &job, char *buffer)
{
    Backend *side = world.side(job.side);
    if (!job.reads) {
        side->write(world.source(), job.places.data(), job.places.size());
        return;
    }
    for (const Write &place : job.places)
        side->read(buffer, place.offset, place.bytes);
}

/* The second process. It sleeps where it is not needed, so that it costs the first one nothing. */
class Partner
{
  public:
    Partner(const bench::World &world, bench::Libato *libato, size_t most)
        : world_(world), bytes_(sizeof(Board) + most * sizeof(Write))
    {
        void *shared =
            mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (shared == MAP_FAILED || pipe(wake_) != 0)
            fail("cannot begin a second process: %s", std::strerror(errno));
        board_ = new (shared) Board();
        pid_ = fork();
        if (pid_ < 0)
            fail("fork: %s", std::strerror(errno));
        if (pid_ == 0)
            live(libato);
        close(wake_[0]);
    }

    ~Partner()
    {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
        close(wake_[1]);
        munmap(board_, bytes_);
    }

    Partner(const Partner &) = delete;
    Partner &operator=(const Partner &) = delete;

    /* Does it, and `own` is done at the same time. ns of both. */
    struct Times {
        double own, theirs;
    };
    Times run(
        const Job &job, const std::function<void()> &own = [] {})
    {
        begin(job);
        board_->go = true;
        double ns = bench::ns_of(own);
        wait(board_->done);
        return {ns, board_->ns};
    }

  private:
    struct Board {
        std::atomic<bool> ready{false}, go{false}, done{false};
        double ns = 0;
        size_t side = 0, count = 0;
        bool reads = false;
        Write places[]; /* so many */
    };

    void wait(const std::atomic<bool> &flag)
    {
        for (uint64_t i = 1; !flag; i++)
            if (i % (1 << 20) == 0 && waitpid(pid_, nullptr, WNOHANG) != 0)
                fail("the second process died");
    }

    void begin(const Job &job)
    {
        board_->ready = board_->go = board_->done = false;
        board_->side = job.side;
        board_->reads = job.reads;
        board_->count = job.places.size();
        std::copy(job.places.begin(), job.places.end(), board_->places);
        if (::write(wake_[1], "", 1) != 1)
            fail("cannot wake the second process: %s", std::strerror(errno));
        wait(board_->ready);
    }

    [[noreturn]] void live(bench::Libato *libato)
    {
        char c;
        Buffer buffer;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(wake_[1]);
        libato->map_in_child();
        while (::read(wake_[0], &c, 1) == 1) {
            Job job = {
                board_->side, board_->reads, {board_->places, board_->places + board_->count}};
            board_->ready = true;
            while (!board_->go) {
            }
            board_->ns = bench::ns_of([&] { do_job(world_, job, buffer.bytes); });
            board_->done = true;
        }
        _exit(0);
    }

    const bench::World &world_;
    size_t bytes_;
    Board *board_;
    int wake_[2];
    pid_t pid_;
};

enum { OTHER, LIBATO }; /* sides of a world */

struct Files {
    bool reads;
    std::unique_ptr<bench::World> world;
    std::unique_ptr<Partner> partner;

    Files(bool r, std::unique_ptr<bench::World> w, std::unique_ptr<Partner> p)
        : reads(r), world(std::move(w)), partner(std::move(p))
    {
    }
};

std::unique_ptr<Files> files; /* of one kind at a time */

void end_files()
{
    if (files) {
        files->partner.reset();
        files->world->check_content();
    }
    files.reset();
}

/* Both homes of each page, by the process that is to write them. */
std::vector<Write> touches_of(uint64_t first, uint64_t span)
{
    std::vector<Write> all;
    for (uint64_t at = first; at < first + span; at += PAGE_BYTES)
        for (int i = 0; i < 2; i++)
            all.push_back({at, 64, 0});
    return all;
}

Files &files_for(bool reads)
{
    if (files && files->reads == reads)
        return *files;
    end_files();
    uint64_t bytes = settings.file_bytes();
    std::vector<std::unique_ptr<Backend>> sides;
    auto libato = bench::make_libato({}, bytes);
    bench::Libato *known = libato.get();
    sides.push_back(
        reads ? bench::make_plain(bytes)
              : bench::make_engine("floor", bench::Domain::pmem, engine::Unit::write, bytes));
    sides.push_back(std::move(libato));
    auto world = std::make_unique<bench::World>(std::move(sides), bytes);
    world->fill_at_random();
    const uint64_t half = bytes / 2;
    std::vector<Write> touches = touches_of(half, half);
    auto partner = std::make_unique<Partner>(
        *world, known, std::max<size_t>(touches.size(), settings.batch * LONGER));
    for (size_t side : {OTHER, LIBATO})
        partner->run({side, false, touches});
    files = std::make_unique<Files>(reads, std::move(world), std::move(partner));
    return *files;
}

/* Sides: the other and libato by one process, then by two. */
std::vector<Values> repeat(bool reads, uint32_t bytes)
{
    Files &f = files_for(reads);
    const char *to_other = reads ? "to_memcpy" : "to_floor";
    const uint64_t half = settings.file_bytes() / 2, each = settings.batch * LONGER;
    Buffer buffer;
    bench::Medians medians;
    std::vector<size_t> order = {0, 1, 2, 3};
    for (uint64_t round = 0; round <= std::max<uint64_t>(1, settings.rounds() / LONGER); round++) {
        bench::stop_if_asked();
        Job own = {0, reads, f.world->random_writes(bytes, each, 0, reads ? PAGE_BYTES : half)};
        Job theirs = {0, reads,
                      reads ? own.places : f.world->random_writes(bytes, each, half, half)};
        Partner::Times alone[2], both[2];
        std::shuffle(order.begin(), order.end(), f.world->random());
        for (size_t i : order) {
            own.side = theirs.side = i % 2;
            auto mine = [&] { do_job(*f.world, own, buffer.bytes); };
            if (i < 2)
                alone[i] = {bench::ns_of(mine), f.partner->run(theirs).theirs};
            else
                both[i % 2] = f.partner->run(theirs, mine);
        }
        if (round == 0)
            continue;
        double scaling[2];
        for (size_t side : {OTHER, LIBATO}) {
            const Partner::Times &one = alone[side], &two = both[side];
            const double n = 2 * static_cast<double>(each);
            scaling[side] = one.own / two.own + one.theirs / two.theirs;
            medians.add(side, "ns", (one.own + one.theirs) / n);
            medians.add(side + 2, "ns", (two.own + two.theirs) / n);
            medians.add(side + 2, "scaling", scaling[side]);
        }
        medians.add(3, to_other, scaling[LIBATO] / scaling[OTHER]);
    }
    return medians.medians(4);
}

Case make_case(bool reads, const char *size, uint32_t bytes)
{
    const std::string other = reads ? "memcpy" : "floor";
    Case c;
    c.name = std::string(reads ? "read/" : "write/") + size;
    c.sides = {other + "_1", "libato_1", other + "_2", "libato_2"};
    if (reads)
        c.goals = {{"libato_2", "to_memcpy", 0.95, true}};
    else
        c.goals = {{"libato_2", "scaling", 1.8, true}};
    c.repeat = [reads, bytes] { return repeat(reads, bytes); };
    c.promise = [reads](const std::string &side) {
        if (side[0] == 'l')
            return std::string(reads ? "pmem: one moment's bytes" : "pmem: atomic and durable");
        return std::string(reads ? "promises nothing: may be torn"
                                 : "pmem: durable; a crash tears it");
    };
    return c;
}

/* ---- long reads beside two writers ---- */

constexpr size_t LONG_READ = 360000;
constexpr uint64_t READS = 500; /* of a round */

struct Writers {
    std::atomic<unsigned> ready{0};
    std::atomic<size_t> file{0}; /* which they write to */
};

[[noreturn]] void write_for_ever(bench::AtoFile *const files[2], Writers *all, unsigned seed)
{
    std::mt19937 random(seed);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 0; i < 2; i++)
        files[i]->map(bench::Domain::pmem, ATO_READ_GATHER);
    all->ready++;
    for (;;) {
        const char bytes[64] = {static_cast<char>(random())};
        if (!ato_memcpy(files[all->file]->at(random() % (LONG_READ / 64) * 64), bytes, 64))
            fail("a write beside a read failed: %s", ato_errormsg());
    }
}

/* Two files, so that this process can have both kinds of descriptor: a mapping that may write serves those that may not. */
std::vector<Values> repeat_beside()
{
    end_files();
    const uint64_t rounds = std::max<uint64_t>(1, settings.rounds() / LONGER);
    bench::AtoFile may_write(LONG_READ, true), may_read(LONG_READ, true);
    bench::AtoFile *const both[] = {&may_write, &may_read};
    std::vector<char> buffer(LONG_READ);
    double slowest[2] = {}, all[2] = {};
    pid_t pids[2];
    void *shared =
        mmap(nullptr, sizeof(Writers), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        fail("no memory to share: %s", std::strerror(errno));
    auto *writers = new (shared) Writers();
    for (unsigned i = 0; i < 2; i++)
        if ((pids[i] = fork()) == 0)
            write_for_ever(both, writers, i);
        else if (pids[i] < 0)
            fail("fork: %s", std::strerror(errno));
    while (writers->ready < 2)
        usleep(100);
    may_write.map(bench::Domain::pmem, ATO_READ_GATHER);
    may_read.map_to_read();
    auto values = bench::interleave(
        2, rounds, [] {},
        [&](size_t side) {
            double sum = 0;
            writers->file = side;
            for (uint64_t i = 0; i < READS; i++) {
                const double ns = bench::ns_of([&] {
                    if (!ato_memcpy(buffer.data(), both[side]->at(0), LONG_READ))
                        fail("a read beside writers failed: %s", ato_errormsg());
                });
                slowest[side] = std::max(slowest[side], ns);
                sum += ns;
            }
            all[side] += sum;
            return sum / READS;
        });
    for (size_t side = 0; side < 2; side++) {
        values[side]["per_s"] = 1e9 * static_cast<double>((rounds + 1) * READS) / all[side];
        values[side]["slowest_ms"] = slowest[side] / 1e6;
    }
    for (pid_t pid : pids) {
        if (waitpid(pid, nullptr, WNOHANG) != 0)
            fail("a writer died");
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
    }
    munmap(shared, sizeof(Writers));
    may_read.unmap(ATO_UNMAP_FAST);
    may_write.unmap(ATO_UNMAP_FAST);
    return values;
}

Case case_beside()
{
    Case c;
    c.name = "beside/360K";
    c.sides = {"may_write", "may_only_read"};
    c.goals = {{"may_only_read", "ratio", 3}};
    c.repeat = repeat_beside;
    c.promise = [](const std::string &) { return std::string("pmem: one moment's bytes"); };
    return c;
}

/* ---- transactions beside those of another process ---- */

/* Another process, which does the same all the time. */
class Neighbour
{
  public:
    Neighbour(bench::AtoFile *file, bench::Records *records)
    {
        void *shared =
            mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (shared == MAP_FAILED)
            fail("no memory to share: %s", std::strerror(errno));
        board_ = new (shared) Board();
        pid_ = fork();
        if (pid_ < 0)
            fail("fork: %s", std::strerror(errno));
        if (pid_ == 0)
            live(file, records);
    }

    ~Neighbour()
    {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
        munmap(board_, sizeof(Board));
    }

    Neighbour(const Neighbour &) = delete;
    Neighbour &operator=(const Neighbour &) = delete;

    /* Returns when it has done so once. */
    void begin(size_t side)
    {
        board_->side = side;
        for (const uint64_t before = board_->times; board_->times < before + 2;)
            if (waitpid(pid_, nullptr, WNOHANG) != 0)
                fail("the other process died");
    }

  private:
    struct Board {
        std::atomic<size_t> side{0};
        std::atomic<uint64_t> times{0};
    };

    [[noreturn]] void live(bench::AtoFile *file, bench::Records *records)
    {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        file->map(bench::Domain::pmem, ATO_READ_GATHER);
        for (;; board_->times++)
            records->go_through(board_->side);
    }

    Board *board_;
    pid_t pid_;
};

std::vector<Values> repeat_modify(uint32_t bytes)
{
    end_files();
    const uint64_t size = settings.file_bytes();
    bench::AtoFile file(size, false);
    bench::World world({}, size);
    file.map(bench::Domain::pmem, ATO_READ_GATHER);
    file.fill_at_random(&world);
    bench::Records own(&file, &world, 0, bytes),
        others(&file, &world, size / PAGE_BYTES / 2, bytes);
    std::vector<Values> values;
    {
        Neighbour neighbour(&file, &others);
        values = own.measure([&](size_t side) { neighbour.begin(side); });
    }
    file.unmap(ATO_UNMAP_FAST);
    return values;
}

Case case_modify(const char *size, uint32_t bytes)
{
    return bench::modify_case(std::string("modify/") + size + "/2",
                              [bytes] { return repeat_modify(bytes); });
}

std::vector<Case> cases()
{
    if (std::thread::hardware_concurrency() < 2)
        return {}; /* scaling on one CPU says nothing */
    return {make_case(false, "64", 64),
            make_case(false, "1K", 1024),
            make_case(false, "4K", 4096),
            make_case(true, "64", 64),
            make_case(true, "1K", 1024),
            make_case(true, "4K", 4096),
            case_beside(),
            case_modify("64", 64),
            case_modify("1K", 1024),
            case_modify("5000", 5000)};
}

} // namespace

int main(int argc, char **argv)
{
    return bench::run(
        argc, argv,
        {"Two processes on one file. Guarantees differ: the floor and memcpy are not\n"
         "atomic.",
         {512, 200000, 1000},
         [] { return settings.file_bytes() * 16 / 5 + (64ull << 20); },
         cases,
         end_files});
}
