/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the tests of the engines share: which engines, how mapped, and random writes.
 *
 * The process of the tests never maps a file: each engine lives in a forked child, where it may fail or die.
 */
#ifndef ATO_TEST_ENGINES_RIG_H
#define ATO_TEST_ENGINES_RIG_H

#include "benchmarks/engines/engine.h"
#include "test/model/rig.h"

#include <functional>
#include <ostream>

namespace engines_test
{

using engine::Domain, engine::Engine, engine::Kind, engine::Options, engine::Promise, engine::Unit;
using Bytes = std::vector<char>;

struct Case {
    const Kind *kind;
    Unit unit;
    Domain domain;

    Options options(const std::string &folder, uint64_t bytes) const;
    Promise promise() const;
    std::string name() const; /* also of its test */
};

std::ostream &operator<<(std::ostream &out, const Case &one);

/* All engines that take part, with both units, in each of these domains. */
std::vector<Case> cases(const std::vector<Domain> &domains);

/* Does all that the engine stores pass its Medium? Not if another library stores for it. */
bool goes_through_media(const Kind &kind);

/* Can its steps be counted, or some of them? Not if all are libpmemobj's. */
bool has_steps(const Kind &kind);

/* A folder for the files of an engine: in memory, or on a disk for Domain::disk. "" if there is no disk. */
std::string place(Domain domain);

struct Write {
    uint64_t offset;
    uint32_t bytes;
    uint32_t source; /* where in SOURCE its bytes begin */
};

constexpr uint32_t MAX_WRITE = 64 << 10;
extern const Bytes SOURCE;

/* A write to bytes begin .. end - 1 of the file, over many borders of pages, and often where others were. */
Write random_write(rig::Random &random, uint64_t begin, uint64_t end, uint32_t largest);

void apply(const Write &write, Bytes *file);

/* "" if they are the same, or a sentence that names the first byte that differs. */
std::string difference(const Bytes &is, const Bytes &should);

/* Runs it in a child, for a minute at most. It returns "" or what went wrong. What it stores to is not seen here, but for
 * memory that is shared. */
std::string in_process(const std::function<std::string()> &what);

/* Memory that children share with this process. */
class Shared
{
  public:
    explicit Shared(size_t bytes);
    ~Shared();
    Shared(const Shared &) = delete;
    Shared &operator=(const Shared &) = delete;

    char *const at;
    const size_t bytes;
};

} // namespace engines_test

#endif
