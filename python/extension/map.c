/* SPDX-License-Identifier: BSD-3-Clause */
/* Map: what Python calls on a mapped file; how it is opened and closed. */
#include "module.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static Map *plain_maps;

bool map_usable(const Map *m)
{
    if (m->at && m->forks == forks)
        return true;
    PyErr_SetString(PyExc_ValueError,
                    m->at ? "the map is of the process that forked this one: map the file here"
                          : "the map is closed");
    return false;
}

static Py_ssize_t map_size(PyObject *self)
{
    Map *m = (Map *)self;
    if (!map_usable(m))
        return -1;
    const off_t size = ato_size(m->at);
    if (size < 0)
        fail(m, errno);
    return (size_t)size < m->room || size < 0 ? size : (Py_ssize_t)m->room;
}

static bool map_read(PyObject *self, void *dst, Py_ssize_t at, Py_ssize_t n)
{
    Map *m = (Map *)self;
    const void *got;
    if (!map_usable(m)) /* a conversion of the arguments may have closed it */
        return false;
    WAITING(m->calls, got = ato_memcpy(dst, m->at + at, (size_t)n));
    return got || fail(m, errno);
}

static bool map_write(PyObject *self, Py_ssize_t at, const void *src, Py_ssize_t n)
{
    Map *m = (Map *)self;
    const void *got;
    if (!map_usable(m))
        return false;
    WAITING(m->calls, got = ato_memcpy(m->at + at, src, (size_t)n));
    return got || fail(m, errno);
}

static PyObject *map_get(PyObject *self, PyObject *key)
{
    return bytes_get(self, key, map_size(self), map_read);
}

static int map_set(PyObject *self, PyObject *key, PyObject *value)
{
    return bytes_set(self, key, value, map_size(self), map_write);
}

static PyObject *map_read_into(PyObject *self, PyObject *args, PyObject *names)
{
    return bytes_get_into(self, args, names, map_size(self), map_read);
}

static PyObject *map_writev(PyObject *self, PyObject *args, PyObject *names)
{
    static char *known[] = {"ranges", "relaxed", NULL};
    Map *m = (Map *)self;
    PyObject *ranges, *result = NULL;
    Py_ssize_t n = 0, taken = 0, at;
    int relaxed = 0, r;
    if (!PyArg_ParseTupleAndKeywords(args, names, "O|$p:writev", known, &ranges, &relaxed) ||
        !(ranges = PySequence_List(ranges)))
        return NULL;
    n = PyList_Size(ranges);
    struct source *sources = calloc((size_t)n + 1, sizeof(*sources));
    struct ato_iovec *all = calloc((size_t)n + 1, sizeof(*all));
    if (!sources || !all || n > INT_MAX) {
        PyErr_NoMemory();
        goto end;
    }
    for (; taken < n; taken++) {
        PyObject *bytes, *range = PyList_GetItem(ranges, taken);
        if (!PyTuple_Check(range) || !PyArg_ParseTuple(range, "nO", &at, &bytes)) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_TypeError, "a range is a tuple of an offset and bytes");
            goto end;
        }
        if (!source_take(&sources[taken], bytes))
            goto end;
        const Py_ssize_t length = sources[taken].view.len, size = map_size(self);
        if (size < 0 || at < 0 || at > size || length > size - at) {
            if (size >= 0)
                PyErr_Format(PyExc_IndexError,
                             "range %zd: %zd bytes at %zd are not within the file, which has %zd",
                             taken, length, at, size);
            taken++;
            goto end;
        }
        all[taken] = (struct ato_iovec){m->at + at, sources[taken].bytes, (size_t)length};
    }
    if (!map_usable(m))
        goto end;
    if (n)
        WAITING(m->calls, r = ato_writev(all, (int)n, relaxed ? ATO_RELAXED : 0));
    else
        r = 0;
    result = r < 0 ? fail(m, errno) : Py_NewRef(Py_None);
end:
    while (taken > 0)
        source_give(&sources[--taken]);
    free(sources);
    free(all);
    Py_DECREF(ranges);
    return result;
}

