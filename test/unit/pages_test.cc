/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Is a sleeping waiter woken? The critical moment lies between the last check of a waiter and its
 * sleep in the kernel: the test replaces the system call, and acts before it.
 */
#include <gtest/gtest.h>

extern "C" {
#include "use_pages.h"
}

#include <cerrno>
#include <cstdarg>
#include <functional>
#include <linux/futex.h>
#include <sys/syscall.h>

namespace
{

/* Called just before a FUTEX_WAIT, and after it with its result: 0 or an errno. */
std::function<void()> before_sleep;
std::function<void(int)> after_sleep;

long ask_kernel(long number, const long a[6])
{
    long result;
    register long fourth asm("r10") = a[3];
    register long fifth asm("r8") = a[4];
    register long sixth asm("r9") = a[5];
    asm volatile("syscall"
                 : "=a"(result)
                 : "a"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(fourth), "r"(fifth), "r"(sixth)
                 : "rcx", "r11", "memory");
    return result;
}

} // namespace

/* Replaces the function of libc, also for the library. It reads six arguments even if the caller
 * passes fewer, which AddressSanitizer must not report. */
extern "C" __attribute__((no_sanitize("address"))) long syscall(long number, ...) noexcept
{
    long a[6];
    va_list rest;
    va_start(rest, number);
    for (long &argument : a)
        argument = va_arg(rest, long);
    va_end(rest);
    bool sleep = number == SYS_futex && a[1] == FUTEX_WAIT && before_sleep;
    if (sleep)
        before_sleep();
    long result = ask_kernel(number, a);
    if (sleep)
        after_sleep(result < 0 ? static_cast<int>(-result) : 0);
    if (result >= 0)
        return result;
    errno = static_cast<int>(-result);
    return -1;
}

namespace
{

constexpr uint32_t Us = 1; /* all threads of a process look alike */

/* The waiting thread also makes the calls of two other threads of its process. */
TEST(Pages, WakeUpIsNotMissedIfThePageIsReservedAgainBeforeTheSleep)
{
    struct page_state s = {};
    int answer = -1;
    ASSERT_TRUE(use_pages_try_reserve(Us, &s));
    before_sleep = [&] {
        use_pages_release(&s); // clears the note, wakes no thread: none sleeps yet
        ASSERT_TRUE(use_pages_try_reserve(Us, &s));
    };
    after_sleep = [&](int said) {
        answer = said;
        before_sleep = nullptr;
        use_pages_release(&s);
    };
    use_pages_reserve(Us, &s);
    EXPECT_EQ(answer, EAGAIN); // not ETIMEDOUT, after a sleep that no thread ends
    EXPECT_EQ(s.holder, Us);
    use_pages_release(&s);
}

/* The same without the second reservation: the waiter sleeps, and does not spin. */
TEST(Pages, WaiterSleepsUntilItsTimeLimitWhileThePageIsHeld)
{
    struct page_state s = {};
    int answer = -1;
    ASSERT_TRUE(use_pages_try_reserve(Us, &s));
    before_sleep = [] {};
    after_sleep = [&](int said) {
        answer = said;
        before_sleep = nullptr;
        use_pages_release(&s);
    };
    use_pages_reserve(Us, &s);
    EXPECT_EQ(answer, ETIMEDOUT);
    use_pages_release(&s);
}

} // namespace
