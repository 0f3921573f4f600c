/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sets the copy kernel of a mapped file. A test may do that before the file is used: the library takes the
 * best one that the CPU supports, and the others would never be tested on this machine.
 */
#ifndef ATO_TEST_MODEL_USE_KERNEL_H
#define ATO_TEST_MODEL_USE_KERNEL_H

#ifdef __cplusplus
extern "C" {
#endif

/* The names of all kernels, best first, NULL at the end. */
const char *const *kernel_names(void);

/* 1: this CPU can run it. */
int kernel_usable(const char *name);

/* For the file that `addr` is mapped from; no thread may be in a call on it. */
void use_kernel(const void *addr, const char *name);

#ifdef __cplusplus
}
#endif

#endif
