/* SPDX-License-Identifier: BSD-3-Clause */
#include "look.h"

#include "lanes.h"

#include "lib/sqlite/mask.h"
#include "reflection/format/layout.h"
#include "reflection/media/bitmap.h"
#include "reflection/media/report.h"
#include "reflection/pairing/lookup.h"
#include "reflection/pairing/meta.h"
#include "reflection/pairing/orphan.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

const char *look_format_name(int format)
{
    return format == LAYOUT_LOG ? "log" : format == LAYOUT_SPARSE ? "sparse" : "dense";
}

const char *look_or_more(uint32_t format)
{
    return format == LAYOUT_SPARSE ? " or more, in whole chunks"
           : format == LAYOUT_LOG  ? " or more"
                                   : "";
}

static const struct {
    const char *name, *meaning;
} states[] = {
    [LOOK_PLAIN] = {"plain", "an ordinary file"},
    [LOOK_BORN] = {"born", "its reflection was being made, nothing is stored in it yet"},
    [LOOK_IN_USE] = {"in use", "processes have it mapped"},
    [LOOK_RECOVERY_DUE] = {"recovery due", "its last user died; the next map recovers it"},
    [LOOK_CLEAN] = {"clean", "no process has it mapped, its reflection is kept"},
    [LOOK_DEPLOYED] = {"deployed", "everything is home, its reflection is being removed"},
    [LOOK_COPIED] = {"copied", "a copy, made while the file was not plain"},
    [LOOK_LOST] = {"lost", "its reflection is not to be found"},
    [LOOK_APART] = {"apart",
                    "a restored file; its reflection is there, under another inode number"},
    [LOOK_DAMAGED] = {"damaged", "cannot be mapped as it is"},
};

const char *look_state_name(enum look_state state)
{
    return states[state].name;
}

const char *look_state_meaning(enum look_state state)
{
    return states[state].meaning;
}

/* ---- ways out ---- */

/* Adds a way to those before. */
static void __attribute__((format(printf, 2, 3)))
add_way(char to[LOOK_NEXT], const char *format, ...)
{
    const size_t n = strlen(to);
    va_list args;
    va_start(args, format);
    (void)snprintf(to + n, LOOK_NEXT - n, "%s", n ? "; or " : "");
    (void)vsnprintf(to + strlen(to), LOOK_NEXT - strlen(to), format, args);
    va_end(args);
}

const char *look_next(char to[LOOK_NEXT], const struct look *l, const char *name)
{
    const unsigned sides = l->ways & (WAY_FILE | WAY_REFLECTION);
    const bool is_longer = l->identity.size > l->manifest.size;
    char word[TEXT_WORD];
    name = text_word(word, name);
    to[0] = '\0';
    if (l->state == LOOK_IN_USE)
        add_way(
            to,
            "close it in these processes, or end them; a copy of it is made by 'ato cp %s COPY'",
            name);
    else if (l->holders.count && l->state == LOOK_LOST)
        add_way(to,
                "close it there ('fuser %s' names the process), so that it becomes plain "
                "(ATO_UNMAP_SPATIAL); after a kill the content of the reflection is lost",
                name);
    else if (l->holders.count && l->ways)
        add_way(to, "unmap it in the processes that have it, or end them, and look at it again");
    else if ((l->state != LOOK_PLAIN && l->state < LOOK_COPIED) || l->ways & WAY_MAP)
        add_way(to, "'ato deploy %s' makes it plain", name);
    if (l->holders.count)
        return to;
    if (l->ways & WAY_COPY_AGAIN)
        add_way(to, "make the source plain and copy it again");
    if (l->ways & WAY_RENUMBER)
        add_way(to,
                "give this file another inode number by 'cp -a %s %s.new && mv %s.new %s', and "
                "look at it again",
                name, name, name, name);
    if (l->ways & WAY_UNSET)
        add_way(to, "take the attribute away by 'setfattr -x user.ato %s', and look at it again",
                name);
    if (l->ways & WAY_BRING_BACK)
        add_way(to, "bring back the reflection %s/%" PRIu64 " and its manifest",
                l->manifest.fd < 0 ? l->attribute.folder : l->folder.path, l->number);
    if (sides == WAY_FILE)
        add_way(to, "keep the bytes of the file by 'ato deploy --prefer=file %s'", name);
    else if (sides && l->state == LOOK_APART && !l->is_mixed)
        add_way(to,
                "if both were saved together, while no program had the file open, join them by "
                "'ato deploy --prefer=reflection %s'; or "
                "keep the bytes of the file alone by 'ato deploy --prefer=file %s'",
                name, name);
    else if (sides)
        add_way(
            to,
            "choose a side by 'ato deploy --prefer=file %s' or 'ato deploy --prefer=reflection %s'",
            name, name);
    if (l->ways & WAY_RESIZE)
        add_way(to,
                is_longer ? "if bytes were only added to it, copy it, cut them off by 'truncate -s "
                            "%" PRIu64 " %s', and look at it again"
                          : "unless a backup was copied over it, give it its length again by "
                            "'truncate -s %" PRIu64
                            " %s', where what was cut off is zeros unless the reflection has "
                            "it, and look at it again",
                l->manifest.size, name);
    return to;
}

