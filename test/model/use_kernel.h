/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which copy kernel does a mapped file use? A test may say, before the file is used: the library
 * takes the best one the CPU can run, and the others would never be seen on this machine.
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

/* For the file that `addr` is mapped from; nobody may be in a call on it. */
void use_kernel(const void *addr, const char *name);

#ifdef __cplusplus
}
#endif

#endif
