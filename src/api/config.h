/* A queue's configuration as JSON, both ways. Pure: no call, no broker. */
#ifndef TRIAGE_API_CONFIG_H
#define TRIAGE_API_CONFIG_H

#include "api/problem.h"
#include "base/buf.h"
#include "core/config.h"

#include <stdbool.h>
#include <stddef.h>

/* Appends the whole configuration, in a form that PUT takes. */
void config_put(struct buf *out, const char *queue, const struct queue_config *config);

bool config_url_valid(const char *url, size_t len); /* http:// or https://, without blanks */

/* What config_patch() has to know besides the text. */
struct config_change {
    bool is_new;     /* `config` holds defaults, which another profile replaces */
    uint32_t stay;   /* slots that are in use, as bits: with keeps_used these levels stay */
    bool keeps_used; /* out: the text has "drop_levels": "empty" */
};

/* Applies a JSON object to a configuration: fields that it does not name stay. A change that would
 * drop a level without `drop_levels` is refused. On failure the configuration is as it was. */
MUST_USE bool config_patch(const char *text, size_t len, struct config_change *change,
                           struct queue_config *config, struct problem *p);

#endif
