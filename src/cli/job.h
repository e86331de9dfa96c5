/* A place of the runner: one message, the command that runs for it, its lease,
 * and the request that is under way about it. The runner drives it with the
 * time; the job decides what to send next. Only job.c changes these fields.
 *
 *   FREE --job_begin--> RUNNING --command ends--> SETTLING --answered--> FREE */
#ifndef TRIAGE_CLI_JOB_H
#define TRIAGE_CLI_JOB_H

#include "cli/child.h"
#include "cli/client.h"
#include "cli/runner.h"

#define JOB_NEVER INT64_MAX

enum job_state { JOB_FREE, JOB_RUNNING, JOB_SETTLING };

/* Why the command ends. In all cases but JOB_BY_ITSELF we ended it. */
enum job_ending { JOB_BY_ITSELF, JOB_TIMED_OUT, JOB_INTERRUPTED, JOB_LEASE_LOST };

enum job_request { JOB_NOTHING, JOB_EXTEND, JOB_ACK, JOB_NACK, JOB_RELEASE };

/* What became of an answered request, for the runner to know the server's health. */
enum job_answer { JOB_ANSWERED, JOB_UNANSWERED };

struct job {
    enum job_state state;
    enum job_ending ending;
    struct child child;

    /* The message. */
    char *queue, *id, *receipt; /* owned */
    struct buf reason;
    int64_t lease_ms;
    int64_t lease_ends_ms; /* as far as we know */

    /* When to do something next; JOB_NEVER for not at all. */
    int64_t extend_at_ms, timeout_at_ms, kill_at_ms, retry_at_ms;

    /* Requests. */
    struct client call;
    enum job_request sent; /* under way */
    enum job_request want; /* how to settle */
    int64_t sent_at_ms;
    int64_t backoff_ms;
    bool repeated; /* the settling was sent before, and may have arrived */
};

void job_init(struct job *job);
void job_fini(struct job *job);

/* Starts the command for a message of a claim's answer. False when the command cannot be started:
 * the message is then on its way back. */
bool job_begin(struct job *job, const struct runner_options *o, const struct cli *cli,
               const struct json_doc *doc, uint32_t message, int64_t now_ms);

/* Pumps, reaps, and acts on what is due. True when job->call has been armed and is to be sent. */
bool job_step(struct job *job, const struct runner_options *o, const struct cli *cli,
              int64_t now_ms);

/* The request under way has ended; client_finish() was called. `patient` is false when the user
 * wants out and nothing is to be tried twice. */
enum job_answer job_answered(struct job *job, bool patient, int64_t now_ms);

void job_interrupt(struct job *job, int signal); /* the second and third Ctrl-C */
int64_t job_due_ms(const struct job *job);       /* when job_step() has something to do */

#endif
