/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/commit/journals_entry.h"

#include "reflection/media/report.h"
#include "reflection/recovery/pointer.h"
#include "reflection/recovery/way.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

int journals_entry_key(const struct file *f, struct journal_key *k)
{
    const struct identity *identity = &f->pairing.identity;
    if (fstat(f->pairing.folder.fd, &k->folder) < 0)
        return report_errno(errno, "cannot look at %s", f->pairing.folder.path);
    /* No permission to read: a user that may only read could lock the journal and block all others. */
    k->like =
        (struct trust){identity->owner, identity->group, ownership_writers(identity->mode & 0666)};
    return 0;
}

bool journals_entry_matches(const struct journals *j, const struct journal_key *k,
                            const struct file *f)
{
    return j->device == k->folder.st_dev && j->inode == k->folder.st_ino &&
           j->like.owner == k->like.owner && j->like.group == k->like.group &&
           j->like.mode == k->like.mode && j->pool.journal.domain == f->persist.domain;
}

bool journals_entry_has_room(const struct journals *j, struct file *const *files, unsigned n)
{
    struct {
        dev_t device;
        ino_t inode;
    } known[1 + JOURNAL_FOLDERS]; /* the journal's own first */
    unsigned count = 0, places = j ? j->nplaces : 0;
    if (places + n - 1 <= JOURNAL_FOLDERS)
        return true;
    if (j) {
        known[count].device = j->device;
        known[count++].inode = j->inode;
    }
    for (unsigned i = 0; i < places; i++, count++) {
        known[count].device = j->places[i].device;
        known[count].inode = j->places[i].inode;
    }
    for (unsigned i = 0; i < n; i++) {
        struct stat st;
        unsigned k = 0;
        if (fstat(files[i]->pairing.folder.fd, &st) < 0)
            return false;
        while (k < count && (known[k].device != st.st_dev || known[k].inode != st.st_ino))
            k++;
        if (k < count)
            continue;
        if (count == 1 + JOURNAL_FOLDERS)
            return false;
        known[count].device = st.st_dev;
        known[count++].inode = st.st_ino;
    }
    return true;
}

static int copy_folder(struct folder *to, const struct folder *from)
{
    memcpy(to->path, from->path, sizeof(to->path));
    to->fd = fcntl(from->fd, F_DUPFD_CLOEXEC, 3);
    return to->fd < 0 ? report_errno(errno, "cannot duplicate a descriptor") : 0;
}

/* Returns the capacity of a new journal: the usual one, or if `words` is more a power of two, so that later
 * commits of that size fit, too. */
static uint64_t choose_words(uint64_t words)
{
    uint64_t n = JOURNAL_WORDS;
    if (words > n)
        for (n = 1; n < words;)
            n *= 2;
    return n;
}

struct journals *journals_entry_make(struct file *f, const struct journal_key *k, uint64_t words)
{
    struct journals *j = calloc(1, sizeof(*j));
    if (!j) {
        report_error(ENOMEM, "no memory for a journal");
        return NULL;
    }
    j->device = k->folder.st_dev;
    j->inode = k->folder.st_ino;
    j->like = k->like;
    pthread_mutex_init(&j->medium, NULL);
    if (copy_folder(&j->folder, &f->pairing.folder) == 0 &&
        pool_create(&j->pool, &j->folder, &f->persist, choose_words(words), &j->like) == 0)
        return j;
    int saved = errno;
    folder_close(&j->folder);
    free(j);
    errno = saved;
    return NULL;
}

void journals_entry_free(struct journals *j)
{
    for (unsigned k = 0; k < j->nplaces; k++)
        folder_close(&j->places[k].folder);
    free(j->places);
    folder_close(&j->folder);
    free(j);
}

/* persist-order J6 (reader: recover_is_due, of a pointer that leads nowhere): the pointers are durably
 * removed before the journal is. So a pointer without its journal says that a journal was lost. */
bool journals_entry_remove_pointers(struct journals *j)
{
    bool gone = true;
    for (unsigned k = 0; k < j->nplaces; k++)
        if (pointer_remove(&j->places[k].folder, j->pool.name) < 0)
            gone = false;
    return gone;
}

/* Writes entry k of the folder table, as journals_step() runs its steps. */
static int name_folder(struct journals *j, const struct file *f, unsigned k,
                       const struct route *there)
{
    if (f->persist.domain != PERSIST_MSYNC)
        return journal_name_folder(&j->pool.journal, &f->persist, k, there);
    pthread_mutex_lock(&j->medium);
    int r = j->failed ? -1 : journal_name_folder(&j->pool.journal, &f->persist, k, there);
    if (r < 0 && errno != ENAMETOOLONG) {
        __atomic_store_n(&j->failed, true, __ATOMIC_RELAXED);
        errno = EIO;
    }
    pthread_mutex_unlock(&j->medium);
    return r;
}

/* Returns the place of a folder, which has its entry in the folder table; makes both if need be. NULL with
 * errno. */
static struct place *place(struct journals *j, const struct file *f, const struct stat *folder)
{
    for (unsigned k = 0; k < j->nplaces; k++)
        if (j->places[k].device == folder->st_dev && j->places[k].inode == folder->st_ino)
            return &j->places[k];
    const char *path = f->pairing.folder.path;
    struct place *more = realloc(j->places, (j->nplaces + 1) * sizeof(*more));
    if (!more) {
        report_error(ENOMEM, "no memory for a journal");
        return NULL;
    }
    j->places = more;
    struct place *p = &more[j->nplaces];
    *p = (struct place){.device = folder->st_dev, .inode = folder->st_ino};
    if (copy_folder(&p->folder, &f->pairing.folder) < 0)
        return NULL;
    struct route there;
    route_make(&there, &j->folder, &p->folder);
    there.inode = folder->st_ino;
    if (name_folder(j, f, j->nplaces + 1, &there) < 0) {
        report_errno(errno, "cannot name the folder %s in the journal %s/%s", path, j->folder.path,
                     j->pool.name);
        folder_close(&p->folder);
        return NULL;
    }
    j->nplaces++;
    return p;
}

int journals_entry_reach(struct journals *j, const struct file *f, const struct stat *folder)
{
    if (folder->st_dev == j->device && folder->st_ino == j->inode)
        return 0;
    struct place *p = place(j, f, folder);
    if (!p)
        return -1;
    const unsigned index = (unsigned)(p - j->places) + 1;
    struct route back;
    /* persist-order J5 (reader: recover_folder): the pointer is durable before the first commit that names a
     * file of its folder. Otherwise the file could be used before that commit is finished. */
    if (!p->pointed) {
        route_make(&back, &p->folder, &j->folder);
        if (pointer_make(&p->folder, j->pool.name, index, &back, &f->persist, &j->like) < 0)
            return -1;
        p->pointed = true;
    }
    return (int)index;
}
