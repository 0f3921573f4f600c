/* SPDX-License-Identifier: BSD-3-Clause */
#include "judge.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <grp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <thread>

namespace herds
{

const char *const names[FILES] = {"a", "b", "tail"};

namespace
{

/* ---- mapping ---- */

void map_file(Process &p, File file, int policy)
{
    ato_options o = rig::options(policy, p.plan.domain, p.plan.flags);
    o.max_size = MOST_SIZE;
    o.format = file % 2 ? ATO_FORMAT_SPARSE : ATO_FORMAT_DENSE; // commits to files of both formats
    const int access = p.reader && p.plan.watch ? O_RDONLY : O_RDWR;
    rig::Descriptor opened(p.folder + "/" + names[file], access);
    if (opened.fd < 0)
        fail(p, "cannot open %s", names[file]);
    void *at = MAP_FAILED;
    /* A read-only process waits until a writer has recovered the file. */
    for (int tries = 0; at == MAP_FAILED && tries < 20000; tries++) {
        at = p.plan.plain
                 ? mmap(nullptr, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, opened.fd, 0)
                 : ato_mmap_opt(FILE_SIZE, opened.fd, 0, &o);
        if (at == MAP_FAILED && (errno != EAGAIN || access != O_RDONLY))
            fail(p, "cannot map %s", names[file]);
        if (at != MAP_FAILED)
            break;
        if (__atomic_load_n(&p.board.stopping, __ATOMIC_RELAXED)) /* the writers have ended */
            _exit(0);
        usleep(1000);
    }
    if (at == MAP_FAILED)
        fail(p, "cannot map %s for 20 s", names[file]);
    p.maps[file].base = static_cast<unsigned char *>(at);
    p.maps[file].n = FILE_SIZE;
}

void map_files(Process &p, rig::Random &random)
{
    const int policy = ATO_READ_LAZY + static_cast<int>(random.below(3));
    const bool backwards = random.chance(50);
    for (unsigned i = 0; i < FILES; i++)
        map_file(p, static_cast<File>(backwards ? FILES - 1 - i : i), policy);
    if (p.board.objects[0][0] || p.plan.plain)
        return;
    const std::vector<std::string> objects = rig::shared_objects();
    for (unsigned i = 0; i < FILES && i < objects.size(); i++)
        std::snprintf(p.board.objects[i], 33 + 13, "%s", objects[i].c_str());
}

void unmap_files(Process &p, int mode)
{
    for (rig::Map &m : p.maps)
        if (m.unmap(mode) < 0)
            fail(p, "cannot unmap");
}

int any_mode(rig::Random &random)
{
    return random.chance(50) ? ATO_UNMAP_SPATIAL : ATO_UNMAP_FAST;
}

/* ---- transactions ---- */

struct Refusal {
};

struct Tx {
    Life &l;
    ato_tx *tx;

