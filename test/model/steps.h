/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The model of steps of several calls: transactions, of which several may be open, ato_writev(), epochs; and
 * plain operations among them. Two files, each mapped as a whole, in part, and with an epoch, beside two byte
 * arrays with the committed content, and lists of uncommitted writes.
 *
 * It also knows the pages that each transaction and epoch keeps. All belong to this thread: a call that comes
 * to a page of another one fails with EDEADLK, and none ever waits. A transaction writes to one file, and reads both. And it knows what each transaction has read,
 * and refuses it if that has changed. A call that fails must have the error of the model, and change nothing: a page
 * that it kept, or a byte, shows later.
 */
#ifndef ATO_TEST_MODEL_STEPS_H
#define ATO_TEST_MODEL_STEPS_H

#include "world.h"

#include <list>
#include <map>
#include <set>

namespace model
{

class Steps
{
  public:
    Steps(const Setup &setup, rig::Random &random, size_t bytes);

    void step();
    /* Ends all transactions and epochs, compares, and makes both files plain. */
    void finish();

    Tally tally;
    /* Counts, to check that each case occurred. */
    uint64_t commits = 0, aborts = 0, elsewhere = 0, syncs = 0, too_big = 0, kept_by_others = 0,
             refused = 0, busy = 0;

  private:
    static constexpr size_t PAGE = 4096;

    using Page = std::pair<size_t, size_t>; /* file, page */

    struct Range {
        size_t file, offset, n;
    };
    struct Put {
        Range to;
        std::vector<unsigned char> bytes;
    };
    /* Uncommitted writes. */
    struct Draft {
        std::vector<Put> puts;
        std::set<Page> pages; /* others do not write to these pages */
    };
    /* A page that was read: how often it had been written to, and its bytes. */
    struct Note {
        uint64_t writes;
        std::vector<unsigned char> bytes;
    };
    using Notes = std::map<Page, Note>;
    struct Transaction {
        ato_tx *tx;
        bool checks; /* what it reads must not change */
        size_t limit;
        Draft draft;
        Notes noted;
        std::set<const rig::Map *> maps;
        Page only; /* the only page that it may write to, if its commit has to be a single word */
    };
    struct File {
        std::string path;
        std::vector<unsigned char> bytes; /* committed */
        rig::Map whole, part, epochs;
        size_t part_begin = 0;
        Draft epoch;
    };

    /* Places. */
    Range range_to_read();
    Range any_range();
    Range range_in(Page page);
    Range within(size_t file, size_t begin, size_t end, size_t n);
    const rig::Map &map_for(const Range &r, bool with_epoch);
    unsigned char *address(const rig::Map &m, const Range &r) const;

    /* Expected results: 0, or an errno. */
    static std::set<Page> pages_of(const Range &r);
    const Draft *keeper(Page page) const;
    int conflict(const Range &r, const Draft *own) const;
    static bool is_elsewhere(const Transaction &t, const Range &r);
    int claim(Transaction &t, const Range &r, std::set<Page> *all) const;
    int note(const Transaction &t, const Range &r, Notes *all) const;
    /* Is a transaction refused? It may be if its pages were written to, and must be if they are different. */
    enum class Refused { No, Perhaps, Yes };
    Refused moved(const Notes &noted) const;
    Refused kept(const Transaction &t) const;

    /* Comparing. */
    std::vector<unsigned char> seen(const Range &r, const Draft *draft) const;
    std::vector<unsigned char> some(const Range &r, const Draft *draft);
    void store(const Range &to, const unsigned char *bytes);
    void apply(const Draft &d);
    bool went(bool done, int expected, Refused refusal = Refused::No);
    void expect_bytes(const unsigned char *bytes, const Range &r, const Draft *draft,
                      const char *whose);

    Range range_for(const Transaction &t);
    void begin();
    void write_in(Transaction &t);
    void read_in(Transaction &t);
    void copy_in(Transaction &t);
    void fail_in(Transaction &t);
    void commit(std::list<Transaction>::iterator t);
    void abort(std::list<Transaction>::iterator t);
    void end_refused();
    void in_some_transaction();

    void write_ranges();
    void write_epoch();
    void read_epoch();
    void sync_epoch(File &f);
    void sync_some_epoch();

    void write_plainly();
    void read_plainly();
    void copy_plainly();
    void deploy();
    void reclaim();
    void take_snapshot();
    void map_part_again();
    void change_policy();
    void compare_all();

    void map_part(File &f);
    void count(const rig::Map &m);

    const Setup setup;
    rig::Random &random;
    rig::Folder folder;
    File files[2];
    std::list<Transaction> open;
    std::map<Page, uint64_t> writes; /* to the committed content */
    std::vector<unsigned char> scratch;
    std::string doing;
    uint64_t steps = 0;
};

} // namespace model

#endif
