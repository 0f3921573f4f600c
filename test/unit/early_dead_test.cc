// SPDX-License-Identifier: BSD-3-Clause
//
// A process is killed at each step of an early commit, or of what brings early commits home to the file. Others go on at once: what
// they see is all of its commit or nothing, and nothing of others is lost; open snapshots read the same again.
#include "early_lab.h"
#include "support/dying.h"

#include <cstring>
#include <functional>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>

using namespace early_lab;

namespace
{

constexpr size_t ALL = 20 * PAGE, PLACE = 2 * PAGE - 99;

struct Deed {
    const char *name;
    std::function<bool(Mapped &)> act;
    std::function<void(Bytes &)> to;
};

class EarlyOfTheDead : public EarlyFile
{
  protected:
    void SetUp() override
    {
        content = pattern(ALL, 1);
        EarlyFile::SetUp();
    }
    std::vector<Deed> deeds()
    {
        const Bytes some = pattern(2 * PAGE + 150, ++seed);
        const std::vector<Piece> pieces = {{PLACE, some}, {9 * PAGE, Bytes(70, 3)}};
        const auto put_all = [=](Bytes &to) { put(to, pieces); };
        return {
            {"early",
             [=](Mapped &m) {
                 ato_promise own;
                 return commit_early(m, pieces, own) && ato_await(m.base, &own) == 0;
             },
             put_all},
            {"twice early",
             [=](Mapped &m) {
                 ato_promise first, own;
                 return commit_early(m, {{PLACE, some}}, first) &&
                        commit_early(m, {{9 * PAGE, Bytes(70, 3)}}, own) &&
                        ato_await(m.base, &own) == 0;
             },
             put_all},
            {"relaxed", [=](Mapped &m) { return m.write(PLACE, some, ATO_RELAXED); },
             [=](Bytes &to) {
                 put(to, {{PLACE, some}});
             }},
            {"ordinary", [=](Mapped &m) { return m.write(PLACE, some); },
             [=](Bytes &to) {
                 put(to, {{PLACE, some}});
             }},
            {"deploy", [](Mapped &m) { return ato_deploy(m.base, ALL) == 0; }, [](Bytes &) {}},
            {"word", [](Mapped &m) { return m.write(3 * PAGE, Bytes(8, 8), ATO_EAGER); },
             [](Bytes &to) {
                 put(to, {{3 * PAGE, Bytes(8, 8)}});
             }},
            {"read", [](Mapped &m) { return !m.read(0, ALL).empty(); }, [](Bytes &) {}},
            {"shorter", [](Mapped &m) { return ato_ftruncate(m.base, 3 * PAGE + 9) == 0; },
             [](Bytes &to) { to.resize(3 * PAGE + 9); }},
        };
    }
    // How the pages are before: 0: home; 1: in early copies; 2: these are durable; 3: and newer ones are not.
    void prepare(const Mapped &m, unsigned state)
    {
        ASSERT_EQ(ato_deploy(m.base, ALL), 0) << ato_errormsg();
        if (state) {
            early(m, {{2 * PAGE, pattern(PAGE + 70, ++seed)}});
        }
        if (state > 1) {
            ASSERT_EQ(ato_await(m.base, &promise), 0) << ato_errormsg();
        }
        durable = state == 1 ? Snap(m.base).copy() : content;
        if (state > 2) {
            early(m, {{2 * PAGE + 90, pattern(PAGE, ++seed)}, {15 * PAGE, Bytes(1, 1)}});
        }
    }
    // What others do first. The content may be any of these; afterwards it is decided.
    void go_on(Mapped &m, unsigned way, std::vector<Bytes> may_be)
    {
        const auto is_one = [&](const Bytes &seen) {
            return std::count(may_be.begin(), may_be.end(), seen) > 0;
        };
        const std::vector<Piece> bytes = {{2 * PAGE + 5, Bytes(1, 0x55)},
                                          {PAGE + 3, Bytes(1, 0x55)}};
        switch (way) {
        case 0:
            break;
        case 1: {
            const Bytes seen = m.read(0, 3 * PAGE); // which no commit cuts off
            EXPECT_TRUE(std::any_of(may_be.begin(), may_be.end(), [&](const Bytes &each) {
                return std::equal(seen.begin(), seen.end(), each.begin()) && !seen.empty();
            })) << m.sentence;
            break;
        }
        case 2:
            EXPECT_TRUE(commit_early(m, bytes, promise)) << ato_errormsg();
            break;
        case 3: {
            const Bytes seen = Snap(m.base).copy();
            EXPECT_TRUE(seen == durable || is_one(seen));
            break;
        }
        case 4:
            EXPECT_EQ(ato_deploy(m.base, 3 * PAGE), 0) << ato_errormsg();
            break;
        case 5:
            EXPECT_TRUE(m.write(bytes[0].at, bytes[0].bytes)) << m.sentence;
            EXPECT_TRUE(m.write(bytes[1].at, bytes[1].bytes)) << m.sentence;
            break;
        default:
            EXPECT_EQ(in_child([&] { // a process that maps the file now
                          const Mapped own(file, opt());
                          return own && is_one(newest(own)) ? 0 : 1;
                      }),
                      0);
            break;
        }
        if (way == 2 || way == 5)
            for (Bytes &each : may_be)
                put(each, bytes);
        EXPECT_EQ(ato_settle(m.base), 0) << ato_errormsg();
        content = newest(m);
        EXPECT_TRUE(is_one(content)) << "a part of a commit";
    }
    // Then all is as it should be.
    void check(Mapped &m, Snap &before, const Bytes &seen)
    {
        EXPECT_TRUE(before.copy() == seen) << before.sentence;
        EXPECT_EQ(await_all(m), 0) << ato_errormsg();
        EXPECT_TRUE(newest(m) == content);
        Snap now(m.base);
        EXPECT_TRUE(now.copy() == content) << now.sentence;
        EXPECT_TRUE(m.read(0, content.size()) == content) << m.sentence;
        const Bytes then = content;
        early(m, {{PAGE, pattern(2 * PAGE, ++seed)}});
        EXPECT_TRUE(now.copy() == then) << now.sentence;
        EXPECT_TRUE(before.copy() == seen) << before.sentence;
        ASSERT_EQ(ato_deploy(m.base, 3 * PAGE), 0) << ato_errormsg();
        EXPECT_TRUE(read_at(file, 0, content.size()) == content);
        EXPECT_TRUE(now.copy() == then) << now.sentence;
        EXPECT_TRUE(before.copy() == seen) << before.sentence;
        ASSERT_EQ(ato_ftruncate(m.base, ALL), 0) << ato_errormsg();
        content.resize(ALL);
    }

