/* SPDX-License-Identifier: BSD-3-Clause */
#include "herd.h"

#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <grp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

namespace peers
{

namespace
{

constexpr size_t PAGE = 4096, FILE_SIZE = 64 * PAGE, MOST_SIZE = 256 * PAGE;
constexpr size_t SHORT_BYTES = 96, LONG_BYTES = 3 * PAGE + 800, PAIR_BYTES = 200;
enum File { A, B, TAIL, FILES };
const char *const names[FILES] = {"a", "b", "tail"};

uint64_t now_ms()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000 + static_cast<uint64_t>(t.tv_nsec) / 1000000;
}

struct Place {
    File file;
    size_t at, n;
};

// Neighbours share pages: short ones and pairs of all writers lie close together.
Place place_of(unsigned writer, unsigned record)
{
    switch (record) {
    case SHORT:
        return {A, 40 + writer * (SHORT_BYTES + 8), SHORT_BYTES};
    case LONG:
        return {A, 2 * PAGE + 1000 + writer * (LONG_BYTES + 24), LONG_BYTES};
    case PAIR_A:
        return {A, 40 * PAGE + 16 + writer * (PAIR_BYTES + 8), PAIR_BYTES};
    default:
        return {B, 3 * PAGE - 600 + writer * (PAIR_BYTES + 8), PAIR_BYTES};
    }
}

} // namespace

// In memory that all share and the dead leave behind.
struct Board {
    struct {
        uint64_t begun, told;
    } records[MOST_WRITERS][RECORDS];
    uint64_t progress[MOST], done[MOST], longest[MOST];
    int stopping;
    int failed;
    char why[800];
};

namespace
{

struct Life {
    Board *board;
    const Plan *plan;
    std::string folder;
    unsigned n; // its number
    rig::Random random;
    rig::Map maps[FILES];
    uint64_t seen[MOST_WRITERS][RECORDS];
    int policy;
    bool reader;
};

[[noreturn]] void fail(const Life &l, const char *format, ...)
{
    char text[300];
    int error = errno;
    va_list args;
    va_start(args, format);
    std::vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (!__atomic_exchange_n(&l.board->failed, 1, __ATOMIC_SEQ_CST))
        std::snprintf(l.board->why, sizeof(l.board->why), "%s %u: %s (errno %d: %s)",
                      l.reader ? "reader" : "writer", l.n, text, error, ato_errormsg());
    _exit(1);
}

class Clock
{
  public:
    explicit Clock(const Life &l) : life(l), from(now_ms())
    {
    }
    ~Clock()
    {
        uint64_t ms = now_ms() - from;
        if (ms > life.board->longest[life.n])
            life.board->longest[life.n] = ms;
    }

