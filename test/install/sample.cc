// SPDX-License-Identifier: BSD-3-Clause
// The same in C++, with options, a log, and an exception in a transaction.
#include <ato.h>

#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>

#include <fcntl.h>
#include <unistd.h>

// Has it no effect, does it pass on, and is the mapping free?
static bool throws(void *at)
{
    try {
        ato_tx_run(
            [](ato_tx *tx, void *to) -> int {
                ato_tx_memcpy(tx, to, "lost", 4, 0);
                throw std::runtime_error("as expected");
            },
            at, nullptr);
    } catch (const std::runtime_error &error) {
        return std::string(error.what()) == "as expected";
    }
    return false;
}

int main(int argc, char **argv)
{
    const std::string text = "wholly or not at all";
    std::string back(text.size(), ' '), log;
    ato_set_log([](void *arg, int, const char *line) { *static_cast<std::string *>(arg) += line; },
                &log);
    int fd = argc == 2 ? open(argv[1], O_RDWR | O_CREAT, 0600) : -1;
    if (fd < 0)
        return 1;
    ato_options options = {};
    options.struct_size = sizeof(options);
    options.domain = ATO_DOMAIN_DISK;
    void *at = ato_mmap_opt(100000, fd, 0, &options);
    close(fd);
    bool good = at != MAP_FAILED && ato_ftruncate(at, 100000) == 0 && ato_memset(at, 'x', 100000) &&
                ato_memcpy(at, text.data(), text.size()) && throws(at) &&
                ato_memcpy(&back[0], at, back.size()) && back == text &&
                ato_munmap(at, 100000, ATO_UNMAP_SPATIAL) == 0 && ato_memset(at, 0, 1) == nullptr &&
                !log.empty();
    ato_set_log(nullptr, nullptr);
    if (good)
        std::puts(ato_version());
    else
        std::fprintf(stderr, "%s\n", ato_errormsg());
    return good ? 0 : 1;
}
