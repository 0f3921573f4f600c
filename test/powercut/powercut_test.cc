// SPDX-License-Identifier: BSD-3-Clause
//
// Does everything acknowledged survive a power cut under a real file system? A disk records what the file system writes and
// flushes while processes use libato on it. From the tape, images of what the disk may hold are made, for any moment; each is
// mounted, recovered by libato and read. README.md has the rules.
//
// ATO_TEST_PERCENT=2000 makes twenty times as many images. ATO_TEST_KEEP=FILE keeps the first image that is wrong.
#include "images.h"
#include "story.h"

#include "hazards/lab.h"
#include "model/rig.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <ostream>
#include <stdexcept>

#include <sys/mount.h>

namespace powercut
{

constexpr FileSystem FILE_SYSTEMS[] = {
    {"ext4",
     "mkfs.ext4 -q -F -b 4096 -O ^resize_inode -J size=16"
     " -E lazy_itable_init=0,lazy_journal_init=0,nodiscard",
     "commit=1", 2, 1},
    // xfsprogs refuses disks that are as small, but for tests.
    {"xfs", "TEST_DIR=x TEST_DEV=x QA_CHECK_FS=x mkfs.xfs -q -K -f -d agcount=2", "", 0, 0},
};

static void PrintTo(const FileSystem &fs, std::ostream *out)
{
    *out << fs.name;
}

// Each life is one of another boot, and finds an empty /dev/shm.
class Boots
{
  public:
    Boots()
    {
        next();
        if (mount(file_.c_str(), "/proc/sys/kernel/random/boot_id", nullptr, MS_BIND, nullptr) < 0)
            throw std::runtime_error("cannot cover the boot id");
    }
    ~Boots()
    {
        umount2("/proc/sys/kernel/random/boot_id", MNT_DETACH);
    }
    void next()
    {
        char id[64];
        snprintf(id, sizeof(id), "%08x-0000-4000-8000-000000000000\n", ++number_);
        support::write_at(file_, 0, id, strlen(id));
        for (const std::string &name : support::names_in("/dev/shm"))
            unlink(("/dev/shm/" + name).c_str());
    }

  private:
    support::TempDir dir_{"/tmp"};
    const std::string file_ = dir_ / "boot_id";
    unsigned number_ = 0;
};

struct Result {
    unsigned images = 0, lives = 0, wrong = 0;
    unsigned refused = 0; // by the kernel: a block of the file system's own is torn
    uint64_t events = 0, flushes = 0;
    std::string first; // what is wrong
};

class Trial
{
  public:
    Trial(const FileSystem &fs, const std::vector<Part> &parts, uint64_t seed)
        : disk_(fs), story_(parts, seed), random_(seed)
    {
    }
    ~Trial()
    {
        munmap(sure_, FileSystem::BYTES);
    }
    Trial(const Trial &) = delete;
    Trial &operator=(const Trial &) = delete;

    // Records a story, and then cuts the power `images` times; stops after so many that are `wrong`.
    Result run(unsigned steps, Fault fault, unsigned images, unsigned wrong)
    {
        disk_.format();
        std::copy_n(disk_.bytes, FileSystem::BYTES, sure_);
        boots_.next();
        if (!disk_.mount())
            throw std::runtime_error("cannot mount");
        const std::string failed = story_.play(disk_, steps, fault);
        end_ = disk_.tape->count;
        disk_.unmount();
        if (!failed.empty())
            throw std::runtime_error(failed);
        end_used_ = disk_.tape->used;
        std::copy_n(sure_, FileSystem::BYTES, disk_.bytes);
        for (uint64_t i = story_.begin; i < end_; i++)
            result_.flushes += disk_.tape->events[i].n == 0;
        result_.events = end_ - story_.begin;
        std::vector<uint64_t> moments;
        for (unsigned i = 0; i < images; i++) {
            uint64_t moment = random_.within(story_.begin + 1, end_);
            if (disk_.tape->events[moment - 1].n == 0 && random_.chance(50))
                moment--; // else nothing may be lost then
            moments.push_back(moment);
        }
        std::sort(moments.begin(), moments.end());
        for (uint64_t moment : moments)
            if (result_.wrong < wrong)
                cut(moment);
        return result_;
    }

