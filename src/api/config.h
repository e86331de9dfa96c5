/* A queue's configuration as JSON, both ways. Pure: no call, no broker. */
#ifndef TRIAGE_API_CONFIG_H
#define TRIAGE_API_CONFIG_H

#include "api/problem.h"
#include "base/buf.h"
#include "core/levels.h"

#include <stdbool.h>
#include <stddef.h>

/* The whole configuration, so that it can be sent back as it came. */
void config_put(struct buf *out, const char *queue, const struct queue_config *config);

/* Applies a JSON object to a configuration: what it does not name stays. `is_new` says that
 * `config` holds defaults, which another profile replaces. On failure the configuration is as it
 * was. */
MUST_USE bool config_patch(const char *text, size_t len, const char *queue, bool is_new,
                           struct queue_config *config, struct problem *p);

#endif