void look_why(char *to, size_t n, const struct look *l, const char *name)
{
    char next[LOOK_NEXT];
    look_next(next, l, name);
    next[0] = (char)toupper((unsigned char)next[0]);
    (void)snprintf(to, n, "%s%s%s", l->problem, *next ? ". " : "", next);
}

/* ---- opening ---- */

/* Opens a regular file, and looks at nothing else: a device or a pipe is not opened. */
static int open_regular(int folder, const char *name, int flags, struct stat *st)
{
    const int links = flags & O_NOFOLLOW ? AT_SYMLINK_NOFOLLOW : 0;
    if (fstatat(folder, name, st, links) < 0)
        return -1;
    errno = S_ISDIR(st->st_mode) ? EISDIR : EINVAL;
    if (!S_ISREG(st->st_mode))
        return -1;
    /* Looking leaves no trace in atime, where that is allowed. */
    int fd = openat(folder, name, flags | O_NOATIME | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 && errno == EPERM)
        fd = openat(folder, name, flags | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0 && (fstat(fd, st) < 0 || !S_ISREG(st->st_mode))) {
        close(fd);
        errno = EINVAL;
        return -1;
    }
    return fd;
}

int look_open(const char *name, int flags)
{
    struct stat st;
    return open_regular(AT_FDCWD, name, flags, &st);
}

/* The same in a folder, for reading, without blocking. */
static int open_in(const struct folder *f, const char *name, struct stat *st)
{
    return open_regular(f->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, st);
}

bool look_is_old(const struct stat *st)
{
    time_t age = time(NULL) - st->st_mtime;
    return age < 0 || age >= 60;
}

int look_folder(struct folder *f, const char *path)
{
    struct stat st;
    f->fd = -1;
    if (lstat(path, &st) < 0)
        return errno == ENOENT || errno == ENOTDIR
                   ? 0
                   : report_errno(errno, "cannot look at the reflection folder %s", path);
    if (folder_open(f, path, false) == 0)
        return 1;
    if (errno != EACCES)
        return errno == ENOENT ? 0 : -1;
    /* No permission, or refused? What can be opened, or is no folder, was refused. */
    const int fd CLOSING =
        S_ISDIR(st.st_mode) ? open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    errno = EACCES;
    return fd >= 0 || !S_ISDIR(st.st_mode) ? -2 : -1;
}

/* ---- manifests ---- */

int look_manifest(const struct folder *f, uint64_t inode, struct look_manifest *m)
{
    struct pairing_names n = pairing_names(inode);
    struct stat st;
    memset(m, 0, sizeof(*m));
    m->fd = open_in(f, n.manifest, &st);
    if (m->fd < 0 && errno == ENOENT)
        return 0;
    if (m->fd < 0)
        return report_errno(errno, "cannot open the manifest %s/%s", f->path, n.manifest);
    /* In this order: one that is being made gets its length before its bytes. */
    if (pread(m->fd, m->bytes, sizeof(m->bytes), 0) < 0 || fstat(m->fd, &st) < 0) {
        report_errno(errno, "cannot read the manifest %s/%s", f->path, n.manifest);
        look_manifest_close(m);
        return -1;
    }
    m->length = (uint64_t)st.st_size;
    m->found = manifest_read(m->bytes, &m->record, &m->copy);
    struct manifest_sizes sizes = {0};
    m->has_size = manifest_sizes(m->bytes, &sizes);
    m->size = sizes.size;
    m->growth = sizes.growth;
    m->shrunk = sizes.shrunk;
    return 1;
}

void look_manifest_close(struct look_manifest *m)
{
    if (m->fd >= 0)
        close(m->fd);
    m->fd = -1;
}

/* ---- words ---- */

static int by_page(const void *a, const void *b)
{
    const struct look_word *x = a, *y = b;
    return (x->page > y->page) - (x->page < y->page);
}