  private:
    void put(const Sectors &sectors)
    {
        for (const auto &[sector, content] : sectors)
            memcpy(disk_.bytes + sector * SECTOR, content, SECTOR);
    }
    void restore(const Sectors &sectors)
    {
        for (const auto &s : sectors)
            memcpy(disk_.bytes + s.first * SECTOR, sure_ + s.first * SECTOR, SECTOR);
    }
    // Lets the sectors that are certain at the moment be so in all later images.
    void advance(uint64_t until)
    {
        for (const auto &[sector, content] : written(*disk_.tape, done_, until))
            memcpy(sure_ + sector * SECTOR, content, SECTOR);
        put(written(*disk_.tape, done_, until));
        done_ = until;
    }

    void cut(uint64_t moment)
    {
        Tape &tape = *disk_.tape;
        tape.count = end_;
        tape.used = end_used_;
        advance(certain(tape, done_, moment));
        std::string how;
        const Sectors chosen = choose(disk_.fs, tape, done_, moment, random_, &how);
        put(chosen);
        std::vector<Steps> steps = story_.expected(moment), found = steps;
        const auto then = static_cast<Story::Then>(random_.below(Story::THENS));
        const std::string where = "cut at event " + std::to_string(moment) + ", " + how;
        result_.images++;
        live(where, &found, then);
        if (random_.chance(30)) { // the power fails in that life, too
            const uint64_t cut_at = random_.within(end_, tape.count);
            const uint64_t sure = certain(tape, end_, cut_at);
            const Sectors kept = written(tape, end_, sure),
                          more = choose(disk_.fs, tape, sure, cut_at, random_, &how);
            restore(written(tape, end_, tape.count));
            for (const Sectors *sectors : {&chosen, &kept, &more})
                put(*sectors);
            steps = Story::expected(steps, found, then, cut_at);
            live(where + "; then at event " + std::to_string(cut_at - end_) + ", " + how, &steps,
                 Story::MakePlain);
        }
        restore(chosen);
        restore(written(tape, end_, tape.count));
    }

    // One image, which lies on the disk.
    void live(const std::string &where, std::vector<Steps> *steps, Story::Then then)
    {
        boots_.next();
        const bool keeps = getenv("ATO_TEST_KEEP");
        const std::vector<char> image(disk_.bytes, disk_.bytes + (keeps ? FileSystem::BYTES : 0));
        if (!disk_.mount()) {
            result_.refused++;
            return;
        }
        const std::string why = story_.live(disk_, steps, then);
        disk_.unmount();
        result_.lives++;
        if (why.empty())
            return;
        if (keeps && result_.wrong == 0)
            std::ofstream(getenv("ATO_TEST_KEEP"))
                .write(image.data(), static_cast<long>(image.size()));
        if (result_.wrong++ == 0)
            result_.first = where + ": " + why;
    }