    void copy(void *to, const void *from, size_t n)
    {
        if (!ato_tx_memcpy(tx, to, from, n, 0))
            stumble();
    }
    void resize(uint64_t size)
    {
        if (ato_tx_ftruncate(tx, l.process.maps[TAIL].base, static_cast<off_t>(size)) < 0)
            stumble();
    }
    void stumble() const
    {
        if (errno != EAGAIN)
            fail(l, "within a transaction");
        throw Refusal();
    }
};

/* False: it is refused. */
bool commit(const Life &l, ato_tx *tx)
{
    if (ato_tx_commit(tx) == 0)
        return true;
    if (errno != EAGAIN || ato_tx_abort(tx) < 0)
        fail(l, "cannot commit");
    return false;
}

/* Some are aborted first, and some committed by another thread. */
template <class Body> void transact(Life &l, Body body)
{
    for (;;) {
        Tx t{l, ato_tx_begin(0)};
        if (!t.tx)
            fail(l, "cannot begin");
        bool abort = l.random.chance(10);
        try {
            body(t);
        } catch (const Refusal &) {
            abort = true;
        }
        if (abort && ato_tx_abort(t.tx) < 0)
            fail(l, "cannot abort");
        if (abort)
            continue;
        bool done = false;
        if (l.random.chance(95))
            done = commit(l, t.tx);
        else
            std::thread([&] { done = commit(l, t.tx); }).join();
        if (done)
            return;
    }
}

/* ---- reading ---- */

void read_record(Life &l)
{
    const auto actor = static_cast<unsigned>(l.random.below(l.plan.actors()));
    const auto record = static_cast<unsigned>(l.random.below(RECORDS));
    const Range r = range_of(actor, record);
    Bytes bytes(r.n);
    const uint64_t told = told_of(l, actor, record);
    if (ato_memcpy(bytes.data(), l.at(r), r.n))
        judge(l, actor, record, told, bytes.data());
    /* The outcome of a killed process's operation may be undecided until a writer looks at it. */
    else if (errno != EAGAIN || !l.process.reader || !l.plan.watch)
        fail(l, "cannot read");
}

void read_pair(Life &l)
{
    const auto actor = static_cast<unsigned>(l.random.below(l.plan.actors()));
    Bytes bytes(2 * PAIR_BYTES);
    const uint64_t told = told_of(l, actor, PAIR_A);
    transact(l, [&](Tx &tx) {
        const unsigned first = l.random.chance(50) ? PAIR_A : PAIR_B;
        tx.copy(&bytes[0], l.at(range_of(actor, first)), PAIR_BYTES);
        tx.copy(&bytes[PAIR_BYTES], l.at(range_of(actor, PAIR_A + PAIR_B - first)), PAIR_BYTES);
    });
    if (std::memcmp(&bytes[0], &bytes[PAIR_BYTES], PAIR_BYTES) != 0)
        fail(l, "the records of a pair differ");
    judge(l, actor, PAIR_A, told, &bytes[0]);
}

void read_accounts(Life &l)
{
    Bytes image[FILES] = {{}, Bytes(FILE_SIZE), {}};
    uint64_t told[MOST_ACTORS];
    for (unsigned a = 0; a < l.plan.actors(); a++)
        told[a] = told_of(l, a, RECEIPT);
    transact(l, [&](Tx &tx) {
        const Range r{B, FIRST_ACCOUNT, FILE_SIZE - FIRST_ACCOUNT};
        tx.copy(&image[B][r.at], l.at(r), r.n);
    });
    for (unsigned a = 0; a < l.plan.actors(); a++) {
        const Range r = range_of(a, RECEIPT);
        judge(l, a, RECEIPT, told[a], &image[r.file][r.at]);
    }
    judge_accounts(l, image);
}

void read_tail(Life &l)
{
    uint64_t step, size;
    unsigned char last;
    transact(l, [&](Tx &tx) {
        const rig::Map &tail = l.process.maps[TAIL];
        tx.copy(&step, tail.base, 8);
        size = tail.stat().size;
        tx.copy(&last, tail.base + size - 1, 1);
    });
    judge_tail(l, step, size, last);
}

/* ---- writing ---- */

/* The next operation of the own record, from the board. */
class Noted
{
  public:
    Noted(Life &l, unsigned record)
        : number(l.board.records[l.self][record].begun + 1), within(l.board.within[l.self]),
          at(l.board.records[l.self][record])
    {
    }
    void begin()
    {
        __atomic_store_n(&at.begun, number, __ATOMIC_SEQ_CST);
        within = true;
    }
    void done()
    {
        within = false;
        __atomic_store_n(&at.told, number, __ATOMIC_SEQ_CST);
    }

    uint64_t number;

  private:
    bool &within;
    decltype(Board::records[0][0]) &at;
};

void write_record(Life &l, unsigned record)
{
    const Range r = range_of(l.self, record);
    Noted noted(l, record);
    std::vector<uint64_t> words(r.n / 8, noted.number);
    const unsigned flags = l.random.chance(70) ? 0 : static_cast<unsigned>(l.random.below(4));
    noted.begin();
    if (l.plan.plain)
        std::memcpy(l.at(r), words.data(), r.n);
    else if (!ato_memcpy_opt(l.at(r), words.data(), r.n, flags))
        fail(l, "cannot write");
    noted.done();
}

void write_pair(Life &l)
{
    Noted noted(l, PAIR_A);
    std::vector<uint64_t> words(PAIR_BYTES / 8, noted.number);
    unsigned char *a = l.at(range_of(l.self, PAIR_A)), *b = l.at(range_of(l.self, PAIR_B));
    if (l.random.chance(50))
        std::swap(a, b);
    noted.begin();
    if (l.random.chance(50)) {
        ato_iovec v[] = {{a, words.data(), PAIR_BYTES}, {b, words.data(), PAIR_BYTES}};
        if (ato_writev(v, 2, 0) < 0)
            fail(l, "cannot write a pair");
    } else {
        transact(l, [&](Tx &tx) {
            tx.copy(a, words.data(), PAIR_BYTES);
            tx.copy(b, words.data(), PAIR_BYTES);
        });
    }
    noted.done();
}

void transfer_money(Life &l)
{
    Noted noted(l, RECEIPT);
    unsigned char *receipt = l.at(range_of(l.self, RECEIPT));
    transact(l, [&](Tx &tx) {
        tx.copy(&noted.number, receipt, 8);
        noted.number++;
        noted.begin();
        tx.copy(receipt, &noted.number, 8);
        for (const Leg &leg : transfer(l.self, noted.number)) {
            unsigned char *at = l.at(account(leg.account));
            int64_t balance;
            tx.copy(&balance, at, 8);
            balance += leg.amount;
            tx.copy(at, &balance, 8);
        }
    });
    noted.done();
}

void write_tail(Life &l)
{
    unsigned char *tail = l.process.maps[TAIL].base;
    const uint64_t next = l.random.below(STEPS), size = size_of_step(next);
    const unsigned char last = end_of_step(next);
    transact(l, [&](Tx &tx) {
        uint64_t step;
        tx.copy(&step, tail, 8);
        tx.resize(size);
        if (next > step) {
            Bytes grown(size - size_of_step(step));
            tx.copy(grown.data(), tail + size_of_step(step), grown.size());
            if (std::any_of(grown.begin(), grown.end(), [](unsigned char c) { return c; }))
                fail(l.process, "from step %lu to %lu the tail does not grow by zeros", step, next);
        }
        tx.copy(tail + size - 1, &last, 1);
        tx.copy(tail, &next, 8);
    });
}

void deploy(Life &l)
{
    const Range r = range_of(static_cast<unsigned>(l.random.below(l.plan.actors())), LONG);
    if (ato_deploy(l.at(r), r.n) < 0)
        fail(l, "cannot deploy");
    if (l.random.below(2) && ato_reclaim(l.at(r), r.n) < 0)
        fail(l, "cannot reclaim");
}

/* ---- whole lives ---- */

struct Deed {
    unsigned weight;
    void (*run)(Life &);
};

const Deed of_readers[] = {
    {65, read_record},
    {15, read_pair},
    {10, read_tail},
    {10, read_accounts},
};
const Deed of_writers[] = {
    {10, read_record},
    {3, read_pair},
    {2, read_accounts},
    {15, [](Life &l) { write_record(l, SHORT); }},
    {20, [](Life &l) { write_record(l, LONG); }},
    {20, write_pair},
    {15, transfer_money},
    {8, write_tail},
    {7, deploy},
};
/* By hardware transactions only, which do not span files. */
void do_something(Life &l)
{
    if (l.plan.plain)
        write_record(l, LONG);
    else if (l.process.reader && l.plan.watch)
        read_record(l);
    else if (l.process.reader)
        l.random.weighted(of_readers).run(l);
    else
        l.random.weighted(of_writers).run(l);
    l.board.done[l.self]++;
}

void live_as_thread(Life &l)
{
    while (!__atomic_load_n(&l.board.stopping, __ATOMIC_RELAXED)) {
        do_something(l);
        if (l.plan.threads > 1 || l.plan.plain)
            continue;
        if (l.random.below(60) == 0) {
            unmap_files(l.process, any_mode(l.random));
            map_files(l.process, l.random);
        }
        if (l.random.below(300) == 0)
            std::exit(0); /* exits with the files mapped */
    }
}

void become(const User &user)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (user.gid && (setgroups(0, nullptr) < 0 || setgid(user.gid) < 0))
        _exit(3);
    if (user.uid && setuid(user.uid) < 0)
        _exit(3);
    umask(002);
}

} // namespace

