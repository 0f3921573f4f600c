// SPDX-License-Identifier: BSD-3-Clause
//
// A wrapper for C++: mappings that end with their scope, transactions that run again if others were in their way, errors as
// exceptions. Several processes may use one file at once.
//
//   raii FILE
#include <ato.h>

#include <cerrno>
#include <cstdint>
#include <iostream>
#include <system_error>
#include <type_traits>

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
    // Runs step(transaction &) in a transaction, again whenever it is refused: so what it changes outside the mappings has to be
    // right after any number of runs. Durable on return. An exception ends the transaction without any effect.
    template <typename F> static void run(F step)
    {
        const auto once = [](ato_tx *tx, void *arg) {
            try {
                transaction t(tx);
                (*static_cast<F *>(arg))(t);
                return 0;
            } catch (const failed &call) { // stays within: ato_tx_run() may have to run it again
                errno = call.error;
                return -1;
            }
        };
        check(ato_tx_run(once, &step, nullptr) == 0);
    }
    template <typename T> T load(const T *from)
    {
        T value;
        move(&value, from, sizeof(T));
        return value;
    }
    template <typename T> void store(T *to, const T &value)
    {
        move(to, &value, sizeof(T));
    }
    transaction(const transaction &) = delete;

  private:
    struct failed {
        int error;
    };
    explicit transaction(ato_tx *tx) : tx_(tx)
    {
    }
    void move(void *to, const void *from, std::size_t n)
    {
        if (!ato_tx_memcpy(tx_, to, from, n, 0))
            throw failed{errno};
    }
    ato_tx *tx_;
};

template <typename T> class mapping // a file that is a T; a new one is zeros
{
    static_assert(std::is_trivially_copyable<T>::value, "its bytes are the file's");

  public:
    // A file that is shorter gets its size when it is mapped, and only then. ftruncate(2) before each map would change a file that
    // a killed process left, or ATO_UNMAP_FAST: libato then refuses it, and with a smaller size the rest of it is lost.
    explicit mapping(const char *name) : mapping(map(name))
    {
        if (ato_size(at_) < static_cast<off_t>(sizeof(T)))
            check(ato_ftruncate(at_, sizeof(T)) == 0);
    }
    ~mapping() // if this fails the file is not plain; libato goes on with it
    {
        ato_munmap(at_, sizeof(T), ATO_UNMAP_SPATIAL);
    }
    mapping(const mapping &) = delete;
    T *operator->() const // addresses for load() and store(): not for plain loads
    {
        return at_;
    }

  private:
    explicit mapping(void *at) : at_(static_cast<T *>(at))
    {
        check(at != MAP_FAILED);
    }
    static void *map(const char *name)
    {
        const int fd = open(name, O_RDWR | O_CREAT, 0600);
        if (fd < 0)
            throw std::system_error(errno, std::generic_category(), name);
        void *at = ato_mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        const int error = errno;
        close(fd);
        errno = error;
        return at;
    }
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
    totals now = {};
    ato::transaction::run([&](ato::transaction &step) {
        now.runs = step.load(&file->runs) + 1;
        now.sum = step.load(&file->sum) + now.runs;
        step.store(&file->runs, now.runs);
        step.store(&file->sum, now.sum);
    });
    std::cout << now.runs << " runs, sum " << now.sum << '\n';
    return now.sum != now.runs * (now.runs + 1) / 2;
} catch (const std::system_error &error) {
    std::cerr << error.what() << '\n';
    return 1;
}
