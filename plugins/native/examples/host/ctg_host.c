/*
 * A host in C: it loads a cartridge library, gives it one input, and prints what comes out.
 *
 * Every function of the ABI is called here in the order that a host calls them; what is besides is
 * in the files beside this one.
 */

#define _XOPEN_SOURCE 700

#include "input.h"
#include "library.h"
#include "output.h"
#include "ports.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char USAGE[] =
    "usage: ctg_host LIBRARY [--model PATH] [--text TEXT | --json FILE | --pcm FILE"
    " [--chunk-ms N]]\n";

enum { USUAL_CHUNK_MS = 100, LONGEST_CHUNK_MS = 60000 };

/* What was typed; NULL and 0 where it was not. */
struct order {
    const char *library, *model, *text, *json, *pcm;
    long chunk_ms;
};

/* A library, and what it is to do. */
struct job {
    struct library library;
    struct io io;
    char *pack_dir;
    struct bytes input;
    size_t chunk; /* bytes of one push; 0 for all at once */
};

static int failed(const struct job *job, const char *call, ctg_status status, const void *handle)
{
    return say_failed(call, status, job->library.last_error(handle));
}

/* Print a result, and give it back, however that ends. */
static int take(const struct job *job, ctg_session *session, ctg_result *result)
{
    const struct library *library = &job->library;
    ctg_buffer payload = {CTG_SIZE_BUFFER, NULL, 0};
    ctg_result_kind kind = library->result_get_kind(result);
    ctg_status status = library->result_get_payload(result, &payload);
    int ok = status == CTG_OK ? print_result(&job->io.output, kind, &payload)
                              : failed(job, "ctg_result_get_payload", status, session);

    library->result_release(result);
    return ok;
}

static int infer(const struct job *job, ctg_session *session)
{
    ctg_buffer input = {CTG_SIZE_BUFFER, job->input.data, job->input.len};
    ctg_result *result = NULL;
    ctg_status status = job->library.infer(session, &input, &result);

    if (status != CTG_OK)
        return failed(job, "ctg_infer", status, session);
    if (result == NULL)
        return say_failed("ctg_infer", CTG_E_BACKEND, "CTG_OK, and no result");
    return take(job, session, result);
}

/* Take every result that is due. */
static int pull(const struct job *job, ctg_session *session)
{
    for (;;) {
        ctg_result *result = NULL;
        ctg_status status = job->library.pull(session, &result);

        if (status != CTG_OK)
            return failed(job, "ctg_pull", status, session);
        if (result == NULL)
            return 1;
        if (!take(job, session, result))
            return 0;
    }
}

static int stream(const struct job *job, ctg_session *session)
{
    size_t at = 0, len = job->input.len;
    ctg_status status;

    if (job->input.data != NULL)
        do {
            size_t step = job->chunk > 0 && job->chunk < len - at ? job->chunk : len - at;
            ctg_buffer chunk = {CTG_SIZE_BUFFER, job->input.data + at, step};

            status = job->library.push(session, &chunk);
            if (status != CTG_OK)
                return failed(job, "ctg_push", status, session);
            if (!pull(job, session))
                return 0;
            at += step;
        } while (at < len);
    status = job->library.flush(session);
    if (status != CTG_OK)
        return failed(job, "ctg_flush", status, session);
    return pull(job, session);
}

static int use_session(const struct job *job, ctg_cartridge *cartridge)
{
    const ctg_session_options options = {CTG_SIZE_SESSION_OPTIONS, 0};
    ctg_session *session = NULL;
    ctg_status status = job->library.session_begin(cartridge, &options, &session);
    int ok;

    if (status != CTG_OK)
        return failed(job, "ctg_session_begin", status, cartridge);
    if (session == NULL)
        return say_failed("ctg_session_begin", CTG_E_BACKEND, "CTG_OK, and no session");
    ok = job->io.is_streaming ? stream(job, session) : infer(job, session);
    status = job->library.session_end(session);
    return status == CTG_OK ? ok : say_failed("ctg_session_end", status, NULL);
}

