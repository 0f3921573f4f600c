/* SPDX-License-Identifier: BSD-3-Clause */
/* Transaction: one that Python begins and ends (Map.transaction()), and one that ato_tx_run() does (Map.run()). */
#include "module.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    PyObject ob_base;
    Map *map;
    ato_tx *tx; /* NULL: over */
    bool busy;  /* a thread is in a call on it */
    bool is_of_run, resized;
} Transaction;

const int transaction_bytes = sizeof(Transaction);

/* Returns whether calls on the transaction can be made; false with an exception. */
static bool is_open(const Transaction *t)
{
    if (!map_usable(t->map))
        return false;
    if (t->tx && !t->busy)
        return true;
    if (t->tx)
        PyErr_SetString(PyExc_RuntimeError, "another thread is in a call on the transaction");
    else
        PyErr_SetString(PyExc_ValueError, "the transaction is over");
    return false;
}

/* Whether the caller may end it: run() ends its own. False with an exception. */
static bool is_callers(const Transaction *t)
{
    if (t->is_of_run)
        PyErr_SetString(PyExc_RuntimeError, "run() ends this transaction itself: return to commit "
                                            "it, raise an exception to abort it");
    return !t->is_of_run;
}

static Transaction *transaction_new(Map *m, ato_tx *tx)
{
    Transaction *t = PyObject_New(Transaction, transaction_type);
    if (!t)
        return NULL;
    memset(&t->map, 0, sizeof(*t) - offsetof(Transaction, map));
    Py_INCREF((PyObject *)m);
    t->map = m;
    t->tx = tx;
    return t;
}

static bool transaction_options(struct ato_tx_options *o, PyObject *args, PyObject *names,
                                PyObject **fn)
{
    static char *known[] = {"fn", "relaxed", "read_committed", "max_bytes", "timeout", NULL};
    int relaxed = 0, read_committed = 0;
    unsigned long long max_bytes = 0;
    double timeout = 0;
    const bool ok =
        fn ? PyArg_ParseTupleAndKeywords(args, names, "O|$ppKd:run", known, fn, &relaxed,
                                         &read_committed, &max_bytes, &timeout)
           : PyArg_ParseTupleAndKeywords(args, names, "|$ppKd:transaction", known + 1, &relaxed,
                                         &read_committed, &max_bytes, &timeout);
    if (ok && !(timeout >= 0 && timeout < 1e9)) {
        PyErr_SetString(PyExc_ValueError, "timeout is a number of seconds from 0 on");
        return false;
    }
    *o = (struct ato_tx_options){.struct_size = sizeof(*o),
                                 .flags = (relaxed ? ATO_RELAXED : 0) |
                                          (read_committed ? ATO_TX_READ_COMMITTED : 0),
                                 .max_bytes = max_bytes};
    *(fn ? &o->run_ms : &o->wait_ms) = (uint64_t)(timeout * 1000 + 0.999);
    return ok;
}

PyObject *map_transaction(PyObject *self, PyObject *args, PyObject *names)
{
    struct ato_tx_options o;
    Map *m = (Map *)self;
    ato_tx *tx;
    if (!transaction_options(&o, args, names, NULL) || !map_usable(m))
        return NULL;
    WAITING(m->calls, tx = ato_tx_begin_opt(&o));
    if (!tx)
        return fail(m, errno);
    Transaction *t = transaction_new(m, tx);
    if (!t)
        ato_tx_abort(tx);
    return (PyObject *)t;
}

/* Ends it. Nothing happens in a child of fork, where it is the parent's. */
static int transaction_end(Transaction *t, bool commits)
{
    ato_tx *tx = t->tx;
    int r = 0;
    t->tx = NULL;
    if (!tx || t->map->forks != forks)
        return 0;
    if (commits) {
        WAITING(t->map->calls, r = ato_tx_commit(tx));
        if (r < 0)
            fail(t->map, errno);
    }
    if (!commits || r < 0)
        WAITING(t->map->calls, (void)ato_tx_abort(tx));
    return r;
}

static void transaction_free(PyObject *self)
{
    Transaction *t = (Transaction *)self;
    (void)transaction_end(t, false);
    Py_DECREF(t->map);
    free_object(self);
}

