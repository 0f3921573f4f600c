/* SPDX-License-Identifier: BSD-3-Clause */
/* Judges what look.c has found of a file: in which state is it, and what keeps it from being mapped? */
#ifndef ATO_TOOLS_JUDGE_H
#define ATO_TOOLS_JUDGE_H

#include "look.h"

/* Sets l->state and l->problem by what was found. The caller has set LOOK_PLAIN and no problem. */
void judge(struct look *l);

/* Sets the state, the ways out, and the sentence that tells the problem. */
void __attribute__((format(printf, 4, 5)))
judge_set(struct look *l, enum look_state state, unsigned ways, const char *format, ...);

#endif
