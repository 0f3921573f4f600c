/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dying at a chosen moment. An event is a store, flush or fence on its way to the media, or a call
 * that changes names, sizes, space or attributes: what goes through the two seams, in the order of
 * the thread that armed the counter. Stores of many lines count twice, so that they can be cut in
 * the middle.
 *
 * The process gets SIGKILL right before event `kill_at` (from 1) after arm(). Needs the library
 * with the seam; for forked children only, since it never undoes anything. Journals have holes where they have
 * their space otherwise: that makes a life five times as quick.
 */
#ifndef ATO_TEST_KILL_EVENTS_H
#define ATO_TEST_KILL_EVENTS_H

#include "process.h"

namespace kills
{

/* Shared memory is told from now on. */
void watch_events(const Teller &t);
/* 0: no kill, but every event is told, by its name. `points`: places where threads may be switched (seam.h) are
 * events, too. */
void arm(unsigned kill_at, bool points = false);
/* The kill comes right before the n-th word (from 1) that a commit stores. */
void arm_word(unsigned n);
void disarm();

} // namespace kills

#endif
