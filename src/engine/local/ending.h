/* DIR/END: the number of a record up to which the log must go. A log alone cannot tell a crash in
 * the middle of a write from a last segment that was taken away, or a last record that was damaged.
 * So a clean stop and a backup, which know the last record, write its number here. A log that ends
 * before that record has lost something.
 *
 * The file stays as it is while the log goes on. It stays true, because logs only grow. It is a
 * line of text: the number and its checksum. */
#ifndef TRIAGE_ENGINE_LOCAL_ENDING_H
#define TRIAGE_ENGINE_LOCAL_ENDING_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

/* False: it cannot be written, and errno says why. */
bool ending_write(const char *dir, uint64_t seq);

/* Sets *seq, to 0 when there is no such file. False: the file cannot be read; `error` has a
 * sentence. */
bool ending_read(const char *dir, uint64_t *seq, struct buf *error);

/* False when the log ends before what END says; `error` has a sentence. */
bool ending_reached(const char *dir, uint64_t ending, uint64_t log_end, struct buf *error);

#endif
