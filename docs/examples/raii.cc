// SPDX-License-Identifier: BSD-3-Clause
//
// A wrapper for C++: mappings and transactions that end with their scope, errors as exceptions.
//
//   raii FILE
#include <ato.h>

#include <cerrno>
#include <cstdint>
#include <iostream>
#include <system_error>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace ato
{

inline void check(bool good)
{
    if (!good)
        throw std::system_error(errno, std::generic_category(), ato_errormsg());
}

class transaction
{
  public:
    transaction() : tx_(ato_tx_begin(0))
    {
        check(tx_);
    }
    ~transaction() // without a commit nothing has changed
    {
        if (tx_)
            ato_tx_abort(tx_);
    }
    transaction(const transaction &) = delete;
    template <typename T> T load(const T *from)
    {
        T value;
        check(ato_tx_memcpy(tx_, &value, from, sizeof(T), 0));
        return value;
    }
    template <typename T> void store(T *to, const T &value)
    {
        check(ato_tx_memcpy(tx_, to, &value, sizeof(T), 0));
    }
    void commit()
    {
        check(ato_tx_commit(tx_) == 0);
        tx_ = nullptr;
    }

  private:
    ato_tx *tx_;
};

template <typename T> class mapping // a file that is a T; a new one is zeros
{
  public:
    explicit mapping(const char *name)
    {
        const int fd = open(name, O_RDWR | O_CREAT, 0600);
        if (fd < 0 || ftruncate(fd, sizeof(T)) < 0)
            throw std::system_error(errno, std::generic_category(), name);
        void *at = ato_mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
        check(at != MAP_FAILED);
        at_ = static_cast<T *>(at);
    }
    ~mapping()
    {
        ato_munmap(at_, sizeof(T), ATO_UNMAP_SPATIAL);
    }
    mapping(const mapping &) = delete;
    T *operator->() const
    {
        return at_;
    } // addresses for load() and store(): not for plain loads

  private:
    T *at_;
};

} // namespace ato

struct totals {
    std::int64_t runs, sum;
};

int main(int argc, char **argv)
try {
    if (argc != 2)
        return 64;
    ato::mapping<totals> file(argv[1]);
    ato::transaction step;
    const auto runs = step.load(&file->runs) + 1, sum = step.load(&file->sum) + runs;
    step.store(&file->runs, runs);
    step.store(&file->sum, sum);
    step.commit();
    std::cout << runs << " runs, sum " << sum << '\n';
    return sum != runs * (runs + 1) / 2;
} catch (const std::system_error &error) {
    std::cerr << error.what() << '\n';
    return 1;
}
