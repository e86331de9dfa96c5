/* A wrapper is an engine that stands around another one and passes everything on:
 * trace.c logs what passes, chaos.c refuses or delays some of it.
 *
 *   caller ── engine_submit ──> wrapper ── engine_submit ──> inner engine
 *   caller <── engine_finish ── wrapper <── engine_finish ── inner engine
 *
 * An op passes through unchanged: the inner engine's own fields in it, and its next pointer,
 * are the inner engine's from submit until finished(). Queue handles are the inner engine's.
 *
 * To write a wrapper, embed `struct wrapper` first, take the functions below for everything that is
 * only passed on, and write the others. A function that calls the inner engine ends with
 * wrapper_sync(). */
#ifndef TRIAGE_ENGINE_WRAP_H
#define TRIAGE_ENGINE_WRAP_H

#include "engine/engine.h"

#include <assert.h>

struct wrapper {
    struct engine base;   /* first */
    struct engine *inner; /* owned */
};

static inline struct wrapper *wrapper_of(struct engine *e)
{
    struct wrapper *w = (struct wrapper *)e;
    assert(w->inner->outer == e);
    return w;
}

void wrapper_init(struct wrapper *w, const struct engine_ops *ops, struct engine *inner);

/* The caller reads counters, `reading`, `failed` and `ahead_us` in the struct it holds: copies what
 * the inner engine says there. */
void wrapper_sync(struct wrapper *w);

/* Every callback, passed on. wrapper_close frees the wrappers, each of which is one allocation. */
engine_submit_fn wrapper_submit;
engine_flush_fn wrapper_flush;
engine_poll_fn wrapper_poll;
engine_next_due_fn wrapper_next_due_ms;
engine_holds_fn wrapper_holds;
engine_queue_find_fn wrapper_queue_find;
engine_queue_each_fn wrapper_queue_each;
engine_speaks_fn wrapper_speaks;
engine_health_fn wrapper_health;
engine_cell_each_fn wrapper_cell_each;
engine_partition_each_fn wrapper_partition_each;
engine_backup_fn wrapper_backup;
engine_backup_progress_fn wrapper_backup_progress;
engine_check_fn wrapper_check;
engine_close_fn wrapper_close;

#endif
