/* SPDX-License-Identifier: BSD-3-Clause */
#include "use_labels.h"

#include "lib/page/labels.h"
#include "lib/transaction/tx.h"

#include <stdlib.h>

/* Thread numbers that no thread of the test has. */
enum { FIRST = 1 << 20 };

static struct node {
    struct file file; /* of a process of its own */
    struct mapping mapping;
    struct page_state page;
    struct tx *tx;
    struct labels labels;
    int holder;
} * nodes;

static struct shared_label *board;

int use_labels_set_up(void)
{
    nodes = calloc(USE_LABELS_MOST, sizeof(*nodes));
    board = calloc(SHARED_LABELS, sizeof(*board));
    for (int i = 0; nodes && board && i < USE_LABELS_MOST; i++) {
        struct node *n = &nodes[i];
        n->file.shared.labels = board;
        n->file.holder = (uint32_t)i + 1;
        n->mapping.file = &n->file;
        n->tx = handle_make((uint64_t)(FIRST + i), 0);
        if (!n->tx)
            return -1;
        n->tx->parts[0].mapping = &n->mapping;
        n->tx->nparts = 1;
        n->page.holder = n->file.holder;
        n->page.tx = (uint64_t)n->tx->set.tag << 32;
    }
    return nodes && board ? 0 : -1;
}

void use_labels_tear_down(void)
{
    for (int i = 0; i < USE_LABELS_MOST; i++) {
        labels_end(&nodes[i].labels);
        nodes[i].tx->nparts = 0;
        tx_unmake(nodes[i].tx);
    }
    free(board);
    free(nodes);
}

void use_labels_wait(int waiter, int holder)
{
    labels_end(&nodes[waiter].labels);
    nodes[waiter].holder = holder;
}

bool use_labels_step(int waiter)
{
    struct node *n = &nodes[waiter];
    return labels_step(&n->labels, (uint64_t)(FIRST + waiter), &n->file, &nodes[n->holder].page);
}

void use_labels_drop(int waiter)
{
    labels_drop(&nodes[waiter].labels, nodes[waiter].tx);
}

unsigned use_labels_shown(void)
{
    unsigned n = 0;
    for (unsigned i = 0; i < SHARED_LABELS; i++)
        n += board[i].key != 0;
    return n;
}
