/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Brings what the log of a file has to the file: after a kill or a power cut, and for the pages of a process that died while others
 * have the file mapped.
 *
 * All of it can be interrupted, and done again: the same records are copied in the same order.
 */
#ifndef ATO_REFLECTION_RECOVERY_LOG_REPLAY_H
#define ATO_REFLECTION_RECOVERY_LOG_REPLAY_H

#include "reflection/format/log.h"
#include "reflection/pairing/pairing.h"

/* The records of a log from one on. */
struct log_range {
    struct log_file log;
    uint64_t position; /* of the first record; after a walk: of the next one */
    uint64_t
        end; /* no record begins here or behind it; UINT64_MAX: up to the first that is not valid */
    uint64_t size; /* of the file, from the last record that changes it; LOG_NO_SIZE: none */
};

/* Copies the slices of the pages for which `wants` returns true to the file: of each slice what the last record has. So a slice that is home
 * stays as it is at every moment: it may be one that the header does not count any more. *start is where the log begins. Others may
 * move it meanwhile, and use the space before it again. Returns 0; 1: it has moved, and nothing is copied; -1 with a sentence:
 * EUCLEAN if a record before range->end is not valid, ... */
int log_replay_last(struct log_range *range, int original, bool (*wants)(void *arg, uint64_t page),
                    void *arg, const uint64_t *start, const char *path);

/* For a file that no process has mapped. First: its size becomes that of the last record, in the manifest. Later, when it is known that
 * the file and its log belong together: all records are copied to it, durably, and count no more. The log is pr->reflection. What takes
 * longer than a second says each second how far it is (report_log()). Return 0; -1 with a sentence: EUCLEAN if the header of the log
 * is damaged. */
int log_recover_size(struct pairing *pr);
int log_recover(struct pairing *pr);

#endif