/* The words of one chunk, in the order of their pages if it is dense. Returns how many; -1. */
static int64_t read_chunk(int reflection, uint32_t format, uint64_t chunk,
                          struct look_word found[CHUNK_PAGES])
{
    uint64_t words[CHUNK_PAGES], pages[CHUNK_PAGES];
    const uint64_t each = layout_chunk(format);
    const int64_t n = meta_read(reflection, format, chunk * each, each, words, pages);
    int64_t count = n < 0 ? -1 : 0;
    for (int64_t i = 0; i < n; i++)
        if (words[i])
            found[count++] =
                (struct look_word){pages[i], words[i], chunk * each + (uint64_t)i, false};
    return count < 0 ? report_errno(errno, "cannot read the bitmaps of a reflection") : count;
}

/* All words of a sparse reflection, in the order of their pages. */
static int each_sparse(int reflection, uint64_t chunks, look_visit *visit, void *arg)
{
    struct look_word *all = NULL;
    uint64_t n = 0, room = 0;
    int64_t more = 0;
    FOR_EACH_META(chunk, reflection, LAYOUT_SPARSE, 0, chunks)
    {
        if (room - n < CHUNK_SPARSE) {
            room = 2 * room + CHUNK_SPARSE;
            struct look_word *longer = realloc(all, room * sizeof(*all));
            if (!longer) {
                free(all);
                return report_error(ENOMEM, "no memory for the bitmaps of a reflection");
            }
            all = longer;
        }
        more = read_chunk(reflection, LAYOUT_SPARSE, chunk, all + n);
        if (more < 0)
            break;
        n += (uint64_t)more;
    }
    if (n)
        qsort(all, n, sizeof(*all), by_page);
    for (uint64_t i = 0; more >= 0 && i < n; i++) {
        all[i].again = i && all[i].page == all[i - 1].page;
        visit(arg, &all[i]);
    }
    free(all);
    return more < 0 ? -1 : 0;
}

int look_each_word(int reflection, uint64_t length, uint32_t format, look_visit *visit, void *arg)
{
    const uint64_t chunks = layout_chunks(format, length);
    if (format == LAYOUT_SPARSE)
        return each_sparse(reflection, chunks, visit, arg);
    FOR_EACH_META(chunk, reflection, format, 0, chunks)
    {
        struct look_word found[CHUNK_PAGES];
        const int64_t n = read_chunk(reflection, format, chunk, found);
        if (n < 0)
            return -1;
        for (int64_t i = 0; i < n; i++)
            visit(arg, &found[i]);
    }
    return 0;
}

struct counting {
    struct look_words *words;
    uint64_t size;
};

static void count_word(void *arg, const struct look_word *at)
{
    const struct counting *c = arg;
    const uint64_t page = at->page, word = at->word;
    struct look_words *w = c->words;
    uint64_t pages = layout_pages(c->size), valid = ~0ull;
    if (at->again) {
        if (w->words_twice++ == 0)
            w->first_twice = page;
        return;
    }
    if (page >= pages) {
        if (w->words_beyond++ == 0)
            w->first_beyond = page;
        return;
    }
    if (page + 1 == pages && c->size % PAGE_BYTES)
        valid = bitmap_touched(0, (unsigned)(c->size % PAGE_BYTES));
    w->slices += bitmap_count(word & valid);
    w->pages++;
    w->slices_beyond += bitmap_count(word & ~valid);
}

int look_words(int reflection, uint64_t length, uint32_t format, uint64_t size,
               struct look_words *w)
{
    struct counting counting = {w, size};
    memset(w, 0, sizeof(*w));
    return look_each_word(reflection, length, format, count_word, &counting);
}

/* ---- which folder ---- */

/* The manifests that are looked for, one kind after the other, as lookup() does. */
enum wanted {
    OWN,    /* that is the file's: by its attribute, or without one, or on a copy, by its inode */
    ORPHAN, /* of a file that was restored */
    ANY     /* with the file's number: judge() finds out which file it belongs to */
};

static bool is_copied(const struct look *l)
{
    return l->has_attribute == ATTRIBUTE_FOUND && l->attribute.inode != l->identity.inode;
}

static bool is_own(const struct look *l, const struct look_manifest *m)
{
    if (l->has_attribute != ATTRIBUTE_FOUND || is_copied(l))
        return m->found == MANIFEST_VALID && identity_same_inode(&l->identity, &m->record);
    if (m->found != MANIFEST_VALID)
        return true; /* nothing tells that it is not */
    return memcmp(m->record.id, l->attribute.id, 16) == 0 && m->record.inode == l->identity.inode;
}

