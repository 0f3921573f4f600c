// SPDX-License-Identifier: BSD-3-Clause
//
// In which order is a pairing made and removed, and what does a step that fails cause? Birth:
// reflection, manifest, attribute, then `in use`. Death: `deployed`, attribute, reflection,
// manifest. A step that fails is an error with a sentence; no data is lost, and the next try works.
// After a crash the next process makes the state durable on which it relies.
#include "support/child.h"
#include "support/faults.h"
#include "support/mapped.h"

extern "C" {
#include "reflection/format/manifest.h"
}

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sys/xattr.h>

using namespace support;

namespace
{

constexpr size_t SIZE = 3 * 4096;

size_t index_of(const std::vector<std::string> &calls, const std::string &call)
{
    return static_cast<size_t>(std::find(calls.begin(), calls.end(), call) - calls.begin());
}

manifest_record record_in(const std::string &path)
{
    Bytes bytes = read_file(manifest_of(path));
    manifest_record record;
    int which;
    bytes.resize(MANIFEST_BYTES);
    EXPECT_EQ(manifest_read(bytes.data(), &record, &which), MANIFEST_VALID);
    return record;
}

// Adds the inode to each sync in FsFaults' calls: "fsync inode".
class Syncs
{
  public:
    explicit Syncs(FsFaults &faults) : table_(*fsops)
    {
        faults_ = &faults;
        below_ = fsops;
        table_.fsync = [](int fd) {
            struct stat st;
            int result = fstat(fd, &st) < 0 ? -1 : below_->fsync(fd);
            faults_->calls.back() += " " + std::to_string(st.st_ino);
            return result;
        };
        fsops = &table_;
    }
    ~Syncs()
    {
        fsops = below_;
    }
    Syncs(const Syncs &) = delete;
    Syncs &operator=(const Syncs &) = delete;

