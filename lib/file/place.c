/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/file/place.h"

#include "lib/file/page.h"
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

uint64_t place_count(const struct file *f)
{
    const uint64_t places = file_places(f, 0), chunks = places / CHUNK_SPARSE;
    uint64_t some = 0,
             none = chunks; /* up to here there are meta pages; from here on there are none */
    if (places == UINT64_MAX)
        return UINT64_MAX;
    while (some < none) {
        const uint64_t middle = (some + none) / 2;
        if (meta_next(f->pairing.reflection, LAYOUT_SPARSE, middle, chunks) < chunks)
            some = middle + 1;
        else
            none = middle;
    }
    return some * CHUNK_SPARSE;
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

int place_build(const struct file *f, uint64_t places, uint64_t size, uint64_t *next)
{
    uint64_t words[CHUNK_SPARSE], pages[CHUNK_SPARSE];
    uint64_t empty = FILE_NO_PLACE; /* the first entry that was never used, or is of page 0 */
    const uint64_t chunks = places / CHUNK_SPARSE;
    *next = 0;
    for (uint64_t chunk = 0; chunk < chunks;) {
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
            *next = first + i + 1;
            if (add(f, first + i, pages[i], words[i], size) < 0)
                return -1;
        }
        chunk++;
        /* Behind one with data there is most probably another one: to look for it takes as long as to read it. One without may be
         * a hole, which has no space for an entry. */
        if (*next > first)
            empty = lesser(empty, unused);
        else
            chunk = meta_next(f->pairing.reflection, LAYOUT_SPARSE, chunk, chunks);
    }
    return empty < *next ? add(f, empty, 0, 0, size) : 0;
}

/* ---- the place of a page ---- */

