/* Puts faults and delays between a caller and any engine, for tests. Everything is
 * decided by a seed, so that a run can be repeated.
 *
 * A fault: an op is refused with ENGINE_UNAVAILABLE and never reaches the engine, so it changed
 * nothing. A delay: engine_poll reports nothing for a few calls, so that answers which are there
 * are seen later; the caller is woken, as if the engine had just become ready.
 *
 * Both are within the contract. Ops that take effect keep their order, and so do their answers. */
#ifndef TRIAGE_ENGINE_CHAOS_H
#define TRIAGE_ENGINE_CHAOS_H

#include "engine/engine.h"

struct chaos_options {
    uint64_t seed;
    uint32_t refuse_permille; /* how many of a thousand ops are refused */
    uint32_t hold_polls_max;  /* up to so many polls in a row report nothing */
    engine_wake *wake;        /* as in struct engine_options; needed for delays */
    void *wake_ctx;
};

/* Puts a wrapper around each engine of shards[], and the wrapper in its place. engine_close() of
 * the wrappers closes both. Nothing is in flight. */
void chaos_wrap(struct engine *shards[], uint32_t shard_count, const struct chaos_options *options);
void chaos_refuse(struct engine *e, uint32_t permille); /* from now on; e is a wrapper */
uint64_t chaos_refused(struct engine *e);               /* ops so far */

#endif
