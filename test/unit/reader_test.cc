// SPDX-License-Identifier: BSD-3-Clause
//
// A process has a read-only descriptor of a file and nothing else: it reads the right content, with
// writers in other processes and without, and changes nothing.
#include "unit/watched.h"

extern "C" {
#include "reflection/media/seam.h"
}

#include <cerrno>

using namespace watched;

namespace
{

TEST_F(Reader, OfAPlainFileSeesTheWritesOfALaterWriter)
{
    Watched r(path);
    ASSERT_TRUE(r.base) << r.sentence;
    EXPECT_EQ(r.read(), content);
    EXPECT_FALSE(fs::exists(dir / ".ato")) << "a reader makes no file";
    const Bytes before = content;
    Writer w(path, {write(3000, 2), write(9000, 3), unmap(ATO_UNMAP_SPATIAL)});
    EXPECT_EQ(r.read(), before);
    w.act();
    w.act();
    EXPECT_EQ(r.read(), content);
    EXPECT_EQ(r.read(4000, 100), Bytes(&content[4000], &content[4100]));
    w.act();
    w.end();
    EXPECT_TRUE(fs::exists(manifest_of(path))) << "the reader still has it mapped";
    EXPECT_EQ(r.read(), content);
}

// Of a dense reflection this page has the number that stands for 'no place' in a sparse one.
TEST_F(Reader, SeesSlicesOfAPageBehind256GiBThatTheWriterHasNotLoaded)
{
    constexpr off_t AT = 1ll << 38;
    const std::string far = dir / "far";
    write_file(far, {});
    ASSERT_EQ(truncate(far.c_str(), AT + 4096), 0);
    ato_options opt = options(ATO_DOMAIN_AUTO, ATO_READ_GATHER);
    opt.format = ATO_FORMAT_DENSE;
    const Bytes news = pattern(4096, 7);
    ASSERT_TRUE(Mapped(far, opt, 4096, AT).write(0, news));
    EXPECT_EQ(in_child([&] { // where the file is mapped for reading only
                  Pipe go, mapped;
                  if (fork() == 0) {
                      Mapped m(far, opt, 4096, AT);
                      mapped.tell();
                      go.hear();
                      _exit(0);
                  }
                  mapped.hear();
                  Bytes seen(4096);
                  Fd fd(far, O_RDONLY);
                  void *at = ato_mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, AT);
                  const bool read = at != MAP_FAILED && ato_memcpy(seen.data(), at, 4096);
                  go.tell();
                  wait(nullptr);
                  return !read ? 1 : seen == news ? 0 : 2;
              }),
              0);
}

TEST_F(Reader, ContinuesWhileWritersMapAndUnmap)
{
    Watched r(path);
    ASSERT_TRUE(r.base) << r.sentence;
    for (int i = 0; i < 4; i++) {
        Writer w(path, {write(1000 + 4096 * static_cast<size_t>(i), 10 + i), unmap(i % 2)});
        w.act();
        EXPECT_EQ(r.read(), content) << i;
        if (i == 2) {
            w.kill();
        } else {
            w.act();
            w.end();
        }
        EXPECT_EQ(r.read(), content) << i;
    }
    EXPECT_EQ(ato_munmap(r.base, SIZE, ATO_UNMAP_FAST), 0);
    r.base = nullptr;
    Mapped m(path);
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), content);
    EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    EXPECT_EQ(read_file(path), content);
}

TEST_F(Reader, IsRefusedWhileNobodyHasTheFileMappedAndItIsNotPlain)
{
    leave_slices();
    ASSERT_NE(read_file(path), content) << "else the test shows nothing";
    const auto before = everything();
    Watched r(path);
    EXPECT_FALSE(r.base);
    EXPECT_EQ(r.error, EAGAIN);
    EXPECT_NE(r.sentence.find(path + " is not plain"), std::string::npos) << r.sentence;
    EXPECT_EQ(everything(), before);
    Writer w(path, {write(100, 5), unmap(ATO_UNMAP_SPATIAL)});
    w.act();
    {
        Watched beside(path);
        ASSERT_TRUE(beside.base) << beside.sentence;
        EXPECT_EQ(beside.read(), content);
    }
    w.act();
    w.end();
    Watched plain(path);
    ASSERT_TRUE(plain.base) << plain.sentence;
    EXPECT_EQ(plain.read(), content);
}

// The reader has not seen a writer yet, so it keeps no shared memory.
TEST_F(Reader, OfAPlainFileIsRefusedItsBytesAfterAFastUnmapUntilAWriterComesBy)
{
    Watched r(path);
    ASSERT_TRUE(r.base) << r.sentence;
    EXPECT_EQ(r.read(), content);
    leave_slices();
    for (int i = 0; i < 2; i++) {
        EXPECT_EQ(r.read(), Bytes());
        EXPECT_EQ(r.error, EAGAIN) << ato_errormsg();
    }
    Writer w(path, {write(100, 3)});
    w.act();
    EXPECT_EQ(r.read(), content);
}

