/* Several machines, one queue: messages live in a PostgreSQL database that any number
 * of processes share. See impl.h for how, and the .sql files for what is there. */
#ifndef TRIAGE_ENGINE_POSTGRES_POSTGRES_H
#define TRIAGE_ENGINE_POSTGRES_POSTGRES_H

#include "engine/engine.h"

engine_open_fn postgres_open;

/* Installs the schema in the database, or brings it up to date, and says what was done. */
MUST_USE enum status postgres_migrate(const struct engine_options *options, struct buf *report);

/* Only whether libpq understands the settings: nobody is connected to. */
void postgres_preview(const struct engine_options *options, struct engine_preview *p);

#endif
