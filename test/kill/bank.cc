/* SPDX-License-Identifier: BSD-3-Clause */
#include "bank.h"

#include <algorithm>
#include <cerrno>
#include <thread>

namespace kills
{

static constexpr size_t PAGE = 4096, PAGES = 20;
static constexpr int64_t OPENING = 1000;

Bank::Place Bank::account(unsigned n)
{
    size_t page = n / FILES;
    return {n % FILES, n / FILES % 2 ? (page + 1) * PAGE - 4 : page * PAGE + 100 + n * 8};
}

Bank::Place Bank::receipt(unsigned thread)
{
    return {thread % FILES, (PAGES + 1) * PAGE + 64 * thread};
}

size_t Bank::size()
{
    return (PAGES + 1) * PAGE + 1003;
}

std::vector<Bank::Leg> Bank::transfer(unsigned thread, uint64_t number)
{
    rig::Random random(number * THREADS + thread);
    std::vector<Leg> legs;
    int64_t sum = 0;
    for (uint64_t n = random.within(2, 5); n; n--) {
        auto amount = static_cast<int64_t>(random.within(1, 90));
        legs.push_back({static_cast<unsigned>(random.below(ACCOUNTS)), n == 1 ? -sum : amount});
        sum += amount;
    }
    return legs;
}

Bank::Bank(const rig::Folder &f) : folder(f / ".ato")
{
    std::fill(std::begin(balances), std::end(balances), OPENING);
    for (unsigned i = 0; i < FILES; i++)
        paths[i] = f / ("branch" + std::to_string(i));
}

Bank::~Bank()
{
    for (const std::string &object : objects)
        unlink(object.c_str());
}

bool Bank::write_files() const
{
    std::vector<std::vector<unsigned char>> files(FILES, std::vector<unsigned char>(size(), 0));
    for (unsigned i = 0; i < ACCOUNTS; i++)
        std::memcpy(&files[account(i).file][account(i).at], &OPENING, 8);
    for (unsigned i = 0; i < FILES; i++)
        if (!rig::write_file(paths[i], files[i]))
            return false;
    return true;
}

void Bank::hear(const std::vector<Note> &notes)
{
    for (const Note &n : notes) {
        if (n.say == Say::Object &&
            std::find(objects.begin(), objects.end(), n.text) == objects.end())
            objects.emplace_back(n.text);
        if (n.say == Say::Begin)
            begun[n.thread] = n.content.version;
        if (n.say == Say::Told) {
            told[n.thread] = n.content.version;
            acknowledged++;
        }
    }
}

static uint64_t number_at(const std::vector<std::vector<unsigned char>> &files, Bank::Place p)
{
    uint64_t n;
    std::memcpy(&n, &files[p.file][p.at], 8);
    return n;
}

std::string Bank::judge(const std::vector<std::vector<unsigned char>> &files) const
{
    int64_t expected[ACCOUNTS];
    std::copy(std::begin(balances), std::end(balances), expected);
    for (unsigned t = 0; t < THREADS; t++) {
        uint64_t found = number_at(files, receipt(t));
        std::string whose =
            "thread " + std::to_string(t) + "'s receipt is " + std::to_string(found);
        if (found < told[t])
            return whose + ", and " + std::to_string(told[t]) + " was acknowledged";
        if (found > begun[t])
            return whose + ", and " + std::to_string(begun[t]) + " was begun last";
        for (uint64_t k = receipts[t] + 1; k <= found; k++)
            for (const Leg &l : transfer(t, k))
                expected[l.account] += l.amount;
    }
    int64_t sum = 0;
    std::string wrong;
    for (unsigned i = 0; i < ACCOUNTS; i++) {
        auto balance = static_cast<int64_t>(number_at(files, account(i)));
        sum += balance;
        if (balance != expected[i] && wrong.empty())
            wrong = "account " + std::to_string(i) + " holds " + std::to_string(balance) +
                    ", not " + std::to_string(expected[i]);
    }
    if (sum != OPENING * ACCOUNTS)
        wrong += "; the sum is " + std::to_string(sum);
    return wrong;
}

void Bank::settle(const uint64_t (&found)[THREADS])
{
    for (unsigned t = 0; t < THREADS; t++) {
        for (uint64_t k = receipts[t] + 1; k <= found[t]; k++)
            for (const Leg &l : transfer(t, k))
                balances[l.account] += l.amount;
        receipts[t] = begun[t] = told[t] = found[t];
    }
}

std::string Bank::leftovers() const
{
    for (const std::string &name : rig::names_in(folder))
        return ".ato/" + name;
    for (const std::string &object : objects)
        if (std::filesystem::exists(object))
            return object;
    return "";
}

/* ---- who lives there ---- */

namespace
{

struct Branches {
    rig::Map maps[Bank::FILES];

