/* The secret of a data directory: random bytes in a file of their own, DIR/KEY, that only its owner
 * may read. What the log says counts when it was sealed with them (frame.h), so that no client can
 * write a log into its payloads.
 *
 * The secret is made once, before anything is sealed with it. A log cannot be read without it: so
 * whoever copies the directory has to copy KEY too. The file is a line of text: the bytes in
 * hexadecimal, and a checksum that tells a damaged key from a damaged log. */
#ifndef TRIAGE_ENGINE_LOCAL_SECRET_H
#define TRIAGE_ENGINE_LOCAL_SECRET_H

#include "base/buf.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define SECRET_BYTES 32

/* Reads DIR/KEY. If it is missing, it is made with `make`, and refused without. On failure `error`
 * has a sentence that names the file. */
MUST_USE enum status secret_open(const char *dir, bool make, uint8_t out[SECRET_BYTES],
                                 struct buf *error);

#endif
