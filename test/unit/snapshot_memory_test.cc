// SPDX-License-Identifier: BSD-3-Clause
//
// What do snapshots take, and what if there is not enough? Memory is bounded, no writer fails or waits, and what killed processes
// had comes back.
#include "snapshot_lab.h"

#include <functional>
#include <memory>
#include <vector>

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

using namespace snapshot_lab;

namespace
{

// A copy of a page takes 64 bytes more.
constexpr size_t LITTLE = 64 << 10, COPIES = LITTLE / (PAGE + 64);

class SnapshotMemory : public OnAFile
{
  protected:
    static ato_options little()
    {
        ato_options o = opt();
        o.snapshot_bytes = LITTLE;
        return o;
    }
    void make_anew()
    {
        ASSERT_EQ(unlink(file.c_str()), 0);
        write_file(file, content = pattern(SIZE, 1));
    }
    // n commits, of a page each.
    bool change(Mapped &m, size_t first, size_t n)
    {
        bool good = true;
        for (size_t page = first; good && page < first + n; page++)
            good = put(m, page * PAGE + 99, pattern(200, ++seed));
        return good;
    }
    static void expect_stale(Snap &s)
    {
        EXPECT_TRUE(s.copy().empty());
        EXPECT_EQ(s.error, ESTALE) << s.sentence;
        EXPECT_NE(s.sentence.find("snapshot_bytes"), std::string::npos) << s.sentence;
    }
    // Of the file's shared memory.
    uint64_t memory() const
    {
        uint64_t blocks = 0;
        const std::string name = "ato-" + id_of(file);
        for (const std::string &each : names_in("/dev/shm"))
            if (each.compare(0, name.size(), name) == 0)
                blocks += static_cast<uint64_t>(stat_of("/dev/shm/" + each).st_blocks);
        return blocks * 512;
    }