  private:
    const Life &life;
    uint64_t from;
};

unsigned char *address(const Life &l, const Place &p)
{
    return l.maps[p.file].base + p.at;
}

void map_files(Life &l)
{
    for (unsigned i = 0; i < FILES; i++) {
        ato_options o = rig::options(l.policy, l.plan->domain, l.plan->flags);
        o.max_size = MOST_SIZE;
        const int access = l.reader && l.plan->watch ? O_RDONLY : O_RDWR;
        rig::Descriptor file(l.folder + "/" + names[i], access);
        if (file.fd < 0)
            fail(l, "cannot open %s", names[i]);
        void *at = MAP_FAILED;
        Clock clock(l);
        // Who may only read waits for one who may write.
        for (int tries = 0; at == MAP_FAILED && tries < 20000; tries++) {
            at = ato_mmap_opt(FILE_SIZE, file.fd, 0, &o);
            if (at == MAP_FAILED && (errno != EAGAIN || access != O_RDONLY))
                fail(l, "cannot map %s", names[i]);
            if (at == MAP_FAILED)
                usleep(1000);
        }
        if (at == MAP_FAILED)
            fail(l, "cannot map %s for 20 s", names[i]);
        l.maps[i] = rig::Map();
        l.maps[i].base = static_cast<unsigned char *>(at);
        l.maps[i].n = FILE_SIZE;
    }
}

void unmap_files(Life &l)
{
    const int mode = l.random.chance(50) ? ATO_UNMAP_SPATIAL : ATO_UNMAP_FAST;
    Clock clock(l);
    for (rig::Map &m : l.maps)
        if (m.unmap(mode) < 0)
            fail(l, "cannot unmap");
}

// All the same, and which.
uint64_t stamp_of(const Life &l, const std::vector<uint64_t> &words, const char *what)
{
    for (uint64_t w : words)
        if (w != words[0])
            fail(l, "%s is a mix of %llu and %llu", what, static_cast<unsigned long long>(words[0]),
                 static_cast<unsigned long long>(w));
    return words[0];
}

const char *name_of(unsigned record)
{
    static const char *const all[] = {"a short record", "a long record", "half of a pair",
                                      "half of a pair"};
    return all[record];
}

// The two of a pair are one to the board.
unsigned noted_as(unsigned record)
{
    return record == PAIR_B ? +PAIR_A : record;
}

void judge(Life &l, unsigned writer, unsigned record, uint64_t told, uint64_t stamp)
{
    record = noted_as(record);
    uint64_t begun = __atomic_load_n(&l.board->records[writer][record].begun, __ATOMIC_SEQ_CST);
    uint64_t &seen = l.seen[writer][record];
    if (stamp < told || stamp > begun || stamp < seen)
        fail(l, "%s of writer %u is %llu: %llu was told before, %llu seen, %llu begun",
             name_of(record), writer, static_cast<unsigned long long>(stamp),
             static_cast<unsigned long long>(told), static_cast<unsigned long long>(seen),
             static_cast<unsigned long long>(begun));
    seen = stamp;
}

uint64_t told_of(const Life &l, unsigned writer, unsigned record)
{
    return __atomic_load_n(&l.board->records[writer][noted_as(record)].told, __ATOMIC_SEQ_CST);
}

// False: of a transaction that was told that it cannot go on; it is over.
bool went(const Life &l, ato_tx *tx, bool good)
{
    if (good)
        return true;
    if (errno != EDEADLK)
        fail(l, "within a transaction");
    ato_tx_abort(tx);
    return false;
}

// ---- reading ----

void read_record(Life &l)
{
    unsigned writer = static_cast<unsigned>(l.random.below(l.plan->writers));
    unsigned record = static_cast<unsigned>(l.random.below(RECORDS));
    Place p = place_of(writer, record);
    std::vector<uint64_t> words(p.n / 8);
    uint64_t told = told_of(l, writer, record);
    Clock clock(l);
    const bool read = ato_memcpy(words.data(), address(l, p), p.n);
    // Of what somebody died with who may write, until one of those finds out.
    if (!read && errno == EAGAIN && l.reader && l.plan->watch)
        return;
    if (!read)
        fail(l, "cannot read");
    judge(l, writer, record, told, stamp_of(l, words, name_of(record)));
}

void read_pair(Life &l)
{
    unsigned writer = static_cast<unsigned>(l.random.below(l.plan->writers));
    std::vector<uint64_t> words(2 * PAIR_BYTES / 8);
    uint64_t told = told_of(l, writer, PAIR_A);
    Clock clock(l);
    ato_tx *tx = ato_tx_begin(0);
    Place a = place_of(writer, PAIR_A), b = place_of(writer, PAIR_B);
    if (l.random.chance(50)) {
        if (!went(l, tx, ato_tx_memcpy(tx, words.data(), address(l, a), PAIR_BYTES, 0)) ||
            !went(l, tx,
                  ato_tx_memcpy(tx, words.data() + PAIR_BYTES / 8, address(l, b), PAIR_BYTES, 0)))
            return;
    } else if (!went(l, tx, ato_tx_memcpy(tx, words.data(), address(l, b), PAIR_BYTES, 0)) ||
               !went(l, tx,
                     ato_tx_memcpy(tx, words.data() + PAIR_BYTES / 8, address(l, a), PAIR_BYTES,
                                   0))) {
        return;
    }
    if (ato_tx_commit(tx) < 0)
        fail(l, "cannot end a reading transaction");
    judge(l, writer, PAIR_A, told, stamp_of(l, words, "a pair"));
}

uint64_t size_of_step(uint64_t step)
{
    return PAGE + step * 1000;
}

constexpr uint64_t STEPS = 200;

void read_tail(Life &l)
{
    uint64_t step;
    Clock clock(l);
    ato_tx *tx = ato_tx_begin(0);
    if (!went(l, tx, ato_tx_memcpy(tx, &step, l.maps[TAIL].base, 8, 0)))
        return;
    struct ato_stat st = l.maps[TAIL].stat();
    if (st.size != size_of_step(step))
        fail(l, "step %llu, and %llu bytes long", static_cast<unsigned long long>(step),
             static_cast<unsigned long long>(st.size));
    unsigned char last = 0;
    if (!went(l, tx, ato_tx_memcpy(tx, &last, l.maps[TAIL].base + st.size - 1, 1, 0)))
        return;
    if (last != (step ? static_cast<unsigned char>(step % 251 + 1) : 0))
        fail(l, "step %llu ends with %u", static_cast<unsigned long long>(step), last);
    ato_tx_commit(tx);
}

// ---- writing ----

struct Stamp {
    Life &l;
    const unsigned record;
    uint64_t next;