    Boots boots_;
    Disk disk_;
    Story story_;
    rig::Random random_;
    Result result_;
    uint64_t end_ = 0, end_used_ = 0; // of the recorded tape
    uint64_t done_ = 0;               // what was written before is in `sure_`
    // The disk without what may be lost. Shared: fork() copies no page of it.
    char *const sure_ = static_cast<char *>(shared_memory(FileSystem::BYTES));
};

class PowerCuts : public testing::TestWithParam<FileSystem>
{
  protected:
    void SetUp() override
    {
        if (geteuid() != 0 || !hazards::alone())
            GTEST_SKIP() << "needs root, and a mount namespace of its own";
        try {
            Disk disk(GetParam());
            disk.format();
            if (!disk.mount())
                GTEST_SKIP() << "the kernel cannot mount " << GetParam().name;
            disk.unmount();
            Boots boots;
        } catch (const std::exception &e) {
            GTEST_SKIP() << "needs FUSE, loop devices, bind mounts and mkfs." << GetParam().name
                         << ": " << e.what();
        }
    }
    void TearDown() override
    {
        umount2("/dev/shm", MNT_DETACH);
    }
    Result run(const std::vector<Part> &parts, unsigned steps, Fault fault, unsigned images,
               unsigned wrong, uint64_t seed = rig::seed())
    {
        const Result r = Trial(GetParam(), parts, seed).run(steps, fault, images, wrong);
        printf(
            "%u images, %u lives, %u wrong; %u refused; of %lu writes and flushes, %lu flushes\n%s",
            r.images, r.lives, r.wrong, r.refused, r.events, r.flushes,
            r.first.empty() ? "" : (r.first + "\n").c_str());
        return r;
    }
    // In every second story some of the parts are relaxed.
    void keep(const std::vector<Part> &parts, const std::vector<size_t> &relaxed, unsigned images)
    {
        SCOPED_TRACE(rig::replay());
        for (unsigned left = rig::rounds(images), turn = 0; left; turn++) {
            std::vector<Part> story = parts;
            for (size_t i : relaxed) // a short run has one story
                story[i].relaxed = ((rig::seed() >> 16) + turn) % 2;
            const unsigned n = std::min(left, 120u);
            const Result r = run(story, 120, Fault::None, n, UINT32_MAX, rig::seed() + turn);
            EXPECT_EQ(r.wrong, 0u) << r.first;
            EXPECT_LE(r.refused, n / 50 + 1) << "images that the kernel cannot mount";
            left -= n;
        }
    }
};

static const std::vector<Part> USES = {
    {Way::File, "file", 0, 12 * 4096 + 500},
    {Way::Region, "regions", 0, 24 * 4096},
    {Way::Region, "regions", 24 * 4096, 20 * 4096},
    {Way::Database, "database", 0, 0},
};
static const std::vector<Part> STORES = {
    {Way::Region, "stores", 0, 8 * 4096},
    {Way::Stores, "stores", 8 * 4096, 8 * 4096 + 500},
};
static const std::vector<Part> FILES(USES.begin(), USES.end() - 1);
static const std::vector<Part> PLAIN = {{Way::Plain, "plain", 0, 24 * 4096}};

TEST_P(PowerCuts, KeepWhatIsAcknowledged)
{
    keep(USES, {0, 2, 3}, 120);
}

TEST_P(PowerCuts, KeepWhatSyncsOfPlainStoresLeft)
{
    keep(STORES, {0}, 60);
}

// The control: the same steps through mmap() and msync().
TEST_P(PowerCuts, TearPlainMappings)
{
    SCOPED_TRACE(rig::replay());
    EXPECT_GT(run(PLAIN, 60, Fault::None, 1000, 1).wrong, 0u);
}

TEST_P(PowerCuts, ShowThatCommitsAreNotSynced)
{
    SCOPED_TRACE(rig::replay());
    for (const std::vector<Part> &parts : {FILES, STORES})
        EXPECT_GT(run(parts, 60, Fault::SyncOfLog, 400, 1).wrong, 0u);
}

TEST_P(PowerCuts, ShowThatCheckpointsDoNotSyncTheFile)
{
    SCOPED_TRACE(rig::replay());
    EXPECT_GT(run(FILES, 60, Fault::SyncOfFile, 200, 1).wrong, 0u);
}

// Else nothing here would mean anything.
TEST_P(PowerCuts, FollowTheFlushesOfTheFileSystem)
{
    Disk disk(GetParam());
    disk.format();
    ASSERT_TRUE(disk.mount());
    {
        support::Fd fd(disk.top + "/file", O_RDWR | O_CREAT);
        const support::Bytes bytes = support::pattern(4096, 1);
        ASSERT_EQ(pwrite(fd, bytes.data(), bytes.size(), 0), 4096);
        ASSERT_EQ(fdatasync(fd), 0);
        uint64_t last = disk.tape->count;
        const Sectors all = written(*disk.tape, 0, last);
        EXPECT_EQ(disk.tape->events[last - 1].n, 0u) << "no flush";
        EXPECT_EQ(std::count_if(
                      all.begin(), all.end(),
                      [&](const auto &s) { return memcmp(s.second, bytes.data(), SECTOR) == 0; }),
                  1);
    }
    disk.unmount();
}

INSTANTIATE_TEST_SUITE_P(Under, PowerCuts, testing::ValuesIn(FILE_SYSTEMS),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace powercut
