/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TPC-C: a terminal and its five transactions. See tpcc.h.
 *
 * The mix is dealt from decks of 100 cards: 45 new orders, 43 payments, and 4 of each other kind. A delivery is deferred, as in
 * clause 2.7.2: it waits until the terminal has done its next transaction. There are no keying and thinking times.
 *
 * Clause 2.4.1.4 rolls 1 % of the new orders back, for an item that is not there. In journal_mode=OFF SQLite cannot undo a change.
 * So each new order, on all sides, reads its items before it changes anything, and one that is rolled back has changed nothing.
 *
 * What a terminal would show is read from SQLite, but shown to nobody.
 */
#include "tpcc.h"

#include "../../bench.h"

#include <algorithm>
#include <vector>

namespace sqlite::tpcc
{

namespace
{

constexpr int64_t LEAST_QUANTITY = 10, REFILL = 91, LAST_ORDERS = 20;
constexpr size_t MAX_DATA = 500;

struct Line {
    int64_t item, warehouse, quantity;
};

/* By number; or by name, if number is 0. */
struct Customer {
    int64_t warehouse, district, number;
    std::string last;
};

} // namespace

struct Terminal::State {
    State(std::unique_ptr<Connection> opened, const Scale &s, unsigned n)
        : scale(s), home(n % s.warehouses + 1), own_district(n % DISTRICTS + 1), random(31415 + n),
          connection(std::move(opened))
    {
    }

    /* ---- The transactions ---- */

    void new_order();
    void payment();
    void order_status();
    void delivery(int64_t carrier);
    void stock_level();

    /* Calls body() within a transaction, which it ends: COMMIT, or ROLLBACK if body() returns false. */
    template <class Body> bool transact(Statement &begin, const Body &body);

    Customer draw_customer(int64_t warehouse, int64_t district);
    int64_t number_of(const Customer &customer);
    Kind draw_kind();

    int64_t now() /* a clock that only this terminal's transactions move */
    {
        return ++time;
    }

    template <class... Columns> void show(const Columns &...columns)
    {
        shown += (static_cast<uint64_t>(columns.size()) + ...);
    }

    const Scale scale;
    const int64_t home, own_district;
    Random random;
    std::vector<Kind> deck;
    std::vector<int64_t> deferred; /* the carriers of deliveries, the oldest first */
    bool is_due = false;           /* the oldest has waited for a transaction */
    int64_t time = 0;
    uint64_t shown = 0;
    Counts counts;

    std::unique_ptr<Connection> connection;
    Connection &c = *connection;
    Statement begin_to_read{c, "BEGIN"}, begin_to_write{c, "BEGIN IMMEDIATE"}, commit{c, "COMMIT"},
        rollback{c, "ROLLBACK"};

    Statement item{c, "SELECT i_price, i_name, i_data FROM item WHERE i_id = ?1"};
    Statement tax{c, "SELECT w_tax FROM warehouse WHERE w_id = ?1"};
    Statement district{c,
                       "SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = ?1 AND d_id = ?2"};
    Statement next_order{
        c, "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = ?1 AND d_id = ?2"};
    Statement discount{c, "SELECT c_discount, c_last, c_credit FROM customer"
                          " WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_id = ?3"};
    Statement insert_order{c, "INSERT INTO orders VALUES(?1, ?2, ?3, ?4, ?5, NULL, ?6, ?7)"};
    Statement insert_new_order{c, "INSERT INTO new_order VALUES(?1, ?2, ?3)"};
    Statement stock{c, "SELECT s_quantity, s_data, s_dist_01, s_dist_02, s_dist_03, s_dist_04,"
                       " s_dist_05, s_dist_06, s_dist_07, s_dist_08, s_dist_09, s_dist_10"
                       " FROM stock WHERE s_w_id = ?1 AND s_i_id = ?2"};
    Statement take_stock{c, "UPDATE stock SET s_quantity = ?3, s_ytd = s_ytd + ?4,"
                            " s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + ?5"
                            " WHERE s_w_id = ?1 AND s_i_id = ?2"};
    Statement insert_line{
        c, "INSERT INTO order_line VALUES(?1, ?2, ?3, ?4, ?5, ?6, NULL, ?7, ?8, ?9)"};

