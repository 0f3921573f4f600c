/* SPDX-License-Identifier: BSD-3-Clause */
/* Shows the content of a file without and with its reflection, for a user that has to choose a
 * side. */
#ifndef ATO_TOOLS_SIDES_H
#define ATO_TOOLS_SIDES_H

#include "look.h"

#include <stdio.h>

/* Prints the sides that can be chosen: sizes, times, and the pages with other bytes in the reflection. */
void sides_say(FILE *out, const char *name, const struct look *l);

#endif
