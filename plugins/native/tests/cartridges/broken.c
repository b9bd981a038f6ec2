/*
 * A batch cartridge that gives its text back, and breaks one rule: -DBROKEN=... says which.
 *
 * SLOW breaks none: it works until it is cancelled.
 */

#include "cartridge_abi.h"
#include "descriptor.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOTHING 0
#define NO_VERSION 1
#define NO_FLUSH 2
#define NO_DEPENDENCY 3
#define VERSION_0 4
#define VERSION_1_0 5
#define CRASH_AT_LOAD 6
#define DESCRIPTOR_NULL 7
#define DESCRIPTOR_NOT_UTF8 8
#define PREFLIGHT_SAYS_NO 9
#define PREFLIGHT_FAILS 10
#define OPEN_GIVES_NULL 11
#define OPEN_FAILS 12
#define SESSION_GIVES_NULL 13
#define STATUS_UNKNOWN 14
#define STATUS_POSITIVE 15
#define RESULT_NULL 16
#define RESULT_GARBAGE 17
#define KIND_UNKNOWN 18
#define KIND_PARTIAL 19
#define PAYLOAD_FAILS 20
#define PAYLOAD_NULL 21
#define PAYLOAD_TOO_LONG 22
#define PAYLOAD_NOT_UTF8 23
#define ERROR_NOT_UTF8 24
#define CRASH 25
#define EXIT 26
#define HANG 27
#define SLOW 28
#define SMALL_STRUCTS 29
#define SESSION_FAILS 30

#ifndef BROKEN
#define BROKEN NOTHING
#endif

/* Both kinds of handle begin with what ctg_last_error says of them. */
struct ctg_cartridge {
    const char *error;
};

struct ctg_session {
    const char *error;
    atomic_int cancelled;
};

struct ctg_result {
    size_t len;
    char text[];
};

static atomic_int results_given, results_released;

/* For the tests: how many results are out. */
CTG_API int broken_results_out(void);

int broken_results_out(void)
{
    return results_given - results_released;
}

#if BROKEN == CRASH_AT_LOAD
__attribute__((constructor)) static void crash(void)
{
    abort();
}
#endif

#if BROKEN == NO_DEPENDENCY
int function_of_a_driver(void);
#endif

#if BROKEN != NO_VERSION
uint32_t ctg_abi_version(void)
{
#if BROKEN == NO_DEPENDENCY
    return (uint32_t)function_of_a_driver();
#else
    return BROKEN == VERSION_0 ? 0 : BROKEN == VERSION_1_0 ? 1U << 16 : CTG_ABI_VERSION;
#endif
}
#endif

const char *ctg_descriptor_json(void)
{
    return BROKEN == DESCRIPTOR_NULL       ? NULL
           : BROKEN == DESCRIPTOR_NOT_UTF8 ? "{\"id\": \"\xff\xfe\"}"
                                           : DESCRIPTOR;
}

ctg_status ctg_preflight(const char *pack_dir, ctg_preflight_report *report)
{
    (void)pack_dir;
    if (BROKEN == PREFLIGHT_FAILS)
        return CTG_E_PREFLIGHT;
    /* What the sizes of 0.1 leave out is not there. */
    if (BROKEN == SMALL_STRUCTS && report->size != (size_t)CTG_SIZE_PREFLIGHT_REPORT)
        return CTG_E_ABI_MISMATCH;
    report->ok = BROKEN != PREFLIGHT_SAYS_NO;
    report->detail = report->ok ? NULL : "the driver frob is not loaded";
    return CTG_OK;
}

ctg_status ctg_open(const char *pack_dir, const ctg_open_options *opts, ctg_cartridge **out)
{
    (void)pack_dir;
    if (BROKEN == OPEN_FAILS)
        return CTG_E_LOAD;
    if (BROKEN == SMALL_STRUCTS && opts->size != (size_t)CTG_SIZE_OPEN_OPTIONS)
        return CTG_E_ABI_MISMATCH;
    *out = BROKEN == OPEN_GIVES_NULL ? NULL : calloc(1, sizeof **out);
    if (*out != NULL)
        (*out)->error = "of this cartridge";
    return CTG_OK;
}

