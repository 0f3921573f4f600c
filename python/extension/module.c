/* SPDX-License-Identifier: BSD-3-Clause */
/* The module: exceptions, types, and in which processes it is refused. */
#include "module.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

PyTypeObject *map_type, *lease_type, *transaction_type, *snapshot_type, *stat_type;
PyObject *error_class, *denied_class, *refused_class, *stale_class, *timed_out_class;
unsigned forks;

/* The library names a mapping by an address and a file by its descriptor, which Python does not have: here it is a file and an offset. */
static PyObject *with_names(const Map *m, const char *said)
{
    static const char mapping[] = "the mapping at ";
    static const char descriptor[] = "descriptor ";
    const char *number = strstr(said, "0x");
    char *rest;
    if (m && strncmp(said, descriptor, strlen(descriptor)) == 0)
        return PyUnicode_FromFormat("%S%s", m->path,
                                    said + strlen(descriptor) +
                                        strspn(said + strlen(descriptor), "0123456789"));
    const uintptr_t at = number ? strtoull(number, &rest, 16) : 0, base = m ? (uintptr_t)m->at : 0;
    if (!base || at < base || at - base > m->room)
        return PyUnicode_DecodeFSDefault(said);
    if (number == said + 1 && said[0] == '[' && strncmp(rest, ", +", 3) == 0)
        return PyUnicode_FromFormat("%S: %llu bytes at %zu are not within the file", m->path,
                                    strtoull(rest + 3, NULL, 10), (size_t)(at - base));
    if (number < said + strlen(mapping) ||
        strncmp(number - strlen(mapping), mapping, strlen(mapping)) != 0)
        return PyUnicode_DecodeFSDefault(said);
    PyObject *before =
        PyUnicode_DecodeFSDefaultAndSize(said, number - said - (Py_ssize_t)strlen(mapping));
    PyObject *after = PyUnicode_DecodeFSDefault(rest);
    PyObject *sentence =
        before && after ? PyUnicode_FromFormat("%U%S%U", before, m->path, after) : NULL;
    Py_XDECREF(before);
    Py_XDECREF(after);
    return sentence;
}

static PyObject *in_python_words(const Map *m, const char *said)
{
    static const char *const words[][2] = {
        {"with ATO_TX_READ_COMMITTED", "with read_committed=True"},
        {"ATO_PLAIN_STORES", "plain_stores=True"},
        {"ATO_PREFER_FILE", "prefer='file'"},
        {"ATO_PREFER_REFLECTION", "prefer='reflection'"},
        {"ato_msync()", "sync()"},
        {"ato_plain_discard()", "discard()"},
    };
    PyObject *sentence = with_names(m, said);
    for (size_t i = 0; sentence && i < sizeof(words) / sizeof(*words); i++) {
        if (!strstr(said, words[i][0]))
            continue;
        PyObject *new = PyObject_CallMethod(sentence, "replace", "ss", words[i][0], words[i][1]);
        Py_DECREF(sentence);
        sentence = new;
    }
    return sentence;
}

PyObject *fail(const Map *m, int number)
{
    PyObject *class = error_class, *sentence = in_python_words(m, ato_errormsg()), *e;
    switch (number) {
    case EACCES:
    case EPERM:
        class = denied_class;
        break;
    case EAGAIN:
        class = refused_class;
        break;
    case ESTALE:
        class = stale_class;
        break;
    case ETIMEDOUT:
        class = timed_out_class;
        break;
    }
    if (sentence && (e = PyObject_CallFunction(class, "iO", number, sentence))) {
        PyErr_SetObject(class, e);
        Py_DECREF(e);
    }
    Py_XDECREF(sentence);
    return NULL;
}

PyObject *itself(PyObject *self, PyObject *none)
{
    (void)none;
    Py_INCREF(self);
    return self;
}

bool size_take(Py_ssize_t *size, PyObject *arg)
{
    *size = PyNumber_AsSsize_t(arg, PyExc_OverflowError);
    return *size != -1 || !PyErr_Occurred();
}

