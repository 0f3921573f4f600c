/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/api/options.h"

#include "lib/file/undo.h"
#include "lib/page/reservation.h"
#include "reflection/format/layout.h"
#include "reflection/media/domain.h"
#include "reflection/media/report.h"

#include "ato_engine.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int options_take(void *to, size_t known, const void *from, const char *name)
{
    size_t given;
    memset(to, 0, known);
    if (!from)
        return 0;
    memcpy(&given, from, sizeof(given));
    if (given < sizeof(size_t) || given > 65536)
        return report_error(EINVAL, "%s.struct_size is %zu: set it to sizeof(struct %s)", name,
                            given, name);
    memcpy(to, from, given < known ? given : known);
    memcpy(to, &known, sizeof(known));
    for (size_t i = known; i < given; i++)
        if (((const char *)from)[i])
            return report_error(EINVAL, "%s sets a field that this version does not know", name);
    return 0;
}

/* Reads the variable `name`, which is one of n words, and `all` lists them. Returns the word's number, from 1; 1 if it is not set; -1 with
 * EINVAL. */
static int from_environment(const char *name, const char *const *words, int n, const char *all)
{
    const char *word = secure_getenv(name);
    if (!word || !*word)
        return 1;
    for (int i = 0; i < n; i++)
        if (strcmp(word, words[i]) == 0)
            return i + 1;
    return report_error(EINVAL, "%s '%.40s' is none of %s", name, word, all);
}

int options_choose_policy(int policy)
{
    static const char *const names[] = {"lazy", "gather", "eager"};
    if (policy < ATO_READ_DEFAULT || policy > ATO_READ_EAGER)
        return report_error(EINVAL, "read policy %d is not known", policy);
    return policy == ATO_READ_DEFAULT
               ? from_environment("ATO_READ_POLICY", names, 3, "lazy, gather, eager")
               : policy;
}

/* A number of the options, of `unit`: 0 becomes that of the variable, or if that is not set, `usual`. Returns 0; -1 with EINVAL. */
static int take_number(uint64_t *n, const char *field, const char *variable, const char *unit,
                       uint64_t least, uint64_t most, uint64_t usual)
{
    const unsigned long long from = least, to = most;
    if (*n)
        return *n >= from && *n <= to
                   ? 0
                   : report_error(EINVAL, "%s is %llu: it must be from %llu to %llu", field,
                                  (unsigned long long)*n, from, to);
    const char *word = secure_getenv(variable);
    char *end;
    *n = usual;
    if (!word || !*word)
        return 0;
    errno = 0;
    *n = strtoull(word, &end, 10);
    return !errno && !*end && isdigit((unsigned char)*word) && *n >= from && *n <= to
               ? 0
               : report_error(EINVAL, "%s '%.40s' is not a number of %s, from %llu to %llu",
                              variable, word, unit, from, to);
}

static int take_numbers(struct ato_options *o)
{
    enum { LEAST = 64 << 10 }; /* of a log: room for the commit of some pages */
    uint64_t wait_ms = 0;
    if (take_number(&o->log_bytes, "log_bytes", "ATO_LOG_BYTES", "bytes", LEAST, LAYOUT_MAX_BYTES,
                    0) < 0 ||
        take_number(&o->snapshot_bytes, "snapshot_bytes", "ATO_SNAPSHOT_BYTES", "bytes", LEAST,
                    1ull << 40, UNDO_BYTES) < 0 ||
        take_number(&o->relaxed_ms, "relaxed_ms", "ATO_RELAXED_MS", "milliseconds", 1, 3600000,
                    100) < 0 ||
        take_number(&wait_ms, "", "ATO_WAIT_MS", "milliseconds", 1, RESERVATION_PATIENCE_MOST_MS,
                    RESERVATION_PATIENCE_MS) < 0)
        return -1;
    /* How long a plain call waits is the same for all of the process. */
    __atomic_store_n(&reservation_plain_ms, wait_ms, __ATOMIC_RELAXED);
    return 0;
}