ctg_status ctg_close(ctg_cartridge *cartridge)
{
    free(cartridge);
    return CTG_OK;
}

ctg_status ctg_session_begin(ctg_cartridge *cartridge, const ctg_session_options *opts,
                             ctg_session **out)
{
    (void)cartridge;
    if (BROKEN == SESSION_FAILS)
        return CTG_E_STATE;
    if (BROKEN == SMALL_STRUCTS && opts->size != (size_t)CTG_SIZE_SESSION_OPTIONS)
        return CTG_E_ABI_MISMATCH;
    *out = BROKEN == SESSION_GIVES_NULL ? NULL : calloc(1, sizeof **out);
    if (*out != NULL)
        (*out)->error = "of this session";
    return CTG_OK;
}

ctg_status ctg_session_end(ctg_session *session)
{
    free(session);
    return CTG_OK;
}

ctg_status ctg_infer(ctg_session *session, const ctg_buffer *input, ctg_result **out)
{
    ctg_result *result;

    switch (BROKEN) {
    case STATUS_UNKNOWN:
        return -12345;
    case STATUS_POSITIVE:
        return 3;
    case ERROR_NOT_UTF8:
        return CTG_E_BACKEND;
    case RESULT_NULL:
        return CTG_OK;
    case RESULT_GARBAGE:
        *out = (ctg_result *)(uintptr_t)0x10;
        return CTG_OK;
    case CRASH:
        abort();
    case EXIT:
        _exit(3);
    case HANG:
        for (;;)
            pause();
    case SLOW:
        while (!atomic_load(&session->cancelled))
            usleep(1000);
        return CTG_E_CANCELLED;
    default:
        break;
    }
    result = malloc(sizeof *result + input->len);
    if (result == NULL)
        return CTG_E_BACKEND;
    result->len = input->len;
    if (input->len > 0)
        memcpy(result->text, input->data, input->len);
    results_given++;
    *out = result;
    return CTG_OK;
}

ctg_status ctg_push(ctg_session *session, const ctg_buffer *chunk)
{
    (void)session;
    (void)chunk;
    return CTG_E_UNSUPPORTED;
}

ctg_status ctg_pull(ctg_session *session, ctg_result **out)
{
    (void)session;
    (void)out;
    return CTG_E_UNSUPPORTED;
}

#if BROKEN != NO_FLUSH
ctg_status ctg_flush(ctg_session *session)
{
    (void)session;
    return CTG_E_UNSUPPORTED;
}
#endif

ctg_status ctg_cancel(ctg_session *session)
{
    atomic_store(&session->cancelled, 1);
    return CTG_OK;
}

ctg_result_kind ctg_result_get_kind(const ctg_result *result)
{
    if (BROKEN == RESULT_GARBAGE)
        return (ctg_result_kind)result->len;
    return BROKEN == KIND_UNKNOWN   ? 77
           : BROKEN == KIND_PARTIAL ? CTG_RESULT_PARTIAL
                                    : CTG_RESULT_FINAL;
}

ctg_status ctg_result_get_payload(const ctg_result *result, ctg_buffer *out)
{
    if (BROKEN == PAYLOAD_FAILS)
        return CTG_E_INTERNAL;
    if (BROKEN == SMALL_STRUCTS && out->size != (size_t)CTG_SIZE_BUFFER)
        return CTG_E_ABI_MISMATCH;
    out->data = BROKEN == PAYLOAD_NULL       ? NULL
                : BROKEN == PAYLOAD_NOT_UTF8 ? "\xff\xff\xff\xff"
                                             : result->text;
    out->len = BROKEN == PAYLOAD_TOO_LONG ? SIZE_MAX / 2 : result->len;
    return CTG_OK;
}

void ctg_result_release(ctg_result *result)
{
    results_released++;
    free(result);
}

const char *ctg_last_error(const void *cartridge_or_session)
{
    if (BROKEN == ERROR_NOT_UTF8)
        return "caf\xe9 is closed";
    return cartridge_or_session ? *(const char *const *)cartridge_or_session : "of this thread";
}
