/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads bytes of a page by its word on the media. */
#ifndef ATO_LIB_READ_READER_MEDIA_H
#define ATO_LIB_READ_READER_MEDIA_H

#include "lib/file/file.h"

/* Copies bytes of a page by its word on the media. It uses pread(), so nothing can fault. Returns 0; -1 with errno. */
int reader_media_copy(struct file *f, uint64_t page, unsigned begin, unsigned n, char *dst);

/* Reports that the file ends before byte `end`. Returns -1 with EFAULT. */
int reader_media_beyond(const struct file *f, uint64_t end);

#endif
