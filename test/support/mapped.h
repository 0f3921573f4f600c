// SPDX-License-Identifier: BSD-3-Clause
//
// How does a test map a file? An atomic mapping that unmaps itself, and what its calls said.
#ifndef ATO_TEST_SUPPORT_MAPPED_H
#define ATO_TEST_SUPPORT_MAPPED_H

#include "temp.h"

#include "ato.h"

#include <string>
#include <utility>

namespace support
{

ato_options options(int domain = ATO_DOMAIN_AUTO, int policy = ATO_READ_LAZY, unsigned flags = 0);

class Mapped
{
  public:
    // The whole file when length is 0. Look at `base`, or test the object, for success.
    explicit Mapped(const std::string &path, const ato_options &opt = options(), size_t length = 0,
                    off_t offset = 0);
    ~Mapped(); // fast
    Mapped(const Mapped &) = delete;
    Mapped &operator=(const Mapped &) = delete;

    explicit operator bool() const
    {
        return base != nullptr;
    }

    bool write(uint64_t offset, const Bytes &bytes, unsigned flags = 0);
    Bytes read(uint64_t offset, size_t n); // empty on failure
    Bytes read();
    struct ato_status stat() const;
    int unmap(int mode); // as ato_munmap(); gone when it succeeds

    char *base = nullptr;
    size_t length = 0;
    int error = 0;        // errno of the last call that failed
    std::string sentence; // and what it said

  private:
    void failed();
};

// What the library's log was told while the object lives.
class Log
{
  public:
    Log();
    ~Log();
    bool has(int level, const std::string &part) const;
    std::vector<std::pair<int, std::string>> lines;
};

} // namespace support

#endif
