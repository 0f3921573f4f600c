/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Does a transaction or a read make a system call? In the steady state none does, but for a look at the files every 10 ms:
 * the statements are prepared, and all that they need was used before (the memory of the cache and of the journal, the shared pages
 * of libato).
 *
 * A child process makes all transactions twice, to get into that state. Then a filter in the kernel (seccomp) ends it at the first
 * system call, whose number the child leaves in shared memory.
 */
#include "lab.h"

#include "support/child.h"

#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <execinfo.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <ostream>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

namespace sql
{

namespace
{

enum { ROWS = 8000, TRANSACTIONS = 1000, FIRST_NUMBER = 10 };

/* The rows take more than SQLite's cache holds. A row keeps its size when its number changes. */
const std::string TABLE = "CREATE TABLE item(id INTEGER PRIMARY KEY, number, body BLOB);"
                          "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<" +
                          std::to_string(ROWS) + ") INSERT INTO item SELECT i, " +
                          std::to_string(FIRST_NUMBER) + ", randomblob(400) FROM n";

enum class Work { Reads, Updates, UpdatesAndReads };
enum class Beside { None, IdleProcess, Connection };

/* ---- what a child leaves for its parent ---- */

struct Told {
    int done; /* transactions without a system call */
    int call; /* the number of the system call; -1: there was none */
    int depth;
    void *stack[14]; /* of the system call; the first two functions are those of the signal */
    char error[200];
};

Told *told;

/* Where the system call was made: a line for each function, which the next one called. */
std::string stack()
{
    std::string lines;
    char **names = backtrace_symbols(told->stack, told->depth);
    for (int i = 2; names && i < told->depth; i++)
        lines += std::string("\n  ") + names[i];
    std::free(names);
    return lines;
}

/* ---- the filter ---- */

void end_at_call(int, siginfo_t *info, void *)
{
    told->call = info->si_syscall;
    told->depth = backtrace(told->stack, sizeof(told->stack) / sizeof(*told->stack));
    _exit(1);
}

/* From here on this thread may only end the process, and look whether the files still have their names and their length: before a
 * commit, if that was not done within 10 ms. */
bool forbid_calls()
{
    static sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_newfstatat, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_statx, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
    };
    const sock_fprog filter = {sizeof(steps) / sizeof(*steps), steps};
    struct sigaction action = {};
    action.sa_sigaction = end_at_call;
    action.sa_flags = SA_SIGINFO;
    void *first_use[1];
    (void)backtrace(first_use, 1); /* loads a library */
    return sigaction(SIGSYS, &action, nullptr) == 0 &&
           prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

/* ---- transactions ---- */

enum { FAILED = 2, NO_FILTER = 3 };

[[noreturn]] void fail(const std::string &why)
{
    std::strncpy(told->error, why.c_str(), sizeof(told->error) - 1);
    _exit(FAILED);
}

class User
{
  public:
    explicit User(const std::string &path) : db(path)
    {
        if (db.opened != SQLITE_OK || db.run("PRAGMA synchronous=FULL") != SQLITE_OK ||
            !prepare("SELECT number FROM item WHERE id=?", &read) ||
            !prepare("UPDATE item SET number=number+1 WHERE id=?", &update))
            fail("cannot begin: " + db.error());
    }
    /* A log that was deleted is no reason to look for one before each transaction. */
    void had_a_log() const
    {
        if (db.run("PRAGMA journal_mode=WAL; UPDATE item SET number=number WHERE id=1;"
                   "PRAGMA journal_mode=DELETE") != SQLITE_OK)
            fail("cannot switch: " + db.error());
    }
    void updates(int id) const
    {
        once(update, id, SQLITE_DONE);
    }
    void reads(int id) const
    {
        once(read, id, SQLITE_ROW);
    }

  private:
    bool prepare(const char *statement, sqlite3_stmt **s) const
    {
        return sqlite3_prepare_v3(db.handle, statement, -1, SQLITE_PREPARE_PERSISTENT, s,
                                  nullptr) == SQLITE_OK;
    }
    /* A transaction of its own. */
    void once(sqlite3_stmt *s, int id, int expected) const
    {
        sqlite3_bind_int(s, 1, id);
        if (sqlite3_step(s) != expected || sqlite3_reset(s) != SQLITE_OK)
            fail("row " + std::to_string(id) + ": " + db.error());
    }
    Db db;
    sqlite3_stmt *read = nullptr, *update = nullptr;
};

/* The same rows each time. */
void work(const User *const users[2], Work what)
{
    for (int i = 0; i < TRANSACTIONS; i++) {
        const int id = 1 + i * 7919 % ROWS;
        if (what != Work::Reads)
            users[i % 2]->updates(id);
        if (what != Work::Updates)
            users[what == Work::Reads ? i % 2 : (i + 1) % 2]->reads(id);
        told->done++;
    }
}

/* Never returns: closing a database makes system calls. */
[[noreturn]] void work_without_calls(const std::string &path, Work what, bool has_two)
{
    /* The allocator keeps all the memory that it has got. */
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_MMAP_THRESHOLD, 1 << 25);
    mallopt(M_TOP_PAD, 1 << 24);
    const User first(path);
    first.had_a_log();
    const User *second = has_two ? new User(path) : &first;
    const User *const users[] = {&first, second};
    for (int times = 0; times < 2; times++)
        work(users, what);
    told->done = 0;
    if (!forbid_calls())
        _exit(NO_FILTER);
    work(users, what);
    _exit(0);
}

/* ---- parameters ---- */

struct Case {
    const char *name;
    Work work;
    Beside beside;
};

void PrintTo(const Case &c, std::ostream *out)
{
    *out << c.name;
}

using Parameters = std::tuple<const char *, Case>;

} // namespace

