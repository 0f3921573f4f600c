// SPDX-License-Identifier: BSD-3-Clause
//
// A backup with everything in it is restored: the file, and the folder with its reflection. The file has another
// inode number, and perhaps no attribute: nothing leads from it to its reflection, and its own bytes are outdated.
// The next map is a clear error until the user chooses a side: the two are joined again, or the file counts.
// (Copies without their reflection: pairing_test.cc. File systems without attributes: bare_test.cc.)
#include "pairing_lab.h"

extern "C" {
#include "reflection/media/locks.h"
}

#include <cerrno>

#include <sys/mount.h>

using namespace scene;

namespace
{

ato_options prefer(unsigned flag)
{
    return options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, flag);
}

std::string hex_id(const std::string &manifest)
{
    const Bytes id = read_at(manifest, 32, 16);
    char hex[33];
    for (size_t i = 0; i < id.size(); i++)
        snprintf(hex + 2 * i, 3, "%02x", id[i]);
    return hex;
}

class Restored : public Pairing
{
  protected:
    // Restores dir/a as dir/b. False: there is no such tool here.
    bool restore(const std::string &commands)
    {
        fs::remove_all(dir / "b");
        if (!hazards::run_in(dir.path(), commands))
            return false;
        now = far("file");
        old_names = near(".ato/") + std::to_string(inode_of(path));
        there = far(".ato/") + std::to_string(inode_of(path));
        EXPECT_NE(inode_of(now), inode_of(path));
        EXPECT_TRUE(exists(there));
        return true;
    }

    // Refused with a sentence that names both, for writers and readers; nothing changes.
    void expect_apart()
    {
        expect_no(now, ESTALE, {now, there, "ATO_PREFER_REFLECTION", "ATO_PREFER_FILE"});
        Fd reading(now, O_RDONLY);
        EXPECT_EQ(ato_mmap(nullptr, SIZE, PROT_READ, MAP_SHARED, reading, 0), MAP_FAILED);
        EXPECT_EQ(errno, ESTALE) << ato_errormsg();
    }

    void expect_joined()
    {
        const Everything source(dir / "a");
        {
            Log log;
            Mapped m(now, prefer(ATO_PREFER_REFLECTION));
            ASSERT_TRUE(m) << m.sentence;
            EXPECT_EQ(m.read(), content);
            EXPECT_TRUE(log.has(ATO_LOG_WARNING, "joined with its reflection"));
            EXPECT_NE(id_of(now), hex_id(old_names + ".manifest")) << "the source may be in use";
            EXPECT_EQ(id_of(now), hex_id(manifest_of(now)));
            EXPECT_FALSE(exists(there) || exists(there + ".manifest"));
            ASSERT_TRUE(m.write(5, pattern(300, 9))) << m.sentence;
        }
        EXPECT_TRUE(source == Everything(dir / "a"));
        Mapped again(now, prefer(0));
        ASSERT_TRUE(again) << again.sentence;
        Bytes written = content;
        std::copy_n(pattern(300, 9).begin(), 300, written.begin() + 5);
        EXPECT_EQ(again.read(), written);
        ASSERT_EQ(again.unmap(ATO_UNMAP_SPATIAL), 0) << again.sentence;
        EXPECT_EQ(read_file(now), written);
        EXPECT_FALSE(exists(reflection_of(now)) || exists(manifest_of(now)));
        expect_maps(path); // the source is as it was
    }

    void expect_file_counts()
    {
        const Bytes own = read_file(now), reflection = read_file(there);
        {
            Mapped m(now, prefer(ATO_PREFER_FILE));
            ASSERT_TRUE(m) << m.sentence;
            EXPECT_EQ(m.read(), own);
        }
        Mapped again(now, prefer(0));
        ASSERT_TRUE(again) << again.sentence;
        EXPECT_EQ(again.read(), own);
        bool kept = false;
        for (const std::string &name : names_in(far(".ato")))
            kept |= name.find(".stale-") != std::string::npos &&
                    read_file(far(".ato/") + name) == reflection;
        EXPECT_TRUE(kept) << "the reflection is lost";
    }

    std::string there, old_names; // the reflection's paths, restored and of the source
};

struct Backup {
    const char *name, *commands;
    std::function<void(Stage &)> past;

    friend std::ostream &operator<<(std::ostream &out, const Backup &b)
    {
        return out << b.name;
    }
};

