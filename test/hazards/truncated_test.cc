// SPDX-License-Identifier: BSD-3-Clause
//
// What if another program makes a file shorter that is mapped? The naive program dies of SIGBUS at its next access behind the
// new end. With the library the call fails with EIO and a sentence, whichever of its four files was cut; or with ESTALE, if the
// cut is noticed before an access. No call returns zeros as if they were bytes of the file, none waits, and no process dies. A program's own action for SIGBUS is kept for all other
// faults.
//
// All mappings are made in children: so that each begins without the handler.
#include "hazards/lab.h"

#include "ato_engine.h"

#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/mman.h>

namespace fs = std::filesystem;
using namespace hazards;

namespace
{

constexpr uint64_t PAGE = 4096, PAGES = 600, SIZE = PAGES * PAGE; // two chunks

enum Target { ORIGINAL, REFLECTION, MANIFEST, SHARED };
const char *const targets[] = {"Original", "Reflection", "Manifest", "Shared"};

std::string shared_of(const std::string &path)
{
    for (const auto &entry : fs::directory_iterator("/dev/shm"))
        if (has(entry.path().filename(), "ato-" + id_of(path)))
            return entry.path();
    return "";
}

std::string file_of(const std::string &path, Target target)
{
    return target == ORIGINAL     ? path
           : target == REFLECTION ? reflection_of(path)
           : target == MANIFEST   ? manifest_of(path)
                                  : shared_of(path);
}

// to: the new size, or less than 0: by so much.
bool cut(const std::string &file, off_t to)
{
    return truncate(file.c_str(), to < 0 ? static_cast<off_t>(size_of(file)) + to : to) == 0;
}

// A mapped file, and what it holds. Each call succeeds, and then did what it should, or fails with one of these and a sentence.
struct Subject {
    Subject(const std::string &path, int domain)
        : content(pattern(SIZE, 1)), m(path, options(domain, ATO_READ_GATHER)), path(path)
    {
    }

    // In each chunk pages with slices in either file, some of them in both, and pages that were not touched. A lane is in use.
    bool begin()
    {
        for (uint64_t page : {0u, 7u, 100u, 511u, 512u, 599u})
            for (unsigned times = 0; times < 1 + page % 2; times++)
                if (!write(page * PAGE + 640, pattern(1000, static_cast<unsigned>(page) + times)))
                    return false;
        return write(300 * PAGE - 100, pattern(5000, 9)) && m.read() == content;
    }

    bool write(uint64_t at, const Bytes &bytes, unsigned flags = 0)
    {
        const bool done = m.write(at, bytes, flags);
        if (done)
            std::copy(bytes.begin(), bytes.end(), content.begin() + static_cast<long>(at));
        return done;
    }

    // Returns whether the call did as it has to. Sets `fails` after EIO.
    bool is_right(bool done)
    {
        const int error = done ? 0 : errno;
        fails |= error == EIO;
        return done || ((error == EIO || error == ESTALE) && *ato_errormsg());
    }

    bool read(uint64_t at, size_t n)
    {
        Bytes bytes(n);
        const bool done = ato_memcpy(bytes.data(), m.base + at, n);
        return is_right(done) && (!done || !memcmp(bytes.data(), &content[at], n));
    }

    bool transaction()
    {
        ato_tx *tx = ato_tx_begin(0);
        const Bytes bytes = pattern(200, 4);
        char before[100];
        bool done = true;
        for (uint64_t page : {599u, 0u, 300u})
            done = done && ato_tx_memcpy(tx, before, m.base + page * PAGE, 100, 0) &&
                   ato_tx_memcpy(tx, m.base + page * PAGE + 100, bytes.data(), 200, 0);
        done = done && ato_tx_commit(tx) == 0;
        if (done)
            for (uint64_t page : {599u, 0u, 300u})
                std::copy(bytes.begin(), bytes.end(),
                          content.begin() + static_cast<long>(page * PAGE + 100));
        const bool right = is_right(done);
        if (!done)
            ato_tx_abort(tx);
        return right;
    }