    unsigned seed = 1;
    Bytes durable;
};

TEST_F(EarlyOfTheDead, OthersGoOnFromAllOfACommitOrNothing)
{
    Mapped m(file, opt());
    ASSERT_TRUE(m && Snap(m.base)) << m.sentence;
    unsigned deaths = 0, way = 0;
    for (size_t which = 0; which < deeds().size(); which++)
        for (unsigned state = 0; state < 4; state++)
            for (int n = static_cast<int>(which + state) % 3;; n += 3) {
                const Deed deed = deeds()[which];
                SCOPED_TRACE(testing::Message() << deed.name << ", state " << state << ", step "
                                                << n << ", way " << way % 7);
                prepare(m, state);
                Bytes after = content;
                deed.to(after);
                Snap before(m.base);
                const Bytes seen = before.copy();
                EXPECT_TRUE(seen == durable) << before.sentence;
                const bool died = dies_at(n, file, opt(), deed.act);
                deaths += died;
                if (died)
                    go_on(m, way++ % 7, {content, after});
                else
                    go_on(m, way++ % 7, {after});
                check(m, before, seen);
                if (HasFailure())
                    return;
                if (!died)
                    break;
            }
    EXPECT_GT(deaths, 150u);
}

// And the process that takes over is killed, too.
TEST_F(EarlyOfTheDead, IsTakenOverByOneThatIsKilled)
{
    Mapped m(file, opt());
    ASSERT_TRUE(m && Snap(m.base)) << m.sentence;
    unsigned deaths = 0, way = 0;
    for (unsigned state = 0; state < 4; state++)
        for (int first = 2; first < 40; first += 4) // within the commit
            for (int n = static_cast<int>(state); n < 40; n += 12) {
                const Deed deed = deeds()[0];
                SCOPED_TRACE(testing::Message() << "state " << state << ", step " << first
                                                << ", then " << n << ", way " << way % 7);
                prepare(m, state);
                Bytes after = content;
                deed.to(after);
                Snap before(m.base);
                const Bytes seen = before.copy();
                std::vector<Bytes> may_be = {content, after};
                if (!dies_at(first, file, opt(), deed.act))
                    may_be = {after};
                const Piece byte = {3 * PAGE, Bytes(1, 4)};
                const bool died = dies_at(n, file, opt(), [&](Mapped &own) {
                    return !newest(own).empty() && own.write(byte.at, byte.bytes) &&
                           ato_deploy(own.base, 3 * PAGE) == 0;
                });
                deaths += died;
                std::vector<Bytes> both = may_be;
                for (Bytes &each : may_be)
                    put(each, {byte});
                if (died)
                    may_be.insert(may_be.end(), both.begin(), both.end());
                go_on(m, way++ % 7, may_be);
                check(m, before, seen);
                if (HasFailure())
                    return;
            }
    EXPECT_GT(deaths, 40u);
}

// A number, which is the same in several pages, and goes up by one with each commit.
class EarlyHerd : public EarlyFile
{
  protected:
    static constexpr size_t CELLS = 4,
                            PLACES[CELLS] = {PAGE, 3 * PAGE + 8, 4 * PAGE + 800, 9 * PAGE};

