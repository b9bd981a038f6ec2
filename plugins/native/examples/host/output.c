#include "output.h"

#include "library.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "this host reads the ABI's little-endian numbers as they are"
#endif

static double half(uint64_t bits)
{
    int exponent = (int)(bits >> 10 & 31), fraction = (int)(bits & 1023);
    double size = exponent == 0    ? ldexp(fraction, -24)
                  : exponent < 31  ? ldexp(fraction + 1024, exponent - 25)
                  : fraction == 0  ? (double)INFINITY
                                   : (double)NAN;

    return bits >> 15 ? -size : size;
}

/* Print so many digits that the same number comes out of reading them, and one with a point. */
static void print_float(size_t size, uint64_t bits)
{
    char text[40];
    float single;
    double value;

    if (size == sizeof value) {
        memcpy(&value, &bits, sizeof value);
    } else if (size == sizeof single) {
        memcpy(&single, &bits, sizeof single);
        value = single;
    } else {
        value = half(bits);
    }
    if (isnan(value) || isinf(value)) {
        fputs(isnan(value) ? "NaN" : value < 0 ? "-Infinity" : "Infinity", stdout);
        return;
    }
    snprintf(text, sizeof text, "%.*g", size == sizeof value ? 17 : 9, value);
    fputs(text, stdout);
    if (strpbrk(text, ".e") == NULL)
        fputs(".0", stdout);
}

static void print_number(const struct port *port, const unsigned char *at)
{
    uint64_t bits = 0, sign = UINT64_C(1) << (8 * port->size - 1);

    memcpy(&bits, at, port->size);
    switch (port->number) {
    case 'f':
        print_float(port->size, bits);
        break;
    case 'i':
        printf("%" PRId64, (int64_t)((bits ^ sign) - sign));
        break;
    case 'u':
        printf("%" PRIu64, bits);
        break;
    default:
        fputs(bits ? "true" : "false", stdout);
    }
}

/* Give the length of the open axis, 1 where there is none; -1 where the bytes do not fit. */
static long open_length(const struct port *port, size_t len)
{
    size_t step = port->size;
    int open_axes = 0;

    for (int i = 0; i < port->axes; i++)
        if (port->shape[i] == OPEN_AXIS)
            open_axes++;
        else
            step *= (size_t)port->shape[i];
    if (open_axes == 0)
        return len == step ? 1 : -1;
    return open_axes == 1 && step > 0 && len % step == 0 ? (long)(len / step) : -1;
}

/* Print dtype, shape, and the numbers in C order. */
static void print_array(const struct port *port, const ctg_buffer *payload, long length)
{
    const unsigned char *numbers = payload->data;

    printf(" {\"dtype\": \"%s\", \"shape\": [", port->dtype);
    for (int i = 0; i < port->axes; i++)
        printf("%s%ld", i ? ", " : "", port->shape[i] == OPEN_AXIS ? length : port->shape[i]);
    fputs("], \"data\": [", stdout);
    for (size_t at = 0; at < payload->len; at += port->size) {
        fputs(at ? ", " : "", stdout);
        print_number(port, numbers + at);
    }
    fputs("]}", stdout);
}

static void print_bytes(const ctg_buffer *payload)
{
    const unsigned char *bytes = payload->data;

    fputs(" {\"dtype\": \"bytes\", \"hex\": \"", stdout);
    for (size_t i = 0; i < payload->len; i++)
        printf("%02x", bytes[i]);
    fputs("\"}", stdout);
}

int print_result(const struct port *port, ctg_result_kind kind, const ctg_buffer *payload)
{
    static const char *const KINDS[] = {"PARTIAL", "FINAL", "ENDPOINT"};
    /* What an ENDPOINT carries is JSON, whatever the port says. */
    int is_array = kind != CTG_RESULT_ENDPOINT && port->number != 0;
    int is_bytes = kind != CTG_RESULT_ENDPOINT && strcmp(port->dtype, "bytes") == 0;
    long length = is_array ? open_length(port, payload->len) : 0;

    if (kind < CTG_RESULT_PARTIAL || kind > CTG_RESULT_ENDPOINT)
        return say_failed("ctg_result_get_kind", CTG_E_BACKEND, "it gave no kind of the ABI");
    if (payload->len > CTG_MAX_BUFFER_BYTES || (payload->len > 0 && payload->data == NULL))
        return say_failed("ctg_result_get_payload", CTG_E_BACKEND, "it gave no possible payload");
    if (length < 0)
        return say_failed("ctg_result_get_payload", CTG_E_BACKEND,
                          "its bytes do not fill the shape of io.output");
    fputs(KINDS[kind - CTG_RESULT_PARTIAL], stdout);
    if (is_array) {
        print_array(port, payload, length);
    } else if (is_bytes) {
        print_bytes(payload);
    } else if (payload->len > 0) {
        putchar(' ');
        fwrite(payload->data, 1, payload->len, stdout);
    }
    putchar('\n');
    return fflush(stdout) == 0 || say_failed("stdout", CTG_E_INTERNAL, "it cannot be written");
}