bool has_raised(PyObject *args)
{
    return PyTuple_Size(args) > 0 && PyTuple_GetItem(args, 0) != Py_None;
}

void free_object(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyTypeObject *make_type(PyObject *module, const char *name, int bytes, PyType_Slot *slots)
{
    PyType_Spec spec = {name, bytes, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                        slots};
    PyObject *type = PyType_FromSpec(&spec);
    if (type && PyModule_AddObjectRef(module, strchr(name, '.') + 1, type) < 0)
        Py_CLEAR(type);
    return (PyTypeObject *)type;
}

static PyObject *make_error(PyObject *module, const char *name, PyObject *also, const char *what)
{
    PyObject *bases = also && error_class ? PyTuple_Pack(2, error_class, also)
                                          : PyTuple_Pack(1, error_class ? error_class : also);
    PyObject *class = bases ? PyErr_NewExceptionWithDoc(name, what, bases, NULL) : NULL;
    Py_XDECREF(bases);
    if (class && PyModule_AddObjectRef(module, strchr(name, '.') + 1, class) < 0)
        Py_CLEAR(class);
    return class;
}

static int set_up(PyObject *module)
{
    if (map_type || PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
        PyErr_SetString(PyExc_ImportError,
                        "ato can be imported once in a process, in its main interpreter: "
                        "subinterpreters cannot use it");
        return -1;
    }
    if (strcmp(ato_version(), VERSION) != 0) {
        PyErr_Format(PyExc_ImportError,
                     "the process has loaded libato %s already, and this package needs its own "
                     "(%s): start it without LD_PRELOAD or LD_LIBRARY_PATH, or install the package "
                     "of that version",
                     ato_version(), VERSION);
        return -1;
    }
    (void)((error_class = make_error(module, "ato.Error", PyExc_OSError,
                                     "A call of libato failed. errno says how, strerror is its "
                                     "sentence. Nothing has changed,\nexcept after EIO.")) &&
           (denied_class = make_error(module, "ato.Denied", PyExc_PermissionError,
                                      "EACCES: no permission, or the map is read-only.")) &&
           (refused_class = make_error(module, "ato.Refused", PyExc_BlockingIOError,
                                       "EAGAIN: others were in the way; try again.")) &&
           (stale_class =
                make_error(module, "ato.Stale", NULL,
                           "ESTALE: another program has changed the file, or the snapshot was "
                           "given up.")) &&
           (timed_out_class =
                make_error(module, "ato.TimedOut", PyExc_TimeoutError,
                           "ETIMEDOUT: others held a page for too long; try again.")) &&
           (transaction_type =
                make_type(module, "ato.Transaction", transaction_bytes, transaction_slots)) &&
           (lease_type = make_type(module, "ato._Lease", lease_bytes, lease_slots)) &&
           (snapshot_type = make_type(module, "ato.Snapshot", snapshot_bytes, snapshot_slots)) &&
           (stat_type = PyStructSequence_NewType(&stat_desc)) &&
           PyModule_AddObjectRef(module, "Stat", (PyObject *)stat_type) == 0 &&
           PyModule_AddStringConstant(module, "__version__", VERSION) == 0 &&
           (errno = pthread_atfork(NULL, NULL, map_after_fork)) == 0 &&
           (map_type = make_type(module, "ato.Map", sizeof(Map), map_slots)));
    if (!map_type && !PyErr_Occurred())
        PyErr_SetFromErrno(PyExc_OSError);
    return map_type ? 0 : -1;
}

PyMODINIT_FUNC PyInit__ato(void);
PyMODINIT_FUNC PyInit__ato(void)
{
    static PyMethodDef functions[] = {{"open_map", map_open, METH_VARARGS, "For ato.map() only."},
                                      {NULL, NULL, 0, NULL}};
    static PyModuleDef_Slot slots[] = {{Py_mod_exec, SLOT(set_up)}, {0, NULL}};
    static PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT,
                                     .m_name = "ato._ato",
                                     .m_methods = functions,
                                     .m_slots = slots};
    return PyModuleDef_Init(&definition);
}