TEST_F(Reader, KnowsTheCurrentSizeOfTheFile)
{
    Watched r(path);
    ASSERT_TRUE(r.base) << r.sentence;
    EXPECT_EQ(ato_size(r.base), static_cast<off_t>(SIZE));
    auto resize = [](off_t to) {
        return [=](Mapped &m) { return ato_ftruncate(m.base, to) == 0; };
    };
    Writer w(path, {resize(3 * SIZE), resize(5000), unmap(ATO_UNMAP_SPATIAL)});
    for (off_t size : {off_t{3 * SIZE}, off_t{5000}, off_t{5000}}) {
        w.act();
        EXPECT_EQ(ato_size(r.base), size) << ato_errormsg();
    }
    w.end();
    EXPECT_EQ(ato_size(r.base + 4096), 5000) << ato_errormsg();
}

// Without a read meanwhile the reader does not keep the reflection from being removed.
TEST_F(Reader, NoticesThatTheFileBecamePlain)
{
    Watched r(path);
    ASSERT_TRUE(r.base) << r.sentence;
    EXPECT_EQ(r.read(), content);
    Writer w(path, {write(100, 7), unmap(ATO_UNMAP_SPATIAL)});
    w.act();
    w.act();
    w.end();
    EXPECT_FALSE(fs::exists(manifest_of(path)));
    EXPECT_EQ(r.read(), content);
    Writer again(path, {write(5000, 8)});
    again.act();
    EXPECT_EQ(r.read(), content);
}

TEST_F(Reader, IsRefusedUntilAWriterHasRecoveredTheFile)
{
    {
        Writer w(path, {write(3000, 2)});
        w.act();
    }
    const auto before = everything();
    Watched r(path);
    EXPECT_FALSE(r.base);
    EXPECT_EQ(r.error, EAGAIN);
    EXPECT_NE(r.sentence.find("is not plain"), std::string::npos) << r.sentence;
    EXPECT_NE(r.sentence.find(path), std::string::npos) << r.sentence;
    EXPECT_EQ(everything(), before);
    Writer w(path, {[](Mapped &) { return true; }});
    w.act();
    Watched now(path);
    ASSERT_TRUE(now.base) << now.sentence;
    EXPECT_EQ(now.read(), content);
}

TEST_F(Reader, SeesTheFileGrowAndShrinkWithoutACall)
{
    Watched r(path, 4 * SIZE);
    ASSERT_TRUE(r.base) << r.sentence;
    Writer w(path, {[](Mapped &m) {
                        return ato_ftruncate(m.base, 2 * SIZE) == 0 &&
                               ato_memset(m.base + 2 * SIZE - 10, 'x', 10);
                    },
                    [](Mapped &m) { return ato_ftruncate(m.base, 5000) == 0; }});
    EXPECT_EQ(r.read(0, SIZE), content);
    w.act();
    EXPECT_EQ(r.read(2 * SIZE - 10, 10), Bytes(10, 'x'));
    EXPECT_EQ(r.read(SIZE, SIZE - 10), Bytes(SIZE - 10, 0));
    w.act();
    EXPECT_EQ(r.read(0, 5000), Bytes(&content[0], &content[5000]));
    EXPECT_EQ(r.read(0, 5001), Bytes());
    EXPECT_EQ(r.error, EFAULT);
}

TEST_F(Reader, CannotReservePagesAndCanBeCopiedFrom)
{
    Writer w(path, {write(3000, 2)});
    w.act();
    Watched r(path);
    ASSERT_TRUE(r.base) << r.sentence;
    EXPECT_EQ(ato_memcpy(r.base, "x", 1), nullptr);
    EXPECT_EQ(errno, EACCES);
    EXPECT_EQ(ato_deploy(r.base, SIZE), -1);
    EXPECT_EQ(errno, EACCES);
    EXPECT_EQ(ato_ftruncate(r.base, 10), -1);
    EXPECT_EQ(errno, EACCES);
    Bytes seen(SIZE);
    ato_tx *tx = ato_tx_begin(0);
    EXPECT_EQ(ato_tx_memcpy(tx, seen.data(), r.base, SIZE, 0), nullptr);
    EXPECT_EQ(errno, EACCES);

    const std::string other = dir / "other";
    write_file(other, Bytes(SIZE, 0));
    Mapped to(other);
    ASSERT_TRUE(to) << to.sentence;
    EXPECT_EQ(ato_tx_memcpy(tx, to.base, r.base, 100, 0), nullptr);
    EXPECT_EQ(errno, EACCES);
    ato_tx_abort(tx);
    EXPECT_NE(ato_memcpy(to.base, r.base, SIZE), nullptr) << ato_errormsg();
    EXPECT_EQ(to.read(), content);
    ASSERT_NE(ato_memset(to.base, 0, SIZE), nullptr);
    ato_iovec v[] = {{to.base, r.base, 100}, {to.base + 9000, r.base + 9000, 5000}};
    EXPECT_EQ(ato_writev(v, 2, 0), 0) << ato_errormsg();
    EXPECT_EQ(to.read(9000, 5000), Bytes(&content[9000], &content[14000]));
    tx = ato_tx_begin(ATO_TX_READ_COMMITTED);
    EXPECT_NE(ato_tx_memcpy(tx, seen.data(), r.base, SIZE, 0), nullptr) << ato_errormsg();
    EXPECT_EQ(seen, content);
    EXPECT_NE(ato_tx_memcpy(tx, to.base + 3000, r.base + 3000, 6000, 0), nullptr) << ato_errormsg();
    EXPECT_EQ(ato_tx_commit(tx), 0) << ato_errormsg();
    EXPECT_EQ(to.read(3000, 6000), Bytes(&content[3000], &content[9000]));
}

