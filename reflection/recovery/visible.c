/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/recovery/visible.h"

#include "reflection/format/layout.h"
#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/recovery/pool.h"

#include <errno.h>
#include <stdlib.h>

const struct visible_memory *visible_memory;

static int join(const struct participants *n, const struct participants_file *file, void **memory)
{
    enum locks_answer lives = locks_ask(file->lock, 1, MANIFEST_SLOTS);
    *memory = NULL;
    if (lives == LOCKS_FAILED)
        return report_errno(errno, "cannot ask for the locks of the manifest %s/%s.manifest",
                            n->journal->folder->path, file->name);
    return visible_memory->join(memory, &file->record, &file->owner, lives == LOCKS_TAKEN);
}

static void leave(void *memory)
{
    if (memory)
        visible_memory->leave(memory);
}

int visible_begin(struct visible *v, const struct participants *n)
{
    void *memory;
    *v = (struct visible){.named = NULL};
    if (!visible_memory || !n->held || !n->held->next ||
        !pool_process(n->journal->name, &v->process))
        return 0;
    for (const struct participants_file *file = n->held; file; file = file->next) {
        if (join(n, file, &memory) < 0)
            return -1;
        leave(memory);
    }
    v->named = n;
    return 0;
}

void visible_end(struct visible *v)
{
    for (unsigned i = 0; i < VISIBLE_KEPT; i++)
        leave(v->kept[i].memory);
    *v = (struct visible){.named = NULL};
}

/* Opens the shared memory of a file, and keeps a few open at a time: each takes much address space. */
static int memory_of(struct visible *v, const struct participants_file *file, void **memory)
{
    for (unsigned i = 0; i < VISIBLE_KEPT; i++)
        if (v->kept[i].file == file) {
            *memory = v->kept[i].memory;
            return 0;
        }
    if (join(v->named, file, memory) < 0)
        return -1;
    const unsigned at = v->next++ % VISIBLE_KEPT;
    leave(v->kept[at].memory);
    v->kept[at].file = file;
    v->kept[at].memory = *memory;
    return 0;
}

enum step { HIDE, FLIP, REVEAL };

static void do_page(const struct visible *v, void *memory, enum step step, uint64_t page,
                    uint64_t bitmap)
{
    switch (step) {
    case HIDE:
        visible_memory->hide(memory, v->process, page);
        break;
    case FLIP:
        visible_memory->flip(memory, v->process, page, bitmap);
        break;
    case REVEAL:
        visible_memory->reveal(memory, v->process, page);
    }
}

/* Each word of the lane is copied and checked, since a user that may write to the journal could change it
 * now. */
static int do_words(struct visible *v, const struct journal_view *lane,
                    const struct participants_file *const *files, enum step step)
{
    void *memory;
    for (uint64_t i = 0; i < lane->nwords; i++) {
        const struct journal_word w = *(const volatile struct journal_word *)&lane->words[i];
        const unsigned index = journal_word_file(&w);
        const uint64_t offset = journal_word_offset(&w);
        const struct participants_file *file = index < lane->nfiles ? files[index] : NULL;
        if (!file || file->sized || journal_word_is_size(&w) ||
            !layout_is_word(offset, file->bytes))
            continue;
        if (memory_of(v, file, &memory) < 0)
            return -1;
        if (memory)
            do_page(v, memory, step, layout_page_of_word(offset), w.value);
    }
    return 0;
}

/* For files with a new size: hides all that the process held of them. */
static int hide_sized(struct visible *v, const struct journal_view *lane,
                      const struct participants_file *const *files)
{
    void *memory;
    for (unsigned i = 0; i < lane->nfiles; i++) {
        if (!files[i] || !files[i]->sized)
            continue;
        if (memory_of(v, files[i], &memory) < 0)
            return -1;
        if (memory)
            visible_memory->hide_all(memory, v->process);
    }
    return 0;
}

/* The files of a lane that words are replayed to; NULL for the others. *several: more than one. Returns NULL
 * with a sentence on failure. */
static const struct participants_file **files_of(const struct visible *v,
                                                 const struct journal_view *lane, bool *several)
{
    const struct participants_file **files =
        calloc(lane->nfiles + 1, sizeof(struct participants_file *));
    unsigned held = 0;
    if (!files)
        report_error(ENOMEM, "no memory to replay a journal");
    for (unsigned i = 0; files && i < lane->nfiles; i++) {
        const struct participants_file *file = participants_find(v->named, &lane->files[i]);
        files[i] = file && file->map ? file : NULL;
        held += files[i] != NULL;
    }
    *several = held > 1;
    return files;
}

int visible_hide(struct visible *v, const struct journal_view *lane)
{
    bool several;
    int r = 0;
    if (!v->named)
        return 0;
    const struct participants_file **files = files_of(v, lane, &several);
    if (!files)
        return -1;
    if (several && ((r = hide_sized(v, lane, files)) == 0))
        r = do_words(v, lane, files, HIDE);
    free(files);
    return r;
}

void visible_show(struct visible *v, const struct journal_view *lane)
{
    bool several;
    const struct participants_file **files = v->named ? files_of(v, lane, &several) : NULL;
    if (files && several && do_words(v, lane, files, FLIP) == 0)
        (void)do_words(v, lane, files, REVEAL);
    free(files);
}
