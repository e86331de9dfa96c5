/* A queue's configuration as JSON, both ways. Pure: no call, no broker. */
#ifndef TRIAGE_API_CONFIG_H
#define TRIAGE_API_CONFIG_H

#include "api/problem.h"
#include "base/buf.h"
#include "core/config.h"

#include <stdbool.h>
#include <stddef.h>

/* The whole configuration, so that it can be sent back as it came. */
void config_put(struct buf *out, const char *queue, const struct queue_config *config);

/* How a configuration is changed, besides the text that says what. */
struct config_change {
    bool is_new;     /* `config` holds defaults, which another profile replaces */
    uint32_t stay;   /* slots that are in use, as bits: with keeps_used these levels stay */
    bool keeps_used; /* out: the text has "drop_levels": "empty" */
};

/* Applies a JSON object to a configuration: what it does not name stays. A level that it would
 * drop without being told to is refused. On failure the configuration is as it was. */
MUST_USE bool config_patch(const char *text, size_t len, struct config_change *change,
                           struct queue_config *config, struct problem *p);

#endif
