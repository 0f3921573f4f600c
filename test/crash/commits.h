// SPDX-License-Identifier: BSD-3-Clause
//
// Commits of which some may not be durable: early and relaxed ones, also of plain stores, beside others. A crash at any moment leaves what
// one of the commits has made that came after the last durable one, or that itself: all before it, and nothing of a later one. What a snapshot
// or a read has shown is durable, unless it was relaxed; and a relaxed commit is shown from the end of its call on.
#ifndef ATO_TEST_CRASH_COMMITS_H
#define ATO_TEST_CRASH_COMMITS_H

#include "actor.h"

#include "ato_engine.h"

namespace crash
{

struct Piece {
    uint64_t at;
    Bytes bytes;
};

struct State {
    Bytes content;
    ato_promise promise = {}; // zeros: another process has it, or it was none
    bool open = false;        // readers may see it, durable or not
    bool seen = false;        // and see it, or a later one
    bool own = false;         // a relaxed commit of this process
};

Mapping *map_relaxed(Actor &a);
Mapping *map_stores(Actor &a);

// The commits that may not be durable, and who makes more of them.
class Commits
{
  public:
    // `relaxed`: another mapping, whose commits are; NULL: no commits are. `stores`: one with plain stores; NULL: there is none.
    Commits(Actor &a, Mapping *m, Mapping *relaxed, Mapping *stores = nullptr);

    void early();
    void ordinary(unsigned flags);
    void relaxed();
    // There is room for it in the log, so it waits for nothing.
    void relaxed_at_once();
    // Of plain stores, of whole slices: of the others their page may show what they were.
    void by_stores(bool is_relaxed);
    // Writes what is there.
    void nothing(unsigned flags);
    // Readers see all that writers see.
    void show();
    void sync();
    // The last unmapping of the process.
    void unmap(int mode);
    void resize();
    // A relaxed commit makes the file longer.
    void append();
    // Waits for any of them, or for all.
    void await();
    void deploy();
    // Reads what is newest. The commit of a process that died may become visible later.
    void look();
    void read();
    void snapshot();
    // Another process goes on from here, and dies within so many moments.
    void beside(uint64_t moments, unsigned steps);
    void steps(unsigned n);
    const Bytes &newest() const;
    void finish();

  private:
    static std::vector<State> unpack(Unpack &u);
    ato_tx *transaction(const std::vector<Piece> &all, const Mapping *m, unsigned flags);
    // The first two ways are for a single piece.
    void relaxed(const std::vector<Piece> &all, uint64_t how);
    std::vector<Piece> some(uint64_t n);
    // Tells what a crash may leave from now on.
    void tell();
    // With a lock, as it were, that keeps others out. A process that had it may be dead.
    void prepare();
    // A commit is about to begin.
    void begin(const std::vector<Piece> &all, bool relaxed);
    void end(const ato_promise &promise);
    void are_durable(size_t n);
    // A reader has seen it, or may rely on that.
    void shown(size_t n);

    Actor &a_;
    Mapping *m_, *relaxed_, *stores_;
    std::vector<State> states_; // of the last durable commit, and of all after it
    std::vector<State> flight_; // of a commit that is under way, or was in a process that died

  public:
    unsigned early_ = 0;
};

} // namespace crash

#endif
