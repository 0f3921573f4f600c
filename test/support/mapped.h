// SPDX-License-Identifier: BSD-3-Clause
//
// An atomic mapping that unmaps itself, and the errors of its calls.
#ifndef ATO_TEST_SUPPORT_MAPPED_H
#define ATO_TEST_SUPPORT_MAPPED_H

#include "temp.h"

#include "ato.h"

#include <string>
#include <utility>

namespace support
{

// The tests run in both formats of the reflection: ATO_FORMAT=sparse.
bool sparse();

// A variable of the environment, as long as this lives.
class Environment
{
  public:
    Environment(const char *name, const char *value);
    ~Environment();
    Environment(const Environment &) = delete;
    Environment &operator=(const Environment &) = delete;

  private:
    const char *name_;
    std::string before_;
};

// For tests that store bytes of a dense reflection by themselves, or count calls.
#define DENSE_ONLY(why)                                                                            \
    do {                                                                                           \
        if (support::sparse())                                                                     \
            GTEST_SKIP() << (why);                                                                 \
    } while (0)

// Of the domains that a test is for, those of this round: in domain disk there is no second format.
std::vector<int> domains(std::vector<int> all);

ato_options options(int domain = ATO_DOMAIN_AUTO, int policy = ATO_READ_DEFAULT,
                    unsigned flags = 0);

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
    struct ato_stat stat() const;
    int unmap(int mode); // as ato_munmap(); gone when it succeeds

    char *base = nullptr;
    size_t length = 0;
    int error = 0;        // errno of the last failed call
    std::string sentence; // and its sentence

  private:
    void failed();
};

// The entries of the library's log while the object exists.
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
