/* The `levels` of a configuration. Private to config.c. */
#ifndef TRIAGE_API_LEVELS_FIELD_H
#define TRIAGE_API_LEVELS_FIELD_H

#include "api/fields.h"
#include "core/config.h"

/* Takes the levels of the field into `config`: an array replaces them all, an object changes those
 * that it names. False with the problem set. With `inherits` a level of an array takes what it does
 * not name from the level of that name in `config`. */
bool levels_field_take(struct field *f, bool inherits, struct queue_config *config);

/* Adds to `config` the levels of `was` that it lacks and whose slots are among `stay`. They go
 * behind the others, with the weight of the last of these. The numbers of the others count: a level
 * that stays gives up a number that one of them has, and gets another name if its name is such a
 * number. Example: the level "0" becomes "0-old" when a new level has the number 0. */
bool levels_field_keep(const struct queue_config *was, uint32_t stay, struct queue_config *config,
                       struct problem *p);

/* A limit of what is in flight, or null for none, which is kept as 0. */
bool field_in_flight(struct field *f, uint32_t *max);

/* Whether two levels have the same name and number, whatever else they have. */
bool level_called_the_same(const struct level *a, const struct level *b);
/* Whether both configurations have levels of the same names and numbers, in the same order. */
bool levels_field_same(const struct queue_config *a, const struct queue_config *b);

#endif