bool write_files(const Plan &plan, const rig::Folder &folder)
{
    const User &user = plan.users[0];
    auto give = [&](const std::string &path, mode_t mode) {
        return !user.gid ||
               (chown(path.c_str(), user.uid, user.gid) == 0 && chmod(path.c_str(), mode) == 0);
    };
    for (unsigned i = 0; i < FILES; i++)
        if (!rig::write_file(folder / names[i], Bytes(i == TAIL ? PAGE : FILE_SIZE)) ||
            !give(folder / names[i], 0660))
            return false;
    return give(folder.at, 02770);
}

void live(Board &board, const Plan &plan, const std::string &folder, unsigned n, uint64_t seed)
{
    Process p{board, plan, folder, n >= plan.writers, {}};
    rig::Random random(seed);
    become(plan.users[n % 2]);
    map_files(p, random);
    std::vector<std::thread> team;
    for (unsigned t = 1; t < plan.threads; t++)
        team.emplace_back([&, t] {
            Life l(p, n * plan.threads + t, seed + t);
            live_as_thread(l);
        });
    Life l(p, n * plan.threads, seed + plan.threads);
    live_as_thread(l);
    for (std::thread &t : team)
        t.join();
    if (!plan.plain)
        unmap_files(p, any_mode(random));
    _exit(0);
}

void look(Board &board, const Plan &plan, const std::string &folder, unsigned user, End end,
          uint64_t seed)
{
    Process p{board, plan, folder, false, {}};
    Life l(p, 0, seed);
    become(plan.users[user]);
    map_files(p, l.random);
    Bytes image[FILES];
    for (unsigned i = 0; i < FILES; i++) {
        image[i].resize(p.maps[i].stat().size);
        if (!ato_memcpy(image[i].data(), p.maps[i].base, image[i].size()))
            fail(l, "cannot read a whole file");
    }
    judge_image(l, image);
    if (end == End::Exit)
        std::exit(0);
    if (end == End::Abandon)
        _exit(0);
    unmap_files(p, end == End::Fast ? ATO_UNMAP_FAST : ATO_UNMAP_SPATIAL);
    for (unsigned i = 0; i < FILES && end == End::Spatial; i++)
        if (rig::read_file(folder + "/" + names[i]) != image[i])
            fail(p, "read(2) sees another content of %s", names[i]);
    _exit(0);
}

bool is_torn(const std::string &folder, unsigned actor)
{
    const Range r = range_of(actor, LONG);
    const Bytes file = rig::read_file(folder + "/" + names[r.file]);
    return std::memcmp(&file[r.at], &file[r.at + 8], r.n - 8) != 0;
}

} // namespace herds