    Branches(const Branch &b, const Bank &bank, const Teller &t)
    {
        for (unsigned i = 0; i < Bank::FILES; i++) {
            maps[i] =
                rig::Map(bank.path(i), Bank::size(), rig::options(b.policy, b.domain, b.flags));
            if (!maps[i].base)
                leave("cannot map " + bank.path(i) + ": " + ato_errormsg());
        }
        for (const std::string &object : rig::shared_objects())
            t.tell_text(Say::Object, object);
    }
    unsigned char *at(Bank::Place p) const
    {
        return maps[p.file].base + p.at;
    }
};

/* False: told EDEADLK, and aborted. */
bool went(ato_tx *tx, const void *result)
{
    if (result)
        return true;
    if (errno != EDEADLK)
        leave(std::string("in a transaction: ") + ato_errormsg());
    if (ato_tx_abort(tx) < 0)
        leave(std::string("cannot abort: ") + ato_errormsg());
    return false;
}

ato_tx *begin()
{
    ato_tx *tx = ato_tx_begin(0);
    if (!tx)
        leave(std::string("cannot begin: ") + ato_errormsg());
    return tx;
}

void commit(ato_tx *tx)
{
    if (ato_tx_commit(tx) < 0)
        leave(std::string("cannot commit: ") + ato_errormsg());
}

class Clerk
{
  public:
    Clerk(const Branches &b, unsigned self, uint64_t last, uint64_t seed, const Teller &t)
        : branches(b), thread(self), number(last), random(seed), teller(t)
    {
    }
    void work()
    {
        Note n{};
        n.say = Say::Begin;
        n.thread = thread;
        n.content.version = ++number;
        teller.tell(n);
        while (!transfer())
            ;
        n.say = Say::Told;
        teller.tell(n);
    }

  private:
    const Branches &branches;
    const unsigned thread;
    uint64_t number;
    rig::Random random;
    const Teller &teller;

    /* False: it came to nothing. */
    bool transfer()
    {
        ato_tx *tx = begin();
        for (const Bank::Leg &l : Bank::transfer(thread, number)) {
            unsigned char *at = branches.at(Bank::account(l.account));
            int64_t balance;
            if (!went(tx, ato_tx_memcpy(tx, &balance, at, 8, 0)))
                return false;
            balance += l.amount;
            if (!went(tx, ato_tx_memcpy(tx, at, &balance, 8, random.chance(5) ? ATO_EAGER : 0)))
                return false;
        }
        if (!went(tx, ato_tx_memcpy(tx, branches.at(Bank::receipt(thread)), &number, 8, 0)))
            return false;
        if (random.chance(10)) {
            ato_tx_abort(tx);
            return false;
        }
        if (random.chance(10))
            std::thread([tx] {
                if (ato_tx_adopt(tx) < 0)
                    leave(std::string("cannot adopt: ") + ato_errormsg());
                commit(tx);
            }).join();
        else
            commit(tx);
        return true;
    }
};

void count_all(const Branches &branches)
{
    std::vector<std::vector<unsigned char>> files(Bank::FILES);
    ato_tx *tx = begin();
    for (unsigned i = 0; i < Bank::FILES; i++) {
        files[i].resize(Bank::size());
        if (!went(tx, ato_tx_memcpy(tx, files[i].data(), branches.maps[i].base, Bank::size(), 0)))
            return;
    }
    commit(tx);
    int64_t sum = 0;
    for (unsigned i = 0; i < Bank::ACCOUNTS; i++)
        sum += static_cast<int64_t>(number_at(files, Bank::account(i)));
    if (sum != OPENING * Bank::ACCOUNTS)
        leave("a transaction reads a sum of " + std::to_string(sum));
}

} // namespace

void transfer_until_killed(const Branch &b, const Bank &bank, uint64_t seed, const Teller &t)
{
    Branches branches(b, bank, t);
    std::vector<std::thread> team;
    for (unsigned i = 0; i < Bank::THREADS; i++)
        team.emplace_back([&, i] {
            Clerk clerk(branches, i, bank.receipts[i], seed + i, t);
            for (;;)
                clerk.work();
        });
    for (;;) {
        count_all(branches);
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
}

void audit(const Branch &b, const Bank &bank, int unmap_mode, bool abandon, const Teller &t)
{
    Branches branches(b, bank, t);
    std::vector<std::vector<unsigned char>> files(Bank::FILES);
    for (unsigned i = 0; i < Bank::FILES; i++) {
        files[i].resize(Bank::size());
        if (!ato_memcpy(files[i].data(), branches.maps[i].base, Bank::size()))
            leave(std::string("cannot read: ") + ato_errormsg());
    }
    std::string wrong = bank.judge(files);
    if (!wrong.empty())
        leave(wrong);
    for (unsigned thread = 0; thread < Bank::THREADS; thread++) {
        Note n{};
        n.say = Say::Verdict;
        n.thread = thread;
        n.content.version = number_at(files, Bank::receipt(thread));
        t.tell(n);
    }
    if (abandon)
        leave("");
    for (rig::Map &m : branches.maps)
        if (m.unmap(unmap_mode) < 0)
            leave(std::string("cannot unmap: ") + ato_errormsg());
}

} // namespace kills
