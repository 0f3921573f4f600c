/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/file/mutex.h"

pthread_mutex_t mutexes[MUTEXES] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
                                    PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
                                    PTHREAD_MUTEX_INITIALIZER};
