// SPDX-License-Identifier: BSD-3-Clause
//
// A process dies in a commit to two files. Do the other processes see the commit in both files or
// in neither?
#include "peers_lab.h"
#include "support/child.h"
#include "support/dying.h"
#include "support/faults.h"
#include "support/mapped.h"

extern "C" {
#include "reflection/media/seam.h"
}

#include <gtest/gtest.h>

#include <cerrno>

#include <cstdio>
#include <sys/stat.h>
#include <unistd.h>

using namespace peers_lab;

namespace
{

class PeersOfTwoFiles : public PeersOfAFile
{
};

// Like die_in_commit(), but all words are stored: the process dies before it shows the commit, or
// while it shows it. `rtm`: a hardware transaction stores the words.
int die_showing(const std::string &first, const std::string &second, enum seam_point where,
                bool rtm)
{
    static enum seam_point at;
    at = where;
    return in_child([&] {
        const ato_options o = options(rtm ? ATO_DOMAIN_PROCESS : ATO_DOMAIN_PMEM, ATO_READ_GATHER,
                                      rtm ? 0u : ATO_NO_RTM);
        Mapped a(first, o), b(second, o);
        PersistFaults faults;
        faults.rtm = 1;
        ato_tx *tx = ato_tx_begin(0);
        ato_tx_memcpy(tx, a.base, pattern(100, 2).data(), 100, 0);
        ato_tx_memcpy(tx, b.base, pattern(100, 3).data(), 100, 0);
        seam_hook = [](enum seam_point point, const void *) {
            if (point == at)
                _exit(CUT);
        };
        ato_tx_commit(tx);
        return 1;
    });
}

// A process that takes over the pages of one file shows the commit in that file. From then on no
// process may read the old content of the other file: neither that process nor a process that has
// only the other file mapped.
TEST_F(PeersOfTwoFiles, SeeACommitToTwoFilesInBothOrInNone)
{
    const std::string second = dir / "second";
    write_file(second, old);
    Mapped a(path, opt()), b(second, opt());
    ASSERT_TRUE(a && b) << a.sentence << b.sentence;
    Peer other([&](const auto &wait) {
        Mapped own(second, opt());
        if (!own || own.read(0, SIZE) != old)
            return 1;
        wait();
        return own.read(0, 100) == pattern(100, 3) ? 0 : 2;
    });
    ASSERT_TRUE(other.is_ready());
    ASSERT_EQ(die_in_commit(path, second), CUT);
    EXPECT_EQ(a.read(0, 100), Bytes(old.begin(), old.begin() + 100)) << "not seen yet";
    EXPECT_TRUE(a.write(200, pattern(10, 4))) << a.sentence;
    EXPECT_EQ(a.read(0, 100), pattern(100, 2));
    EXPECT_EQ(other.end(), 0);
    EXPECT_EQ(b.read(0, 100), pattern(100, 3));
}

// The same if a new process finishes the commit.
TEST_F(PeersOfTwoFiles, SeeACommitToTwoFilesInBothIfAMapOfOneFinishesIt)
{
    const std::string second = dir / "second";
    write_file(second, old);
    Mapped a(path, opt()), b(second, opt());
    ASSERT_TRUE(a && b) << a.sentence << b.sentence;
    ASSERT_EQ(die_in_commit(path, second), CUT);
    EXPECT_EQ(in_child([&] {
                  a.base = b.base = nullptr; // not inherited
                  Mapped own(path, opt());
                  return own.read(0, 100) == pattern(100, 2) ? 0 : 1;
              }),
              0);
    EXPECT_EQ(b.read(0, 100), pattern(100, 3));
    EXPECT_EQ(a.read(0, 100), pattern(100, 2));
}

// The same if all words of the commit are stored, but not all are shown.
TEST_F(PeersOfTwoFiles, SeeACommitToTwoFilesInBothIfItIsStoredAndNotShown)
{
    for (bool rtm : {false, true})
        for (enum seam_point where : {SEAM_DURABLE, SEAM_FLIPPING}) {
            SCOPED_TRACE(std::to_string(rtm) + " " + std::to_string(where));
            const std::string first = dir / ("first" + std::to_string(rtm) + std::to_string(where)),
                              second = first + "b";
            write_file(first, old);
            write_file(second, old);
            const ato_options o =
                options(rtm ? ATO_DOMAIN_PROCESS : ATO_DOMAIN_PMEM, ATO_READ_GATHER);
            Mapped a(first, o), b(second, o);
            ASSERT_TRUE(a && b) << a.sentence << b.sentence;
            ASSERT_EQ(die_showing(first, second, where, rtm), CUT);
            EXPECT_TRUE(a.write(200, pattern(10, 4))) << a.sentence;
            EXPECT_EQ(a.read(0, 100), pattern(100, 2));
            EXPECT_EQ(b.read(0, 100), pattern(100, 3));
        }
}

// The shared memory of one file is missing, so that the commit cannot be finished: the other file
// shows its old content. Either file may be the missing one.
TEST_F(PeersOfTwoFiles, ReadTheOldContentIfACommitCannotBeFinished)
{
    for (bool first : {false, true}) {
        SCOPED_TRACE(first);
        const std::string one = dir / ("one" + std::to_string(first)), two = one + "b";
        write_file(one, old);
        write_file(two, old);
        Mapped a(one, opt()), b(two, opt());
        ASSERT_TRUE(a && b) << a.sentence << b.sentence;
        ASSERT_EQ(die_in_commit(one, two), CUT);
        Mapped &here = first ? b : a;
        const std::string gone = memory_of(first ? one : two);
        ASSERT_EQ(rename(gone.c_str(), (gone + "-gone").c_str()), 0);
        EXPECT_FALSE(here.write(200, Bytes(10)));
        EXPECT_EQ(here.error, EBUSY) << here.sentence;
        EXPECT_EQ(here.read(0, 100), Bytes(old.begin(), old.begin() + 100)) << here.sentence;
        ASSERT_EQ(rename((gone + "-gone").c_str(), gone.c_str()), 0);
        EXPECT_TRUE(here.write(200, Bytes(10))) << here.sentence;
        EXPECT_EQ(a.read(0, 100), pattern(100, 2));
        EXPECT_EQ(b.read(0, 100), pattern(100, 3));
    }
}

// An object of another user has the name of the shared memory. No process has the files mapped that
// could read old content, so the commit can be finished.
TEST_F(PeersOfTwoFiles, FinishACommitIfTheSharedMemoryIsAnotherUsers)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "needs root, to be another user";
    const std::string second = dir / "second";
    write_file(second, old);
    ASSERT_EQ(die_in_commit(path, second), CUT);
    for (const std::string &file : {path, second}) {
        const std::string memory = memory_of(file);
        ASSERT_EQ(unlink(memory.c_str()), 0);
        write_file(memory, Bytes(4096));
        ASSERT_EQ(chmod(memory.c_str(), 0600), 0);
        ASSERT_EQ(chown(memory.c_str(), 3333, 3333), 0);
    }
    const std::string squatted[] = {memory_of(path), memory_of(second)};
    {
        Mapped a(path, opt()), b(second, opt());
        ASSERT_TRUE(a && b) << a.sentence << b.sentence;
        EXPECT_EQ(a.read(0, 100), pattern(100, 2));
        EXPECT_EQ(b.read(0, 100), pattern(100, 3));
    }
    for (const std::string &memory : squatted)
        (void)unlink(memory.c_str());
}

} // namespace
