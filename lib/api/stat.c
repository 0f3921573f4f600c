/* SPDX-License-Identifier: BSD-3-Clause */
/* Counters and states of a mapped file, and what other programs did to it; sentences and the log. */
#include "lib/api/stores.h"
#include "lib/file/calls.h"
#include "lib/file/table.h"
#include "lib/read/guard.h"
#include "lib/read/range.h"
#include "lib/read/reader.h"
#include "reflection/media/bitmap.h"
#include "reflection/media/report.h"
#include "reflection/pairing/length.h"
#include "reflection/pairing/meta.h"

#include "ato_engine.h"

#include <string.h>
#include <sys/stat.h>

/* Words that are read at once: some, for the stack. */
enum { STEP = 128 };

/* Counts by the words on the media, through pread(): no memory is touched, so nothing can fault. */
static int count_slices(const struct file *f, uint64_t size, uint64_t *slices)
{
    uint64_t words[STEP], pages[STEP];
    *slices = 0;
    if (f->pairing.reflection < 0) /* a reader's plain file */
        return 0;
    const uint64_t places = file_places(f, size), each = layout_chunk(file_format(f));
    if (places == UINT64_MAX)
        return -1;
    FOR_EACH_META(chunk, f->pairing.reflection, file_format(f), 0, (places + each - 1) / each)
    {
        const uint64_t end = lesser(places, (chunk + 1) * each);
        for (uint64_t at = chunk * each, n; at < end; at += n) {
            n = lesser(end - at, STEP);
            if (file_read_words(f, at, n, words, pages) < 0)
                return -1;
            for (uint64_t i = 0; i < n; i++)
                *slices += pages[i] < layout_pages(size) ? bitmap_count(words[i]) : 0;
        }
    }
    return 0;
}

/* Sets *size to the committed size. Returns 0; -1: errors of reader_size(). */
static int look_at_size(struct file *f, uint64_t *size)
{
    /* The size itself, not file_size(): with another process's larger max_size it may lie beyond the end of the
     * mapping. */
    const uint64_t is = __atomic_load_n(&f->shared.header->size, __ATOMIC_ACQUIRE);
    /* A larger value is not a valid size: another program stored it. */
    *size = is < LAYOUT_MAX_BYTES ? is : file_size(f);
    if (__builtin_expect(!!f->reader, 0) && reader_size(f, size) < 0)
        return -1;
    return file_check(f); /* its memory may have become zeros (fault.h) */
}

off_t ato_size(const void *addr)
{
    struct mapping *m = table_expect(addr);
    uint64_t size;
    if (!m)
        return -1;
    CALL_ON(call, m);
    if (mapping_has_stores(m))
        return (off_t)stores_size(m);
    return look_at_size(m->file, &size) < 0 ? -1 : (off_t)size;
}

static_assert(offsetof(struct ato_stat, read_retries) ==
                  offsetof(struct ato_stat, writes) + COUNT_READ_RETRIES * sizeof(uint64_t),
              "the counters of a status are in the order of enum counter");

int ato_stat(const void *addr, struct ato_stat *st)
{
    struct mapping *m = table_expect(addr);
    if (!m)
        return -1;
    CALL_ON(call, m);
    size_t given = st->struct_size;
    if (given < sizeof(size_t) || given > 65536)
        return report_error(
            EINVAL, "ato_stat.struct_size is %zu: set it to sizeof(struct ato_stat)", given);
    struct file *f = m->file;
    uint64_t size;
    if (look_at_size(f, &size) < 0)
        return -1;
    struct stat rs = {0};
    struct ato_stat all = {
        .struct_size = given,
        .domain = f->persist.domain,
        .format = (int)f->pairing.record.format + ATO_FORMAT_DENSE,
        .read_policy = policy_of(m),
        .size = size,
    };
    for (unsigned i = 0; i < COUNTERS; i++) {
        const uint64_t total = count_total(f, i);
        memcpy((char *)&all + offsetof(struct ato_stat, writes) + i * sizeof(total), &total,
               sizeof(total));
    }
    /* Slow fields are filled only if the caller's struct has them. */
    if (given > offsetof(struct ato_stat, guard_offset)) {
        const struct manifest_guard guard = guard_of(f);
        all.guard_offset = guard.offset;
        all.guard_bytes = guard.bytes;
        memcpy(all.guard_plain, guard.plain, sizeof(all.guard_plain));
    }
    if (given > offsetof(struct ato_stat, reflection_bytes) && f->pairing.reflection >= 0 &&
        fstat(f->pairing.reflection, &rs) < 0)
        return report_errno(errno, "cannot stat the reflection of %s", f->pairing.path);
    all.reflection_bytes = (uint64_t)rs.st_blocks * 512;
    if (given > offsetof(struct ato_stat, slices_in_reflection) &&
        count_slices(f, size, &all.slices_in_reflection) < 0)
        return -1;
    memset(st, 0, given);
    memcpy(st, &all, given < sizeof(all) ? given : sizeof(all));
    return 0;
}

/* Returns 0 if the file still has a name; -1 with ENOENT or another errno. */
static int has_name(const struct pairing *pr, int fd, const char *name)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return report_errno(errno, "cannot stat %s/%s", pr->folder.path, name);
    if (st.st_nlink)
        return 0;
    return report_error(
        ENOENT,
        "another program removed %s/%s, where parts of %s are, while it is mapped: unmap it in all "
        "processes, the last one to make it plain, before they end otherwise",
        pr->folder.path, name, pr->path);
}

int ato_check(const void *addr)
{
    struct mapping *m = table_find(addr);
    if (!m)
        return range_none(addr, addr);
    CALL_ON(call, m);
    const struct pairing *pr = &m->file->pairing;
    if (file_check(m->file) < 0)
        return -1;
    if (m->file->reader || pr->reflection < 0) /* its file is another process's */
        return 0;
    if (growth_check(pr) < 0 || has_name(pr, pr->lock, pr->names.manifest) < 0)
        return -1;
    return has_name(pr, pr->reflection, pr->names.reflection);
}

const char *ato_errormsg(void)
{
    return report_sentence();
}

void ato_set_log(void (*log)(void *arg, int level, const char *sentence), void *arg)
{
    report_set_log(log, arg);
}

void ato_log(int level, const char *sentence)
{
    const bool known = level >= ATO_LOG_ERROR && level <= ATO_LOG_INFO;
    report_log(known ? (enum report_level)level : REPORT_ERROR, "%s", sentence);
}

#define STRING_(x) #x
#define STRING(x)  STRING_(x)

const char *ato_version(void)
{
    return STRING(ATO_VERSION_MAJOR) "." STRING(ATO_VERSION_MINOR) "." STRING(ATO_VERSION_PATCH);
}
