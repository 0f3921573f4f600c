// SPDX-License-Identifier: BSD-3-Clause
//
// Lanes in plain memory: the small ones of a process, and a long one.
#ifndef ATO_TEST_UNIT_LANE_LAB_H
#define ATO_TEST_UNIT_LANE_LAB_H

extern "C" {
#include "reflection/format/lane.h"
#include "reflection/format/manifest.h"
}

#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include <sys/mman.h>

class LaneLab
{
  public:
    static constexpr unsigned LONG = LANE_SMALL, LANES = LANE_SMALL + 1;
    static constexpr uint64_t BYTES = MANIFEST_AREA_BYTES + (1 << 20);

    explicit LaneLab(persist_domain domain = PERSIST_PROCESS)
    {
        bytes = static_cast<char *>(
            mmap(nullptr, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        persist_init(&p, domain);
        if (bytes == MAP_FAILED)
            throw std::runtime_error("no memory for lanes");
    }
    ~LaneLab()
    {
        munmap(bytes, BYTES);
    }

    struct lane lane(unsigned n) const
    {
        return n == LONG ? (struct lane){bytes + MANIFEST_AREA_BYTES, 1 << 20}
                         : lane_small(bytes, n);
    }
    static uint64_t capacity(unsigned n)
    {
        return n == LONG ? ((1 << 20) - LANE_HEAD_BYTES) / 16 : uint64_t{LANE_SMALL_WORDS};
    }

    // Writes a commit, with its commit line or without it.
    lane_writer write(unsigned n, const std::vector<std::pair<uint64_t, uint64_t>> &words,
                      bool commit = true)
    {
        lane_writer w;
        const struct lane to = lane(n);
        lane_begin(&w, &p, &to, lane_retired(&to), words.size());
        for (const auto &word : words)
            lane_add(&w, word.first, word.second);
        persist_fence(&p);
        if (commit && lane_commit(&w) < 0)
            throw std::runtime_error("lane_commit");
        return w;
    }

    lane_finding look(unsigned n, lane_view *v = nullptr) const
    {
        lane_view own;
        const struct lane l = lane(n);
        return lane_look(&l, v ? v : &own);
    }

    struct persist p;
    char *bytes;
};

#endif
