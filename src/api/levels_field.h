/* The `levels` of a configuration. Private to config.c. */
#ifndef TRIAGE_API_LEVELS_FIELD_H
#define TRIAGE_API_LEVELS_FIELD_H

#include "api/fields.h"
#include "core/levels.h"

/* Replaces the levels of `config` by those of the field; false with the problem set. */
bool levels_field_take(struct field *f, struct queue_config *config);

/* A limit of what is in flight, or null for none, which is kept as 0. */
bool field_in_flight(struct field *f, uint32_t *max);

/* Whether both have the same levels, in order. */
bool levels_field_same(const struct queue_config *a, const struct queue_config *b);

#endif
