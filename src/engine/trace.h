/* Logs every op that passes, and what became of it: `triaged --trace-engine`. Two
 * lines for each, at the level info:
 *
 *   msg="engine op" shard=0 op=17 verb=claim queue=mail want=10
 *   msg="engine answer" shard=0 op=17 verb=claim queue=mail status=ok took_us=431 found=3
 *
 * An op whose second line is missing is still the engine's. No line has a payload, a receipt or a
 * message's id. */
#ifndef TRIAGE_ENGINE_TRACE_H
#define TRIAGE_ENGINE_TRACE_H

#include "engine/engine.h"

/* Puts a wrapper around each engine of shards[], and the wrapper in its place. engine_close() of
 * the wrappers closes both. Nothing is in flight. */
void trace_wrap(struct engine *shards[], uint32_t shard_count);

#endif
