/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Do calls of all kinds disturb one another? Threads start and end, map the same two files, wholly or in
 * part, write, read, ask, guard, grow, fail, change the log and unmap, at any time: a thread's writes stay,
 * and the last thread leaves the files plain. ThreadSanitizer checks here the data shared by calls that move
 * no bytes.
 */
#include "chaos.h"
#include "path.h"

#include "ato_engine.h"

#include <atomic>
#include <mutex>
#include <thread>

namespace threads
{

namespace
{

constexpr size_t THREADS = 4, FILES = 2, BYTES = 50001;
/* Of each thread in each file; it reaches over a page's end, so that its write is of two pages. */
constexpr size_t FIELD = 100, FIRST = 4000, APART = 8192 + 64;
constexpr size_t GUARDED = 16;

size_t field_of(size_t thread)
{
    return FIRST + thread * APART;
}

class Together : public OnPath
{
  protected:
    void SetUp() override
    {
        for (size_t f = 0; f < FILES; f++) {
            paths[f] = folder / ("file" + std::to_string(f));
            std::vector<unsigned char> bytes(BYTES, 0);
            ASSERT_TRUE(rig::write_file(paths[f], bytes));
        }
    }
    void fail(const std::string &what)
    {
        std::lock_guard<std::mutex> hold(lock);
        if (sentence.empty())
            sentence = what + ": " + ato_errormsg();
    }
    /* One life of a thread: one mapping, some calls, unmapped by turns. */
    void live(size_t self, uint64_t life);
    void call(size_t self, size_t file, const rig::Map &map, rig::Random &random);
    void write(size_t self, size_t file, const rig::Map &map, rig::Random &random);

    rig::Folder folder;
    std::string paths[FILES];
    unsigned char fields[FILES][THREADS][FIELD] = {}; /* of each thread */
    std::atomic<uint64_t> told{0};                    /* sentences that reached the log */
    std::mutex lock;
    std::string sentence;
};

void Together::write(size_t self, size_t file, const rig::Map &map, rig::Random &random)
{
    unsigned char *mine = fields[file][self], seen[FIELD];
    if (!ato_memcpy(seen, map.base + field_of(self), FIELD))
        return fail("a read");
    if (std::memcmp(seen, mine, FIELD) != 0)
        return fail("a field is not what its thread wrote");
    random.fill(mine, FIELD);
    if (!ato_memcpy_opt(map.base + field_of(self), mine, FIELD, random.chance(30) ? ATO_EAGER : 0))
        return fail("a write");
}

void Together::call(size_t self, size_t file, const rig::Map &map, rig::Random &random)
{
    static const unsigned char plain[GUARDED] = "not plain, yet.";
    switch (random.below(8)) {
    case 0:
        if (map.stat().size < BYTES)
            fail("a size");
        break;
    case 1: { /* another thread may have set a mask at the same place, which stays */
        bool away = random.chance(50);
        if (ato_set_guard(map.base, 0, plain, away ? 0 : GUARDED) < 0)
            fail("a guard");
        break;
    }
    case 2:
        /* The file may be cut again to the fields. */
        if (ato_ftruncate(map.base, static_cast<off_t>(random.chance(50)
                                                           ? map.stat().size + random.below(9000)
                                                           : BYTES + random.below(9000))) < 0)
            fail("growing or shrinking");
        break;
    case 3:
        if (ato_memcpy(map.base + map.n, plain, 1ull << 40))
            fail("a write beyond the end");
        break;
    case 4:
        ato_set_log(
            [](void *arg, int, const char *) { ++*static_cast<std::atomic<uint64_t> *>(arg); },
            &told);
        break;
    case 5:
        if (ato_deploy(map.base, map.n) < 0 || ato_msync(map.base, map.n, MS_SYNC) < 0)
            fail("deploying");
        break;
    default:
        write(self, file, map, random);
    }
}

void Together::live(size_t self, uint64_t life)
{
    rig::Random random(rig::seed() * 47 + life * THREADS + self);
    size_t file = random.below(FILES);
    rig::Map map(paths[file], BYTES, GetParam().options());
    if (!map.base)
        return fail("a mapping");
    rig::Map part(paths[file], 4096, GetParam().options(), 4096);
    if (!part.base)
        return fail("a mapping of a part");
    for (unsigned i = 0; i < 12; i++)
        call(self, file, map, random);
    write(self, file, map, random);
    if (part.unmap(ATO_UNMAP_FAST) < 0 ||
        map.unmap(random.chance(50) ? ATO_UNMAP_FAST : ATO_UNMAP_SPATIAL) < 0)
        fail("an unmapping");
}

} // namespace

TEST_P(Together, CallsOfAllKindsOnTheSameFilesKeepTheWritesOfEachThread)
{
    SCOPED_TRACE(rig::replay());
    std::vector<std::thread> team;
    {
        Chaos chaos;
        for (size_t t = 0; t < THREADS; t++)
            team.emplace_back([this, t] {
                /* Half of the lives in a thread of their own: thread numbers are given back. */
                for (uint64_t life = 0; life < rig::rounds(60); life++)
                    if (life % 2)
                        std::thread([&] { live(t, life); }).join();
                    else
                        live(t, life);
            });
        for (std::thread &t : team)
            t.join();
    }
    ato_set_log(nullptr, nullptr);
    EXPECT_EQ(sentence, "");
    for (size_t f = 0; f < FILES; f++) {
        rig::Map map(paths[f], BYTES, GetParam().options());
        ASSERT_TRUE(map.base) << ato_errormsg();
        ASSERT_EQ(ato_set_guard(map.base, 0, nullptr, 0), 0) << ato_errormsg();
        ASSERT_EQ(map.unmap(ATO_UNMAP_SPATIAL), 0) << ato_errormsg();
        std::vector<unsigned char> bytes = rig::read_file(paths[f]);
        ASSERT_GE(bytes.size(), BYTES);
        for (size_t t = 0; t < THREADS; t++)
            EXPECT_EQ(rig::first_difference(&bytes[field_of(t)], fields[f][t], FIELD), -1)
                << "file " << f << ", thread " << t;
    }
    EXPECT_TRUE(rig::names_in(folder / ".ato").empty());
}

INSTANTIATE_TEST_SUITE_P(Calls, Together, testing::ValuesIn(some_paths()),
                         [](const auto &info) { return name_of(info.param); });

} // namespace threads
