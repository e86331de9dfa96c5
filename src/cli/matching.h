/* What is done to all messages that match: the options that say which, and the calls that do it.
 * The server does a portion in each call, so that the counts so far can be shown, and Ctrl-C stops
 * it. */
#ifndef TRIAGE_CLI_MATCHING_H
#define TRIAGE_CLI_MATCHING_H

#include "term/args.h"
#include "term/cli.h"

#include <stdbool.h>

struct match_options {
    bool all, dry_run;
    const char *from, *contains, *reason;
    int64_t older_ms;
    struct arg_list meta; /* items: to be freed */
};

#define MATCH_NONE                                                                                 \
    {                                                                                              \
        .older_ms = ARG_UNSET                                                                      \
    }

/* clang-format off */
#define MATCH_OPTIONS(o)                                                                           \
    {"from", 0, ARG_TEXT, &(o).from, "P", "all of this priority"},                                 \
    {"older-than", 0, ARG_DURATION, &(o).older_ms, "10m", "all that were enqueued before that"},   \
    {"meta", 0, ARG_LIST, &(o).meta, "K=V", "all with this metadata; may be repeated"},            \
    {"contains", 0, ARG_TEXT, &(o).contains, "TEXT", "all with this in the payload"},              \
    {"all", 0, ARG_FLAG, &(o).all, NULL, "all of them"},                                           \
    {"dry-run", 'n', ARG_FLAG, &(o).dry_run, NULL, "only count those that match"}
/* clang-format on */

bool match_asked(const struct match_options *o); /* one of them was given */

/* Calls `path` (with one %s for the queue) until all is done, and prints the counts. `verb`: what
 * the answer calls those that were changed. `priority` may be NULL, `max` ARG_UNSET. */
int match_run(const struct cli *cli, const char *path, const char *queue,
              const struct match_options *o, const char *verb, const char *priority, int64_t max);

#endif
