/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TPC-C, revision 5.11, on SQLite: what its parts share. The numbers of clauses are those of the specification.
 *
 * tpcc_load.cc makes the nine tables (1.3) and their first content (4.3); tpcc_terminal.cc has the five transactions (2.4 to 2.8);
 * tpcc_check.cc has the consistency conditions (3.3.2); tpcc.cc measures.
 *
 * Money is counted in cents, rates in 1/10000. Times are counted in transactions, so that what is written depends on the seed
 * alone.
 */
#ifndef ATO_BENCHMARKS_SUITES_SQLITE_TPCC_H
#define ATO_BENCHMARKS_SUITES_SQLITE_TPCC_H

#include "connection.h"
#include "random.h"

#include <array>
#include <memory>

namespace sqlite::tpcc
{

constexpr int64_t DISTRICTS = 10; /* of a warehouse */

/* Clause 1.2.1 has 3000 customers in each district, and 100,000 items. */
struct Scale {
    int64_t warehouses, customers, items;

    int64_t delivered() const /* of the first orders of a district, one of each customer */
    {
        return customers * 7 / 10;
    }
};

/* What clause 2.1.6 calls C: chosen once for the load, and, for names, differently for the run. */
constexpr int64_t C_LAST_LOAD = 157, C_LAST_RUN = 223, C_CUSTOMER = 259, C_ITEM = 7911;

/* Clause 2.1.6: numbers from x to y, some of them more often than others. */
inline int64_t uneven(Random &random, int64_t a, int64_t c, int64_t x, int64_t y)
{
    return ((random.between(0, a) | random.between(x, y)) + c) % (y - x + 1) + x;
}

std::string last_name(int64_t number); /* from 0 to 999; clause 4.3.2.3 */

/* Names that a run asks for, where each district has fewer than 1000 customers: only those that there are. */
inline int64_t names(const Scale &scale)
{
    return scale.customers < 1000 ? scale.customers : 1000;
}

/* Makes a database in a new file. */
void load(const std::string &file, unsigned page, const Scale &scale);

/* Fails with the condition that the database breaks. `delivered`: orders since the load. `who`: of the message. */
void check(Connection &connection, const Scale &scale, uint64_t delivered, const char *who);

enum Kind { NEW_ORDER, PAYMENT, ORDER_STATUS, DELIVERY, STOCK_LEVEL, KINDS };

struct Counts {
    std::array<uint64_t, KINDS> done{}; /* new orders: also those that were rolled back */
    uint64_t rolled_back = 0;           /* new orders */
    uint64_t delivered = 0;             /* orders */
};

/* Draws transactions and does them, by a connection of its own. Terminals of the same number draw the same ones. */
class Terminal
{
  public:
    Terminal(std::unique_ptr<Connection> connection, const Scale &scale, unsigned number);
    ~Terminal();

    /* Does one transaction; repeats it while SQLite is busy. */
    void run();

    const Counts &counts() const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace sqlite::tpcc

#endif
