// SPDX-License-Identifier: BSD-3-Clause
//
// Can a program load the library with dlopen(), and close it? Threads that made calls run code of
// the library when they end.
#include "support/temp.h"

#include "ato.h"

#include <gtest/gtest.h>

#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <thread>

namespace
{

using support::Fd;
using support::pattern;
using support::TempDir;
using support::write_file;

TEST(Unload, ThreadThatMadeACallEndsAfterTheLibraryWasClosed)
{
    TempDir dir;
    write_file(dir / "file", pattern(8192, 1));
    Fd fd(dir / "file");
    void *library = dlopen(LIBATO, RTLD_NOW);
    ASSERT_NE(library, nullptr) << dlerror();
    auto map = reinterpret_cast<decltype(&ato_mmap)>(dlsym(library, "ato_mmap"));
    auto unmap = reinterpret_cast<decltype(&ato_munmap)>(dlsym(library, "ato_munmap"));
    auto set = reinterpret_cast<decltype(&ato_memset)>(dlsym(library, "ato_memset"));
    void *at = map(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ASSERT_NE(at, MAP_FAILED);
    pthread_barrier_t called, closed;
    pthread_barrier_init(&called, nullptr, 2);
    pthread_barrier_init(&closed, nullptr, 2);
    void *done = nullptr;
    std::thread caller([&] {
        done = set(at, 7, 100);
        pthread_barrier_wait(&called);
        pthread_barrier_wait(&closed);
    });
    pthread_barrier_wait(&called);
    EXPECT_EQ(unmap(at, 8192, ATO_UNMAP_SPATIAL), 0);
    EXPECT_EQ(dlclose(library), 0);
    pthread_barrier_wait(&closed);
    caller.join();
    EXPECT_EQ(done, at);
}

} // namespace
