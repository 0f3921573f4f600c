/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/read/reader_media.h"

#include "lib/file/page.h"
#include "reflection/media/copy.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static int read_exactly(const struct file *f, int fd, char *to, uint64_t n, uint64_t at)
{
    ssize_t got = pread(fd, to, n, (off_t)at);
    if (got < 0)
        return report_errno(errno, "cannot read %s", f->pairing.path);
    memset(to + got, 0, n - (uint64_t)got);
    return 0;
}

int reader_media_copy(struct file *f, uint64_t page, unsigned begin, unsigned n, char *dst)
{
    _Alignas(64) char o[PAGE_BYTES], r[PAGE_BYTES];
    const unsigned from = begin / SLICE_BYTES * SLICE_BYTES;
    const uint64_t bytes = (begin + n + SLICE_BYTES - 1) / SLICE_BYTES * SLICE_BYTES - from;
    const int reflection = f->pairing.reflection;
    uint64_t word = 0;
    if (reflection >= 0 && read_exactly(f, reflection, (char *)&word, 8, layout_word(page)) < 0)
        return -1;
    /* R4. Flushing a line changes nothing on the media, so a reader may do it. In domain msync it would; but there
     * all words are settled (open.h). */
    if (word && !f->settled && f->persist.domain != PERSIST_MSYNC &&
        page_flush_words(f, file_word(f, page), 1) < 0)
        return -1;
    const uint64_t touched = word & bitmap_touched(begin, n);
    if (read_exactly(f, f->pairing.original, o + from, bytes, page * PAGE_BYTES + from) < 0 ||
        (touched && read_exactly(f, reflection, r + from, bytes,
                                 layout_reflected(page * PAGE_BYTES) + from) < 0))
        return -1;
    copy_gather_range(f->persist.kernel, dst, o, r, word, begin, n);
    return 0;
}

int reader_media_beyond(const struct file *f, uint64_t end)
{
    return report_error(EFAULT, "up to byte %llu of %s, which is not that long by now",
                        (unsigned long long)end, f->pairing.path);
}
