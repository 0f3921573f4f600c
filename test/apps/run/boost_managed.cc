// SPDX-License-Identifier: BSD-3-Clause
//
// Boost.Interprocess: a heap in a mapped file, and flush(). See generations.py.
#include <boost/interprocess/allocators/allocator.hpp>
#include <boost/interprocess/containers/map.hpp>
#include <boost/interprocess/containers/string.hpp>
#include <boost/interprocess/managed_mapped_file.hpp>
#include <cstdio>
#include <cstring>

namespace bip = boost::interprocess;

template <typename T>
using Allocator = bip::allocator<T, bip::managed_mapped_file::segment_manager>;
using String = bip::basic_string<char, std::char_traits<char>, Allocator<char>>;
using Map = bip::map<int, String, std::less<int>, Allocator<std::pair<const int, String>>>;

static const int RECORDS = 1000;

// The generation that all records have.
static long check(const bip::managed_mapped_file &file, const Map &map)
{
    if (map.empty())
        return 0;
    if (!const_cast<bip::managed_mapped_file &>(file).check_sanity() || map.size() != RECORDS) {
        printf("the heap is damaged, or %zu records\n", map.size());
        exit(1);
    }
    const long generation = atol(map.begin()->second.c_str());
    for (auto &[key, value] : map)
        if (atol(value.c_str()) != generation) {
            printf("records of generations %ld and %ld\n", generation, atol(value.c_str()));
            exit(1);
        }
    return generation;
}

int main(int, char **argv)
{
    bip::managed_mapped_file file(bip::open_or_create, argv[2], 4 << 20);
    Map &map = *file.find_or_construct<Map>("map")(file.get_segment_manager());
    long generation = check(file, map);
    for (;; generation++) {
        printf("%ld\n", generation);
        fflush(stdout);
        if (strcmp(argv[1], "check") == 0)
            return 0;
        for (int i = 0; i < RECORDS; i++) { // nodes and strings move
            map.erase(i);
            const std::string text =
                std::to_string(generation + 1) + std::string((generation * 7 + i) % 200, ' ');
            map.emplace(i, String(text.c_str(), map.get_allocator()));
        }
        if (!file.flush())
            return 2;
    }
}
