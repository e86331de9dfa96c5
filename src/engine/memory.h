/* The reference engine: queues in memory and nothing else. It forgets everything
 * when it closes; in all other respects it is what an engine is. */
#ifndef TRIAGE_ENGINE_MEMORY_H
#define TRIAGE_ENGINE_MEMORY_H

#include "engine/engine.h"

extern const struct engine_kind memory_kind;

#endif
