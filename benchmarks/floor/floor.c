/* What the machine allows, without any library between: the least a reader written in C can do.
 *
 * It verifies nothing, bounds-checks nothing that the caller did not promise, and maps a file that nobody
 * may shrink. None of that would do in a product; here it is the point. All calls count in samples and
 * bytes and leave the clock to Python, except the *_ns functions, which time their own loop.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static uint64_t sum_words(const unsigned char *bytes, size_t length)
{
    uint64_t sum = 0, word;
    size_t i = 0;
    for (; i + 8 <= length; i += 8) {
        memcpy(&word, bytes + i, 8); /* payloads of other stores lie at odd addresses */
        sum += word;
    }
    for (; i < length; i++) sum += bytes[i];
    return sum;
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* A cheap order that no prefetcher follows: xorshift, the same in every run. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

static int pread_all(int fd, char *to, size_t length, off_t offset)
{
    while (length > 0) {
        ssize_t got = pread(fd, to, length, offset);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            if (got == 0) errno = EIO;
            return -1;
        }
        to += got;
        length -= (size_t)got;
        offset += got;
    }
    return 0;
}

static int fill_rows(int fd, const uint64_t *at, const int64_t *row, Py_ssize_t first, Py_ssize_t end, char *to)
{
    for (Py_ssize_t i = first; i < end; i++) {
        size_t length = at[row[i] + 1] - at[row[i]];
        if (pread_all(fd, to, length, (off_t)at[row[i]]) < 0) return -1;
        to += length;
    }
    return 0;
}

PyDoc_STRVAR(touch_doc, "touch(buffer) -> int: read every byte; the sum of its 64-bit words, modulo 2**64.");
static PyObject *touch(PyObject *self, PyObject *object)
{
    Py_buffer view;
    uint64_t sum;
    (void)self;
    if (PyObject_GetBuffer(object, &view, PyBUF_SIMPLE) < 0) return NULL;
    sum = sum_words(view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLongLong(sum);
}

PyDoc_STRVAR(fill_doc,
             "fill(path, offsets, order, batch, touched) -> int: pread the rows of `order` (int64), each batch\n"
             "into one reused buffer, without objects or checks; the sum of all words if `touched`, else 0.");
static PyObject *fill(PyObject *self, PyObject *args)
{
    const char *path;
    Py_buffer offsets, order;
    Py_ssize_t batch, rows;
    int touched, fd, failed = 0;
    char *memory = NULL;
    size_t room = 0;
    uint64_t sum = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "sy*y*np", &path, &offsets, &order, &batch, &touched)) return NULL;
    rows = order.len / 8;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        failed = 1;
    } else {
        Py_BEGIN_ALLOW_THREADS
        const uint64_t *at = offsets.buf;
        const int64_t *row = order.buf;
        for (Py_ssize_t first = 0; first < rows && !failed; first += batch) {
            Py_ssize_t end = first + batch < rows ? first + batch : rows;
            size_t needed = 0;
            for (Py_ssize_t i = first; i < end; i++) needed += at[row[i] + 1] - at[row[i]];
            if (needed > room) {
                free(memory);
                memory = malloc(needed);
                room = memory ? needed : 0;
                if (!memory) failed = 1;
            }
            if (!failed) failed = fill_rows(fd, at, row, first, end, memory) < 0;
            if (touched && !failed) sum += sum_words((unsigned char *)memory, needed);
        }
        Py_END_ALLOW_THREADS
    }
    if (failed) PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
    free(memory);
    if (fd >= 0) close(fd);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&order);
    return failed ? NULL : PyLong_FromUnsignedLongLong(sum);
}

/* Rows that one of two threads reads, and how the other asks for them. */
typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum { IDLE, ASKED, DONE, OVER } state;
    int fd, failed;
    const uint64_t *at;
    const int64_t *row;
    Py_ssize_t first, end;
    char *to;
} Half;

static void *fill_half(void *given)
{
    Half *half = given;
    pthread_mutex_lock(&half->lock);
    for (;;) {
        while (half->state != ASKED && half->state != OVER) pthread_cond_wait(&half->changed, &half->lock);
        if (half->state == OVER) break;
        pthread_mutex_unlock(&half->lock);
        int failed = fill_rows(half->fd, half->at, half->row, half->first, half->end, half->to) < 0;
        pthread_mutex_lock(&half->lock);
        half->failed |= failed;
        half->state = DONE;
        pthread_cond_signal(&half->changed);
    }
    pthread_mutex_unlock(&half->lock);
    return NULL;
}

static void tell(Half *half, int state)
{
    pthread_mutex_lock(&half->lock);
    half->state = state;
    pthread_cond_signal(&half->changed);
    pthread_mutex_unlock(&half->lock);
}