/* Looks in l->folder, and opens l->manifest. Returns 1; 0: there is none of that kind; -1. */
static int find_in_folder(struct look *l, enum wanted wanted)
{
    const struct orphan_of of = {&l->identity, l->path, l->fd, is_copied(l) ? &l->attribute : NULL};
    l->number = l->identity.inode;
    if (wanted == ORPHAN) {
        l->orphan = orphan_find(&l->folder, &of, &l->number);
        if (l->orphan == ORPHAN_FAILED || l->orphan == ORPHAN_NONE)
            return l->orphan;
        if (l->orphan == ORPHAN_SEVERAL)
            return 1; /* no one of them */
    }
    const int there = look_manifest(&l->folder, l->number, &l->manifest);
    if (there != 1 || wanted != OWN || is_own(l, &l->manifest))
        return there;
    look_manifest_close(&l->manifest);
    return 0;
}

/* Opens l->folder and l->manifest, if there is one. Returns 1; 0; -1: that cannot be told. A folder that is
 * refused is a problem of the file. */
static int find_manifest(struct look *l, enum wanted wanted)
{
    const struct attribute *told = l->has_attribute == ATTRIBUTE_FOUND ? &l->attribute : NULL;
    char place[PATH_MAX];
    for (unsigned i = 0; i < LOOKUP_PLACES; i++) {
        int there = lookup_place(l->path, told, secure_getenv("ATO_REFLECTION_DIR"), i, place);
        if (there == 1)
            there = look_folder(&l->folder, place);
        if (there == -2 && l->state != LOOK_DAMAGED)
            look_judge_as(l, LOOK_DAMAGED, 0, "%s", report_sentence());
        if (there == -1)
            return -1;
        if (there == 1 && (there = find_in_folder(l, wanted)) == 1)
            return 1;
        KEEP_ERRNO();
        folder_close(&l->folder);
        if (there == -1)
            return -1;
    }
    return 0;
}

static void open_reflection(struct look *l)
{
    struct pairing_names n = pairing_names(l->number);
    struct stat st;
    l->reflection = open_in(&l->folder, n.reflection, &st);
    l->reflection_error = l->reflection < 0 ? errno : 0;
    if (l->reflection < 0)
        return;
    l->reflection_length = (uint64_t)st.st_size;
    l->reflection_storage = (uint64_t)st.st_blocks * 512;
}

/* ---- looking ---- */

static void forget(struct look *l)
{
    look_manifest_close(&l->manifest);
    folder_close(&l->folder);
    if (l->reflection >= 0)
        close(l->reflection);
    l->reflection = -1;
    l->state = LOOK_PLAIN;
    l->orphan = ORPHAN_NONE;
    l->problem[0] = '\0';
    l->ways = 0;
    l->cut_growth = l->cut_shrink = l->bad_words = l->is_mixed = false;
    l->commits = 0;
    l->reflection_length = l->reflection_storage = 0;
    memset(&l->holders, 0, sizeof(l->holders));
}

/* Returns true if the manifest still is as it was read: then all that was seen meanwhile belongs together. */
static bool is_unchanged(const struct look *l)
{
    static char now[MANIFEST_BYTES];
    struct pairing_names n = pairing_names(l->number);
    struct stat st;
    if (l->manifest.fd < 0)
        return true;
    /* An unmap sets mtime, and then writes it to the manifest. */
    if (l->problem[0] && (fstat(l->fd, &st) < 0 || (uint64_t)st.st_size != l->identity.size ||
                          st.st_mtim.tv_sec != l->identity.mtime_sec ||
                          st.st_mtim.tv_nsec != l->identity.mtime_nsec))
        return false;
    memset(now, 0, sizeof(now));
    return folder_names(&l->folder, n.manifest, l->manifest.fd) == 1 &&
           pread(l->manifest.fd, now, sizeof(now), 0) >= 0 &&
           memcmp(now, l->manifest.bytes, sizeof(now)) == 0;
}

bool look_is_masked(int fd)
{
    char header[MASK_HEADER];
    return pread(fd, header, sizeof(header), 0) == sizeof(header) && mask_is_on(header);
}

/* Counts the commits that a dead process left. The next map recovers the file by these lanes, or refuses it. */
static void count_due(void *arg, const struct lanes *n)
{
    struct look *l = arg;
    struct lane_view v;
    const bool refused = l->state == LOOK_RECOVERY_DUE && n->error != EACCES;
    if (n->alive)
        return;
    if (n->error && refused)
        look_judge_as(l, LOOK_DAMAGED, 0, "%s", report_sentence());
    for (unsigned lane = 0; !n->error && lane < n->n; lane++) {
        const enum lane_finding found = lanes_look(n, lane, &v);
        l->commits += found == LANE_COMMITTED;
        if (found == LANE_DAMAGED && refused)
            look_judge_as(l, LOOK_DAMAGED, WAY_FILE | WAY_BRING_BACK, "lane %u of %s is damaged",
                          lane, n->path);
    }
}

