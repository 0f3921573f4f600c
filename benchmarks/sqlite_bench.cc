/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How fast is SQLite on libato, beside SQLite's own VFS?
 *
 * sqlite_table.h has what is compared. Each row is run in pieces: in a round each side, in random order, gets one, in new
 * processes. The tables have the same content on all sides at the beginning, and each side gets the same random keys.
 * After each row the sum of a column must be what the acknowledged transactions add up to; with --ops, which makes all sides
 * do the same, all tables must be the same at the end. SQLite's own VFS reads them for that, after the last close.
 */
#include "bench.h"
#include "sqlite_table.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <random>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>

namespace
{

using bench::fail;
using cell::Row;
using cell::Side;
using cell::Work;
using namespace table;

/* ---- Databases ---- */

constexpr uint64_t KEYS_OF_A_MIB = 256 * 35; /* 35 rows fill a page of 4096 bytes */
constexpr int64_t FIRST = 1 << 24;           /* of column n, so that its size never changes */

uint64_t keys()
{
    return options.mib * KEYS_OF_A_MIB;
}

std::string database_of(const Side &side)
{
    return bench::folder() + "/" + side.name + ".db";
}

void make_databases(const std::vector<const Side *> &sides)
{
    const std::string first = database_of(*sides[0]);
    sqlite3 *db = cell::open(first, "unix");
    cell::execute(db, "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
                      "CREATE TABLE t(k INTEGER PRIMARY KEY, n INTEGER NOT NULL, v BLOB NOT NULL);"
                      "WITH RECURSIVE c(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM c WHERE k < " +
                          std::to_string(keys()) + ") INSERT INTO t SELECT k, " +
                          std::to_string(FIRST) + ", randomblob(100) FROM c");
    sqlite3_close(db);
    for (const Side *side : sides)
        if (side != sides[0])
            std::filesystem::copy_file(first, database_of(*side));
}

/* Calls `row` with each row of the answer of SQLite's own VFS. */
template <class Function>
void ask(const std::string &database, const char *sql, const Function &row)
{
    sqlite3 *db = cell::open(database, "unix");
    sqlite3_stmt *statement = nullptr;
    int r = sqlite3_prepare_v2(db, sql, -1, &statement, nullptr);
    while (r == SQLITE_OK && (r = sqlite3_step(statement)) == SQLITE_ROW) {
        row(statement);
        r = SQLITE_OK;
    }
    if (r != SQLITE_DONE)
        fail("%s: %s: %s", database.c_str(), sql, sqlite3_errmsg(db));
    sqlite3_finalize(statement);
    sqlite3_close(db);
}

void check_sum(const Row &row, const Side &side, uint64_t acknowledged)
{
    int64_t sum = 0;
    ask(database_of(side), "SELECT sum(n) FROM t",
        [&](sqlite3_stmt *s) { sum = sqlite3_column_int64(s, 0); });
    const int64_t found = sum - FIRST * static_cast<int64_t>(keys());
    if (found != static_cast<int64_t>(acknowledged))
        fail("%s, %s: %" PRIu64 " writes were acknowledged so far, and %" PRId64 " are found",
             row.name, side.name, acknowledged, found);
}

/* Of all content; the database must be sound. */
size_t hash_of(const Side &side)
{
    std::string verdict;
    size_t hash = 0;
    ask(database_of(side), "PRAGMA quick_check", [&](sqlite3_stmt *s) {
        verdict = reinterpret_cast<const char *>(sqlite3_column_text(s, 0));
    });
    if (verdict != "ok")
        fail("%s: quick_check: %s", side.name, verdict.c_str());
    ask(database_of(side), "SELECT k, n, v FROM t ORDER BY k", [&](sqlite3_stmt *s) {
        for (int i = 0; i < 3; i++) {
            const auto *bytes = static_cast<const char *>(sqlite3_column_blob(s, i));
            const auto n = static_cast<size_t>(sqlite3_column_bytes(s, i));
            hash = hash * 31 + std::hash<std::string_view>()({bytes, n});
        }
    });
    return hash;
}

/* ---- Pieces ---- */

struct Child {
    pid_t pid;
    int go, out; /* its standard input and output */
};

[[noreturn]] void become_cell(const Side &side, const std::vector<std::string> &words)
{
    std::vector<char *> argv;
    for (const std::string &word : words)
        argv.push_back(const_cast<char *>(word.c_str()));
    argv.push_back(nullptr);
    unsetenv("PMEM_IS_PMEM_FORCE");
    if (side.domain) {
        setenv("ATO_DURABILITY", side.domain, 1);
        if (std::strcmp(side.domain, "pmem") == 0)
            setenv("PMEM_IS_PMEM_FORCE", "1", 1);
    }
    if (side.log_dir)
        setenv("ATO_LOG_DIR", side.log_dir, 1);
    execv("/proc/self/exe", argv.data());
    _exit(127);
}

Child start(const Row &row, const Side &side, size_t process, uint64_t seed)
{
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
        fail("pipe: %s", std::strerror(errno));
    std::vector<std::string> words = {"sqlite_bench", "--cell", row.name, side.name};
    for (const std::string &word : {std::to_string(process), database_of(side), options.speedtest1,
                                    std::to_string(options.slice), std::to_string(options.ops),
                                    std::to_string(seed), std::to_string(keys())})
        words.push_back(word);
    const pid_t pid = fork();
    if (pid < 0)
        fail("fork: %s", std::strerror(errno));
    if (pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        become_cell(side, words);
    }
    close(in[0]);
    close(out[1]);
    return {pid, in[1], out[0]};
}

int be_cell(char **word)
{
    return cell::run(*find(ROWS, word[2]), *find(SIDES, word[3]), std::stoul(word[4]),
                     {word[5], word[6], std::stod(word[7]), std::stoull(word[8]),
                      std::stoull(word[9]), std::stoull(word[10])});
}

/* Up to the end of the output, or the end of the first line. */
std::string output_of(const Child &child, bool line)
{
    std::string all;
    char bytes[4096];
    for (ssize_t n; (n = read(child.out, bytes, line ? 1 : sizeof(bytes))) > 0;) {
        all.append(bytes, static_cast<size_t>(n));
        if (line && all.back() == '\n')
            break;
    }
    return all;
}

cell::Report run_piece(const Row &row, const Side &side, uint64_t seed)
{
    std::vector<Child> children;
    cell::Report report;
    const size_t processes = std::max<size_t>(1, row.processes.size());
    for (size_t i = 0; i < processes; i++) {
        children.push_back(start(row, side, i, seed * processes + i));
        const std::string ready = output_of(children.back(), true);
        bench::stop_if_asked();
        if (ready != "ready\n")
            fail("%s, %s: a process does not start", row.name, side.name);
    }
    for (const Child &child : children)
        close(child.go);
    for (const Child &child : children) {
        int status;
        report.read(output_of(child, false));
        close(child.out);
        waitpid(child.pid, &status, 0);
        bench::stop_if_asked();
        if (status != 0)
            fail("%s, %s: a process failed", row.name, side.name);
    }
    return report;
}

/* ---- Figures ---- */

using Figures = std::map<std::string, double>;

/* All pieces of a row and a side. */
struct Cell {
    std::map<std::string, std::vector<double>> pieces;
    std::array<cell::Histogram, 2> times;
    uint64_t busy = 0;
};

Figures figures_of(const cell::Report &report)
{
    Figures figures = {{SECONDS, report.seconds}, {RUNS, 60 / report.seconds}};
    double done[2] = {}, least = INFINITY, most = 0;
    for (const cell::Thread &thread : report.threads) {
        const auto own = static_cast<double>(thread.done);
        done[thread.kind] += own;
        if (thread.kind == Work::WRITE) {
            least = std::min(least, own);
            most = std::max(most, own);
        }
    }
    figures[WRITES] = done[Work::WRITE] / report.seconds;
    figures[READS] = done[Work::READ] / report.seconds;
    figures[EVEN] = most > 0 ? least / most : 0;
    figures[BYTES] = report.bytes / done[Work::WRITE];
    return figures;
}

/* Medians of the pieces; tails and the longest of all of them. */
Figures pooled(const Cell &c)
{
    Figures figures;
    for (const auto &[name, values] : c.pieces)
        figures[name] = bench::median(values);
    figures[WRITE_TAIL] = c.times[Work::WRITE].quantile(0.999) / 1e3;
    figures[WRITE_LONGEST] = c.times[Work::WRITE].quantile(1) / 1e3;
    figures[READ_TAIL] = c.times[Work::READ].quantile(0.999) / 1e3;
    figures[READ_LONGEST] = c.times[Work::READ].quantile(1) / 1e3;
    figures[BUSY] = static_cast<double>(c.busy);
    return figures;
}

using Results = std::map<std::string, std::map<std::string, Figures>>; /* by row and side */

/* NAN if it was not measured. */
double value_of(const Results &results, const std::string &row, const std::string &side,
                const std::string &figure)
{
    const auto r = results.find(row);
    if (r == results.end() || !r->second.count(side))
        return NAN;
    const Figures &figures = r->second.at(side);
    return figures.count(figure) ? figures.at(figure) : NAN;
}

void print_row(const Results &results, const Row &row, const std::vector<const Side *> &sides)
{
    std::printf("\n%s: %s\n", row.name, row.what);
    for (const char *figure : row.figures)
        for (const Side *side : sides) {
            const double value = value_of(results, row.name, side->name, figure);
            if (std::isnan(value))
                continue;
            std::printf("  %-17s %-17s %*.*f", figure, side->name, 12, value < 100 ? 2 : 0, value);
            for (const char *other : {side->normal ? WAL_NORMAL : WAL, TRUNCATE}) {
                if (figure == EVEN || figure == OF_ONE || figure == BUSY)
                    break;
                const double ratio = value / value_of(results, row.name, other, figure);
                if (std::isfinite(ratio))
                    std::printf(" %9.2f", ratio);
                else
                    std::printf(" %9s", "-");
            }
            std::putchar('\n');
        }
    std::fflush(stdout);
}

void write_json(const Results &results, const std::vector<const Side *> &sides)
{
    FILE *f = std::fopen(options.json.c_str(), "w");
    if (!f)
        fail("%s: %s", options.json.c_str(), std::strerror(errno));
    std::fprintf(f,
                 "{\"cpu\": \"%s\", \"medium\": \"%s\", \"sqlite\": \"%s\",\n \"mib\": %" PRIu64
                 ", \"seconds\": %g, \"slice\": %g, \"ops\": %" PRIu64 ",\n \"guarantees\": {",
                 bench::cpu_name().c_str(), bench::medium_name().c_str(), sqlite3_libversion(),
                 options.mib, options.seconds, options.slice, options.ops);
    const char *comma = "";
    for (const Side *side : sides) {
        std::fprintf(f, "%s\n  \"%s\": \"%s\"", comma, side->name, side->guarantee);
        comma = ",";
    }
    std::fprintf(f, "},\n \"rows\": [");
    comma = "";
    for (const Row &row : ROWS)
        for (const Side *side : sides) {
            if (!results.count(row.name) || !results.at(row.name).count(side->name))
                continue;
            std::fprintf(f, "%s\n  {\"row\": \"%s\", \"side\": \"%s\"", comma, row.name,
                         side->name);
            comma = ",";
            for (const char *figure : row.figures)
                if (const double value = value_of(results, row.name, side->name, figure);
                    std::isfinite(value))
                    std::fprintf(f, ", \"%s\": %.6g", figure, value);
            std::fputc('}', f);
        }
    std::fprintf(f, "]}\n");
    if (std::fclose(f) != 0)
        fail("%s: %s", options.json.c_str(), std::strerror(errno));
}

/* ---- All of it ---- */

void remove_speedtest1(const Side &side)
{
    for (const char *end : {"", "-wal", "-shm", "-journal"})
        unlink((database_of(side) + ".speedtest1" + end).c_str());
}

/* `acknowledged`: of each side, writes so far. */
std::map<std::string, Figures> run_row(const Row &row, const std::vector<const Side *> &sides,
                                       std::map<std::string, uint64_t> &acknowledged)
{
    static std::mt19937_64 random(1);
    std::map<std::string, Cell> cells;
    std::vector<const Side *> order = sides;
    const double least = std::ceil(options.seconds / (options.slice));
    const int rounds = options.ops ? 1 : std::max(3, static_cast<int>(least));
    unsigned times = 0; /* writes of a transaction */
    for (const cell::Process &process : row.processes)
        for (const Work &work : process)
            times = std::max(times, work.times);
    for (int round = 0; round < rounds; round++) {
        const uint64_t seed = random() >> 32;
        std::shuffle(order.begin(), order.end(), random);
        for (const Side *side : order) {
            Cell &c = cells[side->name];
            const cell::Report report = run_piece(row, *side, seed);
            for (const auto &[name, value] : figures_of(report))
                if (name != BYTES ||
                    side->domain != DISK) /* libato does not count those of a log */
                    c.pieces[name].push_back(value);
            for (size_t kind = 0; kind < c.times.size(); kind++)
                c.times[kind].merge(report.times[kind]);
            for (const cell::Thread &thread : report.threads) {
                c.busy += thread.busy;
                if (thread.kind == Work::WRITE)
                    acknowledged[side->name] += thread.done * times;
            }
            remove_speedtest1(*side);
        }
    }
    std::map<std::string, Figures> result;
    for (const Side *side : sides) {
        check_sum(row, *side, acknowledged[side->name]);
        result[side->name] = pooled(cells[side->name]);
    }
    return result;
}

void check_contents(const std::vector<const Side *> &sides)
{
    const size_t first = hash_of(*sides[0]);
    for (const Side *side : sides)
        if (hash_of(*side) != first)
            fail("%s holds another content than %s", side->name, sides[0]->name);
}

} // namespace

