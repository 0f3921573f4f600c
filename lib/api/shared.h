/* SPDX-License-Identifier: BSD-3-Clause */
/* The objects of ato_shared() in /dev/shm, for `ato gc` and `ato top`. */
#ifndef ATO_LIB_API_SHARED_H
#define ATO_LIB_API_SHARED_H

#include <stdint.h>
#include <sys/types.h>

/* Begins an object. Any process that may write to the file may write to it. */
struct shared_memory {
    uint64_t magic; /* stored last */
    uint32_t random, user;
    uint64_t device, inode; /* of the file */
    uint64_t bytes;         /* with this header */
};

#define SHARED_MEMORY_MAGIC 0x4c52544f4d454d31ull

enum { SHARED_MEMORY_AT = 4096 }; /* where the caller's bytes begin */

/* The name of the object that `user` has made for a file. */
void shared_memory_name(char name[64], dev_t device, ino_t inode, uid_t user);

/* Finds the object that living processes share for the file of `fd`: the user and the random number in it. Returns 1; 0: there is none;
 * -1 with errno and report_sentence(). */
int shared_memory_find(int fd, uint32_t *user, uint32_t *random);

/* Opens that object, with O_RDONLY or O_RDWR, and reads its header. Returns a descriptor; -1 with errno: EBUSY if what has the name is
 * not that object, or somebody has made it who may not write to the file. */
struct identity;
int shared_memory_open(const struct identity *of, uint32_t user, uint32_t random, int access,
                       struct shared_memory *h);

#endif
