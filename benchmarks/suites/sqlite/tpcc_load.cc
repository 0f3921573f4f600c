/* SPDX-License-Identifier: BSD-3-Clause */
/* TPC-C: the tables, and what is in them before the first transaction. See tpcc.h. */
#include "tpcc.h"

#include <numeric>
#include <vector>

namespace sqlite::tpcc
{

namespace
{

const char SCHEMA[] = R"(
CREATE TABLE warehouse(
    w_id INTEGER PRIMARY KEY, w_name TEXT, w_street_1 TEXT, w_street_2 TEXT, w_city TEXT, w_state TEXT, w_zip TEXT,
    w_tax INTEGER, w_ytd INTEGER);
CREATE TABLE district(
    d_w_id INTEGER, d_id INTEGER, d_name TEXT, d_street_1 TEXT, d_street_2 TEXT, d_city TEXT, d_state TEXT, d_zip TEXT,
    d_tax INTEGER, d_ytd INTEGER, d_next_o_id INTEGER,
    PRIMARY KEY(d_w_id, d_id)) WITHOUT ROWID;
CREATE TABLE customer(
    c_w_id INTEGER, c_d_id INTEGER, c_id INTEGER, c_first TEXT, c_middle TEXT, c_last TEXT,
    c_street_1 TEXT, c_street_2 TEXT, c_city TEXT, c_state TEXT, c_zip TEXT, c_phone TEXT, c_since INTEGER,
    c_credit TEXT, c_credit_lim INTEGER, c_discount INTEGER, c_balance INTEGER, c_ytd_payment INTEGER,
    c_payment_cnt INTEGER, c_delivery_cnt INTEGER, c_data TEXT,
    PRIMARY KEY(c_w_id, c_d_id, c_id));
CREATE INDEX customer_name ON customer(c_w_id, c_d_id, c_last, c_first);
CREATE TABLE history(
    h_c_id INTEGER, h_c_d_id INTEGER, h_c_w_id INTEGER, h_d_id INTEGER, h_w_id INTEGER, h_date INTEGER,
    h_amount INTEGER, h_data TEXT);
CREATE TABLE new_order(
    no_w_id INTEGER, no_d_id INTEGER, no_o_id INTEGER,
    PRIMARY KEY(no_w_id, no_d_id, no_o_id)) WITHOUT ROWID;
CREATE TABLE orders(
    o_w_id INTEGER, o_d_id INTEGER, o_id INTEGER, o_c_id INTEGER, o_entry_d INTEGER, o_carrier_id INTEGER,
    o_ol_cnt INTEGER, o_all_local INTEGER,
    PRIMARY KEY(o_w_id, o_d_id, o_id)) WITHOUT ROWID;
CREATE INDEX orders_customer ON orders(o_w_id, o_d_id, o_c_id, o_id);
CREATE TABLE order_line(
    ol_w_id INTEGER, ol_d_id INTEGER, ol_o_id INTEGER, ol_number INTEGER, ol_i_id INTEGER, ol_supply_w_id INTEGER,
    ol_delivery_d INTEGER, ol_quantity INTEGER, ol_amount INTEGER, ol_dist_info TEXT,
    PRIMARY KEY(ol_w_id, ol_d_id, ol_o_id, ol_number)) WITHOUT ROWID;
CREATE TABLE item(i_id INTEGER PRIMARY KEY, i_im_id INTEGER, i_name TEXT, i_price INTEGER, i_data TEXT);
CREATE TABLE stock(
    s_w_id INTEGER, s_i_id INTEGER, s_quantity INTEGER, s_dist_01 TEXT, s_dist_02 TEXT, s_dist_03 TEXT,
    s_dist_04 TEXT, s_dist_05 TEXT, s_dist_06 TEXT, s_dist_07 TEXT, s_dist_08 TEXT, s_dist_09 TEXT, s_dist_10 TEXT,
    s_ytd INTEGER, s_order_cnt INTEGER, s_remote_cnt INTEGER, s_data TEXT,
    PRIMARY KEY(s_w_id, s_i_id));
)";

std::string insert_sql(const std::string &table, int columns)
{
    std::string sql = "INSERT INTO " + table + " VALUES(?";
    for (int i = 1; i < columns; i++)
        sql += ", ?";
    return sql + ")";
}

class Loader
{
  public:
    Loader(Connection &connection, const Scale &scale)
        : scale_(scale), warehouse_(connection, insert_sql("warehouse", 9)),
          district_(connection, insert_sql("district", 11)),
          customer_(connection, insert_sql("customer", 21)),
          history_(connection, insert_sql("history", 8)),
          new_order_(connection, insert_sql("new_order", 3)),
          orders_(connection, insert_sql("orders", 8)),
          order_line_(connection, insert_sql("order_line", 10)),
          item_(connection, insert_sql("item", 5)), stock_(connection, insert_sql("stock", 17))
    {
    }

