/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TPC-C: the twelve consistency conditions of clause 3.3.2.
 *
 * Each statement counts what breaks the condition. Condition 11 is worded for the first content, where 2100 orders of each district
 * are delivered; here it is checked for all orders: those that are not new are the first ones and those that the run delivered.
 */
#include "tpcc.h"

#include "../../bench.h"

#include <cinttypes>

namespace sqlite::tpcc
{

namespace
{

struct Condition {
    int number;
    const char *what, *broken;
};

const Condition CONDITIONS[] = {
    {1, "a warehouse's year-to-date amount is the sum of its districts'",
     "SELECT count(*) FROM warehouse WHERE w_ytd <> (SELECT sum(d_ytd) FROM district WHERE d_w_id "
     "= w_id)"},
    {2, "a district's next order follows its last order, and its last new order if there is one",
     "SELECT count(*) FROM district WHERE"
     " d_next_o_id - 1 <> (SELECT max(o_id) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id)"
     " OR d_next_o_id - 1 <> (SELECT max(no_o_id) FROM new_order WHERE no_w_id = d_w_id AND "
     "no_d_id = d_id)"},
    {3, "the numbers of a district's new orders have no gap",
     "SELECT count(*) FROM (SELECT 1 FROM new_order GROUP BY no_w_id, no_d_id"
     " HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*))"},
    {4, "a district has as many order lines as its orders say",
     "SELECT count(*) FROM district WHERE"
     " (SELECT sum(o_ol_cnt) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id)"
     " <> (SELECT count(*) FROM order_line WHERE ol_w_id = d_w_id AND ol_d_id = d_id)"},
    {5, "an order has no carrier if and only if it is a new order",
     "SELECT count(*) FROM orders LEFT JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND "
     "no_o_id = o_id"
     " WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)"},
    {6, "an order has as many lines as it says",
     "SELECT count(*) FROM orders WHERE o_ol_cnt <>"
     " (SELECT count(*) FROM order_line WHERE ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = "
     "o_id)"},
    {7, "an order line has no time of delivery if and only if its order has no carrier",
     "SELECT count(*) FROM order_line LEFT JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id "
     "AND o_id = ol_o_id"
     " WHERE o_id IS NULL OR (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)"},
    {8, "a warehouse's year-to-date amount is what was paid to it",
     "SELECT count(*) FROM warehouse LEFT JOIN"
     " (SELECT h_w_id AS w, sum(h_amount) AS paid FROM history GROUP BY 1) ON w = w_id WHERE w_ytd "
     "IS NOT paid"},
    {9, "a district's year-to-date amount is what was paid to it",
     "SELECT count(*) FROM district LEFT JOIN"
     " (SELECT h_w_id AS w, h_d_id AS d, sum(h_amount) AS paid FROM history GROUP BY 1, 2)"
     " ON w = d_w_id AND d = d_id WHERE d_ytd IS NOT paid"},
    {10, "a customer's balance is what was delivered less what was paid",
     "WITH got(w, d, c, amount) AS (SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) FROM orders JOIN "
     "order_line"
     "  ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id WHERE ol_delivery_d IS NOT "
     "NULL GROUP BY 1, 2, 3),"
     " paid(w, d, c, amount) AS (SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) FROM history "
     "GROUP BY 1, 2, 3)"
     " SELECT count(*) FROM customer LEFT JOIN got ON got.w = c_w_id AND got.d = c_d_id AND got.c "
     "= c_id"
     " LEFT JOIN paid ON paid.w = c_w_id AND paid.d = c_d_id AND paid.c = c_id"
     " WHERE c_balance <> ifnull(got.amount, 0) - ifnull(paid.amount, 0)"},
    {11, "the orders that are not new are those delivered before and in the run",
     "SELECT abs((SELECT count(*) FROM orders) - (SELECT count(*) FROM new_order) - ?1)"},
    {12, "a customer's balance and payments are what was delivered",
     "WITH got(w, d, c, amount) AS (SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) FROM orders JOIN "
     "order_line"
     "  ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id WHERE ol_delivery_d IS NOT "
     "NULL GROUP BY 1, 2, 3)"
     " SELECT count(*) FROM customer LEFT JOIN got ON got.w = c_w_id AND got.d = c_d_id AND got.c "
     "= c_id"
     " WHERE c_balance + c_ytd_payment <> ifnull(got.amount, 0)"},
};

} // namespace

void check(Connection &connection, const Scale &scale, uint64_t delivered, const char *who)
{
    const int64_t all =
        scale.warehouses * DISTRICTS * scale.delivered() + static_cast<int64_t>(delivered);
    for (const Condition &condition : CONDITIONS) {
        bench::stop_if_asked();
        Statement broken(connection, condition.broken);
        const int64_t count = condition.number == 11 ? broken.ask(all) : broken.ask();
        if (count != 0)
            bench::fail("%s: TPC-C's consistency condition %d is broken %" PRId64 " times: %s", who,
                        condition.number, count, condition.what);
    }
}

} // namespace sqlite::tpcc
