/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Python's module ato._ato: the library's calls as the types Map, Transaction and Snapshot. Their docstrings say what they do. The rest of the
 * package is in Python (python/ato).
 *
 * The GIL guards all fields here. It is released in each call of the library, since each may wait: for a page that another thread holds, or
 * for a disk. `calls` counts the calls that are under way on a map: close() is refused while another thread is in one.
 *
 * fork. The library takes all mappings from the child. `forks` tells there that a map is the parent's. Python may still have the address of
 * a map with plain stores (a memoryview, an array), so the child gets private pages in its place.
 */
#ifndef ATO_PYTHON_MODULE_H
#define ATO_PYTHON_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "ato.h"

#include <errno.h>
#include <stdbool.h>

typedef struct map {
    PyObject ob_base;
    char *at; /* NULL: closed */
    size_t length;
    size_t room; /* bytes from `at` on that are of this mapping, whatever the file's size */
    unsigned forks;
    Py_ssize_t calls, exports;
    bool plain_stores, readonly;
    Py_ssize_t
        reach; /* the end of the longest export since the last commit, or before it if that is alive */
    char *pages; /* in a child of fork: private ones in its place; NULL: none */
    PyObject *path;
    int fd;           /* with plain stores: for a child of fork; else -1 */
    struct map *next; /* of those with plain stores */
} Map;

extern PyTypeObject *map_type, *lease_type, *transaction_type, *snapshot_type, *stat_type;
/* Exceptions. */
extern PyObject *error_class, *denied_class, *refused_class, *stale_class, *timed_out_class;
extern unsigned forks; /* how many lead from the process that loaded the module to this one */

/* Runs the statement with the GIL released, and `count` one higher. Keeps errno. */
#define WAITING(count, statement)                                                                  \
    do {                                                                                           \
        (count)++;                                                                                 \
        PyThreadState *thread_ = PyEval_SaveThread();                                              \
        statement;                                                                                 \
        const int errno_ = errno;                                                                  \
        PyEval_RestoreThread(thread_);                                                             \
        (count)--;                                                                                 \
        errno = errno_;                                                                            \
    } while (0)

/* ---- module.c ---- */

/* Sets the exception for that errno, with the library's sentence about this map, in Python's words. Returns NULL. */
PyObject *fail(const Map *m, int number);
PyObject *itself(PyObject *self, PyObject *none);
void free_object(PyObject *self);

/* Takes the argument of resize(); false with an exception. Its conversion may have closed the map. */
bool size_take(Py_ssize_t *size, PyObject *arg);

/* Whether these arguments of __exit__() tell an exception. */
bool has_raised(PyObject *args);

/* ---- bytes.c: [], and reading into a buffer, for all three types ---- */

/* Copies n bytes at an offset to memory, or from there; false with an exception. */
typedef bool reader(PyObject *self, void *dst, Py_ssize_t at, Py_ssize_t n);
typedef bool writer(PyObject *self, Py_ssize_t at, const void *src, Py_ssize_t n);

/* `size` limits slices and indices; -1: there is an exception. */
PyObject *bytes_get(PyObject *self, PyObject *key, Py_ssize_t size, reader *read);
PyObject *bytes_get_into(PyObject *self, PyObject *args, PyObject *names, Py_ssize_t size,
                         reader *read);
int bytes_set(PyObject *self, PyObject *key, PyObject *value, Py_ssize_t size, writer *write);

/* The bytes of an object that are to be written. */
struct source {
    Py_buffer view;
    const void *bytes;
    void *copy;
};

bool source_take(struct source *s, PyObject *object);
void source_give(struct source *s);

/* ---- the types ---- */

/* Returns whether calls on the map can be made; false with an exception. */
bool map_usable(const Map *m);

/* Whether the address is in a map with plain stores. */
bool map_has_stores_at(const void *at);
void map_after_fork(void);
PyObject *map_open(PyObject *module, PyObject *args);

PyObject *map_transaction(PyObject *self, PyObject *args, PyObject *names);
PyObject *map_run(PyObject *self, PyObject *args, PyObject *names);
PyObject *map_snapshot(PyObject *self, PyObject *none);

extern PyType_Slot map_slots[], lease_slots[], transaction_slots[], snapshot_slots[];
extern PyStructSequence_Desc stat_desc;
extern const int lease_bytes, transaction_bytes, snapshot_bytes;

/* ---- tables of methods ---- */

#define WITH_NAMES     METH_VARARGS | METH_KEYWORDS
#define CALL(function) ((PyCFunction)(void (*)(void))(function))
#define SLOT(function) ((void *)(function))
#define ENTER_DOC      "__enter__($self, /)\n--\n\nReturn self."
#define EXIT_DOC       "__exit__($self, /, *exception)\n--\n\n"
#define READ_INTO_DOC                                                                              \
    "read_into($self, /, buffer, offset=0)\n--\n\n"                                                \
    "Copy bytes from `offset` on into a writable buffer, as one consistent\n"                      \
    "snapshot. Return how many: fewer than the buffer has at the end of the\n"                     \
    "file, 0 behind it."

#endif
