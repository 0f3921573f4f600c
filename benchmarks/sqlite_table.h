/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What does sqlite_bench compare? Its rows and sides, and the options, which also choose among them.
 */
#ifndef ATO_BENCHMARKS_SQLITE_TABLE_H
#define ATO_BENCHMARKS_SQLITE_TABLE_H

#include "sqlite_cell.h"

#include <algorithm>

namespace table
{

/* Figures; see figures_of() and pooled() in sqlite_bench.cc. */
inline constexpr char WRITES[] = "writes/s", READS[] = "reads/s", EVEN[] = "slowest/fastest",
                      BYTES[] = "bytes/write", RUNS[] = "runs/min", SECONDS[] = "seconds",
                      WRITE_TAIL[] = "write p99.9 us", WRITE_LONGEST[] = "write longest us",
                      READ_TAIL[] = "read p99.9 us", READ_LONGEST[] = "read longest us",
                      BUSY[] = "SQLITE_BUSY", OF_ONE[] = "of one writer";
inline constexpr char ONE_WRITER[] = "contend/1"; /* the row that OF_ONE refers to */

inline constexpr char WAL[] = "wal", WAL_NORMAL[] = "wal_normal",
                      TRUNCATE[] = "truncate"; /* sides that ratios refer to */
inline constexpr char DISK[] = "disk";         /* libato's sides on a disk */

extern const std::vector<cell::Row> ROWS;
extern const std::vector<cell::Side> SIDES;

struct Options {
    uint64_t mib, ops;
    double seconds, slice;
    std::string folder = "/dev/shm", json, speedtest1;
    std::vector<std::string> rows, sides;
};
extern Options options;

/* Sets `options`; ends the program after --help, and if a word is no option. */
void read_options(int argc, char **argv);

/* Is `name` one of the names, or does it begin with one of them and a slash? */
bool chosen(const std::vector<std::string> &names, const std::string &name);

/* The first row or side that is chosen by that name; end(): none. */
template <class Table> auto find(const Table &table, const std::string &name)
{
    return std::find_if(table.begin(), table.end(),
                        [&](auto &one) { return chosen({name}, one.name); });
}

} // namespace table

#endif
