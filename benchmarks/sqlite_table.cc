/* SPDX-License-Identifier: BSD-3-Clause */
#include "sqlite_table.h"

#include "bench.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>

namespace table
{

using bench::fail;
using cell::Row;
using cell::Side;
using cell::Work;

namespace
{

constexpr char READ[] = "SELECT n, v FROM t WHERE k = ?1";
constexpr char ALL[] = "SELECT n, v FROM t";
constexpr char UPDATE[] = "UPDATE t SET n = n + 1, v = ?2 WHERE k = ?1";
constexpr char INCREMENT[] = "UPDATE t SET n = n + 1 WHERE k = ?1";
constexpr char INSERT[] = "INSERT INTO t(n, v) VALUES(1, ?2)";

const Work READER = {Work::READ, READ, 1, false, 1};
const Work READERS = {Work::READ, READ, 1, false, 4};
const Work HOLDER = {Work::HOLD, ALL, 1, false, 1};
const Work WRITER = {Work::WRITE, UPDATE, 1, false, 1};
const Work WRITER_OF_100 = {Work::WRITE, UPDATE, 100, true, 1};
const Work INSERTER = {Work::WRITE, INSERT, 1, false, 1};
const Work RIVAL = {Work::WRITE, INCREMENT, 1, true, 1};
const Work RIVALS = {Work::WRITE, INCREMENT, 1, true, 16};

std::vector<cell::Process> rivals(size_t processes)
{
    return std::vector<cell::Process>(processes, cell::Process{RIVAL});
}

const std::vector<const char *> CONTENTION = {WRITES,        OF_ONE, WRITE_TAIL,
                                              WRITE_LONGEST, EVEN,   BUSY};

} // namespace

const std::vector<Row> ROWS = {
    {"update", "transactions of one update", {{WRITER}}, {WRITES, WRITE_TAIL}},
    {"update100", "transactions of 100 updates", {{WRITER_OF_100}}, {WRITES}},
    {"read", "point reads", {{READER}}, {READS}},
    {"speedtest1", "SQLite's speedtest1, in its default size", {}, {RUNS, SECONDS}},
    {"bytes",
     "bytes to the media for a transaction of one update, checkpoints and close included",
     {{WRITER}},
     {BYTES},
     true},
    {"write_read",
     "two processes: one updates, one reads",
     {{WRITER}, {READER}},
     {WRITES, READS, READ_TAIL, READ_LONGEST, BUSY}},
    {"4_readers",
     "one process: one thread updates, four read",
     {{WRITER, READERS}},
     {WRITES, READS, READ_TAIL, READ_LONGEST, BUSY}},
    {"cursor",
     "two processes: one updates, one has a cursor over all rows that stays open",
     {{WRITER}, {HOLDER}},
     {WRITES, WRITE_TAIL, BUSY}},
    {ONE_WRITER, "BEGIN IMMEDIATE, update, COMMIT: one process", rivals(1), {WRITES, WRITE_TAIL}},
    {"contend/2", "the same, 2 processes", rivals(2), CONTENTION},
    {"contend/4", "the same, 4 processes", rivals(4), CONTENTION},
    {"contend/16", "the same, 16 processes", rivals(16), CONTENTION},
    {"contend/16_threads", "the same, 16 threads of one process", {{RIVALS}}, CONTENTION},
    /* The last one: it leaves databases of different sizes. */
    {"insert",
     "transactions of one insert, which make the database longer",
     {{INSERTER}},
     {WRITES, WRITE_TAIL}},
};

#define ON_TMPFS "kill: all that was acknowledged; power cut: nothing, on tmpfs"

#define NORMAL                                                                                     \
    "synchronous=NORMAL; kill: all that was acknowledged; power cut, on a disk: all but perhaps "  \
    "the newest commits"

const std::vector<Side> SIDES = {
    {"ato_process", "ato", "DELETE", "process", ON_TMPFS},
    {"ato_pmem", "ato", "DELETE", "pmem",
     ON_TMPFS "; every flush that persistent memory needs for it is issued"},
    {WAL, "unix", "WAL", nullptr, ON_TMPFS "; all, on a disk"},
    {TRUNCATE, "unix", "TRUNCATE", nullptr, ON_TMPFS "; all, on a disk"},
    {"off", "unix", "OFF", nullptr,
     "kill: in the middle of a transaction it may destroy the database; power cut: nothing"},
    {"ato_disk", "ato", "DELETE", DISK, "kill and power cut, on a disk: all that was acknowledged"},
    {"ato_log_in_memory", "ato", "DELETE", DISK,
     "the same, if /dev/shm, which has the log, were persistent memory", "/dev/shm"},
    {"ato_disk_normal", "ato", "DELETE", DISK, NORMAL, nullptr, true},
    {WAL_NORMAL, "unix", "WAL", nullptr, NORMAL, nullptr, true},
};

/* ---- Options ---- */

Options options;

bool chosen(const std::vector<std::string> &names, const std::string &name)
{
    return std::any_of(names.begin(), names.end(), [&](const std::string &n) {
        return name == n || name.rfind(n + "/", 0) == 0;
    });
}

namespace
{

void usage(FILE *to)
{
    std::fputs(
        "usage: sqlite_bench [OPTION...]\n\n"
        "Compares SQLite on libato's VFS with SQLite's own VFS. synchronous is FULL (NORMAL in\n"
        "the sides that are called so), statements are prepared, keys are random, values have\n"
        "100 bytes, cache size and locking mode are the default. Exit status: 1 if a sum or a\n"
        "content is wrong, 77 if space is missing.\n\n"
        "  --row NAME         only this row (contend: all of contend/N); may be repeated\n"
        "  --side NAME        only this side; may be repeated. Otherwise all that make sense on\n"
        "                     the medium of FOLDER: those with NORMAL only on a disk\n"
        "  --mib N            size of the database (100)\n"
        "  --seconds S        at least so long for each row and side (5), in 3 pieces or more\n"
        "  --slice S          length of a piece (2)\n"
        "  --ops N            instead: so many transactions of each thread, once\n"
        "  --folder FOLDER    the databases lie in a new folder there (/dev/shm)\n"
        "  --speedtest1 FILE  what 'tools/sqlite-tests --speedtest1' has built\n"
        "  --json FILE        writes all figures there\n\nrows:\n",
        to);
    for (const Row &row : ROWS)
        std::fprintf(to, "  %-19s%s\n", row.name, row.what);
    std::fputs("\nsides:\n", to);
    for (const Side &side : SIDES)
        std::fprintf(to, "  %-19s%s\n", side.name, side.guarantee);
}

double number(const std::string &text, double otherwise, double least)
{
    char *end;
    const double value = text.empty() ? otherwise : std::strtod(text.c_str(), &end);
    if (!text.empty() && (*end || !(value >= least)))
        fail("'%s' is no number from %g: see --help", text.c_str(), least);
    return value;
}

} // namespace

void read_options(int argc, char **argv)
{
    std::string mib, seconds, slice, ops;
    const std::map<std::string, std::string *> values = {{"--mib", &mib},
                                                         {"--seconds", &seconds},
                                                         {"--slice", &slice},
                                                         {"--ops", &ops},
                                                         {"--folder", &options.folder},
                                                         {"--json", &options.json},
                                                         {"--speedtest1", &options.speedtest1}};
    const std::map<std::string, std::vector<std::string> *> lists = {{"--row", &options.rows},
                                                                     {"--side", &options.sides}};
    for (int i = 1; i < argc; i++) {
        const std::string word = argv[i], name = word.substr(0, word.find('='));
        if (word == "--help" || word == "-h") {
            usage(stdout);
            std::exit(0);
        }
        const bool joined = name != word;
        if ((!values.count(name) && !lists.count(name)) || (!joined && i + 1 == argc)) {
            usage(stderr);
            std::exit(2);
        }
        const std::string value = joined ? word.substr(name.size() + 1) : argv[++i];
        if (values.count(name))
            *values.at(name) = value;
        else
            lists.at(name)->push_back(value);
    }
    options.mib = static_cast<uint64_t>(number(mib, 100, 1));
    options.seconds = number(seconds, 5, 0);
    options.slice = number(slice, 2, 0.001);
    options.ops = static_cast<uint64_t>(number(ops, 0, 0));
    if (!options.speedtest1.empty())
        options.speedtest1 = std::filesystem::absolute(options.speedtest1);
    for (const std::string &name : options.rows)
        if (find(ROWS, name) == ROWS.end())
            fail("no row is called %s: see --help", name.c_str());
    for (const std::string &name : options.sides)
        if (find(SIDES, name) == SIDES.end())
            fail("no side is called %s: see --help", name.c_str());
}

} // namespace table
