// SPDX-License-Identifier: BSD-3-Clause
//
// A process is killed at each step of a commit of plain stores, beside another one that has stored to the same pages. Its commit counts as a
// whole or not at all, and what the other one has stored is what it commits.
#include "stores_lab.h"
#include "support/dying.h"

#include <functional>
#include <memory>
#include <random>

#include <sys/file.h>

using namespace stores_lab;

namespace
{

class StoresOfTheDead : public StoresFile
{
  protected:
    static constexpr size_t PLACE = 2 * PAGE - 99, OTHER = 9 * PAGE + 30 * SLICE;

    // What the process stores that dies, and how it commits it.
    Bytes news()
    {
        return pattern(2 * PAGE + 150, ++seed);
    }
    static void apply(Bytes &to, const Bytes &bytes)
    {
        copy(to, PLACE, bytes);
        copy(to, OTHER, Bytes(70, bytes[0]));
    }
    static bool stores(Mapped &m, const Bytes &bytes)
    {
        store(m, PLACE, bytes);
        store(m, OTHER, Bytes(70, bytes[0]));
        return true;
    }
    // This process goes on: its stores, in these slices and others, are `own`.
    void check(Mapped &m, Mapped &other, bool died, const Bytes &after, const Bytes &own,
               unsigned way)
    {
        const size_t slices[] = {PAGE + 3 * SLICE, 2 * PAGE + 40 * SLICE, 4 * PAGE, 9 * PAGE};
        if (way % 3 == 0) {
            EXPECT_EQ(commit(m), 0) << ato_errormsg(); // takes over
        } else if (way % 3 == 1) {
            EXPECT_FALSE(other.read().empty()) << other.sentence;
        }
        if (way % 3) {
            // The dead process may still hold its pages, and have brought none of them home.
            const size_t same = 9 * PAGE + 63 * SLICE;
            EXPECT_TRUE(other.write(same, Bytes(1, content[same]))) << other.sentence;
            const Bytes now = other.read();
            EXPECT_TRUE(now == after || (died && now == content)) << "a part of a commit";
            if (GetParam() != ATO_DOMAIN_DISK) { // where it may be relaxed
                EXPECT_TRUE(memcmp(m.base + 3 * PAGE, &now[3 * PAGE], PAGE) == 0)
                    << "a page without stores does not show it";
            }
            EXPECT_EQ(commit(m), 0) << ato_errormsg();
        }
        Bytes without = content, with = after;
        for (const size_t at : slices) {
            copy(without, at, own);
            copy(with, at, own);
        }
        content = other.read();
        EXPECT_TRUE(content == with || (died && content == without)) << "a part of a commit";
        EXPECT_TRUE(Snap(m.base).copy() == content);
        EXPECT_EQ(ato_deploy(other.base, SIZE), 0) << ato_errormsg();
        EXPECT_TRUE(view(m) == content) << "the view is not what is committed";
        EXPECT_TRUE(read_at(file, 0, SIZE) == content);
    }
    // Stores of this process to pages that the other one commits, and to others.
    Bytes stores_here(const Mapped &m)
    {
        const Bytes own(SLICE, static_cast<uint8_t>(++seed));
        for (const size_t at : {PAGE + 3 * SLICE, 2 * PAGE + 40 * SLICE, 4 * PAGE, 9 * PAGE})
            store(m, at, own);
        return own;
    }

