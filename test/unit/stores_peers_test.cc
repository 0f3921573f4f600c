// SPDX-License-Identifier: BSD-3-Clause
//
// Plain stores of several processes, and calls beside them: what others commit is seen, and is kept apart from what was stored.
#include "stores_lab.h"

#include <functional>
#include <map>
#include <memory>
#include <random>

#include <sys/file.h>

using namespace stores_lab;

namespace
{

// Another process, which has the file mapped and does one deed at each act().
class Process
{
  public:
    using Deed = std::function<bool(Mapped &)>;
    Process(const std::string &path, const ato_options &o, const std::vector<Deed> &deeds)
        : peer([=](const std::function<void()> &pause) {
              alarm(60);
              Mapped m(path, o);
              bool good = static_cast<bool>(m);
              for (const Deed &deed : deeds) {
                  pause();
                  good = good && deed(m);
              }
              pause();
              return good ? 0 : 1;
          })
    {
        peer.is_ready();
    }
    void act()
    {
        peer.go_on();
        peer.is_ready();
    }
    void end()
    {
        EXPECT_EQ(peer.end(), 0);
    }

  private:
    Peer peer;
};

class StoresOfPeers : public StoresFile
{
  protected:
    static Process::Deed stores(size_t at, const Bytes &bytes)
    {
        return [=](Mapped &m) {
            store(m, at, bytes);
            return true;
        };
    }
    static Process::Deed commits(size_t at, const Bytes &bytes)
    {
        return [=](Mapped &m) {
            store(m, at, bytes);
            return commit(m) == 0;
        };
    }
    static Process::Deed commits()
    {
        return [](Mapped &m) { return commit(m) == 0; };
    }
    static Process::Deed calls(size_t at, const Bytes &bytes)
    {
        return [=](Mapped &m) { return m.write(at, bytes); };
    }
    // The process sees it, by loads.
    static Process::Deed sees(size_t at, const Bytes &bytes)
    {
        return [=](Mapped &m) { return memcmp(m.base + at, bytes.data(), bytes.size()) == 0; };
    }
};
IN_ALL_DOMAINS(StoresOfPeers);

TEST_P(StoresOfPeers, AreCommitsAtOnceForPagesWithoutStores)
{
    const Bytes one = pattern(3 * PAGE, 2), two = pattern(3 * PAGE, 3);
    Process plainly(file, plain(),
                    {commits(PAGE - 9, one), sees(PAGE + 50, Bytes(&two[59 - 50], &two[1000]))}),
        by_calls(file, opt(), {calls(PAGE, two), calls(9 * PAGE + 8, Bytes(8, 8)), [](Mapped &m) {
                                   return m.write(12 * PAGE, Bytes(99, 1), ATO_RELAXED);
                               }});
    Mapped m(file, plain());
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_TRUE(view(m) == content);
    plainly.act();
    copy(content, PAGE - 9, one);
    EXPECT_TRUE(view(m) == content);
    by_calls.act();
    copy(content, PAGE, two);
    EXPECT_TRUE(view(m) == content);
    by_calls.act(); // a word, which may be stored in place
    copy(content, 9 * PAGE + 8, Bytes(8, 8));
    EXPECT_TRUE(view(m) == content);
    by_calls.act();
    copy(content, 12 * PAGE, Bytes(99, 1));
    EXPECT_TRUE(view(m) == content);
    note(m, 20 * PAGE, {1});
    ASSERT_EQ(commit(m, MS_ASYNC), 0) << ato_errormsg();
    EXPECT_TRUE(m.read() == content);
    const Mapped other(file, plain());
    EXPECT_TRUE(view(other) == content);
    by_calls.end();
}

TEST_P(StoresOfPeers, InOtherSlicesOfAPageBothCount)
{
    for (const bool by_calls : {false, true}) {
        const Bytes theirs(SLICE, 0xa0 + by_calls), later(SLICE, 0xb0 + by_calls);
        const auto act =
            by_calls ? calls : static_cast<Process::Deed (*)(size_t, const Bytes &)>(commits);
        Process peer(file, by_calls ? opt() : plain(),
                     {act(3 * PAGE + 5 * SLICE, theirs), act(3 * PAGE + 6 * SLICE, later)});
        Mapped m(file, plain());
        ASSERT_TRUE(m) << m.sentence;
        note(m, 3 * PAGE, Bytes(100, 1 + by_calls));
        peer.act();
        copy(content, 3 * PAGE + 5 * SLICE, theirs);
        note(m, 3 * PAGE + 10 * SLICE, Bytes(100, 2 + by_calls));
        peer.act();
        copy(content, 3 * PAGE + 6 * SLICE, later);
        EXPECT_NE(m.base[3 * PAGE + 6 * SLICE], static_cast<char>(later[0])) << "it is a copy";
        ASSERT_EQ(commit(m), 0) << ato_errormsg();
        EXPECT_TRUE(m.read() == content);
        EXPECT_TRUE(view(m) == content);
        peer.end();
    }
}

TEST_P(StoresOfPeers, OfAByteTheLaterCommitCounts)
{
    const size_t at = 3 * PAGE + 5 * SLICE;
    Process peer(file, plain(), {stores(at, Bytes(30, 7)), commits(), commits(at, Bytes(30, 9))});
    Mapped m(file, plain());
    ASSERT_TRUE(m) << m.sentence;
    peer.act();
    note(m, at, Bytes(20, 8));
    ASSERT_EQ(commit(m), 0) << ato_errormsg();
    EXPECT_TRUE(m.read() == content);
    peer.act(); // what it stored before
    copy(content, at, Bytes(30, 7));
    EXPECT_TRUE(m.read() == content);
    EXPECT_TRUE(view(m) == content);
    note(m, at, Bytes(20, 8));
    peer.act();
    ASSERT_EQ(commit(m), 0) << ato_errormsg();
    copy(content, at,
         Bytes(30, 9)); // also those in the same slice that the other one has not stored to
    copy(content, at, Bytes(20, 8));
    EXPECT_TRUE(m.read() == content);
    EXPECT_TRUE(view(m) == content);
}

// What another process has changed, and this one changes back, counts.
TEST_P(StoresOfPeers, PutBackWhatTheySaw)
{
    const size_t at = 3 * PAGE + 5 * SLICE;
    const Bytes old(&content[at], &content[at + SLICE]), other(SLICE, 0xdd);
    for (const bool alone : {true, false})
        for (const bool copied : {true, false}) { // before the other one's commit
            SCOPED_TRACE(testing::Message() << alone << copied);
            Process peer(file, plain(), {commits(at, other)});
            Mapped m(file, plain());
            ASSERT_TRUE(m) << m.sentence;
            if (copied)
                note(m, 3 * PAGE + 20 * SLICE, Bytes(9, 1 + alone));
            peer.act();
            if (copied) { // goes on from what it saw
                ASSERT_EQ(commit(m), 0) << ato_errormsg();
            }
            EXPECT_TRUE(memcmp(m.base + at, other.data(), SLICE) == 0);
            store(m, at, old);
            if (!alone)
                note(m, 3 * PAGE + 30 * SLICE, Bytes(9, 4 + copied));
            ASSERT_EQ(commit(m), 0) << ato_errormsg();
            EXPECT_TRUE(m.read() == content);
            EXPECT_TRUE(view(m) == content);
            peer.end();
        }
}

// Pages that were cut off come back as zeros, whoever has stored to them before.
TEST_P(StoresOfPeers, ToPagesThatOthersCutOffDoNotComeBack)
{
    const size_t at = 50 * PAGE, sizes[] = {at - 100, at + SLICE + 9};
    for (const size_t size : sizes)
        for (const bool own : {false, true}) // the same mapping cuts them off
            for (const bool commits : {false, true})
                for (const bool kept : {false, true}) {
                    SCOPED_TRACE(testing::Message() << size << own << commits << kept);
                    Mapped m(file, plain()), other(file, opt());
                    ASSERT_TRUE(m && other) << m.sentence << other.sentence;
                    store(m, at + 20 * SLICE, Bytes(9, 1));
                    if (kept) {
                        ASSERT_TRUE(put(other, at + 30 * SLICE, Bytes(9, 2))) << other.sentence;
                    }
                    char *by = own ? m.base : other.base;
                    ASSERT_EQ(ato_ftruncate(by, static_cast<off_t>(size)), 0) << ato_errormsg();
                    content.resize(size);
                    if (commits) {
                        ASSERT_EQ(ato_msync(m.base, size, MS_SYNC), 0) << ato_errormsg();
                        EXPECT_TRUE(other.read(0, size) == content);
                    }
                    ASSERT_EQ(ato_ftruncate(by, SIZE), 0) << ato_errormsg();
                    content.resize(SIZE);
                    ASSERT_EQ(commit(m), 0) << ato_errormsg(); // of the growth
                    Bytes now = other.read();
                    if (now.size() == SIZE && now[at + 20 * SLICE] == 1) // stored, and not cut off
                        copy(content, at + 20 * SLICE, Bytes(9, 1));
                    EXPECT_TRUE(now == content);
                    note(m, at + 50 * SLICE, Bytes(9, 4));
                    ASSERT_TRUE(put(other, at + 45 * SLICE, Bytes(9, 5))) << other.sentence;
                    ASSERT_EQ(commit(m), 0) << ato_errormsg();
                    EXPECT_TRUE(other.read() == content);
                    EXPECT_TRUE(view(m) == content);
                    ASSERT_TRUE(put(other, at - 200, pattern(2 * PAGE, 3))) << other.sentence;
                }
}

// ---- at random, one after the other ----

constexpr size_t FEW = 6; // pages that all use, of which they use few slices

struct Common {
    Bytes content() const
    {
        return Bytes(bytes, bytes + SIZE);
    }
    unsigned char bytes[SIZE];
    char wrong[200];
};

// A view, and what it has to show.
class Model
{
  public:
    Model(const std::string &path, const ato_options &o, Common &shared, size_t first)
        : m(path, o, 0, static_cast<off_t>(first * PAGE)), c(shared), from(first)
    {
    }
    void must(bool is, const char *what) const
    {
        if (!is && !c.wrong[0])
            snprintf(c.wrong, sizeof(c.wrong), "%s: %s", what, ato_errormsg());
    }
    void act(std::mt19937 &random)
    {
        check();
        const size_t first = random() % FEW, n = random() % 2 ? FEW - first : 1;
        switch (random() % 8) {
        case 0:
            must(ato_plain_discard(at(first), n * PAGE) == 0, "ato_plain_discard");
            for (size_t page = first; page < first + n; page++)
                copies.erase(page);
            break;
        case 1:
        case 2:
            must(ato_msync(at(first), n * PAGE, MS_SYNC) == 0, "ato_msync");
            committed(first, n);
            break;
        case 3:
            must(ato_msync(at(first), n * PAGE, MS_ASYNC) == 0, "MS_ASYNC");
            committed(first, n);
            break;
        default:
            for (unsigned k = 1 + random() % 3; k; k--)
                put(random() % FEW, random() % 4, static_cast<uint8_t>(random() % 3));
            break;
        }
        check();
    }
    void commit_all()
    {
        must(ato_msync(at(0), FEW * PAGE, MS_SYNC) == 0, "ato_msync");
        committed(0, FEW);
    }

