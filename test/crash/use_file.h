/* SPDX-License-Identifier: BSD-3-Clause */
/* lib/file/file.h for tests in C++, which cannot read it. */
#ifndef ATO_TEST_CRASH_USE_FILE_H
#define ATO_TEST_CRASH_USE_FILE_H

#ifdef __cplusplus
extern "C" {
#endif

/* file_poison() of the file that is mapped at `base`. */
void use_file_poison(const void *base);

#ifdef __cplusplus
}
#endif

#endif