    Stamp(Life &life, unsigned r) : l(life), record(r)
    {
        auto &at = l.board->records[l.n][record];
        next = at.begun + 1;
        __atomic_store_n(&at.begun, next, __ATOMIC_SEQ_CST);
    }
    void told()
    {
        __atomic_store_n(&l.board->records[l.n][record].told, next, __ATOMIC_SEQ_CST);
    }
};

void write_record(Life &l, unsigned record)
{
    Place p = place_of(l.n, record);
    Stamp stamp(l, record);
    std::vector<uint64_t> words(p.n / 8, stamp.next);
    Clock clock(l);
    if (!ato_memcpy_opt(address(l, p), words.data(), p.n,
                        l.random.chance(20)   ? ATO_EAGER
                        : l.random.chance(20) ? ATO_SKIP_EQUAL
                                              : 0))
        fail(l, "cannot write");
    stamp.told();
}

void write_pair(Life &l)
{
    Stamp stamp(l, PAIR_A);
    std::vector<uint64_t> words(PAIR_BYTES / 8, stamp.next);
    Place a = place_of(l.n, PAIR_A), b = place_of(l.n, PAIR_B);
    Clock clock(l);
    if (l.random.chance(50)) {
        ato_iovec v[] = {{address(l, a), words.data(), PAIR_BYTES},
                         {address(l, b), words.data(), PAIR_BYTES}};
        if (ato_writev(v, 2, 0) < 0)
            fail(l, "cannot write a pair");
        stamp.told();
        return;
    }
    for (;;) {
        ato_tx *tx = ato_tx_begin(0);
        bool swap = l.random.chance(50);
        const Place &x = swap ? b : a, &y = swap ? a : b;
        if (!went(l, tx, ato_tx_memcpy(tx, address(l, x), words.data(), PAIR_BYTES, 0)))
            continue;
        if (!went(l, tx, ato_tx_memcpy(tx, address(l, y), words.data(), PAIR_BYTES, 0)))
            continue;
        if (l.random.chance(10)) {
            ato_tx_abort(tx);
            continue;
        }
        if (ato_tx_commit(tx) < 0)
            fail(l, "cannot commit a pair");
        break;
    }
    stamp.told();
}

void write_tail(Life &l)
{
    Clock clock(l);
    for (;;) {
        uint64_t step, next = l.random.below(STEPS);
        ato_tx *tx = ato_tx_begin(0);
        if (!went(l, tx, ato_tx_memcpy(tx, &step, l.maps[TAIL].base, 8, 0)))
            continue;
        const uint64_t size = size_of_step(next);
        if (!went(l, tx, ato_tx_ftruncate(tx, l.maps[TAIL].base, static_cast<off_t>(size)) == 0))
            continue;
        // What is new is zeros.
        if (next > step) {
            std::vector<unsigned char> some(size - size_of_step(step));
            if (!went(l, tx,
                      ato_tx_memcpy(tx, some.data(), l.maps[TAIL].base + size_of_step(step),
                                    some.size(), 0)))
                continue;
            for (unsigned char c : some)
                if (c)
                    fail(l, "from step %llu to %llu grows %u",
                         static_cast<unsigned long long>(step),
                         static_cast<unsigned long long>(next), c);
        }
        const auto last = static_cast<unsigned char>(next ? next % 251 + 1 : 0);
        if (!went(l, tx, ato_tx_memcpy(tx, l.maps[TAIL].base + size - 1, &last, 1, 0)))
            continue;
        if (!went(l, tx, ato_tx_memcpy(tx, l.maps[TAIL].base, &next, 8, 0)))
            continue;
        if (ato_tx_commit(tx) < 0)
            fail(l, "cannot commit a size");
        return;
    }
}

// ---- lives ----

void do_something(Life &l)
{
    const bool plain = l.reader && l.plan->watch; // may not even hold pages
    const uint64_t dice = l.random.below(100);
    if (dice < 2) {
        unmap_files(l);
        map_files(l);
    } else if (plain || dice < (l.reader ? 70 : 20)) {
        read_record(l);
    } else if (dice < (l.reader ? 90 : 25)) {
        read_pair(l);
    } else if (l.reader) {
        read_tail(l);
    } else if (dice < 45) {
        write_record(l, SHORT);
    } else if (dice < 65) {
        write_record(l, LONG);
    } else if (dice < 80) {
        write_pair(l);
    } else if (dice < 90) {
        write_tail(l);
    } else {
        Place p = place_of(static_cast<unsigned>(l.random.below(l.plan->writers)), LONG);
        Clock clock(l);
        if (ato_deploy(address(l, p), p.n) < 0)
            fail(l, "cannot deploy");
    }
}

void become(const User &user)
{
    if (user.gid && (setgroups(0, nullptr) < 0 || setgid(user.gid) < 0))
        _exit(3);
    if (user.uid && setuid(user.uid) < 0)
        _exit(3);
    umask(002);
}

[[noreturn]] void run(Life &l)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    become(l.plan->users[l.n % 2]);
    map_files(l);
    while (!__atomic_load_n(&l.board->stopping, __ATOMIC_RELAXED)) {
        do_something(l);
        l.board->done[l.n]++;
        l.board->progress[l.n]++;
        if (l.random.below(2000) == 0)
            std::exit(0); // with all files mapped
    }
    unmap_files(l);
    std::fflush(nullptr);
    _exit(0);
}

} // namespace

