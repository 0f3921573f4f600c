/* SPDX-License-Identifier: BSD-3-Clause */
/* Several threads write, read and sync at once, each in a range of its own. The ranges meet within pages, and within lines; with
 * Unit::sync between pages. */
#include "faulty.h"
#include "rig.h"

#include "support/temp.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>

namespace engines_test
{

namespace
{

constexpr unsigned THREADS = 4;
constexpr uint64_t FILE_BYTES = 256 << 10;

/* Small ranges: most of the time two threads are in one page. The last thread has the rest of the file. */
uint64_t border(Unit unit, unsigned thread)
{
    const uint64_t each = unit == Unit::sync ? 8192 : 4096 + 1237;
    return thread == THREADS ? FILE_BYTES : thread * each;
}

/* What a thread does in its range; `model` is the whole file, and the others' too. */
std::string operate(Engine &engine, Unit unit, unsigned thread, unsigned operations, Bytes *model)
{
    rig::Random random(rig::seed() + thread);
    const uint64_t begin = border(unit, thread), end = border(unit, thread + 1);
    Bytes seen(MAX_WRITE);
    for (unsigned i = 0; i < operations; i++) {
        const Write w = random_write(random, begin, end, 8192);
        if (random.chance(60)) {
            engine.write(w.offset, SOURCE.data() + w.source, w.bytes);
            apply(w, model);
        } else {
            engine.read(seen.data(), w.offset, w.bytes);
            const auto should = model->begin() + static_cast<long>(w.offset);
            const std::string wrong = difference(seen, {should, should + w.bytes});
            if (!wrong.empty())
                return "thread " + std::to_string(thread) + ", operation " + std::to_string(i) +
                       ": a read at " + std::to_string(w.offset) + ": " + wrong;
        }
        if (random.chance(15))
            engine.sync();
    }
    engine.sync();
    return "";
}

std::string operate_at_once(const Case &one, unsigned operations)
{
    const support::TempDir folder(place(one.domain));
    return in_process([&]() -> std::string {
        const Options options = one.options(folder.path(), FILE_BYTES);
        auto engine = one.kind->map(options);
        Bytes model(FILE_BYTES), seen(FILE_BYTES);
        std::string wrong;
        std::mutex lock;
        std::atomic<unsigned> ready{0};
        std::vector<std::thread> threads;
        for (unsigned t = 0; t < THREADS; t++)
            threads.emplace_back([&, t] {
                for (ready++; ready < THREADS;)
                    std::this_thread::yield();
                const std::string mine = operate(*engine, one.unit, t, operations, &model);
                const std::lock_guard<std::mutex> hold(lock);
                wrong += mine;
            });
        for (std::thread &thread : threads)
            thread.join();
        for (int mapped_again = 0; wrong.empty() && mapped_again < 2; mapped_again++) {
            engine->read(seen.data(), 0, FILE_BYTES);
            wrong = difference(seen, model);
            engine.reset();
            engine = one.kind->map(options);
        }
        return wrong;
    });
}

class Threads : public testing::TestWithParam<Case>
{
};

TEST_P(Threads, EachFindsInItsRangeWhatItWrote)
{
    SCOPED_TRACE(rig::replay());
    EXPECT_EQ(operate_at_once(GetParam(), rig::rounds(2000)), "");
}

INSTANTIATE_TEST_SUITE_P(Engines, Threads,
                         testing::ValuesIn(cases({Domain::pmem, Domain::process})),
                         [](const auto &info) { return info.param.name(); });

TEST(ThreadsControl, FindsAnEngineThatWritesTheBytesBeside)
{
    EXPECT_NE(operate_at_once({&NEIGHBOURS, Unit::write, Domain::pmem}, 20000), "");
}

} // namespace

} // namespace engines_test
