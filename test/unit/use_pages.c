/* SPDX-License-Identifier: BSD-3-Clause */
#include "use_pages.h"

#include "lib/page/reservation.h"

static struct shared_header header;

bool use_pages_try_reserve(uint32_t holder, struct page_state *s)
{
    struct file f = {.holder = holder};
    return page_try_reserve(&f, s);
}

void use_pages_reserve(uint32_t holder, struct page_state *s)
{
    struct file f = {.holder = holder, .shared.header = &header};
    (void)reservation_take(&f, s, &(struct patience){0});
}

void use_pages_release(struct page_state *s)
{
    page_release(s);
}
