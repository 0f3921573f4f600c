// SPDX-License-Identifier: BSD-3-Clause
//
// Numbers and words as bytes, and back: for messages to another process of this program.
#ifndef ATO_TEST_CRASH_PACK_H
#define ATO_TEST_CRASH_PACK_H

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#include <unistd.h>

namespace crash
{

class Pack
{
  public:
    void number(uint64_t n)
    {
        bytes.append(reinterpret_cast<const char *>(&n), sizeof(n));
    }
    void word(const std::string &w)
    {
        number(w.size());
        bytes += w;
    }
    std::string bytes;
};

class Unpack
{
  public:
    explicit Unpack(const std::string &b) : bytes(b)
    {
    }

    uint64_t number()
    {
        uint64_t n;
        need(sizeof(n));
        memcpy(&n, &bytes[at], sizeof(n));
        at += sizeof(n);
        return n;
    }

    std::string word()
    {
        uint64_t n = number();
        need(n);
        at += n;
        return bytes.substr(at - n, n);
    }

  private:
    const std::string &bytes;
    size_t at = 0;

    void need(uint64_t n) const
    {
        if (bytes.size() - at < n)
            throw std::runtime_error("an outcome ends too early");
    }
};

inline bool write_all(int fd, const std::string &bytes)
{
    for (size_t at = 0; at < bytes.size();) {
        const ssize_t n = write(fd, &bytes[at], bytes.size() - at);
        if (n < 0)
            return false;
        at += static_cast<size_t>(n);
    }
    return true;
}

} // namespace crash

#endif
