/* SPDX-License-Identifier: BSD-3-Clause */
/* Random numbers and texts of the generators: the same ones from the same seed, anywhere. */
#ifndef ATO_BENCHMARKS_SUITES_SQLITE_RANDOM_H
#define ATO_BENCHMARKS_SUITES_SQLITE_RANDOM_H

#include <cstdint>
#include <string>

namespace sqlite
{

/* A bijection of 64-bit words whose result looks random: the finisher of splitmix64. */
inline uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

class Random
{
  public:
    explicit Random(uint64_t seed) : state_(mix(seed))
    {
    }

    uint64_t word()
    {
        return mix(state_ += 0x9e3779b97f4a7c15);
    }

    double fraction() /* from 0, below 1 */
    {
        return static_cast<double>(word() >> 11) * 0x1p-53;
    }

    int64_t between(int64_t least, int64_t most) /* both included */
    {
        return least + static_cast<int64_t>(word() % (static_cast<uint64_t>(most - least) + 1));
    }

    bool percent(int64_t chance)
    {
        return between(1, 100) <= chance;
    }

    std::string letters(int64_t least, int64_t most)
    {
        return text(least, most, 'a', 26);
    }

    std::string digits(int64_t count)
    {
        return text(count, count, '0', 10);
    }

  private:
    std::string text(int64_t least, int64_t most, char first, unsigned kinds)
    {
        std::string s(static_cast<size_t>(least == most ? least : between(least, most)), first);
        uint64_t bits = 0;
        for (size_t i = 0; i < s.size(); i++) { /* four characters of a word */
            bits = i % 4 ? bits >> 16 : word();
            s[i] = static_cast<char>(first + static_cast<char>((bits & 0xffff) % kinds));
        }
        return s;
    }

    uint64_t state_;
};

} // namespace sqlite

#endif