int main(int argc, char **argv)
{
    if (argc == 11 && std::strcmp(argv[1], "--cell") == 0)
        return be_cell(argv);
    read_options(argc, argv);
    bench::folder(options.folder.c_str());
    std::vector<const Side *> sides;
    const bool on_disk = bench::medium_name().find("DRAM") == std::string::npos;
    for (const Side &side : SIDES)
        if (options.sides.empty() ? on_disk ? !side.domain || side.domain == DISK
                                            : side.domain != DISK && !side.normal
                                  : chosen(options.sides, side.name))
            sides.push_back(&side);
    if (bench::free_bytes() < (options.mib << 20) * 3 * sides.size()) {
        std::fprintf(stderr, "%s has not enough space: see --folder and --mib\n",
                     options.folder.c_str());
        return 77;
    }
    make_databases(sides);
    std::printf("SQLite %s, %s, %s; %" PRIu64
                " MiB\nColumns: figure, side, value, its ratio to that of %s (%s for those with "
                "synchronous=NORMAL), of %s\n",
                sqlite3_libversion(), bench::cpu_name().c_str(), bench::medium_name().c_str(),
                options.mib, WAL, WAL_NORMAL, TRUNCATE);
    Results results;
    std::map<std::string, uint64_t> acknowledged;
    for (const Row &row : ROWS) {
        if (!options.rows.empty() && !chosen(options.rows, row.name))
            continue;
        if (row.processes.empty() && (options.speedtest1.empty() || options.ops)) {
            std::printf("\n%s: skipped: %s\n", row.name,
                        options.ops ? "not with --ops" : "--speedtest1 does not say where it is");
            continue;
        }
        results[row.name] = run_row(row, sides, acknowledged);
        for (const Side *side : sides)
            results[row.name][side->name][OF_ONE] =
                value_of(results, row.name, side->name, WRITES) /
                value_of(results, ONE_WRITER, side->name, WRITES);
        print_row(results, row, sides);
    }
    if (options.ops)
        check_contents(sides);
    std::puts("\nguarantees:");
    for (const Side *side : sides)
        std::printf("  %-17s %s\n", side->name, side->guarantee);
    if (!options.json.empty())
        write_json(results, sides);
    return 0;
}
