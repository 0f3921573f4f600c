// SPDX-License-Identifier: BSD-3-Clause
#include "mapped.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

#include <sys/mman.h>

namespace support
{

bool sparse()
{
    const char *format = getenv("ATO_FORMAT");
    return format && std::string(format) == "sparse";
}

std::vector<int> domains(std::vector<int> all)
{
    if (sparse())
        all.erase(std::remove(all.begin(), all.end(), ATO_DOMAIN_DISK), all.end());
    return all;
}

Environment::Environment(const char *name, const char *value)
    : name_(name), before_(getenv(name) ? getenv(name) : "")
{
    setenv(name, value, 1);
}

Environment::~Environment()
{
    before_.empty() ? unsetenv(name_) : setenv(name_, before_.c_str(), 1);
}

ato_options options(int domain, int policy, unsigned flags)
{
    ato_options o = {};
    o.struct_size = sizeof(o);
    o.domain = domain;
    o.read_policy = policy;
    o.flags = flags;
    return o;
}

void Mapped::failed()
{
    error = errno;
    sentence = ato_errormsg();
}

Mapped::Mapped(const std::string &path, const ato_options &opt, size_t n, off_t offset)
{
    Fd fd(path);
    length = n ? n : size_of(path) - static_cast<size_t>(offset);
    void *at = ato_mmap_opt(length, fd, offset, &opt);
    if (at == MAP_FAILED)
        failed();
    else
        base = static_cast<char *>(at);
}

Mapped::~Mapped()
{
    if (base)
        ato_munmap(base, length, ATO_UNMAP_FAST);
}

bool Mapped::write(uint64_t offset, const Bytes &bytes, unsigned flags)
{
    if (ato_memcpy_opt(base + offset, bytes.data(), bytes.size(), flags) == base + offset)
        return true;
    failed();
    return false;
}

Bytes Mapped::read(uint64_t offset, size_t n)
{
    Bytes b(n);
    if (ato_memcpy(b.data(), base + offset, n) == b.data())
        return b;
    failed();
    return {};
}

Bytes Mapped::read()
{
    return read(0, length);
}

struct ato_stat Mapped::stat() const
{
    struct ato_stat st = {};
    st.struct_size = sizeof(st);
    if (::ato_stat(base, &st) < 0)
        memset(&st, 0xff, sizeof(st));
    return st;
}

int Mapped::unmap(int mode)
{
    int r = ato_munmap(base, length, mode);
    if (r < 0)
        failed();
    else
        base = nullptr;
    return r;
}

static std::mutex log_lock;

static void keep(void *arg, int level, const char *sentence)
{
    std::lock_guard<std::mutex> hold(log_lock);
    static_cast<Log *>(arg)->lines.emplace_back(level, sentence);
}

Log::Log()
{
    ato_set_log(keep, this);
}

Log::~Log()
{
    ato_set_log(nullptr, nullptr);
}

bool Log::has(int level, const std::string &part) const
{
    for (const auto &line : lines)
        if (line.first == level && line.second.find(part) != std::string::npos)
            return true;
    return false;
}

} // namespace support
