// SPDX-License-Identifier: BSD-3-Clause
//
// Kyoto Cabinet's HashDB without transactions, and synchronize(). See generations.py.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <kchashdb.h>
#include <string>

using kyotocabinet::HashDB;

static const int RECORDS = 1000;

static void must(bool done, const HashDB &db, const char *what)
{
    if (done)
        return;
    printf("%s: %s\n", what, db.error().message());
    exit(1);
}

// The generation that all records have. Nothing is repaired: the database may be open, as far as its head knows.
static long check(HashDB &db)
{
    long generation = -1, found = 0;
    for (int i = 0; i < RECORDS; i++, found++) {
        std::string value;
        if (!db.get(std::to_string(i), &value))
            break;
        const long here = atol(value.c_str());
        if (generation >= 0 && here != generation) {
            printf("records of generations %ld and %ld\n", generation, here);
            exit(1);
        }
        generation = here;
    }
    if (found == 0 && db.count() == 0)
        return 0;
    if (found != RECORDS || db.count() != RECORDS) {
        printf("%ld records, and %ld counted\n", found, static_cast<long>(db.count()));
        exit(1);
    }
    return generation;
}

int main(int, char **argv)
{
    HashDB db;
    const bool works = strcmp(argv[1], "work") == 0;
    // All of the file: Kyoto Cabinet syncs what lies behind its map by a second call.
    db.tune_map(256 << 20);
    must(db.open(argv[2], HashDB::ONOREPAIR | HashDB::ONOLOCK |
                              (works ? HashDB::OWRITER | HashDB::OCREATE : HashDB::OREADER)),
         db, "open");
    long generation = check(db);
    for (;; generation++) {
        printf("%ld\n", generation);
        fflush(stdout);
        if (!works)
            return 0;
        for (int i = 0; i < RECORDS; i++) // lengths change, so that records move
            must(db.set(std::to_string(i), std::to_string(generation + 1) +
                                               std::string((generation * 7 + i) % 200, ' ')),
                 db, "set");
        must(db.synchronize(true), db, "synchronize");
    }
}
