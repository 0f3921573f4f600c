// SPDX-License-Identifier: BSD-3-Clause
//
// What a disk may hold after a power cut at some moment of its tape: all that was written before the last flush, and of what was
// written since any subset of the sectors, each with any of the contents that it had meanwhile.
#ifndef ATO_TEST_POWERCUT_IMAGES_H
#define ATO_TEST_POWERCUT_IMAGES_H

#include "disk.h"
#include "model/rig.h"

#include <map>
#include <string>
#include <vector>

namespace powercut
{

// The contents of sectors by their numbers. The bytes are those of a tape.
using Sectors = std::map<uint64_t, const char *>;

// The sectors that the events [from, to) leave when all persist.
Sectors written(const Tape &tape, uint64_t from, uint64_t to);

// The index behind the last flush of [from, moment), or `from`.
uint64_t certain(const Tape &tape, uint64_t from, uint64_t moment);

// One subset of [from, to), of which no event is a flush. *how describes it.
Sectors choose(const FileSystem &fs, const Tape &tape, uint64_t from, uint64_t to,
               rig::Random &random, std::string *how);

} // namespace powercut

#endif
