/* SPDX-License-Identifier: BSD-3-Clause */
#include "judge.h"

#include <algorithm>
#include <cerrno>
#include <cstdarg>

namespace herds
{

namespace
{

constexpr uint64_t CYCLE = 32; /* of the transfers of a writer */

/* Both records of a pair are noted as one. */
unsigned noted_as(unsigned record)
{
    return record == PAIR_B ? +PAIR_A : record;
}

} // namespace

/* ---- places ---- */

Range range_of(unsigned actor, unsigned record)
{
    switch (record) {
    case SHORT:
        return {A, 40 + actor * (SHORT_BYTES + 8), SHORT_BYTES};
    case LONG:
        return {A, 2 * PAGE + 1000 + actor * (LONG_BYTES + 24), LONG_BYTES};
    case PAIR_A:
        return {A, 40 * PAGE + 16 + actor * (PAIR_BYTES + 8), PAIR_BYTES};
    case PAIR_B:
        return {A, 43 * PAGE - 600 + actor * (PAIR_BYTES + 8), PAIR_BYTES};
    default: /* beside the accounts: a transfer changes both */
        return {B, 63 * PAGE + 64 * (actor + 1), 8};
    }
}

Range account(unsigned n)
{
    const size_t page = FIRST_ACCOUNT + n * PAGE;
    return {B, n % 2 ? page + PAGE - 4 : page + 100 + n * 8, 8};
}

std::vector<Leg> transfer(unsigned actor, uint64_t number)
{
    rig::Random random(number % CYCLE * MOST_ACTORS + actor);
    std::vector<Leg> legs;
    int64_t sum = 0;
    for (uint64_t n = random.within(2, 5); n; n--) {
        const auto amount = static_cast<int64_t>(random.within(1, 90));
        legs.push_back({static_cast<unsigned>(random.below(ACCOUNTS)), n == 1 ? -sum : amount});
        sum += amount;
    }
    return legs;
}

uint64_t size_of_step(uint64_t step)
{
    return PAGE + step * 1000;
}

unsigned char end_of_step(uint64_t step)
{
    return step ? static_cast<unsigned char>(step % 251 + 1) : 0;
}

/* ---- failures ---- */

[[noreturn]] void fail(const Process &p, const char *format, ...)
{
    char text[400];
    const int error = errno;
    va_list args;
    va_start(args, format);
    std::vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (!__atomic_exchange_n(&p.board.failed, true, __ATOMIC_SEQ_CST))
        std::snprintf(p.board.why, sizeof(p.board.why), "a %s: %s (errno %d: %s)",
                      p.reader ? "reader" : "writer", text, error, ato_errormsg());
    _exit(1);
}

[[noreturn]] void fail(const Life &l, const std::string &what)
{
    fail(l.process, "%s", what.c_str());
}

/* ---- checks ---- */

uint64_t word_at(const unsigned char *at)
{
    uint64_t word;
    std::memcpy(&word, at, 8);
    return word;
}

uint64_t told_of(const Life &l, unsigned actor, unsigned record)
{
    return __atomic_load_n(&l.board.records[actor][noted_as(record)].told, __ATOMIC_SEQ_CST);
}

void judge(Life &l, unsigned actor, unsigned record, uint64_t told, const unsigned char *bytes)
{
    static const char *const what[] = {"short record", "long record", "pair", "pair", "receipt"};
    const size_t n = range_of(actor, record).n;
    const uint64_t stamp = word_at(bytes);
    uint64_t &seen = l.seen[actor][noted_as(record)];
    if (std::memcmp(bytes, bytes + 8, n - 8) != 0)
        fail(l.process, "the %s of %u is a mix, of %lu among others", what[record], actor, stamp);
    const uint64_t begun =
        __atomic_load_n(&l.board.records[actor][noted_as(record)].begun, __ATOMIC_SEQ_CST);
    if (stamp < told || stamp < seen || stamp > begun)
        fail(l.process, "the %s of %u is %lu: %lu was told, %lu seen and %lu begun", what[record],
             actor, stamp, told, seen, begun);
    seen = stamp;
}

void judge_accounts(Life &l, const Bytes (&image)[FILES])
{
    int64_t expected[ACCOUNTS] = {}, sum = 0;
    for (unsigned a = 0; a < l.plan.actors(); a++) {
        const Range r = range_of(a, RECEIPT);
        const uint64_t last = word_at(&image[r.file][r.at]);
        for (uint64_t i = 1; i <= CYCLE && i <= last; i++)
            for (const Leg &leg : transfer(a, i))
                expected[leg.account] += leg.amount * static_cast<int64_t>((last - i) / CYCLE + 1);
    }
    for (unsigned i = 0; i < ACCOUNTS; i++) {
        const Range r = account(i);
        const auto balance = static_cast<int64_t>(word_at(&image[r.file][r.at]));
        sum += balance;
        if (balance != expected[i])
            fail(l.process, "account %u holds %ld, not %ld", i, balance, expected[i]);
    }
    if (sum != 0)
        fail(l.process, "the sum of all accounts is %ld", sum);
}

void judge_tail(const Life &l, uint64_t step, uint64_t size, unsigned char last)
{
    if (size != size_of_step(step) || last != end_of_step(step))
        fail(l.process, "the tail of step %lu is %lu bytes long and ends with %u", step, size,
             last);
}

void judge_image(Life &l, const Bytes (&image)[FILES])
{
    Bytes rest[FILES] = {image[A], image[B], {}};
    auto clear = [&](const Range &r) {
        if (r.file != TAIL)
            std::fill_n(&rest[r.file][r.at], r.n, 0);
    };
    for (unsigned a = 0; a < l.plan.actors(); a++)
        for (unsigned record = 0; record < RECORDS; record++) {
            const Range r = range_of(a, record);
            judge(l, a, record, told_of(l, a, record), &image[r.file][r.at]);
            clear(r);
        }
    for (unsigned i = 0; i < ACCOUNTS; i++)
        clear(account(i));
    judge_accounts(l, image);
    judge_tail(l, word_at(&image[TAIL][0]), image[TAIL].size(), image[TAIL].back());
    for (const Bytes &r : rest)
        if (std::any_of(r.begin(), r.end(), [](unsigned char c) { return c; }))
            fail(l, "bytes between the records have changed");
}

} // namespace herds
