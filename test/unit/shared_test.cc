// SPDX-License-Identifier: BSD-3-Clause
//
// Is a page state made when it is first needed, and once, and is a full /dev/shm an error and no
// signal?
#include "support/child.h"
#include "support/dying.h"
#include "support/faults.h"
#include "support/mapped.h"

extern "C" {
#include "lib/file/shared.h"
#include "reflection/media/report.h"
#include "reflection/pairing/identity.h"
}

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <set>
#include <thread>

#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace support;

namespace
{

class Shared : public testing::Test
{
  protected:
    Shared()
    {
        memset(&record, 0, sizeof(record));
        identity_random(record.id, sizeof(record.id));
        record.domain = PERSIST_PMEM;
    }
    ~Shared() override
    {
        if (s.header)
            shared_close(&s, true);
    }

    int create(uint64_t capacity = 1 << 20, mode_t mode = 0640)
    {
        const trust file = {geteuid(), getegid(), mode};
        const int r = shared_create(&s, &record, &generation, capacity, 12345, &file, &faults);
        return r == 0 ? shared_reach(&s, 200000) : r;
    }

    shared s = {};
    fault_target faults = {};
    manifest_record record;
    uint64_t generation = 5; // of the last object
};

TEST_F(Shared, ObjectRepeatsTheFieldsOfTheManifest)
{
    ASSERT_EQ(create(), 0) << report_sentence();
    EXPECT_EQ(memcmp(s.header->id, record.id, 16), 0);
    EXPECT_EQ(s.header->generation, 6u); // the last object's plus 1
    EXPECT_EQ(generation, 6u);
    EXPECT_EQ(s.header->size, 12345u);
    EXPECT_EQ(s.header->domain, unsigned(PERSIST_PMEM));
    EXPECT_EQ(s.header->magic, SHARED_MAGIC);
    std::string path = std::string("/dev/shm") + s.name;
    EXPECT_EQ(stat_of(path).st_mode & 07777, 0640u) << "the original's mode";
    if (geteuid() == 0) {
        shared_close(&s, true);
        const trust other = {1000, 1001, 0640};
        ASSERT_EQ(shared_create(&s, &record, &generation, 1 << 20, 5, &other, &faults), 0);
        path = std::string("/dev/shm") + s.name;
        EXPECT_EQ(stat_of(path).st_uid, 1000u) << "and owner";
        EXPECT_EQ(stat_of(path).st_gid, 1001u) << "and group";
    }
    shared_close(&s, true);
    EXPECT_FALSE(exists(path));
}

TEST_F(Shared, ObjectOfADeadProcessIsReplaced)
{
    ASSERT_EQ(create(), 0);
    shared_state(&s, 7)->bitmap = 77;
    std::string dead = std::string("/dev/shm") + s.name;
    shared_close(&s, false); // as if killed
    EXPECT_TRUE(exists(dead));
    ASSERT_EQ(create(), 0) << report_sentence();
    EXPECT_EQ(shared_state(&s, 7)->bitmap, 0u);
    EXPECT_FALSE(exists(dead));
    EXPECT_NE(dead, std::string("/dev/shm") + s.name);
}

TEST_F(Shared, ObjectCanBeJoinedAndWatched)
{
    ASSERT_EQ(create(), 0) << report_sentence();
    record.shm_generation = generation;
    shared_state(&s, 7)->bitmap = 77;
    const trust file = {geteuid(), getegid(), 0640};
    shared other = {};
    ASSERT_EQ(shared_join(&other, &record, &file, "file", O_RDWR, &faults), 0) << report_sentence();
    ASSERT_EQ(shared_reach(&other, 200000), 0) << report_sentence();
    EXPECT_EQ(shared_state(&other, 7)->bitmap, 77u);
    shared_state(&other, 9000)->bitmap = 9;
    EXPECT_EQ(shared_state(&s, 9000)->bitmap, 9u);
    EXPECT_EQ(other.header->size, 12345u);
    shared_close(&other, false);
    ASSERT_EQ(shared_join(&other, &record, &file, "file", O_RDONLY, &faults), 0)
        << report_sentence();
    ASSERT_EQ(shared_reach(&other, 200000), 0) << report_sentence();
    const page_state *seen = shared_peek(&other, 9000);
    ASSERT_NE(seen, nullptr);
    EXPECT_EQ(seen->bitmap, 9u);
    EXPECT_EQ(shared_peek(&other, 100000), nullptr);
    shared_close(&other, false);
}

// An object with the right name may be of another container's file, or of an older version.
TEST_F(Shared, ObjectThatDoesNotMatchTheManifestIsNotJoined)
{
    ASSERT_EQ(create(), 0) << report_sentence();
    record.shm_generation = generation;
    const trust file = {geteuid(), getegid(), 0640};
    const shared_header good = *s.header;
    const std::function<void(shared_header &)> wrong[] = {
        [](auto &h) { h.magic ^= 1; },
        [](auto &h) { h.version++; },
        [](auto &h) { h.slots = 2048; },
        [](auto &h) { h.id[3] ^= 1; },
        [](auto &h) { h.boot_id[15] ^= 1; },
        [](auto &h) { h.generation++; },
        [](auto &h) { h.domain = PERSIST_EADR; },
        [](auto &h) { h.inode ^= 1; },
        [](auto &h) { h.capacity = 0; },
        [](auto &h) { h.capacity += 4; },
        [](auto &h) { h.capacity = 1ull << 40; },
        [](auto &h) { h.groups_at += 4096; },
    };
    shared other = {};
    for (const auto &change : wrong) {
        SCOPED_TRACE(&change - wrong);
        *s.header = good;
        change(*s.header);
        ASSERT_EQ(shared_join(&other, &record, &file, "file", O_RDWR, &faults), PAIRING_NOT_YET);
        EXPECT_NE(std::string(report_sentence()).find(s.name), std::string::npos);
        ASSERT_EQ(shared_join(&other, &record, &file, "file", O_RDONLY, &faults), PAIRING_NOT_YET);
    }
    *s.header = good;
    const std::string path = std::string("/dev/shm") + s.name;
    if (geteuid() == 0) { // of another user
        ASSERT_EQ(chown(path.c_str(), 12345, 12345), 0);
        EXPECT_EQ(shared_join(&other, &record, &file, "file", O_RDWR, &faults), -1);
        EXPECT_EQ(errno, EACCES) << report_sentence();
        ASSERT_EQ(chown(path.c_str(), 0, 0), 0);
    }
    ASSERT_EQ(truncate(path.c_str(), 4096), 0);
    EXPECT_EQ(shared_join(&other, &record, &file, "file", O_RDWR, &faults), PAIRING_NOT_YET);
    ASSERT_EQ(unlink(path.c_str()), 0);
    EXPECT_EQ(shared_join(&other, &record, &file, "file", O_RDWR, &faults), PAIRING_NOT_YET);
    EXPECT_NE(std::string(report_sentence()).find("containers"), std::string::npos);
}

// In /dev/shm users can remove only their own objects, and a file may have several users.
TEST_F(Shared, ObjectOfAnotherUsersDeadProcessIsReusedAndGivesItsMemoryBack)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "needs root, to become another user";
    ASSERT_EQ(create(1 << 20, 0666), 0);
    shared_state(&s, 7)->bitmap = 77;
    const std::string dead = s.name, path = "/dev/shm" + dead;
    shared_close(&s, false); // as if killed
    ASSERT_GT(stat_of(path).st_blocks, 0);
    for (int round = 0; round < 2; round++) // used, then empty
        EXPECT_EQ(in_child([&] {
                      if (setgid(65534) < 0 || setuid(65534) < 0)
                          return 99;
                      const trust file = {0, 0, 0666};
                      struct shared own = {};
                      if (shared_create(&own, &record, &generation, 1 << 20, 5, &file, &faults) < 0)
                          return 1;
                      if (own.name != dead || shared_state(&own, 7)->bitmap != 0)
                          return 2;
                      shared_close(&own, true);
                      return 0;
                  }),
                  0);
    EXPECT_EQ(stat_of(path).st_blocks, 0);
    EXPECT_EQ(unlink(path.c_str()), 0);
}