    unsigned seed = 1;
};
INSTANTIATE_TEST_SUITE_P(, StoresOfTheDead,
                         testing::Values(ATO_DOMAIN_PMEM, ATO_DOMAIN_DISK, ATO_DOMAIN_PROCESS),
                         [](const auto &info) { return name_of(info.param); });

TEST_P(StoresOfTheDead, CountAsAWholeOrNotAtAll)
{
    Mapped m(file, plain()), other(file, opt());
    ASSERT_TRUE(m && other) << m.sentence << other.sentence;
    const struct {
        const char *name;
        bool plainly;
        std::function<bool(Mapped &, const Bytes &)> act;
    } deeds[] = {
        {"commit", true, [](Mapped &own, const Bytes &) { return commit(own) == 0; }},
        {"relaxed", true, [](Mapped &own, const Bytes &) { return commit(own, MS_ASYNC) == 0; }},
        {"unmapping", true,
         [](Mapped &own, const Bytes &) { return own.unmap(ATO_UNMAP_FAST) == 0; }},
        {"calls", false,
         [](Mapped &own, const Bytes &bytes) {
             const Bytes some(70, bytes[0]);
             const ato_iovec all[] = {{own.base + PLACE, bytes.data(), bytes.size()},
                                      {own.base + OTHER, some.data(), some.size()}};
             return ato_writev(all, 2, 0) == 0;
         }},
    };
    // Every second step: the others with the other format.
    unsigned deaths = 0, way = 0;
    for (const auto &deed : deeds)
        for (int n = sparse();; n += 2) {
            SCOPED_TRACE(testing::Message() << deed.name << ", step " << n << ", way " << way % 3);
            const Bytes bytes = news();
            Bytes after = content;
            apply(after, bytes);
            const bool early = way % 2; // this process has its copies before
            Bytes own = early ? stores_here(m) : Bytes();
            const bool died = dies_at(
                n, file, deed.plainly ? plain() : opt(),
                [&](Mapped &mine) { return deed.act(mine, bytes); },
                [&](Mapped &mine) { return deed.plainly ? stores(mine, bytes) : true; });
            if (!early)
                own = stores_here(m);
            deaths += died;
            check(m, other, died, after, own, way++);
            if (HasFailure() || !died)
                break;
        }
    EXPECT_GT(deaths, 60u);
}

// And another one while it takes that over.
TEST_P(StoresOfTheDead, AreTakenOverByOneThatIsKilled)
{
    Mapped m(file, plain()), other(file, opt());
    ASSERT_TRUE(m && other) << m.sentence << other.sentence;
    unsigned deaths = 0, way = 0;
    for (int first = 4; first < 60 && !HasFailure(); first += 4)
        for (int n = first % 3; n < 60 && !HasFailure(); n += 7) {
            SCOPED_TRACE(testing::Message()
                         << "step " << first << ", then " << n << ", way " << way % 3);
            const Bytes bytes = news();
            Bytes after = content;
            apply(after, bytes);
            const Bytes own = stores_here(m);
            bool died = dies_at(
                first, file, plain(), [](Mapped &mine) { return commit(mine) == 0; },
                [&](Mapped &mine) { return stores(mine, bytes); });
            // Takes over, and changes nothing.
            deaths += died && dies_at(n, file, opt(), [](Mapped &mine) {
                          return !mine.read().empty() && ato_deploy(mine.base, SIZE) == 0;
                      });
            check(m, other, died, after, own, way++);
        }
    EXPECT_GT(deaths, 30u);
}

// Processes that number their commits, each in its slices of the same pages, and are killed at any moment.
TEST_P(StoresOfTheDead, LoseNothingOfOthers)
{
    constexpr unsigned PROCESSES = 3, USED = 4;
    const int kills = GetParam() == ATO_DOMAIN_DISK ? 25 : 60;
    content = Bytes(SIZE);
    write_file(file, content);
    write_file(dir / "lock", {1});
    auto *done = static_cast<uint32_t *>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    uint32_t *wrong = &done[PROCESSES];
    const auto live = [&](unsigned who, const std::function<void()> &pause) {
        alarm(100);
        Mapped m(file, who ? plain() : opt());
        const Fd lock(dir / "lock");
        pause();
        const auto look = [&](unsigned other) {
            uint32_t is[USED] = {};
            const Bytes now = m.read(0, USED * PAGE);
            for (unsigned page = 0; page < USED && !now.empty(); page++)
                memcpy(&is[page], &now[page * PAGE + other * SLICE], 4);
            if (now.empty() || (other && std::count(is, is + USED, is[0]) != USED))
                *wrong = 1; // a part of a commit
            return is[0];
        };
        for (uint32_t i = m ? look(who) : 0;;) {
            const uint32_t before = __atomic_load_n(&done[who], __ATOMIC_SEQ_CST);
            if (!m || i < before || i > before + 1)
                *wrong = 2; // a commit is lost
            if (*wrong)
                return 1;
            __atomic_store_n(&done[who], i, __ATOMIC_SEQ_CST);
            i++;
            bool good = true;
            flock(lock, LOCK_EX); // processes that store to the same pages need one
            for (unsigned page = 0; page < USED; page++) {
                char *at = m.base + page * PAGE + who * SLICE;
                if (who)
                    memcpy(at, &i, 4);
                else if (page == 0)
                    good = ato_memcpy(at, &i, 4);
            }
            if (!good || (who && commit(m) < 0))
                *wrong = 3;
            flock(lock, LOCK_UN);
            for (unsigned other = 0; other < PROCESSES; other++)
                if (look(other) < __atomic_load_n(&done[other], __ATOMIC_SEQ_CST) && other == who)
                    *wrong = 4;
        }
    };
    std::vector<std::unique_ptr<Peer>> peers;
    const auto start = [&](unsigned who) {
        auto peer = std::make_unique<Peer>(
            [&, who](const std::function<void()> &pause) { return live(who, pause); });
        EXPECT_TRUE(peer->is_ready());
        peer->go_on();
        return peer;
    };
    for (unsigned who = 0; who < PROCESSES; who++)
        peers.push_back(start(who));
    std::mt19937 random(1);
    for (int i = 0; i < kills && !*wrong; i++) {
        usleep(random() % 8000);
        const unsigned who = random() % PROCESSES;
        peers[who]->die();
        peers[who] = start(who);
    }
    usleep(20000); // the last ones go on
    EXPECT_EQ(*wrong, 0u);
    peers.clear();
    for (unsigned who = 0; who < PROCESSES; who++)
        EXPECT_GT(done[who], 3u) << who;
    Mapped m(file, plain());
    ASSERT_TRUE(m) << m.sentence;
    const Bytes now = m.read();
    for (unsigned who = 0; who < PROCESSES; who++)
        for (unsigned page = 0; page < (who ? USED : 1); page++) {
            uint32_t is;
            memcpy(&is, &now[page * PAGE + who * SLICE], 4);
            EXPECT_TRUE(is == done[who] || is == done[who] + 1) << who << " " << page;
        }
    EXPECT_TRUE(view(m) == now);
    munmap(done, 4096);
}

// Their stores are gone, and their views: there is room for more of these.
TEST_P(StoresOfTheDead, LeaveTheirViews)
{
    Mapped m(file, opt());
    ASSERT_TRUE(m) << m.sentence;
    for (int i = 0; i <= 70; i++) // each takes over what is left of the one before it
        ASSERT_EQ(in_child([&] {
                      Mapped own(file, plain());
                      if (!own || i == 70)
                          return own ? 0 : 1;
                      store(own, PAGE, Bytes(9, 9));
                      raise(SIGKILL);
                      return 2;
                  }),
                  i < 70 ? 256 + SIGKILL : 0)
            << i;
    EXPECT_TRUE(m.read() == content);
    {
        Mapped own(file, plain());
        ASSERT_TRUE(own) << own.sentence;
        EXPECT_TRUE(view(own) == content);
    }
    std::vector<std::unique_ptr<Mapped>> all;
    for (int i = 0; i < 64; i++) {
        all.push_back(std::make_unique<Mapped>(file, plain()));
        ASSERT_TRUE(*all.back()) << i << all.back()->sentence;
    }
    const Mapped more(file, plain());
    EXPECT_EQ(more.error, EAGAIN) << more.sentence;
    store(*all[63], PAGE, Bytes(9, 9));
    ASSERT_EQ(commit(*all[63]), 0) << ato_errormsg();
    copy(content, PAGE, Bytes(9, 9));
    EXPECT_TRUE(view(*all[0]) == content);
    all.clear();
    const Mapped again(file, plain());
    EXPECT_TRUE(again) << again.sentence;
}

} // namespace
