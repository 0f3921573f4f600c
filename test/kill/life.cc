/* SPDX-License-Identifier: BSD-3-Clause */
#include "life.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <grp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <thread>

namespace herds
{

const char *const names[FILES] = {"a", "b", "tail"};

namespace
{

/* ---- where things lie ---- */

constexpr size_t PAGE = 4096, FILE_SIZE = 64 * PAGE, MOST_SIZE = 256 * PAGE;
constexpr size_t SHORT_BYTES = 96, LONG_BYTES = 3 * PAGE + 800, PAIR_BYTES = 200;

struct Range {
    File file;
    size_t at, n;
};

/* Neighbours share pages: the records of one kind lie close together. */
Range range_of(unsigned actor, unsigned record)
{
    switch (record) {
    case SHORT:
        return {A, 40 + actor * (SHORT_BYTES + 8), SHORT_BYTES};
    case LONG:
        return {A, 2 * PAGE + 1000 + actor * (LONG_BYTES + 24), LONG_BYTES};
    case PAIR_A:
        return {A, 40 * PAGE + 16 + actor * (PAIR_BYTES + 8), PAIR_BYTES};
    case PAIR_B:
        return {B, 3 * PAGE - 600 + actor * (PAIR_BYTES + 8), PAIR_BYTES};
    default: /* in each of the files */
        return {static_cast<File>(actor % FILES),
                (actor % FILES == TAIL ? 0 : 63 * PAGE) + 64 * (actor + 1), 8};
    }
}

constexpr unsigned ACCOUNTS = 36;
constexpr size_t FIRST_ACCOUNT = 44 * PAGE;

Range account(unsigned n)
{
    const size_t page = FIRST_ACCOUNT + n / 2 * PAGE;
    return {n % 2 ? B : A, n / 2 % 2 ? page + PAGE - 4 : page + 100 + n * 8, 8};
}

struct Leg {
    unsigned account;
    int64_t amount;
};

/* What a transfer moves; its amounts add up to 0. There are CYCLE different ones of each writer. */
constexpr uint64_t CYCLE = 32;

std::vector<Leg> transfer(unsigned actor, uint64_t number)
{
    rig::Random random(number % CYCLE * MOST_ACTORS + actor);
    std::vector<Leg> legs;
    int64_t sum = 0;
    for (uint64_t n = random.within(2, 5); n; n--) {
        const auto amount = static_cast<int64_t>(random.within(1, 90));
        legs.push_back({static_cast<unsigned>(random.below(ACCOUNTS)), n == 1 ? -sum : amount});
        sum += amount;
    }
    return legs;
}

/* The tail is as long as the number says that it begins with, and its last byte follows from it. */
constexpr uint64_t STEPS = 200;

uint64_t size_of_step(uint64_t step)
{
    return PAGE + step * 1000;
}

unsigned char end_of_step(uint64_t step)
{
    return step ? static_cast<unsigned char>(step % 251 + 1) : 0;
}

/* ---- a thread of a process ---- */

struct Process {
    Board &board;
    const Plan &plan;
    const std::string &folder;
    bool reader;
    rig::Map maps[FILES];
};

struct Life {
    Process &process;
    Board &board;
    const Plan &plan;
    unsigned self; /* its number among all threads; writers come first */
    rig::Random random;
    uint64_t seen[MOST_ACTORS][RECORDS] = {};

