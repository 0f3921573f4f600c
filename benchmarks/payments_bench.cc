/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transactions that are in each other's way: payments between two of 64 records of 5,000 bytes, by several processes
 * or threads at a time.
 *
 * Sides: each payment takes its two records in ascending order; or in the order in which they come, so that
 * two payments may each have what the other one waits for. `ns`: of a payment, by all of them together.
 * Domain pmem. Afterwards no money may be missing.
 */
#include "libato.h"
#include "measure.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <random>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace
{

using bench::Case;
using bench::fail;
using bench::settings;
using bench::Values;

constexpr size_t RECORDS = 64, RECORD_BYTES = 5000;

struct Payment {
    char *from, *to;
};

/* The first bytes of a record are its money, and the others repeat their lowest byte. */
int change(ato_tx *tx, char *record, const char *seen, int64_t by)
{
    char bytes[RECORD_BYTES];
    int64_t money;
    std::memcpy(&money, seen, sizeof(money));
    money += by;
    std::memset(bytes, static_cast<int>(money & 0xff), sizeof(bytes));
    std::memcpy(bytes, &money, sizeof(money));
    return ato_tx_memcpy(tx, record, bytes, sizeof(bytes), 0) ? 0 : -1;
}

int pay(ato_tx *tx, void *arg)
{
    const auto *p = static_cast<const Payment *>(arg);
    char from[RECORD_BYTES], to[RECORD_BYTES];
    if (!ato_tx_memcpy(tx, from, p->from, sizeof(from), 0) ||
        !ato_tx_memcpy(tx, to, p->to, sizeof(to), 0))
        return -1;
    return change(tx, p->from, from, -1) < 0 ? -1 : change(tx, p->to, to, 1);
}

void work(char *base, bool ordered, unsigned seed)
{
    std::mt19937 random(seed);
    for (uint64_t i = 0; i < settings.batch; i++) {
        size_t a = random() % RECORDS, b = (a + 1 + random() % (RECORDS - 1)) % RECORDS;
        if (ordered && a > b)
            std::swap(a, b);
        Payment payment = {base + a * RECORD_BYTES, base + b * RECORD_BYTES};
        if (ato_tx_run(pay, &payment, nullptr) < 0)
            fail("a payment failed: %s", ato_errormsg());
    }
}

struct Board {
    std::atomic<unsigned> ready{0}, done{0};
    std::atomic<bool> go{false};
};

[[noreturn]] void live(bench::AtoFile &file, Board *board, unsigned threads, bool ordered,
                       unsigned seed)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    file.map(bench::Domain::pmem, ATO_READ_GATHER);
    std::vector<std::thread> all;
    for (unsigned i = 0; i < threads; i++)
        all.emplace_back([&, i] {
            board->ready++;
            while (!board->go)
                std::this_thread::yield();
            work(file.at(0), ordered, seed + i);
            board->done++;
        });
    for (std::thread &t : all)
        t.join();
    file.unmap(ATO_UNMAP_FAST);
    _exit(0);
}

/* ns of a payment, by so many processes of so many threads. */
double take(bench::AtoFile &file, unsigned processes, unsigned threads, bool ordered)
{
    static unsigned seed;
    void *shared =
        mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        fail("no memory to share: %s", std::strerror(errno));
    auto *board = new (shared) Board();
    const unsigned all = processes * threads;
    std::vector<pid_t> pids;
    for (unsigned i = 0; i < processes; i++, seed += threads) {
        pids.push_back(fork());
        if (pids.back() < 0)
            fail("fork: %s", std::strerror(errno));
        if (pids.back() == 0)
            live(file, board, threads, ordered, seed);
    }
    while (board->ready < all)
        usleep(100);
    const double ns = bench::ns_of([&] {
        board->go = true;
        while (board->done < all)
            usleep(100);
    });
    for (pid_t pid : pids) {
        int status = -1;
        if (waitpid(pid, &status, 0) != pid || status != 0)
            fail("a process that makes payments ended with status %d", status);
    }
    munmap(shared, sizeof(Board));
    return ns / static_cast<double>(all * settings.batch);
}

void check_money(bench::AtoFile &file)
{
    file.map(bench::Domain::pmem, ATO_READ_GATHER);
    int64_t sum = 0;
    for (size_t i = 0; i < RECORDS; i++) {
        char bytes[RECORD_BYTES];
        int64_t money;
        if (!ato_memcpy(bytes, file.at(i * RECORD_BYTES), sizeof(bytes)))
            fail("cannot read: %s", ato_errormsg());
        std::memcpy(&money, bytes, sizeof(money));
        sum += money;
        for (size_t k = sizeof(money); k < sizeof(bytes); k++)
            if (bytes[k] != static_cast<char>(money & 0xff))
                fail("record %zu is torn", i);
    }
    if (sum != 0)
        fail("%lld is missing", static_cast<long long>(sum));
    file.unmap(ATO_UNMAP_SPATIAL);
}

Case make_case(unsigned processes, unsigned threads)
{
    Case c;
    c.name = "payments/" + (threads > 1 ? std::to_string(threads) + "_threads"
                                        : std::to_string(processes) + "_processes");
    c.sides = {"ordered", "as_they_come"};
    c.goals = {{"as_they_come", "ratio", 1.25}};
    c.promise = [](const std::string &) { return std::string("pmem: serializable, durable"); };
    c.repeat = [processes, threads] {
        bench::AtoFile file(RECORDS * RECORD_BYTES, true);
        auto values = bench::interleave(
            2, settings.rounds(), [] {},
            [&](size_t side) { return take(file, processes, threads, side == 0); });
        check_money(file);
        return values;
    };
    return c;
}

} // namespace

int main(int argc, char **argv)
{
    return bench::run(
        argc, argv,
        {"Payments between two of 64 records of 5,000 bytes, each a transaction.",
         {1, 200000, 20000},
         [] { return uint64_t{16} << 20; },
         [] {
             return std::vector<Case>{make_case(2, 1), make_case(4, 1), make_case(1, 4)};
         }});
}
