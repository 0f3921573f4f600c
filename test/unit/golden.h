// SPDX-License-Identifier: BSD-3-Clause
//
// How are golden files read? Text written by test/data/make_golden.py, lines that begin with '#'
// are comments:
//   table lines   <table> <number> <number>...
//   image lines   size <bytes>, then  @<offset> <hex bytes>;  all other bytes are zero
#ifndef ATO_TEST_UNIT_GOLDEN_H
#define ATO_TEST_UNIT_GOLDEN_H

#include "support/temp.h"

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

inline std::ifstream golden_open(const std::string &name)
{
    std::ifstream file(std::string(GOLDEN_FOLDER) + "/" + name);
    if (!file)
        throw std::runtime_error("no golden file " + name);
    return file;
}

inline std::vector<std::vector<uint64_t>> golden_table(const std::string &name,
                                                       const std::string &table)
{
    std::vector<std::vector<uint64_t>> rows;
    std::ifstream file = golden_open(name);
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string first;
        uint64_t number;
        if (!(words >> first) || first != table)
            continue;
        rows.emplace_back();
        while (words >> number)
            rows.back().push_back(number);
    }
    return rows;
}

inline support::Bytes golden_image(const std::string &name)
{
    support::Bytes image;
    std::ifstream file = golden_open(name);
    for (std::string line; std::getline(file, line);) {
        if (line.rfind("size ", 0) == 0)
            image.resize(std::stoull(line.substr(5)));
        if (line.empty() || line[0] != '@')
            continue;
        size_t blank = line.find(' '), at = std::stoull(line.substr(1, blank - 1));
        for (size_t i = blank + 1; i + 1 < line.size(); i += 2)
            image.at(at++) = static_cast<unsigned char>(std::stoul(line.substr(i, 2), nullptr, 16));
    }
    return image;
}

#endif
