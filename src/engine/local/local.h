/* The default engine: one machine, RocksDB underneath. See local.c for how a group
 * is committed, store.h for what is kept where. */
#ifndef TRIAGE_ENGINE_LOCAL_LOCAL_H
#define TRIAGE_ENGINE_LOCAL_LOCAL_H

#include "engine/engine.h"

extern const struct engine_kind local_kind;

engine_inspect_fn local_inspect; /* inspect.c */
engine_preview_fn local_preview; /* preview.c */

#endif
