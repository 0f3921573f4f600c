/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Views of files that become longer where they lie.
 *
 * A window is the view of a file from some offset on. It takes address space for what is mapped, and not for what it may
 * grow to: this counts where address space is limited (RLIMIT_AS), or where a process has thousands of files mapped. A window that
 * has grown begins at the same address. So threads keep their pointers, and no call has to look where it begins.
 *
 * How this is possible: windows lie in a part of the address space in which the kernel maps nothing by itself, unless all others
 * are used up: it begins at the highest addresses, or, in the layout that it uses without a limit for the stack, grows upwards from
 * the middle of this part. Each window has room there that no other one gets. If another library has mapped something in the room, the window
 * cannot grow into it: ENOMEM. Where the kernel, or what stands between (Valgrind, ThreadSanitizer), does not let the library choose
 * addresses, the room is reserved; then all of it counts.
 */
#ifndef ATO_REFLECTION_MEDIA_WINDOW_H
#define ATO_REFLECTION_MEDIA_WINDOW_H

#include "reflection/media/fault.h"
#include "reflection/media/persist.h"

#include <stdbool.h>
#include <stdint.h>

/* All zeros: closed. */
struct window {
    char *base;     /* NULL: closed */
    uint64_t bytes; /* that are mapped; grows, and other threads read it */
    uint64_t room;
    bool reserved; /* the room is */
    /* Set by the caller of window_open(): */
    enum persist_domain domain; /* domain_map() */
    int fd, prot;
    uint64_t at; /* the offset in the file */
};

/* Maps so many bytes, with room to grow to `room`. Sizes become whole pages. Returns 0; -1 with errno, ENOMEM if there is no address
 * space (window_no_room()). */
int window_open(struct window *w, uint64_t bytes, uint64_t room, struct fault_target *faults);

/* Maps at least so many bytes, not more than there is room for. Other threads may use the window, and call this, meanwhile. Returns 0; -1
 * with errno. */
int window_reach(struct window *w, uint64_t bytes);

/* Does nothing if it is closed. Keeps errno. */
void window_close(struct window *w);

/* Reserves addresses without access, at a multiple of 1 GiB; n is one, too. Returns NULL with ENOMEM. */
void *window_reserve(uint64_t n);

/* Unmaps what lies in reserved addresses, and gives them back. */
void window_give_back(void *at, uint64_t n);

/* Reports an errno of one of these: that there are no n bytes of address space for `what` and `path`, and which limit that is. Returns
 * -1. */
int window_no_room(int error, uint64_t n, const char *what, const char *path);

/* In a forked child, which has none of the windows. With window_lock. */
void window_forget_all(void);

/* Guards rooms and growth. For fork(): held around it. */
extern pthread_mutex_t window_lock;

#endif
