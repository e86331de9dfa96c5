/* A message as the options of a command describe it, for enqueue and for schedules. */
#ifndef TRIAGE_CLI_COMPOSE_H
#define TRIAGE_CLI_COMPOSE_H

#include "base/buf.h"
#include "term/args.h"

#include <stdbool.h>

struct compose {
    const char *priority, *dedup, *file;
    int64_t delay_ms, ttl_ms; /* ARG_UNSET: none */
    struct arg_list meta;     /* its items are the caller's to free */
    bool json_payload;
};

/* Rows for a command's table of options. */
#define COMPOSE_OPTIONS(c)                                                                         \
    {"priority", 'p', ARG_TEXT, &(c).priority, "P", "a number or a name of the queue's levels"},   \
        {"delay", 0, ARG_DURATION, &(c).delay_ms, "10s", "ready only after this long"},            \
        {"dedup", 0, ARG_TEXT, &(c).dedup, "KEY", "drop it when this key is known"},               \
        {"ttl", 0, ARG_DURATION, &(c).ttl_ms, "1h", "worthless after this long"},                  \
        {"meta", 0, ARG_LIST, &(c).meta, "K=V", "metadata; may be repeated"},                      \
        {"json-payload",    0,    ARG_FLAG,                                                        \
         &(c).json_payload, NULL, "the payload is JSON and stays JSON"},                           \
    {                                                                                              \
        "file", 'f', ARG_TEXT, &(c).file, "PATH", "read the payload from a file"                   \
    }

/* Its members, without the braces. The payload is the operand; NULL or "-": it is read from the
 * file or from standard input. False after a complaint. */
bool compose_put(const struct compose *c, const char *operand, struct buf *json);

#endif
