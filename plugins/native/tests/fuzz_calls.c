/*
 * Calls a cartridge library in random orders, right ones and wrong ones, and holds every status
 * against a model of the header.
 *
 * usage: fuzz_calls LIBRARY PACK_DIR SEED STEPS
 *
 * Wrong is what the header answers with a status: NULL, structs and buffers that break their rule,
 * the other io family, a push after the flush, anything after a cancel. Where a call breaks two
 * rules, either status will do. What the header leaves undefined is left alone: a handle that is
 * gone, a second release. The same seed makes the same calls, but for what two threads do at once.
 * At the end it prints how often it saw every status and kind.
 */

#define _XOPEN_SOURCE 700

#include "library.h"
#include "ports.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CARTRIDGES = 2, SESSIONS = 3, KEPT = 6, TOGETHER = 30, MOST_BYTES = 12000 };
enum { STATUSES = 1 - CTG_E_ABI_MISMATCH, KINDS = 3 }; /* CTG_E_INTERNAL is never right */

#define BIT(status) (1U << -(status))

/* A result that was not given back yet, and what its payload was at first. */
struct kept {
    ctg_result *result;
    size_t len;
    unsigned sum;
};

struct session {
    ctg_session *handle; /* NULL where it has ended; its results may outlive it */
    uint64_t dice;
    int is_loud, is_flushed, is_drained, is_cancelled, has_failed;
    int is_racing; /* another thread is about to cancel it, after so many turns */
    unsigned turns;
    ctg_result_kind last;
    struct kept kept[KEPT];
};

struct cartridge {
    ctg_cartridge *handle;
    int has_failed;
    struct session sessions[SESSIONS];
};

/* A buffer for one call, and the rules that it breaks. */
struct given {
    unsigned char *bytes;
    ctg_buffer buffer;
    const ctg_buffer *pointer;
    unsigned broken;
};

static struct library library;
static struct io io;
static const char *pack_dir;
static int has_failed; /* anything without a handle */
static atomic_long statuses[STATUSES], kinds[KINDS];

static unsigned roll(uint64_t *dice, unsigned sides)
{
    *dice ^= *dice << 13;
    *dice ^= *dice >> 7;
    *dice ^= *dice << 17;
    return (unsigned)(*dice >> 33) % sides;
}

static void must(int is_so, const char *call, const char *rule)
{
    if (is_so)
        return;
    fprintf(stderr, "%s: %s\n", call, rule);
    _Exit(1);
}

/* Hold a status against those of the rules that the call breaks; where it breaks none, CTG_OK. */
static int expect(const char *call, ctg_status found, unsigned broken)
{
    unsigned right = broken ? broken : BIT(CTG_OK);

    if (found > 0 || found <= -STATUSES || !(right & BIT(found))) {
        fprintf(stderr, "%s returned %d; right are:", call, (int)found);
        for (int number = 0; number < STATUSES; number++)
            if (right >> number & 1)
                fprintf(stderr, " %d", -number);
        fputc('\n', stderr);
        _Exit(1);
    }
    atomic_fetch_add(&statuses[-found], 1);
    return found == CTG_OK;
}

/* A call that failed left words on its handle, and there are none where nothing ever failed. */
static void check_words(const char *call, const void *handle, int failed, int *has_failed)
{
    const char *text = library.last_error(handle);

    *has_failed |= failed;
    must(!failed || (text != NULL && strlen(text) > 0), call, "it failed, and does not say why");
    must(*has_failed || text == NULL, call, "it says why it failed, and it did not");
}

/* As `expect`, on a session that may be cancelled meanwhile. */
static int expect_of(struct session *session, const char *call, ctg_status found, unsigned broken)
{
    if (session->is_cancelled)
        broken |= BIT(CTG_E_CANCELLED);
    else if (session->is_racing)
        broken = (broken ? broken : BIT(CTG_OK)) | BIT(CTG_E_CANCELLED);
    expect(call, found, broken);
    session->is_cancelled |= found == CTG_E_CANCELLED;
    check_words(call, session->handle, found != CTG_OK, &session->has_failed);
    return found == CTG_OK;
}

static unsigned wrong_family(int is_of_streams)
{
    return is_of_streams == io.is_streaming ? 0 : BIT(CTG_E_UNSUPPORTED);
}

/* A struct's size: right, larger, which is right too, or too small. */
static size_t any_size(uint64_t *dice, size_t size, unsigned *broken)
{
    unsigned side = roll(dice, 16);

    if (side == 0)
        *broken |= BIT(CTG_E_ABI_MISMATCH);
    return side == 0 ? size - 1 : side == 1 ? size + 32 : size;
}

