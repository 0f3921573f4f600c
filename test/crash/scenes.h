// SPDX-License-Identifier: BSD-3-Clause
//
// What cases have in common: the files they are about, what most of them begin with, and the lists
// that all of them are (cases.h) the sum of.
#ifndef ATO_TEST_CRASH_SCENES_H
#define ATO_TEST_CRASH_SCENES_H

#include "cases.h"

#include <map>

namespace crash
{

constexpr unsigned ALL = 1u << ATO_DOMAIN_PMEM | 1u << ATO_DOMAIN_EADR | 1u << ATO_DOMAIN_MSYNC |
                         1u << ATO_DOMAIN_PROCESS;
constexpr unsigned DURABLE = ALL & ~(1u << ATO_DOMAIN_PROCESS);
// For what takes long, with large files or two of them: where most may be lost.
constexpr unsigned COSTLY = 1u << ATO_DOMAIN_PMEM | 1u << ATO_DOMAIN_MSYNC;
constexpr unsigned RTM = 1u << ATO_DOMAIN_EADR | 1u << ATO_DOMAIN_PROCESS;

// Six pages, the last one not whole and ending within a slice and a word.
constexpr uint64_t SIZE = 5 * PAGE + 1003;

// Pages that share a meta page.
constexpr uint64_t CHUNK = 512 * PAGE;

// Garbage in every place that holds nothing: the second homes of a file that was just mapped for the
// first time, and what a journal's lanes have behind their first two lines.
void litter(Actor &a, int file, const std::string &folder = ".ato");
void litter_journals(Actor &a);

// By name, the inodes of those that are complete.
std::map<std::string, int> journals_in(const Disk &disk);
// Of the first lane, in a journal's file.
uint64_t lanes_of(const Inode &journal);

// What most cases begin with: a mapped file whose slices lie in both homes.
Mapping *mapped(Actor &a, unsigned flags, int policy = ATO_READ_GATHER);
void before_plain(Actor &a);
void before_two(Actor &a); // two such files

// The mapping that `before` made; the world has it.
Mapping *the(Actor &a, size_t n = 0);

uint64_t a_page(Actor &a);

// Two died one after the other, at any moments: one that wrote a little, and one that unmapped
// what it had not looked at. What is written from `at` on (130 bytes at most) lies in one page: to die
// while making a journal is another case.
void die_twice(Actor &a, uint64_t at);

// One process does something.
const std::vector<Case> &call_cases();
// Others were there before: who died, who unmapped, who never knew of libato.
const std::vector<Case> &past_cases();
// A file with two meta pages.
const std::vector<Case> &chunk_cases();
// The file's size changes.
const std::vector<Case> &size_cases();
// Files whose reflections lie in several folders.
const std::vector<Case> &folder_cases();
// Several threads.
const std::vector<Case> &thread_cases();
// Steps of several calls: transactions, ato_writev(), epochs.
const std::vector<Case> &tx_cases();
// SQLite, with the VFS of lib/sqlite: where there is SQLite.
const std::vector<Case> &sqlite_cases();

// Several processes.
const std::vector<Case> &peer_cases();

} // namespace crash

#endif
