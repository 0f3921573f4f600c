// SPDX-License-Identifier: BSD-3-Clause
//
// Threads that make plain stores while others commit them: each commit is a cut, with all that any thread had stored at one moment.
#include "stores_lab.h"

#include <atomic>
#include <thread>

using namespace stores_lab;

namespace
{

class StoresOfThreads : public StoresFile
{
};
IN_ALL_DOMAINS(StoresOfThreads);

constexpr size_t CELLS = 5;

// Where the thread stores its numbers, in this order: in several pages, not in the order of these.
size_t place(unsigned thread, size_t cell)
{
    static const size_t pages[CELLS] = {7, 2, 40, 3, 2};
    return pages[cell] * PAGE + (cell * 3 + thread) * SLICE;
}

// A program's stores race with the commit, which makes them wait: ThreadSanitizer does not know of that.
__attribute__((no_sanitize("thread"))) void store_number(char *base, unsigned thread, size_t cell,
                                                         uint64_t i)
{
    *reinterpret_cast<volatile uint64_t *>(base + place(thread, cell)) = i;
}

TEST_P(StoresOfThreads, AreInACommitUpToOneMoment)
{
    constexpr unsigned THREADS = 2;
    const int commits = GetParam() == ATO_DOMAIN_DISK ? 100 : 600;
    content = Bytes(SIZE);
    write_file(file, content);
    Mapped m(file, plain());
    ASSERT_TRUE(m) << m.sentence;
    std::atomic<bool> stop{false}, started{false};
    int wrong = 0;
    uint64_t ends[THREADS] = {};
    std::vector<std::thread> all;
    for (unsigned t = 0; t < THREADS; t++)
        all.emplace_back([&, t] {
            uint64_t i = 0;
            while (!stop) {
                i++;
                for (size_t cell = 0; cell < CELLS; cell++)
                    store_number(m.base, t, cell, i);
                started = true;
            }
            ends[t] = i;
        });
    uint64_t before[THREADS] = {};
    while (!started) // one of them, at least
        sched_yield();
    for (int left = commits; left > 0; left--) {
        ASSERT_EQ(commit(m, left % 5 ? MS_SYNC : MS_ASYNC), 0) << ato_errormsg();
        const Bytes now = m.read();
        for (unsigned t = 0; t < THREADS; t++) {
            uint64_t n[CELLS];
            for (size_t cell = 0; cell < CELLS; cell++)
                memcpy(&n[cell], &now[place(t, cell)], 8);
            wrong += !std::is_sorted(n, n + CELLS, std::greater<>()) || n[0] - n[CELLS - 1] > 1;
            wrong += n[0] < before[t];
            before[t] = n[0];
        }
    }
    stop = true;
    for (std::thread &each : all)
        each.join();
    EXPECT_EQ(wrong, 0) << "of " << commits << " commits were no cut";
    ASSERT_EQ(commit(m), 0) << ato_errormsg();
    for (unsigned t = 0; t < THREADS; t++)
        for (size_t cell = 0; cell < CELLS; cell++)
            memcpy(&content[place(t, cell)], &ends[t], 8);
    EXPECT_TRUE(m.read() == content) << "a store is lost";
    EXPECT_TRUE(view(m) == content);
}

// The library's handler of SIGSEGV is for its views alone.
TEST_P(StoresOfThreads, LeaveOtherFaultsToTheProgram)
{
    static char *volatile nowhere;
    const auto child = [&](bool handles, bool protects) {
        return in_child([&] {
            if (handles) {
                struct sigaction own = {};
                own.sa_flags = SA_SIGINFO;
                own.sa_sigaction = [](int, siginfo_t *info, void *) {
                    _exit(info->si_addr == nowhere ? 42 : 43);
                };
                sigaction(SIGSEGV, &own, nullptr);
            }
            Mapped m(file, plain());
            if (!m)
                return 1;
            store(m, 0, {1});
            nowhere = protects ? m.base + 3 * PAGE : reinterpret_cast<char *>(PAGE);
            if (protects && mprotect(m.base + 3 * PAGE, PAGE, PROT_NONE) < 0)
                return 2;
            alarm(20); // a fault that repeats without end
            *nowhere = 1;
            return 0;
        });
    };
    EXPECT_EQ(child(true, false), 42);
    EXPECT_EQ(child(true, true), 42);
    const int status = child(false, false); // 1, 66, SIGABRT: of sanitizers
    EXPECT_TRUE(status == 256 + SIGSEGV || status == 256 + SIGABRT || status == 1 || status == 66)
        << status;
}

// Commits, discards and calls of several threads, on parts of one mapping and on two of a file.
TEST_P(StoresOfThreads, AreCommittedByAnyThread)
{
    const unsigned rounds = GetParam() == ATO_DOMAIN_DISK ? 30 : 200;
    Mapped m(file, plain()), second(file, plain()), calls(file, opt());
    ASSERT_TRUE(m && second && calls) << m.sentence << second.sentence << calls.sentence;
    std::atomic<int> wrong{0};
    const auto own =
        [&](unsigned
                t) { // a mapping, and pages that the thread shares with nobody but the caller of ato_memcpy()
            return std::make_pair(t % 2 ? &second : &m, 10 * t * PAGE);
        };
    std::vector<std::thread> all;
    for (unsigned t = 0; t < 4; t++)
        all.emplace_back([&, t] {
            char *at = own(t).first->base + own(t).second;
            for (unsigned i = 1; i <= rounds; i++) {
                memset(at + PAGE - 50, static_cast<int>(i), 100);
                memset(at + 5 * PAGE, static_cast<int>(i), 100);
                wrong += ato_msync(at, 10 * PAGE, i % 4 ? MS_SYNC : MS_ASYNC) != 0;
                memset(at + 5 * PAGE, 0x99, 100);
                wrong += ato_plain_discard(at, 10 * PAGE) != 0;
                wrong += at[5 * PAGE] != static_cast<char>(i);
                wrong += !ato_memset(calls.base + own(t).second + 5 * PAGE + 512,
                                     static_cast<int>(i), 90);
            }
        });
    for (std::thread &each : all)
        each.join();
    EXPECT_EQ(wrong, 0) << ato_errormsg();
    for (unsigned t = 0; t < 4; t++) {
        copy(content, own(t).second + PAGE - 50, Bytes(100, static_cast<uint8_t>(rounds)));
        copy(content, own(t).second + 5 * PAGE, Bytes(100, static_cast<uint8_t>(rounds)));
        copy(content, own(t).second + 5 * PAGE + 512, Bytes(90, static_cast<uint8_t>(rounds)));
    }
    EXPECT_TRUE(m.read() == content);
    ASSERT_EQ(ato_deploy(calls.base, SIZE), 0) << ato_errormsg(); // of relaxed commits
    EXPECT_TRUE(view(m) == content);
    EXPECT_TRUE(view(second) == content);
}

// A commit looks for pages that were stored to, then the file gets shorter, then it holds them.
TEST_P(StoresOfThreads, AreCommittedWhileTheFileIsCut)
{
    const unsigned rounds = GetParam() == ATO_DOMAIN_DISK ? 40 : 300;
    Mapped m(file, plain()), calls(file, opt());
    ASSERT_TRUE(m && calls) << m.sentence << calls.sentence;
    std::atomic<bool> over{false};
    std::thread cuts([&] {
        while (!over)
            for (size_t size : {PAGE, SIZE})
                (void)ato_ftruncate(calls.base, static_cast<off_t>(size));
    });
    for (unsigned i = 0; i < rounds; i++) {
        for (size_t page = 0; page * PAGE < SIZE; page++)
            m.base[page * PAGE] = static_cast<char>(i);
        EXPECT_EQ(commit(m), 0) << ato_errormsg();
    }
    over = true;
    cuts.join();
    EXPECT_EQ(m.read(0, 1).front(), (rounds - 1) & 0xff);
}

} // namespace
