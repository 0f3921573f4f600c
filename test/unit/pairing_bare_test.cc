// SPDX-License-Identifier: BSD-3-Clause
//
// What about file systems without extended attributes? Birth time and generation decide, a fast
// unmap leaves a plain file, and a killed process still loses nothing. Acted on tmpfs, which has
// birth times: reading an attribute says ENOTSUP (this program's own fgetxattr), setting one too.
#include "pairing_lab.h"
#include "support/child.h"
#include "support/faults.h"
#include "support/without_attributes.h"

#include <cerrno>

#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

namespace
{

// Attributes can be neither read nor set, or can be read (there are none) and not set.
class PairingBare : public Pairing, public testing::WithParamInterface<bool>
{
  protected:
    PairingBare()
    {
        no_attributes = GetParam();
        faults.fail_op("fsetxattr", ENOTSUP);
    }
    ~PairingBare() override
    {
        no_attributes = false;
    }

    // Acknowledged writes of a process that then dies.
    void write_and_die()
    {
        ASSERT_EQ(in_child([&] {
                      Mapped m(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
                      if (!m || !m.write(3000, pattern(6000, 2)))
                          return 1;
                      m.base = nullptr;
                      return 0;
                  }),
                  0);
        std::copy_n(pattern(6000, 2).begin(), 6000, content.begin() + 3000);
    }

    FsFaults faults;
};

TEST_P(PairingBare, FastUnmapLeavesAPlainFileThatARenameCannotLose)
{
    Mapped m(path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_TRUE(m.write(3000, pattern(6000, 2)));
    std::copy_n(pattern(6000, 2).begin(), 6000, content.begin() + 3000);
    ASSERT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
    EXPECT_EQ(read_file(path), content);
    EXPECT_TRUE(names_in(folder_of(path)).empty());
}

TEST_P(PairingBare, KilledProcessLosesNoAcknowledgedWrite)
{
    write_and_die();
    expect_maps(path);
}

TEST_P(PairingBare, KilledProcesssFileIsFoundAfterARenameWithinItsFolder)
{
    write_and_die();
    fs::rename(path, dir / "other");
    expect_maps(dir / "other");
}

TEST_P(PairingBare, FileWithSeveralLinksIsRefused)
{
    fs::create_hard_link(path, dir / "twin");
    Mapped m(path);
    EXPECT_FALSE(m);
    EXPECT_EQ(m.error, EINVAL);
    EXPECT_NE(m.sentence.find("links"), std::string::npos) << m.sentence;
}

TEST_P(PairingBare, ReflectionOfAnotherBirthIsSetAside)
{
    write_and_die();
    patch_manifest(manifest_of(path), [](manifest_record &r) { r.birth_nsec ^= 1; });
    content = read_file(path);
    Log log;
    expect_maps(path);
    EXPECT_TRUE(log.has(ATO_LOG_WARNING, "set aside"));
}

INSTANTIATE_TEST_SUITE_P(Attributes, PairingBare, testing::Values(true, false),
                         [](const testing::TestParamInfo<bool> &info) {
                             return info.param ? "unsupported" : "readable";
                         });

} // namespace