// Another user makes files in the folder, which has the sticky bit: any user that may read the
// manifest can tell the next names.
TEST_F(Shared, NamesThatAnotherUserHasTakenAreSkipped)
{
    ASSERT_EQ(create(), 0);
    std::string name = s.name, path = "/dev/shm" + name;
    shared_close(&s, true);
    const Bytes theirs = pattern(100, 1);
    std::vector<std::string> taken;
    for (int next = 6; next < 106; next++) {
        char hex[17];
        snprintf(hex, sizeof(hex), "%x", next);
        taken.push_back("/dev/shm" + name.substr(0, name.rfind('-') + 1) + hex);
        write_file(taken.back(), theirs);
    }
    EXPECT_EQ(taken[0], path);
    for (int i = 0; i < 2; i++) { // nor does the chosen name tell the next one
        generation = 5;
        FsFaults faults;
        faults.before = [&](const FsCall &c) {
            bool foreign =
                std::find(taken.begin(), taken.end(), "/dev/shm" + c.name) != taken.end();
            return std::string(c.op) == "shm_unlink" && foreign ? EACCES : GO_ON;
        };
        ASSERT_EQ(create(), 0) << report_sentence();
        EXPECT_EQ(s.header->generation, generation);
        std::string mine = std::string("/dev/shm") + s.name;
        EXPECT_EQ(std::find(taken.begin(), taken.end(), mine), taken.end());
        taken.push_back(mine);
        shared_close(&s, i == 1);
    }
    for (size_t i = 0; i < 100; i++)
        EXPECT_EQ(read_file(taken[i]), theirs);
    for (const std::string &at : taken)
        unlink(at.c_str());
}