/* Its bytes end where it says, and are gone after the call: tools see who reads more, or later. */
static void make_buffer(struct session *session, struct given *given)
{
    static const char TEXT[] = "\"tea\"";
    uint64_t *dice = &session->dice;
    int is_text = io.input.number == 0;
    size_t most = MOST_BYTES / io.input.size;
    size_t len = is_text ? sizeof TEXT - 1 : roll(dice, (unsigned)most) * io.input.size;

    session->is_loud ^= roll(dice, 4) == 0;
    given->bytes = malloc(len + 1);
    must(given->bytes != NULL, "malloc", "no memory");
    for (size_t i = 0; i < len; i++)
        given->bytes[i] = is_text            ? (unsigned char)TEXT[i]
                          : session->is_loud ? (unsigned char)roll(dice, 256)
                                             : 0;
    given->broken = 0;
    given->pointer = &given->buffer;
    given->buffer.size = any_size(dice, CTG_SIZE_BUFFER, &given->broken);
    /* The end of what was allocated, so that one byte more is one too many. */
    given->buffer.data = memmove(given->bytes + 1, given->bytes, len);
    given->buffer.len = len;
    switch (roll(dice, 24)) {
    case 0:
        given->pointer = NULL;
        given->broken = BIT(CTG_E_INVALID_ARG);
        break;
    case 1:
        given->buffer.data = NULL;
        given->broken |= len > 0 ? BIT(CTG_E_INVALID_ARG) : 0;
        break;
    case 2:
        given->buffer.len = (size_t)CTG_MAX_BUFFER_BYTES + 1 + roll(dice, 9);
        given->broken |= BIT(CTG_E_INVALID_ARG);
        break;
    case 3:
        given->buffer.data = NULL;
        given->buffer.len = 0;
        break;
    default:
        break;
    }
}

static unsigned sum_of(const ctg_buffer *payload)
{
    const unsigned char *bytes = payload->data;
    unsigned sum = 0;

    must(payload->len <= CTG_MAX_BUFFER_BYTES, "ctg_result_get_payload", "too long");
    must(payload->len == 0 || bytes != NULL, "ctg_result_get_payload", "NULL with a length");
    for (size_t i = 0; i < payload->len; i++)
        sum = sum * 31 + bytes[i];
    return sum;
}

/* Look at a result; it is what it was, until it is released. */
static void look(struct session *session, struct kept *kept)
{
    unsigned broken = 0, side = roll(&session->dice, 12);
    ctg_buffer payload = {any_size(&session->dice, CTG_SIZE_BUFFER, &broken), NULL, 0};
    const ctg_result *result = side == 0 ? NULL : kept->result;
    ctg_buffer *out = side == 1 ? NULL : &payload;

    if (side < 2)
        broken |= BIT(CTG_E_INVALID_ARG);
    if (expect("ctg_result_get_payload", library.result_get_payload(result, out), broken))
        must(payload.len == kept->len && sum_of(&payload) == kept->sum, "ctg_result_get_payload",
             "the payload has changed");
}

static void release(struct kept *kept)
{
    library.result_release(kept->result);
    kept->result = NULL;
}

/* Keep what a call gave; another one goes back for it. */
static void keep(struct session *session, ctg_result *result)
{
    struct kept *kept = &session->kept[roll(&session->dice, KEPT)];
    ctg_buffer payload = {CTG_SIZE_BUFFER, NULL, 0};
    ctg_result_kind kind = library.result_get_kind(result);

    must(kind >= 1 && kind <= KINDS, "ctg_result_get_kind", "none of the ABI");
    must(io.is_streaming || kind == CTG_RESULT_FINAL, "ctg_infer", "no FINAL");
    must(session->last != CTG_RESULT_ENDPOINT || kind == CTG_RESULT_FINAL, "ctg_pull",
         "after an ENDPOINT no FINAL");
    session->last = kind;
    atomic_fetch_add(&kinds[kind - 1], 1);
    release(kept);
    kept->result = result;
    expect("ctg_result_get_payload", library.result_get_payload(result, &payload), 0);
    kept->len = payload.len;
    kept->sum = sum_of(&payload);
}

static void push(struct session *session)
{
    struct given given;
    unsigned broken = wrong_family(1);

    make_buffer(session, &given);
    if (session->is_flushed)
        broken |= BIT(CTG_E_STATE);
    expect_of(session, "ctg_push", library.push(session->handle, given.pointer),
              broken | given.broken);
    free(given.bytes);
}