    void run()
    {
        for (int64_t i = 1; i <= scale_.items; i++)
            item_.run(i, r_.between(1, 10000), r_.letters(14, 24), r_.between(100, 10000), data());
        for (int64_t w = 1; w <= scale_.warehouses; w++) {
            warehouse_.run(w, r_.letters(6, 10), street(), street(), street(), state(), zip(),
                           r_.between(0, 2000), DISTRICTS * scale_.customers * FIRST_PAYMENT);
            for (int64_t i = 1; i <= scale_.items; i++)
                stock(w, i);
            for (int64_t d = 1; d <= DISTRICTS; d++)
                district(w, d);
        }
    }

  private:
    static constexpr int64_t FIRST_PAYMENT = 1000; /* 10.00 */

    void stock(int64_t w, int64_t i)
    {
        const auto info = [this] { return r_.letters(24, 24); };
        stock_.run(w, i, r_.between(10, 100), info(), info(), info(), info(), info(), info(),
                   info(), info(), info(), info(), 0, 0, 0, data());
    }

    void district(int64_t w, int64_t d)
    {
        district_.run(w, d, r_.letters(6, 10), street(), street(), street(), state(), zip(),
                      r_.between(0, 2000), scale_.customers * FIRST_PAYMENT, scale_.customers + 1);
        for (int64_t c = 1; c <= scale_.customers; c++)
            customer(w, d, c);
        std::vector<int64_t> customers(static_cast<size_t>(scale_.customers));
        std::iota(customers.begin(), customers.end(), 1);
        for (size_t i = customers.size(); i > 1; i--)
            std::swap(customers[i - 1],
                      customers[static_cast<size_t>(r_.between(0, static_cast<int64_t>(i) - 1))]);
        for (int64_t o = 1; o <= scale_.customers; o++)
            order(w, d, o, customers[static_cast<size_t>(o - 1)]);
    }

    void customer(int64_t w, int64_t d, int64_t c)
    {
        const int64_t name = c <= 1000 ? c - 1 : uneven(r_, 255, C_LAST_LOAD, 0, 999);
        customer_.run(w, d, c, r_.letters(8, 16), "OE", last_name(name), street(), street(),
                      street(), state(), zip(), r_.digits(16), 0, r_.percent(10) ? "BC" : "GC",
                      5000000, r_.between(0, 5000), -FIRST_PAYMENT, FIRST_PAYMENT, 1, 0,
                      r_.letters(300, 500));
        history_.run(c, d, w, d, w, 0, FIRST_PAYMENT, r_.letters(12, 24));
    }

    void order(int64_t w, int64_t d, int64_t o, int64_t customer)
    {
        const bool is_delivered = o <= scale_.delivered();
        const int64_t lines = r_.between(5, 15);
        if (is_delivered) {
            orders_.run(w, d, o, customer, 0, r_.between(1, 10), lines, 1);
        } else {
            orders_.run(w, d, o, customer, 0, nullptr, lines, 1);
            new_order_.run(w, d, o);
        }
        for (int64_t line = 1; line <= lines; line++) {
            const int64_t item = r_.between(1, scale_.items);
            if (is_delivered)
                order_line_.run(w, d, o, line, item, w, 0, 5, 0, r_.letters(24, 24));
            else
                order_line_.run(w, d, o, line, item, w, nullptr, 5, r_.between(1, 999999),
                                r_.letters(24, 24));
        }
    }

    std::string data()
    {
        std::string text = r_.letters(26, 50);
        if (r_.percent(10))
            text.replace(static_cast<size_t>(r_.between(0, static_cast<int64_t>(text.size()) - 8)),
                         8, "ORIGINAL");
        return text;
    }

    std::string street()
    {
        return r_.letters(10, 20);
    }

    std::string state()
    {
        return r_.letters(2, 2);
    }

    std::string zip()
    {
        return r_.digits(4) + "11111";
    }

    const Scale scale_;
    Random r_{511};
    Statement warehouse_, district_, customer_, history_, new_order_, orders_, order_line_, item_,
        stock_;
};

} // namespace

std::string last_name(int64_t number)
{
    static const char *const PARTS[] = {"BAR", "OUGHT", "ABLE",  "PRI",   "PRES",
                                        "ESE", "ANTI",  "CALLY", "ATION", "EING"};
    return std::string(PARTS[number / 100]) + PARTS[number / 10 % 10] + PARTS[number % 10];
}

void load(const std::string &file, unsigned page, const Scale &scale)
{
    Connection connection(file, "unix");
    connection.execute("PRAGMA page_size = " + std::to_string(page) +
                       "; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN;");
    connection.execute(SCHEMA);
    Loader(connection, scale).run();
    connection.execute("COMMIT; ANALYZE");
}

} // namespace sqlite::tpcc