  private:
    struct Copy {
        Bytes is, was;
    };
    char *at(size_t page) const
    {
        return m.base + page * PAGE;
    }
    unsigned char *now(size_t page) const
    {
        return c.bytes + (from + page) * PAGE;
    }
    void put(size_t page, size_t slice, uint8_t fill)
    {
        if (!copies.count(page)) {
            const Bytes shown(at(page), at(page) + PAGE);
            copies[page] = {shown, shown};
        }
        memset(at(page) + slice * SLICE, fill, 20);
        memset(&copies[page].is[slice * SLICE], fill, 20);
    }
    void committed(size_t first, size_t n)
    {
        for (size_t page = first; page < first + n; page++) {
            const auto it = copies.find(page);
            if (it == copies.end())
                continue;
            Copy &copy = it->second;
            for (size_t i = 0; i < PAGE; i++)
                if (copy.is[i] != copy.was[i])
                    now(page)[i] = copy.is[i];
            copies.erase(it);
        }
    }
    void check() const
    {
        for (size_t page = 0; page < FEW; page++) {
            const auto it = copies.find(page);
            if (it != copies.end())
                must(memcmp(at(page), it->second.is.data(), PAGE) == 0, "a page with stores");
            else
                must(memcmp(at(page), now(page), PAGE) == 0, "a page without stores");
        }
    }

