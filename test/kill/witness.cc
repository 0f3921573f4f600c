/* SPDX-License-Identifier: BSD-3-Clause */
#include "witness.h"

#include <algorithm>
#include <cerrno>

namespace histories
{

void fail(const Process &p, const std::string &what)
{
    const int error = errno;
    if (!__atomic_exchange_n(&p.board.failed, true, __ATOMIC_SEQ_CST))
        std::snprintf(p.board.why, sizeof(p.board.why), "%s (errno %d: %s)", what.c_str(), error,
                      ato_errormsg());
    _exit(1);
}

/* ---- what is known ---- */

static Vector load(const Vector &of)
{
    Vector is;
    for (unsigned a = 0; a < ACTORS; a++)
        is[a] = __atomic_load_n(&of[a], __ATOMIC_SEQ_CST);
    return is;
}

void raise_to(uint64_t &to, uint64_t n)
{
    uint64_t is = __atomic_load_n(&to, __ATOMIC_SEQ_CST);
    while (is < n &&
           !__atomic_compare_exchange_n(&to, &is, n, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
}

void count(const Process &p, Count what)
{
    __atomic_add_fetch(&p.board.counts[what], 1, __ATOMIC_RELAXED);
}

/* Checks a state whose reading began when `known` was. */
static Vector judge(const Process &p, const Bytes &bytes, const Vector &known, const char *what)
{
    Vector is{};
    const std::string wrong = read_state(bytes, p.board.sized, &is);
    if (!wrong.empty())
        fail(p, std::string(what) + " is no state: " + wrong);
    if (!is_within(known, is))
        fail(p, std::string(what) + " lacks commits: it has those up to " + text_of(is) +
                    ", and known were " + text_of(known));
    const Vector begun = load(p.board.begun);
    if (!is_within(is, begun))
        fail(p, std::string(what) + " has commits up to " + text_of(is) + ", and begun are " +
                    text_of(begun));
    for (unsigned a = 0; a < ACTORS; a++)
        raise_to(p.board.known[a], is[a]);
    return is;
}

static void note(Board &b, const Vector &is)
{
    const uint64_t n = __atomic_fetch_add(&b.noted, 1, __ATOMIC_SEQ_CST);
    if (n >= Board::NOTES)
        return;
    b.notes[n].is = is;
    __atomic_store_n(&b.notes[n].valid, true, __ATOMIC_RELEASE);
}

/* ---- reading ---- */

/* Returns false, with the snapshot closed, if it is given up, or if a writer has to free pages first. */
bool Witness::read_some(Held &h, size_t at, size_t n, void *to) const
{
    const ssize_t r = ato_snapshot_read(h.snapshot, to, static_cast<off_t>(at), n);
    if (r == static_cast<ssize_t>(n))
        return true;
    if (r < 0 && errno == ESTALE && p.plan.bounded)
        count(p, GIVEN_UP);
    else if (r >= 0 || errno != EAGAIN || !p.reads_only)
        fail(p, "a snapshot gives " + std::to_string(r) + " of " + std::to_string(n) +
                    " bytes at " + std::to_string(at));
    end(h);
    return false;
}

void Witness::end(Held &h) const
{
    if (h.snapshot && ato_snapshot_end(h.snapshot) < 0)
        fail(p, "cannot end a snapshot");
    h.snapshot = nullptr;
}

bool Witness::begin(Held &h) const
{
    h.snapshot = ato_snapshot_begin(p.map.base);
    if (!h.snapshot && (errno != EAGAIN || !p.reads_only))
        fail(p, "cannot begin a snapshot");
    return h.snapshot;
}

/* Takes a snapshot and reads a word of it twice: many of them meet many commits. */
void Witness::glance(unsigned actor) const
{
    Held h;
    uint64_t known = __atomic_load_n(&p.board.known[actor], __ATOMIC_SEQ_CST), is[2];
    known -= known && actor == p.board.sized; /* the last one may have changed the size */
    if (begin(h) && read_some(h, record_at(actor), 8, &is[0]) &&
        read_some(h, record_at(actor), 8, &is[1]) && (is[0] != is[1] || is[0] < known))
        fail(p, "a snapshot has commits up to " + std::to_string(is[0]) + " of actor " +
                    std::to_string(actor) + ", then " + std::to_string(is[1]) + ", and " +
                    std::to_string(known) + " was known");
    end(h);
}

void Witness::take(Held &h)
{
    const Vector known = load(p.board.known);
    if (!begin(h))
        return;
    const off_t size = ato_snapshot_seek(h.snapshot, 0, SEEK_END);
    if (size < static_cast<off_t>(TAIL_AT))
        fail(p, "a snapshot has a size of " + std::to_string(size));
    h.bytes.assign(static_cast<size_t>(size), 0xee);
    std::vector<size_t> at;
    for (size_t i = 0; i < h.bytes.size();) {
        at.push_back(i);
        i += random.within(1, 3) * PAGE - i % PAGE;
    }
    at.push_back(h.bytes.size());
    std::vector<size_t> order(at.size() - 1);
    for (size_t i = 0; i < order.size(); i++)
        order[i] = i;
    const bool slow = random.chance(30);
    for (size_t n = order.size(); n > 0; n--) {
        std::swap(order[n - 1], order[random.below(n)]);
        const size_t i = order[n - 1];
        if (!read_some(h, at[i], at[i + 1] - at[i], &h.bytes[at[i]]))
            return;
        if (slow && random.chance(20))
            usleep(static_cast<useconds_t>(random.log_uniform(300)));
    }
    note(p.board, judge(p, h.bytes, known, "a snapshot"));
    count(p, SNAPSHOTS);
}

void Witness::read_again(Held &h)
{
    unsigned char piece[2 * PAGE];
    if (ato_snapshot_seek(h.snapshot, 0, SEEK_END) != static_cast<off_t>(h.bytes.size()))
        fail(p, "a snapshot gets another size");
    for (unsigned i = 0; i < 6; i++) {
        const size_t at = random.below(h.bytes.size()),
                     n = std::min(random.log_uniform(sizeof(piece)), h.bytes.size() - at);
        if (!read_some(h, at, n, piece))
            return;
        const long differs = rig::first_difference(piece, &h.bytes[at], n);
        if (differs >= 0)
            fail(p, "byte " + std::to_string(at + static_cast<size_t>(differs)) +
                        " of a snapshot has changed");
    }
    count(p, READ_AGAIN);
}

void Witness::read_plainly() const
{
    Bytes bytes(TAIL_AT);
    const Vector known = load(p.board.known);
    if (ato_memcpy(bytes.data(), p.map.base, bytes.size())) {
        Vector seen = known;
        if (seen[p.board.sized]) /* the last one may have changed the size, which is not read */
            seen[p.board.sized]--;
        judge(p, bytes, seen, "what is read");
    } else if (errno != EAGAIN || !p.reads_only) {
        fail(p, "cannot read");
    }
}

void Witness::do_something()
{
    Held &h = held[random.below(held.size())];
    if (random.chance(20))
        for (unsigned n = 0; n < 100; n++)
            glance(static_cast<unsigned>(random.below(ACTORS)));
    else if (!h.snapshot)
        take(h);
    else if (random.chance(75))
        read_again(h);
    else
        end(h);
}

void Witness::end_all()
{
    for (Held &h : held)
        end(h);
}

} // namespace histories
