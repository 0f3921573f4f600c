// SPDX-License-Identifier: BSD-3-Clause
//
// What if a user who may write a file stores arbitrary values in its page states in shared memory? The user
// may write the file, and so may damage its bytes. But a program that trusts an index or a count found there
// stores to other files, or to its own stack. With the library only that file is affected.
#include "hazards/lab.h"
#include "support/copied.h"
#include "support/faults.h"

#define _Thread_local __thread // C++ has no _Thread_local
extern "C" {
#include "lib/file/undo.h"
#include "reflection/format/lane.h"

#include "ato_engine.h"
}

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/mman.h>

namespace fs = std::filesystem;
using namespace hazards;

namespace
{

// The shared memory of a mapped file, as another process of its users maps it.
class Object
{
  public:
    explicit Object(const std::string &path)
    {
        for (const auto &entry : fs::directory_iterator("/dev/shm"))
            if (has(entry.path().filename(), "ato-" + id_of(path)) &&
                !has(entry.path().filename(), "-s")) // a table of snapshots
                name = entry.path();
        Fd fd(name);
        n = size_of(name);
        base = static_cast<char *>(mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
        header = reinterpret_cast<shared_header *>(base);
        directory = reinterpret_cast<uint32_t *>(base + SHARED_DIRECTORY_AT);
    }
    ~Object()
    {
        munmap(base, n);
    }
    // The heads of the lists, and then the copies.
    char *undo_area()
    {
        struct shared s = {};
        s.capacity = header->capacity;
        s.places_at = header->groups_at + s.capacity * sizeof(page_state);
        return base + shared_undo_at(&s);
    }
    page_state *state(uint64_t page)
    {
        auto groups = reinterpret_cast<page_group *>(base + header->groups_at);
        return &groups[directory[page / GROUP_PAGES] - 1].pages[page % GROUP_PAGES];
    }

    std::string name;
    char *base;
    size_t n;
    shared_header *header;
    uint32_t *directory;
};

class HostileMemory : public testing::Test
{
  protected:
    // Makes every call on the file. Any result is allowed, but no signal and no error of a sanitizer.
    static void do_everything(Mapped &m)
    {
        struct ato_stat st = {};
        st.struct_size = sizeof(st);
        for (uint64_t at : {uint64_t(0), uint64_t(5000), SIZE - 4096}) {
            m.read(at, 100);
            m.write(at, pattern(3000, 3));
        }
        m.read(0, SIZE);
        m.write(10, pattern(3 * 4096, 4));
        ato_deploy(m.base, SIZE);
        ato_stat(m.base, &st);
        ato_msync(m.base, 4096, MS_SYNC);
        ato_set_guard(m.base, 0, "plain", 5);
        ato_set_guard(m.base, 0, nullptr, 0);
    }

