// SPDX-License-Identifier: BSD-3-Clause
//
// Are the writes of dead processes settled by ato_settle()? After it each of them is visible, or
// never will be.
#include "support/dying.h"
#include "support/faults.h"
#include "unit/watched.h"

extern "C" {
#include "reflection/media/seam.h"

#include "ato_engine.h"
}

#include <atomic>
#include <cerrno>
#include <thread>

using namespace watched;

namespace
{

struct Change {
    const char *name;
    std::function<bool(Mapped &)> make;
};

ato_options by_journal()
{
    ato_options o = options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, ATO_NO_RTM);
    o.max_size = 1 << 20;
    return o;
}

class Settle : public Reader
{
  protected:
    // A process that calls `deed` when it reaches `where` for the n-th time, from 0, in a call that
    // changes the file.
    template <typename Deed>
    pid_t change_until(const Change &change, enum seam_point where, int n, Deed deed)
    {
        static enum seam_point point;
        static int left;
        static Deed *then;
        const pid_t pid = fork();
        if (pid == 0) {
            point = where;
            left = n;
            then = &deed;
            Mapped m(path, by_journal());
            seam_hook = [](enum seam_point here, const void *) {
                if (here == point && left-- == 0)
                    (*then)();
            };
            change.make(m);
            _exit(1);
        }
        return pid;
    }
    int die_in(const Change &change, enum seam_point where, int n)
    {
        int status = 0;
        waitpid(change_until(change, where, n, [] { _exit(CUT); }), &status, 0);
        return WEXITSTATUS(status);
    }
    Bytes seen(Mapped &m)
    {
        const off_t size = ato_size(m.base);
        Bytes bytes(static_cast<size_t>(size));
        EXPECT_TRUE(ato_memcpy(bytes.data(), m.base, bytes.size())) << ato_errormsg();
        return bytes;
    }

    Mapped idle{path, by_journal()};
    Pipe about_to;
    const std::vector<Change> changes = {
        {"a slice", [](Mapped &m) { return m.write(100, pattern(60, 7)); }},
        {"three pages", [](Mapped &m) { return m.write(3000, pattern(9000, 8)); }},
        {"longer", [](Mapped &m) { return ato_ftruncate(m.base, SIZE + 5000) == 0; }},
        {"shorter", [](Mapped &m) { return ato_ftruncate(m.base, 5000) == 0; }},
        {"in a transaction",
         [](Mapped &m) {
             ato_tx *tx = ato_tx_begin(0);
             const Bytes part = pattern(9000, 9);
             return ato_tx_memcpy(tx, m.base + 4000, part.data(), part.size(), 0) &&
                    ato_tx_ftruncate(tx, m.base, 30000) == 0 && ato_tx_commit(tx) == 0;
         }},
    };
};

TEST_F(Settle, SucceedsWithoutAnotherProcess)
{
    EXPECT_EQ(ato_settle(idle.base + 17), 0) << ato_errormsg();
    int none;
    EXPECT_EQ(ato_settle(&none), -1);
    EXPECT_EQ(errno, EINVAL);
}

// Without ato_settle() a read may differ before and after another process takes over the pages of
// the dead process.
TEST_F(Settle, WriteOfADeadProcessIsVisibleAtOnceOrNever)
{
    for (const Change &change : changes)
        for (enum seam_point where : {SEAM_DURABLE, SEAM_FLIP, SEAM_FLIPPING, SEAM_FLIPPED})
            for (int n : {0, 1, 2}) {
                SCOPED_TRACE(std::string(change.name) + ", point " + std::to_string(where) + "/" +
                             std::to_string(n));
                if (die_in(change, where, n) != CUT)
                    continue;
                ASSERT_EQ(ato_settle(idle.base), 0) << ato_errormsg();
                const Bytes at_once = seen(idle);
                Mapped another(path, by_journal());
                EXPECT_EQ(seen(another), at_once);
                ASSERT_EQ(ato_ftruncate(another.base, SIZE), 0) << ato_errormsg();
                EXPECT_TRUE(another.write(0, content)) << ato_errormsg();
            }
}

// The control: without ato_settle() the write is not visible yet.
TEST_F(Settle, IsNeededToSeeTheWriteOfADeadProcess)
{
    ASSERT_EQ(die_in(changes[0], SEAM_DURABLE, 0), CUT);
    const Bytes before = seen(idle);
    EXPECT_EQ(before, content);
    ASSERT_EQ(ato_settle(idle.base), 0) << ato_errormsg();
    EXPECT_NE(seen(idle), before);
}

// The other locks of the process may be free by then: the kernel drops them first.
TEST_F(Settle, WaitsForAProcessThatIsAboutToDie)
{
    const pid_t pid = change_until(changes[1], SEAM_DURABLE, 0, [this] {
        about_to.tell();
        usleep(200000);
        _exit(CUT);
    });
    ASSERT_TRUE(about_to.hear());
    EXPECT_EQ(seen(idle), content);
    EXPECT_EQ(ato_settle(idle.base), 0) << ato_errormsg();
    EXPECT_NE(seen(idle), content);
    waitpid(pid, nullptr, 0);
}

