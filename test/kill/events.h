/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dying at a chosen moment. An event is a store, flush or fence on its way to the media, or a call
 * that changes names, sizes, space or attributes: what goes through the two seams, in the order of
 * the thread that armed the counter. Stores of many lines count twice, so that they can be cut in
 * the middle.
 *
 * The process gets SIGKILL right before event `kill_at` (from 1) after arm(). Needs the library
 * with the seam; for forked children only, since it never undoes anything.
 */
#ifndef ATO_TEST_KILL_EVENTS_H
#define ATO_TEST_KILL_EVENTS_H

#include "process.h"

namespace kills
{

/* From now on. 0: never, but every event is told, by its name. Shared memory is always told. */
void watch_events(const Teller &t);
void arm(unsigned kill_at);
void disarm();

} // namespace kills

#endif