    void SetUp() override
    {
        content = Bytes(ALL);
        EarlyFile::SetUp();
        write_file(dir / "lock", Bytes(1));
    }
    static uint64_t number_in(const Bytes &all, bool &whole)
    {
        uint64_t numbers[CELLS];
        for (size_t i = 0; i < CELLS; i++)
            memcpy(&numbers[i], &all[PLACES[i]], 8);
        whole = whole && std::equal(numbers + 1, numbers + CELLS, numbers);
        return numbers[0];
    }
    // As a database: with a lock of its own.
    bool commit_once(const Mapped &m, int lock, unsigned way)
    {
        bool whole = true;
        flock(lock, LOCK_EX);
        if (ato_settle(m.base) < 0)
            return false;
        const uint64_t next = number_in(newest(m), whole) + 1;
        std::vector<Piece> pieces;
        for (const size_t at : PLACES) {
            Bytes bytes(8 + (way * 97 + at) % 500);
            memcpy(bytes.data(), &next, 8);
            pieces.push_back({at, bytes});
        }
        ato_promise own;
        const bool relaxed = way % 3 == 1;
        if (!commit_early(m, pieces, relaxed ? nullptr : &own))
            return false;
        flock(lock, LOCK_UN);
        if (!relaxed && ato_await(m.base, &own) < 0)
            return false;
        raise(next);
        return whole;
    }
    void raise(uint64_t number)
    {
        uint64_t is = __atomic_load_n(done, __ATOMIC_RELAXED);
        while (is < number && !__atomic_compare_exchange_n(done, &is, number, false,
                                                           __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
            ;
    }
    pid_t start(unsigned which)
    {
        const pid_t pid = fork();
        if (pid)
            return pid;
        alarm(30);
        ato_options o = opt();
        o.log_bytes = 64 << 10;
        Mapped m(file, o);
        Fd lock(dir / "lock", O_RDWR), locks_too(dir / "lock", O_RDWR);
        std::thread other([&] { // in one of them there are two threads
            while (which == 0 && m && commit_once(m, locks_too, 9))
                ;
        });
        for (unsigned i = 0; m; i++) {
            if (!commit_once(m, lock, i))
                break;
            if (which == 1 && i % 8 == 0 && ato_deploy(m.base, PAGE) < 0)
                break;
            if (which == 2 && i % 4 == 0 && !m.write(15 * PAGE, Bytes(PAGE, 5)))
                break;
        }
        fprintf(stderr, "process %u: %s %s\n", which, m.sentence.c_str(), ato_errormsg());
        _exit(1);
    }

    // The greatest number that is acknowledged, for all processes.
    uint64_t *done = static_cast<uint64_t *>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
};

TEST_F(EarlyHerd, LosesNothingWhenProcessesAreKilled)
{
    constexpr unsigned N = 3;
    ato_options o = opt();
    o.log_bytes = 64 << 10;
    Mapped m(file, o);
    ASSERT_TRUE(m && Snap(m.base)) << m.sentence;
    pid_t pids[N];
    for (unsigned i = 0; i < N; i++)
        pids[i] = start(i);
    unsigned kills = 0;
    uint64_t seed = 1;
    for (int round = 0; round < 40 && !HasFailure(); round++) {
        for (int i = 0; i < 12; i++) {
            bool whole = true;
            const uint64_t least = __atomic_load_n(done, __ATOMIC_SEQ_CST);
            Snap snap(m.base);
            const Bytes seen = snap.copy();
            ASSERT_FALSE(seen.empty()) << snap.sentence;
            EXPECT_GE(number_in(seen, whole), least);
            if (i % 4 == 0) {
                const Bytes read = m.read(0, ALL);
                ASSERT_FALSE(read.empty()) << m.sentence;
                EXPECT_GE(number_in(read, whole), number_in(seen, whole));
            }
            EXPECT_TRUE(whole) << "a part of a commit";
            EXPECT_TRUE(snap.copy() == seen) << snap.sentence;
        }
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        pid_t &pid = pids[(seed >> 40) % N];
        usleep(static_cast<useconds_t>((seed >> 33) % 3000));
        int status = 0;
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        EXPECT_TRUE(WIFSIGNALED(status)) << "it has failed";
        kills++;
        pid = start(static_cast<unsigned>(&pid - pids));
    }
    for (const pid_t pid : pids) {
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
    }
    bool whole = true;
    const uint64_t least = *done;
    EXPECT_GT(least, 20u);
    ASSERT_EQ(ato_settle(m.base), 0) << ato_errormsg();
    EXPECT_GE(number_in(newest(m), whole), least);
    EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    EXPECT_GE(number_in(read_file(file), whole), least);
    EXPECT_TRUE(whole);
    munmap(done, 4096);
}

} // namespace