TEST_F(Reader, MayBeInTheProcessOfAWriter)
{
    Watched r(path);
    ASSERT_TRUE(r.base) << r.sentence;
    Mapped m(path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_TRUE(write(3000, 2)(m)) << m.sentence;
    EXPECT_EQ(r.read(), content);
    char byte;
    ato_tx *tx = ato_tx_begin(0);
    EXPECT_EQ(ato_tx_memcpy(tx, &byte, r.base, 1, 0), nullptr);
    EXPECT_EQ(errno, EACCES);
    ato_tx_abort(tx);
    Watched beside(path);
    ASSERT_TRUE(beside.base) << beside.sentence;
    EXPECT_EQ(beside.read(), content);
}

TEST_F(Reader, InAForkedChildIsUnmappedAndMayMapAgain)
{
    Writer w(path, {write(3000, 2)});
    w.act();
    Watched r(path);
    ASSERT_TRUE(r.base) << r.sentence;
    EXPECT_EQ(in_child([&] {
                  EXPECT_EQ(ato_munmap(r.base, SIZE, ATO_UNMAP_FAST), -1);
                  r.base = nullptr;
                  Watched mine(path);
                  EXPECT_TRUE(mine.base) << mine.sentence;
                  EXPECT_EQ(mine.read(), content);
                  return static_cast<int>(HasFailure());
              }),
              0);
    EXPECT_EQ(r.read(), content);
}

// ---- changes between two pages of one read -------

std::function<void()> *between;
unsigned pages_read;

void change_between(enum seam_point point, const void *)
{
    if (point != SEAM_VERSION || ++pages_read != 3)
        return;
    seam_hook = nullptr;
    (*between)();
}

class ReaderDuringAChange : public Reader
{
  protected:
    // Reads n bytes; another process does `what` after two pages are copied.
    Bytes read_around(Watched &r, size_t n, const std::function<bool(Mapped &)> &what)
    {
        int status = -1;
        std::function<void()> act = [&] {
            status = in_child([&] {
                Mapped m(path, opt());
                return m && what(m) ? 0 : 1;
            });
        };
        between = &act;
        pages_read = 0;
        seam_hook = change_between;
        Bytes seen = r.read(0, n);
        seam_hook = nullptr;
        EXPECT_EQ(status, 0);
        return seen;
    }
    static ato_options opt()
    {
        ato_options o = options(ATO_DOMAIN_PMEM, ATO_READ_GATHER);
        o.max_size = 1 << 20;
        return o;
    }
    const Bytes news = pattern(SIZE, 7);
};

// Another process maps the file, writes and makes it plain: the file looks as before.
TEST_F(ReaderDuringAChange, SeesOneMomentOfAFileThatBecomesPlainAgain)
{
    Watched r(path);
    ASSERT_TRUE(r.base) << r.sentence;
    const Bytes seen = read_around(
        r, SIZE, [&](Mapped &m) { return m.write(0, news) && m.unmap(ATO_UNMAP_SPATIAL) == 0; });
    EXPECT_TRUE(seen == content || seen == news);
    EXPECT_EQ(r.read(), news);
}

TEST_F(ReaderDuringAChange, IsRefusedAFileThatIsUnmappedFast)
{
    Watched r(path);
    ASSERT_TRUE(r.base) << r.sentence;
    const Bytes seen = read_around(
        r, SIZE, [&](Mapped &m) { return m.write(0, news) && m.unmap(ATO_UNMAP_FAST) == 0; });
    EXPECT_EQ(seen, Bytes());
    EXPECT_EQ(r.error, EAGAIN) << ato_errormsg();
}

// Pages that no process has touched have no state that could change.
TEST_F(ReaderDuringAChange, SeesOneMomentOfAFileThatIsMadeShorterAndLongerAgain)
{
    Mapped idle(path, opt());
    ASSERT_TRUE(idle) << idle.sentence;
    pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) { // where nothing else is mapped
        idle.base = nullptr;
        Watched r(path);
        const Bytes seen = read_around(r, SIZE, [](Mapped &m) {
            return ato_ftruncate(m.base, 4096) == 0 && ato_ftruncate(m.base, SIZE) == 0;
        });
        Bytes cut = content;
        std::fill(cut.begin() + 4096, cut.end(), static_cast<unsigned char>(0));
        _exit(r.base && (seen == content || seen == cut) && r.read() == cut && !HasFailure() ? 0
                                                                                             : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
}

} // namespace