  public:
    Mapped m;

  private:
    Common &c;
    size_t from;
    std::map<size_t, Copy> copies;
};

TEST_P(StoresOfPeers, AreWhatAModelSays)
{
    constexpr unsigned PROCESSES = 3;
    constexpr size_t LAST = SIZE - 1; // not 0: the end
    const unsigned steps = GetParam() == ATO_DOMAIN_DISK ? 400 : 1500;
    for (const unsigned seed : {1u, 2u}) {
        SCOPED_TRACE(seed);
        auto *c = static_cast<Common *>(mmap(nullptr, sizeof(Common), PROT_READ | PROT_WRITE,
                                             MAP_SHARED | MAP_ANONYMOUS, -1, 0));
        content = Bytes(SIZE);
        write_file(file, content);
        std::vector<std::unique_ptr<Peer>> peers;
        for (unsigned i = 0; i < PROCESSES; i++) {
            peers.push_back(std::make_unique<Peer>([&, i](const std::function<void()> &pause) {
                alarm(100);
                std::mt19937 random(seed * 100 + i);
                Model one(file, plain(), *c, i);
                std::unique_ptr<Model> two;
                if (i == 0)
                    two = std::make_unique<Model>(file, plain(), *c, 1);
                if (!one.m || (two && !two->m))
                    snprintf(c->wrong, sizeof(c->wrong), "no mapping: %s", ato_errormsg());
                for (bool end = false; !end;) {
                    pause();
                    end = c->wrong[0] || c->bytes[LAST];
                    Model &model = two && random() % 2 ? *two : one;
                    if (!end)
                        model.act(random);
                }
                if (!c->wrong[0])
                    one.commit_all();
                if (!c->wrong[0] && two)
                    two->commit_all();
                pause();
                return 0;
            }));
            ASSERT_TRUE(peers[i]->is_ready());
        }
        Mapped m(file, opt());
        ASSERT_TRUE(m) << m.sentence;
        std::mt19937 random(seed);
        for (unsigned i = 0; i < steps && !c->wrong[0]; i++) {
            const unsigned who = random() % (PROCESSES + 1);
            if (who < PROCESSES) {
                peers[who]->go_on();
                peers[who]->is_ready();
            } else {
                const size_t at = random() % (FEW * PAGE / SLICE) * SLICE;
                const Bytes bytes(random() % 3 ? 8 : 200, static_cast<uint8_t>(random() % 3));
                ASSERT_TRUE(m.write(at, bytes, random() % 2 ? ATO_EAGER : 0)) << m.sentence;
                memcpy(c->bytes + at, bytes.data(), bytes.size());
            }
            ASSERT_TRUE(m.read() == c->content()) << "step " << i << " of " << who;
        }
        EXPECT_STREQ(c->wrong, "");
        c->bytes[LAST] = 1;
        for (auto &peer : peers) {
            peer->go_on();
            peer->is_ready();
        }
        c->bytes[LAST] = 0;
        EXPECT_TRUE(m.read() == c->content());
        for (auto &peer : peers)
            EXPECT_EQ(peer->end(), 0);
        EXPECT_TRUE(m.read() == c->content());
        EXPECT_STREQ(c->wrong, "");
        munmap(c, sizeof(Common));
    }
}

// ---- at once ----

// A process stores while another one's commit of the page is under way: its copy has what was there before, or what comes then.
TEST_P(StoresOfPeers, InTheMidstOfACommitTakeNothingBack)
{
    const size_t theirs = 3 * PAGE + 5 * SLICE, own = 3 * PAGE + 9 * SLICE;
    for (const bool changed : {false, true}) {
        SCOPED_TRACE(changed);
        const Bytes first = pattern(3 * SLICE, 7u + changed),
                    second = pattern(3 * SLICE, 9u + changed),
                    mine(SLICE, static_cast<uint8_t>(1 + changed));
        Process peer(file, plain(), {stores(own, mine), commits()});
        Mapped m(file, opt());
        ASSERT_TRUE(m) << m.sentence;
        int left = 1;
        PersistFaults stores;
        stores.before = [&](const PersistCall &c) {
            const std::string site = c.site;
            const bool is_home = site.find("deploy.c") != std::string::npos ||
                                 site.find("show.c") != std::string::npos;
            if (is_home && std::string(c.op) == "scatter" && left-- == 1) {
                if (changed)
                    write_at(file, theirs, first.data(), first.size());
                peer.act();
            }
            return GO_ON;
        };
        ASSERT_TRUE(put(m, theirs, first)) << m.sentence;
        EXPECT_LT(left, 1) << "no change of the file";
        ASSERT_TRUE(put(m, theirs, second)) << m.sentence;
        peer.act();
        copy(content, own, mine);
        EXPECT_TRUE(m.read() == content);
        peer.end();
    }
}

// Each has a slice of each of these pages, with a number. Without a lock of their own a page fault in the midst of another one's commit
// may, rarely, take a slice back (store_views.h).
TEST_P(StoresOfPeers, AtOnceLoseNothing)
{
    constexpr unsigned PROCESSES = 3, USED = 4;
    const unsigned rounds = GetParam() == ATO_DOMAIN_DISK ? 60 : 600;
    write_file(dir / "lock", {1});
    auto *lost = static_cast<unsigned *>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    for (const bool locks : {true, false}) {
        SCOPED_TRACE(locks);
        *lost = 0;
        const std::string common = dir / (locks ? "locked" : "unlocked");
        write_file(common, Bytes(SIZE));
        std::vector<std::unique_ptr<Peer>> peers;
        for (unsigned who = 0; who < PROCESSES; who++) {
            peers.push_back(std::make_unique<Peer>([&, who](const std::function<void()> &pause) {
                alarm(100);
                Mapped m(common, who ? plain() : opt());
                const Fd lock(dir / "lock");
                pause();
                for (uint32_t i = 1; m && i <= rounds; i++) {
                    uint32_t all[USED];
                    if (locks)
                        flock(lock, LOCK_EX);
                    for (unsigned page = 0; page < USED; page++) {
                        const size_t at = page * PAGE + who * SLICE;
                        if (who)
                            memcpy(m.base + at, &i, 4);
                        else if (!ato_memcpy(m.base + at, &i, 4))
                            return 1;
                    }
                    if (who && commit(m, i % 7 ? MS_SYNC : MS_ASYNC) < 0)
                        return 2;
                    flock(lock, LOCK_UN);
                    const Bytes now = m.read(0, USED * PAGE);
                    bool is_whole = true;
                    for (unsigned other = 0; other < PROCESSES; other++) {
                        for (unsigned page = 0; page < USED; page++)
                            memcpy(&all[page], &now[page * PAGE + other * SLICE], 4);
                        is_whole &= other != who || (all[0] == i && all[USED - 1] == i);
                        is_whole &= !other || std::count(all, all + USED, all[0]) == USED;
                    }
                    __atomic_fetch_add(lost, !is_whole, __ATOMIC_RELAXED);
                }
                return m ? 0 : 5;
            }));
            ASSERT_TRUE(peers[who]->is_ready());
        }
        for (auto &peer : peers)
            peer->go_on();
        for (auto &peer : peers)
            EXPECT_EQ(peer->end(), 0);
        EXPECT_LE(*lost, locks ? 0 : PROCESSES * rounds / 30) << "of " << PROCESSES * rounds;
    }
    munmap(lost, 4096);
}

} // namespace
