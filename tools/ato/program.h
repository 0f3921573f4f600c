/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs a program as its parent, so that to the outside the two are one process.
 *
 * The program stays in this process's group, and has the terminal. A signal that is sent to this process alone is passed on to
 * the program, 50 ms late; one that is sent to the group or to all processes of a service (by a terminal, a shell, timeout(1),
 * systemd) reaches the program anyway. A third process, the witness, tells the two apart: it is in the group too, and only notes the signals
 * that it gets. If the program is stopped by the terminal, this process stops itself. If this process is killed, so is the
 * program.
 */
#ifndef ATO_TOOLS_PROGRAM_H
#define ATO_TOOLS_PROGRAM_H

struct program_end {
    int error;  /* errno: it could not be started */
    int status; /* as from wait(2) */
};

/* Runs the program to its end. From its start on this process has no descriptors but `keep` and standard error, and all signals
 * stay blocked. */
struct program_end program_run(char *const *words, int keep);

/* Ends this process by the signal that the program ended by; returns its exit status if it did not end by one. */
int program_end_alike(int status);

#endif
