/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/file/mutex.h"

pthread_mutex_t mutexes[MUTEXES] = {[0 ... MUTEXES - 1] = PTHREAD_MUTEX_INITIALIZER};
