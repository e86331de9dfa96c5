/* Lists that the server gives in pages: fetched page by page and printed as
 * they come, as tables or as the server's documents. */
#ifndef TRIAGE_CLI_LIST_H
#define TRIAGE_CLI_LIST_H

#include "term/cli.h"

#include <stdint.h>

struct list_options {
    int64_t limit; /* ARG_UNSET: everything */
    const char *after;
    const char *prefix;
};

/* `path` may have one %s for the queue. Columns end with NULL. Returns an exit status. */
int list_print(const struct cli *cli, const char *path, const char *queue,
               const struct list_options *o, const char *const *columns);

/* A list that comes whole; `queue` may be NULL when the path has no %s. */
int list_whole(const struct cli *cli, const char *path, const char *queue,
               const char *const *columns);

/* Offers the names of queues that begin so to a shell, when the server answers at once; says
 * nothing when it does not. `ctx` is the struct cli. */
void queues_offer(const void *ctx, const char *word);

#endif
