#include "ports.h"

#include "library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPACE " \t\r\n"

static const struct {
    const char *name;
    char number;
    size_t size;
} DTYPES[] = {
    {"utf8", 0, 1},      {"json", 0, 1},      {"bytes", 0, 1},
    {"bool", 'b', 1},    {"int8", 'i', 1},    {"int16", 'i', 2},
    {"int32", 'i', 4},   {"int64", 'i', 8},   {"uint8", 'u', 1},
    {"uint16", 'u', 2},  {"uint32", 'u', 4},  {"uint64", 'u', 8},
    {"float16", 'f', 2}, {"float32", 'f', 4}, {"float64", 'f', 8},
};

/* From the quote that opens a string, give what follows it; NULL where it does not end. */
static const char *after_string(const char *at)
{
    for (at++; *at != '\0' && *at != '"'; at++)
        if (*at == '\\' && at[1] != '\0')
            at++;
    return *at == '"' ? at + 1 : NULL;
}

/* Give what follows a JSON value; NULL where it does not end. */
static const char *after_value(const char *at)
{
    int depth = 0;

    do {
        at += strspn(at, SPACE ",:");
        if (*at == '"') {
            at = after_string(at);
        } else if (strchr("{}[]", *at) != NULL) {
            depth += *at == '{' || *at == '[' ? 1 : -1;
            at = *at == '\0' ? NULL : at + 1;
        } else {
            at += strcspn(at, SPACE ",:{}[]\"");
        }
    } while (at != NULL && depth > 0);
    return at;
}

/* Give where the value of an object's key begins; NULL where it has none. */
static const char *member(const char *object, const char *key)
{
    const char *at = object;

    if (at == NULL || *(at += strspn(at, SPACE)) != '{')
        return NULL;
    for (at++; at != NULL;) {
        const char *name;
        size_t length;

        name = at += strspn(at, SPACE ",");
        if (*at != '"' || (at = after_string(at)) == NULL)
            return NULL;
        length = (size_t)(at - name) - 2;
        at += strspn(at, SPACE ":");
        if (length == strlen(key) && memcmp(name + 1, key, length) == 0)
            return at;
        at = after_value(at);
    }
    return NULL;
}

/* Copy a string without escapes, such as all those that are looked up here; 0 where it is none. */
static int copy_text(const char *value, char *text, size_t size)
{
    size_t length;

    if (value == NULL || *value != '"')
        return 0;
    length = strcspn(value + 1, "\"\\");
    if (value[1 + length] != '"' || length >= size)
        return 0;
    memcpy(text, value + 1, length);
    text[length] = '\0';
    return 1;
}

/* Read a shape, an array of numbers and nulls; 0 where it is none. */
static int read_shape(const char *value, struct port *port)
{
    const char *at = value + 1;

    if (*value != '[')
        return 0;
    for (port->axes = 0; *(at += strspn(at, SPACE ",")) != ']'; port->axes++) {
        long axis = OPEN_AXIS;

        if (strncmp(at, "null", 4) == 0) {
            at += 4;
        } else {
            char *end;

            axis = strtol(at, &end, 10);
            if (end == at || axis < 0)
                return 0;
            at = end;
        }
        if (port->axes == MAX_AXES)
            return 0;
        port->shape[port->axes] = axis;
    }
    return 1;
}

static int read_port(const char *value, struct port *port)
{
    const char *shape = member(value, "shape"), *rate = member(value, "sample_rate_hz");

    memset(port, 0, sizeof *port);
    if (!copy_text(member(value, "dtype"), port->dtype, sizeof port->dtype))
        return 0;
    for (size_t i = 0; i < sizeof DTYPES / sizeof *DTYPES; i++)
        if (strcmp(port->dtype, DTYPES[i].name) == 0) {
            port->number = DTYPES[i].number;
            port->size = DTYPES[i].size;
        }
    port->axes = 1;
    port->shape[0] = OPEN_AXIS;
    port->rate_hz = rate == NULL ? 0 : strtol(rate, NULL, 10);
    return port->size > 0 && (shape == NULL || *shape == 'n' || read_shape(shape, port));
}

int read_io(const char *descriptor, struct io *io)
{
    const char *found = member(descriptor, "io");
    char mode[16];

    if (copy_text(member(found, "mode"), mode, sizeof mode) &&
        (strcmp(mode, "batch") == 0 || strcmp(mode, "streaming") == 0) &&
        read_port(member(found, "input"), &io->input) &&
        read_port(member(found, "output"), &io->output)) {
        io->is_streaming = strcmp(mode, "streaming") == 0;
        return 1;
    }
    return say_failed("ctg_descriptor_json", CTG_E_ABI_MISMATCH,
                      "its io.mode, io.input or io.output is none that is known here");
}
