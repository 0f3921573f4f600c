// SPDX-License-Identifier: BSD-3-Clause
//
// A process that dies in the middle of a commit: its record, and the state that it leaves.
#ifndef ATO_TEST_HAZARDS_CUT_COMMIT_H
#define ATO_TEST_HAZARDS_CUT_COMMIT_H

#include "support/child.h"
#include "support/faults.h"
#include "support/mapped.h"

namespace cut_commit
{

constexpr long AT = 3000;

inline support::Bytes record()
{
    return support::pattern(6000, 2);
}

// Dies when two of the three pages of the record at AT have flipped; the lane holds all three. Returns CUT.
inline int die_between_flips(const std::string &path)
{
    using namespace support;
    return in_child([&] {
        Mapped m(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER, ATO_NO_RTM));
        PersistFaults faults;
        faults.die_at_flip(3);
        m.write(AT, record());
        return 0;
    });
}

} // namespace cut_commit

#endif
