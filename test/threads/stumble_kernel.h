/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Readers and writers that stumble in the middle of a page: between a bitmap's load and the copy of
 * the last slice that it names, where no seam point is. For mappings of the library with the seam.
 */
#ifndef ATO_TEST_THREADS_STUMBLE_KERNEL_H
#define ATO_TEST_THREADS_STUMBLE_KERNEL_H

#ifdef __cplusplus
extern "C" {
#endif

/* From now on the file that `addr` is mapped from is read by a kernel that calls `stumble` before,
 * in the middle of and after each gathering. Nobody may be in a call on it. */
void stumble_in_kernel(const void *addr, void (*stumble)(void));

#ifdef __cplusplus
}
#endif

#endif
