/* The `levels` of a configuration. Private to config.c. */
#ifndef TRIAGE_API_LEVELS_FIELD_H
#define TRIAGE_API_LEVELS_FIELD_H

#include "api/fields.h"
#include "core/config.h"

/* Takes the levels of the field into `config`: an array replaces them all, an object changes those
 * that it names. False with the problem set. With `inherits` a level of an array takes what it does
 * not name from the level of that name in `config`. */
bool levels_field_take(struct field *f, bool inherits, struct queue_config *config);

/* Adds the levels of `was` that `config` lacks and whose slots are among `stay`, behind the others
 * and with the weight of the last of these: weights count among one another too. A number of the
 * others means these alone: a level that stays gives up its number, and has another name where its
 * own is that number. */
bool levels_field_keep(const struct queue_config *was, uint32_t stay, struct queue_config *config,
                       struct problem *p);

/* A limit of what is in flight, or null for none, which is kept as 0. */
bool field_in_flight(struct field *f, uint32_t *max);

/* Whether name and number are the same, whatever the rest. */
bool level_called_the_same(const struct level *a, const struct level *b);
/* Whether both have levels that are called the same, in order. */
bool levels_field_same(const struct queue_config *a, const struct queue_config *b);

#endif
