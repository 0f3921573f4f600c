// SPDX-License-Identifier: BSD-3-Clause
//
// Plain stores, and there is no space or memory for what they need. Nothing is committed then, the stores are still there, and a later commit
// has them.
#include "stores_lab.h"

#define _Thread_local __thread // C++ has no _Thread_local
extern "C" {
#include "lib/file/file.h"
#include "lib/file/table.h"
}

using namespace stores_lab;

namespace
{

// A copy of a page takes 64 bytes more.
constexpr size_t LITTLE = 64 << 10, COPIES = LITTLE / (PAGE + 64);

class StoresInNeed : public StoresFile
{
  protected:
    static ato_options little(unsigned flags)
    {
        ato_options o = plain();
        o.flags = flags;
        o.snapshot_bytes = LITTLE;
        return o;
    }
    void make_hole()
    {
        ASSERT_EQ(unlink(file.c_str()), 0);
        write_file(file, {});
        ASSERT_EQ(truncate(file.c_str(), SIZE), 0);
        content = Bytes(SIZE);
    }
};
IN_ALL_DOMAINS(StoresInNeed);

TEST_P(StoresInNeed, OfSpaceAreStillThere)
{
    make_hole();
    Mapped m(file, plain()), other(file, opt());
    ASSERT_TRUE(m && other) << m.sentence << other.sentence;
    Bytes shown = content;
    for (size_t page = 0; page < PAGES; page += 2) {
        store(m, page * PAGE, Bytes(200, 5));
        copy(shown, page * PAGE, Bytes(200, 5));
    }
    {
        FsFaults full;
        full.before = [](const FsCall &c) {
            const std::string op = c.op;
            return op == "fallocate" || op == "pwrite" ? ENOSPC : GO_ON;
        };
        for (int i = 0; i < 2; i++) {
            ASSERT_EQ(commit(m), -1);
            EXPECT_EQ(errno, ENOSPC) << ato_errormsg();
            EXPECT_TRUE(view(m) == shown);
        }
        EXPECT_EQ(m.unmap(ATO_UNMAP_FAST), -1);
        EXPECT_EQ(m.error, ENOSPC) << m.sentence;
        EXPECT_TRUE(view(m) == shown) << "it is still mapped";
    }
    EXPECT_TRUE(other.read() == content) << other.sentence;
    store(m, PAGE, Bytes(9, 1));
    copy(shown, PAGE, Bytes(9, 1));
    ASSERT_EQ(commit(m), 0) << ato_errormsg();
    content = shown;
    EXPECT_TRUE(other.read() == content);
    EXPECT_TRUE(view(m) == content);
}

// A view shows all that others commit, so these need space for the file itself too.
TEST_P(StoresInNeed, OfSpaceKeepOthersFromCommits)
{
    make_hole();
    Mapped m(file, plain()), other(file, opt());
    ASSERT_TRUE(m && other) << m.sentence << other.sentence;
    for (size_t page = 0; page < PAGES - 2; page += 2) {
        const Bytes was = content;
        long left = static_cast<long>(page) / 4 % 4;
        FsFaults full;
        full.before = [&](const FsCall &c) {
            return std::string(c.op) == "fallocate" && left-- <= 0 ? ENOSPC : GO_ON;
        };
        const bool twice = page % 4;
        if (!put(other, page * PAGE + 5 * SLICE, pattern(twice ? PAGE : 90, 4))) {
            EXPECT_EQ(other.error, ENOSPC) << other.sentence;
            content = was;
        }
        // A load from another page would give that one space.
        EXPECT_TRUE(memcmp(m.base + page * PAGE, &content[page * PAGE], PAGE) == 0) << page;
    }
    EXPECT_TRUE(other.read() == content) << other.sentence;
    note(m, 40 * PAGE, {1});
    ASSERT_EQ(commit(m), 0) << ato_errormsg();
    EXPECT_TRUE(other.read() == content);
    EXPECT_TRUE(view(m) == content);
}

// There is no room for what others changed meanwhile.
TEST_P(StoresInNeed, OfMemoryAreForgottenByWishAlone)
{
    Mapped m(file, little(ATO_PLAIN_STORES)), other(file, little(0));
    ASSERT_TRUE(m && other) << m.sentence << other.sentence;
    // A commit of many pages, none of which has stores.
    ASSERT_TRUE(put(other, 0, pattern(3 * COPIES * PAGE, 3))) << other.sentence;
    note(m, 55 * PAGE, {1});
    ASSERT_EQ(commit(m), 0) << ato_errormsg();
    EXPECT_TRUE(other.read() == content);
    // Many commits of one page.
    note(m, 50 * PAGE, {7});
    for (unsigned i = 0; i < 5 * COPIES; i++)
        ASSERT_TRUE(put(other, 50 * PAGE + 5 * SLICE, Bytes(9, static_cast<uint8_t>(i))))
            << other.sentence;
    ASSERT_EQ(commit(m), 0) << ato_errormsg();
    EXPECT_TRUE(other.read() == content);
    // Many pages that have stores.
    for (size_t page = 0; page < 3 * COPIES; page++)
        store(m, page * PAGE, {1});
    const Bytes shown = view(m);
    for (size_t page = 0; page < 3 * COPIES; page++)
        ASSERT_TRUE(put(other, page * PAGE + 5 * SLICE, Bytes(9, 2))) << other.sentence;
    for (int i = 0; i < 2; i++) {
        ASSERT_EQ(commit(m), -1);
        EXPECT_EQ(errno, ESTALE) << ato_errormsg();
        EXPECT_NE(std::string(ato_errormsg()).find("ato_plain_discard"), std::string::npos);
        EXPECT_TRUE(view(m) == shown);
        EXPECT_TRUE(other.read() == content);
    }
    ASSERT_EQ(ato_plain_discard(m.base, PAGE), 0) << ato_errormsg();
    EXPECT_EQ(commit(m), -1) << "a part is not enough";
    ASSERT_EQ(discard(m), 0) << ato_errormsg();
    EXPECT_TRUE(view(m) == content);
    note(m, 3 * PAGE, {4});
    ASSERT_EQ(commit(m), 0) << ato_errormsg();
    EXPECT_TRUE(other.read() == content);
    EXPECT_TRUE(view(m) == content);
}

// What is kept for a page cannot be mapped when the page is cut.
TEST_P(StoresInNeed, OfAddressSpaceAreForgottenByWishAlone)
{
    const size_t at = 50 * PAGE, end = at + SLICE + 9;
    Mapped m(file, plain()), other(file, opt());
    ASSERT_TRUE(m && other) << m.sentence << other.sentence;
    store(m, at + 20 * SLICE, Bytes(9, 1));
    ASSERT_TRUE(put(other, at + 30 * SLICE, Bytes(9, 2))) << other.sentence;
    ASSERT_EQ(ato_ftruncate(other.base, static_cast<off_t>(end)), 0) << ato_errormsg();
    content.resize(end);
    content.resize(SIZE);
    uint64_t &room = table_find(m.base)->file->shared.undo.room;
    const uint64_t enough = room;
    room = 0;
    EXPECT_EQ(ato_ftruncate(m.base, SIZE), 0) << ato_errormsg();
    room = enough;
    EXPECT_EQ(commit(m), -1);
    EXPECT_EQ(errno, ESTALE) << ato_errormsg();
    EXPECT_TRUE(other.read() == content) << other.sentence;
    ASSERT_EQ(discard(m), 0) << ato_errormsg();
    EXPECT_TRUE(view(m) == content);
}

// Relaxed commits, with memory for few of their pages.
TEST_P(StoresInNeed, OfMemoryAreCommittedAsyncToo)
{
    Mapped m(file, little(ATO_PLAIN_STORES)), other(file, little(0));
    ASSERT_TRUE(m && other) << m.sentence << other.sentence;
    for (size_t n = 1; n < PAGES; n += 1 + n / 3)
        for (uint8_t i = 0; i < 4; i++) {
            SCOPED_TRACE(testing::Message() << n << " pages, " << int(i));
            for (size_t page = 0; page < n; page++)
                note(m, page * PAGE + i * SLICE, Bytes(9, static_cast<uint8_t>(n + i)));
            ASSERT_EQ(commit(m, i < 3 ? MS_ASYNC : MS_SYNC), 0) << ato_errormsg();
            EXPECT_TRUE(other.read() == content);
            ASSERT_TRUE(put(other, 20 * SLICE, Bytes(9, static_cast<uint8_t>(n + i))));
        }
    EXPECT_TRUE(view(m) == content);
}

// If it is not known what the medium has, only an unmapping is possible, which forgets them.
TEST_P(StoresInNeed, OfAMediumAreStillThere)
{
    Mapped m(file, plain());
    ASSERT_TRUE(m) << m.sentence;
    note(m, PAGE, Bytes(2 * PAGE, 1));
    ASSERT_EQ(commit(m), 0) << ato_errormsg();
    store(m, 2 * PAGE, Bytes(2 * PAGE, 2));
    const Bytes shown = view(m);
    {
        FsFaults syncs;
        PersistFaults flushes;
        syncs.fail_op("fdatasync", EIO);
        flushes.before = [](const PersistCall &c) {
            return std::string(c.op).find("flush") == 0 ? EIO : GO_ON;
        };
        if (commit(m) == 0) // by a medium that waits for neither
            return;
        EXPECT_EQ(errno, EIO) << ato_errormsg();
    }
    EXPECT_TRUE(view(m) == shown);
    const bool is_over = commit(m) < 0;
    if (is_over) {
        EXPECT_EQ(errno, EIO) << ato_errormsg();
        EXPECT_TRUE(view(m) == shown);
    }
    ASSERT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
    Bytes after = content;
    copy(after, 2 * PAGE, Bytes(2 * PAGE, 2));
    Mapped now(file, plain());
    ASSERT_TRUE(now) << now.sentence;
    EXPECT_TRUE(now.read() == after || (is_over && now.read() == content));
}

// The shared memory of the file gets no more.
TEST_P(StoresInNeed, OfSharedMemoryAreRefusedOrRight)
{
    Mapped m(file, plain()), other(file, opt());
    ASSERT_TRUE(m && other) << m.sentence << other.sentence;
    note(m, 3 * PAGE, {1});
    ASSERT_EQ(commit(m), 0) << ato_errormsg();
    store(m, 4 * PAGE, {1});
    FsFaults full;
    full.fail_op("fallocate", ENOSPC);
    bool lost = false;
    for (size_t page = 0; page < PAGES - 1 && !lost; page++) {
        store(m, page * PAGE, {1});
        const Bytes was = content;
        if (!put(other, page * PAGE + 5 * SLICE, Bytes(9, 2))) {
            EXPECT_EQ(other.error, ENOSPC) << other.sentence;
            content = was;
        }
        if (commit(m) < 0) {
            EXPECT_TRUE(errno == ESTALE || errno == ENOSPC) << ato_errormsg();
            lost = true;
        } else {
            copy(content, page * PAGE, {1});
            copy(content, 4 * PAGE, {1});
        }
        EXPECT_TRUE(other.read() == content);
    }
    full.before = nullptr;
    ASSERT_EQ(discard(m), 0) << ato_errormsg();
    EXPECT_TRUE(view(m) == content);
}

} // namespace
