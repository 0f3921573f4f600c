// SPDX-License-Identifier: BSD-3-Clause
#include "steps.h"

#include "model/rig.h"
#include "sqlite/sql.h"
#include "support/child.h"

extern "C" {
#include "reflection/media/fsops.h"
#include "reflection/pairing/birth.h"
}

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>

#include <sys/prctl.h>
#include <sys/wait.h>

namespace powercut
{

using namespace support;

struct Board {
    struct {
        std::atomic<unsigned> begun, done, told; // steps
        uint64_t begun_at[MOST_STEPS], done_at[MOST_STEPS],
            told_at[MOST_STEPS]; // length of the tape
    } parts[MOST_PARTS];
    Steps found[MOST_PARTS]; // by a life
    char why[600];
};

// By mmap() and msync(): the control.
static void act_plainly(char *file, size_t bytes, const Step &step)
{
    for (size_t r = 0; r < step.ranges.size(); r++)
        memcpy(file + step.ranges[r].first, step.bytes(r).data(), step.ranges[r].second);
    must(msync(file, bytes, MS_SYNC) == 0, "msync");
}

// ---- steps of a database ------------------------------------------------------------------------

static const char TABLES[] =
    "CREATE TABLE k(id INTEGER PRIMARY KEY, n, pad); CREATE TABLE l(id INTEGER PRIMARY KEY, pad);"
    "WITH c(x) AS (VALUES(1) UNION ALL SELECT x + 1 FROM c WHERE x < 12)"
    "INSERT INTO k SELECT x, 0, hex(randomblob(350)) FROM c";

static void run(const sql::Db &db, const std::string &statements)
{
    if (db.run(statements) != SQLITE_OK)
        throw std::runtime_error(statements + ": " + db.error());
}

// After step n each row of k has n, and the last 20 steps have a row in l each. The small cache is written before the commit.
static void act_in(sql::Db &db, const std::string &path, unsigned step, bool relaxed)
{
    if (step % 16 == 0) {
        db.close();
        db = sql::Db(path);
        run(db, step % 32 ? "VACUUM" : "PRAGMA cache_size=4");
    }
    if (relaxed)
        run(db, "PRAGMA synchronous=normal");
    const std::string n = std::to_string(step);
    run(db, "BEGIN IMMEDIATE; UPDATE k SET pad = hex(randomblob(350)), n = " + n);
    run(db, "INSERT INTO l VALUES(" + n + ", hex(randomblob(200)))");
    run(db, "DELETE FROM l WHERE id <= " + n + " - 20; COMMIT");
}

static unsigned steps_in(const sql::Db &db)
{
    const std::string whole = db.text("PRAGMA integrity_check");
    const int64_t n = db.number("SELECT min(n) FROM k");
    const bool agree = db.number("SELECT count(*) FROM k") == 12 &&
                       db.number("SELECT max(n) FROM k") == n &&
                       db.number("SELECT count(*) FROM l") == std::min<int64_t>(n, 20) &&
                       db.number("SELECT ifnull(max(id), 0) FROM l") == n;
    if (whole != "ok" || !agree)
        throw std::runtime_error("the database is damaged: " + whole + ", n " + std::to_string(n) +
                                 " to " + db.text("SELECT max(n) FROM k"));
    return static_cast<unsigned>(n);
}

// ---- the play -----------------------------------------------------------------------------------

static Fault fault_is;

static int fdatasync_but(int fd)
{
    char path[4096] = "";
    if (readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof(path) - 1) < 0)
        return -1;
    const bool is_log = strstr(path, "/.ato/") != nullptr;
    return is_log == (fault_is == Fault::SyncOfLog) ? 0 : fsops_real.fdatasync(fd);
}

static void leave_out(Fault fault)
{
    static struct fsops table = fsops_real;
    fault_is = fault;
    if (fault == Fault::None)
        return;
    table.fdatasync = fdatasync_but;
    ::fsops = &table;
}

// A process that dies with its parent. It keeps the first reason to fail of all.
static pid_t start(Board &board, const std::function<void()> &what)
{
    fflush(nullptr);
    const pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(120);
    birth_ring_bytes = 8 << 10;             // so that logs are used up
    setenv("ATO_RELAXED_MS", "3600000", 1); // only steps make durable what is relaxed
    try {
        what();
    } catch (const std::exception &e) {
        if (!board.why[0])
            snprintf(board.why, sizeof(board.why), "%s", e.what());
        _exit(1);
    }
    _exit(0);
}

static std::string end_of(pid_t pid, const Board &board)
{
    int status = 0;
    waitpid(pid, &status, 0);
    if (WIFSIGNALED(status))
        return "a process died of signal " + std::to_string(WTERMSIG(status));
    return status ? board.why : "";
}

