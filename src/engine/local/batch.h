/* Reads a write batch as RocksDB encodes it. RocksDB's own reader of batches (its C interface)
 * knows puts and plain deletes alone. */
#ifndef TRIAGE_ENGINE_LOCAL_BATCH_H
#define TRIAGE_ENGINE_LOCAL_BATCH_H

#include "engine/local/table.h"

/* Each entry has seq 0. For TABLE_DELETE_RANGE `value` is the first key that is not deleted. */
typedef void batch_each(void *ctx, const struct table_entry *e);
bool batch_read(const char *data, size_t len, batch_each *each, void *ctx); /* false: malformed */

#endif
