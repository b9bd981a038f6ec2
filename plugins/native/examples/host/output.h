/* Results as lines of text. */

#ifndef HOST_OUTPUT_H
#define HOST_OUTPUT_H

#include "cartridge_abi.h"
#include "ports.h"

/* Print a result as one line, its kind first; 0 where it is none, once it was said. */
int print_result(const struct port *port, ctg_result_kind kind, const ctg_buffer *payload);

#endif
