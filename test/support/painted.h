// SPDX-License-Identifier: BSD-3-Clause
//
// How much stack does a call take? It runs on a thread whose stack is painted, and what it has touched is measured.
#ifndef ATO_TEST_SUPPORT_PAINTED_H
#define ATO_TEST_SUPPORT_PAINTED_H

#include <cstring>
#include <functional>

#include <pthread.h>
#include <sys/mman.h>

extern "C" void __asan_init() __attribute__((weak));
extern "C" void __tsan_init() __attribute__((weak));

namespace support
{

// With a sanitizer frames are larger.
inline bool measures_stack()
{
    return !__asan_init && !__tsan_init;
}

class PaintedStack
{
  public:
    PaintedStack()
        : base_(static_cast<char *>(mmap(nullptr, SIZE, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0)))
    {
    }
    ~PaintedStack()
    {
        munmap(base_, SIZE);
    }
    PaintedStack(const PaintedStack &) = delete;
    PaintedStack &operator=(const PaintedStack &) = delete;

    // Bytes of stack that the call takes, below the frame that makes it.
    size_t taken_by(const std::function<void()> &call)
    {
        call_ = &call;
        pthread_attr_t attr;
        pthread_t thread;
        pthread_attr_init(&attr);
        pthread_attr_setstack(&attr, base_, SIZE);
        pthread_create(&thread, &attr, run, this);
        pthread_join(thread, nullptr);
        pthread_attr_destroy(&attr);
        return taken_;
    }

  private:
    static constexpr size_t SIZE = 1 << 20;
    static constexpr char PAINT = 0x5a;

    static void *run(void *own)
    {
        static_cast<PaintedStack *>(own)->measure();
        return nullptr;
    }

    __attribute__((noinline)) void measure()
    {
        auto here = static_cast<char *>(__builtin_frame_address(0));
        char *end = here - 1024; // what memset() itself may need
        memset(base_, PAINT, static_cast<size_t>(end - base_));
        (*call_)();
        char *at = base_;
        while (at < end && *at == PAINT)
            at++;
        taken_ = static_cast<size_t>(here - at);
    }

    char *base_;
    const std::function<void()> *call_ = nullptr;
    size_t taken_ = 0;
};

} // namespace support

#endif
