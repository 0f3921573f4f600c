// SPDX-License-Identifier: BSD-3-Clause
//
// Plain stores (ATO_PLAIN_STORES) of one process: what a commit takes, who sees it when, what becomes of stores without one.
#include "relaxed_lab.h"
#include "stores_lab.h"

#include <sys/uio.h>

using namespace stores_lab;
using relaxed_lab::Syncs;

namespace
{

class Stores : public StoresFile
{
};
IN_ALL_DOMAINS(Stores);

// ---- a commit ----

TEST_P(Stores, AreCommittedAsOneStepAndSeenByNobodyBefore)
{
    Mapped m(file, plain()), other(file, opt()), second(file, plain());
    ASSERT_TRUE(m && other && second) << m.sentence << other.sentence << second.sentence;
    const Bytes before = content;
    Snap old(m.base);
    for (size_t page = 0; page < PAGES; page += 3)
        note(m, page * PAGE + 77 * (page % 5), pattern(300 + page, 7));
    note(m, SIZE - 9, pattern(9, 8)); // the last page is not whole
    EXPECT_TRUE(view(m) == content);
    for (Mapped *each : {&m, &other, &second})
        EXPECT_TRUE(each->read() == before) << "stores are no commit";
    EXPECT_TRUE(view(other) == before);
    EXPECT_TRUE(view(second) == before);
    EXPECT_TRUE(read_at(file, 0, SIZE) == before);
    const struct ato_stat was = m.stat();
    ASSERT_EQ(commit(m), 0) << ato_errormsg();
    EXPECT_EQ(m.stat().writes, was.writes + 1);
    EXPECT_EQ(copies(m), 0u) << "their memory is given back";
    for (Mapped *each : {&m, &other, &second})
        EXPECT_TRUE(each->read() == content);
    for (const Mapped *each : {&m, &second})
        EXPECT_TRUE(view(*each) == content);
    EXPECT_TRUE(view(other) == content) << "it is at home";
    EXPECT_TRUE(read_at(file, 0, SIZE) == content) << "read(2) sees it";
    EXPECT_TRUE(old.copy() == before) << old.sentence;
    EXPECT_TRUE(Snap(m.base).copy() == content);
}

TEST_P(Stores, CostTheSlicesThatDiffer)
{
    Mapped m(file, plain());
    ASSERT_TRUE(m) << m.sentence;
    note(m, 0, pattern(20 * PAGE, 2)); // first touches
    ASSERT_EQ(commit(m), 0) << ato_errormsg();
    const struct ato_stat was = m.stat();
    for (size_t page = 0; page < 10; page++) {
        note(m, page * PAGE + 5 * SLICE + 3, {9});
        store(m, page * PAGE + 20 * SLICE, {content[page * PAGE + 20 * SLICE]}); // what is there
    }
    store(m, 15 * PAGE, {content[15 * PAGE]});
    ASSERT_EQ(commit(m), 0) << ato_errormsg();
    const struct ato_stat now = m.stat();
    EXPECT_EQ(now.bytes_written - was.bytes_written, 10 * SLICE);
    EXPECT_LT(now.bytes_to_media - was.bytes_to_media, 10 * (2 * SLICE + 100));
    EXPECT_TRUE(m.read() == content);
    EXPECT_EQ(copies(m), 0u);
    const uint64_t media = now.bytes_to_media;
    store(m, 15 * PAGE, {content[15 * PAGE]});
    ASSERT_EQ(commit(m), 0) << ato_errormsg();
    ASSERT_EQ(commit(m), 0) << ato_errormsg();
    EXPECT_EQ(m.stat().bytes_to_media, media) << "nothing differs";
}

TEST_P(Stores, OfOtherPagesStayStores)
{
    Mapped m(file, plain());
    ASSERT_TRUE(m) << m.sentence;
    for (size_t page = 0; page < 9; page++)
        store(m, page * PAGE, Bytes(PAGE, 5));
    Bytes shown = view(m);
    ASSERT_EQ(ato_msync(m.base + 3 * PAGE, PAGE + 1, MS_SYNC), 0) << ato_errormsg();
    copy(content, 3 * PAGE, Bytes(2 * PAGE, 5));
    EXPECT_TRUE(m.read() == content);
    EXPECT_TRUE(view(m) == shown);
    ASSERT_EQ(ato_plain_discard(m.base + 6 * PAGE, 2 * PAGE - 9), 0) << ato_errormsg();
    copy(shown, 6 * PAGE, Bytes(&content[6 * PAGE], &content[8 * PAGE]));
    EXPECT_TRUE(view(m) == shown);
    EXPECT_TRUE(m.read() == content);
    ASSERT_EQ(ato_msync(m.base, 0, MS_SYNC), 0) << ato_errormsg();
    EXPECT_TRUE(view(m) == shown);
    ASSERT_EQ(discard(m), 0) << ato_errormsg();
    EXPECT_TRUE(view(m) == content);
    EXPECT_EQ(copies(m), 0u);
}

// A relaxed one in domain disk, where that differs.
TEST_P(Stores, OfAnAsyncCommitAreSeenAtOnce)
{
    const bool relaxed = GetParam() == ATO_DOMAIN_DISK;
    Syncs syncs;
    Mapped m(file, plain()), other(file, opt());
    ASSERT_TRUE(m && other) << m.sentence << other.sentence;
    note(m, 0, pattern(9 * PAGE, 2));
    ASSERT_EQ(commit(m), 0) << ato_errormsg();
    EXPECT_EQ(syncs.take() > 0, relaxed);
    Bytes shown = content;
    for (uint8_t i = 0; i < 6; i++) {
        SCOPED_TRACE(int(i));
        note(m, PAGE, Bytes(9, i % 3)); // some bytes as they were three commits before
        note(m, 3 * PAGE - 5, pattern(PAGE, i));
        copy(shown, PAGE, Bytes(9, i % 3));
        copy(shown, 3 * PAGE - 5, pattern(PAGE, i));
        ASSERT_EQ(commit(m, MS_ASYNC), 0) << ato_errormsg();
        EXPECT_EQ(syncs.take(), 0);
        EXPECT_TRUE(view(m, 5 * PAGE) == Bytes(shown.begin(), shown.begin() + 5 * PAGE));
        EXPECT_TRUE(m.read() == content);
        EXPECT_TRUE(other.read() == content);
        EXPECT_TRUE(Snap(m.base).copy() == content);
        const Bytes foreign(100, static_cast<uint8_t>(50 + i));
        copy(content, PAGE + 5 * SLICE, foreign);
        if (!relaxed) // else the page is still the process's copy
            copy(shown, PAGE + 5 * SLICE, foreign);
        ASSERT_TRUE(other.write(PAGE + 5 * SLICE, foreign)) << other.sentence;
        syncs.take();
        EXPECT_TRUE(m.read() == content);
    }
    note(m, 7 * PAGE, Bytes(9, 9));
    store(m, 8 * PAGE, Bytes(9, 9));
    ASSERT_EQ(commit(m, MS_ASYNC), 0) << ato_errormsg();
    copy(content, 8 * PAGE, Bytes(9, 9));
    ASSERT_EQ(commit(m), 0) << ato_errormsg();
    EXPECT_EQ(syncs.take() > 0, relaxed) << "the relaxed ones were not durable";
    ASSERT_EQ(commit(m), 0) << ato_errormsg();
    EXPECT_EQ(syncs.take(), 0) << "they were";
    EXPECT_TRUE(view(m) == content);
    EXPECT_EQ(copies(m), 0u);
    store(m, PAGE, Bytes(3 * PAGE, 77));
    ASSERT_EQ(discard(m), 0) << ato_errormsg();
    EXPECT_TRUE(view(m) == content);
    note(m, PAGE, Bytes(3, 1));
    ASSERT_EQ(commit(m, MS_ASYNC), 0) << ato_errormsg();
    store(m, PAGE, Bytes(3 * PAGE, 77));
    ASSERT_EQ(discard(m), 0) << ato_errormsg();
    EXPECT_TRUE(view(m) == content) << "a discard does not go behind a relaxed commit";
}

// ---- the end ----

TEST_P(Stores, AreCommittedOrForgottenByAnUnmapping)
{
    for (const int mode : {ATO_UNMAP_FAST, ATO_UNMAP_SPATIAL})
        for (const bool last : {false, true})
            for (const bool forget : {false, true}) {
                SCOPED_TRACE(testing::Message() << mode << last << forget);
                Mapped m(file, plain()), other(file, opt());
                ASSERT_TRUE(m && other) << m.sentence << other.sentence;
                if (last) {
                    ASSERT_EQ(other.unmap(ATO_UNMAP_FAST), 0) << other.sentence;
                }
                Bytes after = content;
                copy(after, 3 * PAGE - 9, Bytes(3 * PAGE, content[0] + 1));
                store(m, 3 * PAGE - 9, Bytes(3 * PAGE, content[0] + 1));
                ASSERT_EQ(m.unmap(mode | (forget ? ATO_UNMAP_DISCARD : 0)), 0) << m.sentence;
                content = forget ? content : after;
                Mapped now(file, opt());
                ASSERT_TRUE(now) << now.sentence;
                EXPECT_TRUE(now.read() == content);
                ASSERT_TRUE(put(now, 0, Bytes(PAGE, content[0] + 1))) << now.sentence;
            }
}

TEST_P(Stores, AreGoneAfterExitAndAKill)
{
    for (const bool killed : {false, true}) {
        const auto life = [&] {
            Mapped m(file, plain());
            if (!m)
                return 1;
            store(m, PAGE, Bytes(2 * PAGE, 6 + killed));
            if (commit(m) < 0)
                return 2;
            store(m, 2 * PAGE, Bytes(2 * PAGE, 8));
            m.base = nullptr; // it stays mapped
            if (killed)
                raise(SIGKILL);
            return 0;
        };
        EXPECT_EQ(killed ? in_child(life) : in_exiting_child(life), killed ? 256 + SIGKILL : 0);
        copy(content, PAGE, Bytes(2 * PAGE, 6 + killed));
        Mapped m(file, plain());
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_TRUE(m.read() == content);
        EXPECT_TRUE(view(m) == content);
    }
}

TEST_P(Stores, AreNotInAForkedChild)
{
    Mapped m(file, plain());
    ASSERT_TRUE(m) << m.sentence;
    note(m, PAGE, Bytes(9, 9));
    EXPECT_NE(in_child([&] {
                  m.base[0] = 1;
                  return 0;
              }),
              0)
        << "the child has the mapping";
    EXPECT_EQ(in_child([&] { // and may map it itself
                  Mapped own(file, plain());
                  if (!own || own.base[PAGE] == 9)
                      return 1;
                  store(own, PAGE + SLICE, Bytes(9, 7));
                  return commit(own) == 0 ? 0 : 2;
              }),
              0);
    copy(content, PAGE + SLICE, Bytes(9, 7));
    ASSERT_EQ(commit(m), 0) << ato_errormsg();
    EXPECT_TRUE(m.read() == content);
    EXPECT_TRUE(view(m) == content);
}

// ---- views ----

TEST_P(Stores, HaveViewsOfAnyPartOfTheFile)
{
    Mapped all(file, plain()), part(file, plain(), 5 * PAGE, 7 * PAGE),
        end(file, plain(), 0, 50 * PAGE);
    ASSERT_TRUE(all && part && end) << all.sentence << part.sentence << end.sentence;
    store(part, 2 * PAGE, Bytes(300, 1)); // page 9
    store(all, 9 * PAGE + 20 * SLICE, Bytes(300, 2));
    store(end, 9 * PAGE, Bytes(200, 3)); // page 59
    store(all, 59 * PAGE + 300, Bytes(300, 4));
    ASSERT_EQ(commit(part), 0) << ato_errormsg();
    copy(content, 9 * PAGE, Bytes(300, 1));
    EXPECT_TRUE(all.read() == content);
    ASSERT_EQ(commit(all), 0) << ato_errormsg();
    copy(content, 9 * PAGE + 20 * SLICE, Bytes(300, 2));
    copy(content, 59 * PAGE + 300, Bytes(300, 4));
    EXPECT_TRUE(all.read() == content);
    EXPECT_TRUE(view(all) == content);
    ASSERT_EQ(commit(end), 0) << ato_errormsg();
    copy(content, 59 * PAGE, Bytes(200, 3));
    EXPECT_TRUE(view(all) == content);
    EXPECT_TRUE(view(part, part.length) ==
                Bytes(&content[7 * PAGE], &content[7 * PAGE] + 5 * PAGE));
    EXPECT_TRUE(view(end, end.length) == Bytes(&content[50 * PAGE], content.data() + SIZE));
}

TEST_P(Stores, BehindTheEndAreForgottenAndGrowWithTheFile)
{
    Mapped m(file, plain());
    ASSERT_TRUE(m) << m.sentence;
    const uint64_t media = m.stat().bytes_to_media;
    memset(m.base + SIZE, 9, PAGES * PAGE - SIZE); // in the last page, behind the end
    ASSERT_EQ(commit(m), 0) << ato_errormsg();
    EXPECT_EQ(m.stat().bytes_to_media, media);
    memset(m.base + SIZE, 9, PAGES * PAGE - SIZE);
    note(m, SIZE - 1, {1});
    ASSERT_EQ(commit(m), 0) << ato_errormsg();
    ASSERT_EQ(ato_ftruncate(m.base, SIZE + 3 * PAGE), 0) << ato_errormsg();
    m.length = SIZE + 3 * PAGE;
    content.resize(m.length);
    EXPECT_TRUE(view(m, m.length) == content) << "the file grew by what was stored behind its end";
    note(m, SIZE + PAGE, Bytes(2 * PAGE, 3));
    note(m, PAGE, Bytes(9, 4));
    ASSERT_EQ(commit(m), 0) << ato_errormsg();
    EXPECT_TRUE(m.read() == content);
    store(m, SIZE, Bytes(3 * PAGE, 5)); // is cut off in part
    ASSERT_EQ(ato_ftruncate(m.base, SIZE + 10), 0) << ato_errormsg();
    content.resize(SIZE + 10);
    copy(content, SIZE, Bytes(10, 5));
    m.length = SIZE + 10;
    ASSERT_EQ(commit(m), 0) << ato_errormsg();
    EXPECT_TRUE(m.read() == content) << "stores before the end stay";
    ASSERT_EQ(ato_ftruncate(m.base, SIZE + 3 * PAGE), 0) << ato_errormsg();
    m.length = SIZE + 3 * PAGE;
    content.resize(m.length);
    EXPECT_TRUE(view(m, m.length) == content);
    ASSERT_EQ(commit(m), 0) << ato_errormsg();
    EXPECT_TRUE(m.read() == content);
}

TEST_P(Stores, OfWhatTheFileHadBeforeItWasCutCount)
{
    Mapped m(file, plain());
    ASSERT_TRUE(m) << m.sentence;
    for (const bool relaxed : {false, true}) {
        SCOPED_TRACE(
            relaxed); // on a disk what was committed last is kept then, with what is cut off
        note(m, SIZE - 2 * PAGE, Bytes(PAGE, 7));
        ASSERT_EQ(ato_msync(m.base, SIZE, relaxed ? MS_ASYNC : MS_SYNC), 0) << ato_errormsg();
        note(m, SIZE - 2 * PAGE, {8}); // a copy of the page
        ASSERT_EQ(ato_ftruncate(m.base, SIZE - 2 * PAGE + 10), 0) << ato_errormsg();
        ASSERT_EQ(ato_ftruncate(m.base, SIZE), 0) << ato_errormsg();
        content.resize(SIZE - 2 * PAGE + 10);
        content.resize(SIZE);
        EXPECT_TRUE(view(m, SIZE) == content);
        note(m, SIZE - 2 * PAGE + 10, Bytes(PAGE - 10, 7));
        ASSERT_EQ(commit(m), 0) << ato_errormsg();
        EXPECT_TRUE(m.read() == content);
    }
}

// A transaction of the thread that has changed the size is an ordinary one again.
TEST_P(Stores, OfAFileThatGrewTakeNothingBack)
{
    Mapped m(file, plain()), other(file, opt());
    ASSERT_TRUE(m && other) << m.sentence << other.sentence;
    for (const off_t size : {SIZE - PAGE, SIZE}) {
        ASSERT_EQ(ato_ftruncate(m.base, size), 0) << ato_errormsg();
        content.resize(static_cast<size_t>(size));
    }
    ASSERT_EQ(commit(m), 0) << ato_errormsg();
    note(m, 5 * PAGE, Bytes(9, 1));
    const Bytes bytes(70, 2);
    ato_tx *tx = ato_tx_begin(0);
    ASSERT_TRUE(ato_tx_memcpy(tx, other.base + 5 * PAGE + 3 * SLICE, bytes.data(), 70, 0));
    ASSERT_EQ(ato_tx_commit(tx), 0) << ato_errormsg();
    copy(content, 5 * PAGE + 3 * SLICE, bytes);
    ASSERT_EQ(commit(m), 0) << ato_errormsg();
    EXPECT_TRUE(other.read() == content);
}

TEST_P(Stores, GrowTheFileWithTheirCommit)
{
    Mapped m(file, plain()), other(file, opt());
    ASSERT_TRUE(m && other) << m.sentence << other.sentence;
    const auto grow = [](const Mapped &by, size_t to) {
        return ato_ftruncate(by.base, static_cast<off_t>(to)) == 0;
    };
    const auto size = [](const Mapped &by) { return static_cast<size_t>(ato_size(by.base)); };
    const size_t longer = SIZE + 2 * PAGE, longest = SIZE + 3 * PAGE;
    EXPECT_EQ(in_child([&] {
                  Mapped own(file, plain());
                  if (!own || !grow(own, longest))
                      return 1;
                  store(own, SIZE + 2 * PAGE, Bytes(9, 2));
                  raise(SIGKILL);
                  return 2;
              }),
              256 + SIGKILL);
    EXPECT_EQ(size(other), SIZE);
    ASSERT_TRUE(grow(m, longer)) << ato_errormsg();
    EXPECT_EQ(size(m), longer);
    EXPECT_EQ(size(other), SIZE);
    m.length = longer;
    content.resize(longer);
    note(m, SIZE + PAGE, Bytes(9, 1));
    note(m, PAGE, Bytes(9, 1));
    ASSERT_EQ(commit(m), 0) << ato_errormsg();
    EXPECT_EQ(size(other), longer);
    EXPECT_TRUE(m.read() == content);
    ASSERT_TRUE(grow(m, longest)) << ato_errormsg();
    m.length = longest;
    store(m, longer + 5, Bytes(9, 3));
    ASSERT_EQ(discard(m), 0) << ato_errormsg();
    EXPECT_EQ(size(m), longer) << "a growth is forgotten, too";
    ASSERT_TRUE(grow(m, longest)) << ato_errormsg();
    m.length = SIZE;
    ASSERT_EQ(m.unmap(ATO_UNMAP_FAST | ATO_UNMAP_DISCARD), 0) << m.sentence;
    EXPECT_EQ(size(other), longer);
    EXPECT_TRUE(other.read(0, longer) == content);
}

// ---- what is refused ----

TEST_P(Stores, AreNotMixedWithCalls)
{
    Mapped m(file, plain()), other(file, opt());
    ASSERT_TRUE(m && other) << m.sentence << other.sentence;
    const Bytes bytes(10, 1);
    const ato_iovec part = {m.base, bytes.data(), bytes.size()};
    refused(!ato_memcpy(m.base, bytes.data(), 10), EINVAL, "ATO_PLAIN_STORES");
    refused(!ato_memset(m.base + PAGE, 1, 3 * PAGE), EINVAL, "ATO_PLAIN_STORES");
    refused(ato_writev(&part, 1, 0) < 0, EINVAL, "ATO_PLAIN_STORES");
    ato_tx *tx = ato_tx_begin(0);
    refused(!ato_tx_memcpy(tx, m.base, bytes.data(), 10, 0), EINVAL, "ATO_PLAIN_STORES");
    ato_tx_abort(tx);
    refused(ato_plain_discard(other.base, PAGE) < 0, EINVAL, "ATO_PLAIN_STORES");
    refused(ato_plain_discard(m.base + 1, PAGE) < 0, EINVAL, "page");
    refused(ato_plain_discard(m.base, 100 * PAGE) < 0, ENOMEM, "mapping");
    refused(ato_munmap(other.base, SIZE, ATO_UNMAP_DISCARD) < 0, EINVAL, "ATO_UNMAP_DISCARD");
    EXPECT_TRUE(m.read() == content);
    EXPECT_TRUE(view(m) == content);
    const Mapped epochs(file, plain(ATO_EPOCHS));
    EXPECT_EQ(epochs.error, EINVAL) << epochs.sentence;
    const Mapped plainest(file, plain(ATO_PLAIN));
    EXPECT_FALSE(plainest);
    const ato_options o = plain();
    EXPECT_EQ(ato_mmap_opt(SIZE, Fd(file, O_RDONLY), 0, &o), MAP_FAILED);
    EXPECT_EQ(errno, EACCES) << ato_errormsg();
}

// Either way to find the pages finds them all, and no other ones.
TEST_P(Stores, AreFoundWithAnOlderKernelToo)
{
    for (const bool scan : {true, false}) {
        private_pages_scan = scan;
        Mapped m(file, plain());
        ASSERT_TRUE(m) << m.sentence;
        (void)view(m); // pages that are there, and not stored to
        uint64_t pages = 0;
        for (size_t page = 0; page < PAGES; page += 1 + page % 4, pages++)
            note(m, page * PAGE + 9, {static_cast<uint8_t>(3 + scan)});
        EXPECT_EQ(copies(m), pages);
        const int free = Fd(file);
        ASSERT_EQ(commit(m), 0) << ato_errormsg();
        EXPECT_EQ(Fd(file), free) << "a commit has left a descriptor open";
        EXPECT_EQ(copies(m), 0u);
        EXPECT_TRUE(m.read() == content);
    }
    private_pages_scan = true;
}

// The program may close the descriptor of the page tables, and get the number for another file.
TEST_P(Stores, AreFoundWithoutTheDescriptorToo)
{
    Mapped m(file, plain());
    ASSERT_TRUE(m) << m.sentence;
    for (const bool scan : {true, false}) {
        private_pages_scan = scan;
        write_file(dir / "other", Bytes(1 << 20, 0xff));
        for (int fd = 3; fd < 50; fd++) {
            const std::string name = "/proc/self/fd/" + std::to_string(fd);
            char to[100] = "";
            if (readlink(name.c_str(), to, sizeof(to) - 1) > 0 && strstr(to, "/pagemap"))
                ASSERT_EQ(dup2(Fd(dir / "other"), fd), fd);
        }
        note(m, 3 * PAGE, {static_cast<uint8_t>(7 + scan)});
        EXPECT_EQ(copies(m), 1u);
        ASSERT_EQ(commit(m), 0) << ato_errormsg();
        EXPECT_TRUE(m.read() == content);
        EXPECT_EQ(copies(m), 0u);
    }
    private_pages_scan = true;
}

} // namespace