Herd::Herd(const Plan &p) : plan(p), seed(rig::seed())
{
    board = static_cast<Board *>(
        mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    std::fill(std::begin(pids), std::end(pids), -1);
    std::fill(std::begin(progress), std::end(progress), 0);
    if (plan.users[0].gid && chown(folder.at.c_str(), plan.users[0].uid, plan.users[0].gid) == 0)
        (void)chmod(folder.at.c_str(), 02770);
}

Herd::~Herd()
{
    for (int pid : pids)
        if (pid > 0) {
            ::kill(pid, SIGKILL);
            waitpid(pid, nullptr, 0);
        }
    munmap(board, sizeof(Board));
}

bool Herd::write_files()
{
    for (const char *name : names) {
        const std::string path = folder / name;
        const bool tail = name == names[TAIL];
        if (!rig::write_file(path, std::vector<unsigned char>(tail ? PAGE : FILE_SIZE)))
            return false;
        if (plan.users[0].gid && (chown(path.c_str(), plan.users[0].uid, plan.users[0].gid) < 0 ||
                                  chmod(path.c_str(), plan.watch ? 0644 : 0660) < 0))
            return false;
    }
    return true;
}

void Herd::start(unsigned n)
{
    std::fflush(nullptr);
    const uint64_t own = seed++;
    int pid = fork();
    if (pid < 0) {
        std::perror("fork");
        std::abort();
    }
    if (pid == 0) {
        const bool reader = n >= plan.writers;
        Life l{board, &plan, folder.at, n, rig::Random(own), {}, {}, 0, reader};
        l.policy = static_cast<int>(l.random.below(4));
        run(l);
    }
    pids[n] = pid;
    since[n] = now_ms();
    progress[n] = board->progress[n];
}

// It is not there any more. False: it ended in another way than it should.
bool Herd::stop(unsigned n, std::string &wrong)
{
    int status;
    if (waitpid(pids[n], &status, 0) != pids[n])
        std::abort();
    pids[n] = -1;
    if ((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) ||
        (WIFEXITED(status) && WEXITSTATUS(status) == 0))
        return true;
    wrong = board->failed
                ? board->why
                : "process " + std::to_string(n) + " ended with status " + std::to_string(status);
    return false;
}

std::string Herd::look_at_progress()
{
    const uint64_t now = now_ms();
    for (unsigned n = 0; n < plan.writers + plan.readers; n++) {
        const uint64_t is = __atomic_load_n(&board->progress[n], __ATOMIC_RELAXED);
        if (is != progress[n]) {
            progress[n] = is;
            since[n] = now;
        } else if (pids[n] > 0 && now - since[n] > 30000) {
            ::kill(pids[n], SIGABRT);
            return "process " + std::to_string(n) + " has done nothing for 30 s";
        }
    }
    return board->failed ? board->why : "";
}

std::string Herd::live(uint64_t ms, rig::Random &random)
{
    const unsigned all = plan.writers + plan.readers;
    std::string wrong;
    for (unsigned n = 0; n < all; n++)
        start(n);
    for (const uint64_t end = now_ms() + ms; now_ms() < end && wrong.empty();) {
        usleep(static_cast<useconds_t>(random.log_uniform(20000)));
        for (unsigned n = 0; n < all; n++) {
            siginfo_t info = {};
            if (waitid(P_PID, static_cast<id_t>(pids[n]), &info, WEXITED | WNOHANG | WNOWAIT) ==
                    0 &&
                info.si_pid == pids[n]) {
                if (!stop(n, wrong))
                    return wrong;
                start(n);
            }
        }
        wrong = look_at_progress();
        // Now and then several at once; seldom all, so that somebody is the first again.
        const unsigned dice = static_cast<unsigned>(random.below(100));
        const uint64_t victims = dice == 0 ? all : dice < 15 ? 2 : 1;
        unsigned killed[MOST], nkilled = 0;
        for (uint64_t i = 0; i < victims; i++) {
            unsigned n = victims == all ? static_cast<unsigned>(i)
                                        : static_cast<unsigned>(random.below(all));
            if (::kill(pids[n], SIGKILL) == 0)
                killed[nkilled++] = n;
        }
        for (unsigned i = 0; i < nkilled; i++)
            if (pids[killed[i]] > 0) {
                kills++;
                if (!stop(killed[i], wrong))
                    return wrong;
            }
        for (unsigned n = 0; n < all; n++)
            if (pids[n] < 0)
                start(n);
    }
    return wrong;
}

// Of another user's shared memory, which nobody else can remove, the name may stay.
static bool is_bare(const std::string &name)
{
    struct stat st;
    return stat(("/dev/shm/" + name).c_str(), &st) < 0 || st.st_size == 0;
}

std::string Herd::end()
{
    std::string wrong;
    __atomic_store_n(&board->stopping, 1, __ATOMIC_SEQ_CST);
    for (unsigned n = 0; n < MOST; n++)
        if (pids[n] > 0 && !stop(n, wrong))
            return wrong;
    int pid = fork();
    if (pid == 0) {
        Life l{board, &plan, folder.at, 0, rig::Random(1), {}, {}, ATO_READ_GATHER, false};
        become(plan.users[0]);
        map_files(l);
        for (unsigned w = 0; w < plan.writers; w++)
            for (unsigned r = 0; r < RECORDS; r++) {
                Place p = place_of(w, r);
                std::vector<uint64_t> words(p.n / 8), plain(p.n / 8);
                if (!ato_memcpy(words.data(), address(l, p), p.n))
                    fail(l, "cannot read at last");
                judge(l, w, r, told_of(l, w, r), stamp_of(l, words, name_of(r)));
            }
        read_tail(l);
        const std::vector<std::string> objects = rig::shared_objects();
        for (rig::Map &m : l.maps)
            if (m.unmap(ATO_UNMAP_SPATIAL) < 0)
                fail(l, "cannot make plain");
        for (unsigned w = 0; w < plan.writers; w++)
            for (unsigned r = 0; r < RECORDS; r++) {
                Place p = place_of(w, r);
                std::vector<unsigned char> file = rig::read_file(folder / names[p.file]);
                std::vector<uint64_t> plain(p.n / 8);
                std::memcpy(plain.data(), &file[p.at], p.n);
                if (stamp_of(l, plain, "a plain record") != l.seen[w][noted_as(r)])
                    fail(l, "made plain, it is another record");
            }
        for (const std::string &object : objects) // of any generation
            for (const std::string &name : rig::names_in("/dev/shm"))
                if (("/dev/shm/" + name).compare(0, 46, object, 0, 46) == 0 && !is_bare(name))
                    fail(l, "%s is left", name.c_str());
        _exit(0);
    }
    pids[0] = pid;
    if (!stop(0, wrong))
        return wrong;
    for (const std::string &name : rig::names_in(folder / ".ato"))
        wrong += ".ato/" + name + " is left; ";
    return wrong;
}

uint64_t Herd::operations() const
{
    uint64_t sum = 0;
    for (unsigned n = 0; n < plan.writers; n++)
        sum += board->done[n];
    return sum;
}

uint64_t Herd::reads() const
{
    uint64_t sum = 0;
    for (unsigned n = plan.writers; n < plan.writers + plan.readers; n++)
        sum += board->done[n];
    return sum;
}

uint64_t Herd::longest_ms() const
{
    uint64_t most = 0;
    for (uint64_t ms : board->longest)
        most = std::max(most, ms);
    return most;
}

} // namespace peers
