/*
 * A batch cartridge: float32 samples in, two numbers for every whole frame of 10 ms out: the
 * natural logarithm of its mean square, not below -23, and how often the sign changes inside it.
 */

#include "cartridge_abi.h"
#include "descriptor.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { FRAME = 160, NUMBERS = 2, TEXT = 80 };

/* First in both kinds of handle, so that ctg_last_error need not tell them apart. */
typedef struct {
    char text[TEXT];
} failure;

struct ctg_cartridge {
    failure failed;
};

struct ctg_session {
    failure failed;
    atomic_int cancelled;
};

struct ctg_result {
    size_t len;
    float numbers[];
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
    return *out ? CTG_OK : fail(&cartridge->failed, CTG_E_BACKEND, "no memory for a session");
}

ctg_status ctg_session_end(ctg_session *session)
{
    if (session == NULL)
        return CTG_E_INVALID_ARG;
    free(session);
    return CTG_OK;
}

static void measure(const unsigned char *samples, float *numbers)
{
    double sum = 0.0;
    int crossings = 0;
    float sample = 0.0F, before = 0.0F;

    for (int i = 0; i < FRAME; i++) {
        /* A borrowed buffer need not be aligned. */
        memcpy(&sample, samples + (size_t)i * sizeof sample, sizeof sample);
        sum += (double)sample * sample;
        crossings += i > 0 && (sample < 0.0F) != (before < 0.0F);
        before = sample;
    }
    numbers[0] = (float)fmax(log(sum / FRAME + 1e-30), -23.0);
    numbers[1] = (float)crossings;
}

ctg_status ctg_infer(ctg_session *session, const ctg_buffer *input, ctg_result **out)
{
    size_t frames;
    ctg_result *result;

    if (session == NULL)
        return CTG_E_INVALID_ARG;
    if (input == NULL || out == NULL)
        return fail(&session->failed, CTG_E_INVALID_ARG, "input and out must be given");
    if (input->size < (size_t)CTG_SIZE_BUFFER)
        return fail(&session->failed, CTG_E_ABI_MISMATCH, "the buffer is smaller than 0.1's");
    if (input->len > CTG_MAX_BUFFER_BYTES || (input->data == NULL && input->len > 0))
        return fail(&session->failed, CTG_E_INVALID_ARG, "the input is NULL or too long");
    if (input->len % sizeof(float) != 0)
        return fail(&session->failed, CTG_E_INVALID_ARG, "the input ends inside a sample");
    frames = input->len / sizeof(float) / FRAME;
    result = malloc(sizeof *result + frames * NUMBERS * sizeof(float));
    if (result == NULL)
        return fail(&session->failed, CTG_E_BACKEND, "no memory for the features");
    result->len = frames * NUMBERS * sizeof(float);
    for (size_t i = 0; i < frames; i++) {
        if (atomic_load_explicit(&session->cancelled, memory_order_relaxed))
            break;
        measure((const unsigned char *)input->data + i * FRAME * sizeof(float),
                result->numbers + i * NUMBERS);
    }
    if (atomic_load(&session->cancelled)) {
        free(result);
        return fail(&session->failed, CTG_E_CANCELLED, "the session was cancelled");
    }
    *out = result;
    return CTG_OK;
}

static ctg_status batch_only(ctg_session *session)
{
    if (session == NULL)
        return CTG_E_INVALID_ARG;
    return fail(&session->failed, CTG_E_UNSUPPORTED, "this cartridge has io.mode batch");
}

ctg_status ctg_push(ctg_session *session, const ctg_buffer *chunk)
{
    (void)chunk;
    return batch_only(session);
}

ctg_status ctg_pull(ctg_session *session, ctg_result **out)
{
    (void)out;
    return batch_only(session);
}

ctg_status ctg_flush(ctg_session *session)
{
    return batch_only(session);
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
    (void)result;
    return CTG_RESULT_FINAL;
}

ctg_status ctg_result_get_payload(const ctg_result *result, ctg_buffer *out)
{
    if (result == NULL || out == NULL)
        return CTG_E_INVALID_ARG;
    if (out->size < (size_t)CTG_SIZE_BUFFER)
        return CTG_E_ABI_MISMATCH;
    out->data = result->numbers;
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
