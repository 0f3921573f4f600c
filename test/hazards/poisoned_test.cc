// SPDX-License-Identifier: BSD-3-Clause
//
// The medium fails. The kernel tells of a failed write-back once and takes the pages for clean: who
// asks again is told that all is well, with bytes in memory that are on no disk. The library
// believes nothing of such a file any more: every call is EIO until it is mapped anew.
#include "mounts.h"
#include "naive.h"
#include "support/faults.h"

#include <fcntl.h>
#include <sys/mman.h>

namespace
{

class Poisoned : public Hazard
{
  protected:
    static ato_options wish()
    {
        return options(ATO_DOMAIN_MSYNC, ATO_READ_GATHER, ATO_NO_RTM);
    }

    // Every call, each time: it does not wear off, as the kernel's answer does.
    static void expect_eio(Mapped &m, const std::string &p)
    {
        char buffer[64] = {0};
        auto says_why = [&p](bool failed) {
            EXPECT_TRUE(failed);
            EXPECT_EQ(errno, EIO);
            EXPECT_NE(std::string(ato_errormsg()).find(p), std::string::npos) << ato_errormsg();
        };
        for (int i = 0; i < 2; i++) {
            says_why(!ato_memcpy(buffer, m.base, 64));
            says_why(!ato_memcpy(m.base, buffer, 64));
            says_why(!ato_memcpy(m.base, m.base + 5000, 64));
            says_why(!ato_memcpy_opt(m.base, buffer, 64, ATO_SKIP_EQUAL));
            says_why(!ato_memset(m.base, 0, 64));
            says_why(ato_deploy(m.base, SIZE) < 0);
            says_why(ato_msync(m.base, SIZE, MS_SYNC) < 0);
            Mapped second(p, wish());
            EXPECT_FALSE(second);
            EXPECT_EQ(second.error, EIO) << second.sentence;
        }
    }

    void expect_whole_and_usable(const Bytes &one, const Bytes &other)
    {
        Mapped m(path, wish());
        ASSERT_TRUE(m) << m.sentence;
        Bytes found = m.read();
        EXPECT_TRUE(found == one || found == other) << "torn";
        EXPECT_TRUE(m.write(0, pattern(9000, 5))) << m.sentence;
        EXPECT_EQ(m.read(0, 9000), pattern(9000, 5));
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        EXPECT_EQ(read_at(path, 0, 9000), pattern(9000, 5));
    }
};

// One flush fails, and all later ones say that all is well: as the kernel does.
TEST_F(Poisoned, SecondTryIsNotBelieved)
{
    const Bytes record = pattern(6000, 2);
    Bytes after = old;
    std::copy(record.begin(), record.end(), after.begin() + 3000);
    long believed = 0;
    for (long fails = 0;; fails++) {
        SCOPED_TRACE(fails);
        write_file(path, old);
        long flushes = 0;
        bool written;
        {
            Mapped m(path, wish());
            ASSERT_TRUE(m && m.write(0, Bytes(old.begin(), old.begin() + 9000))) << m.sentence;
            PersistFaults faults;
            faults.before = [&](const PersistCall &c) {
                return c.n && flushes++ == fails ? EIO : GO_ON;
            };
            written = m.write(3000, record);
            faults.before = nullptr;
            if (!written) {
                EXPECT_EQ(m.error, EIO) << m.sentence;
                EXPECT_EQ(msync(m.base, SIZE, MS_SYNC), 0) << "who asks the kernel again";
                if (ato_msync(m.base, SIZE, MS_SYNC) < 0) {
                    expect_eio(m, path);
                } else { // the journal's list, of which nothing is believed
                    believed++;
                    EXPECT_EQ(m.read(), old);
                    EXPECT_TRUE(m.write(3000, Bytes(old.begin() + 3000, old.begin() + 9000)));
                }
            }
            EXPECT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
        }
        expect_whole_and_usable(written ? after : old, after);
        ASSERT_FALSE(HasFailure());
        if (written) {
            EXPECT_EQ(believed, 1);
            EXPECT_EQ(fails, 6); // O, R, the journal's list and commit line, words, retired
            break;
        }
    }
}

// The real thing: a disk whose own medium is full. What cannot be written back is lost, once with a
// word and then without one.
TEST_F(Poisoned, DiskThatFails)
{
    int status = with_mounts(
        dir.path(),
        "mkdir below a && mount -t tmpfs -o size=48M none below && truncate -s 64M below/disk && "
        "mkfs.ext4 -q -F -O ^has_journal -E lazy_itable_init=0 below/disk && "
        "mount -o loop below/disk a",
        [&] {
            std::string full = dir / "below/full", plain = dir / "a/plain";
            path = dir / "a/file";
            content = pattern(2000 * 4096, 1);
            write_file(path, content);
            write_file(plain, old);
            Mapped m(path, wish());
            EXPECT_TRUE(m && m.write(0, pattern(9000, 3))) << m.sentence; // makes the journal
            std::copy_n(pattern(9000, 3).begin(), 9000, content.begin());
            sync();
            // Space for what comes is on the disk already, and not below it.
            Fd fd(plain);
            if (fallocate(fd, 0, 0, 16 << 20) < 0 ||
                !run_in(dir.path(), "sync; dd if=/dev/zero of=below/full bs=64k; true"))
                return NO_MOUNTS;
            Bytes more = pattern(6 << 20, 9);
            write_at(plain, 9 << 20, more.data(), more.size());
            int first = fsync(fd), again = fsync(fd);
            bool said = first < 0 && errno != 0;
            // The library, with writes to pages whose reflection has not been written yet.
            Bytes before = content, record = pattern(1900 * 4096, 4);
            bool written = m.write(8 * 4096, record);
            if (!said || written) {
                fs::remove(full);
                m.unmap(ATO_UNMAP_FAST);
                run_in(dir.path(), "umount a");
                return NO_MOUNTS + 1;
            }
            EXPECT_EQ(again, 0) << "the second time it says that all is well";
            EXPECT_EQ(m.error, EIO) << m.sentence;
            expect_eio(m, path);
            fs::remove(full); // the cause is gone
            expect_eio(m, path);
            EXPECT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
            Bytes after = before;
            std::copy(record.begin(), record.end(), after.begin() + 8 * 4096);
            expect_whole_and_usable(before, after);
            run_in(dir.path(), "umount a");
            return static_cast<int>(HasFailure());
        });
    if (status == NO_MOUNTS)
        GTEST_SKIP() << "cannot mount a disk image here";
    if (status == NO_MOUNTS + 1)
        GTEST_SKIP() << "this disk does not fail when the medium below it is full";
    EXPECT_EQ(status, 0);
}

} // namespace
