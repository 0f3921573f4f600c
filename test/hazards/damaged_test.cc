// SPDX-License-Identifier: BSD-3-Clause
//
// A piece of what lies beside a file is damaged, cut short or of another version. Who believes it,
// or takes no notice of it, gets stale or torn bytes, or a signal; the library names it, changes
// nothing, and works again when the piece is back.
#include "hazards/cut_commit.h"
#include "naive.h"
#include "support/child.h"
#include "support/faults.h"

extern "C" {
#include "reflection/journal.h"
}

#include <csignal>
#include <functional>

#include <sys/mman.h>
#include <sys/xattr.h>
#include <unistd.h>

namespace
{

class Damaged;

struct Damage {
    const char *name;
    bool killed; // by a process that died in the middle of a commit; else fast-unmapped
    std::function<void(Damaged &)> hurt, naive;
    int error;
    std::function<std::vector<std::string>(Damaged &)> words;
};

class Damaged : public Hazard, public testing::WithParamInterface<Damage>
{
  public:
    using Hazard::patch_manifest;
    using Hazard::path;

    // What everybody sees who takes no notice of the reflection, or begins with a fresh one.
    void plainly()
    {
        expect_stale(read_file(path));
    }
    // Or believes what is left of it.
    void believing_the_rest()
    {
        expect_stale(by_number(path));
    }
    // Or finishes no commit.
    void torn()
    {
        seen(by_number(path));
    }
    void seen(const Bytes &bytes)
    {
        expect_garbage(bytes);
    }

    void flip_byte(const std::string &p, uint64_t at, unsigned char mask = 1)
    {
        unsigned char byte = static_cast<unsigned char>(read_at(p, at, 1)[0] ^ mask);
        write_at(p, at, &byte, 1);
    }

    std::string journal()
    {
        return journals_of(path).at(0);
    }

    // Where the journal begins in its pool.
    uint64_t header()
    {
        Bytes all = read_file(journal());
        for (size_t at = 0; at + 8 <= all.size(); at += 4096)
            if (uint64_t magic = JOURNAL_MAGIC; memcmp(&all[at], &magic, 8) == 0)
                return at;
        throw std::runtime_error("no journal in the pool");
    }

    // The lane that holds the commit. There is one process with one commit: the first.
    uint64_t lane()
    {
        return header() + 4096;
    }

    // Its first word points to another place, and its checksum fits.
    void point_first_word_to(uint64_t offset)
    {
        Bytes all = read_at(journal(), lane(), 128 + 32 + 3 * 16);
        struct journal_commit line;
        memcpy(&line, &all[0], sizeof(line));
        ASSERT_EQ(line.files, 1u);
        ASSERT_EQ(line.words, 3u);
        memcpy(&all[128 + 32], &offset, 8);
        line.checksum = checksum(&line, offsetof(struct journal_commit, checksum));
        line.checksum = checksum_add(line.checksum, &all[128], 32 + 3 * 16);
        memcpy(&all[0], &line, sizeof(line));
        write_at(journal(), lane(), all.data(), all.size());
    }

  protected:
    // Two pages of three have flipped.
    void die_between_flips()
    {
        ASSERT_EQ(cut_commit::die_between_flips(path), CUT);
        Bytes record = cut_commit::record();
        std::copy(record.begin(), record.end(), content.begin() + cut_commit::AT);
    }