    Life(Process &p, unsigned number, uint64_t seed)
        : process(p), board(p.board), plan(p.plan), self(number), random(seed)
    {
    }
    unsigned char *at(const Range &r) const
    {
        return process.maps[r.file].base + r.at;
    }
};

[[noreturn]] __attribute__((format(printf, 2, 3))) void fail(const Process &p, const char *format,
                                                             ...)
{
    char text[400];
    const int error = errno;
    va_list args;
    va_start(args, format);
    std::vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (!__atomic_exchange_n(&p.board.failed, true, __ATOMIC_SEQ_CST))
        std::snprintf(p.board.why, sizeof(p.board.why), "a %s: %s (errno %d: %s)",
                      p.reader ? "reader" : "writer", text, error, ato_errormsg());
    _exit(1);
}

[[noreturn]] void fail(const Life &l, const std::string &what)
{
    fail(l.process, "%s", what.c_str());
}

/* ---- mapping ---- */

void map_file(Process &p, File file, int policy)
{
    ato_options o = rig::options(policy, p.plan.domain, p.plan.flags);
    o.max_size = MOST_SIZE;
    const int access = p.reader && p.plan.watch ? O_RDONLY : O_RDWR;
    rig::Descriptor opened(p.folder + "/" + names[file], access);
    if (opened.fd < 0)
        fail(p, "cannot open %s", names[file]);
    void *at = MAP_FAILED;
    /* A process that may only read waits until one that may write has recovered the file. */
    for (int tries = 0; at == MAP_FAILED && tries < 20000; tries++) {
        at = p.plan.plain
                 ? mmap(nullptr, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, opened.fd, 0)
                 : ato_mmap_opt(FILE_SIZE, opened.fd, 0, &o);
        if (at == MAP_FAILED && (errno != EAGAIN || access != O_RDONLY))
            fail(p, "cannot map %s", names[file]);
        if (at == MAP_FAILED)
            usleep(1000);
    }
    if (at == MAP_FAILED)
        fail(p, "cannot map %s for 20 s", names[file]);
    p.maps[file].base = static_cast<unsigned char *>(at);
    p.maps[file].n = FILE_SIZE;
}

void map_files(Process &p, rig::Random &random)
{
    const int policy = static_cast<int>(random.below(4));
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

struct Deadlock {
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
        if (errno != EDEADLK)
            fail(l, "within a transaction");
        throw Deadlock();
    }
};

void commit(const Life &l, ato_tx *tx)
{
    if (ato_tx_commit(tx) < 0)
        fail(l, "cannot commit");
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
        } catch (const Deadlock &) {
            abort = true;
        }
        if (abort && ato_tx_abort(t.tx) < 0)
            fail(l, "cannot abort");
        if (abort)
            continue;
        if (l.random.chance(95))
            return commit(l, t.tx);
        std::thread([&] {
            if (ato_tx_adopt(t.tx) < 0)
                fail(l, "cannot adopt");
            commit(l, t.tx);
        }).join();
        return;
    }
}

/* ---- what must be there ---- */

using Bytes = std::vector<unsigned char>;

uint64_t word_at(const unsigned char *at)
{
    uint64_t word;
    std::memcpy(&word, at, 8);
    return word;
}

/* Both records of a pair are noted as one. */
unsigned noted_as(unsigned record)
{
    return record == PAIR_B ? +PAIR_A : record;
}

uint64_t told_of(const Life &l, unsigned actor, unsigned record)
{
    return __atomic_load_n(&l.board.records[actor][noted_as(record)].told, __ATOMIC_SEQ_CST);
}

/* `told`: what had been told before these bytes were read. */
void judge(Life &l, unsigned actor, unsigned record, uint64_t told, const unsigned char *bytes)
{
    static const char *const what[] = {"short record", "long record", "pair", "pair", "receipt"};
    const size_t n = range_of(actor, record).n;
    const uint64_t stamp = word_at(bytes);
    uint64_t &seen = l.seen[actor][noted_as(record)];
    if (std::memcmp(bytes, bytes + 8, n - 8) != 0)
        fail(l.process, "the %s of %u is a mix, of %lu among others", what[record], actor, stamp);
    const uint64_t begun =
        __atomic_load_n(&l.board.records[actor][noted_as(record)].begun, __ATOMIC_SEQ_CST);
    if (stamp < told || stamp < seen || stamp > begun)
        fail(l.process, "the %s of %u is %lu: %lu was told, %lu seen and %lu begun", what[record],
             actor, stamp, told, seen, begun);
    seen = stamp;
}