  private:
    static FsFaults *faults_;
    static const struct fsops *below_;
    struct fsops table_;
};
FsFaults *Syncs::faults_;
const struct fsops *Syncs::below_;

std::string sync_of(const std::string &path)
{
    return "fsync " + std::to_string(inode_of(path));
}

// `what`: an entry of the table, or "entry name".
bool is_call(const FsCall &c, const std::string &what)
{
    return c.op == what || std::string(c.op) + " " + c.name == what;
}

// A process maps the file and makes it plain again, and dies before this call.
int life_cut_before(const std::string &what, const std::string &path)
{
    return in_child([&] {
        FsFaults faults;
        faults.before = [&](const FsCall &c) { return is_call(c, what) ? DIE : GO_ON; };
        Mapped m(path);
        return m.unmap(ATO_UNMAP_SPATIAL);
    });
}

TEST(PairingBirth, ReflectionThenNamesThenManifestThenAttribute)
{
    TempDir dir;
    std::string path = dir / "file", inode;
    write_file(path, pattern(SIZE, 1));
    inode = std::to_string(inode_of(path));
    FsFaults faults;
    faults.before = [&](const FsCall &c) {
        if (is_call(c, "fsetxattr user.ato")) { // durable by now
            EXPECT_TRUE(exists(reflection_of(path)));
            EXPECT_EQ(record_in(path).state, MANIFEST_IN_USE);
        }
        return GO_ON;
    };
    Mapped m(path);
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(record_in(path).state, MANIFEST_IN_USE);
    size_t reflection = index_of(faults.calls, "create " + inode);
    size_t attribute = index_of(faults.calls, "fsetxattr user.ato");
    ASSERT_LT(attribute, faults.calls.size());
    EXPECT_LT(reflection, attribute);
    // Each is synced before the next: reflection, manifest and folder before the attribute.
    EXPECT_GE(std::count(faults.calls.begin() + static_cast<long>(reflection),
                         faults.calls.begin() + static_cast<long>(attribute), "fsync"),
              3);
    ASSERT_LT(attribute + 1, faults.calls.size());
    EXPECT_EQ(faults.calls[attribute + 1], "fsync");
}

TEST(PairingBirth, DeployedIsWrittenBeforeAnyRemovalAndTheManifestIsRemovedLast)
{
    TempDir dir;
    std::string path = dir / "file", inode;
    write_file(path, pattern(SIZE, 1));
    inode = std::to_string(inode_of(path));
    Mapped m(path);
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_TRUE(m.write(0, pattern(5000, 2)));
    FsFaults faults;
    faults.before = [&](const FsCall &c) {
        bool removes = std::string(c.op) == "fremovexattr" ||
                       (std::string(c.op) == "unlinkat" && c.name.rfind(inode, 0) == 0);
        if (removes) {
            EXPECT_EQ(record_in(path).state, MANIFEST_DEPLOYED) << c.op << " " << c.name;
        }
        return GO_ON;
    };
    ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    size_t attribute = index_of(faults.calls, "fremovexattr user.ato");
    size_t reflection = index_of(faults.calls, "unlinkat " + inode);
    size_t manifest = index_of(faults.calls, "unlinkat " + inode + ".manifest");
    ASSERT_LT(manifest, faults.calls.size());
    EXPECT_LT(attribute, reflection);
    EXPECT_LT(reflection, manifest);
    EXPECT_EQ(faults.calls[attribute + 1], "fsync"); // durable before the reflection goes
}

TEST(PairingBirth, CleanUnmapRecordsTimesSizeAndState)
{
    TempDir dir;
    std::string path = dir / "file";
    write_file(path, pattern(SIZE, 1));
    {
        Mapped m(path);
        ASSERT_TRUE(m) << m.sentence;
        ASSERT_TRUE(m.write(0, pattern(64, 2)));
    }
    manifest_record r = record_in(path);
    struct stat st = stat_of(path);
    EXPECT_EQ(r.state, MANIFEST_CLEAN);
    EXPECT_EQ(r.clean_size, SIZE);
    EXPECT_EQ(r.clean_mtime_sec, st.st_mtim.tv_sec);
    EXPECT_EQ(r.clean_mtime_nsec, static_cast<uint64_t>(st.st_mtim.tv_nsec));
    EXPECT_EQ(r.inode, st.st_ino);
    EXPECT_NE(attribute_of(path).find(std::to_string(st.st_ino)), std::string::npos);
}

// The kernel's clock may be coarse: a write by another program in the same tick would not change
// mtime.
TEST(PairingBirth, MtimeIsSetFromTheFineClockOnlyIfTheFileWasWritten)
{
    TempDir dir;
    std::string path = dir / "file";
    write_file(path, pattern(SIZE, 1));
    FsFaults faults;
    {
        Mapped m(path);
        EXPECT_EQ(m.read(), pattern(SIZE, 1));
    }
    EXPECT_EQ(faults.count("futimens"), 0);
    {
        Mapped m(path);
        ASSERT_TRUE(m.write(0, pattern(64, 2)));
    }
    EXPECT_EQ(faults.count("futimens"), 1);
    // Durable before the manifest records it.
    EXPECT_EQ(faults.calls.at(index_of(faults.calls, "futimens") + 1), "fsync");
}

TEST(PairingBirth, MapOfADeployedPairingFinishesTheRemovalAndMakesANewOne)
{
    TempDir dir;
    std::string path = dir / "file";
    write_file(path, pattern(SIZE, 1));
    ASSERT_EQ(life_cut_before("fremovexattr", path), CUT);
    std::string id = attribute_of(path);
    ASSERT_NE(id, "");
    ASSERT_EQ(record_in(path).state, MANIFEST_DEPLOYED);
    Mapped m(path);
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_NE(attribute_of(path), id);
    EXPECT_NE(attribute_of(path), "");
    EXPECT_EQ(m.read(), pattern(SIZE, 1));
}

TEST(PairingBirth, ManifestWithoutAttributeOfAnotherFileDoesNotTakeTheAttributeFromThisFile)
{
    TempDir dir;
    const std::string one = dir / "one", two = dir / "two";
    write_file(one, pattern(5000, 1));
    write_file(two, pattern(5000, 2));
    ASSERT_EQ(in_child([&] {
                  FsFaults faults;
                  faults.fail_op("fsetxattr", ENOTSUP);
                  Mapped m(one);
                  _exit(m && m.write(10, Bytes(100)) ? CUT : 1);
                  return 0;
              }),
              CUT);
    ASSERT_EQ(attribute_of(one), "");
    // As if `two` had got the inode number of `one`.
    ASSERT_EQ(rename(reflection_of(one).c_str(), reflection_of(two).c_str()), 0);
    ASSERT_EQ(rename(manifest_of(one).c_str(), manifest_of(two).c_str()), 0);
    Mapped m(two);
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_NE(attribute_of(two), "");
    EXPECT_EQ(m.read(), pattern(5000, 2));
}

// The second of two renames replaces the first one's file where the file system knows no flags.
TEST(PairingBirth, ManifestThatAnotherProcessMadeDuringTheWaitForALockIsNotReplaced)
{
    TempDir dir;
    const std::string path = dir / "file";
    write_file(path, pattern(SIZE, 1));
    {
        Mapped m(path);
        ASSERT_TRUE(m) << m.sentence;
    }
    const std::string manifest = manifest_of(path), old = manifest + ".old";
    int lock = open(manifest.c_str(), O_RDWR | O_CLOEXEC);
    struct flock l = {};
    l.l_type = F_WRLCK;
    l.l_len = 1;
    ASSERT_EQ(fcntl(lock, F_OFD_SETLK, &l), 0);
    Pipe begun;
    pid_t child = fork();
    if (child == 0) {
        close(lock);
        struct fsops flagless = *fsops;
        flagless.renameat = [](int in, const char *from, const char *to) {
            return renameat(in, from, in, to);
        };
        fsops = &flagless;
        begun.tell();
        Mapped m(path);
        _exit(m ? 0 : 1);
    }
    ASSERT_TRUE(begun.hear());
    usleep(100 * 1000); // it waits for the lock
    ASSERT_EQ(rename(manifest.c_str(), old.c_str()), 0);
    std::filesystem::copy(old, manifest);
    const ino_t made = inode_of(manifest);
    close(lock);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(inode_of(manifest), made);
}

// `deployed` may be visible and not durable: its writer died before its fence.
TEST(PairingBirth, MapOfADeployedPairingSyncsTheManifestBeforeItRemovesTheAttribute)
{
    TempDir dir;
    std::string path = dir / "file", manifest;
    write_file(path, pattern(SIZE, 1));
    ASSERT_EQ(life_cut_before("fremovexattr", path), CUT);
    ASSERT_EQ(record_in(path).state, MANIFEST_DEPLOYED);
    manifest = sync_of(manifest_of(path));
    FsFaults faults;
    Syncs syncs(faults);
    Mapped m(path);
    ASSERT_TRUE(m) << m.sentence;
    size_t attribute = index_of(faults.calls, "fremovexattr user.ato");
    ASSERT_LT(attribute, faults.calls.size());
    EXPECT_LT(index_of(faults.calls, manifest), attribute);
}

// The process that made the folder may have died before it synced the parent folder.
TEST(PairingBirth, InAnExistingFolderSyncsTheParentFolderBeforeTheAttribute)
{
    TempDir dir;
    std::string path = dir / "file";
    write_file(path, pattern(SIZE, 1));
    ASSERT_EQ(life_cut_before("create", path), CUT);
    ASSERT_TRUE(exists(folder_of(path)));
    FsFaults faults;
    Syncs syncs(faults);
    Mapped m(path);
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(faults.count("mkdirat"), 0);
    size_t attribute = index_of(faults.calls, "fsetxattr user.ato");
    ASSERT_LT(attribute, faults.calls.size());
    EXPECT_LT(index_of(faults.calls, sync_of(dir.path())), attribute);
}

// Where the folder has its name since that was made durable, no birth syncs the folder around it. A mark that came along with
// a copy, or could not be set, is none.
TEST(PairingBirth, SyncsTheParentFolderOnlyIfTheFolderHasNoMarkOfItsOwn)
{
    TempDir dir, other;
    std::string path = dir / "file", folder = folder_of(path), around = sync_of(dir.path());
    const auto syncs_parent = [&](int answer) {
        FsFaults faults;
        Syncs syncs(faults);
        faults.before = [&](const FsCall &c) {
            return is_call(c, "fsetxattr user.ato.named") ? answer : GO_ON;
        };
        Mapped m(path);
        EXPECT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0);
        return index_of(faults.calls, around) < faults.calls.size();
    };
    write_file(path, pattern(SIZE, 1));
    EXPECT_TRUE(syncs_parent(EPERM));
    EXPECT_TRUE(syncs_parent(GO_ON));
    if (getxattr(folder.c_str(), "user.ato.named", nullptr, 0) < 0)
        GTEST_SKIP() << "no extended attributes on folders here";
    EXPECT_FALSE(syncs_parent(GO_ON));
    std::filesystem::rename(folder, other / "moved");
    std::filesystem::create_directory(folder);
    std::filesystem::rename(other / "moved", folder);
    EXPECT_FALSE(syncs_parent(GO_ON)) << "at its place again";
    char mark[512];
    const std::string own = std::to_string(inode_of(folder));
    const ssize_t n = getxattr(folder.c_str(), "user.ato.named", mark, sizeof(mark));
    std::filesystem::remove_all(folder);
    std::filesystem::create_directory(other / "keep"); // gets the inode number that is free now
    std::filesystem::create_directory(folder);
    const auto set_mark = [&](const std::string &text) {
        ASSERT_EQ(setxattr(folder.c_str(), "user.ato.named", text.data(), text.size(), 0), 0);
    };
    std::string copied(mark, static_cast<size_t>(n));
    set_mark(copied);
    EXPECT_TRUE(syncs_parent(GO_ON)) << "a copy";
    set_mark(
        copied.replace(copied.find(' ' + own) + 1, own.size(), std::to_string(inode_of(folder))));
    EXPECT_TRUE(syncs_parent(GO_ON)) << "a copy whose inodes have the same numbers";
}