    void heal(const Everything &sound)
    {
        for (const auto &file : sound.files)
            if (file.first != path)
                write_file(file.first, file.second);
        for (const auto &name : sound.names)
            if (!name.second.empty())
                set_attribute(name.first, name.second);
    }
};

TEST_P(Damaged, PieceIsNamedAndNothingIsChanged)
{
    if (GetParam().killed)
        die_between_flips();
    else
        leave_slices();
    Everything sound(dir.path());
    GetParam().hurt(*this);
    ASSERT_FALSE(HasFailure());
    ASSERT_FALSE(sound == Everything(dir.path())) << "nothing was damaged";
    GetParam().naive(*this);
    expect_no(path, GetParam().error, GetParam().words(*this));
    for (unsigned flag : {ATO_PREFER_REFLECTION, ATO_PREFER_FILE})
        if (GetParam().error == EUCLEAN) // no question of preference
            expect_no(path, EUCLEAN, GetParam().words(*this),
                      options(ATO_DOMAIN_AUTO, ATO_READ_LAZY, flag));
    heal(sound);
    ASSERT_TRUE(sound == Everything(dir.path()));
    expect_maps(path);
}

using Words = std::vector<std::string>;

Words manifest_and(Damaged &d, const std::string &word)
{
    return {manifest_of(d.path), word};
}

// Reads of a mapping that is longer than its file.
int load_beyond(const std::string &p)
{
    signal(SIGBUS, SIG_DFL); // a sanitizer's
    Fd fd(p);
    size_t n = layout_reflection_bytes(SIZE);
    void *at = mmap(nullptr, n, PROT_READ, MAP_SHARED, fd, 0);
    volatile unsigned char byte = static_cast<unsigned char *>(at)[n - 1];
    return byte & 0;
}

const std::vector<Damage> manifests = {
    {"ManifestInBothCopies", false,
     [](Damaged &d) {
         d.flip_byte(manifest_of(d.path), 100);
         d.flip_byte(manifest_of(d.path), MANIFEST_COPY_BYTES + 100);
     },
     [](Damaged &d) { d.plainly(); }, EUCLEAN,
     [](Damaged &d) { return manifest_and(d, "damaged"); }},
    // What means 'deployed' here may mean anything there: who reads on removes the reflection.
    {"ManifestOfAnotherVersion", false,
     [](Damaged &d) {
         d.patch_manifest(manifest_of(d.path), [](manifest_record &r) {
             r.version = MANIFEST_VERSION + 1;
             r.state = MANIFEST_DEPLOYED;
         });
     },
     [](Damaged &d) { d.plainly(); }, EUCLEAN,
     [](Damaged &d) { return manifest_and(d, "version " + std::to_string(MANIFEST_VERSION + 1)); }},
    // Entries of page number and bitmap, where this one looks for bitmaps.
    {"ReflectionOfAnotherFormat", false,
     [](Damaged &d) {
         uint64_t entries[4] = {2, ~0ull, 1, 5};
         write_at(reflection_of(d.path), 0, entries, sizeof(entries));
         d.patch_manifest(manifest_of(d.path), [](manifest_record &r) { r.format = 1; });
     },
     [](Damaged &d) { d.torn(); }, EUCLEAN,
     [](Damaged &d) {
         return Words{reflection_of(d.path), "format 1"};
     }},
    {"SizeWord", false,
     [](Damaged &d) { d.flip_byte(manifest_of(d.path), MANIFEST_SIZE_WORD + 1); },
     [](Damaged &d) {
         uint64_t word;
         memcpy(&word, read_at(manifest_of(d.path), MANIFEST_SIZE_WORD, 8).data(), 8);
         EXPECT_NE(word & 0xffffffffffff, SIZE) << "what the bits say";
     },
     EUCLEAN, [](Damaged &d) { return manifest_and(d, "size"); }},
    {"ManifestCutShort", false, [](Damaged &d) { fs::resize_file(manifest_of(d.path), 100); },
     [](Damaged &d) { d.plainly(); }, ESTALE,
     [](Damaged &d) {
         return Words{d.path, folder_of(d.path)};
     }},
    {"ManifestCutToItsFirstCopy", false,
     [](Damaged &d) { fs::resize_file(manifest_of(d.path), MANIFEST_COPY_BYTES); },
     [](Damaged &d) { d.plainly(); }, EUCLEAN, [](Damaged &d) { return manifest_and(d, "size"); }},
    {"ManifestOfZeros", false,
     [](Damaged &d) { write_file(manifest_of(d.path), Bytes(MANIFEST_BYTES)); },
     [](Damaged &d) { d.plainly(); }, ESTALE,
     [](Damaged &d) {
         return Words{d.path, folder_of(d.path)};
     }}};

const std::vector<Damage> reflections = {
    {"ReflectionCutShort", false,
     [](Damaged &d) {
         fs::resize_file(reflection_of(d.path), layout_reflection_bytes(SIZE) - 4096);
     },
     [](Damaged &d) {
         EXPECT_EQ(in_child([&] { return load_beyond(reflection_of(d.path)); }), 256 + SIGBUS);
     },
     EUCLEAN,
     [](Damaged &d) {
         return Words{reflection_of(d.path), std::to_string(layout_reflection_bytes(SIZE)),
                      std::to_string(layout_reflection_bytes(SIZE) - 4096)};
     }},
    {"ReflectionEmptied", false, [](Damaged &d) { fs::resize_file(reflection_of(d.path), 0); },
     [](Damaged &d) { d.believing_the_rest(); }, EUCLEAN,
     [](Damaged &d) {
         return Words{reflection_of(d.path), "0 bytes"};
     }},
    {"AttributeOfNonsense", false, [](Damaged &d) { set_attribute(d.path, "no such thing"); },
     [](Damaged &d) { d.plainly(); }, EUCLEAN,
     [](Damaged &d) {
         return Words{d.path, "user.ato"};
     }},
    {"AttributeCutShort", false,
     [](Damaged &d) { set_attribute(d.path, attribute_of(d.path).substr(0, 30)); },
     [](Damaged &d) { d.plainly(); }, EUCLEAN,
     [](Damaged &d) {
         return Words{d.path, "user.ato"};
     }}};

Words journal_and(Damaged &d, const std::string &word)
{
    return {fs::path(d.journal()).filename(), word};
}

// Who skips what it cannot read leaves a commit in the middle.
const std::vector<Damage> journals = {
    {"JournalsHeader", true, [](Damaged &d) { d.flip_byte(d.journal(), d.header() + 12, 0x18); },
     [](Damaged &d) { d.torn(); }, EUCLEAN, [](Damaged &d) { return journal_and(d, "header"); }},
    {"JournalOfAnotherVersion", true,
     [](Damaged &d) {
         journal_header h;
         memcpy(&h, read_at(d.journal(), d.header(), sizeof(h)).data(), sizeof(h));
         h.version++;
         h.checksum = checksum(&h, offsetof(journal_header, checksum));
         write_at(d.journal(), d.header(), &h, sizeof(h));
     },
     [](Damaged &d) { d.torn(); }, EUCLEAN, [](Damaged &d) { return journal_and(d, "version 3"); }},
    {"JournalCutShort", true, [](Damaged &d) { fs::resize_file(d.journal(), 1 << 20); },
     [](Damaged &d) { d.torn(); }, EUCLEAN, [](Damaged &d) { return journal_and(d, "journal"); }},
    {"JournalOfZeros", true,
     [](Damaged &d) { write_file(d.journal(), Bytes(size_of(d.journal()))); },
     [](Damaged &d) { d.torn(); }, EUCLEAN, [](Damaged &d) { return journal_and(d, "damaged"); }},
    {"LanesCount", true,
     [](Damaged &d) {
         uint32_t many = UINT32_MAX;
         write_at(d.journal(), d.lane() + 12, &many, 4);
     },
     [](Damaged &d) { d.torn(); }, EUCLEAN, [](Damaged &d) { return journal_and(d, "lane"); }},
    // Who stores what it reads changes bytes of a RefPage.
    {"LanesWordThatIsNone", true, [](Damaged &d) { d.point_first_word_to(2 * 4096 + 8); },
     [](Damaged &d) {
         Bytes reflection = read_file(reflection_of(d.path));
         uint64_t value;
         memcpy(&value, read_at(d.journal(), d.lane() + 128 + 32 + 8, 8).data(), 8);
         memcpy(&reflection[2 * 4096 + 8], &value, 8);
         d.seen(overlay(read_file(d.path), reflection));
     },
     EUCLEAN,
     [](Damaged &d) {
         return Words{fs::path(reflection_of(d.path)).filename(), std::to_string(2 * 4096 + 8)};
     }},
    {"LanesWordBeyondTheReflection", true, [](Damaged &d) { d.point_first_word_to(1 << 30); },
     [](Damaged &d) { EXPECT_LT(size_of(reflection_of(d.path)), 1u << 30) << "a SIGBUS"; }, EUCLEAN,
     [](Damaged &d) {
         return Words{fs::path(reflection_of(d.path)).filename(), std::to_string(1 << 30)};
     }}};

std::string name_of(const testing::TestParamInfo<Damage> &info)
{
    return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Manifest, Damaged, testing::ValuesIn(manifests), name_of);
INSTANTIATE_TEST_SUITE_P(Pairing, Damaged, testing::ValuesIn(reflections), name_of);
INSTANTIATE_TEST_SUITE_P(Journal, Damaged, testing::ValuesIn(journals), name_of);

} // namespace