// What the kernel does at any time: it begins to write back a file, without a flush; now and then all is synced.
[[noreturn]] static void write_back(const std::string &top, uint64_t seed)
{
    rig::Random random(seed);
    for (std::error_code gone;;)
        for (std::filesystem::recursive_directory_iterator at(top, gone), end; at != end;
             at.increment(gone)) {
            const int fd = open(at->path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
            if (random.chance(30))
                sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
            if (random.chance(1))
                syncfs(fd);
            close(fd);
            usleep(static_cast<useconds_t>(random.log_uniform(2000)));
        }
}

Story::Story(const std::vector<Part> &parts, uint64_t seed) : parts_(parts), seed_(seed)
{
    board_ = static_cast<Board *>(shared_memory(sizeof(Board)));
}

Story::~Story()
{
    munmap(board_, sizeof(Board));
}

std::string Story::play(Disk &disk, unsigned steps, Fault fault)
{
    std::vector<pid_t> players;
    auto make_files = [&] {
        for (const Part &part : parts_)
            if (part.way == Way::Database)
                run(sql::Db::stock(disk.top + "/" + part.file), TABLES);
            else
                write_at(disk.top + "/" + part.file, part.at, pattern(part.n, 0).data(), part.n);
        must(syncfs(Fd(disk.top, O_RDONLY)) == 0, "syncfs");
    };
    std::string why = end_of(start(*board_, make_files), *board_);
    begin = disk.tape->count;
    auto play_part = [&](size_t number) {
        const Part &part = parts_[number];
        const std::vector<Step> all = steps_of(part, seed_ + number);
        const std::string path = disk.top + "/" + part.file;
        auto &notes = board_->parts[number];
        std::unique_ptr<Hand> hand;
        sql::Db db;
        char *plain = nullptr;
        leave_out(fault);
        for (unsigned i = 0; i < steps; i++) {
            notes.begun_at[i] = disk.tape->count;
            notes.begun = i + 1;
            bool is_durable = all[i].is_durable(part);
            if (part.way == Way::Database) {
                if (i == 0)
                    db = sql::Db(path);
                act_in(db, path, i + 1, part.relaxed);
                if (part.relaxed && (is_durable = i % 16 == 14))
                    db.close();
            } else if (part.way == Way::Plain) {
                if (i == 0)
                    plain = static_cast<char *>(
                        mmap(nullptr, part.n, PROT_READ | PROT_WRITE, MAP_SHARED, Fd(path), 0));
                act_plainly(plain, part.n, all[i]);
            } else {
                if (i == 0)
                    hand = std::make_unique<Hand>(path, part, part.relaxed);
                hand->act(all[i]);
            }
            notes.done_at[i] = disk.tape->count;
            notes.done = i + 1;
            for (unsigned told = notes.told; is_durable && told <= i; notes.told = ++told)
                notes.told_at[told] = notes.done_at[i];
        }
    };
    const pid_t writer = start(*board_, [&] { write_back(disk.top, seed_); });
    for (size_t i = 0; i < parts_.size() && why.empty(); i++)
        players.push_back(start(*board_, [&] { play_part(i); }));
    for (pid_t player : players) {
        const std::string said = end_of(player, *board_);
        why = why.empty() ? said : why;
    }
    kill(writer, SIGKILL);
    waitpid(writer, nullptr, 0);
    return why;
}

std::vector<Steps> Story::expected(uint64_t moment) const
{
    std::vector<Steps> all;
    for (size_t i = 0; i < parts_.size(); i++) {
        const auto &notes = board_->parts[i];
        Steps s;
        while (s.least < notes.told && notes.told_at[s.least] <= moment)
            s.least++;
        for (size_t k = 0; k < parts_.size(); k++) {
            const auto &other = board_->parts[k];
            unsigned last = 0; // the last step that is durable there, from 1
            while (last < other.told && other.told_at[last] <= moment)
                last++;
            const bool is_beside = parts_[k].file == parts_[i].file && !parts_[k].relaxed;
            while (is_beside && last && s.least < notes.done &&
                   notes.done_at[s.least] < other.begun_at[last - 1])
                s.least++;
        }
        for (s.most = s.least; s.most < notes.begun && notes.begun_at[s.most] < moment;)
            s.most++;
        all.push_back(s);
    }
    return all;
}

// ---- a life -------------------------------------------------------------------------------------

// A part, and what a life has found of it.
class Survey
{
  public:
    Survey(Disk &disk, const Part &part, uint64_t seed, Steps *steps)
        : disk_(disk), part_(part), all_(steps_of(part, seed)), path_(disk.top + "/" + part.file),
          steps_(*steps)
    {
    }
    void make(Story::Then then)
    {
        if (part_.way == Way::Database)
            make_database(then);
        else if (part_.way == Way::Plain)
            judge(read_file(path_));
        else
            make_file(then);
    }

  private:
    void make_file(Story::Then then)
    {
        Hand hand(path_, part_, false);
        judge(hand.read());
        if (then == Story::GoOn) {
            Step next = all_[steps_.most];
            if (next.what == What::Async || next.what == What::Wait || next.what == What::Grow)
                next.what = What::Sync; // durable at once
            hand.act(next);
            steps_.more_at = disk_.tape->count;
            hand.unmap(ATO_UNMAP_FAST);
            hand.map();
            expect(hand.read(), steps_.most + 1);
        } else if (then == Story::MakePlain) {
            hand.unmap(ATO_UNMAP_SPATIAL);
            expect(read_file(path_), steps_.most);
            return;
        }
        hand.leave();
    }
    void make_database(Story::Then then)
    {
        sql::Db db(path_);
        const unsigned n = steps_in(db);
        if (n < steps_.least || n > steps_.most)
            fail("of step " + std::to_string(n));
        found(n, n);
        if (then == Story::GoOn) {
            act_in(db, path_, n + 1, false);
            steps_.more_at = disk_.tape->count;
        } else if (then == Story::MakePlain) {
            // Only a writer removes what an interrupted birth has left.
            run(db, "UPDATE k SET pad = hex(randomblob(350))");
            db.close();
            db = sql::Db::stock(path_);
        }
        if (steps_in(db) != n + (then == Story::GoOn))
            fail("other ones when they are read again");
        if (then == Story::Die)
            db.handle = nullptr; // it stays open
    }
    Bytes region_of(const Bytes &file) const
    {
        const size_t end = part_.has_end() ? file.size() : part_.at + part_.n;
        return end < part_.at || file.size() < end ? Bytes()
                                                   : Bytes(&file[part_.at], &file[0] + end);
    }
    void judge(const Bytes &file)
    {
        const Bytes is = region_of(file);
        unsigned least = UINT32_MAX, most = 0;
        for (unsigned n = steps_.least; n <= steps_.most; n++)
            if (is == content_after(part_, all_, n)) {
                least = std::min(least, n);
                most = n;
            }
        if (least > most)
            say_what(is);
        found(least, most);
    }
    void say_what(const Bytes &is) const
    {
        for (unsigned n = 0; n < steps_.least; n++)
            if (is == content_after(part_, all_, n))
                fail("of step " + std::to_string(n));
        const Bytes least = content_after(part_, all_, steps_.least);
        const long same =
            std::mismatch(is.begin(), is.begin() + std::min(is.size(), least.size()), least.begin())
                .first -
            is.begin();
        fail("of no step: " + std::to_string(is.size()) + ", the first " + std::to_string(same) +
             " as after step " + std::to_string(steps_.least));
    }
    void expect(const Bytes &file, unsigned step) const
    {
        if (region_of(file) != content_after(part_, all_, step))
            fail("other ones when they are read again");
    }
    void found(unsigned least, unsigned most)
    {
        steps_.least = least;
        steps_.most = most;
        steps_.read_at = disk_.tape->count;
    }
    [[noreturn]] void fail(const std::string &what) const
    {
        throw std::runtime_error(part_.file + " from " + std::to_string(part_.at) +
                                 ": the bytes after step " + std::to_string(steps_.least) + " to " +
                                 std::to_string(steps_.most) + " are expected, these are " + what);
    }

    Disk &disk_;
    const Part &part_;
    const std::vector<Step> all_;
    const std::string path_;
    Steps &steps_;
};

std::string Story::live(Disk &disk, std::vector<Steps> *steps, Then then) const
{
    board_->why[0] = '\0';
    std::copy(steps->begin(), steps->end(), board_->found);
    auto life = [&] {
        for (size_t i = 0; i < parts_.size(); i++)
            Survey(disk, parts_[i], seed_ + i, &board_->found[i]).make(then);
        for (const std::string &name : names_in(disk.top + "/.ato"))
            if (then == MakePlain)
                throw std::runtime_error("all files are plain, and .ato/" + name + " is left");
    };
    const std::string why = end_of(start(*board_, life), *board_);
    std::copy_n(board_->found, steps->size(), steps->begin());
    return why;
}

std::vector<Steps> Story::expected(const std::vector<Steps> &before,
                                   const std::vector<Steps> &found, Then then, uint64_t moment)
{
    std::vector<Steps> all;
    for (size_t i = 0; i < before.size(); i++) {
        const Steps &f = found[i];
        Steps s = before[i];
        if (moment >= f.read_at) // what a read has returned stays
            s = {f.least, f.most};
        if (then == GoOn && moment >= f.more_at)
            s.least = f.most + 1;
        if (then == GoOn && f.read_at != UINT64_MAX)
            s.most = std::max(s.most, f.most + 1);
        all.push_back(s);
    }
    return all;
}

} // namespace powercut
