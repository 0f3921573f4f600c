/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What must be in the files after a kill? The ledger knows the content of every record as
 * acknowledged last, and for each thread of the killed process the one write that was not
 * acknowledged: only that record is in doubt, and only between these two contents. Everything
 * between the records must be as it was at the beginning.
 *
 * Records lie at no alignment in two files of one folder, even ones in the first. A record's bytes
 * all follow from its content and their place, so that a mix of two, or a shifted one, is neither.
 */
#ifndef ATO_TEST_KILL_LEDGER_H
#define ATO_TEST_KILL_LEDGER_H

#include "process.h"

#include <map>

namespace kills
{

enum class Found : uint32_t { Old, New, Lost, Torn };

/* The bytes of a record. */
void render(const Content &c, unsigned char *to, size_t n);

class Ledger
{
  public:
    static constexpr unsigned FILES = 2;

    /* `bytes`: of a record. within_page: none crosses the border of a page. */
    Ledger(const rig::Folder &folder, unsigned records, size_t bytes, bool within_page);
    ~Ledger(); /* removes what shared memory is left: it lies in nobody's folder */
    Ledger(const Ledger &) = delete;
    Ledger &operator=(const Ledger &) = delete;

    unsigned records() const
    {
        return static_cast<unsigned>(contents.size());
    }
    size_t offset(unsigned record) const
    {
        return first + record / FILES * step;
    }
    static unsigned file(unsigned record)
    {
        return record % FILES;
    }
    const std::string &path(unsigned file) const
    {
        return paths[file];
    }
    size_t size() const /* of each file */
    {
        return file_bytes;
    }
    std::string folder_of_reflections() const;

    /* Writes both files as they are in the ledger. */
    bool write_files() const;

    /* The life of a process that writes. */
    void hear(const std::vector<Note> &notes);
    void settle(const std::vector<Note> &verdicts);

    /* In a checker: the record's bytes as they were found. */
    Found judge(unsigned record, const unsigned char *bytes) const;
    /* The file as a whole, where pending records are as `found` says. */
    std::vector<unsigned char> image(unsigned file, const std::vector<Found> &found) const;

    /* What somebody left who should not. "" if nothing. */
    std::string leftovers() const;

    const size_t record_bytes;
    std::vector<Content> contents;
    std::map<uint32_t, Note> pending; /* by thread */
    std::vector<std::string> objects; /* shared memory that was ever made */
    uint64_t told = 0;

  private:
    std::vector<std::string> shared_memory() const;

    size_t first, step, file_bytes;
    std::string paths[FILES], folder;
};

} // namespace kills

#endif
