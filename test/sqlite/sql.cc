/* SPDX-License-Identifier: BSD-3-Clause */
#include "sql.h"

#include "ato_sqlite.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <utility>

namespace sql
{

static std::mutex log_lock;
static std::vector<std::string> sentences;

static void keep(void *, int, const char *sentence)
{
    std::lock_guard<std::mutex> held(log_lock);
    sentences.emplace_back(sentence);
}

std::vector<std::string> logged()
{
    std::lock_guard<std::mutex> held(log_lock);
    return std::exchange(sentences, {});
}

bool logged(const std::string &words)
{
    std::vector<std::string> all = logged();
    return std::any_of(all.begin(), all.end(),
                       [&](const std::string &s) { return s.find(words) != std::string::npos; });
}

void start(void (*before)())
{
    static const bool done = [before] {
        if (sqlite3_config(SQLITE_CONFIG_LOG, keep, nullptr) != SQLITE_OK)
            return false;
        if (before)
            before();
        return ato_vfs_register(0) == SQLITE_OK;
    }();
    if (!done)
        std::abort();
}

std::string uri(const std::string &path, const std::string &parameters)
{
    return "file:" + path + "?vfs=ato" + (parameters.empty() ? "" : "&" + parameters);
}

static constexpr int USUAL = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;

Db::Db(const std::string &path, const std::string &parameters, int flags)
{
    start();
    opened = sqlite3_open_v2(uri(path, parameters).c_str(), &handle,
                             (flags ? flags : USUAL) | SQLITE_OPEN_URI, nullptr);
}

Db Db::stock(const std::string &path, int flags)
{
    start();
    Db db;
    db.opened = sqlite3_open_v2(path.c_str(), &db.handle, (flags ? flags : USUAL) | SQLITE_OPEN_URI,
                                "unix");
    return db;
}

Db::~Db()
{
    close();
}

Db::Db(Db &&other) noexcept : handle(std::exchange(other.handle, nullptr)), opened(other.opened)
{
}

Db &Db::operator=(Db &&other) noexcept
{
    if (this != &other) {
        close();
        handle = std::exchange(other.handle, nullptr);
        opened = other.opened;
    }
    return *this;
}

int Db::close()
{
    return sqlite3_close(std::exchange(handle, nullptr));
}

int Db::run(const std::string &statements) const
{
    return sqlite3_exec(handle, statements.c_str(), nullptr, nullptr, nullptr);
}

std::string Db::error() const
{
    return std::string(sqlite3_errmsg(handle)) + " (" +
           std::to_string(sqlite3_extended_errcode(handle)) + ")";
}

std::string Db::text(const std::string &statement) const
{
    sqlite3_stmt *s = nullptr;
    std::string answer;
    int r = sqlite3_prepare_v2(handle, statement.c_str(), -1, &s, nullptr);
    if (r == SQLITE_OK && s) {
        r = sqlite3_step(s);
        const unsigned char *at = r == SQLITE_ROW ? sqlite3_column_text(s, 0) : nullptr;
        if (r == SQLITE_ROW)
            answer = at ? reinterpret_cast<const char *>(at) : "NULL";
        else if (r == SQLITE_DONE)
            answer = "-";
    }
    if (r != SQLITE_ROW && r != SQLITE_DONE)
        answer = "error: " + error();
    sqlite3_finalize(s);
    return answer;
}

int64_t Db::number(const std::string &statement) const
{
    const std::string answer = text(statement);
    char *end;
    const int64_t n = std::strtoll(answer.c_str(), &end, 10);
    return answer.empty() || *end ? -1 : n;
}

} // namespace sql