    Statement pay_warehouse{c, "UPDATE warehouse SET w_ytd = w_ytd + ?2 WHERE w_id = ?1"};
    Statement show_warehouse{c, "SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip"
                                " FROM warehouse WHERE w_id = ?1"};
    Statement pay_district{
        c, "UPDATE district SET d_ytd = d_ytd + ?3 WHERE d_w_id = ?1 AND d_id = ?2"};
    Statement show_district{c, "SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip"
                               " FROM district WHERE d_w_id = ?1 AND d_id = ?2"};
    Statement by_name{c, "SELECT c_id FROM customer WHERE c_w_id = ?1 AND c_d_id = ?2"
                         " AND c_last = ?3 ORDER BY c_first"};
    Statement show_customer{
        c, "SELECT c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip,"
           " c_phone, c_credit, c_balance, c_discount, c_credit_lim, c_since, c_data FROM customer"
           " WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_id = ?3"};
    Statement pay{c, "UPDATE customer SET c_balance = c_balance - ?4,"
                     " c_ytd_payment = c_ytd_payment + ?4, c_payment_cnt = c_payment_cnt + 1"
                     " WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_id = ?3"};
    Statement pay_bad_credit{
        c, "UPDATE customer SET c_balance = c_balance - ?4, c_ytd_payment = c_ytd_payment + ?4,"
           " c_payment_cnt = c_payment_cnt + 1, c_data = ?5"
           " WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_id = ?3"};
    Statement insert_history{c, "INSERT INTO history VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"};

    Statement balance{c, "SELECT c_balance, c_first, c_middle, c_last FROM customer"
                         " WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_id = ?3"};
    Statement last_order{c, "SELECT o_id, o_entry_d, o_carrier_id FROM orders WHERE o_w_id = ?1"
                            " AND o_d_id = ?2 AND o_c_id = ?3 ORDER BY o_id DESC LIMIT 1"};
    Statement lines{c, "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d"
                       " FROM order_line WHERE ol_w_id = ?1 AND ol_d_id = ?2 AND ol_o_id = ?3"};

    Statement oldest{c, "SELECT no_o_id FROM new_order WHERE no_w_id = ?1 AND no_d_id = ?2"
                        " ORDER BY no_o_id LIMIT 1"};
    Statement remove_new_order{
        c, "DELETE FROM new_order WHERE no_w_id = ?1 AND no_d_id = ?2 AND no_o_id = ?3"};
    Statement customer_of_order{
        c, "SELECT o_c_id FROM orders WHERE o_w_id = ?1 AND o_d_id = ?2 AND o_id = ?3"};
    Statement carry{c, "UPDATE orders SET o_carrier_id = ?4"
                       " WHERE o_w_id = ?1 AND o_d_id = ?2 AND o_id = ?3"};
    Statement deliver_lines{c, "UPDATE order_line SET ol_delivery_d = ?4"
                               " WHERE ol_w_id = ?1 AND ol_d_id = ?2 AND ol_o_id = ?3"};
    Statement amount{c, "SELECT sum(ol_amount) FROM order_line"
                        " WHERE ol_w_id = ?1 AND ol_d_id = ?2 AND ol_o_id = ?3"};
    Statement deliver_customer{c, "UPDATE customer SET c_balance = c_balance + ?4,"
                                  " c_delivery_cnt = c_delivery_cnt + 1"
                                  " WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_id = ?3"};

