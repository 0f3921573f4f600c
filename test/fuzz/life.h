// SPDX-License-Identifier: BSD-3-Clause
//
// What may the library make of a world? It is mapped and used, and looked at by the tools. What it may
// answer and what has to be there then is worked out from the world's bytes, not from what it says:
//
//   it refuses   errno, and a sentence that names what. The originals, their attributes, and all that
//                was in the reflection folder are there as before
//   it takes it  what it reads is what FORMAT.md says that the bytes hold, by every policy; reading has
//                changed nothing. What is written is read back; and in the end the file is plain, and
//                holds it
//
// What recovery may change in either case is computed: a removal that was cut is finished, guarded bytes
// put back, a growth taken back, lanes replayed; what is another file's is set aside, byte for byte.
#ifndef ATO_TEST_FUZZ_LIFE_H
#define ATO_TEST_FUZZ_LIFE_H

#include "world.h"

#include <set>

namespace fuzz
{

struct Uses {
    int domain = 0, format = 0;
    unsigned flags = 0; // of ato_options
    bool grow = false, journal = false, tools = true, text = false;
};

// One byte of the input.
Uses uses_from(Input &in);

// The effect of replaying the lanes: for a reflection or a manifest, by name, the words that it may have
// got, in their order.
using Replay = std::map<std::string, std::vector<std::pair<uint64_t, uint64_t>>>;

// For a world that is laid out. `must_be_refused`: its reflection may not be adopted. Returns true if it was.
bool live(World &w, const Uses &uses, const Replay &replay = {}, bool must_be_refused = false);

} // namespace fuzz

#endif
