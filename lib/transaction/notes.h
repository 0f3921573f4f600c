/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a transaction has read without holding it.
 *
 * Each page is noted with the number of its content (page_content()). All that the transaction has read is as it was
 * at one moment, if no noted page has changed since: notes_hold() finds that out after each read. Deploys do
 * not count, since they only move a page's content.
 *
 * A transaction that writes holds the pages that it writes when it commits. Then it checks its notes once more, and that
 * nobody else holds one of these pages: otherwise two transactions, each of which reads what the other one
 * writes, could both commit (write skew). Between this check and the commit others may change what was
 * read. They come after this transaction, which is not visible yet: so no other transaction may see their change and
 * go on without seeing this one. For that its pages say that it commits, from before the check until it is visible,
 * and transactions that have noted such a page wait, or are refused.
 *
 * A transaction that has read only what it holds by then needs none of this: nobody can change that.
 *
 * A cut changes the content of no page. So a noted page that was read beyond the end counts as changed, too. The transaction
 * that cuts it off does not hold it, but holds `sizing`: that says whether the transaction commits. `cut` (resize.h) says where
 * the part begins that it cuts off.
 *
 * A transaction that asks for a file's size, or is told that a range lies beyond the end, has read the size. That is noted like
 * a page: `sizing` is its state, whose content is the size. So two transactions that append at the end which both have read
 * cannot both commit.
 *
 * Modelled in serial.pml.
 */
#ifndef ATO_LIB_TRANSACTION_NOTES_H
#define ATO_LIB_TRANSACTION_NOTES_H

#include "lib/page/handle.h"

/* Notes a page that was read, up to byte `end` of the file, when it had `version`; or, if `end` is 0, the size. Returns 0; -1 with
 * EAGAIN: it was read before with another content; E2BIG, ENOMEM. */
int notes_add(struct tx *t, struct file *f, const struct page_state *s, uint64_t end,
              uint64_t version);

/* Notes the size of m's file, which the caller reads after that, and adds the mapping. Does nothing if the transaction
 * changes the size itself, or is READ_COMMITTED. Returns 0; -1: as notes_add(), EACCES, or the size cannot be read. */
int notes_add_size(struct tx *t, struct mapping *m);

/* Reports that nothing of a file can be noted which this process may only read. Returns -1 with EACCES. */
int notes_refuse_reader(const struct file *f);

/* Returns 0 if nothing that is noted has changed; -1 with EAGAIN: the transaction is refused; or EIO. */
int notes_hold(struct tx *t);

/* Returns true if the transaction holds all that is noted, and nothing of that has changed: so nobody changes it until it is
 * released, and there is nothing to check at the commit. */
bool notes_are_of_held(struct tx *t);

/* Called before the check at the commit (`begins`), and when the commit is visible, or has failed: the pages of the transaction
 * say that it commits, or no longer. */
void notes_mark_commit(struct tx *t, bool begins);

/* notes_hold() for a transaction that is about to commit writes: also if anybody else holds a noted page. */
int notes_hold_for_commit(struct tx *t);

/* Forgets the notes from the n-th on: the call that made them has failed. */
void notes_give_back(struct notes *n, uint64_t from);

/* Forgets all notes. */
void notes_drop(struct notes *n);

#endif