static PyObject *map_resize(PyObject *self, PyObject *arg)
{
    Map *m = (Map *)self;
    Py_ssize_t size, old;
    int r;
    if (!size_take(&size, arg) || (old = map_size(self)) < 0)
        return NULL;
    if (m->exports && size < old) {
        PyErr_SetString(PyExc_BufferError,
                        "the file cannot be cut while a memoryview or array uses the map");
        return NULL;
    }
    WAITING(m->calls, r = ato_ftruncate(m->at, size));
    if (r == 0 && m->reach > size)
        m->reach = size;
    return r < 0 ? fail(m, errno) : Py_NewRef(Py_None);
}

/* Whether what was stored may lie behind the end of the file, which others have cut: a commit would leave it out. With an exception. */
static bool map_is_cut(Map *m)
{
    const Py_ssize_t size = m->reach ? map_size((PyObject *)m) : 0;
    if (size < 0 || m->reach <= size)
        return size < 0;
    PyObject *sentence = PyUnicode_FromFormat(
        "%S has %zd bytes now, and a memoryview or array of its map has %zd: what was stored "
        "behind the end has no place. Nothing was committed: map the file again",
        m->path, size, m->reach);
    PyObject *e = sentence ? PyObject_CallFunction(stale_class, "iO", ESTALE, sentence) : NULL;
    if (e)
        PyErr_SetObject(stale_class, e);
    Py_XDECREF(e);
    Py_XDECREF(sentence);
    return true;
}

/* Commits all that was stored, or forgets it. Others may cut the file after its size was asked for, which is EFAULT: then once more. */
static PyObject *end_stores(Map *m, bool commits, int flags)
{
    int r, tries = 0;
    do {
        const Py_ssize_t size = map_size((PyObject *)m);
        const size_t n = size ? (size_t)size : 1;
        if (size < 0 || (commits && map_is_cut(m)))
            return NULL;
        WAITING(m->calls, r = commits ? ato_msync(m->at, n, flags) : ato_plain_discard(m->at, n));
    } while (r < 0 && errno == EFAULT && ++tries < 1000);
    if (r == 0 && !m->exports)
        m->reach = 0;
    return r < 0 ? fail(m, errno) : Py_NewRef(Py_None);
}

static PyObject *map_sync(PyObject *self, PyObject *args, PyObject *names)
{
    static char *known[] = {"wait", NULL};
    int wait = 1;
    return PyArg_ParseTupleAndKeywords(args, names, "|$p:sync", known, &wait)
               ? end_stores((Map *)self, true, wait ? MS_SYNC : MS_ASYNC)
               : NULL;
}

static PyObject *map_discard(PyObject *self, PyObject *none)
{
    (void)none;
    return end_stores((Map *)self, false, 0);
}

