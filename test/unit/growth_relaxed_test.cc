// SPDX-License-Identifier: BSD-3-Clause
//
// Relaxed commits that make a file longer: who sees the new size, and when is it durable? (What a power cut leaves: the explorer's case
// `growth, relaxed`.)
#include "growth_lab.h"
#include "support/dying.h"

#define _Thread_local __thread // C++ has no _Thread_local
extern "C" {
#include "lib/file/shared.h"
#include "reflection/format/manifest.h"
#include "reflection/media/seam.h"
}

#include <sys/mman.h>
#include <unistd.h>

using namespace growth_lab;

namespace
{

constexpr uint64_t STEP = 3000;

class GrowthRelaxed : public testing::Test
{
  protected:
    // No thread syncs meanwhile.
    GrowthRelaxed()
        : late("ATO_RELAXED_MS", "3600000"), path(dir / "file"), content(pattern(SIZE, 1))
    {
        write_file(path, content);
    }

    static ato_options wish()
    {
        ato_options o = options(ATO_DOMAIN_DISK);
        o.max_size = 1 << 26;
        o.log_bytes = 1 << 20; // no checkpoint meanwhile
        return o;
    }

    static bool append(const Mapped &m, unsigned flags = ATO_RELAXED)
    {
        const auto end = static_cast<uint64_t>(ato_size(m.base));
        const Bytes bytes = pattern(STEP, 5);
        ato_tx *tx = ato_tx_begin(flags);
        if (tx && ato_tx_ftruncate(tx, m.base, static_cast<off_t>(end + STEP)) == 0 &&
            ato_tx_memcpy(tx, m.base + end, bytes.data(), STEP, 0))
            return ato_tx_commit(tx) == 0;
        (void)ato_tx_abort(tx);
        return false;
    }
    // What another process has appended is known, too.
    void know(unsigned times)
    {
        const Bytes bytes = pattern(STEP, 5);
        for (; times; times--)
            content.insert(content.end(), bytes.begin(), bytes.end());
    }
    void append(const Mapped &m, unsigned times, unsigned flags)
    {
        for (unsigned i = 0; i < times; i++)
            ASSERT_TRUE(append(m, flags)) << ato_errormsg();
        know(times);
    }
    // The first growth, the one that gets the file's length ahead, and a commit by which commits get numbers.
    void begin(const Mapped &m)
    {
        ASSERT_TRUE(m) << m.sentence;
        append(m, 2, 0);
        append(m, 1, ATO_RELAXED);
        ASSERT_EQ(ato_deploy(m.base, content.size()), 0) << ato_errormsg();
    }
    uint64_t size_in_manifest() const
    {
        uint64_t word = 0, size = 0;
        memcpy(&word, read_at(manifest_of(path), MANIFEST_SIZE_WORD, 8).data(), 8);
        EXPECT_TRUE(manifest_decode_size(word, &size));
        return size;
    }

