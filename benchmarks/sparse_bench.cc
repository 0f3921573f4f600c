/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What does the sparse format cost, and what does it save?
 *
 *   far     1,000 writes of a slice, far apart in a file of 64 GiB: space that the reflection and the shared memory take; and
 *           what it costs to write or read these slices, the median of the ratios sparse to dense of 200 rounds
 *   map     mapping that file after 100,000 such writes
 *   write   a write, read   a read by gather, of pages that were written before, in a file of --file_mib: the median of the
 *           ratios sparse to dense of 200 rounds; both formats in turns, at the same random offsets
 *
 * All in domain pmem, which is to be forced on tmpfs (PMEM_IS_PMEM_FORCE=1), or in process.
 */
#include "ato.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <err.h>
#include <fcntl.h>
#include <random>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <vector>

namespace
{

constexpr size_t PAGE = 4096, SLICE = 64;

double cpu_ns()
{
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

class File
{
  public:
    File(size_t bytes, int format, int domain)
        : path_("/dev/shm/ato-sparse-bench-XXXXXX"), bytes_(bytes)
    {
        options_.struct_size = sizeof(options_);
        options_.read_policy = ATO_READ_GATHER;
        options_.format = format;
        options_.domain = domain;
        fd_ = mkstemp(path_.data());
        if (fd_ < 0 || ftruncate(fd_, static_cast<off_t>(bytes)) < 0)
            err(2, "%s", path_.c_str());
        map();
    }
    ~File()
    {
        unmap(ATO_UNMAP_SPATIAL);
        close(fd_);
        unlink(path_.c_str());
    }
    File(const File &) = delete;
    File &operator=(const File &) = delete;
    void map()
    {
        base_ = static_cast<char *>(ato_mmap_opt(bytes_, fd_, 0, &options_));
        if (base_ == MAP_FAILED)
            errx(2, "%s", ato_errormsg());
    }
    void unmap(int mode)
    {
        if (ato_munmap(base_, bytes_, mode) < 0)
            errx(2, "%s", ato_errormsg());
    }
    void write(uint64_t at, const void *bytes, size_t n)
    {
        if (!ato_memcpy(base_ + at, bytes, n))
            errx(2, "%s", ato_errormsg());
    }
    void read(uint64_t at, void *bytes, size_t n)
    {
        if (!ato_memcpy(bytes, base_ + at, n))
            errx(2, "%s", ato_errormsg());
    }
    uint64_t reflection() const
    {
        struct ato_stat st = {};
        st.struct_size = sizeof(st);
        if (ato_stat(base_, &st) < 0)
            errx(2, "%s", ato_errormsg());
        return st.reflection_bytes;
    }

  private:
    std::string path_;
    size_t bytes_;
    ato_options options_ = {};
    int fd_;
    char *base_;
};

/* Bytes that the shared memory of this process's mappings takes. */
uint64_t shared_memory()
{
    uint64_t all = 0;
    char line[512], name[256];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof(line), maps)) {
        struct stat st;
        if (sscanf(line, "%*s %*s %*s %*s %*s %255s", name) == 1 &&
            strncmp(name, "/dev/shm/ato-", 13) == 0 && !strstr(name, "bench") &&
            stat(name, &st) == 0)
            all += static_cast<uint64_t>(st.st_blocks) * 512;
    }
    if (maps)
        fclose(maps);
    return all;
}

/* Offsets of 1,000 reads or writes of n bytes. */
using Places = std::vector<uint64_t>;

Places places(uint64_t seed, size_t pages, size_t n)
{
    std::mt19937_64 random(seed);
    Places all(1000);
    for (uint64_t &at : all)
        at = random() % pages * PAGE + random() % (PAGE / n) * n;
    return all;
}

/* The time of them. */
double batch(File &f, const Places &all, size_t n, bool reads)
{
    static char bytes[PAGE];
    const double begin = cpu_ns();
    for (uint64_t at : all)
        reads ? f.read(at, bytes, n) : f.write(at, bytes, n);
    return cpu_ns() - begin;
}

template <typename Make>
double median_ratio(File &a, File &b, size_t n, bool reads, const Make &make)
{
    std::vector<double> ratios;
    for (unsigned round = 0; round < 200; round++) {
        double ns[2];
        const Places all = make(round + 7);
        for (unsigned turn : {0, 1}) {
            const unsigned side = (round + turn) % 2;
            ns[side] = batch(side ? b : a, all, n, reads);
        }
        ratios.push_back(ns[1] / ns[0]);
    }
    std::sort(ratios.begin(), ratios.end());
    return ratios[ratios.size() / 2];
}