/* The receipts, which are judged before, say what each account holds. `image`: of each file. */
void judge_accounts(Life &l, const Bytes (&image)[FILES])
{
    int64_t expected[ACCOUNTS] = {}, sum = 0;
    for (unsigned a = 0; a < l.plan.actors(); a++) {
        const Range r = range_of(a, RECEIPT);
        const uint64_t last = word_at(&image[r.file][r.at]);
        for (uint64_t i = 1; i <= CYCLE && i <= last; i++)
            for (const Leg &leg : transfer(a, i))
                expected[leg.account] += leg.amount * static_cast<int64_t>((last - i) / CYCLE + 1);
    }
    for (unsigned i = 0; i < ACCOUNTS; i++) {
        const Range r = account(i);
        const auto balance = static_cast<int64_t>(word_at(&image[r.file][r.at]));
        sum += balance;
        if (balance != expected[i])
            fail(l.process, "account %u holds %ld, not %ld", i, balance, expected[i]);
    }
    if (sum != 0)
        fail(l.process, "the sum of all accounts is %ld", sum);
}

void judge_tail(const Life &l, uint64_t step, uint64_t size, unsigned char last)
{
    if (size != size_of_step(step) || last != end_of_step(step))
        fail(l.process, "the tail of step %lu is %lu bytes long and ends with %u", step, size,
             last);
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
    /* What a killed process left may be in doubt until one that may write looks at it. */
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
    Bytes image[FILES] = {Bytes(FILE_SIZE), Bytes(FILE_SIZE), Bytes(PAGE)};
    uint64_t told[MOST_ACTORS];
    for (unsigned a = 0; a < l.plan.actors(); a++)
        told[a] = told_of(l, a, RECEIPT);
    transact(l, [&](Tx &tx) {
        for (unsigned i = 0; i < FILES; i++) {
            const Range r{static_cast<File>(i), i == TAIL ? 8 : FIRST_ACCOUNT, 0};
            tx.copy(&image[i][r.at], l.at(r), (i == TAIL ? 1000 : FILE_SIZE) - r.at);
        }
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

/* What the board says of the own record: its next operation. */
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
    auto write = [&]() -> const void * {
        if (l.plan.plain)
            return std::memcpy(l.at(r), words.data(), r.n);
        return ato_memcpy_opt(l.at(r), words.data(), r.n, flags);
    };
    noted.begin();
    while (!write()) /* a hardware transaction may abort for a while: nothing has changed */
        if (errno != EOPNOTSUPP)
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
const Deed of_small_writers[] = {
    {10, read_record},
    {30, [](Life &l) { write_record(l, SHORT); }},
    {30, [](Life &l) { write_record(l, LONG); }},
    {10, deploy},
};

void do_something(Life &l)
{
    if (l.plan.plain)
        write_record(l, LONG);
    else if (l.process.reader && l.plan.watch)
        read_record(l);
    else if (l.process.reader)
        l.random.weighted(of_readers).run(l);
    else if (l.plan.flags & ATO_RTM_ONLY)
        l.random.weighted(of_small_writers).run(l);
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
            std::exit(0); /* with the library's own clearing up, while the files are mapped */
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

/* Nobody else changes the files. */
void judge_image(Life &l, const Bytes (&image)[FILES])
{
    Bytes rest[FILES] = {image[A], image[B], {}};
    auto clear = [&](const Range &r) {
        if (r.file != TAIL)
            std::fill_n(&rest[r.file][r.at], r.n, 0);
    };
    for (unsigned a = 0; a < l.plan.actors(); a++)
        for (unsigned record = 0; record < RECORDS; record++) {
            const Range r = range_of(a, record);
            judge(l, a, record, told_of(l, a, record), &image[r.file][r.at]);
            clear(r);
        }
    for (unsigned i = 0; i < ACCOUNTS; i++)
        clear(account(i));
    judge_accounts(l, image);
    judge_tail(l, word_at(&image[TAIL][0]), image[TAIL].size(), image[TAIL].back());
    for (const Bytes &r : rest)
        if (std::any_of(r.begin(), r.end(), [](unsigned char c) { return c; }))
            fail(l, "bytes between the records have changed");
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