int options_domain(const struct ato_options *o)
{
    return o->domain == ATO_DOMAIN_AUTO ? domain_from_name(secure_getenv("ATO_DURABILITY"))
                                        : o->domain;
}

/* The folders of the file. */
static int take_folders(struct ato_options *o, int fd)
{
    const bool chosen = o->reflection_dir;
    if (!chosen)
        o->reflection_dir = secure_getenv("ATO_REFLECTION_DIR");
    if (!o->log_dir && !chosen)
        o->log_dir = secure_getenv("ATO_LOG_DIR");
    const int domain = options_domain(o);
    if (domain < 0)
        return -1;
    if (o->log_dir && *o->log_dir &&
        (domain == ATO_DOMAIN_AUTO ? (int)domain_of(fd) : domain) == PERSIST_DISK)
        o->reflection_dir = o->log_dir;
    else
        o->log_dir = NULL;
    if (o->reflection_dir && !*o->reflection_dir)
        o->reflection_dir = NULL;
    return 0;
}

/* Sets the flag if the variable is `digit`. Returns 0; -1 with EINVAL if it is neither 0 nor 1. */
static int add_flag(struct ato_options *o, const char *name, unsigned flag, char digit)
{
    const char *word = secure_getenv(name);
    if (word && *word && strcmp(word, "0") != 0 && strcmp(word, "1") != 0)
        return report_error(EINVAL, "%s '%.40s' is neither 0 nor 1", name, word);
    if (word && *word == digit)
        o->flags |= flag;
    return 0;
}

int options_complete(struct ato_options *o, const struct ato_options *given, int fd)
{
    static const char *const formats[] = {"dense", "sparse"};
    if (options_take(o, sizeof(*o), given, "ato_options") < 0)
        return -1;
    if (o->domain < ATO_DOMAIN_AUTO || o->domain > ATO_DOMAIN_PROCESS)
        return report_error(EINVAL, "durability domain %d is not known", o->domain);
    const unsigned both = ATO_PREFER_FILE | ATO_PREFER_REFLECTION;
    if (o->flags & ~(ATO_NO_RTM | ATO_EPOCHS | ATO_RELAXED | ATO_BORROW_FD | ATO_ANY_FILE_SYSTEM |
                     ATO_NO_FAULT_HANDLER | ATO_MASK_FIRST | ATO_PLAIN | ATO_PLAIN_STORES | both))
        return report_error(EINVAL, "option flags 0x%x are not known", o->flags);
    if ((o->flags & ATO_PLAIN_STORES) && (o->flags & (ATO_EPOCHS | ATO_PLAIN | ATO_RELAXED)))
        return report_error(EINVAL, "ATO_PLAIN_STORES excludes ATO_EPOCHS, ATO_PLAIN and "
                                    "ATO_RELAXED (ato_msync() with MS_ASYNC is relaxed)");
    if ((o->flags & both) == both)
        return report_error(EINVAL, "ATO_PREFER_FILE and ATO_PREFER_REFLECTION exclude each other");
    if (o->max_size > LAYOUT_MAX_BYTES)
        return report_error(EFBIG, "max_size is more than 256 TiB");
    o->read_policy = options_choose_policy(o->read_policy);
    if (o->read_policy < 0)
        return -1;
    if (o->format < ATO_FORMAT_DEFAULT || o->format > ATO_FORMAT_SPARSE)
        return report_error(EINVAL, "reflection format %d is not known", o->format);
    if (o->format == ATO_FORMAT_DEFAULT)
        o->format = from_environment("ATO_FORMAT", formats, 2, "dense, sparse");
    if (o->format < 0 || take_numbers(o) < 0 || take_folders(o, fd) < 0)
        return -1;
    if (add_flag(o, "ATO_RTM", ATO_NO_RTM, '0') < 0 ||
        add_flag(o, "ATO_FAULT_HANDLER", ATO_NO_FAULT_HANDLER, '0') < 0)
        return -1;
    return add_flag(o, "ATO_ANY_FILE_SYSTEM", ATO_ANY_FILE_SYSTEM, '1');
}
