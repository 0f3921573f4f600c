/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writers and readers of stamped records.
 *
 * Records lie one behind the other, at no alignment, from 64 bytes to ten pages long: neighbours share pages
 * and slices. Every 8 bytes of a record hold the same stamp: its writer, and the number of that writer's
 * write to it. A writer always writes a whole record by one call. So a reader knows
 *
 *   - that it read one write: all stamps are equal;
 *   - that nothing came back: of one writer's stamps in one record it reads ever newer ones;
 *   - that nothing was lost or early: the stamp is not older than the last write acknowledged to its writer
 *     when the read began, nor newer than the last one begun when the read ended.
 *
 * Some records belong to one writer, some to all; one is a copy of another, made from mapping to mapping by a
 * thread of its own.
 */
#ifndef ATO_TEST_THREADS_RECORDS_H
#define ATO_TEST_THREADS_RECORDS_H

#include "path.h"

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace threads
{

class Records
{
  public:
    static constexpr unsigned WRITERS = 3, RECORDS = 8, COPY_OF = 0, COPY = 4;

    explicit Records(const Path &path);

    /* Each writer writes at least `writes` records, while `readers` threads read, one deploys and one copies;
     * `beside` runs in a thread of its own, at least `besides` times and until the writers are done, which go
     * on until then. Returns the first error that a thread found, or "". */
    std::string work(unsigned writes, unsigned readers, unsigned besides = 0,
                     const std::function<std::string()> &beside = {});

    /* After work(): every record of one writer holds the last write of that writer, and after a spatial unmap
     * read(2) returns the bytes that were read before. */
    std::string end();

    rig::Folder folder;
    rig::Map map, second; /* of the whole file; of its pages from 2 on */

  private:
    struct Record {
        size_t offset, words;
    };
    /* The mapping through which a record can be reached. */
    unsigned char *address(const Record &r, rig::Random &random) const;
    bool owned(unsigned record) const;
    unsigned owner(unsigned record) const;

    void writer(unsigned self, unsigned writes);
    void reader();
    void deployer();
    void copier();
    void fail(const std::string &what);
    bool failed() const;

    const Path path;
    std::string file;
    Record records[RECORDS];
    std::atomic<uint64_t> begun[RECORDS][WRITERS] = {}, told[RECORDS][WRITERS] = {};
    std::atomic<bool> over{false};
    std::atomic<unsigned> busy{0}; /* threads that keep the writers going */
    std::atomic<uint64_t> born{0};
    mutable std::mutex lock;
    std::string sentence;
};

} // namespace threads

#endif
