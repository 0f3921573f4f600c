// SPDX-License-Identifier: BSD-3-Clause
//
// A file that several processes map: for the tests of what they see of one another.
#ifndef ATO_TEST_UNIT_PEERS_LAB_H
#define ATO_TEST_UNIT_PEERS_LAB_H

#include "support/child.h"
#include "support/mapped.h"

#include <gtest/gtest.h>

namespace peers_lab
{

using namespace support;

constexpr size_t SIZE = 4 * 4096;

class PeersOfAFile : public testing::Test
{
  protected:
    PeersOfAFile()
    {
        write_file(path, old);
    }
    static ato_options opt(uint64_t max_size = 0)
    {
        ato_options o = options(ATO_DOMAIN_PMEM, ATO_READ_GATHER);
        o.max_size = max_size;
        return o;
    }

    TempDir dir;
    const std::string path = dir / "file";
    const Bytes old = pattern(SIZE, 1);
};

} // namespace peers_lab

#endif
