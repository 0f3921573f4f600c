/* SPDX-License-Identifier: BSD-3-Clause */
/* Snapshot: a file at one moment. */
#include "module.h"

#include <unistd.h>

typedef struct {
    PyObject ob_base;
    Map *map;
    ato_snapshot *snapshot; /* NULL: closed */
    Py_ssize_t size;
    Py_ssize_t calls;
} Snapshot;

const int snapshot_bytes = sizeof(Snapshot);

PyObject *map_snapshot(PyObject *self, PyObject *none)
{
    Map *m = (Map *)self;
    ato_snapshot *snapshot;
    off_t size = 0;
    (void)none;
    if (!map_usable(m))
        return NULL;
    WAITING(m->calls, snapshot = ato_snapshot_begin(m->at);
            if (snapshot) size = ato_snapshot_seek(snapshot, 0, SEEK_END));
    if (!snapshot)
        return fail(m, errno);
    Snapshot *s = PyObject_New(Snapshot, snapshot_type);
    if (!s) {
        ato_snapshot_end(snapshot);
        return NULL;
    }
    *s = (Snapshot){.ob_base = s->ob_base, .map = m, .snapshot = snapshot, .size = size};
    Py_INCREF((PyObject *)m);
    return (PyObject *)s;
}

static Py_ssize_t snapshot_size(PyObject *self)
{
    const Snapshot *s = (Snapshot *)self;
    if (!map_usable(s->map))
        return -1;
    if (s->snapshot)
        return s->size;
    PyErr_SetString(PyExc_ValueError, "the snapshot is closed");
    return -1;
}

static bool snapshot_read(PyObject *self, void *dst, Py_ssize_t at, Py_ssize_t n)
{
    Snapshot *s = (Snapshot *)self;
    ssize_t got;
    if (snapshot_size(self) < 0)
        return false;
    WAITING(s->calls, got = ato_snapshot_read(s->snapshot, dst, at, (size_t)n));
    if (got == n)
        return true;
    if (got >= 0)
        PyErr_SetString(PyExc_RuntimeError, "the snapshot is shorter than it was");
    else
        fail(s->map, errno);
    return false;
}

static PyObject *snapshot_get(PyObject *self, PyObject *key)
{
    return bytes_get(self, key, snapshot_size(self), snapshot_read);
}

static PyObject *snapshot_read_into(PyObject *self, PyObject *args, PyObject *names)
{
    return bytes_get_into(self, args, names, snapshot_size(self), snapshot_read);
}

static PyObject *snapshot_close(PyObject *self, PyObject *none)
{
    Snapshot *s = (Snapshot *)self;
    (void)none;
    if (s->calls) {
        PyErr_SetString(PyExc_BufferError,
                        "the snapshot cannot be closed while a call on it is under way");
        return NULL;
    }
    if (s->snapshot && s->map->forks == forks)
        (void)ato_snapshot_end(s->snapshot);
    s->snapshot = NULL;
    return Py_NewRef(Py_None);
}

static void snapshot_free(PyObject *self)
{
    Py_XDECREF(snapshot_close(self, NULL));
    Py_DECREF(((Snapshot *)self)->map);
    free_object(self);
}

static PyMethodDef snapshot_methods[] = {
    {"read_into", CALL(snapshot_read_into), WITH_NAMES, READ_INTO_DOC},
    {"close", snapshot_close, METH_NOARGS, "close($self, /)\n--\n\nEnd the snapshot."},
    {"__enter__", itself, METH_NOARGS, ENTER_DOC},
    {"__exit__", snapshot_close, METH_VARARGS, EXIT_DOC "close()."},
    {NULL, NULL, 0, NULL}};

PyType_Slot snapshot_slots[] = {
    {Py_tp_doc, "A file as it was at one moment, made by Map.snapshot().\n\n"
                "s[a:b] and len(s) are as in a Map. Raises Stale if so much has changed that\n"
                "it was given up."},
    {Py_tp_methods, snapshot_methods},
    {Py_tp_dealloc, SLOT(snapshot_free)},
    {Py_mp_length, SLOT(snapshot_size)},
    {Py_mp_subscript, SLOT(snapshot_get)},
    {0, NULL}};
