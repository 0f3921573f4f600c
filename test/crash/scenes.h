// SPDX-License-Identifier: BSD-3-Clause
//
// Common parts of the cases: their files, the state that most of them begin with, and the lists
// that make up all cases (cases.h).
#ifndef ATO_TEST_CRASH_SCENES_H
#define ATO_TEST_CRASH_SCENES_H

#include "cases.h"

namespace crash
{

constexpr unsigned ALL = 1u << ATO_DOMAIN_PMEM | 1u << ATO_DOMAIN_EADR | 1u << ATO_DOMAIN_DISK |
                         1u << ATO_DOMAIN_PROCESS;
constexpr unsigned DURABLE = ALL & ~(1u << ATO_DOMAIN_PROCESS);
constexpr unsigned PMEM = 1u << ATO_DOMAIN_PMEM;
constexpr unsigned DISK = 1u << ATO_DOMAIN_DISK; // where a file has a log
constexpr unsigned REFLECTED = ALL & ~DISK;      // and where it has a reflection
// For slow cases, with large files or two of them: the domains where most may be lost.
constexpr unsigned COSTLY = PMEM | DISK;
constexpr unsigned RTM = 1u << ATO_DOMAIN_EADR | 1u << ATO_DOMAIN_PROCESS;

// Six pages, the last one not whole and ending within a slice and a word.
constexpr uint64_t SIZE = 5 * PAGE + 1003;

// Pages that share a meta page.
constexpr uint64_t CHUNK = 512 * PAGE;

// Fills every unused place with garbage: the second homes, or the log, of a file that was just mapped for the
// first time, and the used lanes behind their first two lines.
void litter(Actor &a, int file);
void litter_lanes(Actor &a);

// The name of a file's manifest, and the place of a lane of slot 0 in it.
std::string manifest_of(const Actor &a, int file);
uint64_t lane_in_manifest(unsigned lane);

// The start of most cases: a mapped file with slices in both homes.
Mapping *mapped(Actor &a, unsigned flags, int policy = ATO_READ_GATHER);
void before_plain(Actor &a);
void before_two(Actor &a); // two such files

// A file of 280 pages, which has a long lane; and a commit that needs it: a slice of each of 270 pages.
constexpr uint64_t LARGE = 280 * PAGE;
void before_long(Actor &a);
void write_long(Actor &a);

// The mapping made by `before`.
Mapping *the(Actor &a, size_t n = 0);

uint64_t a_page(Actor &a);

// Two processes died one after the other, at any moment: the first wrote a little, the second
// unmapped without reading. Bytes written from `at` on (130 at most) lie in one page.
void die_twice(Actor &a, uint64_t at);

// One process does an operation.
const std::vector<Case> &call_cases();
// With an earlier process that died or unmapped, or with a program that does not use libato.
const std::vector<Case> &past_cases();
// A file with two meta pages.
const std::vector<Case> &chunk_cases();
// Changes of the size.
const std::vector<Case> &size_cases();
// Several threads.
const std::vector<Case> &thread_cases();
// Steps of several calls: transactions, ato_writev(), epochs.
const std::vector<Case> &tx_cases();
// SQLite, with the VFS of lib/sqlite; if SQLite is installed.
const std::vector<Case> &sqlite_cases();

// Places in sparse reflections.
const std::vector<Case> &place_cases();
// Several processes.
const std::vector<Case> &peer_cases();
// Early commits.
const std::vector<Case> &early_cases();
// Plain stores.
const std::vector<Case> &stores_cases();

} // namespace crash

#endif
