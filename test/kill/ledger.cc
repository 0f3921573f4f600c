/* SPDX-License-Identifier: BSD-3-Clause */
#include "ledger.h"

#include <algorithm>

namespace histories
{

static uint64_t word_by(unsigned actor, uint64_t commit, size_t at)
{
    return commit ? uint64_t{actor + 1} << 56 | commit << 20 | at / SLICE : 0;
}

void fill(unsigned char *to, size_t at, size_t n, unsigned actor, uint64_t commit)
{
    for (size_t i = 0; i < n; i += 8) {
        const uint64_t word = word_by(actor, commit, at + i);
        std::memcpy(to + i, &word, 8);
    }
}

bool is_within(const Vector &a, const Vector &b)
{
    for (unsigned i = 0; i < ACTORS; i++)
        if (a[i] > b[i])
            return false;
    return true;
}

std::string text_of(const Vector &v)
{
    std::string text = "(";
    for (uint64_t n : v)
        text += std::to_string(n) + " ";
    text.back() = ')';
    return text;
}

namespace
{

struct State {
    const Bytes &bytes;
    std::array<Record, ACTORS> records;

    explicit State(const Bytes &b) : bytes(b)
    {
        for (unsigned a = 0; a < ACTORS; a++)
            std::memcpy(&records[a], &bytes[record_at(a)], sizeof(Record));
    }

    /* "" if the actor's commit has filled these bytes. */
    std::string look(size_t at, size_t n, unsigned actor, uint64_t commit) const
    {
        for (size_t i = at; i < at + n; i += 8) {
            uint64_t word;
            std::memcpy(&word, &bytes[i], 8);
            if (word != word_by(actor, commit, i))
                return "byte " + std::to_string(i) + ", page " + std::to_string(i / PAGE) +
                       ": commit " + std::to_string(commit) + " of actor " + std::to_string(actor) +
                       " is expected, and there is " + std::to_string(word >> 20 & 0xfffffffff) +
                       " of " + std::to_string(static_cast<int>(word >> 56) - 1) +
                       "; the counter is " + std::to_string(records[actor].counter);
        }
        return "";
    }

    /* *sum: of the balances. */
    std::string look_at_cell(unsigned cell, int64_t *sum) const
    {
        Cell c;
        const size_t at = cell_at(cell);
        std::memcpy(&c, &bytes[at], sizeof(c));
        *sum += c.balance;
        const unsigned last = static_cast<unsigned>(c.body[0] >> 56) - 1;
        for (unsigned a = 0; a < ACTORS; a++)
            if (c.vector[a] != records[a].cells[cell])
                return "page " + std::to_string(at / PAGE) + ": cell " + std::to_string(cell) +
                       " has commit " + std::to_string(c.vector[a]) + " of actor " +
                       std::to_string(a) + ", whose record, at commit " +
                       std::to_string(records[a].counter) + ", says " +
                       std::to_string(records[a].cells[cell]);
        /* An actor that is none: no commit has written the cell, or the vector is right and the body is missing. */
        if (last >= ACTORS && c.vector != Vector{})
            return "cell " + std::to_string(cell) + " has a vector, and no body";
        return look(at + offsetof(Cell, body), sizeof(c.body), last,
                    last < ACTORS ? c.vector[last] : 0);
    }

    /* *counts: the newest commit of the actor. */
    std::string look_at_tail(unsigned actor, uint64_t *newest) const
    {
        const Record &r = records[actor];
        if (bytes.size() != size_by(r.size) && bytes.size() != size_by(++*newest))
            return "the file has " + std::to_string(bytes.size()) + " bytes, and not " +
                   std::to_string(size_by(r.size)) + " as by commit " + std::to_string(r.size) +
                   ", or " + std::to_string(size_by(*newest)) + " as by " + std::to_string(*newest);
        for (unsigned page = 0; page < TAIL_PAGES && tail_at(page) < bytes.size(); page++) {
            const size_t at = tail_at(page), n = std::min(PAGE, bytes.size() - at),
                         filled = std::min(n, r.tail[page].bytes);
            std::string wrong = look(at, filled, actor, r.tail[page].by);
            wrong = wrong.empty() ? look(at + filled, n - filled, actor, 0) : wrong;
            if (!wrong.empty())
                return wrong;
        }
        return "";
    }
};

} // namespace

std::string read_state(const Bytes &bytes, unsigned sized, Vector *is)
{
    if (bytes.size() < TAIL_AT)
        return "the file has " + std::to_string(bytes.size()) + " bytes only";
    const State s(bytes);
    std::string wrong;
    int64_t sum = 0;
    for (unsigned a = 0; a < ACTORS && wrong.empty(); a++) {
        (*is)[a] = s.records[a].counter;
        for (unsigned n = 0; n < OWN && wrong.empty(); n++)
            wrong = s.look(own_at(a, n), PAGE, a, s.records[a].own[n]);
    }
    for (unsigned c = 0; c < CELLS && wrong.empty(); c++)
        wrong = s.look_at_cell(c, &sum);
    if (wrong.empty() && sum)
        wrong = "the sum of all cells is " + std::to_string(sum);
    return wrong.empty() && bytes.size() != TAIL_AT ? s.look_at_tail(sized, &(*is)[sized]) : wrong;
}

} // namespace histories