static int look_once(struct look *l)
{
    struct stat st;
    if (identity_of(l->fd, &l->identity) < 0 || identity_path(l->fd, &l->identity, l->path) < 0)
        return -1;
    if (fstat(l->fd, &st) == 0)
        l->storage = (uint64_t)st.st_blocks * 512;
    l->has_attribute = attribute_read(l->fd, l->path, &l->attribute);
    if (l->has_attribute == ATTRIBUTE_BAD && errno != EUCLEAN)
        return -1;
    if (l->has_attribute == ATTRIBUTE_BAD) {
        look_judge_as(l, LOOK_DAMAGED, WAY_UNSET, "its attribute user.ato is damaged");
        return 0;
    }
    const bool carries = l->has_attribute == ATTRIBUTE_FOUND;
    int found = find_manifest(l, OWN);
    if (found == 0 && (!carries || is_copied(l)))
        found = find_manifest(l, ORPHAN);
    if (found == 0 && !carries)
        found = find_manifest(l, ANY);
    if (found < 0)
        return -1;
    /* Only lookup_place() needs to know where the path of its folder was cut. */
    char *const cut = carries ? strstr(l->attribute.folder, "//") : NULL;
    if (cut)
        memmove(cut, cut + 1, strlen(cut));
    if (is_copied(l) && l->manifest.fd < 0) {
        look_judge_as(l, LOOK_COPIED, WAY_COPY_AGAIN | WAY_FILE,
                      "carries the attribute of the file with inode %" PRIu64
                      ", from which it was copied or moved while that was not plain: parts of the "
                      "content may be in that file's reflection only",
                      l->attribute.inode);
        return 0;
    }
    if (l->manifest.fd >= 0) {
        open_reflection(l);
        const int error = l->reflection_error;
        if (error == EMFILE || error == ENFILE || error == ENOMEM || error == EIO)
            return report_errno(error, "cannot open the reflection %s/%" PRIu64, l->folder.path,
                                l->identity.inode);
        if (look_holders(&l->manifest, &l->holders) < 0)
            return -1;
    }
    if (l->state != LOOK_DAMAGED)
        look_judge(l);
    if (l->state == LOOK_IN_USE || l->state == LOOK_RECOVERY_DUE)
        lanes_each(&l->folder, &l->manifest, count_due, l);
    if (l->state == LOOK_PLAIN && look_is_masked(l->fd))
        look_judge_as(l, LOOK_COPIED, WAY_COPY_AGAIN | WAY_FILE,
                      "is a copy of an SQLite database, made while libato held that: parts of the "
                      "content may be in "
                      "the reflection of the other file only");
    return 0;
}

int look_at(struct look *l, const char *name)
{
    memset(l, 0, sizeof(*l));
    l->folder.fd = l->reflection = l->manifest.fd = -1;
    l->fd = look_open(name, O_RDONLY);
    if (l->fd < 0)
        return errno == EINVAL ? report_error(EINVAL, "no regular file")
                               : report_errno(errno, "cannot open it");
    enum look_state before = LOOK_PLAIN;
    int times = 0;
    for (int i = 0; i < 20; i++) {
        forget(l);
        int r = look_once(l);
        if (r < 0 && errno == EACCES)
            i = 2; /* it will not change */
        /* What looks wrong may have been changed between two looks at it (the attribute and the
         * manifest, say); and a manifest that is just made is locked a moment later. */
        bool odd = l->problem[0] || (l->state == LOOK_BORN && !l->holders.attaching);
        times = odd && r == 0 && before == l->state ? times + 1 : 1;
        before = l->state;
        if (r == 0 && (!odd || times == 3) && is_unchanged(l))
            return 0;
        if (r < 0 && i == 2) {
            KEEP_ERRNO();
            look_close(l);
            return -1;
        }
        /* Other processes are mapping or unmapping it: try again. */
        nanosleep(&(struct timespec){.tv_nsec = 3 * 1000 * 1000}, NULL);
    }
    /* It changed all the time: a process is at work on it, and what was read does not belong together. */
    if (l->holders.count && l->manifest.found == MANIFEST_VALID) {
        l->state = LOOK_IN_USE;
        l->problem[0] = '\0';
        l->ways = 0;
    }
    return 0;
}

void look_close(struct look *l)
{
    forget(l);
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
}
