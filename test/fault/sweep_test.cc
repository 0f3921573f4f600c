// SPDX-License-Identifier: BSD-3-Clause
//
// Each call of an operation fails once, at each of its places; and from each place on all calls of its kind
// fail. The operation runs once without faults for the list of calls, then once for each of them, in a world
// and a process of its own.
#include "life.h"
#include "model/rig.h"
#include "support/faults.h"
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <map>
#include <set>
#include <string>

#include <unistd.h>

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

// Every place, but no second error, no later turns, no domain with the calls of another one, and no long sweep:
// with sanitizers, where a world takes ten times as long, and in a quick check with the second format.
static bool is_thin()
{
#ifdef WITH_SANITIZER
    return true;
#else
    return sparse() && rig::rounds(100) < 100;
#endif
}

// How many turns of a place in a loop are failed: the first ones.
static unsigned most_turns()
{
    return is_thin() ? 1 : rig::rounds(100) > 100 ? 5 : 2;
}

// Calls that change something, or whose result is needed: the operation fails with them. All others are
// hints, are tried again, or have an alternative.
static bool has_to_be_told(const std::string &name, int error)
{
    static const std::set<std::string> all = {
        "calloc",       "fallocate64", "fchmod",  "fdatasync",   "fdopendir",
        "fremovexattr", "fsetxattr",   "fsync",   "ftruncate64", "getcwd",
        "malloc",       "mkdirat",     "msync",   "pread64",     "pwrite64",
        "readdir64",    "readlink",    "realloc", "statx"};
    return all.count(name) && error != EINTR; // EINTR is tried again
}

// Exceptions: so many of these calls may fail while the operation succeeds.
static unsigned may_be_swallowed(const Case &c, const std::string &name)
{
    const std::string scene = c.scene.name;
    // Errors after the size word do not undo it: a later growth or unmap clears the rest, and a failed medium
    // has poisoned the file.
    if (scene == "Shrink" && (name == "pread64" || name == "msync"))
        return 2;
    // The bytes are committed, or read, and are only deployed afterwards; the file is EIO from then on.
    if ((name == "msync" || name == "fallocate64") &&
        (scene.find("Deploys") != std::string::npos ||
         scene.find("ComesHome") != std::string::npos || scene.find("Eager") != std::string::npos))
        return 5;
    // What was committed cannot be brought to the file. It stays in the log; a failed sync has poisoned the file.
    if ((name == "fdatasync" || name == "pwrite64") &&
        (scene.find("ComesHome") != std::string::npos || scene.find("Eager") != std::string::npos))
        return 2;
    // Only whether another program has cut the log: asked before a record and after its sync, and before the log gets longer.
    if (name == "statx" && c.domain == ATO_DOMAIN_DISK && scene.find("Map") != 0)
        return scene == "WriteThatMakesTheLogLonger" || scene == "WriteOfManyPages" ? 3 : 2;
    // A failed recovery is tried again, as long as one is due.
    if (scene == "MapAfterAKillInACommit" || scene == "MapAfterAKillInALongCommit")
        return 6;
    // The mark of a folder, whose name is then synced by the next birth too, and the stats for it. A folder with a manifest that
    // cannot be read gets no mark.
    if ((name == "fsetxattr" || name == "fgetxattr" || name == "pread64") && scene.find("Map") == 0)
        return 1;
    if (name == "statx" && scene.find("Map") == 0)
        return scene == "MapAfterACutBirth" ? 4 : 3;
    // A manifest in the folder that cannot be read may be that of a restored file: it is looked for thoroughly.
    if (name == "calloc" && scene.find("Map") == 0 && scene != "MapOfACopy")
        return 1;
    // Only whether the original's file system has it.
    if (name == "fallocate64" && scene == "MapWithAFolderThatIsNamed")
        return 2;
    // The source of a copy is looked for at two places.
    if (name == "calloc" && scene == "MapOfACopy")
        return 1;
    // When a file becomes plain, or is recovered, leftovers of interrupted manifests are looked up. They are only litter.
    if (name == "scandirat64" &&
        (c.scene.kind == UNMAPS || scene.find("MapAfter") == 0 || scene == "MapInAStrongerDomain"))
        return 6;
    return 0;
}

class Sweep : public testing::TestWithParam<Case>
{
  protected:
    Told one(const injector::Fault *fault)
    {
        World w("/dev/shm", GetParam().domain, GetParam().scene.bytes);
        return play(GetParam().scene, w, fault);
    }

    // If half of all work is to be done, every second one fails.
    void fail(const Call &call, int error, injector::Reach reach)
    {
        static const unsigned stride = is_thin() ? 1 : rig::stride(),
                              first = rig::first_step(stride);
        if (faults_++ % stride != first)
            return;
        injector::Fault fault = {call, error, reach};
        Told told = one(&fault);
        worlds_++;
        std::string what = describe(call, error, reach) + "\n";
        EXPECT_TRUE(told.failed || GetParam().scene.threads) << what << "was not reached";
        EXPECT_EQ(told.wrong, "") << what << told.sentence;
        if (told.failed && told.succeeded && has_to_be_told(call.name, error))
            swallowed_[call.name]++;
    }

    std::vector<Call> list()
    {
        Told told = one(nullptr);
        EXPECT_TRUE(told.succeeded) << told.sentence;
        EXPECT_EQ(told.wrong, "");
        return told.calls;
    }

    // The calls that must not fail silently, but failed while the operation succeeded.
    void expect_told()
    {
        for (const auto &[name, n] : swallowed_)
            EXPECT_LE(n, may_be_swallowed(GetParam(), name)) << name;
    }

    unsigned faults_ = 0;
    long worlds_ = 0;
    std::map<std::string, unsigned> swallowed_;
};

TEST_P(Sweep, EveryCallFailsOnce)
{
    for (const Call &call : list())
        for (const int *error = call.errors; *error; error++)
            if (call.turn < most_turns() &&
                (error == call.errors || (call.turn == 0 && !is_thin())))
                fail(call, *error, injector::ONCE);
    expect_told();
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
    expect_told();
    std::cout << worlds_ << " worlds\n";
}

// A file in domain disk has a log, unless it was mapped in another domain before.
static bool depends_on_format(const Scene &s, int domain)
{
    return domain != ATO_DOMAIN_DISK || s.name == std::string("MapInAStrongerDomain");
}

static std::vector<Case> cases(bool pmem)
{
    std::vector<Case> all;
    for (auto list : {scenes_of_maps(), scenes_of_moves(), scenes_of_unmaps()})
        for (const Scene &s : list)
            for (int domain : s.domains)
                if (((pmem && !is_thin()) || domain != ATO_DOMAIN_PMEM) &&
                    (depends_on_format(s, domain) || !sparse()))
                    all.push_back({s, domain});
    return all;
}

static std::string name_of(const testing::TestParamInfo<Case> &info)
{
    static const char *const names[] = {"", "Pmem", "Eadr", "Disk", "Process"};
    return info.param.scene.name + std::string(names[info.param.domain]);
}

INSTANTIATE_TEST_SUITE_P(Scenes, Sweep, testing::ValuesIn(cases(true)), name_of);
INSTANTIATE_TEST_SUITE_P(Scenes, LongSweep,
                         testing::ValuesIn(is_thin() ? std::vector<Case>() : cases(false)),
                         name_of);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LongSweep);

} // namespace fault
