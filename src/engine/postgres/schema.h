/* The .sql files of this folder, in order; made by tools/embed-sql. */
#ifndef TRIAGE_ENGINE_POSTGRES_SCHEMA_H
#define TRIAGE_ENGINE_POSTGRES_SCHEMA_H

struct schema_step {
    int number; /* 0: run at every start, before anything else */
    const char *name;
    const char *text;
};

extern const struct schema_step schema_steps[]; /* ends with a NULL name */

#endif
