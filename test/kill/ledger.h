/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the file of a history holds, and which commits are in a state of it.
 *
 * Each writing thread is an actor, and numbers its commits. An actor has a record with its counter, and three pages of its own right
 * behind it. All actors share cells, two on a page. A cell has a vector: for each actor, the number of its commit that has written
 * the cell last. An actor's record has the same for each cell, and for each of its pages. All words of what a commit fills
 * tell actor, number and place.
 *
 * So a state tells by itself which commits it contains, each actor's up to its counter, and that it contains them as wholes and in
 * order: the vectors of the cells and the records are the rows and the columns of the same matrix. A commit to cells is a transaction
 * that reads each vector and changes one entry of it. So a vector has one place in the order of all commits to its cell; if the
 * records of all actors agree with it, the commits up to that place are in the state, and no other one to this cell.
 *
 * The file's size, and a tail behind the cells, belong to one actor. Its ato_ftruncate() is a commit that cannot write the
 * record: the new size follows from the commit's number, and the next commit of the actor notes it in the record.
 */
#ifndef ATO_TEST_KILL_LEDGER_H
#define ATO_TEST_KILL_LEDGER_H

#include "../model/rig.h"

#include <array>

namespace histories
{

using Bytes = std::vector<unsigned char>;

constexpr unsigned ACTORS = 8, CELLS = 24, OWN = 3, TAIL_PAGES = 8;
constexpr size_t PAGE = 4096, SLICE = 64;

/* The number of the newest commit of each actor that is in a state. */
using Vector = std::array<uint64_t, ACTORS>;

struct Record {
    uint64_t counter;
    uint64_t hold; /* of no meaning */
    uint64_t pad[6];
    uint64_t cells[CELLS], own[OWN];
    /* Of the actor that has the tail: the last commit that gave the file its size; and for each page of the tail the last one that has
     * filled it, and up to where: behind that are zeros. */
    uint64_t size;
    struct {
        uint64_t by, bytes;
    } tail[TAIL_PAGES];
    uint64_t unused[12];
};

struct Cell {
    Vector vector;
    int64_t balance; /* a commit to several cells moves money between them: the sum of all is 0 */
    uint64_t body[55];
};

static_assert(sizeof(Record) == 512 && sizeof(Cell) == 512, "whole slices");

constexpr size_t CELLS_AT = ACTORS * (1 + OWN) * PAGE, TAIL_AT = CELLS_AT + CELLS / 2 * PAGE,
                 MOST_SIZE = TAIL_AT + TAIL_PAGES * PAGE;

constexpr size_t record_at(unsigned actor)
{
    return (actor * (1 + OWN) + 1) * PAGE - sizeof(Record);
}

constexpr size_t own_at(unsigned actor, unsigned n)
{
    return (actor * (1 + OWN) + 1 + n) * PAGE;
}

constexpr size_t cell_at(unsigned cell)
{
    return CELLS_AT + cell * (PAGE / 2) + cell % 5 * SLICE;
}

constexpr size_t tail_at(unsigned page)
{
    return TAIL_AT + page * PAGE;
}

constexpr uint64_t size_by(uint64_t commit)
{
    return TAIL_AT + 8 + commit * 1237 * 8 % (TAIL_PAGES * PAGE - 8);
}

/* Fills the bytes of the file from `at` on, as a commit does. */
void fill(unsigned char *to, size_t at, size_t n, unsigned actor, uint64_t commit);

/* Reads a state: the bytes of the file, with or without the tail. `sized` is the actor that has the tail. Returns "" and the vector; or what
 * is wrong. */
std::string read_state(const Bytes &bytes, unsigned sized, Vector *is);

/* Is each number of `a` at most that of `b`? */
bool is_within(const Vector &a, const Vector &b);

std::string text_of(const Vector &v);

} // namespace histories

#endif