static PyObject *map_deploy(PyObject *self, PyObject *args, PyObject *names)
{
    static char *known[] = {"offset", "length", NULL};
    Map *m = (Map *)self;
    const Py_ssize_t size = map_size(self);
    Py_ssize_t at = 0, n = PY_SSIZE_T_MAX;
    int r = 0;
    if (size < 0 || !PyArg_ParseTupleAndKeywords(args, names, "|nn:deploy", known, &at, &n))
        return NULL;
    if (at < 0 || n < 0) {
        PyErr_SetString(PyExc_ValueError, "an offset or length is negative");
        return NULL;
    }
    if (n > size - at)
        n = size - at;
    if (n > 0 && map_usable(m))
        WAITING(m->calls, r = ato_deploy(m->at + at, (size_t)n));
    return r < 0 ? fail(m, errno) : PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyStructSequence_Field stat_fields[] = {
    {"domain", "'pmem', 'eadr', 'disk' or 'process': what the bytes survive"},
    {"format", "'dense', 'sparse' or 'log'"},
    {"read_policy", "'lazy', 'gather' or 'eager'"},
    {"size", "of the file, in bytes"},
    {"slices_in_reflection", "slices of 64 bytes that the file itself does not have"},
    {"reflection_bytes", "storage of the reflection or the log, in bytes"},
    {"writes", "successful calls"},
    {"bytes_written", "by them"},
    {"reads", "successful calls"},
    {"bytes_read", "by them"},
    {"bytes_to_media", "stored on the media"},
    {NULL, NULL}};
PyStructSequence_Desc stat_desc = {
    "ato.Stat", "What Map.stat() returns: the state of a file, and counters of this process.",
    stat_fields, 11};

static PyObject *map_stat(PyObject *self, PyObject *none)
{
    static const char *const domains[] = {"auto", "pmem", "eadr", "disk", "process"};
    static const char *const formats[] = {"default", "dense", "sparse", "", "log"};
    static const char *const policies[] = {"default", "lazy", "gather", "eager"};
    struct ato_stat st = {.struct_size = sizeof(st)};
    Map *m = (Map *)self;
    int r;
    (void)none;
    if (!map_usable(m))
        return NULL;
    WAITING(m->calls, r = ato_stat(m->at, &st));
    if (r < 0)
        return fail(m, errno);
    PyObject *result = PyStructSequence_New(stat_type);
    const uint64_t numbers[] = {st.size,       st.slices_in_reflection, st.reflection_bytes,
                                st.writes,     st.bytes_written,        st.reads,
                                st.bytes_read, st.bytes_to_media};
    if (!result)
        return NULL;
    PyStructSequence_SetItem(result, 0, PyUnicode_FromString(domains[st.domain]));
    PyStructSequence_SetItem(result, 1, PyUnicode_FromString(formats[st.format]));
    PyStructSequence_SetItem(result, 2, PyUnicode_FromString(policies[st.read_policy]));
    for (int i = 0; i < 8; i++)
        PyStructSequence_SetItem(result, 3 + i, PyLong_FromUnsignedLongLong(numbers[i]));
    if (PyErr_Occurred())
        Py_CLEAR(result);
    return result;
}

/* What a buffer of a map belongs to. An array keeps it, also if it gives the buffer back: numpy.ndarray(buffer=memoryview(m)). */
typedef struct {
    PyObject ob_base;
    Map *map;
} Lease;

const int lease_bytes = sizeof(Lease);

static void lease_free(PyObject *self)
{
    Map *m = ((Lease *)self)->map;
    m->exports--;
    Py_DECREF((PyObject *)m);
    free_object(self);
}

PyType_Slot lease_slots[] = {{Py_tp_dealloc, SLOT(lease_free)}, {0, NULL}};

static int map_lend(PyObject *self, Py_buffer *view, int flags)
{
    Map *m = (Map *)self;
    view->obj = NULL;
    if (!m->plain_stores) {
        PyErr_SetString(PyExc_BufferError,
                        "the bytes of this map are read by m[a:b] or m.read_into(): only a map "
                        "with plain_stores=True has a buffer");
        return -1;
    }
    /* So numpy.ndarray() asks. It gives the buffer back, and keeps the address and the map: close() would not know. */
    if ((flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS && !(flags & PyBUF_FORMAT)) {
        PyErr_SetString(PyExc_BufferError,
                        "numpy.ndarray(buffer=) takes memoryview(m), not the map m itself");
        return -1;
    }
    const Py_ssize_t size = map_size(self);
    Lease *lease = size < 0 ? NULL : PyObject_New(Lease, lease_type);
    if (!lease)
        return -1;
    lease->map = (Map *)Py_NewRef(self);
    m->exports++;
    const int r =
        PyBuffer_FillInfo(view, (PyObject *)lease, m->at, size, m->readonly, flags); /* keeps it */
    Py_DECREF((PyObject *)lease);
    if (r == 0 && m->reach < size)
        m->reach = size;
    return r;
}

/* Does nothing, as a lease ends by itself. Without this function, numpy.frombuffer(m) would keep the address without the buffer. */
static void map_take_back(PyObject *self, Py_buffer *view)
{
    (void)self;
    (void)view;
}

/* In a child of fork: if Python may have the address of the mapping, puts private pages of zeros there, until the map is freed. */
static void stand_in(Map *m, char *at)
{
    if (m->exports &&
        mmap(at, m->room, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) == at)
        m->pages = at;
}

/* Forgets a mapping that is unmapped, or that is the parent's. */
static void forget(Map *m)
{
    Map **at = &plain_maps;
    m->at = NULL;
    while (*at && *at != m)
        at = &(*at)->next;
    if (*at)
        *at = m->next;
    if (m->fd >= 0)
        close(m->fd);
    m->fd = -1;
}

static PyObject *unmap(Map *m, int mode)
{
    Py_ssize_t none = 0;
    int r;
    if (!m->at || m->forks != forks) {
        if (m->at && !m->exports)
            forget(m);
        return Py_NewRef(Py_None);
    }
    if (m->calls || m->exports) {
        PyErr_SetString(PyExc_BufferError,
                        m->calls ? "the map cannot be closed while a call on it is under way"
                                 : "the map cannot be closed while a memoryview or array uses it");
        return NULL;
    }
    if (!(mode & ATO_UNMAP_DISCARD) && map_is_cut(m))
        return NULL;
    char *const at = m->at;
    m->at = NULL; /* for other threads it is closed */
    WAITING(none, r = ato_munmap(at, m->length, mode));
    m->at = at;
    PyObject *result = r < 0 ? fail(m, errno) : Py_NewRef(Py_None);
    if (r == 0 || ato_size(at) < 0) /* else it is still mapped */
        forget(m);
    return result;
}

static PyObject *map_close(PyObject *self, PyObject *args, PyObject *names)
{
    static char *known[] = {"keep_reflection", "discard", NULL};
    Map *m = (Map *)self;
    int keep = 0, discards = 0;
    if (!PyArg_ParseTupleAndKeywords(args, names, "|$pp:close", known, &keep, &discards))
        return NULL;
    return unmap(m, (keep ? ATO_UNMAP_FAST : ATO_UNMAP_SPATIAL) |
                        (discards && m->plain_stores ? ATO_UNMAP_DISCARD : 0));
}

static PyObject *map_exit(PyObject *self, PyObject *args)
{
    Map *m = (Map *)self;
    const bool failed = has_raised(args);
    /* The exception's frames may have a memoryview. It is the one to be seen; the map is closed when they go. */
    if (failed && m->exports && m->at && m->forks == forks)
        return map_discard(self, NULL);
    return unmap(m, ATO_UNMAP_SPATIAL | (failed && m->plain_stores ? ATO_UNMAP_DISCARD : 0));
}

static void map_free(PyObject *self)
{
    Map *m = (Map *)self;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (m->at && !m->plain_stores && m->forks == forks && m->path &&
        PyErr_ResourceWarning(NULL, 1, "the map of %R was not closed", m->path) < 0)
        PyErr_WriteUnraisable(m->path);
    PyObject *result = unmap(m, ATO_UNMAP_SPATIAL | (m->plain_stores ? ATO_UNMAP_DISCARD : 0));
    if (!result)
        PyErr_WriteUnraisable(m->path);
    Py_XDECREF(result);
    if (m->at)
        forget(m); /* what is left of it is never unmapped */
    if (m->pages)
        munmap(m->pages, m->room);
    PyErr_Restore(type, value, trace);
    Py_XDECREF(m->path);
    free_object(self);
}

static PyObject *map_closed(PyObject *self, void *none)
{
    (void)none;
    return PyBool_FromLong(!((Map *)self)->at);
}

static PyObject *map_path(PyObject *self, void *none)
{
    (void)none;
    return Py_NewRef(((Map *)self)->path);
}

static PyObject *map_repr(PyObject *self)
{
    Map *m = (Map *)self;
    const off_t size = m->at && m->forks == forks ? ato_size(m->at) : -1;
    return size < 0 ? PyUnicode_FromFormat("<ato.Map %R, closed>", m->path)
                    : PyUnicode_FromFormat("<ato.Map %R, %lld bytes%s>", m->path, (long long)size,
                                           m->plain_stores ? ", plain_stores=True" : "");
}

bool map_has_stores_at(const void *at)
{
    for (const Map *m = plain_maps; m; m = m->next)
        if (m->forks == forks && (const char *)at >= m->at && (const char *)at < m->at + m->room)
            return true;
    return false;
}

/* In a child of fork, before Python knows: where Python may have an address there are the pages of the file. */
void map_after_fork(void)
{
    struct stat st;
    for (Map *m = plain_maps; m; m = m->next)
        if (m->at && m->forks == forks) {
            stand_in(m, m->at);
            if (m->pages && fstat(m->fd, &st) == 0 && st.st_size > 0)
                (void)mmap(m->pages, (size_t)st.st_size < m->room ? (size_t)st.st_size : m->room,
                           PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED, m->fd,
                           0);
        }
    forks++;
}

/* open_map(fd, path, size, max_size, flags, domain, read_policy, readonly): takes the descriptor if it succeeds. */
PyObject *map_open(PyObject *module, PyObject *args)
{
    struct ato_options o = {.struct_size = sizeof(o)};
    Py_ssize_t size, max_size, none = 0;
    PyObject *path;
    struct stat st;
    int fd, readonly;
    char *at;
    (void)module;
    if (!PyArg_ParseTuple(args, "iOnnIiip", &fd, &path, &size, &max_size, &o.flags, &o.domain,
                          &o.read_policy, &readonly))
        return NULL;
    Map *m = PyObject_New(Map, map_type);
    if (!m)
        return NULL;
    memset(&m->at, 0, sizeof(*m) - offsetof(Map, at));
    m->forks = forks;
    m->fd = -1;
    m->path = Py_NewRef(path);
    m->readonly = readonly;
    m->plain_stores = o.flags & ATO_PLAIN_STORES;
    /* It has to reach to the end of the file, which others may make longer meanwhile. */
    for (m->length = size > 0 ? (size_t)size : 1;; m->length = m->room) {
        if (fstat(fd, &st) < 0) {
            PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path);
            break;
        }
        if ((size_t)st.st_size > m->length)
            m->length = (size_t)st.st_size;
        o.max_size = max_size > 0                  ? (size_t)max_size
                     : m->length > (size_t)1 << 30 ? m->length
                                                   : (size_t)1 << 30;
        WAITING(none, at = ato_mmap_opt(m->length, fd, 0, &o));
        if (at == MAP_FAILED && errno == EFBIG && max_size <= 0) { /* mapped with a smaller one */
            o.max_size = 0;
            WAITING(none, at = ato_mmap_opt(m->length, fd, 0, &o));
        }
        if (at == MAP_FAILED) {
            fail(m, errno);
            break;
        }
        m->at = at;
        m->room = o.max_size ? o.max_size : m->length;
        const off_t now = ato_size(at);
        if (now < 0 || (size_t)now <= m->room)
            break;
        m->at = NULL;
        WAITING(none, (void)ato_munmap(at, m->length, ATO_UNMAP_FAST));
        if (max_size > 0) {
            PyErr_Format(PyExc_ValueError, "the file has %lld bytes, more than max_size",
                         (long long)now);
            break;
        }
        m->room = (size_t)now;
    }
    if (!m->at) {
        Py_DECREF(m);
        return NULL;
    }
    if (m->plain_stores) {
        m->fd = fd;
        m->next = plain_maps;
        plain_maps = m;
    } else {
        close(fd);
    }
    return (PyObject *)m;
}

static PyMethodDef map_methods[] = {
    {"read_into", CALL(map_read_into), WITH_NAMES, READ_INTO_DOC},
    {"writev", CALL(map_writev), WITH_NAMES,
     "writev($self, /, ranges, *, relaxed=False)\n--\n\n"
     "Write several ranges as one atomic step, durable on return.\n\n"
     "`ranges` has tuples (offset, bytes-like). A later one wins where they\n"
     "overlap. With relaxed=True the call does not wait for a disk, and a power\n"
     "cut may take the newest commits. Raises IndexError, and writes nothing, if\n"
     "a range is not within the file."},
    {"transaction", CALL(map_transaction), WITH_NAMES,
     "transaction($self, /, *, relaxed=False, read_committed=False, max_bytes=0,\n"
     "            timeout=0.0)\n--\n\n"
     "Begin a transaction, for a with statement: it commits at the end of the\n"
     "block, durably, and is aborted if an exception leaves the block.\n\n"
     "Transactions are serializable. One that others are in the way of raises\n"
     "Refused, in the block or at its end, and has no effect: run it again from\n"
     "its beginning, as run() does. `timeout`: how many seconds a call waits for\n"
     "a page that others hold (0: 1 ms). `max_bytes`: how much it may write\n"
     "(0: 1 GiB). read_committed=True: its reads are not checked at its end."},
    {"run", CALL(map_run), WITH_NAMES,
     "run($self, /, fn, *, relaxed=False, read_committed=False, max_bytes=0,\n"
     "    timeout=0.0)\n--\n\n"
     "Run fn(tx) in a transaction, again while it is refused, and return what fn\n"
     "returned. Durable on return.\n\n"
     "fn may run any number of times, so what it does outside the transaction\n"
     "must be right after any number of runs. An exception of fn aborts the\n"
     "transaction and goes on to the caller; Refused runs it again. Raises\n"
     "Refused if that goes on for `timeout` seconds (0: 10)."},
    {"snapshot", map_snapshot, METH_NOARGS,
     "snapshot($self, /)\n--\n\n"
     "Return the whole file as it is now, for a with statement. It blocks no\n"
     "writer. Close it before the map."},
    {"resize", map_resize, METH_O,
     "resize($self, size, /)\n--\n\n"
     "Make the file `size` bytes long, atomically, durable on return. New bytes\n"
     "are zeros. Of a map with plain stores a growth is in its next sync()."},
    {"sync", CALL(map_sync), WITH_NAMES,
     "sync($self, /, *, wait=True)\n--\n\n"
     "Make all relaxed commits durable. Of a map with plain stores: commit what\n"
     "was stored, as one atomic step; if it raises, the stores are still there.\n"
     "With wait=False such a commit is relaxed."},
    {"discard", map_discard, METH_NOARGS,
     "discard($self, /)\n--\n\n"
     "Of a map with plain stores: forget what was stored since the last commit."},
    {"deploy", CALL(map_deploy), WITH_NAMES,
     "deploy($self, /, offset=0, length=sys.maxsize)\n--\n\n"
     "Bring all bytes of these pages into the file itself, so that programs\n"
     "without libato see them, until the next write there."},
    {"stat", map_stat, METH_NOARGS,
     "stat($self, /)\n--\n\nReturn state and counters of the file, a Stat."},
    {"close", CALL(map_close), WITH_NAMES,
     "close($self, /, *, keep_reflection=False, discard=False)\n--\n\n"
     "Unmap the file, and make it an ordinary one if no one else has it mapped.\n\n"
     "With keep_reflection=True that takes no time, and the file is not ordinary:\n"
     "it has to be mapped again. Of a map with plain stores, commit what was\n"
     "stored, or with discard=True forget it. Raises BufferError while a\n"
     "memoryview or array of the map, or a call in another thread, is alive,\n"
     "and Error (EBUSY) while a transaction or snapshot is open.\n"
     "A closed map may be closed again; other calls raise ValueError."},
    {"__enter__", itself, METH_NOARGS, ENTER_DOC},
    {"__exit__", map_exit, METH_VARARGS,
     EXIT_DOC "close(); after an exception close(discard=True)."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef map_properties[] = {
    {"closed", map_closed, NULL, "Whether the map is closed.", NULL},
    {"path", map_path, NULL, "The file's path, as map() was given it.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

PyType_Slot map_slots[] = {
    {Py_tp_doc, "A mapped file, made by map(). len() is its size in bytes.\n\n"
                "m[a:b] reads bytes, one consistent snapshot; m[a:b] = data writes as many,\n"
                "all or nothing, durable on return; m[i] is a byte. Any thread may call at\n"
                "any time."},
    {Py_tp_methods, map_methods},
    {Py_tp_getset, map_properties},
    {Py_tp_dealloc, SLOT(map_free)},
    {Py_tp_repr, SLOT(map_repr)},
    {Py_mp_length, SLOT(map_size)},
    {Py_mp_subscript, SLOT(map_get)},
    {Py_mp_ass_subscript, SLOT(map_set)},
    {Py_bf_getbuffer, SLOT(map_lend)},
    {Py_bf_releasebuffer, SLOT(map_take_back)},
    {0, NULL}};
