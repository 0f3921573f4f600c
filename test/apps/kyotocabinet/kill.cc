// SPDX-License-Identifier: BSD-3-Clause
//
// Kills a process in the midst of its transactions, again and again. Afterwards the database can be opened, each transaction is
// there wholly or not at all, and none that was acknowledged is lost.
//
//   kill FOLDER ROUNDS
#include <kchashdb.h>
#include <kcplantdb.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>

#include <sys/wait.h>
#include <unistd.h>

using namespace kyotocabinet;

namespace
{

constexpr int64_t ACCOUNTS = 500, EACH = 1000;
constexpr uint32_t MODES[] = {0, BasicDB::OAUTOTRAN};

void check(bool good, const BasicDB &db, const char *what)
{
    if (!good)
        throw std::runtime_error(std::string(what) + ": " + db.error().message());
}

std::string account(int64_t i)
{
    return "account " + std::to_string(i);
}

int64_t number(BasicDB &db, const std::string &key)
{
    std::string value;
    check(db.get(key, &value), db, "get");
    return strtoll(value.c_str(), nullptr, 10);
}

// Records change their lengths, so that some of them move.
void set(BasicDB &db, const std::string &key, int64_t n, std::mt19937 &dice)
{
    check(db.set(key, std::to_string(n) + std::string(1 + dice() % 200, ' ')), db, "set");
}

std::unique_ptr<BasicDB> open(bool tree, const std::string &path, uint32_t mode)
{
    std::unique_ptr<BasicDB> db;
    if (tree)
        db.reset(new TreeDB);
    else
        db.reset(new HashDB);
    check(db->open(path, BasicDB::OWRITER | BasicDB::OCREATE | mode), *db, "open");
    return db;
}

void fill(BasicDB &db)
{
    std::mt19937 dice(1);
    for (int64_t i = 0; i < ACCOUNTS; i++)
        set(db, account(i), EACH, dice);
    set(db, "counter", 0, dice);
}

// One transaction; by number, so that the process that looks knows it.
void transfer(BasicDB &db, int64_t k, std::mt19937 &dice)
{
    check(db.begin_transaction(true), db, "begin");
    const int64_t amount = dice() % 100;
    const std::string from = account(dice() % ACCOUNTS), to = account(dice() % ACCOUNTS);
    set(db, from, number(db, from) - amount, dice);
    set(db, to, number(db, to) + amount, dice);
    set(db, "counter", k, dice);
    const bool commits = dice() % 8 != 0;
    check(db.end_transaction(commits), db, "end");
    if (!commits && number(db, "counter") != k - 1)
        throw std::runtime_error("an aborted transaction has had an effect");
    if (!commits)
        transfer(db, k, dice);
}

// Commits and tells, until it is killed.
void live(bool tree, const std::string &path, uint32_t mode, int64_t k, uint32_t seed, int told)
{
    try {
        std::mt19937 dice(seed);
        std::unique_ptr<BasicDB> db = open(tree, path, mode);
        for (;;) {
            transfer(*db, ++k, dice);
            if (write(told, &k, sizeof(k)) != sizeof(k))
                _exit(1);
        }
    } catch (const std::exception &e) {
        fprintf(stderr, "a writer: %s\n", e.what());
        _exit(2);
    }
}

// Returns the number of the last transaction.
int64_t look(bool tree, const std::string &path, uint32_t mode, int64_t acknowledged)
{
    std::unique_ptr<BasicDB> db = open(tree, path, mode);
    int64_t sum = 0;
    for (int64_t i = 0; i < ACCOUNTS; i++)
        sum += number(*db, account(i));
    if (sum != ACCOUNTS * EACH)
        throw std::runtime_error("the sum is " + std::to_string(sum));
    if (db->count() != ACCOUNTS + 1)
        throw std::runtime_error("there are " + std::to_string(db->count()) + " records");
    const int64_t k = number(*db, "counter");
    if (k < acknowledged)
        throw std::runtime_error("lost: " + std::to_string(acknowledged) +
                                 " was acknowledged, there is " + std::to_string(k));
    check(db->close(), *db, "close");
    return k;
}

int64_t round(bool tree, const std::string &path, uint32_t mode, int64_t k, std::mt19937 &dice)
{
    int ends[2];
    if (pipe(ends) != 0)
        throw std::runtime_error("pipe");
    const uint32_t seed = dice();
    const pid_t child = fork();
    if (child == 0)
        live(tree, path, mode, k, seed, ends[1]);
    close(ends[1]);
    int64_t last = k, told;
    // Later in most rounds: opening takes a part of the time.
    const int commits = dice() % 4 ? 1 + static_cast<int>(dice() % 60) : 0;
    for (int i = 0; i < commits && read(ends[0], &told, sizeof(told)) == sizeof(told); i++)
        last = told;
    const timespec nap = {0, static_cast<long>(dice() % (commits ? 300000 : 3000000))};
    nanosleep(&nap, nullptr);
    kill(child, SIGKILL);
    while (read(ends[0], &told, sizeof(told)) == sizeof(told))
        last = told;
    close(ends[0]);
    int status;
    waitpid(child, &status, 0);
    if (WIFEXITED(status))
        throw std::runtime_error("the writer ended by itself");
    return look(tree, path, mode, last);
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 3)
        return 64;
    const int rounds = ::atoi(argv[2]);
    const uint32_t seed = static_cast<uint32_t>(time(nullptr));
    std::mt19937 dice(seed);
    int64_t last[2][2] = {};
    int passed = 0, i = 0;
    try {
        for (; i < rounds; i++) {
            const bool tree = i % 2, autotran = i / 2 % 2;
            const std::string path =
                std::string(argv[1]) + "/db" + (autotran ? "-auto" : "") + (tree ? ".kct" : ".kch");
            int64_t &k = last[tree][autotran];
            if (i < 4)
                fill(*open(tree, path, MODES[autotran]));
            k = round(tree, path, MODES[autotran], k, dice);
            passed++;
        }
    } catch (const std::exception &e) {
        printf("round %d, seed %u: %s\n", i, seed, e.what());
    }
    printf("commits: hash %lld and %lld, tree %lld and %lld\n", static_cast<long long>(last[0][0]),
           static_cast<long long>(last[0][1]), static_cast<long long>(last[1][0]),
           static_cast<long long>(last[1][1]));
    printf("%d passed, %d failed, 0 skipped\n", passed, passed < rounds);
    return passed < rounds;
}