PyDoc_STRVAR(fill_woken_doc,
             "fill_woken(path, offsets, order, batch): pread the rows of `order` (int64), each batch into one reused\n"
             "buffer: half of it in a second thread, which waits for each batch and is waited for.");
static PyObject *fill_woken(PyObject *self, PyObject *args)
{
    const char *path;
    Py_buffer offsets, order;
    Py_ssize_t batch, rows;
    pthread_t thread;
    size_t most = 0;
    char *memory = NULL;
    int started = 0, failed;
    Half half = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .state = IDLE};
    (void)self;
    if (!PyArg_ParseTuple(args, "sy*y*n", &path, &offsets, &order, &batch)) return NULL;
    rows = order.len / 8;
    half.at = offsets.buf;
    half.row = order.buf;
    for (Py_ssize_t i = 0; i < rows; i++) {
        size_t length = half.at[half.row[i] + 1] - half.at[half.row[i]];
        if (length > most) most = length;
    }
    memory = malloc(most * (size_t)batch);
    half.fd = open(path, O_RDONLY | O_CLOEXEC);
    failed = !memory || half.fd < 0;
    if (!failed) {
        started = pthread_create(&thread, NULL, fill_half, &half) == 0;
        failed = !started;
    }
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t first = 0; first < rows && !failed; first += batch) {
        Py_ssize_t end = first + batch < rows ? first + batch : rows, middle = first + (end - first) / 2;
        half.first = middle;
        half.end = end;
        half.to = memory + most * (size_t)(middle - first);
        tell(&half, ASKED);
        failed = fill_rows(half.fd, half.at, half.row, first, middle, memory) < 0;
        pthread_mutex_lock(&half.lock);
        while (half.state != DONE) pthread_cond_wait(&half.changed, &half.lock);
        failed |= half.failed;
        pthread_mutex_unlock(&half.lock);
    }
    if (started) {
        tell(&half, OVER);
        pthread_join(thread, NULL);
    }
    Py_END_ALLOW_THREADS
    if (failed) PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
    free(memory);
    if (half.fd >= 0) close(half.fd);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&order);
    if (failed) return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(samples_doc,
             "Samples(path, offsets, label, score, split, names, order): an iterator of (bytes, dict of three).\n"
             "Payloads are copied from one mapping; `get(row)` gives one sample, and `read(row)` one by pread.");
typedef struct {
    PyObject_HEAD
    char *map;
    size_t length;
    int file;
    Py_ssize_t rows, position;
    Py_buffer offsets, label, score, split, order;
    PyObject *names, *keys[3];
} Samples;

static PyObject *sample_of(Samples *self, int64_t row, int reads)
{
    const uint64_t *at = (const uint64_t *)self->offsets.buf + row;
    PyObject *values[3], *metadata = NULL, *data = NULL, *pair = NULL;
    values[0] = PyLong_FromLongLong(((const int64_t *)self->label.buf)[row]);
    values[1] = Py_NewRef(PyTuple_GET_ITEM(self->names, ((const uint8_t *)self->split.buf)[row]));
    values[2] = PyFloat_FromDouble(((const double *)self->score.buf)[row]);
    metadata = PyDict_New();
    data = PyBytes_FromStringAndSize(reads ? NULL : self->map + at[0], (Py_ssize_t)(at[1] - at[0]));
    if (reads && data && pread_all(self->file, PyBytes_AS_STRING(data), at[1] - at[0], (off_t)at[0]) < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        Py_CLEAR(data);
    }
    if (values[0] && values[2] && metadata && data) {
        int failed = 0;
        for (int i = 0; i < 3; i++) failed |= PyDict_SetItem(metadata, self->keys[i], values[i]) < 0;
        if (!failed) pair = PyTuple_Pack(2, data, metadata);
    }
    for (int i = 0; i < 3; i++) Py_XDECREF(values[i]);
    Py_XDECREF(metadata);
    Py_XDECREF(data);
    return pair;
}

static PyObject *samples_next(PyObject *object)
{
    Samples *self = (Samples *)object;
    if (self->position >= self->rows) return NULL;
    return sample_of(self, ((const int64_t *)self->order.buf)[self->position++], 0);
}

static PyObject *sample_at(PyObject *object, PyObject *number, int reads)
{
    Samples *self = (Samples *)object;
    long long row = PyLong_AsLongLong(number);
    if (row == -1 && PyErr_Occurred()) return NULL;
    if (row < 0 || row >= self->label.len / 8) return PyErr_Format(PyExc_IndexError, "no row %lld", row);
    return sample_of(self, row, reads);
}

static PyObject *samples_get(PyObject *object, PyObject *number) { return sample_at(object, number, 0); }

static PyObject *samples_read(PyObject *object, PyObject *number) { return sample_at(object, number, 1); }

