/* The engine `cells`: one queue over several stores. */
#ifndef TRIAGE_ENGINE_CELLS_CELLS_H
#define TRIAGE_ENGINE_CELLS_CELLS_H

#include "engine/engine.h"

extern const struct engine_kind cells_kind;

/* The engine with one shard over `count` engines that are open, each of which is a cell. They are
 * closed with it. For those who bring stores of their own, and not by name. */
struct engine *cells_over(struct engine *const engines[], uint32_t count,
                          const struct engine_options *options);

/* What a shard has counted so far. */
struct cells_counts {
    uint64_t looks;  /* at the heads of a partition */
    uint64_t strays; /* messages that were leased when nobody waited for them any more */
};
struct cells_counts cells_counts(const struct engine *e);

#endif
