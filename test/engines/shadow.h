/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A power cut, for engines that go through their Medium, in domain pmem: what the media would hold.
 *
 * Beside each file of the engine's folder there is an image of what is surely durable: all that it held at the begin; bytes that were
 * copied or flushed, as they were then, when the same thread has come to its next fence. (A copy is seen at the thread's next step, since
 * the watcher is called before it.) At the cut each other 8-byte word that has changed since is durable or lost, by chance.
 * Names and lengths of files are durable at once.
 *
 * For forked children only, one shadow in each.
 */
#ifndef ATO_TEST_ENGINES_SHADOW_H
#define ATO_TEST_ENGINES_SHADOW_H

#include "benchmarks/engines/media.h"
#include "test/model/rig.h"

#include <optional>
#include <string>

namespace engines_test
{

/* Steps that are taken for forgotten: each `every`-th of this kind makes nothing durable. */
struct Forgotten {
    engine::Step step;
    unsigned every;
};

/* From ATO_ENGINES_FORGET, such as fence, or flush:3. */
std::optional<Forgotten> forgotten_by_environment();

namespace shadow
{

void begin(const std::string &folder, const std::optional<Forgotten> &forgotten);

/* A step. Calls of several threads have to exclude each other. */
void see(engine::Step step, const void *at, size_t bytes);

/* Writes to `to`, a new folder, what the files hold after a power cut at this moment. */
void cut(const std::string &to, rig::Random &random);

} // namespace shadow

} // namespace engines_test

#endif
