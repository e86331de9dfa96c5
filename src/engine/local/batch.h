/* A batch as RocksDB encodes it, read by ourselves: its own reader knows puts and plain deletes
 * alone. */
#ifndef TRIAGE_ENGINE_LOCAL_BATCH_H
#define TRIAGE_ENGINE_LOCAL_BATCH_H

#include "engine/local/table.h"

/* Entries of one batch have seq 0. For DELETE_RANGE `value` is the key behind the last. */
typedef void batch_each(void *ctx, const struct table_entry *e);
bool batch_read(const char *data, size_t len, batch_each *each, void *ctx); /* false: malformed */

#endif