    static constexpr int CALLS = 12;
    bool call(int which)
    {
        struct ato_stat st = {};
        st.struct_size = sizeof(st);
        switch (which) {
        case 0:
            return read(0, SIZE);
        case 1: {
            bool right = true;
            for (uint64_t page = 0; page < PAGES && right; page++)
                right = read(page * PAGE + 700, 64);
            return right;
        }
        case 2: {
            bool right = true;
            for (uint64_t page = PAGES; page-- > 0 && right;)
                right = read(page * PAGE, PAGE);
            return right;
        }
        case 3:
            return is_right(write(599 * PAGE + 640, pattern(64, 5)));
        case 4:
            return is_right(write(511 * PAGE + 650, pattern(100, 6))); // slices in part
        case 5:
            return is_right(write(598 * PAGE, Bytes(2 * PAGE), ATO_SKIP_EQUAL)); // zeros
        case 6:
            return is_right(write(PAGE * 99, pattern(8 * PAGE, 7)));
        case 7:
            return is_right(write(7 * PAGE, pattern(PAGE, 8), ATO_EAGER));
        case 8:
            return transaction();
        case 9:
            return is_right(ato_deploy(m.base, SIZE) == 0);
        case 10:
            return is_right(ato_stat(m.base, &st) == 0) && (fails || st.size == SIZE);
        default:
            return is_right(ato_set_guard(m.base, 0, "plain", 5) == 0) &&
                   is_right(ato_set_guard(m.base, 0, nullptr, 0) == 0);
        }
    }

    Bytes content;
    Mapped m;
    std::string path;
    bool fails = false;
};

struct Case {
    Target target;
    off_t to;
};

class Truncated : public testing::TestWithParam<Case>
{
  protected:
    Truncated()
    {
        write_file(path, pattern(SIZE, 1));
    }

