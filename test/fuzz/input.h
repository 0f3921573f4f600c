// SPDX-License-Identifier: BSD-3-Clause
//
// Reads decisions of a harness from the bytes of its input, and writes seeds that lead to chosen decisions.
// Numbers are little-endian; behind the end everything is 0, so that each input is valid.
#ifndef ATO_TEST_FUZZ_INPUT_H
#define ATO_TEST_FUZZ_INPUT_H

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace fuzz
{

using Bytes = std::vector<unsigned char>;

class Input
{
  public:
    Input(const uint8_t *bytes, size_t n) : at_(bytes), left_(n)
    {
    }

    bool more() const
    {
        return left_ > 0;
    }
    uint64_t number(unsigned width)
    {
        unsigned char word[8] = {};
        take(word, width);
        uint64_t value;
        memcpy(&value, word, 8);
        return value;
    }
    uint8_t u8()
    {
        return static_cast<uint8_t>(number(1));
    }
    uint16_t u16()
    {
        return static_cast<uint16_t>(number(2));
    }
    uint32_t u32()
    {
        return static_cast<uint32_t>(number(4));
    }
    uint64_t u64()
    {
        return number(8);
    }
    Bytes bytes(size_t n)
    {
        Bytes b(n);
        take(b.data(), n);
        return b;
    }
    Bytes rest()
    {
        return bytes(left_);
    }

  private:
    void take(unsigned char *to, size_t n)
    {
        size_t there = n < left_ ? n : left_;
        if (there)
            memcpy(to, at_, there);
        at_ += there;
        left_ -= there;
    }

    const uint8_t *at_;
    size_t left_;
};

// An input that is written, not read: the mirror of Input.
class Seed
{
  public:
    explicit Seed(std::string what) : name(std::move(what))
    {
    }
    Seed &number(uint64_t value, unsigned width)
    {
        for (unsigned i = 0; i < width; i++)
            bytes.push_back(static_cast<unsigned char>(value >> 8 * i));
        return *this;
    }
    Seed &u8(uint64_t value)
    {
        return number(value, 1);
    }
    Seed &u16(uint64_t value)
    {
        return number(value, 2);
    }
    Seed &u32(uint64_t value)
    {
        return number(value, 4);
    }
    Seed &u64(uint64_t value)
    {
        return number(value, 8);
    }
    Seed &text(const std::string &s)
    {
        bytes.insert(bytes.end(), s.begin(), s.end());
        return *this;
    }

    std::string name;
    Bytes bytes;
};

} // namespace fuzz

#endif
