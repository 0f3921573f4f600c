/* SPDX-License-Identifier: BSD-3-Clause */
#include "hybrid_log_media.h"

#include "../bench.h"

#include <algorithm>
#include <sys/mman.h>
#include <sys/stat.h>

namespace engine::hybrid
{

namespace
{

constexpr uint64_t MAGIC = 0x31676f6c62796868; /* with the version of the format */
constexpr size_t PAGE = 4096, UNIT = 1 << UNIT_SHIFT, FEWEST_UNITS = 16, MOST_SEGMENTS = 1000;

struct Head {
    uint64_t magic, file_bytes, unused[6];
    uint64_t epoch;
};

size_t bytes_of(const std::string &path) /* 0 if it is not there */
{
    struct stat st;
    return stat(path.c_str(), &st) == 0 ? static_cast<size_t>(st.st_size) : 0;
}

} // namespace

Log::Log(const Medium &medium, const std::string &path, size_t bytes, const File &file)
    : medium_(medium), path_(path), file_bytes_(file.bytes())
{
    open(path, bytes);
    for (std::string more; bytes_of(more = path + "." + std::to_string(segments_.size())) != 0;)
        open(more, 0);
    recover(file);
}

const Segment &Log::grow()
{
    if (segments_.size() == MOST_SEGMENTS)
        bench::fail("%s: a unit takes more than %zu logs of %zu bytes", path_.c_str(),
                    MOST_SEGMENTS, segments_[0]->file.bytes());
    return open(path_ + "." + std::to_string(segments_.size()), segments_[0]->file.bytes());
}

/* The size of a file that is there already stays as it is. */
const Segment &Log::open(const std::string &path, size_t bytes)
{
    const size_t old = bytes_of(path);
    bytes = old != 0 ? old : std::max(bytes / PAGE * PAGE, PAGE + FEWEST_UNITS * (UNIT + PAGE));
    auto segment = std::make_unique<Segment>(path, bytes);
    auto *head = reinterpret_cast<Head *>(segment->file.at(0));

    segment->units = (bytes - 2 * PAGE) / (UNIT + sizeof(Record));
    segment->records = reinterpret_cast<Record *>(segment->file.at(PAGE));
    segment->data = segment->file.at(bytes - segment->units * UNIT);
    if (head->magic == 0) {
        madvise(segment->file.at(0), bytes, MADV_POPULATE_WRITE); /* else the writes pay for it */
        head->file_bytes = file_bytes_;
        head->epoch = 1;
        medium_.flush(head, sizeof(*head));
        medium_.fence();
        medium_.store(&head->magic, MAGIC);
        medium_.fence();
    }
    if (head->magic != MAGIC || head->file_bytes != file_bytes_)
        bench::fail("%s is not the log of a file of %llu bytes", path.c_str(),
                    static_cast<unsigned long long>(file_bytes_));
    segments_.push_back(std::move(segment));
    return *segments_.back();
}

uint64_t *Log::epoch() const
{
    return &reinterpret_cast<Head *>(segments_[0]->file.at(0))->epoch;
}

void Log::recover(const File &file) const
{
    const uint64_t current = *epoch();
    std::vector<Record *> done;

    /* What is seen here may be in the caches only, if the last one that had the log was killed. It must be durable before the file
     * changes: of a unit whose end a power cut took back, nothing may stay. */
    medium_.flush(epoch(), sizeof(*epoch()));
    for (const auto &segment : segments_)
        medium_.flush(segment->records, segment->units * sizeof(Record));
    medium_.fence();

    for (const auto &segment : segments_)
        for (size_t unit = 0; unit < segment->units; unit++) {
            Record &record = segment->records[unit];
            const uint64_t epoch = record.state >> 2, first = record.range & 0xffffffff,
                           bytes = record.range >> 32;
            const bool redo = record.state == state(epoch, REDO),
                       undo = record.state == state(current, UNDO);

            if (undo || (redo && epoch < current)) {
                if (first + bytes > (segment->units - unit) * UNIT ||
                    record.block + first + bytes > file.bytes())
                    bench::fail("the log of %s is damaged: unit %zu", path_.c_str(), unit);
                medium_.copy(file.at(record.block + first), segment->data + unit * UNIT + first,
                             bytes);
            }
            /* What was not committed goes too: the next end of a unit would commit it. */
            if (undo || redo)
                done.push_back(&record);
        }
    if (done.empty())
        return;
    medium_.fence(); /* the bytes are in the file before the records go */
    for (Record *record : done)
        medium_.store(&record->state, state(0, FREE));
    medium_.fence();
}

} // namespace engine::hybrid
