// SPDX-License-Identifier: BSD-3-Clause
//
// What do the bytes of a world say of its file? The verdict is worked out without the library; life.cc holds what the
// library does against it.
#ifndef ATO_TEST_FUZZ_VERDICT_H
#define ATO_TEST_FUZZ_VERDICT_H

#include "life.h"

namespace fuzz
{

struct Verdict {
    Holding held;
    bool own = false;   // the record is this file's
    bool anew = false;  // the reflection may be removed, and another one made
    bool adopt = false; // it may be taken for the file's
    bool prefer_file = false;
    bool drop = false; // the attribute came along with a copy
    Bytes content;     // of the original, with what recovery does to it
    Bytes tolerated;   // when it is cut in between by an error
    Image reflection;  // with all lanes replayed
};

Verdict judge(const World &w, const Uses &uses, const Replay &replay);

} // namespace fuzz

#endif
