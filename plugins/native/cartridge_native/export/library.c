/*
 * The sixteen functions of an exported cartridge, in front of Python.
 *
 * Here is what has to hold before Python runs, and where it cannot: a failure to start it is a
 * status with a text like any other. The functions `served_*` are those of served.py, made by cffi;
 * handles are numbers, which are looked up there and never followed. DESCRIPTOR, PYTHON, SET_UP and
 * MODULE are written before this by building.py.
 *
 * It is a module of cffi and not an embedding of it: to come into a Python that runs already, an
 * embedding waits on CPython 3.11 for a lock that is never free.
 */

#include "cartridge_abi.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { ROOM = 2000 };

/* Of the calls without a handle, for the thread that made them. */
static _Thread_local char failed[ROOM], found[ROOM];

static int32_t served_preflight(char *detail, char *why, size_t room);
static int32_t served_open(uintptr_t *out, char *why, size_t room);
static int32_t served_close(uintptr_t cartridge);
static int32_t served_begin(uintptr_t cartridge, uintptr_t *out);
static int32_t served_end(uintptr_t session);
static int32_t served_infer(uintptr_t session, const char *data, size_t len, uintptr_t *out);
static int32_t served_push(uintptr_t session, const char *data, size_t len);
static int32_t served_pull(uintptr_t session, uintptr_t *out);
static int32_t served_flush(uintptr_t session);
static int32_t served_cancel(uintptr_t session);
static int32_t served_kind(uintptr_t result);
static int32_t served_payload(uintptr_t result, const void **data, size_t *len);
static void served_release(uintptr_t result);
static const char *served_last_error(uintptr_t handle);
static int32_t served_refuse(uintptr_t handle, int32_t status, const char *text);

static int say(char *why, const char *form, ...)
{
    va_list rest;

    va_start(rest, form);
    vsnprintf(why, ROOM, form, rest);
    va_end(rest);
    return 0;
}

/* Start the Python that the library was exported with; 0 where it does not. */
static int start_python(char *why)
{
    PyPreConfig before;
    PyConfig config;
    PyStatus status;
    struct sigaction pipe;

    PyPreConfig_InitIsolatedConfig(&before);
    before.utf8_mode = 1; /* whatever the host's locale is */
    status = Py_PreInitialize(&before);
    PyConfig_InitIsolatedConfig(&config);
    if (!PyStatus_Exception(status))
        status = PyConfig_SetBytesString(&config, &config.executable, PYTHON);
    if (!PyStatus_Exception(status))
        status = Py_InitializeFromConfig(&config);
    PyConfig_Clear(&config);
    if (PyStatus_Exception(status))
        return say(why, "%s does not start: %s", PYTHON, status.err_msg ? status.err_msg : "it ended");
    /* As in every Python: else a cartridge's process that dies would take the host along. */
    if (sigaction(SIGPIPE, NULL, &pipe) == 0 && pipe.sa_handler == SIG_DFL)
        signal(SIGPIPE, SIG_IGN);
    PyEval_SaveThread();
    return 1;
}

/* Take the exception that is raised for what is wrong. */
static int say_exception(char *why)
{
    PyObject *kind, *value, *trace, *text;
    const char *words;

    PyErr_Fetch(&kind, &value, &trace);
    PyErr_NormalizeException(&kind, &value, &trace);
    text = value ? PyObject_Str(value) : NULL;
    words = text ? PyUnicode_AsUTF8(text) : NULL;
    say(why, "%s cannot set this library up: %s: %s", PYTHON,
        kind ? ((PyTypeObject *)kind)->tp_name : "?", words ? words : "?");
    PyErr_Clear();
    Py_XDECREF(text);
    Py_XDECREF(kind);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return 0;
}

/* Give the functions `served_*` what they do; 0 where that fails. */
static int set_up(char *why)
{
    PyObject *globals = PyDict_New(), *serve, *module = NULL, *ffi = NULL, *done = NULL;

    if (globals && !PyDict_SetItemString(globals, "__builtins__", PyEval_GetBuiltins()))
        done = PyRun_String(SET_UP, Py_file_input, globals, globals);
    serve = done ? PyDict_GetItemString(globals, "serve") : NULL;
    Py_XDECREF(done);
    done = NULL;
    if (serve)
        module = MODULE();
    if (module)
        ffi = PyObject_GetAttrString(module, "ffi");
    if (ffi)
        done = PyObject_CallFunction(serve, "Oy", ffi, DESCRIPTOR);
    if (!done)
        say_exception(why);
    Py_XDECREF(ffi);
    Py_XDECREF(globals);
    /* The module stays: what the functions do hangs on it. */
    Py_XDECREF(done);
    return done != NULL;
}

