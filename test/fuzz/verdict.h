// SPDX-License-Identifier: BSD-3-Clause
//
// The expected answer to a world, computed from its bytes without the library; life.cc compares the library
// with it.
#ifndef ATO_TEST_FUZZ_VERDICT_H
#define ATO_TEST_FUZZ_VERDICT_H

#include "life.h"
#include "log.h"

namespace fuzz
{

struct Verdict {
    Holding held;
    Format format = DENSE; // of the record, if it is valid
    bool own = false;      // the record is this file's
    bool anew = false;     // the reflection may be removed, and another one made
    bool adopt = false;    // it may be accepted as the file's
    bool adopted = false;
    bool prefer_file = false;
    bool drop = false; // the attribute belongs to the source of a copy
    bool gone = false; // of its reflection nothing is left: its growth need not be cut off
    bool full = false; // sparse: few places are left behind the last one that was used
    Bytes content;     // of the original, after recovery
    Bytes tolerated;   // what an error may leave of it, if not all
    Image reflection;  // after the replay of all lanes
    LogSays log;       // format LOG
};

// must_be_refused: lanes are damaged.
Verdict judge(const World &w, const Uses &uses, const Replay &replay, bool must_be_refused);

} // namespace fuzz

#endif
