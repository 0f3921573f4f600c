/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/format/manifest.h"

#include "reflection/format/checksum.h"
#include "reflection/format/layout.h"

#include <string.h>

static enum manifest_finding look_at(const uint8_t *copy, struct manifest_record *r)
{
    memcpy(r, copy, sizeof(*r));
    if (r->magic != MANIFEST_MAGIC ||
        r->checksum != checksum(r, offsetof(struct manifest_record, checksum)))
        return MANIFEST_DAMAGED;
    if (r->version != MANIFEST_VERSION || (r->format > LAYOUT_SPARSE && r->format != LAYOUT_LOG))
        return MANIFEST_FOREIGN;
    if (r->domain < PERSIST_PMEM || r->domain > PERSIST_PROCESS || r->state < MANIFEST_IN_USE ||
        r->state > MANIFEST_DEPLOYED || r->guard.bytes > MANIFEST_GUARD_MAX ||
        r->guard.offset > LAYOUT_MAX_BYTES || r->clean_size > LAYOUT_MAX_BYTES)
        return MANIFEST_DAMAGED;
    return MANIFEST_VALID;
}

/* Returns true if there are only zeros, except for parts of a first copy A and of the words. */
static bool never_used(const uint8_t *b)
{
    static const uint8_t zeros[MANIFEST_BYTES];
    const size_t record = sizeof(struct manifest_record), words = MANIFEST_SHRINK_WORD + 8;
    return memcmp(b + record, zeros, MANIFEST_SIZE_WORD - record) == 0 &&
           memcmp(b + words, zeros, MANIFEST_BYTES - words) == 0;
}

enum manifest_finding manifest_read(const void *bytes, struct manifest_record *record, int *which)
{
    const uint8_t *b = bytes;
    struct manifest_record copies[2];
    enum manifest_finding found[2];
    for (int i = 0; i < 2; i++)
        found[i] = look_at(b + i * MANIFEST_COPY_BYTES, &copies[i]);
    *which = 1;
    /* A newer version may have left one copy in a format that this one reads: it must not be used. */
    if (found[0] == MANIFEST_FOREIGN || found[1] == MANIFEST_FOREIGN) {
        *record = copies[found[0] == MANIFEST_FOREIGN ? 0 : 1];
        return MANIFEST_FOREIGN;
    }
    if (found[0] != MANIFEST_VALID && found[1] != MANIFEST_VALID) {
        memset(record, 0, sizeof(*record));
        return never_used(b) ? MANIFEST_UNBORN : MANIFEST_DAMAGED;
    }
    if (found[0] == MANIFEST_VALID)
        *which =
            found[1] == MANIFEST_VALID && (int64_t)(copies[1].sequence - copies[0].sequence) > 0;
    *record = copies[*which];
    return MANIFEST_VALID;
}

const char *manifest_advice(uint32_t version)
{
    return version < MANIFEST_VERSION
               ? "an older libato made it: make the file plain with that one ('ato deploy'), then "
                 "use this one"
               : "a newer libato made it: use that one";
}

int manifest_write(const struct persist *p, void *bytes, struct manifest_record *record, int *which)
{
    record->magic = MANIFEST_MAGIC;
    record->version = MANIFEST_VERSION;
    record->sequence++;
    record->checksum = checksum(record, offsetof(struct manifest_record, checksum));
    int other = !*which;
    char *copy = (char *)bytes + other * MANIFEST_COPY_BYTES;
    /* persist-order M1 (reader: manifest_read after a crash): the record is durable before the caller acts on
     * the state in it. The checksum covers all of it, so its parts need no order; the other copy holds until
     * this one is complete. */
    persist_copy(p, copy, record, sizeof(*record));
    if (persist_flush_data(p, copy, sizeof(*record)) < 0)
        return -1;
    persist_fence(p);
    *which = other;
    return 0;
}

/* CRC-16/CCITT of the 48 bits. It is not 0 for size 0, so a word that was never written is not a
 * valid size. */
static uint16_t size_check(uint64_t size)
{
    uint16_t crc = 0xffff;
    for (int i = 0; i < 48; i++) {
        uint16_t top = (uint16_t)((crc >> 15) ^ ((size >> (47 - i)) & 1));
        crc = (uint16_t)(crc << 1);
        if (top & 1)
            crc ^= 0x1021;
    }
    return crc;
}

uint64_t manifest_encode_size(uint64_t size)
{
    return (size & 0xffffffffffffull) | (uint64_t)size_check(size) << 48;
}

bool manifest_decode_size(uint64_t word, uint64_t *size)
{
    *size = word & 0xffffffffffffull;
    return manifest_encode_size(*size) == word && *size <= LAYOUT_MAX_BYTES;
}

bool manifest_sizes(const void *bytes, struct manifest_sizes *sizes)
{
    const uint64_t *at = (const uint64_t *)((const char *)bytes + MANIFEST_SIZE_WORD);
    uint64_t words[3]; /* each loaded at once: other processes may store to them */
    for (int i = 0; i < 3; i++)
        words[i] = __atomic_load_n(&at[i], __ATOMIC_ACQUIRE);
    sizes->growth = sizes->shrunk = 0;
    if (!manifest_decode_size(words[0], &sizes->size) ||
        (words[1] && !manifest_decode_size(words[1], &sizes->growth)) ||
        (words[2] && !manifest_decode_size(words[2], &sizes->shrunk)))
        return false;
    if (sizes->shrunk <= sizes->size)
        sizes->shrunk = 0;
    return true;
}