    TempDir dir;
    std::string path = dir / "file";
};

// Each kind of call as the first one after the cut, then all others.
TEST_P(Truncated, CallsFailWithEioAndReturnNoZeros)
{
    const auto [target, to] = GetParam();
    for (int first = 0; first < Subject::CALLS; first++) {
        SCOPED_TRACE(first);
        const int domain = first % 2 ? ATO_DOMAIN_PROCESS : ATO_DOMAIN_PMEM;
        EXPECT_EQ(in_child([&, target = target, to = to] {
                      const std::string file = dir / std::to_string(first);
                      write_file(file, pattern(SIZE, 1));
                      Subject s(file, domain);
                      if (!s.m || !s.begin())
                          return 1;
                      if (!cut(file_of(file, target), to))
                          return 2;
                      for (int i = 0; i < Subject::CALLS; i++)
                          if (!s.call((first + i) % Subject::CALLS))
                              return 10 + (first + i) % Subject::CALLS;
                      // Once a call has failed, all do.
                      if (s.fails && (!s.call(3) || s.m.write(0, pattern(10, 1)) || errno != EIO))
                          return 3;
                      if ((target == ORIGINAL || (target == REFLECTION && !(sparse() && to < 0))) &&
                          !s.fails) // the end of a sparse one is not in use
                          return 4;
                      // Unmaps by both modes; what another program cut is not made plain.
                      if (s.fails && first % 4 < 2) {
                          if (s.m.unmap(ATO_UNMAP_SPATIAL) == 0 || s.m.sentence.empty())
                              return 5;
                          s.m.base = nullptr; // gone
                      } else if (s.m.unmap(ATO_UNMAP_FAST) < 0) {
                          return 6;
                      }
                      return 0;
                  }),
                  0);
    }
}

// Two processes write and two read, while the file is cut.
TEST_P(Truncated, NoProcessDiesOrHangs)
{
    const auto [target, to] = GetParam();
    void *shared = mmap(nullptr, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    auto is_cut = static_cast<volatile int *>(shared);
    std::vector<std::unique_ptr<Peer>> all;
    for (unsigned i = 0; i < 4; i++) {
        all.push_back(std::make_unique<Peer>([&, i](const std::function<void()> &ready) {
            Mapped m(path, options(ATO_DOMAIN_PROCESS, ATO_READ_GATHER));
            for (uint64_t page = 0; m && page < PAGES; page += 11)
                m.write(page * PAGE, pattern(100, i));
            ready();
            // Until a call fails; or, where nothing needs what was cut, for some rounds.
            for (unsigned after = 0; m && after < 5; after += *is_cut != 0)
                for (uint64_t page = 0; page < PAGES; page += 11)
                    if (i % 2 ? m.read(page * PAGE, 300).empty()
                              : !m.write(page * PAGE - (page ? 50 : 0), pattern(200, after)))
                        return (m.error == EIO || m.error == ESTALE) && !m.sentence.empty()
                                   ? 0
                                   : m.error;
            return m ? 0 : 99;
        }));
        ASSERT_TRUE(all.back()->is_ready());
    }
    for (auto &peer : all)
        peer->go_on();
    EXPECT_TRUE(cut(file_of(path, target), to));
    *is_cut = 1;
    for (auto &peer : all)
        EXPECT_EQ(peer->end(), 0);
    munmap(shared, PAGE);
}

std::string name_of(const testing::TestParamInfo<Case> &c)
{
    return std::string(targets[c.param.target]) + (c.param.to == 0  ? "To0"
                                                   : c.param.to > 0 ? "ToAPage"
                                                                    : "ByAPage");
}

INSTANTIATE_TEST_SUITE_P(Files, Truncated,
                         testing::Values(Case{ORIGINAL, 0}, Case{ORIGINAL, 4096},
                                         Case{ORIGINAL, -4096}, Case{REFLECTION, 0},
                                         Case{REFLECTION, 4096}, Case{REFLECTION, -4096},
                                         Case{MANIFEST, 0}, Case{MANIFEST, 4096},
                                         Case{MANIFEST, -4096}, Case{SHARED, 0}, Case{SHARED, 4096},
                                         Case{SHARED, -4096}),
                         name_of);

// An unmap would give up what only the reflection has, which lives as long as its mappings.
TEST(TruncatedFile, ThatLostItsReflectionSaysWhatToSave)
{
    for (bool is_removed : {false, true})
        EXPECT_EQ(in_child([is_removed] {
                      TempDir dir;
                      const std::string path = dir / "file";
                      write_file(path, pattern(SIZE, 1));
                      Mapped m(path, options(ATO_DOMAIN_PROCESS, ATO_READ_GATHER));
                      if (!m || !m.write(100, pattern(100, 2)) || m.read(0, PAGE).empty() ||
                          (is_removed && !fs::remove(reflection_of(path))) || !cut(path, 0))
                          return 1;
                      if (!m.read(0, PAGE).empty() || m.error != EIO)
                          return 2;
                      return has(m.sentence, is_removed ? "copy what is needed out of the mapping"
                                                        : "Unmap the file in all processes")
                                 ? 0
                                 : 3;
                  }),
                  0);
}

// ---- on a disk, and by a process that may only read -------------------------------------------------

TEST(TruncatedOnADisk, CallsFailWithEio)
{
    if (disk_folder().empty())
        GTEST_SKIP() << "no file system on a disk";
    for (Target target : {ORIGINAL, REFLECTION})
        EXPECT_EQ(in_child([target] {
                      TempDir dir(disk_folder());
                      const std::string path = dir / "file";
                      write_file(path, pattern(SIZE, 1));
                      Subject s(path, ATO_DOMAIN_DISK);
                      if (!s.m || !s.begin() || !cut(file_of(path, target), 4096))
                          return 1;
                      for (int i = 0; i < Subject::CALLS; i++)
                          if (!s.call(i))
                              return 10 + i;
                      return s.fails && s.m.unmap(ATO_UNMAP_FAST) == 0 ? 0 : 2;
                  }),
                  0)
            << targets[target];
}

TEST(TruncatedForAReader, ReadsFailWithASentence)
{
    for (Target target : {ORIGINAL, REFLECTION, MANIFEST, SHARED}) {
        TempDir dir;
        const std::string path = dir / "file";
        write_file(path, pattern(SIZE, 1));
        Peer writer([&](const std::function<void()> &wait) {
            Mapped m(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
            if (!m || !m.write(500 * PAGE, pattern(PAGE * 2, 2)))
                return 1;
            wait();
            return 0;
        });
        ASSERT_TRUE(writer.is_ready());
        EXPECT_EQ(in_child([&] {
                      const Fd fd(path, O_RDONLY);
                      const ato_options o = options();
                      auto at = static_cast<char *>(ato_mmap_opt(SIZE, fd, 0, &o));
                      if (at == MAP_FAILED)
                          return 2;
                      const Bytes before = pattern(PAGE * 2, 2);
                      Bytes bytes(2 * PAGE);
                      if (!ato_memcpy(bytes.data(), at + 500 * PAGE, 2 * PAGE) || bytes != before)
                          return 3;
                      if (!cut(file_of(path, target), 0))
                          return 4;
                      Bytes content = over(pattern(SIZE, 1), 500 * PAGE, before);
                      for (uint64_t page : {500u, 501u, 400u}) {
                          const bool done = ato_memcpy(bytes.data(), at + page * PAGE, PAGE);
                          if (done ? memcmp(bytes.data(), &content[page * PAGE], PAGE) != 0
                                   : !*ato_errormsg())
                              return 5;
                      }
                      return ato_munmap(at, SIZE, ATO_UNMAP_FAST) == 0 ? 0 : 7;
                  }),
                  0)
            << targets[target];
    }
}

// ---- the program's own action ------------------------------------------------------------------------

volatile sig_atomic_t called;
sigjmp_buf back;

void handler(int, siginfo_t *info, void *)
{
    called = info->si_code;
    siglongjmp(back, 1);
}

void plain_handler(int)
{
    called = 1;
    siglongjmp(back, 1);
}

class Action : public testing::Test
{
  protected:
    Action()
    {
        write_file(path, pattern(SIZE, 1));
    }

    // In a child that was made with the action for SIGBUS, a fault in a mapping of the program's own.
    int faults_elsewhere(const std::function<void()> &set, unsigned flags = 0)
    {
        const std::string file = path + std::to_string(++files), other = dir / "other";
        return in_child([&] {
            set();
            write_file(file, pattern(SIZE, 1));
            write_file(other, Bytes(PAGE));
            Mapped m(file, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER, flags));
            volatile char *own = plain_map(other, PAGE);
            if (!m || m.read(0, 100).empty() || !cut(other, 0) || !cut(file, 0))
                return 1;
            // The library's own is handled, and keeps errno.
            errno = EXDEV;
            if (!m.read(0, 100).empty() || m.error != EIO)
                return 2;
            called = 0;
            if (sigsetjmp(back, 1) == 0)
                (void)own[0];
            return called ? 77 : 3;
        });
    }

    static void set(void (*action)(int), int flags = 0)
    {
        struct sigaction a = {};
        a.sa_handler = action;
        a.sa_flags = flags;
        sigaction(SIGBUS, &a, nullptr);
    }

    static void set_info(int flags)
    {
        struct sigaction a = {};
        a.sa_sigaction = handler;
        a.sa_flags = SA_SIGINFO | flags;
        sigaction(SIGBUS, &a, nullptr);
    }

    TempDir dir;
    const std::string path = dir / "file";
    unsigned files = 0;
};

TEST_F(Action, OwnHandlersAreCalledForOtherFaults)
{
    EXPECT_EQ(faults_elsewhere([] { set_info(0); }), 77);
    EXPECT_EQ(faults_elsewhere([] { set_info(SA_NODEFER | SA_RESETHAND); }), 77);
    EXPECT_EQ(faults_elsewhere([] { set(plain_handler); }), 77);
    EXPECT_EQ(faults_elsewhere([] { set(plain_handler, SA_ONSTACK); }), 77);
}

TEST_F(Action, OtherFaultsKillWithoutAHandler)
{
    EXPECT_EQ(faults_elsewhere([] { set(SIG_DFL); }), died_of(SIGBUS));
    EXPECT_EQ(faults_elsewhere([] { set(SIG_IGN); }), died_of(SIGBUS)) << "as the kernel has it";
}

TEST_F(Action, ASignalThatIsSentDoesWhatItDidBefore)
{
    const auto sent = [&](void (*action)(int)) {
        return in_child([&] {
            set(action);
            Mapped m(path);
            called = 0;
            if (sigsetjmp(back, 1) == 0)
                raise(SIGBUS);
            return !m ? 1 : called ? 77 : 0;
        });
    };
    EXPECT_EQ(sent(SIG_DFL), died_of(SIGBUS));
    EXPECT_EQ(sent(SIG_IGN), 0);
    EXPECT_EQ(sent(plain_handler), 77);
}

TEST_F(Action, LoadsOfTheProgramItselfAreItsOwn)
{
    EXPECT_EQ(in_child([&] {
                  set_info(0);
                  Mapped m(path);
                  if (!m || !cut(path, 0))
                      return 1;
                  if (sigsetjmp(back, 1) == 0)
                      (void)*static_cast<volatile char *>(m.base);
                  return called == BUS_ADRERR ? 0 : 2;
              }),
              0);
}

TEST_F(Action, TheHandlerCanBeTurnedOff)
{
    const auto dies = [&](unsigned flags) {
        const std::string file = path + std::to_string(++files);
        return in_child([&] {
            set(SIG_DFL);
            write_file(file, pattern(SIZE, 1));
            Mapped m(file, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER, flags));
            if (!m || m.read(0, 100).empty() || !cut(file, 0))
                return 1;
            return m.read(0, 100).empty() ? 0 : 2;
        });
    };
    EXPECT_EQ(dies(0), 0);
    EXPECT_EQ(dies(ATO_NO_FAULT_HANDLER), died_of(SIGBUS));
    Environment off("ATO_FAULT_HANDLER", "0");
    EXPECT_EQ(dies(0), died_of(SIGBUS));
}

} // namespace
