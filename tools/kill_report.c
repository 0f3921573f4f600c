/* SPDX-License-Identifier: BSD-3-Clause */
#include "kill_report.h"

#include "record.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

void kill_report_progress(const char *what, unsigned done, unsigned total, unsigned torn)
{
    bool terminal = isatty(STDERR_FILENO);

    if (done != total && done % (terminal ? 10 : 100) != 0)
        return;
    fprintf(stderr, "%s  %-6s %4u of %u kills, %u torn records%s", terminal ? "\r" : "", what, done,
            total, torn, terminal && done != total ? "" : "\n");
}

static void row(const char *what, const struct kill_tally *t)
{
    printf("  %-31s %6u %14u %21" PRIu64 " %14" PRIu64 "\n", what, t->kills, t->torn, t->acked,
           t->lost);
}

static int verdict(const struct kill_tally *plain, const struct kill_tally *rtm,
                   const struct kill_tally *journal, bool is_plain_again)
{
    if (rtm->torn + journal->torn) {
        puts("FAILED: libato left torn records.");
        return 1;
    }
    if (rtm->lost + journal->lost) {
        puts("FAILED: libato lost acknowledged writes.");
        return 1;
    }
    if (rtm->damaged + journal->damaged + plain->damaged) {
        puts("FAILED: bytes that no process wrote to have changed.");
        return 1;
    }
    if (!is_plain_again) {
        puts("FAILED: after the spatial unmap, read(2) and libato see different bytes.");
        return 1;
    }
    if (plain->torn == 0) {
        puts("FAILED: plain mmap left no torn record, so this run proves nothing. Try it again on\n"
             "a machine that is less busy, or with more kills.");
        return 1;
    }
    puts("libato left every record whole and lost nothing; plain mmap did not.");
    return 0;
}

int kill_report(const struct kill_tally *plain, const struct kill_tally *rtm,
                const struct kill_tally *journal, uint32_t records, bool is_plain_again)
{
    puts("");
    printf("SIGKILL while records of %u KiB are written (%u records, 0 to %u ms after the first)\n",
           RECORD_SIZE >> 10, records, LONGEST_DELAY_NS / 1000000);
    printf("  %-31s %6s %14s %21s %14s\n", "", "kills", "torn records", "acknowledged writes",
           "of them lost");
    row("mmap + memcpy", plain);
    row(rtm->rtm > rtm->journal ? "libato, hardware transactions" : "libato, as it chose: journal",
        rtm);
    row("libato, redo journal", journal);
    puts("  (How many were acknowledged is no measure of speed: most writers die while still "
         "cold.)");
    puts("");
    printf("The write that a kill interrupted: with mmap %u times old bytes, %u times new, the rest"
           "\ntorn; with libato %u times old and %u times new.\n",
           plain->ended_old, plain->ended_new, rtm->ended_old + journal->ended_old,
           rtm->ended_new + journal->ended_new);
    printf("After a spatial unmap, read(2) sees %s.\n",
           is_plain_again ? "byte for byte what libato showed" : "other bytes than libato showed");
    return verdict(plain, rtm, journal, is_plain_again);
}
