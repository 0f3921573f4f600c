// SPDX-License-Identifier: BSD-3-Clause
//
// A file beside the original is damaged, cut short, of another kind or of another version. A program that
// trusts or ignores it gets stale or torn bytes, or a signal. The library names the file, changes nothing,
// and works again when the file is restored.
#include "scene.h"
#include "support/child.h"

extern "C" {
#include "reflection/format/lane.h"
}

#include <csignal>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace scene;

namespace
{

class Damaged : public Stage, public testing::WithParamInterface<Scene>
{
};

TEST_P(Damaged, FileIsNamedAndNothingIsChanged)
{
    play(GetParam());
}

// ---- manifest, reflection, attribute ------------------------------------------------------------

void flip_manifest(Stage &s, uint64_t at)
{
    s.flip_byte(manifest_of(s.path), at);
}

// A pipe of that name must not block.
void replace_by_pipe(Stage &s, const std::string &p)
{
    s.move(p, s.dir / "away");
    ASSERT_EQ(mkfifo(p.c_str(), 0600), 0);
}

// A symbolic link, made before the file exists.
void lay_link(Stage &s, const std::string &p, const std::string &to)
{
    fs::create_directory(s.dir / "attackers");
    write_file(s.dir / "precious", s.content);
    fs::create_directories(fs::path(p).parent_path());
    fs::create_symlink(s.dir / to, p);
}

// A careless program makes its side file like this.
void make_naively(const std::string &p)
{
    Fd fd(p, O_RDWR | O_CREAT | O_TRUNC);
    EXPECT_EQ(write(fd, "secret", 6), 6);
}

// Reads of a mapping that is longer than its file.
int load_beyond(const std::string &p)
{
    signal(SIGBUS, SIG_DFL); // not a sanitizer's handler
    Fd fd(p);
    size_t n = layout_reflection_bytes(sparse() ? LAYOUT_SPARSE : LAYOUT_DENSE, SIZE);
    void *at = mmap(nullptr, n, PROT_READ, MAP_SHARED, fd, 0);
    volatile unsigned char byte = static_cast<unsigned char *>(at)[n - 1];
    return byte & 0;
}

const size_t REFLECTION = layout_reflection_bytes(sparse() ? LAYOUT_SPARSE : LAYOUT_DENSE, SIZE);

const std::vector<Scene> pairing = {
    {"ManifestInItsFirstCopy", slices, [](Stage &s) { flip_manifest(s, 300); }, stale_alone, FOUND},
    {"ManifestInItsSecondCopy", slices,
     [](Stage &s) { flip_manifest(s, MANIFEST_COPY_BYTES + 300); }, stale_alone, FOUND},
    {"ManifestInBothCopies", slices,
     [](Stage &s) {
         flip_manifest(s, 100);
         flip_manifest(s, MANIFEST_COPY_BYTES + 100);
     },
     stale_alone, REFUSED, EUCLEAN, "{manifest}|damaged", ATO_PREFER_FILE},
    // The state 'deployed' may have another meaning in another version: a program that goes on removes the
    // reflection.
    {"ManifestOfAnotherVersion", slices,
     [](Stage &s) {
         s.patch_manifest(manifest_of(s.path), [](manifest_record &r) {
             r.version = MANIFEST_VERSION + 1;
             r.state = MANIFEST_DEPLOYED;
         });
     },
     stale_alone, REFUSED, EUCLEAN, "{manifest}|version " + std::to_string(MANIFEST_VERSION + 1)},
    // In another version there may be entries of page number and bitmap where this one has bitmaps.
    {"ReflectionOfAnotherFormat", slices,
     [](Stage &s) {
         uint64_t entries[4] = {2, ~0ull, 1, 5};
         write_at(reflection_of(s.path), 0, entries, sizeof(entries));
         s.patch_manifest(manifest_of(s.path), [](manifest_record &r) { r.format = 2; });
     },
     garbage_by_number, REFUSED, EUCLEAN, "{reflection}|format 2"},
    {"SizeWord", slices, [](Stage &s) { flip_manifest(s, MANIFEST_SIZE_WORD + 1); },
     [](Stage &s) {
         uint64_t word;
         memcpy(&word, read_at(manifest_of(s.path), MANIFEST_SIZE_WORD, 8).data(), 8);
         EXPECT_NE(word & 0xffffffffffff, SIZE) << "what the bits say";
     },
     REFUSED, EUCLEAN, "{manifest}|size", ATO_PREFER_FILE},
    {"ManifestCutShort", slices, [](Stage &s) { fs::resize_file(manifest_of(s.path), 100); },
     stale_alone, REFUSED, EUCLEAN, "{manifest}|damaged", ATO_PREFER_FILE},
    {"ManifestCutToItsFirstCopy", slices,
     [](Stage &s) { fs::resize_file(manifest_of(s.path), MANIFEST_COPY_BYTES); }, stale_alone,
     REFUSED, EUCLEAN, "{file}|4096 bytes long", ATO_PREFER_FILE},
    {"ManifestOfZeros", slices,
     [](Stage &s) { write_file(manifest_of(s.path), Bytes(MANIFEST_BYTES)); }, stale_alone, REFUSED,
     ESTALE, "{file}|{folder}|missing", ATO_PREFER_FILE},
    {"ManifestOfNonsense", slices,
     [](Stage &s) { write_file(manifest_of(s.path), pattern(MANIFEST_BYTES, 7)); }, stale_alone,
     REFUSED, EUCLEAN, "{manifest}|damaged", ATO_PREFER_FILE},
    {"ManifestThatIsAPipe", slices, [](Stage &s) { replace_by_pipe(s, manifest_of(s.path)); },
     stale_alone, REFUSED, EUCLEAN, "{manifest}"},
    {"ReflectionThatIsAPipe", slices, [](Stage &s) { replace_by_pipe(s, reflection_of(s.path)); },
     stale_alone, REFUSED, EUCLEAN, "{reflection}", ATO_PREFER_FILE},
    {"ReflectionThatIsALink", slices,
     [](Stage &s) {
         s.move(reflection_of(s.path), s.dir / "away");
         fs::create_symlink(s.dir / "away", reflection_of(s.path));
     },
     stale_alone, REFUSED, ELOOP, "{reflection}"},
    {"ReflectionCutShort", slices,
     [](Stage &s) { fs::resize_file(reflection_of(s.path), REFLECTION - 4096); },
     [](Stage &s) {
         EXPECT_EQ(in_child([&] { return load_beyond(reflection_of(s.path)); }), 256 + SIGBUS);
     },
     REFUSED, EUCLEAN,
     "{reflection}|" + std::to_string(REFLECTION) + "|" + std::to_string(REFLECTION - 4096),
     ATO_PREFER_FILE},
    {"ReflectionEmptied", slices, [](Stage &s) { fs::resize_file(reflection_of(s.path), 0); },
     stale_by_number, REFUSED, EUCLEAN, "{reflection}|0 bytes", ATO_PREFER_FILE},
    {"AttributeOfNonsense", slices, [](Stage &s) { set_attribute(s.path, "no such thing"); },
     stale_alone, REFUSED, EUCLEAN, "{file}|user.ato"},
    {"AttributeCutShort", slices,
     [](Stage &s) { set_attribute(s.path, attribute_of(s.path).substr(0, 30)); }, stale_alone,
     REFUSED, EUCLEAN, "{file}|user.ato"}};

// Stores an entry to place 200, which no page has.
void add_entry(Stage &s, uint64_t page, uint64_t bitmap)
{
    const uint64_t entry[] = {page, bitmap};
    write_at(reflection_of(s.path), layout_word(LAYOUT_SPARSE, 200) - 8, entry, sizeof(entry));
}

const std::vector<Scene> entries = {
    {"TwoOfAPage", slices,
     [](Stage &s) {
         uint64_t first[2];
         memcpy(first, read_at(reflection_of(s.path), 0, sizeof(first)).data(), sizeof(first));
         EXPECT_NE(first[1], 0u);
         add_entry(s, first[0], 2);
     },
     stale_alone, REFUSED, EUCLEAN, "{file}|two bitmaps|200", ATO_PREFER_FILE},
    {"BeyondTheEnd", slices, [](Stage &s) { add_entry(s, 1ull << 52, 1); }, stale_alone, REFUSED,
     EUCLEAN, "{file}|beyond the end|200", ATO_PREFER_FILE},
    {"OfTheLastPageBeyondTheEnd", slices,
     [](Stage &s) { add_entry(s, SIZE / PAGE_BYTES, 1ull << 63); }, stale_alone, REFUSED, EUCLEAN,
     "{file}|beyond the end|200", ATO_PREFER_FILE},
    {"InAPartOfAChunk", slices,
     [](Stage &s) { fs::resize_file(reflection_of(s.path), REFLECTION + 4096); }, stale_alone,
     REFUSED, EUCLEAN, "{reflection}|whole chunks", ATO_PREFER_FILE},
    {"WithoutABitmapOfAnyPage", slices, [](Stage &s) { add_entry(s, ~0ull, 0); }, stale_alone,
     FOUND}};

void set_bitmap(Stage &s, uint64_t page)
{
    const uint64_t last_slice = 1ull << 63;
    write_at(reflection_of(s.path), layout_word(LAYOUT_DENSE, page), &last_slice, 8);
}

const std::vector<Scene> bitmaps = {
    {"OfTheLastPageBeyondTheEnd", slices, [](Stage &s) { set_bitmap(s, SIZE / PAGE_BYTES); },
     stale_alone, REFUSED, EUCLEAN, "{reflection}|page 4|beyond the end", ATO_PREFER_FILE},
    {"BeyondTheEnd", slices, [](Stage &s) { set_bitmap(s, 511); }, stale_alone, REFUSED, EUCLEAN,
     "{reflection}|page 511|beyond the end", ATO_PREFER_FILE}};

// ---- symbolic links --------------------------------------------------------------------------------

void clobbered_precious(Stage &s)
{
    make_naively(manifest_of(s.path));
    EXPECT_NE(read_file(s.dir / "precious"), s.content) << "clobbered";
    write_file(s.dir / "precious", s.content);
}

const std::vector<Scene> links = {
    {"Folder", nothing, [](Stage &s) { lay_link(s, folder_of(s.path), "attackers"); },
     [](Stage &s) {
         make_naively(folder_of(s.path) + "/naive");
         EXPECT_TRUE(exists(s.dir / "attackers/naive")) << "in the attacker's folder";
     },
     REFUSED, EACCES, "{folder}|symbolic link"},
    {"FolderToNothing", nothing, [](Stage &s) { lay_link(s, folder_of(s.path), "nowhere"); },
     [](Stage &s) {
         make_naively(folder_of(s.path));
         EXPECT_TRUE(exists(s.dir / "nowhere")) << "made by the naive program";
         fs::remove(s.dir / "nowhere");
     },
     REFUSED, EACCES, "{folder}|symbolic link"},
    {"Manifest", nothing, [](Stage &s) { lay_link(s, manifest_of(s.path), "precious"); },
     clobbered_precious, REFUSED, ELOOP, "{manifest}"}};

// No manifest refers to it: the link is removed, and its target is not.
using DamagedStage = Stage;

TEST_F(DamagedStage, LinkInPlaceOfAFutureReflectionIsNotFollowed)
{
    lay_link(*this, reflection_of(path), "precious");
    make_naively(reflection_of(path));
    EXPECT_NE(read_file(dir / "precious"), content) << "clobbered";
    write_file(dir / "precious", content);
    expect_maps(path);
    EXPECT_EQ(read_file(dir / "precious"), content);
}

// ---- the lanes of a process that died in a commit ------------------------------------------------

// A program that skips what it cannot read leaves half of the commit: garbage_by_number.

// The lane that holds the commit. There is one process with one commit: the first lane.
const uint64_t LANE = manifest_area(0);

// The lane's first word points to another place, and its checksum fits.
void point_first_word_to(Stage &s, uint64_t offset)
{
    Bytes all = read_at(manifest_of(s.path), LANE, LANE_HEAD_BYTES + 3 * 16);
    struct lane_commit line;
    memcpy(&line, &all[0], sizeof(line));
    ASSERT_EQ(line.words, 3u);
    memcpy(&all[LANE_HEAD_BYTES], &offset, 8);
    line.checksum = checksum(&line, offsetof(struct lane_commit, checksum));
    line.checksum = checksum_add(line.checksum, &all[LANE_HEAD_BYTES], 3 * 16);
    memcpy(&all[0], &line, sizeof(line));
    write_at(manifest_of(s.path), LANE, all.data(), all.size());
}

const std::vector<Scene> lanes = {
    {"LanesCount", cut,
     [](Stage &s) {
         uint64_t many = UINT64_MAX;
         write_at(manifest_of(s.path), LANE + 8, &many, 8);
     },
     garbage_by_number, REFUSED, EUCLEAN, "{file}|lane", ATO_PREFER_FILE},
    // The commit line is that of a long lane, and the rest of it is missing.
    {"LongLaneCutOff", cut,
     [](Stage &s) {
         struct lane_commit line = {};
         line.sequence = 1;
         line.words = 1000;
         fs::resize_file(manifest_of(s.path), manifest_area(MANIFEST_SLOTS) + 4096);
         write_at(manifest_of(s.path), manifest_area(MANIFEST_SLOTS), &line, sizeof(line));
     },
     garbage_by_number, REFUSED, EUCLEAN, "{file}|lane", ATO_PREFER_FILE},
    // A program that stores what it reads changes bytes of a RefPage.
    {"LanesWordThatIsNone", cut, [](Stage &s) { point_first_word_to(s, 2 * 4096 + 8); },
     [](Stage &s) {
         Bytes reflection = read_file(reflection_of(s.path));
         uint64_t value;
         memcpy(&value, read_at(manifest_of(s.path), LANE + LANE_HEAD_BYTES + 8, 8).data(), 8);
         memcpy(&reflection[2 * 4096 + 8], &value, 8);
         s.expect_garbage(overlay(read_file(s.path), reflection));
     },
     REFUSED, EUCLEAN, "{file}|" + std::to_string(2 * 4096 + 8), ATO_PREFER_FILE},
    {"LanesWordBeyondTheReflection", cut, [](Stage &s) { point_first_word_to(s, 1 << 30); },
     [](Stage &s) { EXPECT_LT(size_of(reflection_of(s.path)), 1u << 30) << "a SIGBUS"; }, REFUSED,
     EUCLEAN, "{file}|" + std::to_string(1 << 30), ATO_PREFER_FILE}};

INSTANTIATE_TEST_SUITE_P(Pairing, Damaged, testing::ValuesIn(pairing), name_of);
INSTANTIATE_TEST_SUITE_P(Entry, Damaged,
                         testing::ValuesIn(sparse() ? entries : std::vector<Scene>()), name_of);
INSTANTIATE_TEST_SUITE_P(Bitmap, Damaged,
                         testing::ValuesIn(sparse() ? std::vector<Scene>() : bitmaps), name_of);
INSTANTIATE_TEST_SUITE_P(LinkAs, Damaged, testing::ValuesIn(links), name_of);
INSTANTIATE_TEST_SUITE_P(In, Damaged, testing::ValuesIn(lanes), name_of);

} // namespace
