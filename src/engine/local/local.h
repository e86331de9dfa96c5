/* The default engine: one machine, RocksDB underneath. See local.c for how a group
 * is committed, store.h for what is kept where. */
#ifndef TRIAGE_ENGINE_LOCAL_LOCAL_H
#define TRIAGE_ENGINE_LOCAL_LOCAL_H

#include "engine/engine.h"

engine_open_fn local_open;

/* inspect.c: see engine_inspect. */
MUST_USE enum status local_inspect(const struct engine_options *options,
                                   struct engine_inspection *i, struct buf *error);

/* preview.c: see engine_preview. */
void local_preview(const struct engine_options *options, struct engine_preview *p);

#endif
