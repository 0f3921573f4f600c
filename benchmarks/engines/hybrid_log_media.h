/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the engine hybrid-log keeps on the media beside the file, and how a crash is undone.
 *
 * The log is a file, and more of them if one unit does not fit: `log`, `log.1`, ... Each has
 *
 *   a page of its head   magic, bytes of the file; at 64 the epoch, which counts in the first only
 *   64 bytes a unit      the record of the log block that begins at this unit
 *   4096 bytes a unit    the log blocks: 1, 2, 4, ... 512 units
 *
 * A record says what its log block holds: of the file's block at `block` these bytes, at the same place in the log block. Its
 * state is an epoch and what it is, in one word:
 *
 *   free                    nothing
 *   redo, epoch < current   new bytes, committed: recovery copies them to the file
 *   redo, epoch = current   new bytes of a unit that has not ended: nothing
 *   undo, epoch < current   old bytes of a unit that has ended: nothing
 *   undo, epoch = current   old bytes of a unit that has not ended: recovery copies them back
 *
 * At most one record of a block is redo and committed, or undo and not committed. So recovery may take them in any order, and
 * be killed and begin again.
 */
#ifndef ATO_BENCHMARKS_ENGINES_HYBRID_LOG_MEDIA_H
#define ATO_BENCHMARKS_ENGINES_HYBRID_LOG_MEDIA_H

#include "media.h"

#include <memory>
#include <string>
#include <vector>

namespace engine::hybrid
{

constexpr unsigned UNIT_SHIFT = 12, LARGEST_SHIFT = 21; /* of log blocks: 4 KiB to 2 MiB */

enum Content : uint64_t { FREE = 0, REDO = 1, UNDO = 2 };

struct Record {
    uint64_t state; /* epoch << 2 | Content */
    uint64_t range; /* first byte within the block | bytes << 32 */
    uint64_t block; /* where it begins in the file */
    uint64_t unused[5];
};
static_assert(sizeof(Record) == 64, "a record has a line of its own");

inline uint64_t state(uint64_t epoch, Content content)
{
    return epoch << 2 | content;
}

inline uint64_t range(uint64_t first, uint64_t bytes)
{
    return first | bytes << 32;
}

/* A file of the log, mapped. */
struct Segment {
    Segment(const std::string &path, size_t bytes) : file(path, bytes)
    {
    }

    File file;
    size_t units = 0;
    Record *records = nullptr;
    char *data = nullptr;
};

class Log
{
  public:
    /* Makes the log, or opens what is there. Recovers the file from it. */
    Log(const Medium &medium, const std::string &path, size_t bytes, const File &file);

    /* Another segment, as large as the first. Until the next call of recovery nothing takes it away. */
    const Segment &grow();

    const std::vector<std::unique_ptr<Segment>> &segments() const
    {
        return segments_;
    }

    uint64_t *epoch() const; /* on the media */

  private:
    const Segment &open(const std::string &path, size_t bytes);
    void recover(const File &file) const;

    const Medium &medium_;
    std::string path_;
    uint64_t file_bytes_;
    std::vector<std::unique_ptr<Segment>> segments_;
};

} // namespace engine::hybrid

#endif
