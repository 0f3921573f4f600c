/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The checks of a life: the places of records, accounts and sizes, and their values for a process of the
 * herd. life.cc acts, and calls these. A process that finds an error notes it on the board and exits.
 */
#ifndef ATO_TEST_KILL_JUDGE_H
#define ATO_TEST_KILL_JUDGE_H

#include "life.h"

namespace herds
{

/* ---- places ---- */

constexpr size_t PAGE = 4096, FILE_SIZE = 64 * PAGE, MOST_SIZE = 256 * PAGE;
constexpr size_t SHORT_BYTES = 96, LONG_BYTES = 3 * PAGE + 800, PAIR_BYTES = 200;

struct Range {
    File file;
    size_t at, n;
};

/* Neighbours share pages: the records of one kind lie close together. */
Range range_of(unsigned actor, unsigned record);

constexpr unsigned ACCOUNTS = 36;
constexpr size_t FIRST_ACCOUNT = 20 * PAGE; /* a page each */

Range account(unsigned n);

struct Leg {
    unsigned account;
    int64_t amount;
};

/* The amounts of a transfer, which add up to 0. There are 32 different ones of each writer. */
std::vector<Leg> transfer(unsigned actor, uint64_t number);

/* The tail is as long as the number says that it begins with, and its last byte follows from it. */
constexpr uint64_t STEPS = 200;

uint64_t size_of_step(uint64_t step);
unsigned char end_of_step(uint64_t step);

/* ---- a thread of a process ---- */

struct Process {
    Board &board;
    const Plan &plan;
    const std::string &folder;
    bool reader;
    rig::Map maps[FILES];
};

struct Life {
    Process &process;
    Board &board;
    const Plan &plan;
    unsigned self; /* its number among all threads; writers come first */
    rig::Random random;
    uint64_t seen[MOST_ACTORS][RECORDS] = {};

    Life(Process &p, unsigned number, uint64_t seed)
        : process(p), board(p.board), plan(p.plan), self(number), random(seed)
    {
    }
    unsigned char *at(const Range &r) const
    {
        return process.maps[r.file].base + r.at;
    }
};

/* Ends the process. The board keeps the first failure of all processes. */
[[noreturn]] void fail(const Process &p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
[[noreturn]] void fail(const Life &l, const std::string &what);

/* ---- checks ---- */

using Bytes = std::vector<unsigned char>;

uint64_t word_at(const unsigned char *at);

/* The last operation on a record that is acknowledged to its writer. */
uint64_t told_of(const Life &l, unsigned actor, unsigned record);

/* `told`: the last acknowledged operation before these bytes were read. */
void judge(Life &l, unsigned actor, unsigned record, uint64_t told, const unsigned char *bytes);

/* The receipts, which are checked before, give the value of each account. `image`: of each file. */
void judge_accounts(Life &l, const Bytes (&image)[FILES]);

void judge_tail(const Life &l, uint64_t step, uint64_t size, unsigned char last);

/* All checks above, and the bytes between, while no other process changes the files. */
void judge_image(Life &l, const Bytes (&image)[FILES]);

} // namespace herds

#endif
