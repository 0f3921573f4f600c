// SPDX-License-Identifier: BSD-3-Clause
//
// Each call that an operation makes fails once, at each of its places; and from each place on all of
// its kind. Once without faults for the list of calls, then a world and a process for each of them.
#include "life.h"

#include <gtest/gtest.h>

#include <cstring>
#include <iostream>

namespace fault
{

using namespace support;
using injector::Call;

struct Case {
    Scene scene;
    int domain;
};

void PrintTo(const Case &c, std::ostream *out)
{
    *out << c.scene.name;
}

static std::string describe(const Call &call, int error, injector::Reach reach)
{
    char place[32];
    snprintf(place, sizeof(place), "0x%zx", injector::in_program(call.place));
    return std::string(call.name) + " returning to " + place + ", turn " +
           std::to_string(call.turn) + ", fails with " + strerrorname_np(error) +
           (reach == injector::KIND ? ", and all after it" : "");
}

// Of a place in a loop the first calls. With sanitizers, where a world takes ten times as long, every
// place still, but no second error, no later turns, no domain that makes the calls of another, and none of
// the long sweep.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool THIN = true;
#else
constexpr bool THIN = false;
#endif
constexpr unsigned MOST_TURNS = THIN ? 1 : 5;

class Sweep : public testing::TestWithParam<Case>
{
  protected:
    Told one(const injector::Fault *fault)
    {
        World w("/dev/shm", GetParam().domain, GetParam().scene.bytes);
        return play(GetParam().scene, w, fault);
    }

    void fail(const Call &call, int error, injector::Reach reach)
    {
        injector::Fault fault = {call, error, reach};
        Told told = one(&fault);
        worlds_++;
        std::string what = describe(call, error, reach) + "\n";
        EXPECT_TRUE(told.failed || GetParam().scene.threads) << what << "was not reached";
        EXPECT_EQ(told.wrong, "") << what << told.sentence;
    }

    std::vector<Call> list()
    {
        Told told = one(nullptr);
        EXPECT_TRUE(told.succeeded) << told.sentence;
        EXPECT_EQ(told.wrong, "");
        return told.calls;
    }

    long worlds_ = 0;
};

TEST_P(Sweep, EveryCallFailsOnce)
{
    for (const Call &call : list())
        for (const int *error = call.errors; *error; error++)
            if (call.turn < MOST_TURNS && (error == call.errors || (call.turn == 0 && !THIN)))
                fail(call, *error, injector::ONCE);
    std::cout << worlds_ << " worlds\n";
}

// Domain pmem makes the calls of domain process.
class LongSweep : public Sweep
{
};

TEST_P(LongSweep, EveryCallFailsAndAllAfterIt)
{
    for (const Call &call : list())
        if (call.turn == 0)
            fail(call, call.errors[0], injector::KIND);
    std::cout << worlds_ << " worlds\n";
}

static std::vector<Case> cases(bool pmem)
{
    std::vector<Case> all;
    for (auto list : {scenes_of_maps(), scenes_of_moves(), scenes_of_unmaps()})
        for (const Scene &s : list)
            for (int domain : s.domains)
                if ((pmem && !THIN) || domain != ATO_DOMAIN_PMEM)
                    all.push_back({s, domain});
    return all;
}

static std::string name_of(const testing::TestParamInfo<Case> &info)
{
    static const char *const names[] = {"", "Pmem", "Eadr", "Msync", "Process"};
    return info.param.scene.name + std::string(names[info.param.domain]);
}

INSTANTIATE_TEST_SUITE_P(Scenes, Sweep, testing::ValuesIn(cases(true)), name_of);
INSTANTIATE_TEST_SUITE_P(Scenes, LongSweep,
                         testing::ValuesIn(THIN ? std::vector<Case>() : cases(false)), name_of);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LongSweep);

} // namespace fault