/* Have Python, and in it what this library needs; 0 where that fails. */
static int have_python(char *why)
{
    char version[16];
    Dl_info library;
    PyGILState_STATE gil;
    int ready, python = open(PYTHON, O_RDONLY | O_CLOEXEC);

    if (python < 0)
        return say(why, "%s, the Python that this library was exported with, cannot be opened: %s; "
                   "export it again", PYTHON, strerror(errno));
    /* Python's modules look for Python among the symbols that all see, and the host may have loaded
     * this library, and Python with it, for itself. */
    if (dladdr((void *)Py_IsInitialized, &library))
        dlopen(library.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
    snprintf(version, sizeof version, "%d.%d.", PY_MAJOR_VERSION, PY_MINOR_VERSION);
    if (strncmp(Py_GetVersion(), version, strlen(version)) != 0) {
        close(python);
        return say(why, "this library is for Python %s%d, and the process has Python %.40s; export it "
                   "with that", version, PY_MICRO_VERSION, Py_GetVersion());
    }
    /* Two such libraries may come here at once, and share nothing that one could lock but files. */
    flock(python, LOCK_EX);
    ready = Py_IsInitialized() || start_python(why);
    close(python);
    if (!ready)
        return 0;
    gil = PyGILState_Ensure();
    ready = set_up(why);
    PyGILState_Release(gil);
    return ready;
}

static atomic_int is_serving;

/* Start once; where that fails, it is said again to who calls again. */
static int serves(void)
{
    static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
    static char why[ROOM];
    int serving = atomic_load(&is_serving);

    if (serving)
        return serving;
    pthread_mutex_lock(&guard);
    if (!atomic_load(&is_serving) && why[0] == 0)
        atomic_store(&is_serving, have_python(why));
    serving = atomic_load(&is_serving);
    pthread_mutex_unlock(&guard);
    if (!serving)
        memcpy(failed, why, ROOM);
    return serving;
}

static ctg_status fail(ctg_status status, const char *text)
{
    say(failed, "%s", text);
    return status;
}

static ctg_status no_handle(void)
{
    return fail(CTG_E_INVALID_ARG, "there is no such handle");
}

/* A call on a handle; there is none before Python runs. */
#define ON_HANDLE(call) (atomic_load(&is_serving) ? (call) : no_handle())

static ctg_status refuse(const void *handle, ctg_status status, const char *text)
{
    return ON_HANDLE(served_refuse((uintptr_t)handle, status, text));
}

/* What is wrong with a buffer that the host passes in; NULL where nothing is. */
static const char *wrong_with(const ctg_buffer *buffer, ctg_status *status)
{
    *status = CTG_E_INVALID_ARG;
    if (buffer == NULL)
        return "a buffer must be given";
    if (buffer->size < (size_t)CTG_SIZE_BUFFER) {
        *status = CTG_E_ABI_MISMATCH;
        return "the buffer is smaller than that of 0.1";
    }
    if (buffer->data == NULL && buffer->len > 0)
        return "the buffer has a length and no data";
    if (buffer->len > (size_t)CTG_MAX_BUFFER_BYTES)
        return "the buffer is longer than CTG_MAX_BUFFER_BYTES";
    return NULL;
}

uint32_t ctg_abi_version(void)
{
    return CTG_ABI_VERSION;
}

const char *ctg_descriptor_json(void)
{
    return DESCRIPTOR;
}

ctg_status ctg_preflight(const char *pack_dir, ctg_preflight_report *report)
{
    int32_t ok;

    if (pack_dir == NULL || report == NULL)
        return fail(CTG_E_INVALID_ARG, "pack_dir and report must be given");
    if (report->size < (size_t)CTG_SIZE_PREFLIGHT_REPORT)
        return fail(CTG_E_ABI_MISMATCH, "the report is smaller than that of 0.1");
    if (!serves())
        return CTG_E_LOAD;
    ok = served_preflight(found, failed, ROOM);
    if (ok < 0)
        return ok;
    report->ok = ok;
    report->detail = found[0] ? found : NULL;
    return CTG_OK;
}

ctg_status ctg_open(const char *pack_dir, const ctg_open_options *opts, ctg_cartridge **out)
{
    uintptr_t cartridge = 0;
    ctg_status status;

    if (pack_dir == NULL || out == NULL)
        return fail(CTG_E_INVALID_ARG, "pack_dir and out must be given");
    if (opts != NULL && opts->size < (size_t)CTG_SIZE_OPEN_OPTIONS)
        return fail(CTG_E_ABI_MISMATCH, "the options are smaller than those of 0.1");
    if (!serves())
        return CTG_E_LOAD;
    status = served_open(&cartridge, failed, ROOM);
    *out = (ctg_cartridge *)cartridge;
    return status;
}

ctg_status ctg_close(ctg_cartridge *cartridge)
{
    return ON_HANDLE(served_close((uintptr_t)cartridge));
}

ctg_status ctg_session_begin(ctg_cartridge *cartridge, const ctg_session_options *opts,
                             ctg_session **out)
{
    uintptr_t session = 0;
    ctg_status status;

    if (out == NULL)
        return refuse(cartridge, CTG_E_INVALID_ARG, "out must be given");
    if (opts != NULL && opts->size < (size_t)CTG_SIZE_SESSION_OPTIONS)
        return refuse(cartridge, CTG_E_ABI_MISMATCH, "the options are smaller than those of 0.1");
    status = ON_HANDLE(served_begin((uintptr_t)cartridge, &session));
    *out = (ctg_session *)session;
    return status;
}

ctg_status ctg_session_end(ctg_session *session)
{
    return ON_HANDLE(served_end((uintptr_t)session));
}

ctg_status ctg_infer(ctg_session *session, const ctg_buffer *input, ctg_result **out)
{
    uintptr_t result = 0;
    ctg_status status;
    const char *wrong = wrong_with(input, &status);

    if (wrong != NULL)
        return refuse(session, status, wrong);
    if (out == NULL)
        return refuse(session, CTG_E_INVALID_ARG, "out must be given");
    status = ON_HANDLE(served_infer((uintptr_t)session, input->data, input->len, &result));
    *out = (ctg_result *)result;
    return status;
}

ctg_status ctg_push(ctg_session *session, const ctg_buffer *chunk)
{
    ctg_status status;
    const char *wrong = wrong_with(chunk, &status);

    if (wrong != NULL)
        return refuse(session, status, wrong);
    return ON_HANDLE(served_push((uintptr_t)session, chunk->data, chunk->len));
}

ctg_status ctg_pull(ctg_session *session, ctg_result **out)
{
    uintptr_t result = 0;
    ctg_status status;

    if (out == NULL)
        return refuse(session, CTG_E_INVALID_ARG, "out must be given");
    status = ON_HANDLE(served_pull((uintptr_t)session, &result));
    *out = (ctg_result *)result;
    return status;
}

ctg_status ctg_flush(ctg_session *session)
{
    return ON_HANDLE(served_flush((uintptr_t)session));
}

ctg_status ctg_cancel(ctg_session *session)
{
    return ON_HANDLE(served_cancel((uintptr_t)session));
}

ctg_result_kind ctg_result_get_kind(const ctg_result *result)
{
    return ON_HANDLE(served_kind((uintptr_t)result));
}

ctg_status ctg_result_get_payload(const ctg_result *result, ctg_buffer *out)
{
    if (out == NULL)
        return CTG_E_INVALID_ARG;
    if (out->size < (size_t)CTG_SIZE_BUFFER)
        return CTG_E_ABI_MISMATCH;
    return ON_HANDLE(served_payload((uintptr_t)result, &out->data, &out->len));
}

void ctg_result_release(ctg_result *result)
{
    if (result != NULL && atomic_load(&is_serving))
        served_release((uintptr_t)result);
}

const char *ctg_last_error(const void *cartridge_or_session)
{
    if (cartridge_or_session != NULL && atomic_load(&is_serving))
        return served_last_error((uintptr_t)cartridge_or_session);
    return failed[0] ? failed : NULL;
}