uint64_t place_find(const struct file *f, uint64_t page)
{
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

uint64_t *place_load(struct file *f, uint64_t page, struct page_state *s, int *r)
{
    const uint64_t place = place_find(f, page);
    if (place == FILE_NO_PLACE)
        return NULL;
    uint64_t word, of;
    const int64_t n = meta_read(f->pairing.reflection, LAYOUT_SPARSE, place, 1, &word, &of);
    if (n < 1) {
        *r = report_errno(n < 0 ? errno : ESTALE,
                          "cannot read the entry of place %llu of the reflection of %s%s",
                          (unsigned long long)place, f->pairing.path,
                          n < 0 ? "" : ", which was truncated by another program");
        return NULL;
    }
    /* The index says how it was when it was made: the page had this place, and has lost it (space_forget()). */
    if (of != page && file_place_of(f, page, s) == FILE_NO_PLACE)
        return NULL;
    if (of != page) { /* I5 */
        *r = report_error(EUCLEAN, "place %llu of the reflection of %s is not of page %llu",
                          (unsigned long long)place, f->pairing.path, (unsigned long long)page);
        return NULL;
    }
    note(f, s, place);
    return &entry_of(f, place)->bitmap;
}

/* ---- another page for a place ---- */

uint64_t place_page(const struct file *f, uint64_t place)
{
    return __atomic_load_n(&entry_of(f, place)->page, __ATOMIC_RELAXED);
}

/* What file.spares has: place + 1, and whether the place has space; first those that have. */
#define SPARE(place, has_space) ((uint32_t)((place) + 1) << 1 | (has_space))
#define SPARE_PLACE(spare)      ((uint64_t)((spare) >> 1) - 1)

bool place_has_spares(const struct file *f, uint64_t n)
{
    const uint64_t want = lesser(n, FILE_SPARES / 2);
    uint64_t have = 0;
    for (unsigned i = 0; i < FILE_SPARES / 2 && have < want; i++)
        have += __atomic_load_n(&f->spares[i], __ATOMIC_RELAXED) & 1;
    return have >= want;
}

void place_spare(struct file *f, uint64_t page)
{
    const struct page_state *s = shared_peek(&f->shared, page);
    const uint64_t place = file_place_of(f, page, s);
    if (place == FILE_NO_PLACE)
        return;
    const bool has_space = __atomic_load_n(&s->flags, __ATOMIC_RELAXED) & PAGE_R_ALLOCATED;
    const uint32_t spare = SPARE(place, has_space);
    const unsigned begin = has_space ? 0 : FILE_SPARES / 2;
    for (unsigned i = begin; i < begin + FILE_SPARES / 2; i++) {
        uint32_t is = __atomic_load_n(&f->spares[i], __ATOMIC_RELAXED);
        if (is == spare || (!is && __atomic_compare_exchange_n(&f->spares[i], &is, spare, false,
                                                               __ATOMIC_RELAXED, __ATOMIC_RELAXED)))
            break;
    }
}

/* Gives the held page the entry of a place whose own page is held too, and has lost the note of it. Returns 0; -1 with EIO. */
static int hand_over(struct file *f, uint64_t place, uint64_t page, const struct page_state *s)
{
    uint64_t *number = &entry_of(f, place)->page;
    /* explorer: tear word survives: as in place_give(). */
    persist_store_word(&f->persist, number, page);
    if (file_flush_word(f, number) < 0)
        return -1;
    /* E2: another thread may write to that page at once. (places.pml, MUTANT_NO_HAND_E2)
     * explorer: drop fence survives: its threads do not get that page, allocate space and commit before place_give() fences.
     * explorer: delay fence survives: for the same reason. */
    persist_fence(&f->persist);
    note(f, s, place);
    return 0;
}

static void set_flags(struct page_state *s, uint8_t flags)
{
    __atomic_store_n(&s->flags, flags, __ATOMIC_RELEASE);
}

/* Takes a place from its page, which gets the place of the taker's page, held and with that state, instead. Returns false if the page
 * needs it, or somebody holds it. */
static bool take(struct file *f, uint64_t place, uint64_t page, struct page_state *taker,
                 bool *has_space)
{
    const uint64_t other = place_page(f, place);
    struct page_state *s = other < f->shared.capacity ? shared_peek(&f->shared, other) : NULL;
    const uint64_t own = file_place_of(f, page, taker);
    if (!s || !page_try_reserve(f, s))
        return false;
    /* Otherwise another thread has taken it since. Version 0: it may have a bitmap on the media. */
    bool may =
        file_place_of(f, other, s) == place && s->version && !s->bitmap && !file_is_poisoned(f);
    const bool space = s->flags & PAGE_R_ALLOCATED;
    if (may) {
        /* First: after a kill in between, nobody takes it that there is space where there is no place. */
        set_flags(s, s->flags & (uint8_t) ~(PAGE_R_ALLOCATED | PAGE_R_BARE));
        note(f, s, FILE_NO_PLACE);
    }
    /* First the note goes, then the entry: a takeover believes the notes. */
    if (may && own != FILE_NO_PLACE) {
        note(f, taker, FILE_NO_PLACE);
        may = hand_over(f, own, other, s) == 0;
        set_flags(s, s->flags | (taker->flags & PAGE_R_BARE));
    }
    if (may) {
        set_flags(taker, taker->flags & (uint8_t)~PAGE_R_BARE);
        *has_space = space;
    }
    page_release(s);
    return may;
}

uint64_t place_take_spare(struct file *f, uint64_t page, bool *has_space)
{
    struct page_state *s = shared_peek(&f->shared, page);
    if (!s || s->bitmap) /* it needs its own */
        return FILE_NO_PLACE;
    for (unsigned i = 0; i < FILE_SPARES; i++) {
        const uint32_t spare = __atomic_load_n(&f->spares[i], __ATOMIC_RELAXED)
                                   ? __atomic_exchange_n(&f->spares[i], 0, __ATOMIC_RELAXED)
                                   : 0;
        if (spare && take(f, SPARE_PLACE(spare), page, s, has_space))
            return SPARE_PLACE(spare);
    }
    return FILE_NO_PLACE;
}

int place_give(struct file *f, uint64_t page, uint64_t n, const uint64_t *places)
{
    uint64_t *last = NULL;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t *number = &entry_of(f, places[i])->page;
        if (file_place(f, page + i) == places[i])
            continue;
        if (last && !persist_shares_flush(&f->persist, last, number) &&
            file_flush_word(f, last) < 0)
            return -1;
        /* explorer: tear word survives: the entry has bitmap 0, so half of a number gives some page a second place, which
         * nobody uses as long as that page has a bitmap elsewhere. */
        persist_store_word(&f->persist, number, page + i);
        last = number;
    }
    if (!last)
        return 0;
    if (file_flush_word(f, last) < 0)
        return -1;
    /* persist-order E2 (readers: place_build; R1 replay_apply): the page number is durable before anything is stored to the RefPage:
     * after a power cut the entry's earlier page may have its slices there again, if its last word was visible and not durable; and
     * before a word, or a lane that names the word, makes slices valid; and before it is noted in memory, where another process
     * finds it after a kill and commits without a claim of its own. I1. */
    persist_fence(&f->persist);
    for (uint64_t i = 0; i < n; i++)
        note(f, shared_peek(&f->shared, page + i), places[i]);
    return 0;
}
