/* Several machines, one queue: messages live in a PostgreSQL database that any number
 * of processes share. See impl.h for how, and the .sql files for what is there. */
#ifndef TRIAGE_ENGINE_POSTGRES_POSTGRES_H
#define TRIAGE_ENGINE_POSTGRES_POSTGRES_H

#include "engine/engine.h"

extern const struct engine_kind postgres_kind;

#endif
