/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/file/place.h"

#include "reflection/media/report.h"
#include "reflection/pairing/meta.h"

#include <errno.h>

static struct layout_entry *entry_of(const struct file *f, uint64_t place)
{
    uint64_t *word = (uint64_t *)(f->r + layout_word(LAYOUT_SPARSE, place));
    return (struct layout_entry *)(word - 1);
}

/* ---- the index ---- */

/* An entry of the index: page + 1, and the place. 0: none. Both fit: see LAYOUT_MAX_BYTES. */
#define INDEX_PAGE(entry)  (((entry) / LAYOUT_PLACES) - 1)
#define INDEX_PLACE(entry) ((entry) % LAYOUT_PLACES)

/* Where the search for a page begins. */
static uint64_t index_hash(const struct file *f, uint64_t page)
{
    return page * 0x9e3779b97f4a7c15ull >> (64 - f->shared.index_bits);
}

/* Returns the entry of a page, or the free one where it would be. NULL: there is neither, in a damaged index (shared memory is not
 * trusted). */
static uint64_t *index_look(const struct file *f, uint64_t page)
{
    const uint64_t n = 1ull << f->shared.index_bits, from = index_hash(f, page);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t *at = &f->shared.index[(from + i) % n];
        const uint64_t entry = __atomic_load_n(at, __ATOMIC_RELAXED);
        if (!entry || INDEX_PAGE(entry) == page)
            return at;
    }
    return NULL;
}

static int add(const struct file *f, uint64_t place, uint64_t page, uint64_t word, uint64_t size)
{
    if (word && (page >= layout_pages(size) || word & ~bitmap_within(page, size)))
        return report_error(
            EUCLEAN,
            "the reflection of %s has a bitmap of page %llu, with slices beyond the "
            "end of the file, in place %llu",
            f->pairing.path, (unsigned long long)page, (unsigned long long)place);
    if (page >= layout_pages(LAYOUT_MAX_BYTES))
        return 0;
    uint64_t *at = index_look(f, page), other = 0;
    if (!at)
        return report_error(EUCLEAN,
                            "the shared memory of %s is damaged: it has no place for page %llu",
                            f->pairing.path, (unsigned long long)page);
    if (*at && file_read_words(f, INDEX_PLACE(*at), 1, &other, NULL) < 0)
        return -1;
    if (*at && word && other)
        return report_error(EUCLEAN,
                            "the reflection of %s has two bitmaps of page %llu, in places %llu and "
                            "%llu",
                            f->pairing.path, (unsigned long long)page,
                            (unsigned long long)INDEX_PLACE(*at), (unsigned long long)place);
    if (!*at || word)
        *at = (page + 1) * LAYOUT_PLACES + place;
    return 0;
}

int place_build(struct file *f, uint64_t size)
{
    uint64_t words[CHUNK_SPARSE], pages[CHUNK_SPARSE];
    uint64_t empty = FILE_NO_PLACE; /* the first entry that was never used, or is of page 0 */
    uint64_t next = 0, used = 0;    /* the first place, and chunk, that was never used */
    const int fd = f->pairing.reflection;
    const uint64_t places = f->sparse ? file_places(f, size) : 0;
    if (!f->sparse)
        return 0;
    if (places == UINT64_MAX)
        return -1;
    FOR_EACH_META(chunk, fd, LAYOUT_SPARSE, 0, places / CHUNK_SPARSE)
    {
        used = chunk + 1;
    }
    if (shared_make_index(&f->shared, used * CHUNK_SPARSE) < 0)
        return -1;
    for (uint64_t chunk = 0; chunk < used;) {
        const uint64_t first = chunk * CHUNK_SPARSE;
        uint64_t unused = FILE_NO_PLACE;
        if (file_read_words(f, first, CHUNK_SPARSE, words, pages) < 0)
            return -1;
        for (uint64_t i = 0; i < CHUNK_SPARSE; i++)
            __builtin_prefetch(&f->shared.index[index_hash(f, pages[i])], 1);
        for (uint64_t i = 0; i < CHUNK_SPARSE; i++) {
            if (!pages[i] && !words[i]) {
                unused = lesser(unused, first + i);
                continue;
            }
            next = first + i + 1;
            if (add(f, first + i, pages[i], words[i], size) < 0)
                return -1;
        }
        chunk++;
        /* Behind one with data there is most probably another one: to look for it takes as long as to read it. One without may be
         * a hole, which has no space for an entry. */
        if (next > first)
            empty = lesser(empty, unused);
        else
            chunk = meta_next(fd, LAYOUT_SPARSE, chunk, used);
    }
    f->shared.header->next_place = next;
    return empty < next ? add(f, empty, 0, 0, size) : 0;
}

