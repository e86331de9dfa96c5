/* Where the log of a directory ends, said outside of it: DIR/END. A log alone cannot tell a last
 * segment that was taken away, or a last record that was damaged, from a crash in the middle of a
 * write. A clean stop and a backup know which record is the last, and write its number here: a log
 * that ends before it has lost something.
 *
 * The number stays while the log goes on, and is true all the time: logs only grow. The file is a
 * line of text, the number and a checksum of it. */
#ifndef TRIAGE_ENGINE_LOCAL_ENDING_H
#define TRIAGE_ENGINE_LOCAL_ENDING_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

/* False: it cannot be written, and errno says why. */
bool ending_write(const char *dir, uint64_t seq);

/* 0 when there is none. False: it is there and cannot be read; `error` has a sentence. */
bool ending_read(const char *dir, uint64_t *seq, struct buf *error);

/* False when the log ends before what END says; `error` has a sentence. */
bool ending_reached(const char *dir, uint64_t ending, uint64_t log_end, struct buf *error);

#endif