static void samples_dealloc(PyObject *object)
{
    Samples *self = (Samples *)object;
    Py_buffer *views[] = {&self->offsets, &self->label, &self->score, &self->split, &self->order};
    if (self->map) munmap(self->map, self->length);
    if (self->file > 0) close(self->file);
    for (int i = 0; i < 5; i++)
        if (views[i]->obj) PyBuffer_Release(views[i]);
    for (int i = 0; i < 3; i++) Py_XDECREF(self->keys[i]);
    Py_XDECREF(self->names);
    Py_TYPE(object)->tp_free(object);
}

static char *mapped(const char *path, size_t *length)
{
    struct stat status;
    char *map = MAP_FAILED;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &status) == 0) {
        *length = (size_t)status.st_size;
        map = mmap(NULL, *length, PROT_READ, MAP_SHARED, fd, 0);
    }
    if (fd >= 0) close(fd);
    if (map != MAP_FAILED) return map;
    PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
    return NULL;
}

static PyObject *samples_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const char *const keys[] = {"label", "split", "score"};
    const char *path;
    Samples *self = (Samples *)type->tp_alloc(type, 0);
    (void)kwargs;
    if (!self) return NULL;
    if (!PyArg_ParseTuple(args, "sy*y*y*y*O!y*", &path, &self->offsets, &self->label, &self->score,
                          &self->split, &PyTuple_Type, &self->names, &self->order)) {
        self->names = NULL; /* borrowed so far; the buffers were released by the parser */
        memset(&self->offsets, 0, sizeof self->offsets);
        memset(&self->label, 0, sizeof self->label);
        memset(&self->score, 0, sizeof self->score);
        memset(&self->split, 0, sizeof self->split);
        memset(&self->order, 0, sizeof self->order);
        Py_DECREF(self);
        return NULL;
    }
    Py_INCREF(self->names);
    self->rows = self->order.len / 8;
    for (int i = 0; i < 3; i++) self->keys[i] = PyUnicode_InternFromString(keys[i]);
    self->map = mapped(path, &self->length);
    self->file = open(path, O_RDONLY | O_CLOEXEC);
    if (self->map && self->file < 0) PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
    if (!self->map || self->file < 0 || !self->keys[0] || !self->keys[1] || !self->keys[2]) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyMethodDef samples_methods[] = {
    {"get", samples_get, METH_O, "get(row) -> (bytes, dict)"},
    {"read", samples_read, METH_O, "read(row) -> (bytes, dict)"},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject SamplesType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "floor.Samples",
    .tp_basicsize = sizeof(Samples),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = samples_doc,
    .tp_new = samples_new,
    .tp_dealloc = samples_dealloc,
    .tp_iter = PyObject_SelfIter,
    .tp_iternext = samples_next,
    .tp_methods = samples_methods,
};

PyDoc_STRVAR(pread_doc, "pread_ns(path, size, count) -> float: ns a random block, into one reused buffer.");
static PyObject *pread_ns(PyObject *self, PyObject *args)
{
    const char *path;
    Py_ssize_t size, count;
    struct stat status;
    uint64_t state = 88172645463325252u;
    double begin = 0, end = 0;
    char *to;
    int fd, failed;
    (void)self;
    if (!PyArg_ParseTuple(args, "snn", &path, &size, &count)) return NULL;
    to = malloc((size_t)size);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    failed = !to || fd < 0 || fstat(fd, &status) < 0;
    if (!failed) {
        uint64_t blocks = (uint64_t)status.st_size / (uint64_t)size;
        if (blocks == 0) errno = EINVAL, failed = 1;
        begin = now_ns();
        for (Py_ssize_t i = 0; i < count && !failed; i++)
            failed = pread_all(fd, to, (size_t)size, (off_t)(next_random(&state) % blocks * (uint64_t)size)) < 0;
        end = now_ns();
    }
    if (failed) PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
    if (fd >= 0) close(fd);
    free(to);
    return failed ? NULL : PyFloat_FromDouble((end - begin) / (double)count);
}

static double copy_blocks(const char *from, size_t length, char *to, size_t size, Py_ssize_t count)
{
    uint64_t state = 88172645463325252u, blocks = length / size;
    double begin = now_ns();
    for (Py_ssize_t i = 0; i < count; i++) {
        memcpy(to, from + next_random(&state) % blocks * size, size);
        __asm__ volatile("" : : "r"(to) : "memory"); /* keep the copy */
    }
    return (now_ns() - begin) / (double)count;
}

PyDoc_STRVAR(mapping_doc,
             "mapping_ns(path, size, count) -> float: ns a random block copied from a mapping whose pages were\n"
             "all touched before.");