#define TAR(options, more)                                                                         \
    "tar " options " -cf t.tar -C a . && mkdir b && tar " options " " more " -xf t.tar -C b"

const std::vector<Backup> backups = {
    {"Tar", TAR("", ""), slices},
    {"TarOfAKilled", TAR("", ""), killed},
    {"TarOfAKilledInACommit", TAR("", ""), cut},
    {"TarWithAttributes", TAR("--xattrs", "--xattrs-include='user.*'"), slices},
    {"TarWithAttributesOfAKilledInACommit", TAR("--xattrs", "--xattrs-include='user.*'"), cut},
    {"Rsync", "rsync -aX a/ b", slices},
    {"RsyncOfAKilled", "rsync -aX a/ b", killed},
    {"RsyncWithoutAttributes", "rsync -a a/ b", cut},
    {"CpA", "cp -a a b", slices},
    {"CpAOfAKilled", "cp -a a b", cut},
    {"CpR", "cp -r a b", slices}, // new times
    {"CpROfAKilled", "cp -r a b", killed},
};

class RestoredBy : public Restored, public testing::WithParamInterface<Backup>
{
};

TEST_P(RestoredBy, IsRefusedThenJoinedOrTheFileCounts)
{
    GetParam().past(*this);
    ASSERT_FALSE(HasFailure());
    if (!restore(GetParam().commands))
        GTEST_SKIP() << "the tool is not here";
    EXPECT_NE(read_file(now), content) << "a program that takes it for plain reads stale bytes";
    expect_apart();
    expect_file_counts();
    ASSERT_FALSE(HasFailure());
    ASSERT_TRUE(restore(GetParam().commands));
    expect_apart();
    expect_joined();
}

INSTANTIATE_TEST_SUITE_P(Backups, RestoredBy, testing::ValuesIn(backups),
                         [](const testing::TestParamInfo<Backup> &i) { return i.param.name; });

TEST_F(Restored, IsJoinedWhileItsSourceIsMapped)
{
    leave_slices();
    ASSERT_TRUE(restore("cp -a a b"));
    Mapped source(path, prefer(0));
    ASSERT_TRUE(source) << source.sentence;
    Mapped m(now, prefer(ATO_PREFER_REFLECTION));
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_TRUE(m.write(0, pattern(100, 8)) && source.write(0, pattern(100, 9)));
    EXPECT_EQ(m.read(0, 100), pattern(100, 8));
    EXPECT_EQ(source.read(0, 100), pattern(100, 9));
}

// A new file, or one that was restored by itself, is not taken for the removed one by its size alone.
// A process has begun a pairing under the file's new number, and was killed.
TEST_F(Restored, IsJoinedAlsoIfABirthWasCutThere)
{
    leave_slices();
    ASSERT_TRUE(restore("cp -a a b"));
    write_file(manifest_of(now), {});
    expect_joined();
}

TEST_F(Restored, NewFileOfTheSizeOfARemovedOneIsPlain)
{
    leave_slices();
    fs::remove(path);
    write_file(path, pattern(SIZE, 7)); // as a program that makes its database anew
    content = pattern(SIZE, 7);
    expect_maps(path);
    EXPECT_EQ(Mapped(path, prefer(ATO_PREFER_REFLECTION)).read(), content);
}

// The times tell that this one is a copy, as after `cp -p file copy; mv copy file`.
TEST_F(Restored, CopyWithTheTimesThatTookTheFilesPlaceIsAnError)
{
    leave_slices();
    there = reflection_of(path);
    wait_for_clock(path, dir / "clock");
    ASSERT_TRUE(hazards::run_in(dir / "a", "cp -p file copy && mv copy file"));
    now = path;
    expect_apart();
    Mapped m(path, prefer(ATO_PREFER_REFLECTION));
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), content);
}

// The copy must not get the reflection of its source, whatever is preferred.
TEST_F(Restored, CopyBesideItsSourceIsNotJoinedWithItsReflection)
{
    leave_slices();
    ASSERT_TRUE(hazards::run_in(dir / "a", "cp -a file copy"));
    for (unsigned flag : {0u, ATO_PREFER_REFLECTION})
        expect_no(near("copy"), ESTALE, {near("copy"), "was copied"}, prefer(flag));
    expect_maps(path);
    fs::remove(near("copy"));
    ASSERT_TRUE(hazards::run_in(dir / "a", "cp -p file copy"));
    Mapped m(near("copy"), prefer(ATO_PREFER_REFLECTION));
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), read_file(near("copy")));
}

