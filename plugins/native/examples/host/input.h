/* What is given to the cartridge, as the bytes that its port takes. */

#ifndef HOST_INPUT_H
#define HOST_INPUT_H

#include "ports.h"

struct bytes {
    unsigned char *data; /* NULL where nothing is given; else the caller frees it */
    size_t len;
};

/* Take a text as it is; 0 where that fails, once it was said. */
int read_text(const char *text, struct bytes *input);

/* Read a file as it is; 0 where that fails, once it was said. */
int read_file(const char *path, struct bytes *input);

/*
 * Read a WAV file, mono, 16-bit PCM or 32-bit float, as the numbers of a port.
 *
 * Gives its samples in a second; 0 where that fails, once it was said.
 */
long read_sound(const char *path, const struct port *port, struct bytes *input);

#endif