class SqliteSteady : public testing::TestWithParam<Parameters>
{
  protected:
    void SetUp() override
    {
        if (with_sanitizer())
            GTEST_SKIP() << "a sanitizer makes system calls itself";
        setenv("ATO_DURABILITY", std::get<0>(GetParam()), 1);
        told = static_cast<Told *>(
            mmap(nullptr, sizeof(Told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
        ASSERT_NE(told, MAP_FAILED);
        *told = {};
        told->call = -1;
    }
    void TearDown() override
    {
        if (told)
            munmap(told, sizeof(Told));
        told = nullptr;
        unsetenv("ATO_DURABILITY");
    }
    /* This process never has a database open: its children begin to use SQLite. */
    int make() const
    {
        return support::in_child([this] {
            const Db db(path);
            return db.run(TABLE) == SQLITE_OK ? 0 : 1;
        });
    }

    support::TempDir folder;
    const std::string path = folder / "steady.db";
};

TEST_P(SqliteSteady, TransactionsMakeNoSystemCall)
{
    const Case &c = std::get<1>(GetParam());
    Remote other;
    ASSERT_EQ(make(), 0);
    if (c.beside == Beside::IdleProcess) {
        ASSERT_EQ(other.open(path), SQLITE_OK) << other.error();
        ASSERT_EQ(other.run("UPDATE item SET number=number WHERE id=1"), SQLITE_OK)
            << other.error();
    }
    const int end = support::in_child(
        [&]() -> int { work_without_calls(path, c.work, c.beside == Beside::Connection); });
    if (end == NO_FILTER)
        GTEST_SKIP() << "there are no filters of system calls (seccomp) here";
    ASSERT_NE(end, FAILED) << "after " << told->done << " transactions: " << told->error;
    EXPECT_EQ(told->call, -1) << "the system call of this number (asm/unistd.h) was made after "
                              << told->done << " transactions, by" << stack();
    EXPECT_EQ(told->done, TRANSACTIONS);
    /* The process died with the database open. All of its transactions are there. */
    if (c.beside != Beside::IdleProcess) {
        ASSERT_EQ(other.open(path), SQLITE_OK) << other.error();
    }
    if (end == 0) {
        const int updates = c.work == Work::Reads ? 0 : 3 * TRANSACTIONS;
        EXPECT_EQ(other.text("SELECT sum(number) FROM item"),
                  std::to_string(ROWS * FIRST_NUMBER + updates));
    }
    EXPECT_EQ(other.text("PRAGMA integrity_check"), "ok");
    EXPECT_EQ(other.close(), SQLITE_OK);
}

static std::string name_of(const testing::TestParamInfo<Parameters> &info)
{
    const bool is_pmem = std::string(std::get<0>(info.param)) == "pmem";
    return std::string(std::get<1>(info.param).name) + (is_pmem ? "Pmem" : "Process");
}

INSTANTIATE_TEST_SUITE_P(
    Sqlite, SqliteSteady,
    testing::Combine(
        testing::Values("process", "pmem"),
        testing::Values(
            Case{"Reads", Work::Reads, Beside::None}, Case{"Updates", Work::Updates, Beside::None},
            Case{"UpdatesAndReads", Work::UpdatesAndReads, Beside::None},
            Case{"ReadsBesideAnIdleProcess", Work::Reads, Beside::IdleProcess},
            Case{"UpdatesBesideAnIdleProcess", Work::Updates, Beside::IdleProcess},
            Case{"ReadsByTwoConnections", Work::Reads, Beside::Connection},
            Case{"UpdatesByTwoConnections", Work::Updates, Beside::Connection},
            /* One connection reads what the other one has just changed. */
            Case{"UpdatesAndReadsByTwoConnections", Work::UpdatesAndReads, Beside::Connection})),
    name_of);

} // namespace sql
