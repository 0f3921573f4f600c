/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A bank whose accounts lie on many pages of three files, half of them over the ends of pages. A transfer
 * is a transaction: it moves money among some accounts and writes its number into the receipt of its
 * thread. What the k-th transfer of a thread moves follows from the two numbers alone. So the receipts
 * that are found after a kill say what every account has to hold, in whatever order the transfers were.
 */
#ifndef ATO_TEST_KILL_BANK_H
#define ATO_TEST_KILL_BANK_H

#include "process.h"

namespace kills
{

class Bank
{
  public:
    static constexpr unsigned FILES = 3, ACCOUNTS = 60, THREADS = 3;

    explicit Bank(const rig::Folder &folder);
    ~Bank(); /* removes what shared memory is left */
    Bank(const Bank &) = delete;
    Bank &operator=(const Bank &) = delete;

    struct Place {
        unsigned file;
        size_t at;
    };
    static Place account(unsigned n);
    static Place receipt(unsigned thread);
    static size_t size(); /* of each file */
    const std::string &path(unsigned file) const
    {
        return paths[file];
    }

    struct Leg {
        unsigned account;
        int64_t amount;
    };
    /* Their amounts add up to nothing. */
    static std::vector<Leg> transfer(unsigned thread, uint64_t number);

    bool write_files() const;

    /* What a process says that does transfers: Begin and Told, thread, content.version. */
    void hear(const std::vector<Note> &notes);

    /* What three files hold: "" if it is what has to be there; else what is wrong. */
    std::string judge(const std::vector<std::vector<unsigned char>> &files) const;
    /* Which was right, and is what there is from here on. */
    void settle(const uint64_t (&receipts)[THREADS]);
    std::string leftovers() const;

    int64_t balances[ACCOUNTS];      /* after the transfers of: */
    uint64_t receipts[THREADS] = {}; /* found last */
    uint64_t begun[THREADS] = {}, told[THREADS] = {};
    uint64_t acknowledged = 0;

  private:
    std::string paths[FILES], folder;
    std::vector<std::string> objects;
};

/* How to map the files. */
struct Branch {
    int policy, domain;
    unsigned flags;
};

/* Maps the files, and does transfers for ever: some are aborted first, some handed to another thread that
 * commits them; who is told EDEADLK begins anew. One more thread reads all accounts in a transaction. */
void transfer_until_killed(const Branch &b, const Bank &bank, uint64_t seed, const Teller &t);

/* Maps the files, and judges what it reads; tells the receipts. Then unmaps, or dies without. */
void audit(const Branch &b, const Bank &bank, int unmap_mode, bool abandon, const Teller &t);

} // namespace kills

#endif
