// SPDX-License-Identifier: BSD-3-Clause
//
// A file that processes map with plain stores, in each domain. `content` is what is committed.
#ifndef ATO_TEST_UNIT_STORES_LAB_H
#define ATO_TEST_UNIT_STORES_LAB_H

#include "snapshot_lab.h"
#include "support/faults.h"

extern "C" {
#include "lib/file/private_pages.h"
}

#include <cstdlib>
#include <cstring>

#include <sys/mman.h>

namespace stores_lab
{

using namespace snapshot_lab;

constexpr size_t SLICE = 64;

class StoresFile : public OnAFile
{
  protected:
    static ato_options plain(unsigned flags = 0)
    {
        ato_options o = opt(ATO_READ_GATHER, ATO_PLAIN_STORES | flags);
        o.relaxed_ms = 3600000; // what is durable then, a call has made durable
        return o;
    }
    static int commit(const Mapped &m, int flags = MS_SYNC)
    {
        return ato_msync(m.base, m.length, flags);
    }
    static int discard(const Mapped &m)
    {
        return ato_plain_discard(m.base, m.length);
    }
    // What the program's loads see.
    static Bytes view(const Mapped &m, size_t n = SIZE)
    {
        return Bytes(m.base, m.base + n);
    }
    static void store(const Mapped &m, size_t at, const Bytes &bytes)
    {
        memcpy(m.base + at, bytes.data(), bytes.size());
    }
    static void copy(Bytes &to, size_t at, const Bytes &bytes)
    {
        std::copy(bytes.begin(), bytes.end(), to.begin() + static_cast<long>(at));
    }
    // Stores what the next commit makes the content.
    void note(const Mapped &m, size_t at, const Bytes &bytes)
    {
        store(m, at, bytes);
        copy(content, at, bytes);
    }
    // Of how many pages has the process copies?
    static uint64_t copies(const Mapped &m)
    {
        struct private_run *runs;
        uint64_t n, pages = 0;
        EXPECT_EQ(private_pages_find(m.base, PAGES, &runs, &n), 0) << ato_errormsg();
        for (uint64_t i = 0; i < n; i++)
            pages += runs[i].end - runs[i].first;
        free(runs);
        return pages;
    }
    static void refused(bool is, int error, const char *part)
    {
        EXPECT_TRUE(is);
        EXPECT_EQ(errno, error) << ato_errormsg();
        EXPECT_NE(std::string(ato_errormsg()).find(part), std::string::npos) << ato_errormsg();
    }
};

} // namespace stores_lab

#endif
