/* The loop of `triage work`: claims as many messages as it has free places,
 * runs a command for each, keeps their leases alive and settles them by how the
 * command ended. One thread, one poll; HTTP runs in a curl multi handle.
 *
 * A message is settled in exactly one way: acked after exit status 0, nacked
 * after any other end or a timeout, released when we were told to stop twice,
 * and left alone when its lease was lost. */
#ifndef TRIAGE_CLI_RUNNER_H
#define TRIAGE_CLI_RUNNER_H

#include "term/cli.h"

#include <stddef.h>
#include <stdint.h>

struct runner_options {
    char **queues;
    size_t queue_count;
    bool listed; /* the first queue that has something, and not the most urgent message */
    char **argv; /* the command, NULL at the end */
    int64_t jobs;
    int64_t visibility_ms; /* ARG_UNSET: the queue's own */
    int64_t wait_ms;
    const char *min_priority; /* or NULL */
    int64_t messages_max;     /* ARG_UNSET: no end */
    bool drain;               /* stop when the queues are empty */
    int64_t timeout_ms;       /* ARG_UNSET: commands may run for ever */
    const char *timeout_text; /* as the user wrote it */
};

int runner_run(const struct runner_options *options, const struct cli *cli); /* an exit status */

#endif
