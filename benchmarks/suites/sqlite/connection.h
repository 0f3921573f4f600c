/* SPDX-License-Identifier: BSD-3-Clause */
/* A connection to a database and its statements. Each error but SQLITE_BUSY ends the program with a sentence. */
#ifndef ATO_BENCHMARKS_SUITES_SQLITE_CONNECTION_H
#define ATO_BENCHMARKS_SUITES_SQLITE_CONNECTION_H

#include <cstdint>
#include <sqlite3.h>
#include <string>
#include <string_view>

namespace sqlite
{

/* Thrown where SQLite answers SQLITE_BUSY although its busy handler has waited. */
struct Busy {
};

class Connection
{
  public:
    /* For the use of one thread at a time. `vfs` null: SQLite's own. */
    explicit Connection(const std::string &database, const char *vfs = nullptr);
    ~Connection();
    Connection(const Connection &) = delete;
    Connection &operator=(const Connection &) = delete;

    void execute(const std::string &sql);
    std::string answer(const std::string &sql); /* the first column of the first row; "" if none */

    sqlite3 *handle() const
    {
        return db_;
    }

  private:
    sqlite3 *db_ = nullptr;
};

class Statement
{
  public:
    Statement(Connection &connection, const std::string &sql);
    ~Statement();
    Statement(const Statement &) = delete;
    Statement &operator=(const Statement &) = delete;

    /* Text and blobs stay the caller's until the call returns. */
    template <class... Values> void run(const Values &...values)
    {
        each([] {}, values...);
    }

    /* Calls `row` with each row. Returns how many there were. */
    template <class Row, class... Values> uint64_t each(const Row &row, const Values &...values)
    {
        const Ending ending(statement_);
        int column = 0;
        uint64_t rows = 0;
        (bind(++column, values), ...);
        for (; step(); rows++)
            row();
        return rows;
    }

    /* A number, of the only row. */
    template <class... Values> int64_t ask(const Values &...values)
    {
        int64_t answer = 0;
        each([&] { answer = number(0); }, values...);
        return answer;
    }

    /* Within `row`: columns are counted from 0. */
    int64_t number(int column) const
    {
        return sqlite3_column_int64(statement_, column);
    }

    bool is_null(int column) const
    {
        return sqlite3_column_type(statement_, column) == SQLITE_NULL;
    }

    std::string_view text(int column) const
    {
        const auto *bytes = static_cast<const char *>(sqlite3_column_blob(statement_, column));
        return {bytes ? bytes : "", static_cast<size_t>(sqlite3_column_bytes(statement_, column))};
    }

    int columns() const
    {
        return sqlite3_column_count(statement_);
    }

  private:
    struct Ending { /* a statement that is not reset keeps SQLite's lock */
        explicit Ending(sqlite3_stmt *of) : statement(of)
        {
        }
        ~Ending()
        {
            sqlite3_reset(statement);
        }
        sqlite3_stmt *statement;
    };

    void bind(int column, int64_t value)
    {
        sqlite3_bind_int64(statement_, column, value);
    }

    void bind(int column, std::string_view value)
    {
        sqlite3_bind_text(statement_, column, value.data(), static_cast<int>(value.size()),
                          SQLITE_STATIC);
    }

    void bind(int column, std::nullptr_t)
    {
        sqlite3_bind_null(statement_, column);
    }

    bool step();

    sqlite3_stmt *statement_ = nullptr;
};

} // namespace sqlite

#endif
