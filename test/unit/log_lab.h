// SPDX-License-Identifier: BSD-3-Clause
//
// A file with a log, for the tests of what its commits cost and of what is left of it.
#ifndef ATO_TEST_UNIT_LOG_LAB_H
#define ATO_TEST_UNIT_LOG_LAB_H

#include "support/faults.h"
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace log_lab
{

using namespace support;

constexpr size_t PAGE = 4096, SIZE = 64 * PAGE, RING = 64 << 10;

// Gives a variable another value for a while.
class Restored
{
  public:
    Restored(uint64_t &of, uint64_t value) : of_(of), was_(of)
    {
        of = value;
    }
    ~Restored()
    {
        of_ = was_;
    }
    Restored(const Restored &) = delete;
    Restored &operator=(const Restored &) = delete;

  private:
    uint64_t &of_;
    const uint64_t was_;
};

inline ato_options logged()
{
    return options(ATO_DOMAIN_DISK);
}

class LogFile : public testing::Test
{
  protected:
    void SetUp() override
    {
        write_file(file, content);
        write_file(dir / "other", content);
    }
    // As Mapped::write(), and notes it as the content.
    bool write(Mapped &m, uint64_t at, const Bytes &bytes, unsigned flags = 0)
    {
        if (!m.write(at, bytes, flags))
            return false;
        std::copy(bytes.begin(), bytes.end(), content.begin() + static_cast<long>(at));
        return true;
    }
    // Writes three pages, and dies before a call of either kind, counted from 0.
    static bool write_or_die(Mapped &m, uint8_t fill, long call)
    {
        FsFaults fs;
        PersistFaults stores;
        fs.before = [&](const FsCall &) { return call-- == 0 ? DIE : GO_ON; };
        stores.before = [&](const PersistCall &) { return call-- == 0 ? DIE : GO_ON; };
        return m.write(0, Bytes(3 * PAGE, fill));
    }
    TempDir dir{"/dev/shm"};
    const std::string file = dir / "file";
    Bytes content = pattern(SIZE, 1);
};

} // namespace log_lab

#endif
