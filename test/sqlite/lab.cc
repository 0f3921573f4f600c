/* SPDX-License-Identifier: BSD-3-Clause */
#include "lab.h"

#include <algorithm>
#include <csignal>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace sql
{

std::string fill(const std::string &table, int first, int last)
{
    return "WITH RECURSIVE n(i) AS (SELECT " + std::to_string(first) +
           " UNION ALL SELECT i+1 FROM n WHERE i<" + std::to_string(last) + ") INSERT INTO " +
           table + " SELECT i, CAST(randomblob(500) AS BLOB) FROM n";
}

/* ---- the other process ---- */

namespace
{

std::string answer(Db &db, char what, const std::string &words)
{
    switch (what) {
    case 'o':
        db = Db(words.substr(words.find('\n') + 1), words.substr(0, words.find('\n')));
        return std::to_string(db.opened);
    case 's':
        db = Db::stock(words);
        return std::to_string(db.opened);
    case 'r':
        return std::to_string(db.run(words));
    case 't':
        return db.text(words);
    case 'e':
        return db.error();
    default:
        return std::to_string(db.close());
    }
}

[[noreturn]] void serve(int fd)
{
    char request[4096];
    Db db;
    ssize_t n;
    while ((n = recv(fd, request, sizeof(request), 0)) > 0) {
        const std::string said =
            answer(db, *request, std::string(request + 1, static_cast<size_t>(n) - 1));
        if (send(fd, said.data(), std::max<size_t>(said.size(), 1), 0) < 0)
            break;
    }
    db.close();
    _exit(0);
}

} // namespace

Remote::Remote()
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        std::abort();
    std::fflush(nullptr);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::close(ends[0]);
        serve(ends[1]);
    }
    ::close(ends[1]);
    fd = ends[0];
}

Remote::~Remote()
{
    ::close(fd);
    if (pid > 0)
        waitpid(pid, nullptr, 0);
}

void Remote::kill()
{
    ::kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    pid = -1;
}

std::string Remote::ask(char what, const std::string &words)
{
    char said[4096];
    const std::string request = what + words;
    if (send(fd, request.data(), request.size(), MSG_NOSIGNAL) < 0)
        return "gone";
    const ssize_t n = recv(fd, said, sizeof(said), 0);
    return n > 0 ? std::string(said, static_cast<size_t>(n)) : "gone";
}

int Remote::number(char what, const std::string &words)
{
    return std::atoi(ask(what, words).c_str());
}

int Remote::open(const std::string &path, const std::string &parameters)
{
    return number('o', parameters + "\n" + path);
}

int Remote::open_stock(const std::string &path)
{
    return number('s', path);
}

int Remote::run(const std::string &statements)
{
    return number('r', statements);
}

std::string Remote::text(const std::string &statement)
{
    return ask('t', statement);
}

std::string Remote::error()
{
    return ask('e', "");
}

int Remote::close()
{
    return number('c', "");
}

/* ---- the folder ---- */

void Lab::make(const std::string &name, const std::string &first) const
{
    const Db db = Db::stock(path(name));
    MUST(db, first + ";CREATE TABLE t(a INTEGER PRIMARY KEY, b UNIQUE);"
                     "INSERT INTO t VALUES(1, 'one'), (2, 'two'), (3, 'three')");
}

bool Lab::give_to_nobody() const
{
    bool done = true;
    if (geteuid() == 0) {
        for (const std::string &name : support::names_in(folder.path()))
            done = done && chown(path(name).c_str(), NOBODY, NOBODY) == 0;
        done = done && chown(folder.path().c_str(), NOBODY, NOBODY) == 0;
    }
    return done;
}

std::string Lab::names() const
{
    std::string all;
    for (const std::string &name : support::names_in(folder.path()))
        if (name != ".ato")
            all += (all.empty() ? "" : " ") + name;
    return all;
}

size_t Lab::left() const
{
    return support::names_in(folder / ".ato").size();
}

std::string Lab::stock_sum(const std::string &file)
{
    const Db db = Db::stock(file, SQLITE_OPEN_READONLY);
    const std::string health = db.text("PRAGMA integrity_check");
    return health == "ok" ? db.text("SELECT sum(a) FROM t") : health;
}

} // namespace sql
