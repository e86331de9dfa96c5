/* Which tables are part of a store that no server has open, as its manifest says. */
#ifndef TRIAGE_ENGINE_LOCAL_MANIFEST_H
#define TRIAGE_ENGINE_LOCAL_MANIFEST_H

#include "base/buf.h"
#include "engine/local/store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct manifest_table {
    char *name; /* "000012.sst" */
    uint64_t size;
    enum store_family family;
};

struct manifest {
    struct manifest_table *tables;
    size_t count;
};

/* False when it cannot be read; `error` has a sentence. Writes nothing. */
bool manifest_read(const char *store, struct manifest *m, struct buf *error);
void manifest_fini(struct manifest *m);

#endif