/* ---- the place of a page ---- */

uint64_t place_find(const struct file *f, uint64_t page)
{
    if (!f->sparse)
        return page;
    const uint64_t noted = f->shared.places ? file_place(f, page) : FILE_NO_PLACE;
    const uint64_t *at =
        noted == FILE_NO_PLACE && f->shared.index_bits ? index_look(f, page) : NULL;
    const uint64_t entry = at ? __atomic_load_n(at, __ATOMIC_RELAXED) : 0;
    return entry ? INDEX_PLACE(entry) : noted;
}

static void note(const struct file *f, const struct page_state *s, uint64_t place)
{
    if (s) /* a page that is held has one; but shared memory is not trusted */
        shared_note_place(&f->shared, s, place);
}

int place_load(struct file *f, uint64_t page, struct page_state *s, uint64_t **at)
{
    *at = NULL;
    if (!f->sparse) {
        if (__atomic_load_n(&f->chunks[page / CHUNK_PAGES], __ATOMIC_RELAXED) & CHUNK_META_WORDS)
            *at = file_homes_of(f, page, s).word;
        return 0;
    }
    const uint64_t place = place_find(f, page);
    if (place == FILE_NO_PLACE)
        return 0;
    uint64_t word, of;
    const int64_t n = meta_read(f->pairing.reflection, LAYOUT_SPARSE, place, 1, &word, &of);
    if (n < 1)
        return report_errno(n < 0 ? errno : ESTALE,
                            "cannot read the entry of place %llu of the reflection of %s%s",
                            (unsigned long long)place, f->pairing.path,
                            n < 0 ? "" : ", which was truncated by another program");
    if (of != page) /* I5 */
        return report_error(EUCLEAN, "place %llu of the reflection of %s is not of page %llu",
                            (unsigned long long)place, f->pairing.path, (unsigned long long)page);
    note(f, s, place);
    *at = &entry_of(f, place)->bitmap;
    return 0;
}

/* ---- a page for a place ---- */

uint64_t place_page(const struct file *f, uint64_t place)
{
    return __atomic_load_n(&entry_of(f, place)->page, __ATOMIC_RELAXED);
}

int place_give(struct file *f, uint64_t page, uint64_t n, const uint64_t *places)
{
    uint64_t *last = NULL;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t *number = &entry_of(f, places[i])->page;
        if (file_place(f, page + i) == places[i])
            continue;
        if (last && !persist_shares_flush(last, number) &&
            persist_flush_word(&f->persist, last) < 0)
            return -1;
        /* explorer: tear word survives: the entry has bitmap 0, so half of a number gives some page a second place, which
         * nobody uses as long as that page has a bitmap elsewhere. */
        persist_store_word(&f->persist, number, page + i);
        last = number;
    }
    if (!last)
        return 0;
    if (persist_flush_word(&f->persist, last) < 0)
        return -1;
    /* persist-order E2 (readers: place_build; R1 replay_apply): the page number is durable before a word, or a lane that names the
     * word, makes slices valid; and before it is noted in memory, where another process finds it after a kill and commits without a
     * claim of its own. I1. */
    persist_fence(&f->persist);
    for (uint64_t i = 0; i < n; i++)
        note(f, shared_peek(&f->shared, page + i), places[i]);
    return 0;
}