    Statement low{c, "SELECT count(DISTINCT s_i_id) FROM order_line CROSS JOIN stock"
                     " ON s_w_id = ol_w_id AND s_i_id = ol_i_id"
                     " WHERE ol_w_id = ?1 AND ol_d_id = ?2 AND ol_o_id >= ?3 AND ol_o_id < ?4"
                     " AND s_quantity < ?5"};
};

template <class Body> bool Terminal::State::transact(Statement &begin, const Body &body)
{
    const auto insist = [](Statement &statement) {
        for (;;)
            try {
                statement.run();
                return;
            } catch (Busy) {
                bench::stop_if_asked();
            }
    };
    for (;;)
        try {
            insist(begin);
            const bool keeps = body();
            insist(keeps ? commit : rollback);
            return keeps;
        } catch (Busy) { /* of a transaction that reads: the other ones have the lock */
            rollback.run();
            bench::stop_if_asked();
        }
}

Kind Terminal::State::draw_kind()
{
    if (deck.empty()) {
        deck.assign(100, STOCK_LEVEL);
        size_t at = 0;
        for (const auto &[kind, cards] : {std::pair<Kind, size_t>{NEW_ORDER, 45},
                                          {PAYMENT, 43},
                                          {ORDER_STATUS, 4},
                                          {DELIVERY, 4}}) {
            std::fill_n(deck.begin() + static_cast<ptrdiff_t>(at), cards, kind);
            at += cards;
        }
        for (size_t i = deck.size(); i > 1; i--)
            std::swap(deck[i - 1],
                      deck[static_cast<size_t>(random.between(0, static_cast<int64_t>(i) - 1))]);
    }
    const Kind kind = deck.back();
    deck.pop_back();
    return kind;
}

Customer Terminal::State::draw_customer(int64_t warehouse, int64_t district_id)
{
    Customer customer = {warehouse, district_id, 0, ""};
    if (random.percent(60))
        customer.last = last_name(uneven(random, 255, C_LAST_RUN, 0, 999) % names(scale));
    else
        customer.number = uneven(random, 1023, C_CUSTOMER, 1, scale.customers);
    return customer;
}

/* Clause 2.5.2.2: of several customers of a name the one in the middle, by the first name. */
int64_t Terminal::State::number_of(const Customer &customer)
{
    if (customer.number)
        return customer.number;
    std::vector<int64_t> found;
    by_name.each([&] { found.push_back(by_name.number(0)); }, customer.warehouse, customer.district,
                 customer.last);
    if (found.empty())
        bench::fail("there is no customer %s", customer.last.c_str());
    return found[(found.size() - 1) / 2];
}

void Terminal::State::new_order()
{
    const int64_t w = home, d = random.between(1, DISTRICTS),
                  customer = uneven(random, 1023, C_CUSTOMER, 1, scale.customers), at = now();
    std::vector<Line> order(static_cast<size_t>(random.between(5, 15)));
    bool is_local = true;
    for (Line &line : order) {
        line = {uneven(random, 8191, C_ITEM, 1, scale.items), w, random.between(1, 10)};
        if (scale.warehouses > 1 && random.percent(1)) {
            line.warehouse = random.between(1, scale.warehouses - 1);
            line.warehouse += line.warehouse >= w;
            is_local = false;
        }
    }
    if (random.percent(1))
        order.back().item = scale.items + 1;

    const bool is_done = transact(begin_to_write, [&] {
        std::vector<int64_t> prices;
        for (const Line &line : order)
            if (item.each(
                    [&] {
                        prices.push_back(item.number(0));
                        show(item.text(1), item.text(2));
                    },
                    line.item) == 0)
                return false;
        int64_t number = 0;
        shown += static_cast<uint64_t>(tax.ask(w));
        district.each([&] { number = district.number(0); }, w, d);
        next_order.run(w, d);
        discount.each([&] { show(discount.text(1), discount.text(2)); }, w, d, customer);
        insert_order.run(w, d, number, customer, at, order.size(), is_local);
        insert_new_order.run(w, d, number);
        for (size_t i = 0; i < order.size(); i++) {
            const Line &line = order[i];
            int64_t quantity = 0;
            std::string info;
            stock.each(
                [&] {
                    quantity = stock.number(0);
                    show(stock.text(1));
                    info = stock.text(static_cast<int>(d) + 1);
                },
                line.warehouse, line.item);
            quantity -= line.quantity;
            if (quantity < LEAST_QUANTITY)
                quantity += REFILL;
            take_stock.run(line.warehouse, line.item, quantity, line.quantity, line.warehouse != w);
            insert_line.run(w, d, number, i + 1, line.item, line.warehouse, line.quantity,
                            line.quantity * prices[i], info);
        }
        return true;
    });
    counts.rolled_back += !is_done;
}

void Terminal::State::payment()
{
    const int64_t w = home, d = random.between(1, DISTRICTS), paid = random.between(100, 500000),
                  at = now();
    Customer customer = draw_customer(w, d);
    if (scale.warehouses > 1 && random.percent(15)) {
        customer.warehouse = random.between(1, scale.warehouses - 1);
        customer.warehouse += customer.warehouse >= w;
        customer.district = random.between(1, DISTRICTS);
    }

    transact(begin_to_write, [&] {
        std::string warehouse_name, district_name, data;
        bool is_bad = false;
        pay_warehouse.run(w, paid);
        show_warehouse.each([&] { warehouse_name = show_warehouse.text(0); }, w);
        pay_district.run(w, d, paid);
        show_district.each([&] { district_name = show_district.text(0); }, w, d);
        const int64_t number = number_of(customer);
        show_customer.each(
            [&] {
                is_bad = show_customer.text(9) == "BC";
                data = show_customer.text(14);
                for (int column = 0; column < 9; column++)
                    show(show_customer.text(column));
            },
            customer.warehouse, customer.district, number);
        if (is_bad) {
            std::string note;
            for (const int64_t part : {number, customer.district, customer.warehouse, d, w, paid})
                note += std::to_string(part) + " ";
            data = (note + data).substr(0, MAX_DATA);
            pay_bad_credit.run(customer.warehouse, customer.district, number, paid, data);
        } else {
            pay.run(customer.warehouse, customer.district, number, paid);
        }
        insert_history.run(number, customer.district, customer.warehouse, d, w, at, paid,
                           warehouse_name + "    " + district_name);
        return true;
    });
}

void Terminal::State::order_status()
{
    const Customer customer = draw_customer(home, random.between(1, DISTRICTS));
    transact(begin_to_read, [&] {
        const int64_t number = number_of(customer);
        int64_t order = 0;
        balance.each([&] { show(balance.text(1), balance.text(2), balance.text(3)); },
                     customer.warehouse, customer.district, number);
        last_order.each([&] { order = last_order.number(0); }, customer.warehouse,
                        customer.district, number);
        shown += lines.each([&] { shown += static_cast<uint64_t>(lines.number(3)); },
                            customer.warehouse, customer.district, order);
        return true;
    });
}

void Terminal::State::delivery(int64_t carrier)
{
    const int64_t w = home, at = now();
    uint64_t delivered = 0;
    transact(begin_to_write, [&] {
        delivered = 0;
        for (int64_t d = 1; d <= DISTRICTS; d++) {
            const int64_t order = oldest.ask(w, d);
            if (!order)
                continue; /* clause 2.7.4.2: the district is skipped */
            remove_new_order.run(w, d, order);
            const int64_t customer = customer_of_order.ask(w, d, order);
            carry.run(w, d, order, carrier);
            deliver_lines.run(w, d, order, at);
            deliver_customer.run(w, d, customer, amount.ask(w, d, order));
            delivered++;
        }
        return true;
    });
    counts.delivered += delivered;
}

void Terminal::State::stock_level()
{
    const int64_t threshold = random.between(10, 20);
    transact(begin_to_read, [&] {
        const int64_t next = district.ask(home, own_district);
        shown +=
            static_cast<uint64_t>(low.ask(home, own_district, next - LAST_ORDERS, next, threshold));
        return true;
    });
}

Terminal::Terminal(std::unique_ptr<Connection> connection, const Scale &scale, unsigned number)
    : state_(std::make_unique<State>(std::move(connection), scale, number))
{
}

Terminal::~Terminal() = default;

const Counts &Terminal::counts() const
{
    return state_->counts;
}

void Terminal::run()
{
    State &s = *state_;
    Kind kind = DELIVERY;
    if (s.is_due) {
        s.delivery(s.deferred.front());
        s.deferred.erase(s.deferred.begin());
        s.is_due = !s.deferred.empty();
    } else {
        while ((kind = s.draw_kind()) == DELIVERY)
            s.deferred.push_back(s.random.between(1, 10));
        s.is_due = !s.deferred.empty();
        if (kind == NEW_ORDER)
            s.new_order();
        else if (kind == PAYMENT)
            s.payment();
        else if (kind == ORDER_STATUS)
            s.order_status();
        else
            s.stock_level();
    }
    s.counts.done[kind]++;
}

} // namespace sqlite::tpcc