static void infer(struct session *session)
{
    ctg_result *result = NULL;
    int has_out = roll(&session->dice, 16) > 0;
    struct given given;
    ctg_status status;

    make_buffer(session, &given);
    status = library.infer(session->handle, given.pointer, has_out ? &result : NULL);
    free(given.bytes);
    if (!expect_of(session, "ctg_infer", status,
                   wrong_family(0) | given.broken | (has_out ? 0 : BIT(CTG_E_INVALID_ARG))))
        return;
    must(result != NULL, "ctg_infer", "CTG_OK, and no result");
    keep(session, result);
}

static void pull(struct session *session)
{
    ctg_result *result = NULL;
    int has_out = roll(&session->dice, 16) > 0;
    ctg_status status = library.pull(session->handle, has_out ? &result : NULL);

    if (!expect_of(session, "ctg_pull", status,
                   wrong_family(1) | (has_out ? 0 : BIT(CTG_E_INVALID_ARG))))
        return;
    must(result == NULL || !session->is_drained, "ctg_pull", "a result after the last");
    session->is_drained = session->is_flushed && result == NULL;
    if (result != NULL)
        keep(session, result);
}

static void flush(struct session *session)
{
    unsigned broken = wrong_family(1);

    /* A second one is nothing that the header forbids or allows. */
    if (session->is_flushed)
        broken |= BIT(CTG_E_STATE) | BIT(CTG_OK);
    if (expect_of(session, "ctg_flush", library.flush(session->handle), broken))
        session->is_flushed = 1;
}

static void cancel(struct session *session)
{
    expect("ctg_cancel", library.cancel(session->handle), 0);
    session->is_cancelled = 1;
}

/* Make one call on a session, or on a result of it. */
static void drive(struct session *session)
{
    struct kept *kept = &session->kept[roll(&session->dice, KEPT)];
    unsigned side = roll(&session->dice, 40);

    if (side < 14)
        io.is_streaming ? push(session) : infer(session);
    else if (side < 16)
        io.is_streaming ? infer(session) : push(session);
    else if (side < 28)
        pull(session);
    else if (side == 28)
        flush(session);
    else if (side == 29 && roll(&session->dice, 2) == 0)
        cancel(session);
    else if (side < 36 && kept->result != NULL)
        look(session, kept);
    else if (side >= 36)
        release(kept);
}

static void *drive_long(void *session)
{
    for (int step = 0; step < TOGETHER; step++)
        drive(session);
    return NULL;
}

static void *cancel_soon(void *given)
{
    struct session *session = given;

    for (volatile unsigned turns = session->turns; turns > 0; turns--)
        ;
    expect("ctg_cancel", library.cancel(session->handle), 0);
    return NULL;
}

/* Drive a session while another thread cancels it, or drives another session. */
static void drive_together(struct session *session, struct session *other)
{
    pthread_t thread;
    int is_race = session == other;

    session->is_racing = is_race;
    session->turns = roll(&session->dice, 100000);
    must(pthread_create(&thread, NULL, is_race ? cancel_soon : drive_long, other) == 0,
         "pthread_create", "no thread");
    drive_long(session);
    pthread_join(thread, NULL);
    session->is_cancelled |= is_race;
    session->is_racing = 0;
}

static void begin(struct cartridge *cartridge, struct session *session, uint64_t *dice)
{
    int has_out = roll(dice, 16) > 0, has_options = roll(dice, 2);
    unsigned broken = has_out ? 0 : BIT(CTG_E_INVALID_ARG), misfit = 0;
    ctg_session_options options = {any_size(dice, CTG_SIZE_SESSION_OPTIONS, &misfit), 0};
    ctg_session *handle = NULL;
    ctg_status status = library.session_begin(cartridge->handle, has_options ? &options : NULL,
                                              has_out ? &handle : NULL);
    int ok = expect("ctg_session_begin", status, broken | (has_options ? misfit : 0));

    check_words("ctg_session_begin", cartridge->handle, !ok, &cartridge->has_failed);
    if (!ok)
        return;
    must(handle != NULL, "ctg_session_begin", "CTG_OK, and no session");
    for (int i = 0; i < KEPT; i++)
        release(&session->kept[i]);
    memset(session, 0, sizeof *session);
    session->handle = handle;
    session->dice = *dice;
}

static void end(struct session *session)
{
    expect("ctg_session_end", library.session_end(session->handle), 0);
    session->handle = NULL;
}

static void close_cartridge(struct cartridge *cartridge)
{
    for (int i = 0; i < SESSIONS; i++) {
        if (cartridge->sessions[i].handle != NULL)
            end(&cartridge->sessions[i]);
        for (int j = 0; j < KEPT; j++)
            release(&cartridge->sessions[i].kept[j]);
    }
    expect("ctg_close", library.close(cartridge->handle), 0);
    memset(cartridge, 0, sizeof *cartridge);
}

