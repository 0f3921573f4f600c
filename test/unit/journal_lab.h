// SPDX-License-Identifier: BSD-3-Clause
//
// A journal in plain memory, for the tests of journal.c and replay.c.
#ifndef ATO_TEST_UNIT_JOURNAL_LAB_H
#define ATO_TEST_UNIT_JOURNAL_LAB_H

extern "C" {
#include "reflection/format/journal.h"
}

#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include <sys/mman.h>

class JournalLab
{
  public:
    explicit JournalLab(persist_domain domain = PERSIST_PROCESS)
    {
        bytes = static_cast<char *>(mmap(nullptr, journal_bytes(0), PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        persist_init(&p, domain);
        if (bytes == MAP_FAILED)
            throw std::runtime_error("no memory for a journal");
        journal_make(&p, &j, bytes, 0x5a5a5a5a5a5a);
    }
    ~JournalLab()
    {
        munmap(bytes, journal_bytes(0));
    }

    static journal_file file(uint8_t id, uint64_t inode)
    {
        journal_file f = {};
        memset(f.id, id, sizeof(f.id));
        f.inode = inode;
        return f;
    }

    char *lane(unsigned n) const
    {
        return bytes + 4096 + n * JOURNAL_LANE_BYTES;
    }

    // Writes a commit, with its commit line or without it.
    journal_writer write(unsigned lane, const std::vector<journal_file> &files,
                         const std::vector<std::pair<uint64_t, uint64_t>> &words,
                         bool commit = true, unsigned file = 0)
    {
        journal_writer w;
        journal_begin(&w, &j, &p, lane, static_cast<unsigned>(files.size()), words.size());
        for (const journal_file &name : files)
            journal_name(&w, &name);
        for (const auto &word : words)
            journal_add(&w, file, word.first, word.second);
        persist_fence(&p);
        if (commit && journal_commit(&w) < 0)
            throw std::runtime_error("journal_commit");
        return w;
    }

    struct persist p;
    struct journal j;
    char *bytes;
};

inline journal_finding look(const JournalLab &lab, unsigned lane)
{
    journal_view v;
    return journal_look(&lab.j, lane, &v);
}

#endif