static PyObject *mapping_ns(PyObject *self, PyObject *args)
{
    const char *path;
    Py_ssize_t size, count;
    size_t length = 0;
    char *map, *to;
    double each;
    volatile uint64_t sum;
    (void)self;
    if (!PyArg_ParseTuple(args, "snn", &path, &size, &count)) return NULL;
    map = mapped(path, &length);
    if (!map) return NULL;
    to = malloc((size_t)size);
    if (!to || length < (size_t)size) {
        munmap(map, length);
        free(to);
        return PyErr_Format(PyExc_ValueError, "%s has no block of %zd bytes", path, size);
    }
    sum = sum_words((unsigned char *)map, length);
    (void)sum;
    each = copy_blocks(map, length, to, (size_t)size, count);
    free(to);
    munmap(map, length);
    return PyFloat_FromDouble(each);
}

PyDoc_STRVAR(memcpy_doc, "memcpy_ns(buffer, size, count) -> float: ns a random block of memory, copied.");
static PyObject *memcpy_ns(PyObject *self, PyObject *args)
{
    Py_buffer from;
    Py_ssize_t size, count;
    char *to;
    double each;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*nn", &from, &size, &count)) return NULL;
    to = malloc((size_t)size);
    if (!to || from.len < size) {
        PyBuffer_Release(&from);
        free(to);
        return PyErr_Format(PyExc_ValueError, "no block of %zd bytes", size);
    }
    each = copy_blocks(from.buf, (size_t)from.len, to, (size_t)size, count);
    free(to);
    PyBuffer_Release(&from);
    return PyFloat_FromDouble(each);
}

PyDoc_STRVAR(objects_doc,
             "objects_ns(size, count) -> float: ns to make and drop bytes of `size` (unfilled), a dict of three and\n"
             "the tuple that holds both.");
static PyObject *objects_ns(PyObject *self, PyObject *args)
{
    Py_ssize_t size, count;
    double begin;
    (void)self;
    if (!PyArg_ParseTuple(args, "nn", &size, &count)) return NULL;
    PyObject *keys = Py_BuildValue("(sss)", "label", "split", "score");
    PyObject *text = PyUnicode_FromString("train");
    begin = now_ns();
    for (Py_ssize_t i = 0; i < count && keys && text; i++) {
        PyObject *data = PyBytes_FromStringAndSize(NULL, size);
        PyObject *label = PyLong_FromSsize_t(i + 1000), *score = PyFloat_FromDouble((double)i);
        PyObject *metadata = PyDict_New(), *pair = NULL;
        if (data && label && score && metadata && PyDict_SetItem(metadata, PyTuple_GET_ITEM(keys, 0), label) == 0
            && PyDict_SetItem(metadata, PyTuple_GET_ITEM(keys, 1), text) == 0
            && PyDict_SetItem(metadata, PyTuple_GET_ITEM(keys, 2), score) == 0)
            pair = PyTuple_Pack(2, data, metadata);
        Py_XDECREF(data);
        Py_XDECREF(label);
        Py_XDECREF(score);
        Py_XDECREF(metadata);
        if (!pair) break;
        Py_DECREF(pair);
    }
    double end = now_ns();
    Py_XDECREF(keys);
    Py_XDECREF(text);
    return PyErr_Occurred() ? NULL : PyFloat_FromDouble((end - begin) / (double)count);
}

PyDoc_STRVAR(resident_doc, "resident(path) -> float: the share of a file's pages that the page cache holds.");
static PyObject *resident(PyObject *self, PyObject *args)
{
    const char *path;
    size_t length = 0, page = (size_t)sysconf(_SC_PAGESIZE), there = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "s", &path)) return NULL;
    char *map = mapped(path, &length);
    if (!map) return NULL;
    size_t pages = (length + page - 1) / page;
    unsigned char *held = malloc(pages);
    int failed = !held || mincore(map, length, held) < 0;
    for (size_t i = 0; i < pages && !failed; i++) there += held[i] & 1;
    free(held);
    munmap(map, length);
    if (failed) return PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
    return PyFloat_FromDouble((double)there / (double)pages);
}

static PyMethodDef methods[] = {
    {"touch", touch, METH_O, touch_doc},
    {"fill", fill, METH_VARARGS, fill_doc},
    {"fill_woken", fill_woken, METH_VARARGS, fill_woken_doc},
    {"pread_ns", pread_ns, METH_VARARGS, pread_doc},
    {"mapping_ns", mapping_ns, METH_VARARGS, mapping_doc},
    {"memcpy_ns", memcpy_ns, METH_VARARGS, memcpy_doc},
    {"objects_ns", objects_ns, METH_VARARGS, objects_doc},
    {"resident", resident, METH_VARARGS, resident_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "floor_native",
    .m_doc = "The least that reading samples costs on this machine.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit_floor_native(void)
{
    PyObject *self = PyModule_Create(&module);
    if (self && PyModule_AddType(self, &SamplesType) < 0) Py_CLEAR(self);
    return self;
}
