/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls of libato as Go makes them: each returns 0, or -errno. Handles are numbers that look like pointers, which Go's collector must not
 * see as such.
 */
#include <ato.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#if ATO_VERSION >> 8 != 1
#error "this package is for libato 0.1"
#endif

#define CALL(name, parameters, succeeds)                                                           \
    static inline int name parameters                                                              \
    {                                                                                              \
        return (succeeds) ? 0 : -errno;                                                            \
    }

/* clang-format off */
CALL(map_file, (void **at, size_t n, int fd, const struct ato_options *o), (*at = ato_mmap_opt(n, fd, 0, o)) != MAP_FAILED)
CALL(unmap, (void *at, size_t n, int mode), ato_munmap(at, n, mode) == 0)
CALL(copy, (void *dst, const void *src, size_t n), ato_memcpy(dst, src, n))
CALL(writev, (const struct ato_iovec *iov, int count), ato_writev(iov, count, 0) == 0)
CALL(file_size, (const void *at, off_t *size), (*size = ato_size(at)) >= 0)
CALL(truncate_to, (void *at, off_t size), ato_ftruncate(at, size) == 0)
CALL(msync_all, (void *at, size_t n), ato_msync(at, n, MS_SYNC) == 0)
CALL(deploy, (const void *at, size_t n), ato_deploy(at, n) == 0)
CALL(stat_of, (const void *at, struct ato_stat *s), ato_stat(at, s) == 0)

CALL(tx_begin, (uintptr_t *tx, const struct ato_tx_options *o), (*tx = (uintptr_t)ato_tx_begin_opt(o)))
CALL(tx_copy, (uintptr_t tx, void *dst, const void *src, size_t n), ato_tx_memcpy((ato_tx *)tx, dst, src, n, 0))
CALL(tx_size, (uintptr_t tx, const void *at, off_t *size), (*size = ato_tx_size((ato_tx *)tx, at)) >= 0)
CALL(tx_truncate, (uintptr_t tx, void *at, off_t size), ato_tx_ftruncate((ato_tx *)tx, at, size) == 0)
CALL(tx_commit, (uintptr_t tx), ato_tx_commit((ato_tx *)tx) == 0)
CALL(tx_abort, (uintptr_t tx), ato_tx_abort((ato_tx *)tx) == 0)

CALL(snapshot_begin, (const void *at, uintptr_t *s), (*s = (uintptr_t)ato_snapshot_begin(at)))
CALL(snapshot_size, (uintptr_t s, off_t *size), (*size = ato_snapshot_seek((ato_snapshot *)s, 0, SEEK_END)) >= 0)
CALL(snapshot_read, (uintptr_t s, void *dst, off_t at, size_t n, ssize_t *done), (*done = ato_snapshot_read((ato_snapshot *)s, dst, at, n)) >= 0)
CALL(snapshot_end, (uintptr_t s), ato_snapshot_end((ato_snapshot *)s) == 0)
