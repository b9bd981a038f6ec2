/*
 * A streaming cartridge: int16 samples in, stretches of sound out.
 *
 * A stretch begins with a frame of 10 ms that is louder than THRESHOLD, and ends with the last such
 * frame before HANGOVER frames that are not. A PARTIAL says every 0.5 s how far it has come; its
 * ENDPOINT comes before its FINAL.
 */

#include "cartridge_abi.h"
#include "descriptor.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RATE = 16000,
    FRAME = RATE / 100,
    HANGOVER = 20,    /* frames */
    NEWS = 50,        /* frames between two PARTIALs */
    THRESHOLD = 500,  /* root mean square */
    TEXT = 96
};

/* First in both kinds of handle, so that ctg_last_error need not tell them apart. */
typedef struct {
    char text[TEXT];
} failure;

struct ctg_cartridge {
    failure failed;
};

struct ctg_result {
    ctg_result_kind kind;
    size_t len;
    char text[TEXT];
    ctg_result *next;
};

struct ctg_session {
    failure failed;
    atomic_int cancelled;
    int flushed;
    unsigned char *waiting; /* pushed, and not heard yet */
    size_t waiting_len;
    long frame;      /* frames heard */
    long begin;      /* first frame of the stretch; -1 between stretches */
    long last;       /* its last loud frame */
    int peak;        /* its largest sample */
    ctg_result *due; /* results not pulled yet, the oldest first */
};

static _Thread_local failure without_handle;

static ctg_status fail(failure *failed, ctg_status status, const char *text)
{
    strncpy(failed->text, text, TEXT - 1);
    return status;
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
    if (pack_dir == NULL || report == NULL)
        return fail(&without_handle, CTG_E_INVALID_ARG, "pack_dir and report must be given");
    if (report->size < (size_t)CTG_SIZE_PREFLIGHT_REPORT)
        return fail(&without_handle, CTG_E_ABI_MISMATCH, "the report is smaller than that of 0.1");
    report->ok = 1;
    report->detail = NULL;
    return CTG_OK;
}

ctg_status ctg_open(const char *pack_dir, const ctg_open_options *opts, ctg_cartridge **out)
{
    if (pack_dir == NULL || out == NULL)
        return fail(&without_handle, CTG_E_INVALID_ARG, "pack_dir and out must be given");
    if (opts != NULL && opts->size < (size_t)CTG_SIZE_OPEN_OPTIONS)
        return fail(&without_handle, CTG_E_ABI_MISMATCH, "the options are smaller than 0.1's");
    *out = calloc(1, sizeof **out);
    return *out ? CTG_OK : fail(&without_handle, CTG_E_LOAD, "no memory for a cartridge");
}

ctg_status ctg_close(ctg_cartridge *cartridge)
{
    if (cartridge == NULL)
        return CTG_E_INVALID_ARG;
    free(cartridge);
    return CTG_OK;
}

ctg_status ctg_session_begin(ctg_cartridge *cartridge, const ctg_session_options *opts,
                             ctg_session **out)
{
    if (cartridge == NULL)
        return CTG_E_INVALID_ARG;
    if (out == NULL)
        return fail(&cartridge->failed, CTG_E_INVALID_ARG, "out must be given");
    if (opts != NULL && opts->size < (size_t)CTG_SIZE_SESSION_OPTIONS)
        return fail(&cartridge->failed, CTG_E_ABI_MISMATCH, "the options are smaller than 0.1's");
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return fail(&cartridge->failed, CTG_E_BACKEND, "no memory for a session");
    (*out)->begin = -1;
    return CTG_OK;
}

ctg_status ctg_session_end(ctg_session *session)
{
    if (session == NULL)
        return CTG_E_INVALID_ARG;
    while (session->due != NULL) {
        ctg_result *next = session->due->next;
        free(session->due);
        session->due = next;
    }
    free(session->waiting);
    free(session);
    return CTG_OK;
}

ctg_status ctg_infer(ctg_session *session, const ctg_buffer *input, ctg_result **out)
{
    (void)input;
    (void)out;
    if (session == NULL)
        return CTG_E_INVALID_ARG;
    return fail(&session->failed, CTG_E_UNSUPPORTED, "this cartridge has io.mode streaming");
}

ctg_status ctg_push(ctg_session *session, const ctg_buffer *chunk)
{
    unsigned char *more;

    if (session == NULL)
        return CTG_E_INVALID_ARG;
    if (atomic_load(&session->cancelled))
        return fail(&session->failed, CTG_E_CANCELLED, "the session was cancelled");
    if (session->flushed)
        return fail(&session->failed, CTG_E_STATE, "push after flush");
    if (chunk == NULL)
        return fail(&session->failed, CTG_E_INVALID_ARG, "a chunk must be given");
    if (chunk->size < (size_t)CTG_SIZE_BUFFER)
        return fail(&session->failed, CTG_E_ABI_MISMATCH, "the buffer is smaller than 0.1's");
    if (chunk->len > CTG_MAX_BUFFER_BYTES || (chunk->data == NULL && chunk->len > 0))
        return fail(&session->failed, CTG_E_INVALID_ARG, "the chunk is NULL or too long");
    if (chunk->len == 0)
        return CTG_OK;
    more = realloc(session->waiting, session->waiting_len + chunk->len);
    if (more == NULL)
        return fail(&session->failed, CTG_E_BACKEND, "no memory for the chunk");
    memcpy(more + session->waiting_len, chunk->data, chunk->len);
    session->waiting = more;
    session->waiting_len += chunk->len;
    return CTG_OK;
}

