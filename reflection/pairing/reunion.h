/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reunites a restored file with its orphan (orphan.h): the manifest gets the file's identity, and the names its inode number.
 *
 *   1. the file has the attribute of the orphan: its id, and its number. What a restore has left visible is durable (persist-order U1)
 *   2. the record names the file, with a new id: the step that decides                                            (persist-order U2)
 *   3. the reflection gets the new name, then the manifest                                                        (persist-order U3)
 *   4. the file gets the attribute of the new pairing                                                             (persist-order U4)
 *
 * Each is durable before the next. Before step 2 a map refuses the file again, and the user may choose the other side. After it each map
 * finishes the rest: the attribute leads to the manifest as long as that has its old number; on a file system without attributes
 * the search for orphans does. The id is new since the source may be in use: its shared memory has its id in its name. If the restored
 * file has its old number, the id stays, and step 1 decides.
 *
 * For pairing_open.c, and adopt(). The caller holds the attach lock and all slots of the orphan's manifest, which is mapped. Results: 0, or -1
 * with a sentence. An orphan whose place is taken by another one is refused: that has to be reunited first.
 */
#ifndef ATO_REFLECTION_PAIRING_REUNION_H
#define ATO_REFLECTION_PAIRING_REUNION_H

#include "reflection/pairing/pairing.h"

/* Steps 1 and 2. adopt() has succeeded: all lanes are replayed, and the reflection fits. */
int reunion_decide(struct pairing *pr);

/* Steps 3 and 4. The next pairing_find() finds the file's own pairing. */
int reunion_finish(struct pairing *pr);

/* Step 4 alone: of a reunion, or a birth, whose process died before it. */
int reunion_end(struct pairing *pr);

#endif