// A user with write access to a file may write the id of another file into its manifest.
TEST_F(Shared, ObjectOfAnotherFileWithTheSameIdStays)
{
    record.inode = 7;
    record.device = 3;
    ASSERT_EQ(create(), 0);
    const std::string live = std::string("/dev/shm") + s.name;
    struct shared foreign = {};
    manifest_record copied = record;
    for (const auto &[inode, device] : {std::pair(8, 3), std::pair(7, 4)}) {
        copied.inode = static_cast<uint64_t>(inode);
        copied.device = static_cast<uint64_t>(device);
        for (uint64_t said : {generation, generation - 1}) {
            const trust file = {geteuid(), getegid(), 0600};
            ASSERT_EQ(shared_create(&foreign, &copied, &said, 1 << 20, 5, &file, &faults), 0);
            EXPECT_TRUE(exists(live));
            EXPECT_NE(live, std::string("/dev/shm") + foreign.name);
            shared_close(&foreign, true);
        }
    }
    EXPECT_TRUE(exists(live));
}

TEST_F(Shared, StatesBeginAsZerosAreDistinctAndStay)
{
    ASSERT_EQ(create(1ull << 41), 0); // 2 TiB
    std::set<page_state *> seen;
    const uint64_t pages[] = {0, 1, 3, 4, 5, 1000, 16383, 16384, 1ull << 20, (1ull << 29) - 1};
    for (uint64_t page : pages) {
        page_state *at = shared_state(&s, page);
        ASSERT_NE(at, nullptr) << report_sentence();
        page_state zero = {};
        EXPECT_EQ(memcmp(at, &zero, sizeof(zero)), 0) << page;
        EXPECT_TRUE(seen.insert(at).second) << page;
        at->version = page + 1;
    }
    for (uint64_t page : pages)
        EXPECT_EQ(shared_state(&s, page)->version, page + 1);
}

TEST_F(Shared, MemoryFollowsTheTouchedPages)
{
    ASSERT_EQ(create(1ull << 40), 0);
    struct stat st;
    ASSERT_EQ(fstat(s.fd, &st), 0);
    EXPECT_LT(st.st_blocks * 512, 1 << 20) << "a TiB mapped, nothing touched";
    for (uint64_t page = 0; page < 4000; page++)
        ASSERT_NE(shared_state(&s, page), nullptr);
    ASSERT_EQ(fstat(s.fd, &st), 0);
    EXPECT_LT(st.st_blocks * 512, 1 << 20);
}

// ato(7) says how much, in PROCESSES.
TEST(SharedMemory, OfAFileTakesNoMoreThanTheManualSays)
{
    TempDir dir;
    write_file(dir / "file", Bytes(20000));
    Mapped m(dir / "file", options());
    ASSERT_TRUE(m) << m.sentence;
    auto taken = [&] { return stat_of(memory_of(dir / "file")).st_blocks / 2; };
    const long more = m.stat().format == ATO_FORMAT_SPARSE ? 8 : 0;
    EXPECT_LE(taken(), 80 + more);
    ASSERT_TRUE(m.write(0, pattern(20000, 2)));
    EXPECT_LE(taken(), 120 + more);
}

TEST_F(Shared, ThreadsThatRaceForAStateGetTheSame)
{
    ASSERT_EQ(create(1ull << 34), 0);
    for (int round = 0; round < 20; round++) {
        std::vector<std::vector<page_state *>> found(4);
        std::vector<std::thread> threads;
        for (size_t t = 0; t < 4; t++)
            threads.emplace_back([this, &found, t, round] {
                for (uint64_t i = 0; i < 100; i++)
                    found[t].push_back(
                        shared_state(&s, static_cast<uint64_t>(round) * 1000 + i * 3));
            });
        for (std::thread &t : threads)
            t.join();
        for (size_t t = 1; t < 4; t++)
            EXPECT_EQ(found[t], found[0]);
        EXPECT_EQ(std::set<page_state *>(found[0].begin(), found[0].end()).size(), 100u);
    }
}