static int use_cartridge(const struct job *job)
{
    const ctg_open_options options = {CTG_SIZE_OPEN_OPTIONS, 0};
    ctg_preflight_report report = {CTG_SIZE_PREFLIGHT_REPORT, 0, NULL};
    ctg_cartridge *cartridge = NULL;
    ctg_status status = job->library.preflight(job->pack_dir, &report);
    int ok;

    if (status != CTG_OK)
        return failed(job, "ctg_preflight", status, NULL);
    if (!report.ok)
        return say_failed("ctg_preflight", CTG_E_PREFLIGHT, report.detail);
    status = job->library.open(job->pack_dir, &options, &cartridge);
    if (status != CTG_OK)
        return failed(job, "ctg_open", status, NULL);
    if (cartridge == NULL)
        return say_failed("ctg_open", CTG_E_BACKEND, "CTG_OK, and no cartridge");
    ok = use_session(job, cartridge);
    status = job->library.close(cartridge);
    return status == CTG_OK ? ok : say_failed("ctg_close", status, NULL);
}

static int read_input(const struct order *order, struct job *job)
{
    const struct port *port = &job->io.input;
    long rate_hz, ms = order->chunk_ms ? order->chunk_ms : USUAL_CHUNK_MS;

    if (order->text != NULL)
        return read_text(order->text, &job->input);
    if (order->json != NULL)
        return read_file(order->json, &job->input);
    if (order->pcm == NULL)
        return 1;
    rate_hz = read_sound(order->pcm, port, &job->input);
    job->chunk = (size_t)(rate_hz * ms / 1000) * port->size;
    return rate_hz > 0;
}

/* From a library's path, give its pack's: the folder of artifacts/runtime/, else its own. */
static void cut_to_pack(char *path)
{
    static const char RUNTIME[] = "/artifacts/runtime";
    size_t len = (size_t)(strrchr(path, '/') - path), inside = sizeof RUNTIME - 1;

    if (len >= inside && memcmp(path + len - inside, RUNTIME, inside) == 0)
        len -= inside;
    path[len > 0 ? len : 1] = '\0';
}

static int run(const struct order *order)
{
    struct job job = {0};
    char *path = realpath(order->library, NULL);
    int ok = path != NULL || say_failed(order->library, CTG_E_LOAD, strerror(errno));

    ok = ok && library_load(&job.library, path) &&
         read_io(job.library.descriptor_json(), &job.io) && read_input(order, &job);
    if (ok && order->model != NULL) {
        free(path);
        path = realpath(order->model, NULL);
        ok = path != NULL || say_failed(order->model, CTG_E_LOAD, strerror(errno));
    } else if (ok) {
        cut_to_pack(path);
    }
    job.pack_dir = path;
    ok = ok && use_cartridge(&job);
    free(job.input.data);
    free(path);
    return ok;
}

/* Read the command line; 0 where it is none of ours. */
static int parse(int argc, char **argv, struct order *order)
{
    int inputs;

    if (argc < 2 || argc % 2 != 0)
        return 0;
    order->library = argv[1];
    for (int i = 2; i < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];

        if (strcmp(name, "--model") == 0) {
            order->model = value;
        } else if (strcmp(name, "--text") == 0) {
            order->text = value;
        } else if (strcmp(name, "--json") == 0) {
            order->json = value;
        } else if (strcmp(name, "--pcm") == 0) {
            order->pcm = value;
        } else if (strcmp(name, "--chunk-ms") == 0) {
            char *end;

            order->chunk_ms = strtol(value, &end, 10);
            if (*end != '\0' || order->chunk_ms < 1 || order->chunk_ms > LONGEST_CHUNK_MS)
                return 0;
        } else {
            return 0;
        }
    }
    inputs = (order->text != NULL) + (order->json != NULL) + (order->pcm != NULL);
    return inputs <= 1 && (order->chunk_ms == 0 || order->pcm != NULL);
}

int main(int argc, char **argv)
{
    struct order order = {NULL, NULL, NULL, NULL, NULL, 0};

    if (!parse(argc, argv, &order)) {
        fputs(USAGE, stderr);
        return 2;
    }
    return run(&order) ? 0 : 1;
}