    Environment late;
    TempDir dir;
    std::string path;
    Bytes content;
};

TEST_F(GrowthRelaxed, WaitsForNothingAndIsVisibleAtOnce)
{
    Mapped m(path, wish());
    begin(m);
    {
        FsFaults fs;
        PersistFaults stores;
        append(m, 9, ATO_RELAXED);
        EXPECT_EQ(fs.count("fdatasync") + fs.count("fsync") + fs.count("ftruncate"), 0);
        EXPECT_EQ(stores.counts.flush_data + stores.counts.flush_any, 0);
    }
    EXPECT_EQ(static_cast<uint64_t>(ato_size(m.base)), content.size());
    EXPECT_EQ(m.read(0, content.size()), content);
    ato_snapshot *s = ato_snapshot_begin(m.base);
    Bytes seen(content.size() + 1);
    EXPECT_EQ(ato_snapshot_read(s, seen.data(), 0, seen.size()),
              static_cast<ssize_t>(content.size()))
        << ato_errormsg();
    seen.pop_back();
    EXPECT_EQ(seen, content);
    EXPECT_EQ(ato_snapshot_end(s), 0);
}

// The kernel may write the manifest back at any time.
TEST_F(GrowthRelaxed, SizeIsInTheManifestWhenItIsDurable)
{
    Mapped m(path, wish());
    begin(m);
    const uint64_t before = content.size();
    EXPECT_EQ(size_in_manifest(), before);
    append(m, 3, ATO_RELAXED);
    EXPECT_EQ(size_in_manifest(), before);
    ASSERT_EQ(ato_deploy(m.base, content.size()), 0) << ato_errormsg();
    EXPECT_EQ(size_in_manifest(), content.size());
    append(m, 1, ATO_RELAXED);
    append(m, 1, 0);
    EXPECT_EQ(size_in_manifest(), content.size());
}

TEST_F(GrowthRelaxed, AnotherProcessGoesOnFromIt)
{
    Mapped m(path, wish());
    begin(m);
    append(m, 3, ATO_RELAXED);
    for (bool ends : {true, false}) {
        const int status = in_child([&] {
            Mapped other(path, wish());
            if (!other || other.read(0, content.size()) != content || !append(other))
                return 1;
            if (!ends)
                _exit(CUT); // as if it was killed
            return append(other) ? CUT : 2;
        });
        ASSERT_EQ(status, CUT);
        know(ends ? 2 : 1);
        EXPECT_EQ(static_cast<uint64_t>(ato_size(m.base)), content.size());
        append(m, 1, ATO_RELAXED);
        EXPECT_EQ(m.read(0, content.size()), content);
    }
}

TEST_F(GrowthRelaxed, IsThereAfterAKillAndAfterAnUnmap)
{
    for (int mode : {ATO_UNMAP_FAST, ATO_UNMAP_SPATIAL, -1}) {
        SCOPED_TRACE(mode);
        write_file(path, content = pattern(SIZE, 1));
        const int status = in_child([&] {
            Mapped m(path, wish());
            if (!m || !append(m) || !append(m) || !append(m))
                return 1;
            if (mode < 0)
                _exit(CUT);
            return m.unmap(mode) == 0 ? CUT : 2;
        });
        ASSERT_EQ(status, CUT);
        know(3);
        Mapped m(path, wish());
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(size_of(path), content.size());
        EXPECT_EQ(m.read(0, content.size()), content);
        ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        EXPECT_EQ(read_file(path), content);
    }
}

// Else a power cut could take the size, and not the length: as if another program had made the file longer.
TEST_F(GrowthRelaxed, IsDurableBeforeTheFileIsCutToItsSize)
{
    for (bool aborts : {true, false}) {
        SCOPED_TRACE(aborts);
        write_file(path, content = pattern(SIZE, 1));
        Mapped m(path, wish());
        begin(m);
        append(m, 1, ATO_RELAXED);
        FsFaults fs;
        ato_tx *tx = ato_tx_begin(0);
        if (aborts) {
            ASSERT_EQ(ato_tx_ftruncate(tx, m.base, ato_size(m.base) + 1), 0) << ato_errormsg();
        }
        ASSERT_EQ(ato_tx_abort(tx), 0);
        if (!aborts) {
            ASSERT_EQ(ato_ftruncate(m.base, ato_size(m.base)), 0) << ato_errormsg();
        }
        ASSERT_EQ(fs.count("ftruncate"), 1);
        ASSERT_GE(fs.count("fdatasync"), 1);
        auto first = [&](const std::string &op) {
            return std::find_if(fs.calls.begin(), fs.calls.end(),
                                [&](const std::string &c) { return c.rfind(op, 0) == 0; });
        };
        EXPECT_LT(first("fdatasync"), first("ftruncate"));
        EXPECT_EQ(size_of(path), content.size());
        EXPECT_EQ(size_in_manifest(), content.size());
    }
}

// A process that may only read the file, and waits for nothing, looks as soon as the pages have no marks any more.
TEST_F(GrowthRelaxed, WhoSeesTheSizeSeesWhatIsThere)
{
    Mapped m(path, wish());
    begin(m);
    const size_t before = content.size();
    Peer other([&](const std::function<void()> &pause) {
        Fd fd(path, O_RDONLY);
        void *base = ato_mmap(nullptr, before, PROT_READ, MAP_SHARED, fd, 0);
        Bytes now(STEP);
        if (base == MAP_FAILED)
            return 1;
        pause();
        if (ato_size(base) != static_cast<off_t>(before + STEP))
            return 2;
        if (!ato_memcpy(now.data(), static_cast<char *>(base) + before, STEP))
            return 3;
        return now == pattern(STEP, 5) ? CUT : 4;
    });
    ASSERT_TRUE(other.is_ready());
    static Peer *reader;
    static bool has_flipped;
    static int status;
    reader = &other;
    has_flipped = false;
    seam_hook = [](enum seam_point here, const void *) {
        if (here == SEAM_RELEASE && has_flipped && reader) {
            status = reader->end();
            reader = nullptr;
        }
        has_flipped |= here == SEAM_FLIPPED;
    };
    append(m, 1, ATO_RELAXED);
    seam_hook = nullptr;
    EXPECT_EQ(status, CUT);
}

// A size that a stray store has left in shared memory is not taken for that of the log.
TEST_F(GrowthRelaxed, ADamagedSizeIsNotStoredToTheManifest)
{
    Mapped m(path, wish());
    begin(m);
    append(m, 1, ATO_RELAXED);
    const uint64_t before = size_in_manifest();
    const std::string name = memory_of(path);
    const size_t n = static_cast<size_t>(stat_of(name).st_size);
    Fd fd(name, O_RDWR);
    void *memory = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ASSERT_NE(memory, MAP_FAILED);
    auto *header = static_cast<struct shared_header *>(memory);
    header->size -= 9;
    EXPECT_EQ(ato_deploy(m.base, 1), -1);
    EXPECT_EQ(errno, EUCLEAN) << ato_errormsg();
    EXPECT_EQ(size_in_manifest(), before);
    header->size += 9;
    munmap(memory, n);
    EXPECT_EQ(ato_deploy(m.base, 1), 0) << ato_errormsg();
    EXPECT_EQ(size_in_manifest(), content.size());
}

} // namespace