// Without attributes, sizes and times tell; if they do not, nothing is guessed.
TEST_F(Restored, FileIsNotJoinedIfSeveralMayBeMeant)
{
    leave_slices();
    write_file(near("twin"), old);
    ASSERT_TRUE(restore("cp -r a b"));
    for (unsigned flag : {0u, ATO_PREFER_REFLECTION})
        expect_no(now, ESTALE, {now, far(".ato"), "several"}, prefer(flag));
    {
        Mapped m(far("twin"), prefer(ATO_PREFER_FILE));
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), old);
    }
    // Now that has a pairing of its own.
    expect_joined();
    wait_for_clock(path, dir / "clock");
    ASSERT_TRUE(restore("rsync -a a/ b")); // each has its mtime
    Mapped m(far("twin"), prefer(0));
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0);
    expect_joined();
}

// Two files that got one another's numbers: neither can be joined before one of them has a third number.
TEST_F(Restored, FilesWithExchangedNumbersAreJoinedAfterOneWasCopied)
{
    leave_slices();
    write_file(near("second"), pattern(SIZE + 5000, 3));
    Bytes theirs;
    {
        Mapped m(near("second"), prefer(0));
        ASSERT_TRUE(m && m.write(100, pattern(5000, 4))) << m.sentence;
        theirs = m.read();
    }
    ASSERT_TRUE(restore("cp -a a b"));
    const std::string second = far("second"),
                      was = far(".ato/") + std::to_string(inode_of(near("second")));
    // As if each had had the number that the other one has now.
    const auto exchange = [&](const std::string &from, const std::string &file,
                              const std::string &other) {
        const std::string to = far(".ato/") + std::to_string(inode_of(other)), id = id_of(file);
        fs::rename(from, to);
        fs::rename(from + ".manifest", to + ".manifest");
        patch_manifest(to + ".manifest", [&](manifest_record &r) { r.inode = inode_of(other); });
        set_attribute(file, "ato1 " + id + " " + std::to_string(inode_of(other)) + " .ato");
    };
    exchange(was, second, now);
    exchange(there, now, second);
    for (const std::string &file : {now, second})
        for (const unsigned side : {ATO_PREFER_REFLECTION, ATO_PREFER_FILE})
            expect_no(file, ESTALE, {file, reflection_of(file), "another restored file", "cp -a"},
                      prefer(side));
    there = reflection_of(second);
    ASSERT_TRUE(hazards::run_in(far(""), "cp -a file new && mv new file"));
    expect_joined();
    Mapped m(second, prefer(ATO_PREFER_REFLECTION));
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), theirs);
    ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
}

// The file got its old number by chance, and no attribute.
TEST_F(Restored, FileWithItsOldNumberIsAnErrorToo)
{
    leave_slices();
    ASSERT_TRUE(restore("rsync -a a/ b"));
    const std::string to = reflection_of(now);
    fs::rename(there, to);
    fs::rename(there + ".manifest", to + ".manifest");
    there = to;
    patch_manifest(to + ".manifest", [&](manifest_record &r) { r.inode = inode_of(now); });
    expect_apart();
    Mapped m(now, prefer(ATO_PREFER_REFLECTION));
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), content);
    EXPECT_NE(attribute_of(now), "");
}

// While the two are being joined another file gets a pairing under that number: one of another file system, in a folder that was chosen for
// both. Its reflection stays.
TEST_F(Restored, IsNotJoinedIfItsPlaceIsTakenMeanwhile)
{
    leave_slices();
    // Before the step that decides, and after it.
    for (const auto &[call, error] : {std::pair{"fsetxattr", EBUSY}, {"renameat", EEXIST}}) {
        ASSERT_TRUE(restore("cp -a a b"));
        const Bytes theirs = pattern(SIZE, 5), manifest = read_file(there + ".manifest");
        {
            FsFaults calls;
            calls.before = [&, at = std::string(call)](const FsCall &c) {
                if (c.op == at && !exists(manifest_of(now))) {
                    write_file(manifest_of(now), manifest);
                    write_file(reflection_of(now), theirs);
                }
                return GO_ON;
            };
            Mapped m(now, prefer(ATO_PREFER_REFLECTION));
            EXPECT_FALSE(m);
            EXPECT_EQ(m.error, error) << m.sentence;
            EXPECT_NE(m.sentence.find(reflection_of(now)), std::string::npos) << m.sentence;
        }
        EXPECT_EQ(read_file(reflection_of(now)), theirs);
        EXPECT_EQ(read_file(manifest_of(now)), manifest);
        ASSERT_TRUE(exists(there));
        fs::remove(reflection_of(now));
        fs::remove(manifest_of(now));
        expect_joined();
    }
}

