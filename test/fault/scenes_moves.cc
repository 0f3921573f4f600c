// SPDX-License-Identifier: BSD-3-Clause
//
// Calls on a file that is mapped: writes of all kinds, reads under each policy, and the rest.
#include "world.h"

#include "support/child.h"
#include "support/copied.h"
#include "support/faults.h"

#include "ato_engine.h"

extern "C" {
#include "reflection/pairing/birth.h"
}

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

namespace fault
{

using namespace support;

static const std::vector<int> EVERY = {ATO_DOMAIN_PROCESS, ATO_DOMAIN_PMEM, ATO_DOMAIN_DISK};
static const std::vector<int> TWO = {ATO_DOMAIN_PROCESS, ATO_DOMAIN_DISK};
static const std::vector<int> REFLECTED = {ATO_DOMAIN_PROCESS, ATO_DOMAIN_PMEM};

static constexpr size_t BYTES = 8 * 4096 + 100, GROWN = 11 * 4096 + 300, SHRUNK = 3 * 4096 + 70,
                        MANY = 48 * 4096, LARGE = 250 * 4096; // more than a lane of a manifest

// The range has slices in both homes, and this process has not read it yet.
static void stored_to(World &w)
{
    Bytes one = w.news(4096 + 100, 700, 2), two = w.news(5 * 4096 - 60, 60, 3);
    in_child([&] {
        return w.map() && w.write(4096 + 100, one) && w.write(5 * 4096 - 60, two) &&
                       w.unmap(ATO_UNMAP_FAST)
                   ? 0
                   : 1;
    });
    w.before = w.after;
}

static void sparse(World &w)
{
    if (truncate(w.file.c_str(), 0) < 0 || truncate(w.file.c_str(), BYTES) < 0)
        throw std::runtime_error("truncate");
    w.before = w.after = Bytes(BYTES);
}

static bool map(World &w)
{
    return w.map();
}

static bool map_for_transactions(World &w)
{
    w.options.flags = 0;
    return w.map();
}

static bool map_to_read_lazily(World &w)
{
    w.options.read_policy = ATO_READ_LAZY;
    return w.map();
}

static bool map_to_write_eagerly(World &w)
{
    w.options.read_policy = ATO_READ_EAGER;
    return w.map();
}

// A write of the scene: changes `after`, too.
static std::function<bool(World &)> writes(size_t at, size_t n, unsigned seed, unsigned flags = 0)
{
    return [=](World &w) { return w.write(at, pattern(n, seed), flags); };
}

// Sets `after` before the operation.
static std::function<bool(World &)> then(bool (*ready)(World &),
                                         const std::function<void(World &)> &expect)
{
    return [=](World &w) {
        if (!ready(w))
            return false;
        expect(w);
        return true;
    };
}

static std::function<bool(World &)> to_write(bool (*ready)(World &), size_t at, size_t n,
                                             unsigned seed)
{
    return then(ready, [=](World &w) { w.news(at, n, seed); });
}

// One write before, so that the next one goes the other way, and the lanes have their space.
static bool map_and_write(World &w)
{
    bool ok = w.map() && w.write(4096 - 100, w.news(4096 - 100, 9000, 5));
    w.before = w.after;
    return ok;
}

// More pages than a small lane takes.
static constexpr size_t LONG = 249 * 4096;

// The long lane is there.
static bool map_and_write_all(World &w)
{
    bool ok = w.map() && w.write(100, w.news(100, LONG, 5));
    w.before = w.after;
    return ok;
}

// The log is as long as it gets by itself, and one more such write does not fit.
static bool map_and_fill_the_log(World &w)
{
    birth_ring_bytes = 16 << 20;
    bool ok = map_and_write_all(w);
    for (size_t used = LONG; ok && used + 2 * LONG < birth_ring_bytes; used += LONG)
        ok = w.write(100, Bytes(w.before.begin() + 100, w.before.begin() + 100 + LONG));
    return ok;
}

// What a dead process committed is finished first. If it cannot be told that it is dead, the wait ends soon.
static bool map_where_another_dies(World &w)
{
    setenv("ATO_WAIT_MS", "1000", 1);
    if (!w.map())
        return false;
    killed_in_a_write(w, 4096 - 50, 2 * 4096, 3);
    return true;
}

// One page of two has these bytes already.
static bool map_and_write_half(World &w)
{
    bool ok = w.map() && w.write(2 * 4096, w.news(2 * 4096, 4096, 6));
    w.before = w.after;
    return ok;
}

static Scene write(const char *name, size_t bytes, const std::vector<int> &domains,
                   bool (*ready)(World &), size_t at, size_t n, unsigned flags = 0)
{
    return {name, MOVES, bytes, domains, {}, to_write(ready, at, n, 20), writes(at, n, 20, flags),
            {}};
}

static bool is_plain(World &w)
{
    return read_file(w.file) == w.after;
}

static bool read_all(World &w)
{
    w.got = Bytes(w.after.size());
    return ato_memcpy(w.got.data(), w.base, w.got.size());
}

static bool read_some(World &w)
{
    w.got = Bytes(w.after.size());
    for (size_t at = 0; at < w.got.size(); at += 1000)
        if (!ato_memcpy(w.got.data() + at, w.base + at, std::min<size_t>(1000, w.got.size() - at)))
            return false;
    return true;
}

static bool read_right(World &w)
{
    return w.got == w.after;
}

static bool reclaim(World &w)
{
    return ato_reclaim(w.base, w.after.size()) == 0;
}

static bool take_a_snapshot(World &w)
{
    return copy_now(w.base, w.got) == static_cast<off_t>(w.after.size());
}

// Half of the pages with slices in R are deployed.
static bool map_to_reclaim(World &w)
{
    return w.map() && ato_deploy(w.base, 4 * 4096) == 0;
}

static bool deploy(World &w)
{
    return ato_deploy(w.base, w.after.size()) == 0;
}

static bool grow(World &w)
{
    return ato_ftruncate(w.base, GROWN) == 0;
}

static bool shrink(World &w)
{
    return ato_ftruncate(w.base, SHRUNK) == 0;
}

static bool is_shorter(World &w)
{
    struct ato_stat st = {};
    st.struct_size = sizeof(st);
    return ato_stat(w.base, &st) == 0 && st.size == SHRUNK;
}

static bool is_longer(World &w)
{
    return size_of(w.file) == GROWN;
}

static bool map_to_grow(World &w)
{
    bool ok = w.map() && w.write(BYTES - 30, w.news(BYTES - 30, 30, 5));
    w.before = w.after;
    w.after.resize(GROWN);
    return ok;
}

static bool map_to_shrink(World &w)
{
    bool ok = w.map() && w.write(100, w.news(100, SHRUNK + 4096, 5));
    w.before = w.after;
    w.after.resize(SHRUNK);
    return ok;
}

// Over the old end, and beyond.
static bool shrunk_to_grow(World &w)
{
    bool ok = map_to_shrink(w) && shrink(w);
    w.before = w.after;
    w.after.resize(GROWN);
    return ok;
}

static bool set_guard(World &w)
{
    return ato_set_guard(w.base, 3000, &w.after[3000], 12) == 0;
}

static bool stat(World &w)
{
    w.said = {};
    w.said.struct_size = sizeof(w.said);
    return ato_stat(w.base, &w.said) == 0;
}

static bool has_guard(World &w)
{
    return stat(w) && w.said.guard_bytes == 12 && w.said.guard_offset == 3000 &&
           memcmp(w.said.guard_plain, &w.after[3000], 12) == 0;
}

static bool was_said(World &w)
{
    const bool logged = w.options.domain == ATO_DOMAIN_DISK;
    return w.said.size == BYTES && (w.said.slices_in_reflection > 10) == !logged;
}

static bool share(World &w)
{
    void *memory = ato_shared(*w.descriptor, ATO_SHARED_MAX);
    return memory && ato_shared_end(*w.descriptor, memory, ATO_SHARED_MAX, true) == 0;
}

static bool copy_here(World &w)
{
    return ato_memcpy(w.base + 4096 + 77, w.other + 50, 9000);
}

static void expect_copy(World &w)
{
    std::copy_n(w.near.begin() + 50, 9000, w.after.begin() + 4096 + 77);
}

static bool copy_within(World &w)
{
    return ato_memcpy(w.base + 3000, w.base + 5000, 9000);
}

static void expect_move(World &w)
{
    std::copy_n(w.before.begin() + 5000, 9000, w.after.begin() + 3000);
}

static bool fill(World &w)
{
    return ato_memset(w.base + 4000, 'x', 5000);
}

static void expect_filled(World &w)
{
    std::fill_n(w.after.begin() + 4000, 5000, 'x');
}

// If this CPU has no hardware transactions, they are simulated.
static bool write_by_transaction(World &w)
{
    PersistFaults faults;
    faults.rtm = 1;
    return w.write(4096 - 300, pattern(9000, 20));
}

static bool write_many_by_transaction(World &w)
{
    PersistFaults faults;
    faults.rtm = 1;
    return w.write(100, pattern(40 * 4096, 20));
}

static Scene reads(const char *name, const std::vector<int> &domains, bool (*ready)(World &),
                   bool (*act)(World &))
{
    return {name, MOVES, BYTES, domains, stored_to, ready, act, read_right};
}

std::vector<Scene> scenes_of_moves()
{
    std::vector<Scene> all = {
        write("WriteInAPage", BYTES, EVERY, map, 2 * 4096 + 10, 777),
        write("WriteInAPageBack", BYTES, REFLECTED, map_and_write, 4096 + 70, 777),
        write("WriteThatMakesTheLongLane", LARGE, {ATO_DOMAIN_PROCESS}, map, 100, LONG),
        write("WriteByTheLongLane", LARGE, {ATO_DOMAIN_PROCESS}, map_and_write_all, 100, LONG),
        write("WriteThatMakesTheLogLonger", LARGE, {ATO_DOMAIN_DISK}, map_and_write, 100, LONG),
        write("WriteThatEmptiesTheLog", LARGE, {ATO_DOMAIN_DISK}, map_and_fill_the_log, 100, LONG),
        write("WriteOfTheFirstTwoPages", BYTES, EVERY, map, 4096 - 300, 9000),
        write("WriteByTheManifest", BYTES, REFLECTED, map_and_write, 4096 - 300, 9000),
        write("WriteOfManyPages", MANY, EVERY, map, 100, 40 * 4096),
        write("WriteThatComesHome", BYTES, EVERY, map_and_write, 4096 - 300, 9000, ATO_EAGER),
        write("WriteOfOnePageThatComesHome", BYTES, TWO, map, 4096 + 30, 1000, ATO_EAGER),
        write("WriteUnderThePolicyEager", BYTES, TWO, map_to_write_eagerly, 4096 - 300, 9000),
        write("WriteAfterADeath", BYTES, {ATO_DOMAIN_DISK}, map_where_another_dies, 4096 + 10, 777),
        {"WriteOfWhatIsEqualInPart",
         MOVES,
         BYTES,
         TWO,
         {},
         then(map_and_write_half, [](World &w) { w.news(4096, 4096, 20); }),
         [](World &w) {
             Bytes whole = pattern(4096, 20), half = pattern(4096, 6);
             whole.insert(whole.end(), half.begin(), half.end());
             return w.write(4096, whole, ATO_SKIP_EQUAL);
         },
         {}},
        write("WriteOfNewPagesThatSkipsEqualOnes", BYTES, {ATO_DOMAIN_PROCESS}, map, 4096 - 300,
              9000, ATO_SKIP_EQUAL),
        {"WriteToAHole",
         MOVES,
         BYTES,
         TWO,
         sparse,
         to_write(map, 4096 - 300, 9000, 20),
         writes(4096 - 300, 9000, 20),
         {}},
        {"WriteToAHoleBack",
         MOVES,
         BYTES,
         {ATO_DOMAIN_PROCESS},
         sparse,
         to_write(map_and_write, 4096 + 70, 777, 20),
         writes(4096 + 70, 777, 20),
         {}},
        // Its page has space only in the reflection.
        {"WriteToAHoleThatComesHome",
         MOVES,
         BYTES,
         TWO,
         sparse,
         to_write(map_and_write, 3 * 4096 + 1000, 777, 20),
         writes(3 * 4096 + 1000, 777, 20, ATO_EAGER),
         {}},
        {"WriteByAHardwareTransaction",
         MOVES,
         BYTES,
         {ATO_DOMAIN_PROCESS},
         {},
         to_write(map_for_transactions, 4096 - 300, 9000, 20),
         write_by_transaction,
         {}},
        {"WriteOfManyPagesByAHardwareTransaction",
         MOVES,
         MANY,
         {ATO_DOMAIN_PROCESS},
         {},
         to_write(map_for_transactions, 100, 40 * 4096, 20),
         write_many_by_transaction,
         {}},
        {"Memset", MOVES, BYTES, {ATO_DOMAIN_PROCESS}, {}, then(map, expect_filled), fill, {}},
        {"CopyFromAnotherFile", MOVES, BYTES, TWO, {}, then(map, expect_copy), copy_here, {}},
        {"CopyWithinAFile",
         MOVES,
         BYTES,
         {ATO_DOMAIN_DISK},
         {},
         then(map, expect_move),
         copy_within,
         {}},
        reads("ReadThatGathers", TWO, map, read_all),
        reads("ReadOfPiecesThatGathers", TWO, map, read_some),
        reads("ReadThatDeploys", {ATO_DOMAIN_PROCESS}, map_to_read_lazily, read_all),
        reads("ReadOfPiecesThatDeploys", {ATO_DOMAIN_PROCESS}, map_to_read_lazily, read_some),
        {"ReadOfAHole", MOVES, BYTES, TWO, sparse, map, read_all, read_right},
        reads("Snapshot", TWO, map, take_a_snapshot),
        {"SnapshotOfAHole", MOVES, BYTES, TWO, sparse, map, take_a_snapshot, read_right},
        {"Deploy", MOVES, BYTES, EVERY, stored_to, map, deploy, is_plain},
        {"DeployOfHoles", MOVES, BYTES, TWO, sparse, map_and_write, deploy, is_plain},
        {"Reclaim", MOVES, BYTES, REFLECTED, stored_to, map_to_reclaim, reclaim, {}},
        {"Growth", MOVES, BYTES, EVERY, {}, map_to_grow, grow, is_longer},
        {"GrowthOfAHole", MOVES, BYTES, TWO, sparse, map_to_grow, grow, is_longer},
        {"Shrink", MOVES, BYTES, EVERY, {}, map_to_shrink, shrink, is_shorter},
        {"GrowthAfterAShrink", MOVES, BYTES, EVERY, {}, shrunk_to_grow, grow, is_longer},
        {"Guard", MOVES, BYTES, TWO, {}, map, set_guard, has_guard},
        {"Stat", MOVES, BYTES, TWO, stored_to, map, stat, was_said},
        {"Shared", MOVES, BYTES, {ATO_DOMAIN_PROCESS}, {}, map, share, {}},
    };
    return all;
}

} // namespace fault