static PyObject *transaction_enter(PyObject *self, PyObject *none)
{
    return is_callers((Transaction *)self) ? itself(self, none) : NULL;
}

static PyObject *transaction_exit(PyObject *self, PyObject *args)
{
    Transaction *t = (Transaction *)self;
    const bool failed = has_raised(args);
    if (!is_callers(t))
        return NULL;
    /* In a child of fork nothing can be committed, and an exception is the one to be seen. */
    if (t->tx && (!failed || t->busy) && !is_open(t))
        return NULL;
    return transaction_end(t, !failed) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *transaction_abort(PyObject *self, PyObject *none)
{
    Transaction *t = (Transaction *)self;
    (void)none;
    if (!is_callers(t) || !is_open(t))
        return NULL;
    return transaction_end(t, false) < 0 ? NULL : Py_NewRef(Py_None);
}

/* Runs the statement with the GIL released. No other thread may call on the transaction meanwhile. */
#define IN_TRANSACTION(t, statement)                                                               \
    do {                                                                                           \
        (t)->busy = true;                                                                          \
        WAITING((t)->map->calls, statement);                                                       \
        (t)->busy = false;                                                                         \
    } while (0)

static Py_ssize_t transaction_size(PyObject *self)
{
    Transaction *t = (Transaction *)self;
    off_t size;
    if (!is_open(t))
        return -1;
    IN_TRANSACTION(t, size = ato_tx_size(t->tx, t->map->at));
    if (size < 0)
        fail(t->map, errno);
    return (size_t)size < t->map->room || size < 0 ? size : (Py_ssize_t)t->map->room;
}

/* Whether a bound is a number of a byte that the file has, whatever its size. */
static bool is_within(PyObject *bound, off_t size)
{
    if (bound == Py_None)
        return false;
    const Py_ssize_t n = PyNumber_AsSsize_t(bound, NULL);
    if (n == -1 && PyErr_Occurred())
        PyErr_Clear(); /* range_take() says it */
    return n >= 0 && n <= size;
}

/* The size that limits a slice or index. The transaction reads the file's size only if they need it: then a change of it by others would
 * have it refused. -1 with an exception. */
static Py_ssize_t transaction_limit(PyObject *self, PyObject *key)
{
    bool given;
    off_t size;
    Transaction *t = (Transaction *)self;
    if (!is_open(t))
        return -1;
    size = ato_size(t->map->at);
    if (PySlice_Check(key)) {
        PyObject *start = PyObject_GetAttrString(key, "start");
        PyObject *stop = PyObject_GetAttrString(key, "stop");
        given =
            start && stop && (start == Py_None || is_within(start, size)) && is_within(stop, size);
        Py_XDECREF(start);
        Py_XDECREF(stop);
    } else {
        given = is_within(key, size - 1);
    }
    if (!given || t->resized)
        return transaction_size(self);
    return is_open(t) ? (Py_ssize_t)t->map->room : -1;
}

static bool transaction_read(PyObject *self, void *dst, Py_ssize_t at, Py_ssize_t n)
{
    Transaction *t = (Transaction *)self;
    const void *got;
    if (!is_open(t))
        return false;
    IN_TRANSACTION(t, got = ato_tx_memcpy(t->tx, dst, t->map->at + at, (size_t)n, 0));
    return got || fail(t->map, errno);
}

static bool transaction_write(PyObject *self, Py_ssize_t at, const void *src, Py_ssize_t n)
{
    Transaction *t = (Transaction *)self;
    const void *got;
    if (!is_open(t))
        return false;
    IN_TRANSACTION(t, got = ato_tx_memcpy(t->tx, t->map->at + at, src, (size_t)n, 0));
    return got || fail(t->map, errno);
}

static PyObject *transaction_get(PyObject *self, PyObject *key)
{
    return bytes_get(self, key, transaction_limit(self, key), transaction_read);
}

static int transaction_set(PyObject *self, PyObject *key, PyObject *value)
{
    return bytes_set(self, key, value, transaction_limit(self, key), transaction_write);
}

static PyObject *transaction_read_into(PyObject *self, PyObject *args, PyObject *names)
{
    return bytes_get_into(self, args, names, transaction_size(self), transaction_read);
}

static PyObject *transaction_resize(PyObject *self, PyObject *arg)
{
    Transaction *t = (Transaction *)self;
    Py_ssize_t size;
    int r;
    if (!size_take(&size, arg) || !is_open(t))
        return NULL;
    IN_TRANSACTION(t, r = ato_tx_ftruncate(t->tx, t->map->at, size));
    t->resized = true;
    return r < 0 ? fail(t->map, errno) : Py_NewRef(Py_None);
}

/* ---- Map.run() ---- */

struct run {
    Map *map;
    PyObject *fn, *result;
    PyObject *type, *value, *trace; /* what fn has raised */
    PyThreadState *thread;
};

/* The function of ato_tx_run(). It is called again after each transaction that was refused. errno is 0 if fn has raised. */
static int run_once(ato_tx *tx, void *arg)
{
    struct run *run = arg;
    PyEval_RestoreThread(run->thread);
    Py_CLEAR(run->result);
    /* What fn has raised of its own ends it, also if the transaction was refused. */
    if (!run->type || PyErr_GivenExceptionMatches(run->type, refused_class)) {
        Py_CLEAR(run->type);
        Py_CLEAR(run->value);
        Py_CLEAR(run->trace);
        Transaction *t = transaction_new(run->map, tx);
        if (t) {
            t->is_of_run = true;
            run->result = PyObject_CallFunctionObjArgs(run->fn, t, NULL);
            t->tx = NULL;
            while (t->busy) /* another thread to which fn gave it is in its last call */
                WAITING(run->map->calls, usleep(1000));
            Py_DECREF(t);
        }
        if (!run->result)
            PyErr_Fetch(&run->type, &run->value, &run->trace);
    }
    const int r = run->result ? 0 : -1;
    run->thread = PyEval_SaveThread();
    errno = 0;
    return r;
}

PyObject *map_run(PyObject *self, PyObject *args, PyObject *names)
{
    struct run run = {.map = (Map *)self};
    struct ato_tx_options o;
    int number;
    if (!transaction_options(&o, args, names, &run.fn) || !map_usable(run.map))
        return NULL;
    run.map->calls++;
    run.thread = PyEval_SaveThread();
    const int r = ato_tx_run(run_once, &run, &o);
    number = errno;
    PyEval_RestoreThread(run.thread);
    run.map->calls--;
    if (r == 0)
        return run.result;
    Py_CLEAR(run.result);
    if (number == 0 && run.type) {
        PyErr_Restore(run.type, run.value, run.trace);
        return NULL;
    }
    Py_CLEAR(run.type);
    Py_CLEAR(run.value);
    Py_CLEAR(run.trace);
    return fail(run.map, number);
}

static PyMethodDef transaction_methods[] = {
    {"read_into", CALL(transaction_read_into), WITH_NAMES, READ_INTO_DOC},
    {"resize", transaction_resize, METH_O,
     "resize($self, size, /)\n--\n\n"
     "Make the file `size` bytes long; others see that when the transaction commits."},
    {"abort", transaction_abort, METH_NOARGS,
     "abort($self, /)\n--\n\nEnd the transaction without any effect. In run() raise an exception "
     "instead."},
    {"__enter__", transaction_enter, METH_NOARGS, ENTER_DOC},
    {"__exit__", transaction_exit, METH_VARARGS,
     EXIT_DOC "Commit, durably; after an exception abort."},
    {NULL, NULL, 0, NULL}};

PyType_Slot transaction_slots[] = {
    {Py_tp_doc, "A transaction, made by Map.transaction() or Map.run().\n\n"
                "tx[a:b] and len(tx) see its own writes; others see them when it has\n"
                "committed. A bound that is left out, negative or behind the end, and len(tx)\n"
                "read the file's size: if others change it meanwhile, the transaction is refused."},
    {Py_tp_methods, transaction_methods},
    {Py_tp_dealloc, SLOT(transaction_free)},
    {Py_mp_length, SLOT(transaction_size)},
    {Py_mp_subscript, SLOT(transaction_get)},
    {Py_mp_ass_subscript, SLOT(transaction_set)},
    {0, NULL}};
