/* SPDX-License-Identifier: BSD-3-Clause */
/* What slices and indices name, and the bytes that Python gives. */
#include "module.h"

#include <stdlib.h>
#include <string.h>

/* What a slice or an index names. */
struct range {
    Py_ssize_t at, n;
    bool is_byte; /* an index */
};

static bool range_take(struct range *r, PyObject *key, Py_ssize_t size)
{
    Py_ssize_t stop, step;
    r->is_byte = !PySlice_Check(key);
    if (r->is_byte) {
        r->n = 1;
        r->at = PyNumber_AsSsize_t(key, PyExc_IndexError);
        if (r->at == -1 && PyErr_Occurred())
            return false;
        if (r->at < 0)
            r->at += size;
        if (r->at >= 0 && r->at < size)
            return true;
        PyErr_SetString(PyExc_IndexError, "the index is out of the file");
        return false;
    }
    if (PySlice_Unpack(key, &r->at, &stop, &step) < 0)
        return false;
    r->n = PySlice_AdjustIndices(size, &r->at, &stop, step);
    if (step == 1)
        return true;
    PyErr_SetString(PyExc_ValueError, "slices of a file have no step");
    return false;
}

PyObject *bytes_get(PyObject *self, PyObject *key, Py_ssize_t size, reader *read)
{
    struct range r;
    unsigned char byte;
    if (size < 0 || !range_take(&r, key, size))
        return NULL;
    if (r.is_byte)
        return read(self, &byte, r.at, 1) ? PyLong_FromLong(byte) : NULL;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, r.n);
    if (bytes && r.n && !read(self, PyBytes_AsString(bytes), r.at, r.n))
        Py_CLEAR(bytes);
    return bytes;
}

PyObject *bytes_get_into(PyObject *self, PyObject *args, PyObject *names, Py_ssize_t size,
                         reader *read)
{
    static char *known[] = {"buffer", "offset", NULL};
    Py_buffer to;
    Py_ssize_t at = 0;
    bool ok = true;
    if (size < 0 || !PyArg_ParseTupleAndKeywords(args, names, "w*|n:read_into", known, &to, &at))
        return NULL;
    const Py_ssize_t n = at > size ? 0 : to.len < size - at ? to.len : size - at;
    if (at < 0) {
        PyErr_SetString(PyExc_ValueError, "the offset is negative");
        ok = false;
    } else if (n > 0) {
        ok = read(self, to.buf, at, n);
    }
    PyBuffer_Release(&to);
    return ok ? PyLong_FromSsize_t(n) : NULL;
}

void source_give(struct source *s)
{
    free(s->copy);
    PyBuffer_Release(&s->view);
}

/* The library would read what is committed of a map with plain stores, so what is stored there is copied. */
bool source_take(struct source *s, PyObject *object)
{
    if (PyObject_GetBuffer(object, &s->view, PyBUF_SIMPLE) < 0)
        return false;
    s->bytes = s->view.buf;
    s->copy = NULL;
    if (!map_has_stores_at(s->bytes))
        return true;
    s->copy = malloc((size_t)s->view.len + 1);
    if (!s->copy) {
        PyBuffer_Release(&s->view);
        PyErr_NoMemory();
        return false;
    }
    s->bytes = memcpy(s->copy, s->bytes, (size_t)s->view.len);
    return true;
}

int bytes_set(PyObject *self, PyObject *key, PyObject *value, Py_ssize_t size, writer *write)
{
    struct range r;
    struct source s;
    bool ok;
    if (size < 0)
        return -1;
    if (!value) {
        PyErr_SetString(PyExc_TypeError, "bytes of a file cannot be deleted; resize() cuts it");
        return -1;
    }
    if (!range_take(&r, key, size))
        return -1;
    if (r.is_byte) {
        const Py_ssize_t number = PyNumber_AsSsize_t(value, PyExc_ValueError);
        if (number == -1 && PyErr_Occurred())
            return -1;
        if (number < 0 || number > 255) {
            PyErr_SetString(PyExc_ValueError, "a byte is from 0 to 255");
            return -1;
        }
        const unsigned char byte = (unsigned char)number;
        return write(self, r.at, &byte, 1) ? 0 : -1;
    }
    if (!source_take(&s, value))
        return -1;
    if (s.view.len != r.n) {
        PyErr_Format(PyExc_ValueError,
                     "the slice has %zd bytes of the file, which has %zd, and the value has %zd",
                     r.n, size, s.view.len);
        ok = false;
    } else {
        ok = r.n == 0 || write(self, r.at, s.bytes, r.n);
    }
    source_give(&s);
    return ok ? 0 : -1;
}