// A crash cuts the birth between record and attribute.
TEST(PairingBirth, ThatWasCutBeforeTheAttributeGetsIt)
{
    TempDir dir;
    std::string path = dir / "file";
    write_file(path, pattern(SIZE, 1));
    ASSERT_EQ(life_cut_before("fsetxattr user.ato", path), CUT);
    EXPECT_EQ(attribute_of(path), "");
    EXPECT_EQ(record_in(path).state, MANIFEST_IN_USE);
    FsFaults faults;
    Syncs syncs(faults);
    Mapped m(path);
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_NE(attribute_of(path), "");
    EXPECT_LT(index_of(faults.calls, sync_of(manifest_of(path))),
              index_of(faults.calls, "fsetxattr user.ato"));
    EXPECT_EQ(m.read(), pattern(SIZE, 1));
}

// A crash cuts the birth between the attribute and its sync.
TEST(PairingBirth, AdoptionOfACutBirthSyncsTheOriginalBeforeTheManifest)
{
    TempDir dir;
    std::string path = dir / "file";
    write_file(path, pattern(SIZE, 1));
    ato_options o = {};
    o.struct_size = sizeof(o);
    o.domain = ATO_DOMAIN_DISK;
    ASSERT_EQ(in_child([&] {
                  FsFaults faults;
                  faults.before = [&](const FsCall &c) {
                      bool set = c.index && faults.calls[c.index - 1] == "fsetxattr user.ato";
                      return set ? DIE : GO_ON;
                  };
                  Mapped m(path, o);
                  return 0;
              }),
              CUT);
    std::string id = attribute_of(path);
    ASSERT_NE(id, "");
    const uint64_t sequence = record_in(path).sequence;
    FsFaults faults;
    Syncs syncs(faults);
    size_t before_use = 0; // the number of calls before the next record
    PersistFaults stores;
    stores.before = [&](const PersistCall &) {
        if (record_in(path).sequence == sequence)
            before_use = faults.calls.size();
        return GO_ON;
    };
    Mapped m(path, o);
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(attribute_of(path), id); // adopted
    EXPECT_EQ(record_in(path).state, MANIFEST_IN_USE);
    EXPECT_LT(index_of(faults.calls, sync_of(path)), before_use);
}