/* Put a result at the end of those that are due; 0 where there is no memory for it. */
static int give(ctg_session *session, ctg_result_kind kind)
{
    ctg_result **end = &session->due;
    ctg_result *result = calloc(1, sizeof *result);
    double start_s = (double)session->begin * FRAME / RATE;
    double end_s = (double)(session->last + 1) * FRAME / RATE;
    int len;

    if (result == NULL)
        return 0;
    if (kind == CTG_RESULT_ENDPOINT)
        len = snprintf(result->text, TEXT, "{\"start_s\": %.2f, \"end_s\": %.2f}", start_s, end_s);
    else
        len = snprintf(result->text, TEXT, "{\"start_s\": %.2f, \"end_s\": %.2f, \"peak\": %.4f}",
                       start_s, end_s, session->peak / 32768.0);
    result->kind = kind;
    result->len = (size_t)len;
#ifdef SILENT_ENDPOINT /* for the tests: the ABI lets it be empty */
    if (kind == CTG_RESULT_ENDPOINT)
        result->len = 0;
#endif
    while (*end != NULL)
        end = &(*end)->next;
    *end = result;
    return 1;
}

static int close_stretch(ctg_session *session)
{
    int given = give(session, CTG_RESULT_ENDPOINT) && give(session, CTG_RESULT_FINAL);

    session->begin = -1;
    session->peak = 0;
    return given;
}

/* Hear one frame; 0 where there was no memory for a result. */
static int hear(ctg_session *session, const unsigned char *samples)
{
    long long sum = 0;
    int peak = 0, given = 1;
    int16_t sample;

    for (int i = 0; i < FRAME; i++) {
        memcpy(&sample, samples + (size_t)i * sizeof sample, sizeof sample);
        sum += (long long)sample * sample;
        peak = abs(sample) > peak ? abs(sample) : peak;
    }
    if (sum > (long long)THRESHOLD * THRESHOLD * FRAME) {
        if (session->begin < 0)
            session->begin = session->frame;
        session->last = session->frame;
        session->peak = peak > session->peak ? peak : session->peak;
    }
    session->frame++;
    if (session->begin >= 0 && session->frame - session->last > HANGOVER)
        given = close_stretch(session);
    else if (session->begin >= 0 && (session->frame - session->begin) % NEWS == 0)
        given = give(session, CTG_RESULT_PARTIAL);
    return given;
}

ctg_status ctg_pull(ctg_session *session, ctg_result **out)
{
    const size_t bytes = FRAME * sizeof(int16_t);
    size_t heard = 0;
    int given = 1;

    if (session == NULL)
        return CTG_E_INVALID_ARG;
    if (out == NULL)
        return fail(&session->failed, CTG_E_INVALID_ARG, "out must be given");
    while (session->due == NULL && given && session->waiting_len - heard >= bytes &&
           !atomic_load_explicit(&session->cancelled, memory_order_relaxed)) {
        given = hear(session, session->waiting + heard);
        heard += bytes;
    }
    if (heard > 0) {
        session->waiting_len -= heard;
        memmove(session->waiting, session->waiting + heard, session->waiting_len);
    }
    if (atomic_load(&session->cancelled))
        return fail(&session->failed, CTG_E_CANCELLED, "the session was cancelled");
    /* What is left at the end is less than a frame, and is not heard. */
    if (given && session->due == NULL && session->flushed && session->begin >= 0)
        given = close_stretch(session);
    if (!given)
        return fail(&session->failed, CTG_E_BACKEND, "no memory for a result");
    *out = session->due;
    if (session->due != NULL)
        session->due = session->due->next;
    return CTG_OK;
}

ctg_status ctg_flush(ctg_session *session)
{
    if (session == NULL)
        return CTG_E_INVALID_ARG;
    if (atomic_load(&session->cancelled))
        return fail(&session->failed, CTG_E_CANCELLED, "the session was cancelled");
    session->flushed = 1;
    return CTG_OK;
}

ctg_status ctg_cancel(ctg_session *session)
{
    if (session == NULL)
        return CTG_E_INVALID_ARG;
    atomic_store(&session->cancelled, 1);
    return CTG_OK;
}

ctg_result_kind ctg_result_get_kind(const ctg_result *result)
{
    return result->kind;
}

ctg_status ctg_result_get_payload(const ctg_result *result, ctg_buffer *out)
{
    if (result == NULL || out == NULL)
        return CTG_E_INVALID_ARG;
    if (out->size < (size_t)CTG_SIZE_BUFFER)
        return CTG_E_ABI_MISMATCH;
    out->data = result->text;
    out->len = result->len;
    return CTG_OK;
}

void ctg_result_release(ctg_result *result)
{
    free(result);
}

const char *ctg_last_error(const void *cartridge_or_session)
{
    const failure *failed = cartridge_or_session ? cartridge_or_session : &without_handle;

    return failed->text[0] ? failed->text : NULL;
}
