/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random writes, reads and syncs, with the file unmapped and mapped again now and then, against a plain array.
 */
#include "faulty.h"
#include "rig.h"

#include "support/temp.h"

#include <gtest/gtest.h>

namespace engines_test
{

namespace
{

constexpr uint64_t FILE_BYTES = 512 << 10;

std::string operate(const Case &one, const std::string &folder, unsigned operations, uint64_t seed)
{
    rig::Random random(seed);
    Options options = one.options(folder, FILE_BYTES);
    Bytes model(FILE_BYTES), seen(FILE_BYTES);
    auto engine = one.kind->map(options);
    const auto compare = [&](const char *when) {
        engine->read(seen.data(), 0, FILE_BYTES);
        const std::string wrong = difference(seen, model);
        return wrong.empty() ? "" : std::string(when) + ": " + wrong;
    };
    for (unsigned i = 0; i < operations; i++) {
        const Write w = random_write(random, 0, FILE_BYTES, MAX_WRITE);
        const uint64_t dice = random.below(100);
        std::string wrong;
        if (dice < 55) {
            engine->write(w.offset, SOURCE.data() + w.source, w.bytes);
            apply(w, &model);
        } else if (dice < 80) {
            engine->read(seen.data(), w.offset, w.bytes);
            wrong = difference({seen.begin(), seen.begin() + w.bytes},
                               {model.begin() + static_cast<long>(w.offset),
                                model.begin() + static_cast<long>(w.offset + w.bytes)});
            if (!wrong.empty())
                wrong = "a read of " + std::to_string(w.bytes) + " at " + std::to_string(w.offset) +
                        ": " + wrong;
        } else if (dice < 90) { /* as benchmarks do */
            engine::Operation some[4] = {};
            for (engine::Operation &o : some) {
                const Write next = random_write(random, 0, FILE_BYTES, 8192);
                o.offset = next.offset;
                o.bytes = next.bytes;
                o.source = next.source & 0x7fffffff;
                o.is_read = random.chance(30);
                if (!o.is_read)
                    apply(next, &model);
            }
            engine->run(some, 4, SOURCE.data(), seen.data());
        } else if (dice < 97) {
            engine->sync();
            if (random.chance(20))
                engine->settle();
        } else {
            engine->sync();
            wrong = compare("before it is unmapped");
            engine.reset();
            engine = one.kind->map(options);
            if (wrong.empty())
                wrong = compare("after it was mapped again");
        }
        if (!wrong.empty())
            return "operation " + std::to_string(i) + ": " + wrong;
    }
    return compare("at the end");
}

std::string operate_in_process(const Case &one, unsigned operations)
{
    const support::TempDir folder(place(one.domain));
    return in_process([&] { return operate(one, folder.path(), operations, rig::seed()); });
}

class Model : public testing::TestWithParam<Case>
{
};

TEST_P(Model, HoldsWhatAnArrayWouldHold)
{
    SCOPED_TRACE(rig::replay());
    if (place(GetParam().domain).empty())
        GTEST_SKIP() << "there is no file system on a disk";
    EXPECT_EQ(
        operate_in_process(GetParam(), rig::rounds(GetParam().domain == Domain::disk ? 60 : 500)),
        "");
}

INSTANTIATE_TEST_SUITE_P(Engines, Model,
                         testing::ValuesIn(cases({Domain::pmem, Domain::process, Domain::disk})),
                         [](const auto &info) { return info.param.name(); });

TEST(ModelControl, FindsAnEngineThatLosesTheLastByteOfAPage)
{
    EXPECT_NE(operate_in_process({&SHORT, Unit::write, Domain::pmem}, 800), "");
}

} // namespace

} // namespace engines_test
