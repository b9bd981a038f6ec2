#include "input.h"

#include "library.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { USUAL_RATE_HZ = 16000, PCM = 1, FLOAT = 3, EXTENSIBLE = 0xFFFE };

/* What a WAV file says of its samples, and where they are. */
struct wav {
    unsigned format, channels, rate_hz, bits;
    const unsigned char *samples;
    size_t len;
};

int read_text(const char *text, struct bytes *input)
{
    input->len = strlen(text);
    input->data = malloc(input->len + 1);
    if (input->data == NULL)
        return say_failed("--text", CTG_E_INVALID_ARG, strerror(errno));
    memcpy(input->data, text, input->len + 1);
    return 1;
}

int read_file(const char *path, struct bytes *input)
{
    size_t room = 0;
    FILE *file = fopen(path, "rb");

    if (file == NULL)
        return say_failed(path, CTG_E_INVALID_ARG, strerror(errno));
    do {
        unsigned char *more = realloc(input->data, room = room * 2 + 65536);

        if (more == NULL)
            break;
        input->data = more;
        input->len += fread(more + input->len, 1, room - input->len, file);
    } while (input->len == room && room < CTG_MAX_BUFFER_BYTES);
    if (!ferror(file) && feof(file)) {
        fclose(file);
        return 1;
    }
    say_failed(path, CTG_E_INVALID_ARG, ferror(file) ? strerror(errno) : "it is too large");
    fclose(file);
    return 0;
}

static unsigned number(const unsigned char *at, int size)
{
    unsigned found = 0;

    while (size-- > 0)
        found = found << 8 | at[size];
    return found;
}

/* Find the format and the samples; NULL, or what is wrong with the file. */
static const char *read_wav(const struct bytes *file, struct wav *wav)
{
    const unsigned char *at = file->data + 12, *end = file->data + file->len;

    memset(wav, 0, sizeof *wav);
    if (file->len < 12 || memcmp(file->data, "RIFF", 4) || memcmp(file->data + 8, "WAVE", 4))
        return "it is no WAV file";
    while (end - at >= 8 && wav->samples == NULL) {
        const unsigned char *body = at + 8;
        size_t len = number(at + 4, 4);

        if (len > (size_t)(end - body))
            return "it is cut off";
        if (memcmp(at, "fmt ", 4) == 0 && len >= 16) {
            wav->format = number(body, 2);
            wav->channels = number(body + 2, 2);
            wav->rate_hz = number(body + 4, 4);
            wav->bits = number(body + 14, 2);
            if (wav->format == EXTENSIBLE && len >= 26)
                wav->format = number(body + 24, 2);
        } else if (memcmp(at, "data", 4) == 0) {
            wav->samples = body;
            wav->len = len;
        }
        at = body + len + (len % 2 && len < (size_t)(end - body));
    }
    if (wav->channels == 0 || wav->samples == NULL)
        return "it has no format or no samples";
    return NULL;
}

/* Give a sample in [-1, 1]. */
static float sample_of(const struct wav *wav, const unsigned char *at)
{
    int16_t integer;
    float sample;

    if (wav->format == FLOAT) {
        memcpy(&sample, at, sizeof sample);
        return sample;
    }
    memcpy(&integer, at, sizeof integer);
    return (float)integer / 32768.0F;
}

static void put_sample(float sample, const struct port *port, unsigned char *at)
{
    int16_t integer;

    if (port->number == 'f') {
        memcpy(at, &sample, sizeof sample);
        return;
    }
    integer = (int16_t)fmaxf(-32768.0F, fminf(32767.0F, rintf(sample * 32768.0F)));
    memcpy(at, &integer, sizeof integer);
}

/* Say why a sound cannot be given to a port; NULL where it can. */
static const char *unfit(const struct wav *wav, const struct port *port, char *text, size_t size)
{
    long rate_hz = port->rate_hz ? port->rate_hz : USUAL_RATE_HZ;
    int takes = !strcmp(port->dtype, "float32") || !strcmp(port->dtype, "int16");

    if (!takes || port->axes != 1)
        return "the cartridge takes no float32 or int16 samples, so no sound";
    if (!(wav->format == PCM && wav->bits == 16) && !(wav->format == FLOAT && wav->bits == 32))
        return "its samples are neither 16-bit PCM nor 32-bit float";
    if (wav->channels != 1)
        return "it has more than one channel";
    if ((long)wav->rate_hz == rate_hz)
        return NULL;
    snprintf(text, size, "it has %u Hz, and the cartridge takes %ld", wav->rate_hz, rate_hz);
    return text;
}

long read_sound(const char *path, const struct port *port, struct bytes *input)
{
    struct bytes file = {NULL, 0};
    struct wav wav;
    char text[80];
    const char *wrong;

    if (!read_file(path, &file)) {
        free(file.data);
        return 0;
    }
    wrong = read_wav(&file, &wav);
    if (wrong == NULL)
        wrong = unfit(&wav, port, text, sizeof text);
    if (wrong == NULL) {
        size_t step = wav.bits / 8, count = wav.len / step;

        input->len = count * port->size;
        input->data = malloc(input->len + 1);
        for (size_t i = 0; input->data != NULL && i < count; i++)
            put_sample(sample_of(&wav, wav.samples + i * step), port, input->data + i * port->size);
        if (input->data == NULL)
            wrong = strerror(errno);
    }
    free(file.data);
    return wrong == NULL ? (long)wav.rate_hz : say_failed(path, CTG_E_INVALID_ARG, wrong);
}
