/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rounds of a life of an engine's file: a process maps it, does some random units, and is ended in their midst; then, perhaps, another
 * one is ended while it recovers; then one maps it and reads all of it. The content has to be what the engine promises:
 *
 *   atomic    as after the last unit that was acknowledged, or as after the one that was being ended
 *   page      each page as after the last unit that was acknowledged, or with the first writes of the open one, whole
 *   durable   each byte as after the last unit that was acknowledged, or as a write of the open one has it
 *
 * It is ended
 *
 *   kill      before its n-th step to the media (steps.h): as by SIGKILL
 *   alarm     at any time, by a signal
 *   power     before its n-th step, or after it has unmapped the file, by a power cut (shadow.h)
 */
#ifndef ATO_TEST_ENGINES_CRASH_H
#define ATO_TEST_ENGINES_CRASH_H

#include "rig.h"
#include "shadow.h"

#include <optional>

namespace engines_test
{

enum class End { kill, alarm, power };

/* "", or what was wrong first. */
std::string crash_rounds(const Case &one, End end, unsigned rounds,
                         const std::optional<Forgotten> &forgotten = std::nullopt);

} // namespace engines_test

#endif
