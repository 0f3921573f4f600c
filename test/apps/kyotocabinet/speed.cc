// SPDX-License-Identifier: BSD-3-Clause
//
// Commits a second of small transactions, each record of 100 bytes, in a database of 10,000 records.
//
//   speed FOLDER COMMITS
#include <kchashdb.h>
#include <kcplantdb.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

using namespace kyotocabinet;

namespace
{

constexpr int RECORDS = 10000;

template <class DB>
void measure(const char *name, const std::string &path, int commits, int records)
{
    DB db;
    auto check = [&](bool good) {
        if (!good)
            throw std::runtime_error(db.error().message());
    };
    auto set = [&](int i) {
        char key[32];
        const int n = snprintf(key, sizeof(key), "%08d", i);
        const std::string value(100, static_cast<char>('a' + rand() % 26));
        check(db.set(key, static_cast<size_t>(n), value.data(), value.size()));
    };
    check(db.open(path, BasicDB::OWRITER | BasicDB::OCREATE | BasicDB::OTRUNCATE));
    check(db.begin_transaction(true));
    for (int i = 0; i < RECORDS; i++)
        set(i);
    check(db.end_transaction(true));
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < commits; i++) {
        check(db.begin_transaction(true));
        for (int k = 0; k < records; k++)
            set(rand() % RECORDS);
        check(db.end_transaction(true));
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    check(db.close());
    printf("%s, %d a commit\t%.0f\n", name, records, commits / took.count());
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 3)
        return 64;
    const std::string folder = argv[1];
    const int commits = ::atoi(argv[2]);
    try {
        for (int records : {1, 10}) {
            measure<HashDB>("hash", folder + "/speed.kch", commits, records);
            measure<TreeDB>("tree", folder + "/speed.kct", commits, records);
        }
    } catch (const std::exception &e) {
        fprintf(stderr, "speed: %s\n", e.what());
        return 1;
    }
}
