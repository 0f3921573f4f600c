/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shows what SIGKILL leaves of a record that is being written. Kills some hundreds of writers that use plain
 * mmap and memcpy, then as many that use libato, with its two ways to commit several pages in turn, and
 * reports torn and lost records. (One kill: subject.h.)
 */
#include "record.h"
#include "subject.h"

#include <err.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted; /* by Ctrl-C and the like: tidy up, then end */

static void note_signal(int sig)
{
    interrupted = sig;
}

static _Noreturn void usage(FILE *out, int status)
{
    fputs("usage: kill_demo [--kills N] FILE FOLDER\n"
          "Copies FILE (its first 16 MiB) into FOLDER twice, kills processes that write\n"
          "records of 64 KiB to the copies, N times (300) through mmap and N times through\n"
          "libato, and says which records were torn. FOLDER should be on tmpfs and is not\n"
          "cleaned up. Exit status: 0 when plain mmap tore records and libato did not, 1 when\n"
          "not or when libato failed, 2 for other trouble.\n",
          out);
    exit(status);
}

/* A line that is overwritten on a terminal, a few lines elsewhere. */
static void progress(const char *what, unsigned done, unsigned total, unsigned torn)
{
    bool terminal = isatty(STDERR_FILENO);

    if (done != total && done % (terminal ? 10 : 100) != 0)
        return;
    fprintf(stderr, "%s  %-6s %4u of %u kills, %u torn records%s", terminal ? "\r" : "", what, done,
            total, torn, terminal && done != total ? "" : "\n");
}

static void row(const char *what, const struct tally *t)
{
    printf("  %-31s %6u %14u %21" PRIu64 " %14" PRIu64 "\n", what, t->kills, t->torn, t->acked,
           t->lost);
}

static int verdict(const struct tally *plain, const struct tally *rtm, const struct tally *journal,
                   bool is_plain_again)
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
        puts("FAILED: bytes changed that no process wrote.");
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

static int report(const struct tally *plain, const struct tally *rtm, const struct tally *journal,
                  const struct subject *s, bool is_plain_again)
{
    puts("");
    printf("SIGKILL while records of %u KiB are written (%u records, 0 to %u ms after the first)\n",
           RECORD_SIZE >> 10, s->records, LONGEST_DELAY_NS / 1000000);
    printf("  %-31s %6s %14s %21s %14s\n", "", "kills", "torn records", "acknowledged writes",
           "of them lost");
    row("mmap + memcpy", plain);
    row(rtm->rtm > rtm->journal ? "libato, hardware transactions" : "libato, as it chose: journal",
        rtm);
    row("libato, lane", journal);
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

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = note_signal, .sa_flags = SA_RESTART};

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

static unsigned parse_kills(const char *word)
{
    char *end;
    unsigned long n = strtoul(word, &end, 10);

    if (end == word || *end || n < 2 || n > 1000000)
        errx(2, "--kills takes a number from 2 to 1000000, not '%s'", word);
    return (unsigned)n;
}

static int demonstrate(const char *file, const char *folder, unsigned kills)
{
    struct tally plain = {0}, by_turns[2] = {{0}};
    size_t size;
    const unsigned char *original = subject_load(file, &size);
    struct subject mmapped = subject_make(folder, "through-mmap", original, size);
    struct subject ours = subject_make(folder, "through-libato", original, size);
    bool is_plain_again;

    for (unsigned i = 0; i < kills && !interrupted; i++) {
        subject_kill(&mmapped, &plain, WAY_MMAP, i);
        progress("mmap", i + 1, kills, plain.torn);
    }
    for (unsigned i = 0; i < kills && !interrupted; i++) {
        subject_kill(&ours, &by_turns[i % 2], i % 2 ? WAY_ATO_JOURNAL : WAY_ATO, i);
        progress("libato", i + 1, kills, by_turns[0].torn + by_turns[1].torn);
    }
    is_plain_again = subject_plain_again(&ours);
    if (interrupted)
        errx(128 + interrupted, "interrupted");
    return report(&plain, &by_turns[0], &by_turns[1], &ours, is_plain_again);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"kills", required_argument, NULL, 'k'},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    unsigned kills = 300;
    int c;

    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (c) {
        case 'k':
            kills = parse_kills(optarg);
            break;
        case 'h':
            usage(stdout, 0);
        default:
            usage(stderr, 2);
        }
    }
    if (argc - optind != 2)
        usage(stderr, 2);
    catch_signals();
    prctl(PR_SET_TIMERSLACK, 1); /* sleep for the nanoseconds asked for, not 50 us more */
    return demonstrate(argv[optind], argv[optind + 1], kills);
}