// ---- no space -----------------------------------------------------------------------------------

TEST_F(Shared, StepThatFailsLeavesNoObject)
{
    for (long k = 0;; k++) {
        FsFaults faults;
        faults.fail_at(k, ENOSPC);
        if (create() == 0) {
            bool done = k >= static_cast<long>(faults.calls.size());
            faults.before = nullptr;
            shared_close(&s, true);
            if (done)
                break;
            continue; // fchown may fail
        }
        std::string call = faults.calls[static_cast<size_t>(k)];
        EXPECT_EQ(errno, ENOSPC) << call;
        EXPECT_STRNE(report_sentence(), "") << call;
        char id[33];
        identity_hex(record.id, id);
        EXPECT_EQ(shared_objects(id), 0u) << call;
    }
}

TEST_F(Shared, StateWithoutSpaceIsEnospcAndIsMadeLater)
{
    ASSERT_EQ(create(), 0);
    FsFaults faults;
    for (long k : {0, 1}) { // the directory's batch, the groups'
        faults.fail_at(static_cast<long>(faults.calls.size()) + (k == 0 ? 0 : 1), ENOSPC);
        EXPECT_EQ(shared_state(&s, 9), nullptr);
        EXPECT_EQ(errno, ENOSPC);
        EXPECT_NE(std::string(report_sentence()).find("/dev/shm"), std::string::npos);
    }
    faults.before = nullptr;
    EXPECT_NE(shared_state(&s, 9), nullptr);
}

TEST(SharedFull, OperationsFailWithEnospcChangeNothingAndWorkLater)
{
    TempDir dir;
    std::string path = dir / "file";
    const Bytes content = pattern(64 << 20, 1);
    write_file(path, content);
    Mapped m(path);
    ASSERT_TRUE(m) << m.sentence;
    FsFaults faults;
    faults.fail_op("fallocate", ENOSPC);
    Bytes buffer(100);
    EXPECT_EQ(ato_memcpy(buffer.data(), m.base, 100), nullptr);
    EXPECT_EQ(errno, ENOSPC);
    EXPECT_NE(std::string(ato_errormsg()).find("/dev/shm"), std::string::npos) << ato_errormsg();
    EXPECT_EQ(ato_memcpy(m.base, buffer.data(), 100), nullptr);
    EXPECT_EQ(errno, ENOSPC);
    EXPECT_EQ(ato_deploy(m.base, content.size()), 0) << "pages that nobody touched need no state";
    faults.before = nullptr;
    EXPECT_EQ(m.read(0, 10000), Bytes(content.begin(), content.begin() + 10000));
    EXPECT_TRUE(m.write(0, pattern(10000, 2))) << m.sentence;
}

// A real file system: only the child sees a /dev/shm of one MiB.
TEST(SharedFull, RealSmallDevShmIsEnospcAndNeverASignal)
{
    TempDir dir("/tmp");
    std::string path = dir / "file";
    constexpr size_t SIZE = 200 << 20;
    write_file(path, Bytes());
    ASSERT_EQ(truncate(path.c_str(), SIZE), 0);
    int status = in_child([&] {
        if (unshare(CLONE_NEWNS) < 0 ||
            mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) < 0 ||
            mount("ato-test", "/dev/shm", "tmpfs", 0, "size=1m") < 0)
            return 50;
        Mapped m(path, options(ATO_DOMAIN_PROCESS));
        if (!m)
            return 1;
        long good = 0, refused = 0;
        for (size_t at = 0; at + 4096 <= SIZE; at += 4096) {
            char byte = 'x';
            if (ato_memcpy(m.base + at, &byte, 1)) {
                good++;
            } else {
                if (errno != ENOSPC || !*ato_errormsg())
                    return 2;
                refused++;
                if (refused > 20)
                    break;
            }
        }
        char back = 0;
        bool kept = ato_memcpy(&back, m.base, 1) && back == 'x';
        return good > 100 && refused > 0 && kept ? 0 : 3;
    });
    if (status == 50)
        GTEST_SKIP() << "cannot mount a file system here";
    EXPECT_EQ(status, 0);
}

} // namespace
