/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Delays readers and writers in the middle of a page: between the load of a bitmap and the copy of the last
 * slice that it names, where there is no seam point. For mappings of the library with the seam.
 */
#ifndef ATO_TEST_THREADS_STUMBLE_KERNEL_H
#define ATO_TEST_THREADS_STUMBLE_KERNEL_H

#ifdef __cplusplus
extern "C" {
#endif

/* From now on reads of the file that `addr` is mapped from use a kernel that calls `stumble` before, in the
 * middle of and after each gathering. No thread may be in a call on the file. */
void stumble_in_kernel(const void *addr, void (*stumble)(void));

#ifdef __cplusplus
}
#endif

#endif
