/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An actor of a history (ledger.h): commits of each kind, by all calls that write.
 */
#ifndef ATO_TEST_KILL_WRITER_H
#define ATO_TEST_KILL_WRITER_H

#include "witness.h"

namespace histories
{

class Writer
{
  public:
    Writer(const Process &process, unsigned number, uint64_t seed)
        : p(process), self(number), has_tail(process.board.sized == number), random(seed)
    {
    }

    /* The first commit holds what the commit that a kill has interrupted may have held: so that one is done or gone then. */
    void begin();
    void do_something();

  private:
    void next();
    void acknowledged();

    unsigned char *at(size_t offset) const
    {
        return p.map.base + offset;
    }
    bool is_refused() const;
    bool put(ato_tx *tx, size_t to, const void *from, size_t n);
    bool get(ato_tx *tx, size_t from, void *to, size_t n) const;
    bool resize(ato_tx *tx, uint64_t size) const;
    template <class Body> void transact(Body body);

    unsigned any_flags();
    void write(size_t to, const void *from, size_t n, unsigned flags);
    void tick();
    void write_record();
    void write_long();
    bool write_any(const rig::Map &map, unsigned flags);
    void write_parts();
    void write_epoch();
    void write_cells();
    void deploy();

    struct Part {
        size_t at;
        Bytes bytes;
    };
    void cut_tail(uint64_t size);
    void truncate();
    void truncate_and_write();
    void write_tail();
    Part any_of_tail(uint64_t size);

    const Process &p;
    const unsigned self;
    const bool has_tail;
    rig::Random random;
    Record record = {};
};

} // namespace histories

#endif