// A birth was cut there whose manifest a power cut took. Its reflection holds nothing.
TEST_F(Restored, IsJoinedInThePlaceOfALeftoverReflection)
{
    leave_slices();
    ASSERT_TRUE(restore("cp -a a b"));
    write_file(reflection_of(now), Bytes(SIZE));
    expect_joined();
}

// Any call fails, or the process dies before it: a later map refuses again, or joins the two.
TEST_F(Restored, JoiningMayFailOrBeCutAnywhere)
{
    cut(*this);
    for (const char *commands : {"cp -a a b", "cp -r a b"})
        for (const bool dies : {false, true})
            for (const bool names : {true, false}) {
                if (!dies && !names)
                    continue;
                long k = 0;
                for (int end = CUT; end == CUT; k++) {
                    SCOPED_TRACE(testing::Message() << commands << (dies ? ", cut" : ", failure")
                                                    << (names ? " at call " : " at event ") << k);
                    ASSERT_TRUE(restore(commands));
                    end = in_child([&] {
                        FsFaults calls;
                        PersistFaults events;
                        if (dies && names)
                            calls.cut_at(k);
                        else if (dies)
                            events.cut_at(k);
                        else
                            calls.fail_at(k, EIO);
                        Mapped m(now, prefer(ATO_PREFER_REFLECTION));
                        m.base = nullptr;
                        return dies || static_cast<long>(calls.calls.size()) <= k ? 0 : CUT;
                    });
                    ASSERT_TRUE(end == 0 || end == CUT) << end;
                    {
                        Mapped m(now, prefer(0));
                        if (m) {
                            EXPECT_EQ(m.read(), content);
                        } else {
                            EXPECT_EQ(m.error, ESTALE) << m.sentence;
                        }
                    }
                    {
                        Mapped m(now, prefer(ATO_PREFER_REFLECTION));
                        ASSERT_TRUE(m) << m.sentence;
                        EXPECT_EQ(m.read(), content);
                        ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
                    }
                    EXPECT_TRUE(names_in(far(".ato")).empty());
                    ASSERT_FALSE(HasFailure());
                }
                EXPECT_GT(k, 15);
            }
}

// ---- what is moved as a whole ------------------------------------------------------------------

// In a folder that the child's own /dev/shm does not hide.
class Moved : public Stage
{
  protected:
    TempDir there{"/tmp"};
};

// Another birth time and device; in the upper layer a file is copied by the first open for writing.
TEST_F(Moved, FileOfALowerLayerIsAdoptedInAnOverlay)
{
    const std::string lower = there / "lower", layers = there / "layers", m = there / "m";
    fs::create_directories(lower);
    fs::create_directories(m);
    write_file(path = lower + "/file", old);
    killed(*this);
    EXPECT_PLAYED(in_child([&] {
        if (!hazards::alone() || !hazards::mount_memory(layers, "") ||
            !hazards::run_in(layers, "mkdir upper work && mount -t overlay overlay -o lowerdir='" +
                                         lower + "',upperdir='" + layers + "/upper',workdir='" +
                                         layers + "/work' '" + m + "'"))
            return hazards::NO_SCENE;
        const Everything before(lower);
        expect_maps(m + "/file");
        {
            Mapped again(m + "/file", prefer(0));
            EXPECT_TRUE(again) << again.sentence;
            EXPECT_EQ(again.unmap(ATO_UNMAP_SPATIAL), 0) << again.sentence;
        }
        EXPECT_EQ(read_file(m + "/file"), content);
        EXPECT_TRUE(before == Everything(lower));
        return static_cast<int>(HasFailure());
    }));
    expect_maps(path);
}