    // Runs `what` on one file in a process that has two mapped; returns its exit status: 0 if the other file
    // is intact.
    int harm(const std::function<void(Mapped &)> &what)
    {
        write_file(file, content);
        write_file(other, pattern(SIZE, 2));
        const Bytes mine_now = over(pattern(SIZE, 2), 100, pattern(9000, 7));
        int status = naive([&] {
            Mapped theirs(file, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
            Mapped mine(other, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
            if (!theirs || !mine || !mine.write(100, pattern(9000, 7)))
                return 1;
            theirs.write(100, pattern(9000, 5));
            what(theirs);
            if (mine.read() != mine_now || !mine.write(0, pattern(9000, 8)) ||
                !mine.write(0, Bytes(mine_now.begin(), mine_now.begin() + 9000)))
                return 2;
            return HasFailure() ? 3 : 0;
        });
        fs::remove(file);
        Mapped again(other);
        EXPECT_TRUE(again) << again.sentence;
        EXPECT_EQ(again.read(), mine_now);
        EXPECT_EQ(again.unmap(ATO_UNMAP_SPATIAL), 0) << again.sentence;
        EXPECT_EQ(read_file(other), mine_now);
        fs::remove(other);
        return status;
    }

    static constexpr uint64_t SIZE = 600 * 4096;
    Bytes content = pattern(SIZE, 1);
    TempDir dir;
    const std::string file = dir / "file", other = dir / "other";
};

// An attack on the first file changes neither the second one nor the process.
#define EXPECT_HARMLESS(what) EXPECT_EQ(harm(what), 0)

TEST_F(HostileMemory, GroupBeyondTheObjectIsAStrayPointerNaivelyAndCheckedHere)
{
    write_file(file, content);
    EXPECT_EQ(naive([&] {
                  Mapped m(file);
                  m.read(0, 100);
                  Object object(file);
                  auto groups =
                      reinterpret_cast<page_group *>(object.base + object.header->groups_at);
                  return static_cast<int>(
                      *static_cast<volatile uint64_t *>(&groups[0xfffffffe].pages[0].version));
              }),
              died_of(SIGSEGV))
        << "half a TiB from the object";
    for (uint32_t index : {0xffffffffu, 0x80000000u, 0x08000000u, 0x00100000u, 1u}) {
        SCOPED_TRACE(index);
        int died = harm([&](Mapped &m) {
            Object object(file);
            for (uint64_t group = 0; group < SIZE / 4096 / GROUP_PAGES; group++)
                object.directory[group] = index + static_cast<uint32_t>(group);
            do_everything(m);
        });
        // If the object has no space there: the same as if the attacker had cut it.
        EXPECT_TRUE(died == 0 || (index > 1 && died == died_of(SIGBUS))) << died;
    }
}

TEST_F(HostileMemory, CountOfGroupsBeyondTheObjectIsEnospc)
{
    EXPECT_HARMLESS(([&](Mapped &m) {
        Object object(file);
        object.header->groups_allocated = ~0ull;
        object.header->next_group = 1ull << 40;
        EXPECT_TRUE(m.read(SIZE - 4096, 100).empty());
        EXPECT_EQ(m.error, ENOSPC);
        EXPECT_TRUE(has(m.sentence, "/dev/shm")) << m.sentence;
        object.header->groups_allocated = 0;
        object.header->next_group = ~0ull;
        do_everything(m);
    }));
}

// The attacker adds pages between the count of a commit's pages and their list: the list would go on behind
// the lane, into that of another commit.
TEST_F(HostileMemory, PagesAddedWhileACommitIsListedStayInItsLane)
{
    constexpr uint64_t PAGES = LANE_SMALL_WORDS; // a full small lane
    const uint64_t bytes = (PAGES + 400) * 4096;
    content = Bytes(bytes, 'a');
    EXPECT_HARMLESS(([&](Mapped &m) {
        EXPECT_FALSE(m.read(0, bytes).empty()); // all page states exist
        Object object(file);
        // The first and the last page are written; the pages between are equal.
        Bytes some(bytes, 'a');
        for (uint64_t page = 0; page < PAGES; page++)
            some[page * 4096] = 'b';
        PersistFaults faults;
        bool listing = false;
        faults.before = [&](const PersistCall &c) {
            if (has(c.site, "format/lane.c") && !listing) {
                listing = true;
                for (uint64_t page = PAGES; page < PAGES + 400; page++)
                    object.state(page)->tx = 1;
            }
            return GO_ON;
        };
        EXPECT_TRUE(m.write(0, some, ATO_SKIP_EQUAL)) << m.sentence;
        EXPECT_TRUE(listing);
        faults.before = nullptr;
        const Bytes manifest = read_file(manifest_of(file));
        // The next lane is unused, and still empty.
        const size_t at = manifest_area(0) + LANE_SMALL_BYTES;
        EXPECT_NE(Bytes(&manifest[at - 16], &manifest[at]), Bytes(16, 0)) << "the lane is not full";
        EXPECT_EQ(Bytes(&manifest[at], &manifest[at] + LANE_SMALL_BYTES),
                  Bytes(LANE_SMALL_BYTES, 0));
    }));
}

// The attacker says that a process has the long lane which never was, or is dead.
TEST_F(HostileMemory, InventedUserOfTheLongLaneBlocksNoCommit)
{
    constexpr uint64_t PAGES = LANE_SMALL_WORDS + 10;
    for (uint32_t user : {1u, 0x400u, 0xfffff801u}) { // slots 0, 1023, 0
        SCOPED_TRACE(user);
        EXPECT_HARMLESS([&](Mapped &m) {
            alarm(60); // a hang is an error
            Object object(file);
            object.header->long_lane = user;
            EXPECT_TRUE(m.write(0, pattern(PAGES * 4096, 3))) << m.sentence;
            EXPECT_EQ(object.header->long_lane, 0u);
            EXPECT_TRUE(m.write(0, pattern(9000, 5))) << m.sentence;
            EXPECT_TRUE(m.write(0, pattern(PAGES * 4096, 4))) << m.sentence;
            EXPECT_EQ(m.read(0, PAGES * 4096), pattern(PAGES * 4096, 4));
            alarm(0);
        });
    }
}

TEST_F(HostileMemory, SizeBeyondTheViewsIsEfault)
{
    ato_options o = options(ATO_DOMAIN_PMEM, ATO_READ_GATHER);
    o.max_size = SIZE;
    for (uint64_t size : {~0ull, 1ull << 47, 1ull << 34}) {
        SCOPED_TRACE(size);
        EXPECT_HARMLESS(([&](Mapped &) {
            std::string third = dir / ("third" + std::to_string(size));
            write_file(third, pattern(SIZE, 3));
            Mapped m(third, o);
            ASSERT_TRUE(m) << m.sentence;
            Object object(third);
            object.header->size = size;
            EXPECT_TRUE(m.read(SIZE - 50, 100).empty());
            EXPECT_EQ(m.error, EFAULT);
            do_everything(m);
        }));
    }
}

// Others wait for a shrink until it is done; an invented shrink never ends.
TEST_F(HostileMemory, InventedShrinkBlocksNoCall)
{
    for (uint64_t cut : {~0ull, 0ull, 4096ull}) {
        SCOPED_TRACE(testing::Message() << cut);
        EXPECT_HARMLESS([&](Mapped &m) {
            alarm(60); // a hang is an error
            Object object(file);
            object.header->cut = cut;
            EXPECT_EQ(m.read().size(), SIZE) << m.sentence;
            EXPECT_TRUE(m.write(SIZE - 5000, pattern(900, 3))) << m.sentence;
            object.header->cut = cut;
            EXPECT_TRUE(m.write(4000, pattern(9000, 4))) << m.sentence;
            object.header->cut = cut;
            char byte;
            ato_tx *t = ato_tx_begin(0);
            EXPECT_TRUE(ato_tx_memcpy(t, &byte, m.base + SIZE - 1, 1, 0) &&
                        ato_tx_memcpy(t, m.base, "t", 1, 0) && ato_tx_commit(t) == 0)
                << ato_errormsg();
            object.header->cut = cut;
            EXPECT_EQ(ato_ftruncate(m.base, SIZE - 8192), 0) << ato_errormsg();
            alarm(0);
        });
    }
}

// Numbers of commits, the lists of saved pages, and the table, to which also a user may write that can only read the file.
TEST_F(HostileMemory, NothingOfSnapshotsIsTrusted)
{
    constexpr size_t COPIES = 200, COPY = 64 + 4096, HEADS = UNDO_BUCKETS * 4;
    using Attack = std::function<void(Object &, uint64_t * table, uint64_t value)>;
    const auto set = [](uint64_t shared_undo::*field) -> Attack {
        return [field](Object &o, uint64_t *, uint64_t value) { o.header->undo.*field = value; };
    };
    const std::vector<Attack> attacks = {
        set(&shared_undo::begun),
        set(&shared_undo::shown),
        set(&shared_undo::most),
        set(&shared_undo::made),
        set(&shared_undo::hand),
        [](Object &o, uint64_t *, uint64_t value) {
            o.header->undo.edition = static_cast<uint32_t>(value);
            o.header->undo.showing.holder = 0xfffff803; // slot 2, which nobody has
        },
        [](Object &o, uint64_t *, uint64_t value) {
            o.header->numbered = static_cast<uint32_t>(value);
        },
        [](Object &o, uint64_t *, uint64_t value) {
            memset(o.undo_area(), static_cast<int>(value), HEADS);
        },
        [](Object &o, uint64_t *, uint64_t value) { // each list is a ring, or leaves the area
            auto heads = reinterpret_cast<uint32_t *>(o.undo_area());
            std::fill(heads, heads + UNDO_BUCKETS, 1 + static_cast<uint32_t>(value) % COPIES);
            for (size_t i = 0; i < COPIES; i++) {
                auto copy = reinterpret_cast<uint64_t *>(o.undo_area() + HEADS + i * COPY);
                copy[0] = i % 2 ? value : i, copy[1] = 0, copy[2] = value;
                copy[3] = i % 2 ? 1 : value;
            }
        },
        [](Object &, uint64_t *table, uint64_t value) {
            std::fill(table, table + UNDO_LINES * UNDO_WORDS, value);
        }};
    for (size_t i = 0; i < attacks.size(); i++)
        for (uint64_t value : {~0ull, 0ull, 1ull << 47 | 5, UNDO_BEGINNING | 3}) {
            SCOPED_TRACE(testing::Message() << "attack " << i << ", " << value);
            EXPECT_HARMLESS(([&](Mapped &m) {
                alarm(60); // a hang is an error
                Bytes bytes;
                ato_snapshot *open = ato_snapshot_begin(m.base);
                ASSERT_NE(open, nullptr) << ato_errormsg();
                EXPECT_TRUE(m.write(0, pattern(COPIES * 4096, 3))) << m.sentence;
                Object object(file);
                const Fd fd(object.name + "-s");
                auto table = static_cast<uint64_t *>(
                    mmap(nullptr, UNDO_TABLE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
                ASSERT_NE(table, MAP_FAILED);
                for (int times = 0; times < 2; times++) {
                    attacks[i](object, table, value);
                    do_everything(m);
                    (void)copy_snapshot(open, bytes);
                    (void)copy_now(m.base, bytes);
                    attacks[i](object, table, value);
                    m.write(100, pattern(70 * 4096, 4));
                }
                EXPECT_EQ(ato_snapshot_end(open), 0) << ato_errormsg();
                munmap(table, UNDO_TABLE_BYTES);
                alarm(0);
            }));
        }
}

} // namespace