// Each call between the birth and the death of a pairing fails once, with each error.
class PairingStepFails : public testing::TestWithParam<int>
{
};

TEST_P(PairingStepFails, IsAnErrorWithASentenceAndTheNextTryWorks)
{
    const Bytes before = pattern(SIZE, 1), record = pattern(5000, 2);
    Bytes after = before;
    std::copy(record.begin(), record.end(), after.begin());
    long errors = 0;
    for (long k = 0;; k++) {
        SCOPED_TRACE("call " + std::to_string(k));
        TempDir dir;
        std::string path = dir / "file";
        write_file(path, before);
        bool written = false, seen = false;
        std::string id = "none";
        {
            FsFaults faults;
            faults.fail_at(k, GetParam());
            Mapped m(path, options(ATO_DOMAIN_PMEM));
            if (!m) {
                errors++;
                EXPECT_EQ(m.error, GetParam()) << m.sentence << " at " << faults.calls[k];
                EXPECT_NE(m.sentence, "");
                EXPECT_EQ(attribute_of(path), "") << faults.calls[k];
                EXPECT_FALSE(std::filesystem::exists(manifest_of(path))) << faults.calls[k];
                EXPECT_FALSE(std::filesystem::exists(reflection_of(path))) << faults.calls[k];
            } else {
                written = m.write(0, record);
                if (!written) {
                    errors++;
                    EXPECT_EQ(m.error, GetParam()) << m.sentence << " at " << faults.calls[k];
                    EXPECT_NE(m.sentence, "");
                    EXPECT_EQ(m.read(), before);
                    faults.before = nullptr;
                    EXPECT_TRUE(m.write(0, record)) << "the next try: " << m.sentence;
                    written = true;
                }
                EXPECT_EQ(m.read(), after);
                id = id_of(path);
                if (m.unmap(ATO_UNMAP_SPATIAL) < 0) {
                    errors++;
                    EXPECT_EQ(m.error, GetParam()) << m.sentence << " at " << faults.calls[k];
                    faults.before = nullptr;
                    if (m.unmap(ATO_UNMAP_SPATIAL) < 0) // unmapped: see unmap_test.cc
                        m.base = nullptr;
                }
            }
            seen = k < static_cast<long>(faults.calls.size());
        }
        // Another process has none of the state that this one still holds.
        int status = in_child([&] {
            Mapped m(path, options(ATO_DOMAIN_PMEM));
            EXPECT_TRUE(m) << m.sentence;
            if (m) {
                EXPECT_EQ(m.read(), written ? after : before);
                EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
            }
            EXPECT_EQ(read_file(path), written ? after : before);
            return HasFailure();
        });
        ASSERT_EQ(status, 0);
        remove_shared_objects(id); // if their removal failed
        if (!seen)
            break;
        ASSERT_FALSE(HasFailure());
    }
    EXPECT_GT(errors, 15);
}

INSTANTIATE_TEST_SUITE_P(Errors, PairingStepFails, testing::Values(ENOSPC, EIO),
                         [](const testing::TestParamInfo<int> &info) {
                             return info.param == ENOSPC ? "ENOSPC" : "EIO";
                         });

} // namespace
