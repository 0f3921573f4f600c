/* SPDX-License-Identifier: BSD-3-Clause */
#include "writer.h"

#include <algorithm>
#include <cerrno>

namespace histories
{

/* ---- numbers ---- */

void Writer::next()
{
    record.counter++;
    raise_to(p.board.begun[self], record.counter);
}

void Writer::acknowledged()
{
    raise_to(p.board.known[self], record.counter);
    count(p, COMMITS);
}

/* ---- transactions ---- */

bool Writer::is_refused() const
{
    if (errno != EAGAIN)
        fail(p, "within a transaction");
    return false;
}

bool Writer::put(ato_tx *tx, size_t to, const void *from, size_t n)
{
    return ato_tx_memcpy(tx, at(to), from, n, random.chance(20) ? ATO_EAGER : 0) || is_refused();
}

bool Writer::get(ato_tx *tx, size_t from, void *to, size_t n) const
{
    return ato_tx_memcpy(tx, to, at(from), n, 0) || is_refused();
}

bool Writer::resize(ato_tx *tx, uint64_t size) const
{
    return ato_tx_ftruncate(tx, p.map.base, static_cast<off_t>(size)) == 0 || is_refused();
}

/* `body` changes the record, and returns false if the transaction is refused: then the record is as before. */
template <class Body> void Writer::transact(Body body)
{
    const Record before = record;
    for (;;) {
        ato_tx *tx = ato_tx_begin(0);
        if (!tx)
            fail(p, "cannot begin a transaction");
        if (body(tx) && (ato_tx_commit(tx) == 0 || is_refused()))
            break;
        if (ato_tx_abort(tx) < 0)
            fail(p, "cannot abort a transaction");
        record = before;
    }
    acknowledged();
}

void Writer::begin()
{
    transact([this](ato_tx *tx) {
        const uint64_t dice = random.next();
        if (!put(tx, record_at(self) + offsetof(Record, hold), &dice, 8) ||
            !get(tx, record_at(self), &record, sizeof(record)))
            return false;
        if (record.counter + has_tail < __atomic_load_n(&p.board.known[self], __ATOMIC_SEQ_CST))
            fail(p, "actor " + std::to_string(self) + " finds commit " +
                        std::to_string(record.counter) + " in its record, and " +
                        std::to_string(p.board.known[self]) + " was acknowledged");
        record.counter++; /* its ato_ftruncate() may have taken that number */
        next();
        if (has_tail && (!resize(tx, TAIL_AT) || !resize(tx, size_by(record.counter))))
            return false;
        record.size = has_tail ? record.counter : 0;
        cut_tail(TAIL_AT);
        return put(tx, record_at(self), &record, sizeof(record));
    });
}

/* ---- commits ---- */

unsigned Writer::any_flags()
{
    return random.chance(60) ? 0 : static_cast<unsigned>(random.below(4));
}

void Writer::write(size_t to, const void *from, size_t n, unsigned flags)
{
    if (!ato_memcpy_opt(at(to), from, n, flags))
        fail(p, "cannot write");
}

/* One word, in place if that can be. */
void Writer::tick()
{
    next();
    write(record_at(self), &record.counter, 8, ATO_EAGER);
    acknowledged();
}

void Writer::write_record()
{
    next();
    write(record_at(self), &record, sizeof(record), any_flags());
    acknowledged();
}

/* The record and own pages behind it. */
void Writer::write_long()
{
    next();
    const unsigned pages = static_cast<unsigned>(random.within(1, OWN));
    for (unsigned n = 0; n < pages; n++)
        record.own[n] = record.counter;
    Bytes bytes(sizeof(record) + pages * PAGE);
    std::memcpy(bytes.data(), &record, sizeof(record));
    fill(&bytes[sizeof(record)], own_at(self, 0), pages * PAGE, self, record.counter);
    write(record_at(self), bytes.data(), bytes.size(), any_flags());
    acknowledged();
}

/* The record and some of the own pages; those before or after the record. */
bool Writer::write_any(const rig::Map &map, unsigned flags)
{
    Bytes bytes(OWN * PAGE);
    fill(bytes.data(), own_at(self, 0), bytes.size(), self, record.counter);
    std::vector<ato_iovec> parts;
    for (unsigned n = 0; n < OWN; n++)
        if (random.chance(50)) {
            record.own[n] = record.counter;
            parts.push_back({map.base + own_at(self, n), &bytes[n * PAGE], PAGE});
        }
    parts.insert(random.chance(50) ? parts.begin() : parts.end(),
                 {map.base + record_at(self), &record, sizeof(record)});
    return ato_writev(parts.data(), static_cast<int>(parts.size()), flags) == 0;
}

void Writer::write_parts()
{
    next();
    if (!write_any(p.map, any_flags()))
        fail(p, "cannot write parts");
    acknowledged();
}

/* The other thread of the process may commit it, with an epoch's writes of its own. */
void Writer::write_epoch()
{
    next();
    if (!write_any(p.epochs, 0) || ato_msync(p.epochs.base, PAGE, MS_SYNC) < 0)
        fail(p, "cannot commit an epoch");
    acknowledged();
}

void Writer::write_cells()
{
    const uint64_t cells = random.within(1, 4), first = random.below(CELLS),
                   step = random.within(1, 5);
    transact([&](ato_tx *tx) {
        next();
        int64_t sum = 0;
        for (uint64_t i = 0; i < cells; i++) {
            Cell cell;
            const unsigned n = static_cast<unsigned>((first + i * step) % CELLS);
            if (!get(tx, cell_at(n), &cell, offsetof(Cell, body)))
                return false;
            const int64_t amount =
                i + 1 == cells ? -sum : static_cast<int64_t>(random.within(1, 1000));
            cell.balance += amount;
            sum += amount;
            cell.vector[self] = record.cells[n] = record.counter;
            fill(reinterpret_cast<unsigned char *>(cell.body), cell_at(n) + offsetof(Cell, body),
                 sizeof(cell.body), self, record.counter);
            if (!put(tx, cell_at(n), &cell, sizeof(cell)))
                return false;
        }
        return put(tx, record_at(self), &record, sizeof(record));
    });
}

void Writer::deploy()
{
    const size_t end = has_tail ? size_by(record.size) : TAIL_AT, from = random.below(end),
                 n = random.log_uniform(end - from);
    if (ato_deploy(at(from), n) < 0 && errno != EDEADLK) /* for pages of the process's epoch */
        fail(p, "cannot deploy");
    if (random.chance(50) && ato_reclaim(at(from), n) < 0)
        fail(p, "cannot reclaim");
}

/* ---- the tail ---- */

void Writer::cut_tail(uint64_t size)
{
    for (unsigned page = 0; page < TAIL_PAGES; page++)
        record.tail[page].bytes =
            std::min(record.tail[page].bytes, size - std::min(size, tail_at(page)));
}

/* The new size is a commit, and the record of it the next one. */
void Writer::truncate()
{
    if (size_by(record.counter + 1) == size_by(record.size))
        return;
    next();
    const uint64_t size = size_by(record.counter);
    if (ato_ftruncate(p.map.base, static_cast<off_t>(size)) < 0)
        fail(p, "cannot change the size");
    acknowledged();
    record.size = record.counter;
    cut_tail(size);
    write_record();
}

void Writer::truncate_and_write()
{
    transact([&](ato_tx *tx) {
        next();
        const uint64_t size = size_by(record.counter);
        if (!resize(tx, size))
            return false;
        record.size = record.counter;
        cut_tail(size);
        const Part part = any_of_tail(size);
        return put(tx, part.at, part.bytes.data(), part.bytes.size()) &&
               put(tx, record_at(self), &record, sizeof(record));
    });
}

void Writer::write_tail()
{
    next();
    const Part part = any_of_tail(size_by(record.size));
    ato_iovec parts[] = {{at(record_at(self)), &record, sizeof(record)},
                         {at(part.at), part.bytes.data(), part.bytes.size()}};
    if (ato_writev(parts, 2, any_flags()) < 0)
        fail(p, "cannot write to the tail");
    acknowledged();
}

/* Of a page of the tail from its beginning on, at least as far as it is filled. Notes it in the record. */
Writer::Part Writer::any_of_tail(uint64_t size)
{
    const unsigned page = static_cast<unsigned>(random.below((size - TAIL_AT + PAGE - 1) / PAGE));
    const uint64_t most = std::min(PAGE, size - tail_at(page)),
                   n = std::max(random.within(1, most / 8) * 8, record.tail[page].bytes);
    record.tail[page] = {record.counter, n};
    Part part{tail_at(page), Bytes(n)};
    fill(part.bytes.data(), part.at, n, self, record.counter);
    return part;
}

void Writer::do_something()
{
    static const struct Deed {
        unsigned weight;
        void (Writer::*run)();
    } deeds[] =
        {
            {12, &Writer::tick},        {15, &Writer::write_record}, {15, &Writer::write_long},
            {13, &Writer::write_parts}, {8, &Writer::write_epoch},   {30, &Writer::write_cells},
            {6, &Writer::deploy},
        },
      of_tail[] = {
          {10, &Writer::truncate},
          {10, &Writer::truncate_and_write},
          {10, &Writer::write_tail},
      };
    if (has_tail && random.chance(50))
        (this->*random.weighted(of_tail).run)();
    else
        (this->*random.weighted(deeds).run)();
}

} // namespace histories
