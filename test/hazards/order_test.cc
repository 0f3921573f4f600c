// SPDX-License-Identifier: BSD-3-Clause
//
// A pairing begins and ends in several steps, and a crash may come between any two. First each wrong order:
// media made by hand as a crash would leave them, and the bytes that are lost for good. Then every cut of the
// library's order: nothing acknowledged is lost, and a file that cannot be read correctly is refused,
// wherever it was moved meanwhile.
#include "naive.h"
#include "support/child.h"
#include "support/faults.h"

#include <sys/mman.h>
#include <sys/xattr.h>

namespace
{

class Order : public Hazard
{
  protected:
    // Mapped without an error: the bytes of the file alone.
    void expect_lost(const std::string &p)
    {
        Mapped m(p, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_NE(m.read(), content) << "the naive way shows no hazard";
    }

    // Everything is at home, and the pairing still exists: the state before a spatial unmap.
    void deploy_and_die()
    {
        ASSERT_EQ(in_child([&] {
                      Mapped m(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
                      if (!m || ato_deploy(m.base, SIZE) < 0)
                          return 1;
                      m.base = nullptr;
                      return 0;
                  }),
                  0);
        remove_shared_objects(id_of(path)); // so that no process can finish it
        ASSERT_EQ(read_file(path), content);
    }
};

// ---- results of each wrong order ----------------------------------------------------------------

TEST_F(Order, StoreBeforeTheAttributeLosesTheBytesOfAFileThatMoves)
{
    leave_slices();
    ASSERT_EQ(removexattr(path.c_str(), "user.ato"), 0); // this step was to come next
    fs::create_directory(dir / "b");
    fs::rename(path, dir / "b/file");
    expect_lost(dir / "b/file");
}

TEST_F(Order, StoreBeforeTheManifestLosesTheReflection)
{
    leave_slices();
    Bytes reflection = read_file(reflection_of(path));
    ASSERT_EQ(removexattr(path.c_str(), "user.ato"), 0);
    fs::remove(manifest_of(path));
    expect_lost(path);
    EXPECT_NE(read_file(reflection_of(path)), reflection) << "removed as an interrupted birth";
}

// The attribute before its manifest: a file without changes is refused for ever.
TEST_F(Order, AttributeBeforeTheManifestRefusesAFileThatLostNothing)
{
    leave_nothing();
    fs::remove(manifest_of(path));
    fs::remove(reflection_of(path));
    EXPECT_EQ(read_file(path), content);
    expect_no(path, ESTALE, {path});
}

TEST_F(Order, DeployedBeforeEverythingIsHomeLosesTheRest)
{
    leave_slices();
    patch_manifest(manifest_of(path), [](manifest_record &r) { r.state = MANIFEST_DEPLOYED; });
    expect_lost(path);
}

TEST_F(Order, RemovalWithoutDeployedRefusesAFileThatLostNothing)
{
    leave_slices();
    deploy_and_die();
    fs::remove(reflection_of(path)); // and dies
    expect_no(path, ESTALE, {reflection_of(path), "missing"});
}

TEST_F(Order, RemovalOfTheManifestFirstRefusesAFileThatLostNothing)
{
    leave_slices();
    deploy_and_die();
    fs::remove(manifest_of(path)); // the attribute was to go next
    expect_no(path, ESTALE, {path});
}

TEST_F(Order, RemovalOfTheReflectionBeforeItsAttributeRefusesAFileThatLostNothing)
{
    leave_slices();
    deploy_and_die();
    patch_manifest(manifest_of(path), [](manifest_record &r) { r.state = MANIFEST_DEPLOYED; });
    fs::remove(reflection_of(path));
    fs::create_directory(dir / "b");
    fs::rename(path, dir / "b/file");
    fs::rename(dir / ".ato", dir / "away");
    EXPECT_EQ(read_file(dir / "b/file"), content) << "the file is not plain";
    expect_no(dir / "b/file", ESTALE, {dir / "b/file"});
    fs::rename(dir / "away", dir / ".ato");
    fs::rename(dir / "b/file", path); // the next map that finds 'deployed' finishes the removal
    expect_maps(path);
}

TEST_F(Order, StaleManifestSetAsideFirstLosesTheStaleReflection)
{
    leave_slices();
    Bytes reflection = read_file(reflection_of(path));
    ASSERT_EQ(removexattr(path.c_str(), "user.ato"),
              0); // another file, with the inode number of the first
    fs::rename(manifest_of(path), manifest_of(path) + ".stale");
    expect_lost(path);
    for (const auto &file : snapshot(dir.path()))
        EXPECT_NE(file.second, reflection) << file.first << ": no hazard to see";
}

// ---- the library's order, cut everywhere --------------------------------------------------------

// A message from a child, however it ends.
class Told
{
  public:
    Told() : word_(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
    {
    }
    ~Told()
    {
        munmap(word_, 4096);
    }
    Told(const Told &) = delete;
    Told &operator=(const Told &) = delete;
    volatile bool &written()
    {
        return *static_cast<bool *>(word_);
    }

  private:
    void *word_;
};

struct Life {
    const char *name;
    int mode;
    bool names; // dies before changes of names; else before stores and flushes
    bool stale; // the removal passes moments at which other programs would read stale bytes
};

class OrderCut : public Order, public testing::WithParamInterface<Life>
{
  protected:
    // Maps, writes and unmaps; dies before the k-th call.
    int live(long k, Told &told) const
    {
        auto life = [&] {
            Mapped m(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER, ATO_NO_RTM));
            if (!m || !m.write(3000, pattern(6000, 2)))
                return 1;
            told.written() = true;
            return m.unmap(GetParam().mode) < 0 ? 2 : 0;
        };
        return in_child([&] {
            if (GetParam().names) {
                FsFaults faults;
                faults.cut_at(k);
                return life();
            }
            PersistFaults faults;
            faults.cut_at(k);
            return life();
        });
    }

    void expect_right(Mapped &m, bool written)
    {
        Bytes found = m.read();
        EXPECT_TRUE(found == content || (found == old && !written))
            << (written ? "an acknowledged write was lost" : "torn");
    }
};

TEST_P(OrderCut, LosesNothingAndRefusesRatherThanReadStaleBytes)
{
    const Bytes before = old;
    std::copy_n(pattern(6000, 2).begin(), 6000, content.begin() + 3000);
    long stale = 0, refused = 0;
    for (long k = 0;; k++) {
        SCOPED_TRACE("cut before call " + std::to_string(k));
        TempDir own;
        fs::create_directory(own / "a");
        fs::create_directory(own / "b");
        path = own / "a/file";
        write_file(path, before);
        Told told;
        int status = live(k, told);
        bool written = told.written();
        // Moved to a folder without its side files, which are not where they were either: refused, or right.
        std::string away = own / "b/file";
        fs::rename(path, away);
        fs::rename(own / "a", own / "c");
        stale += written && read_file(away) != content;
        {
            Everything all(own / "c");
            Mapped m(away, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
            if (m) {
                expect_right(m, written);
                EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
            } else {
                refused++;
                EXPECT_EQ(m.error, ESTALE) << m.sentence;
                EXPECT_NE(m.sentence.find(away), std::string::npos) << m.sentence;
            }
            EXPECT_TRUE(all == Everything(own / "c"));
        }
        // Moved back: right, usable, plain at the end.
        fs::rename(own / "c", own / "a");
        fs::rename(away, path);
        {
            Mapped m(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
            ASSERT_TRUE(m) << m.sentence;
            expect_right(m, written);
            EXPECT_TRUE(m.write(3000, pattern(6000, 2))) << m.sentence;
            ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        }
        EXPECT_EQ(read_file(path), content);
        EXPECT_EQ(attribute_of(path), "");
        EXPECT_EQ(names_in(own / "a/.ato"), std::vector<std::string>());
        ASSERT_FALSE(HasFailure());
        if (status != CUT) {
            EXPECT_EQ(status, 0);
            EXPECT_GT(k, 20);
            break;
        }
    }
    EXPECT_EQ(stale > 0, GetParam().stale);
    EXPECT_GE(refused, stale);
}

INSTANTIATE_TEST_SUITE_P(
    Everywhere, OrderCut,
    testing::Values(Life{"NamesOfAFastLife", ATO_UNMAP_FAST, true, true},
                    Life{"NamesOfASpatialLife", ATO_UNMAP_SPATIAL, true, false},
                    Life{"StoresOfAFastLife", ATO_UNMAP_FAST, false, true},
                    Life{"StoresOfASpatialLife", ATO_UNMAP_SPATIAL, false, true}),
    [](const testing::TestParamInfo<Life> &info) { return info.param.name; });

// The stale pairing of another file is set aside by two renames, and a birth follows.
TEST_F(Order, SettingAsideKeepsTheStaleFilesIfItIsCutAnywhere)
{
    const Bytes theirs = pattern(SIZE, 7);
    for (long k = 0;; k++) {
        SCOPED_TRACE("cut before call " + std::to_string(k));
        TempDir own;
        path = own / "file";
        write_file(path, old);
        content = old;
        leave_slices();
        Bytes reflection = read_file(reflection_of(path));
        // Another birth time: the manifest is of another file.
        ASSERT_EQ(removexattr(path.c_str(), "user.ato"), 0);
        patch_manifest(manifest_of(path), [](manifest_record &r) { r.birth_nsec ^= 1; });
        write_file(path, theirs);
        EXPECT_NE(by_number(path), theirs);
        int status = in_child([&] {
            FsFaults faults;
            faults.cut_at(k);
            Mapped m(path);
            return m && m.read() == theirs ? 0 : 1;
        });
        long kept = 0;
        for (const auto &file : snapshot(own.path()))
            kept += file.second == reflection;
        EXPECT_EQ(kept, 1) << "the stale files are gone";
        {
            Mapped m(path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
            ASSERT_TRUE(m) << m.sentence;
            EXPECT_EQ(m.read(), theirs);
        }
        kept = 0;
        for (const auto &file : snapshot(own.path()))
            kept += file.second == reflection;
        EXPECT_EQ(kept, 1) << "the stale files are gone";
        ASSERT_FALSE(HasFailure());
        if (status != CUT) {
            EXPECT_EQ(status, 0);
            EXPECT_GT(k, 5);
            break;
        }
    }
}

} // namespace