TEST_F(Settle, TimesOutOnALivingProcess)
{
    const pid_t pid = change_until(changes[4], SEAM_DURABLE, 0, [this] {
        about_to.tell();
        pause();
    });
    ASSERT_TRUE(about_to.hear());
    EXPECT_EQ(ato_settle(idle.base), -1);
    EXPECT_EQ(errno, ETIMEDOUT);
    EXPECT_NE(std::string(ato_errormsg()).find(path), std::string::npos) << ato_errormsg();
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    EXPECT_EQ(ato_settle(idle.base), 0) << ato_errormsg();
    EXPECT_NE(seen(idle), content);
}

// At each moment a thread of the process is in a call, and each call is short.
TEST_F(Settle, DoesNotWaitForCallsThatBeganLater)
{
    static std::atomic<int> entered[2];
    static thread_local int self = -1;
    const pid_t pid = fork();
    if (pid == 0) {
        seam_hook = [](enum seam_point here, const void *) {
            if (here != SEAM_DURABLE || self < 0)
                return;
            const int turn = ++entered[self];
            while (entered[1 - self] < turn + self)
                usleep(100);
        };
        Mapped m(path, by_journal());
        std::thread second([&] {
            self = 1;
            while (m.write(8192, pattern(50, entered[1] % 200)))
                ;
        });
        about_to.tell();
        self = 0;
        while (m.write(100, pattern(50, entered[0] % 200)))
            ;
        _exit(1);
    }
    ASSERT_TRUE(about_to.hear());
    for (int i = 0; i < 20; i++)
        ASSERT_EQ(ato_settle(idle.base), 0) << ato_errormsg();
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
}

// Threads beyond the first 64 share a place.
TEST_F(Settle, FindsTheWriteOfAnyOfManyThreads)
{
    const Change of_a_late_thread = {
        "", [](Mapped &m) {
            Pipe end;
            std::vector<std::thread> threads;
            std::atomic<int> wrote{0};
            for (int i = 0; i < 70; i++)
                threads.emplace_back([&, i] {
                    m.write(static_cast<size_t>(i) * 100, pattern(50, 100 + i));
                    wrote++;
                    end.hear();
                });
            while (wrote < 70)
                usleep(1000);
            std::thread([&] { m.write(20000, pattern(50, 99)); }).join();
            return true;
        }};
    const pid_t pid = change_until(of_a_late_thread, SEAM_DURABLE, 70, [] { _exit(CUT); });
    int status = 0;
    waitpid(pid, &status, 0);
    ASSERT_EQ(WEXITSTATUS(status), CUT);
    Bytes at(50);
    ASSERT_EQ(ato_settle(idle.base), 0) << ato_errormsg();
    ASSERT_TRUE(ato_memcpy(at.data(), idle.base + 20000, 50));
    EXPECT_EQ(at, pattern(50, 99));
}

class SettleReader : public Reader
{
};

// A process that may only read takes over no pages.
TEST_F(SettleReader, IsRefusedUntilAWriterSettles)
{
    Writer idle(path,
                {[](Mapped &) { return true; }, [](Mapped &m) { return ato_settle(m.base) == 0; }});
    idle.act();
    Watched r(path);
    ASSERT_TRUE(r.base) << r.sentence;
    EXPECT_EQ(ato_settle(r.base), 0) << ato_errormsg();
    const int died = in_child([&] {
        seam_hook = [](enum seam_point here, const void *) {
            if (here == SEAM_DURABLE)
                _exit(CUT);
        };
        Mapped m(path, by_journal());
        m.write(100, pattern(60, 7));
        return 1;
    });
    ASSERT_EQ(died, CUT);
    EXPECT_EQ(r.read(), content);
    EXPECT_EQ(ato_settle(r.base), -1);
    EXPECT_EQ(errno, EAGAIN);
    idle.act();
    EXPECT_EQ(ato_settle(r.base), 0) << ato_errormsg();
    EXPECT_NE(r.read(), content);
}

// No other process has the file mapped when the reader maps it. Then a process maps it and dies.
TEST_F(SettleReader, FindsAProcessThatMappedTheFileLaterAndDied)
{
    Watched r(path);
    ASSERT_TRUE(r.base) << r.sentence;
    EXPECT_EQ(ato_settle(r.base), 0) << ato_errormsg();
    const int died = in_child([&] {
        Mapped m(path, by_journal());
        seam_hook = [](enum seam_point here, const void *) {
            if (here == SEAM_DURABLE)
                _exit(CUT);
        };
        (void)ato_ftruncate(m.base, SIZE + 5000);
        return 1;
    });
    ASSERT_EQ(died, CUT);
    EXPECT_EQ(ato_settle(r.base), -1);
    EXPECT_EQ(errno, EAGAIN);
    {
        Mapped m(path, by_journal());
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(ato_settle(r.base), 0) << ato_errormsg();
        EXPECT_EQ(ato_size(r.base), static_cast<off_t>(SIZE + 5000));
    }
}

} // namespace