double median_ratio(File &a, File &b, size_t pages, size_t n, bool reads)
{
    return median_ratio(a, b, n, reads, [=](uint64_t seed) { return places(seed, pages, n); });
}

constexpr size_t FAR_BYTES = size_t(64) << 30;

void far_apart(int domain)
{
    Places all = places(1, FAR_BYTES / PAGE, SLICE);
    const auto others = [&all](uint64_t seed) {
        std::shuffle(all.begin(), all.end(), std::mt19937_64(seed));
        return all;
    };
    File dense(FAR_BYTES, ATO_FORMAT_DENSE, domain);
    batch(dense, all, SLICE, false);
    const double before = static_cast<double>(shared_memory());
    File sparse(FAR_BYTES, ATO_FORMAT_SPARSE, domain);
    batch(sparse, all, SLICE, false);
    const double memory[] = {before, static_cast<double>(shared_memory()) - before};
    for (int format : {ATO_FORMAT_DENSE, ATO_FORMAT_SPARSE})
        printf("far, %s: the reflection takes %.2f MiB, the shared memory %.2f MiB\n",
               format == ATO_FORMAT_SPARSE ? "sparse" : "dense",
               static_cast<double>((format == ATO_FORMAT_SPARSE ? sparse : dense).reflection()) /
                   (1 << 20),
               memory[format == ATO_FORMAT_SPARSE] / (1 << 20));
    for (bool reads : {false, true})
        printf("far, %s of a slice, sparse to dense: %.2f\n", reads ? "read" : "write",
               median_ratio(dense, sparse, SLICE, reads, others));
}

void map_of_many(int domain)
{
    const char slice[SLICE] = {1};
    std::mt19937_64 random(2);
    File f(FAR_BYTES, ATO_FORMAT_SPARSE, domain);
    for (int i = 0; i < 100000; i++)
        f.write(random() % (FAR_BYTES / SLICE) * SLICE, slice, SLICE);
    std::vector<double> ms;
    for (int i = 0; i < 15; i++) {
        f.unmap(ATO_UNMAP_FAST);
        const double begin = cpu_ns();
        f.map();
        ms.push_back((cpu_ns() - begin) / 1e6);
    }
    std::sort(ms.begin(), ms.end());
    printf("map, sparse, after 100,000 writes: %.2f ms\n", ms[ms.size() / 2]);
}

/* All homes have space, and each page a bitmap with slices on both sides. */
void fill(File &f, size_t pages)
{
    std::mt19937_64 random(3);
    const std::string page(PAGE, 'x');
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < pages; i++)
            f.write(i * PAGE, page.data(), PAGE);
    for (size_t i = 0; i < pages; i++)
        f.write(i * PAGE + random() % 64 * SLICE, page.data(), SLICE);
}

void ratios(int domain, size_t file_bytes)
{
    const size_t pages = file_bytes / PAGE;
    File dense(file_bytes, ATO_FORMAT_DENSE, domain), sparse(file_bytes, ATO_FORMAT_SPARSE, domain);
    fill(dense, pages);
    fill(sparse, pages);
    for (bool reads : {false, true})
        for (size_t n : {64, 256, 1024, 4096})
            printf("%s %zu bytes, sparse to dense: %.2f\n", reads ? "read" : "write", n,
                   median_ratio(dense, sparse, pages, n, reads));
}

} // namespace

int main(int argc, char **argv)
{
    size_t mib = 256;
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "--file_mib=", 11) == 0)
            mib = strtoul(argv[i] + 11, nullptr, 10);
        else if (strncmp(argv[i], "--benchmark", 11) != 0)
            errx(64, "usage: sparse_bench [--file_mib=N]");
    if (!mib)
        errx(64, "--file_mib is a number");
    far_apart(ATO_DOMAIN_PMEM);
    map_of_many(ATO_DOMAIN_PMEM);
    for (int domain : {ATO_DOMAIN_PMEM, ATO_DOMAIN_PROCESS}) {
        printf("domain %s:\n", domain == ATO_DOMAIN_PMEM ? "pmem" : "process");
        ratios(domain, mib << 20);
    }
    return 0;
}
