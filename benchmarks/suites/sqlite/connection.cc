/* SPDX-License-Identifier: BSD-3-Clause */
#include "connection.h"

#include "../../bench.h"

namespace sqlite
{

namespace
{

[[noreturn]] void fail_of(sqlite3 *db, const char *what)
{
    bench::fail("%s: %s (%d)", what, sqlite3_errmsg(db), sqlite3_extended_errcode(db));
}

} // namespace

Connection::Connection(const std::string &database, const char *vfs)
{
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    if (sqlite3_open_v2(database.c_str(), &db_, flags, vfs) != SQLITE_OK)
        fail_of(db_, database.c_str());
}

Connection::~Connection()
{
    if (sqlite3_close(db_) != SQLITE_OK)
        fail_of(db_, "close");
}

void Connection::execute(const std::string &sql)
{
    if (sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK)
        fail_of(db_, sql.c_str());
}

std::string Connection::answer(const std::string &sql)
{
    std::string first;
    Statement statement(*this, sql);
    statement.each([&] {
        if (first.empty())
            first = statement.text(0);
    });
    return first;
}

Statement::Statement(Connection &connection, const std::string &sql)
{
    if (sqlite3_prepare_v3(connection.handle(), sql.c_str(), -1, SQLITE_PREPARE_PERSISTENT,
                           &statement_, nullptr) != SQLITE_OK)
        fail_of(connection.handle(), sql.c_str());
}

Statement::~Statement()
{
    sqlite3_finalize(statement_);
}

bool Statement::step()
{
    const int r = sqlite3_step(statement_);
    if ((r & 0xff) == SQLITE_BUSY)
        throw Busy();
    if (r != SQLITE_ROW && r != SQLITE_DONE)
        fail_of(sqlite3_db_handle(statement_), sqlite3_sql(statement_));
    return r == SQLITE_ROW;
}

} // namespace sqlite
