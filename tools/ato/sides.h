/* SPDX-License-Identifier: BSD-3-Clause */
/* What would a file hold if it were taken as it lies there, and what with its reflection? For who has to decide. */
#ifndef ATO_TOOLS_SIDES_H
#define ATO_TOOLS_SIDES_H

#include "look.h"

#include <stdio.h>

/* Two or three lines, by people to be read: sizes, times, and the pages of which the reflection holds other bytes. */
void sides_say(FILE *out, const struct look *l);

#endif
