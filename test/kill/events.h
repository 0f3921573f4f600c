/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kills a process at a chosen event. An event is a store, flush or fence to the media, or a call that changes
 * names, sizes, space or attributes: everything that passes the two seams, in the order of the thread that
 * armed the counter. Stores of many lines, and writes to a log, count twice, so that they can be cut in the middle.
 *
 * The process gets SIGKILL right before event `kill_at` (from 1) after arm(). Needs the library with the
 * seam. For forked children only, because it cannot be undone.
 */
#ifndef ATO_TEST_KILL_EVENTS_H
#define ATO_TEST_KILL_EVENTS_H

#include "process.h"

namespace kills
{

/* Reports shared memory from now on. */
void watch_events(const Teller &t);
/* 0: no kill, but each event is reported by its name. `points`: places where threads may be switched (seam.h)
 * are events, too. */
void arm(unsigned kill_at, bool points = false);
/* The kill comes right before the n-th word (from 1) that a commit stores; with a log, right before its n-th page is copied to the file. */
void arm_word(unsigned n);
void disarm();

} // namespace kills

#endif
