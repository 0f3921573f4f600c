/* SPDX-License-Identifier: BSD-3-Clause */
/* ato_mmap_opt() at an address. */
#ifndef ATO_LIB_API_MAP_H
#define ATO_LIB_API_MAP_H

#include "ato.h"

/* ato_mmap_opt(); `hint` as that of ato_mmap(): NULL, or where the mapping is put if it fits there. */
void *map_at(void *hint, size_t length, int fd, off_t offset, const struct ato_options *opt);

#endif