// The snapshot of a volume, while the file of the volume is mapped.
TEST_F(Moved, FileInASnapshotIsAdoptedBesideItsMappedSource)
{
    const std::string volume = there / "volume";
    fs::create_directories(volume);
    EXPECT_PLAYED(in_child([&] {
        if (!hazards::alone() || mount("ato-test", "/dev/shm", "tmpfs", 0, "size=300m") < 0 ||
            !hazards::run_in(volume, "truncate -s 128M /dev/shm/image && mkfs.btrfs -q "
                                     "/dev/shm/image && mount -o loop /dev/shm/image . && cd '" +
                                         volume + "' && btrfs subvolume create a"))
            return hazards::NO_SCENE;
        const ato_options o = options(ATO_DOMAIN_DISK, ATO_READ_GATHER);
        write_file(volume + "/a/file", old);
        Mapped m(volume + "/a/file", o);
        EXPECT_TRUE(m && m.write(3000, pattern(6000, 2))) << m.sentence;
        const Bytes then = m.read();
        if (!hazards::run_in(volume, "btrfs subvolume snapshot a s"))
            return hazards::NO_SCENE;
        EXPECT_TRUE(m.write(0, pattern(100, 5))) << m.sentence;
        hazards::Child other(0, [&] {
            Mapped s(volume + "/s/file", o);
            EXPECT_TRUE(s) << s.sentence;
            EXPECT_EQ(s.read(), then);
            EXPECT_EQ(s.unmap(ATO_UNMAP_SPATIAL), 0) << s.sentence;
            EXPECT_EQ(read_file(volume + "/s/file"), then);
            return static_cast<int>(HasFailure());
        });
        EXPECT_EQ(other.wait(), 0);
        EXPECT_EQ(m.read(0, 100), pattern(100, 5));
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        return static_cast<int>(HasFailure());
    }));
}

// ---- mapped by a living process -----------------------------------------------------------------

class MappedElsewhere : public Pairing, public testing::WithParamInterface<bool>
{
};

// Its folder cannot be found from the other name; the shared memory tells that the process lives.
TEST_P(MappedElsewhere, FileIsNotTakenWithoutItsReflection)
{
    Peer holder([&](const std::function<void()> &ready) {
        Mapped m(path, prefer(0));
        if (!m || !m.write(3000, pattern(6000, 2)))
            return 1;
        ready();
        return m.write(0, pattern(100, 5)) && m.unmap(ATO_UNMAP_FAST) == 0 ? 0 : 2;
    });
    ASSERT_TRUE(holder.is_ready());
    const bool is_linked = GetParam();
    if (is_linked)
        fs::create_hard_link(path, now = far("file"));
    else
        move(path, now = far("file"));
    for (unsigned flag : {0u, ATO_PREFER_FILE, ATO_PREFER_REFLECTION}) {
        Mapped m(now, prefer(flag));
        ASSERT_TRUE(m) << "it is shared: " << m.sentence;
        EXPECT_EQ(m.read(3000, 6000), pattern(6000, 2));
    }
    move(dir / "a", dir / "c");
    for (unsigned flag : {0u, ATO_PREFER_REFLECTION})
        expect_no(now, ESTALE, {now, "missing"}, prefer(flag));
    expect_no(now, EBUSY, {now, "mapped"}, prefer(ATO_PREFER_FILE));
    // Nor with a copy of the reflections.
    fs::copy(dir / "c/.ato", folder_of(now), fs::copy_options::recursive);
    for (unsigned flag : {0u, ATO_PREFER_FILE, ATO_PREFER_REFLECTION})
        expect_no(now, EBUSY, {now, "mapped"}, prefer(flag));
    fs::remove_all(folder_of(now));
    move(dir / "c", dir / "a");
    EXPECT_EQ(holder.end(), 0);
    std::copy_n(pattern(6000, 2).begin(), 6000, content.begin() + 3000);
    std::copy_n(pattern(100, 5).begin(), 100, content.begin());
    expect_maps(now);
    // A dead process's shared memory says nothing.
    path = now;
    killed(*this);
    move(dir / "a", dir / "c");
    Mapped m(now, prefer(ATO_PREFER_FILE));
    EXPECT_TRUE(m) << m.sentence;
}

INSTANTIATE_TEST_SUITE_P(Names, MappedElsewhere, testing::Bool(),
                         [](const testing::TestParamInfo<bool> &i) {
                             return i.param ? "LinkedElsewhere" : "MovedElsewhere";
                         });

} // namespace