static void open_cartridge(struct cartridge *cartridge, uint64_t *dice)
{
    int has_pack = roll(dice, 8) > 0, has_out = roll(dice, 8) > 0, has_options = roll(dice, 2);
    unsigned broken = has_pack && has_out ? 0 : BIT(CTG_E_INVALID_ARG), misfit = 0;
    ctg_open_options options = {any_size(dice, CTG_SIZE_OPEN_OPTIONS, &misfit), 0};
    ctg_cartridge *handle = NULL;
    ctg_status status = library.open(has_pack ? pack_dir : NULL, has_options ? &options : NULL,
                                     has_out ? &handle : NULL);
    int ok = expect("ctg_open", status, broken | (has_options ? misfit : 0));

    check_words("ctg_open", NULL, !ok, &has_failed);
    must(!ok || handle != NULL, "ctg_open", "CTG_OK, and no cartridge");
    cartridge->handle = ok ? handle : NULL;
}

static void preflight(uint64_t *dice)
{
    int has_pack = roll(dice, 8) > 0, has_report = roll(dice, 8) > 0;
    unsigned broken = has_pack && has_report ? 0 : BIT(CTG_E_INVALID_ARG);
    ctg_preflight_report report = {any_size(dice, CTG_SIZE_PREFLIGHT_REPORT, &broken), -1, NULL};
    ctg_status status =
        library.preflight(has_pack ? pack_dir : NULL, has_report ? &report : NULL);
    int ok = expect("ctg_preflight", status, broken);

    check_words("ctg_preflight", NULL, !ok, &has_failed);
    must(!ok || report.ok == 1, "ctg_preflight", "this machine lacks nothing");
}

/* Call what takes a handle without one. */
static void call_without(void)
{
    const unsigned broken = BIT(CTG_E_INVALID_ARG);
    ctg_buffer buffer = {CTG_SIZE_BUFFER, NULL, 0};
    ctg_result *result = NULL;
    ctg_session *session = NULL;

    expect("ctg_session_begin", library.session_begin(NULL, NULL, &session), broken);
    expect("ctg_infer", library.infer(NULL, &buffer, &result), broken);
    expect("ctg_push", library.push(NULL, &buffer), broken);
    expect("ctg_pull", library.pull(NULL, &result), broken);
    expect("ctg_flush", library.flush(NULL), broken);
    expect("ctg_cancel", library.cancel(NULL), broken);
    expect("ctg_session_end", library.session_end(NULL), broken);
    expect("ctg_close", library.close(NULL), broken);
    library.result_release(NULL);
    has_failed = 1; /* whether these left words is not said */
}

/* Take one step with a cartridge. */
static void step(struct cartridge *cartridge, uint64_t *dice)
{
    struct session *session = &cartridge->sessions[roll(dice, SESSIONS)];
    struct session *other = &cartridge->sessions[roll(dice, SESSIONS)];
    unsigned side = roll(dice, 200);

    if (cartridge->handle == NULL)
        open_cartridge(cartridge, dice);
    else if (side == 0)
        preflight(dice);
    else if (side == 9)
        call_without();
    else if (side == 1 && roll(dice, 4) == 0)
        close_cartridge(cartridge);
    else if (session->handle == NULL)
        begin(cartridge, session, dice);
    else if (side < 4)
        end(session);
    else if (side < 6 && other->handle != NULL)
        drive_together(session, other);
    else
        drive(session);
}

int main(int argc, char **argv)
{
    static struct cartridge cartridges[CARTRIDGES];
    uint64_t dice;
    long steps;

    if (argc != 5) {
        fputs("usage: fuzz_calls LIBRARY PACK_DIR SEED STEPS\n", stderr);
        return 2;
    }
    if (!library_load(&library, argv[1]) || library.abi_version() != CTG_ABI_VERSION ||
        !read_io(library.descriptor_json(), &io))
        return 1;
    pack_dir = argv[2];
    dice = strtoull(argv[3], NULL, 10) * UINT64_C(0x9E3779B97F4A7C15) + 1;
    steps = strtol(argv[4], NULL, 10);
    for (long at = 0; at < steps; at++)
        step(&cartridges[roll(&dice, CARTRIDGES)], &dice);
    for (int i = 0; i < CARTRIDGES; i++)
        if (cartridges[i].handle != NULL)
            close_cartridge(&cartridges[i]);
    fputs("{\"statuses\": [", stdout);
    for (int i = 0; i < STATUSES; i++)
        printf("%s%ld", i ? ", " : "", atomic_load(&statuses[i]));
    fputs("], \"kinds\": [", stdout);
    for (int i = 0; i < KINDS; i++)
        printf("%s%ld", i ? ", " : "", atomic_load(&kinds[i]));
    fputs("]}\n", stdout);
    return 0;
}