    // A commit on a disk takes a sync.
    const size_t rounds = GetParam() == ATO_DOMAIN_DISK ? 3 : 30;
    unsigned seed = 100;
};
IN_ALL_DOMAINS(SnapshotMemory);

TEST_P(SnapshotMemory, ThatIsUsedUpCostsTheOldestSnapshotAndNoWrite)
{
    for (const bool by_environment : {false, true}) {
        make_anew();
        std::unique_ptr<Environment> e;
        if (by_environment)
            e = std::make_unique<Environment>("ATO_SNAPSHOT_BYTES", std::to_string(LITTLE).c_str());
        Mapped m(file, by_environment ? opt() : little());
        ASSERT_TRUE(m) << m.sentence;
        Snap oldest(m.base);
        const Bytes first = content;
        ASSERT_TRUE(change(m, 0, COPIES)) << m.sentence;
        EXPECT_TRUE(oldest.copy() == first) << oldest.sentence;
        Snap newer(m.base), same(m.base);
        const Bytes second = content;
        ASSERT_TRUE(change(m, 5, 1)) << m.sentence;
        expect_stale(oldest);
        EXPECT_EQ(oldest.read(50 * PAGE, PAGE),
                  Bytes(&first[50 * PAGE], &first[51 * PAGE])) // nobody has changed it
            << oldest.sentence;
        ASSERT_TRUE(change(m, 20, COPIES - 1)) << m.sentence;
        EXPECT_TRUE(newer.copy() == second) << newer.sentence;
        EXPECT_TRUE(same.copy() == second) << same.sentence;
        // A commit of more pages than there are copies.
        ASSERT_TRUE(put(m, 3 * PAGE, pattern(40 * PAGE, 7))) << m.sentence;
        expect_stale(newer);
        expect_stale(same);
        for (size_t i = 0; i < rounds; i++) {
            Snap newest(m.base);
            const Bytes now = content;
            ASSERT_TRUE(change(m, i % 20, COPIES)) << m.sentence;
            ASSERT_TRUE(newest.copy() == now) << newest.sentence;
        }
        EXPECT_TRUE(m.read() == content);
        EXPECT_LE(memory(), (1u << 20) + LITTLE);
    }
}

TEST_P(SnapshotMemory, OfAnEndedSnapshotIsUsedAgainAndWhatAnOlderOneNeedsStays)
{
    Mapped m(file, little());
    ASSERT_TRUE(m) << m.sentence;
    const Bytes first = content;
    Snap oldest(m.base);
    uint64_t before = 0;
    for (size_t i = 0; i < 2 * rounds; i++) {
        Snap s(m.base);
        const Bytes now = content;
        ASSERT_TRUE(change(m, 2, 7)) << m.sentence;
        ASSERT_TRUE(s.copy() == now) << i << s.sentence;
        if (i == 2)
            before = memory();
    }
    EXPECT_TRUE(oldest.copy() == first) << oldest.sentence;
    EXPECT_EQ(memory(), before);
}

// 7 copies are for the oldest snapshot, and 7 for that of another process. If it lives, there is no room for 7 more.
TEST_P(SnapshotMemory, OfAKilledReaderComesBackAndThatOfALivingOneStays)
{
    enum class End { Lives, Killed, KilledAndItsChildLives };
    for (const End end : {End::Lives, End::Killed, End::KilledAndItsChildLives}) {
        SCOPED_TRACE(static_cast<int>(end));
        make_anew();
        Mapped m(file, little());
        ASSERT_TRUE(m) << m.sentence;
        Snap oldest(m.base);
        const Bytes first = content;
        ASSERT_TRUE(change(m, 0, 7)) << m.sentence;
        Pipe over, forked;
        Peer reader([&](const std::function<void()> &pause) {
            Mapped own(file, opt());
            Snap s(own.base);
            if (s && end == End::KilledAndItsChildLives) {
                if (fork() == 0) {
                    forked.tell();
                    over.hear();
                    _exit(0);
                }
                forked.hear();
            }
            pause();
            return s.copy() == content ? 0 : 1;
        });
        ASSERT_TRUE(reader.is_ready());
        if (end != End::Lives)
            reader.die();
        const Bytes second = content;
        ASSERT_TRUE(change(m, 0, 7)) << m.sentence;
        Snap newest(m.base);
        const Bytes third = content;
        ASSERT_TRUE(change(m, 0, 7)) << m.sentence;
        EXPECT_TRUE(newest.copy() == third) << newest.sentence;
        if (end == End::Lives) {
            expect_stale(oldest);
            content = second; // of the parent's memory nothing is seen by the reader
            EXPECT_EQ(reader.end(), 0);
        } else {
            EXPECT_TRUE(oldest.copy() == first) << oldest.sentence;
        }
        over.tell();
    }
}

TEST_P(SnapshotMemory, HasPlacesForSomeThousandSnapshotsAndThenNoMore)
{
    constexpr size_t OF_A_FILE = 511 * 8, OF_A_PROCESS = 4095;
    const std::string other = dir / "other";
    write_file(other, content);
    Mapped m(file, opt()), o(other, opt());
    ASSERT_TRUE(m && o) << m.sentence << o.sentence;
    const auto refused = [](const Mapped &of) {
        Snap s(of.base);
        return !s && s.error == EAGAIN;
    };
    std::vector<std::unique_ptr<Snap>> all;
    while (all.size() < OF_A_PROCESS) {
        EXPECT_TRUE(all.size() != OF_A_FILE || refused(m));
        all.push_back(std::make_unique<Snap>(all.size() < OF_A_FILE ? m.base : o.base));
        ASSERT_TRUE(*all.back()) << all.size() << all.back()->sentence;
    }
    EXPECT_TRUE(refused(m) && refused(o));
    const Bytes before = content;
    ASSERT_TRUE(put(m, 70, pattern(9000, 2))) << m.sentence;
    for (size_t i = 0; i < all.size(); i += 500)
        EXPECT_TRUE(all[i]->copy() == before) << all[i]->sentence;
    // There are places for another process as soon as one of the lines is free.
    const auto by_another = [&] {
        return in_child([&] {
            Mapped own(file, opt());
            Snap s(own.base);
            return s && s.copy() == content ? 0 : s.error;
        });
    };
    EXPECT_EQ(by_another(), EAGAIN);
    all.erase(all.begin());
    EXPECT_TRUE(Snap(m.base));
}

// ---- none is left -------------------------------------------------------------------------------

// A file system of this process alone takes the place of /dev/shm.
bool mount_memory(const char *size)
{
    return unshare(CLONE_NEWNS) == 0 &&
           mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           mount("ato-test", "/dev/shm", "tmpfs", 0, size) == 0;
}

bool fill_memory()
{
    const Fd ballast("/dev/shm/ballast", O_RDWR | O_CREAT);
    const Bytes some(PAGE, 'b');
    while (write(ballast, some.data(), some.size()) > 0)
        ;
    return errno == ENOSPC;
}

TEST(SnapshotMemoryFull, IsEnospcForASnapshotAndNothingForAWriter)
{
    constexpr size_t MANY = 400;
    const TempDir dir("/tmp");
    const std::string file = dir / "file";
    write_file(file, pattern(MANY * PAGE, 1));
    const int status = in_child([&] {
        if (!mount_memory("size=4m"))
            return 50;
        Mapped m(file, options(ATO_DOMAIN_PROCESS, ATO_READ_GATHER));
        const auto change = [&](unsigned seed, size_t n) {
            for (size_t page = 0; page < n; page++)
                if (!m.write(page * PAGE, pattern(100, seed)))
                    return false;
            return true;
        };
        if (!m || !change(2, MANY) || !fill_memory())
            return 1;
        {
            Snap none(m.base);
            if (none || none.error != ENOSPC ||
                none.sentence.find("/dev/shm") == std::string::npos || !change(3, MANY))
                return 2;
        }
        unlink("/dev/shm/ballast");
        Snap oldest(m.base);
        Bytes before = m.read();
        if (!oldest || !change(4, 10) || !fill_memory() || oldest.copy() != before)
            return 3;
        // There are 256 copies.
        if (!change(5, MANY) || !oldest.copy().empty() || oldest.error != ESTALE)
            return 4;
        Snap newer(m.base);
        before = m.read();
        if (!newer || !change(6, 200) || newer.copy() != before)
            return 5;
        if (!change(7, MANY) || !newer.copy().empty() || newer.error != ESTALE)
            return 6;
        unlink("/dev/shm/ballast");
        Snap newest(m.base);
        before = m.read();
        return newest && change(8, MANY) && newest.copy() == before ? 0 : 7;
    });
    if (status == 50)
        GTEST_SKIP() << "cannot mount a file system here";
    EXPECT_EQ(status, 0);
}

// The kernel would kill the process with SIGXFSZ.
TEST_P(SnapshotMemory, ThatALimitOnFilesForbidsIsAnErrorOfTheSnapshotAndNoneOfAWriter)
{
    const auto limited = [&](const std::function<bool(Mapped &)> &what) {
        return in_child([&] {
            const struct rlimit little = {1 << 30, 1 << 30};
            Mapped own(file, opt());
            return own && setrlimit(RLIMIT_FSIZE, &little) == 0 && what(own) ? 0 : 1;
        });
    };
    const Bytes news = pattern(9000, 9);
    Mapped m(file, opt());
    ASSERT_TRUE(m && put(m, 9, pattern(9000, 8))) << m.sentence; // page states have their space
    EXPECT_EQ(limited([&](Mapped &own) {
                  Snap s(own.base);
                  return !s && s.error == EFBIG &&
                         s.sentence.find("RLIMIT_FSIZE") != std::string::npos && own.write(9, news);
              }),
              0);
    Snap s(m.base);
    ASSERT_TRUE(s) << s.sentence;
    EXPECT_EQ(
        limited([&](Mapped &own) { return own.write(9, pattern(9000, 7)) && own.write(9, news); }),
        0);
    expect_stale(s);
    std::copy(news.begin(), news.end(), content.begin() + 9);
    Snap again(m.base);
    const Bytes before = content;
    ASSERT_TRUE(change(m, 0, 9)) << m.sentence;
    EXPECT_TRUE(again.copy() == before) << again.sentence;
    // Where another process has made space, the limited one saves pages, too.
    EXPECT_EQ(limited([&](Mapped &own) { return own.write(9, pattern(9000, 7)); }), 0);
    EXPECT_TRUE(again.copy() == before) << again.sentence;
}

} // namespace
