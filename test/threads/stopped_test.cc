/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Do readers wait for writers? A writer is stopped in the middle of a call, for as long as the test likes:
 * with its pages reserved, with its bytes copied, with its commit durable and not visible. A reader must get
 * the old bytes while the writer is stopped. If a reader waited, this test would hang.
 *
 * Needs the library with the seam.
 */
#include "gate.h"
#include "path.h"

extern "C" {
#include "reflection/media/persist.h"
}

#include <thread>

namespace threads
{

namespace
{

enum class Stop {
    Reserved, /* all pages are reserved, nothing is copied */
    Copied,   /* new bytes lie in the invalid homes */
    Durable,  /* the commit is durable, memory does not show it */
    Home,     /* within ato_deploy(): bytes are home, nothing is flipped */
};

std::string name_of(Stop s)
{
    static const char *const names[] = {"Reserved", "Copied", "Durable", "Home"};
    return names[static_cast<int>(s)];
}

/* Makes threads pass gates while it exists. */
class Watched
{
  public:
    Watched()
    {
        static const struct persist_ops watched = [] {
            struct persist_ops ops = persist_real;
            ops.fence = [](const struct persist *p) {
                Gate<Stop>::pass(Stop::Copied);
                Gate<Stop>::pass(Stop::Home);
                persist_real.fence(p);
            };
            return ops;
        }();
        persist_ops = &watched;
        __atomic_store_n(
            &seam_hook,
            [](enum seam_point point, const void *) {
                if (point == SEAM_RESERVED)
                    Gate<Stop>::pass(Stop::Reserved);
                else if (point == SEAM_DURABLE)
                    Gate<Stop>::pass(Stop::Durable);
            },
            __ATOMIC_RELEASE);
    }
    ~Watched()
    {
        __atomic_store_n(&seam_hook, nullptr, __ATOMIC_RELEASE);
        persist_ops = &persist_real;
    }
    Watched(const Watched &) = delete;
    Watched &operator=(const Watched &) = delete;
};

using Case = std::tuple<Path, Stop>;

class Stopped : public testing::TestWithParam<Case>
{
};

} // namespace

TEST_P(Stopped, ReadersDoNotWaitForAWriterAndSeeTheOldBytes)
{
    const Path &path = std::get<0>(GetParam());
    Stop where = std::get<1>(GetParam());
    constexpr size_t BYTES = 40000, BEGIN = 777, N = 15000; /* of five pages */
    constexpr unsigned PAGES = 4;
    rig::Folder folder;
    std::string file = folder / "file";
    std::vector<unsigned char> bytes(BYTES);
    rig::Random random(rig::seed());
    random.fill(bytes.data(), BYTES);
    ASSERT_TRUE(rig::write_file(file, bytes));
    rig::Map map(file, BYTES, path.options());
    ASSERT_TRUE(map.base) << ato_errormsg();
    /* Old bytes lie in both homes, so that a lazy reader would like to deploy. */
    random.fill(bytes.data(), BYTES);
    ASSERT_TRUE(ato_memcpy(map.base, bytes.data(), BYTES / 2)) << ato_errormsg();
    ASSERT_TRUE(ato_memcpy(map.base + BYTES / 2, bytes.data() + BYTES / 2, BYTES - BYTES / 2));
    ASSERT_EQ(ato_deploy(map.base + 2 * 4096, 1), 0);
    ASSERT_TRUE(ato_memcpy(map.base + 2 * 4096 + 100, bytes.data() + 2 * 4096 + 100, 1000));

    std::vector<unsigned char> news(N), seen(BYTES);
    random.fill(news.data(), N);
    Watched watched;
    Gate<Stop> gate;
    bool done = false;
    std::thread writer([&] {
        /* RESERVED comes once a page; stop at the last one. */
        gate.arm(where, where == Stop::Reserved ? PAGES : 1);
        done = where == Stop::Home ? ato_deploy(map.base + BEGIN, N) == 0
                                   : ato_memcpy(map.base + BEGIN, news.data(), N) != nullptr;
    });
    gate.wait_until_stopped();

    /* All of it, single pages, single bytes; also from other threads. */
    for (int i = 0; i < 5; i++) {
        ASSERT_TRUE(ato_memcpy(seen.data(), map.base, BYTES)) << ato_errormsg();
        EXPECT_EQ(rig::first_difference(seen.data(), bytes.data(), BYTES), -1);
    }
    for (size_t at = 0; at < BYTES; at += 513) {
        ASSERT_TRUE(ato_memcpy(seen.data() + at, map.base + at, 1)) << ato_errormsg();
        EXPECT_EQ(seen[at], bytes[at]) << at;
    }
    std::thread([&] {
        std::vector<unsigned char> theirs(BYTES);
        EXPECT_TRUE(ato_memcpy(theirs.data(), map.base, BYTES));
        EXPECT_EQ(theirs, bytes);
    }).join();
    /* Writes and deploys of other pages do not wait either. (But what brings a log home waits for all commits in it.) */
    bytes[BYTES - 1] ^= 1;
    EXPECT_TRUE(ato_memcpy(map.base + BYTES - 1, &bytes[BYTES - 1], 1));
    if (path.domain != ATO_DOMAIN_DISK) {
        EXPECT_EQ(ato_deploy(map.base + BYTES - 1, 1), 0);
    }

    gate.let_go();
    writer.join();
    EXPECT_TRUE(done);
    if (where != Stop::Home)
        std::copy(news.begin(), news.end(), bytes.begin() + BEGIN);
    ASSERT_TRUE(ato_memcpy(seen.data(), map.base, BYTES)) << ato_errormsg();
    EXPECT_EQ(rig::first_difference(seen.data(), bytes.data(), BYTES), -1);
}

static std::vector<Case> cases()
{
    std::vector<Case> all;
    for (const Path &path : all_paths())
        for (Stop stop : {Stop::Reserved, Stop::Copied, Stop::Durable, Stop::Home})
            /* After eager writes there is nothing to deploy; a log has no invalid homes. */
            if ((stop != Stop::Home || path.policy != ATO_READ_EAGER) &&
                (path.domain != ATO_DOMAIN_DISK || stop == Stop::Reserved || stop == Stop::Durable))
                all.emplace_back(path, stop);
    return all;
}

INSTANTIATE_TEST_SUITE_P(Writers, Stopped, testing::ValuesIn(cases()), [](const auto &info) {
    return name_of(std::get<0>(info.param)) + name_of(std::get<1>(info.param));
});

} // namespace threads
