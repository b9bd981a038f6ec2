/* What goes in and comes out, as a descriptor's `io` says it. */

#ifndef HOST_PORTS_H
#define HOST_PORTS_H

#include <stddef.h>

enum { MAX_AXES = 8, OPEN_AXIS = -1 };

/* One input or output. */
struct port {
    char dtype[16];
    char number;          /* 'f', 'i', 'u' or 'b'; 0 for utf8, json and bytes */
    size_t size;          /* bytes of one number */
    int axes;             /* of an array */
    long shape[MAX_AXES]; /* OPEN_AXIS where it has any length */
    long rate_hz;         /* samples in a second; 0 where it is not said */
};

struct io {
    int is_streaming;
    struct port input, output;
};

/* Read the `io` of a descriptor; 0 where it says nothing that is known here, once it was said. */
int read_io(const char *descriptor, struct io *io);

#endif
