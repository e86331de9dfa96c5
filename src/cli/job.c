#include "cli/job.h"

#include "base/mem.h"
#include "cli/payload.h"
#include "term/args.h"
#include "term/cli.h"
#include "term/member.h"
#include "term/words.h"

#include <ctype.h>
#include <signal.h>
#include <stdlib.h>

#define KILL_AFTER_MS  10000 /* from SIGTERM to SIGKILL */
#define BACKOFF_MS_MIN 500
#define BACKOFF_MS_MAX 10000
#define LEASE_MS_MIN   300 /* for a queue with a tiny visibility timeout */
#define EXTEND_MS_MIN  300 /* time that an extend always has */
#define SETTLE_MS_MIN  5000
#define META_NAME_MAX  64

void job_init(struct job *job)
{
    *job = (struct job){.state = JOB_FREE};
    child_init(&job->child);
    client_init(&job->call);
}

void job_fini(struct job *job)
{
    child_fini(&job->child);
    client_fini(&job->call);
    buf_fini(&job->reason);
    free(job->queue);
    free(job->id);
    free(job->receipt);
}

static void job_free(struct job *job)
{
    free(job->queue);
    free(job->id);
    free(job->receipt);
    job->queue = job->id = job->receipt = NULL;
    job->state = JOB_FREE;
}

static char *dup_member(const struct json_doc *doc, uint32_t message, const char *name)
{
    const struct json_token *t = json_get(doc, message, name);
    if (t == NULL)
        return mem_dup("", 0);
    return t->type == JSON_STRING ? mem_dup(t->str, t->len) : mem_dup(t->raw, t->raw_len);
}

static void env_token(struct child_env *env, const char *name, const struct json_token *t)
{
    if (t == NULL)
        return;
    bool text = t->type == JSON_STRING;
    child_env_set(env, name, text ? t->str : t->raw, text ? t->len : t->raw_len);
}

/* tenant becomes TRIAGE_META_TENANT, and trace-id TRIAGE_META_TRACE_ID. Names that cannot be
 * variables are in the JSON only. */
static void env_meta(struct child_env *env, const struct json_token *t)
{
    char name[16 + META_NAME_MAX] = "TRIAGE_META_";
    size_t at = strlen(name);
    if (t->key_len == 0 || t->key_len > META_NAME_MAX)
        return;
    for (size_t i = 0; i < t->key_len; i++) {
        unsigned char c = (unsigned char)t->key[i];
        if (!isalnum(c) && c != '_' && c != '-')
            return;
        name[at++] = c == '-' ? '_' : (char)toupper(c);
    }
    env_token(env, name, t);
}

static void env_message(struct child_env *env, const char *queue, const struct cli *cli,
                        const struct json_doc *doc, uint32_t message)
{
    static const struct {
        const char *name, *member;
    } facts[] = {
        {"TRIAGE_MESSAGE_ID", "message_id"},
        {"TRIAGE_PRIORITY", "priority"},
        {"TRIAGE_LEVEL", "level"},
        {"TRIAGE_ATTEMPT", "attempt"},
        {"TRIAGE_RECEIPT", "receipt_handle"},
        {"TRIAGE_ENQUEUED_AT", "enqueued_at"},
    };
    child_env_init(env);
    const struct {
        const char *name, *value;
    } given[] = {
        {"TRIAGE_SERVER", cli->server},
        {"TRIAGE_CACERT", cli->cacert},
        {"TRIAGE_CERT", cli->cert},
        {"TRIAGE_KEY", cli->key},
    };
    for (size_t i = 0; i < sizeof(given) / sizeof(*given); i++) {
        if (given[i].value)
            child_env_set(env, given[i].name, given[i].value, strlen(given[i].value));
    }
    child_env_set(env, "TRIAGE_QUEUE", queue, strlen(queue));
    for (size_t i = 0; i < sizeof(facts) / sizeof(*facts); i++)
        env_token(env, facts[i].name, json_get(doc, message, facts[i].member));
    const struct json_token *trace = json_get(doc, message, "traceparent");
    if (trace) /* OpenTelemetry's name for it; that of our own environment is not the message's */
        env_token(env, "TRACEPARENT", trace);
    const struct json_token *metadata = json_get(doc, message, "metadata");
    if (metadata == NULL || metadata->type != JSON_OBJECT) {
        child_env_set(env, "TRIAGE_METADATA", "{}", 2);
        return;
    }
    uint32_t at = json_index(doc, metadata);
    child_env_set(env, "TRIAGE_METADATA", metadata->raw, metadata->raw_len);
    for (uint32_t i = json_first(doc, at); i; i = json_next(doc, at, i))
        env_meta(env, &doc->tokens[i]);
}

static int64_t lease_of(const struct json_doc *doc, uint32_t message)
{
    double seconds = 30;
    json_double(json_get(doc, message, "visibility_timeout"), &seconds);
    int64_t ms = (int64_t)(seconds * 1000);
    return ms < LEASE_MS_MIN ? LEASE_MS_MIN : ms;
}

/* Begins to settle the message. An extend that is under way is given up: it has no purpose any
 * more, and its answer may never come. An extend that reaches the server after the ack does no
 * harm. */
static void job_settle(struct job *job, enum job_request want)
{
    client_abandon(&job->call);
    job->sent = JOB_NOTHING;
    job->repeated = false;
    job->state = JOB_SETTLING;
    job->want = want;
    job->retry_at_ms = 0;
    job->backoff_ms = BACKOFF_MS_MIN;
}

bool job_begin(struct job *job, const struct runner_options *o, const struct cli *cli,
               const struct json_doc *doc, uint32_t message, int64_t now_ms)
{
    struct child_env env;
    struct buf payload = {0};
    /* Only the answer of a claim over several queues has to say which. */
    job->queue = o->queue_count > 1 ? dup_member(doc, message, "queue")
                                    : mem_dup(o->queues[0], strlen(o->queues[0]) + 1);
    job->id = dup_member(doc, message, "message_id");
    job->receipt = dup_member(doc, message, "receipt_handle");
    job->lease_ms = lease_of(doc, message);
    job->lease_ends_ms = now_ms + job->lease_ms;
    job->extend_at_ms = now_ms + job->lease_ms / 3;
    job->timeout_at_ms = o->timeout_ms == ARG_UNSET ? JOB_NEVER : now_ms + o->timeout_ms;
    job->kill_at_ms = JOB_NEVER;
    job->ending = JOB_BY_ITSELF;
    job->state = JOB_RUNNING;
    buf_clear(&job->reason);
    payload_get(doc, message, &payload);
    env_message(&env, job->queue, cli, doc, message);
    int error = child_start(&job->child, o->argv, &env, &payload);
    child_env_fini(&env);
    buf_fini(&payload);
    if (error != 0) {
        cli_complain("%s: %s; %s goes back", o->argv[0], strerror(error), job->id);
        job_settle(job, JOB_RELEASE);
    }
    return error == 0;
}

static void job_stop(struct job *job, enum job_ending why, int64_t now_ms)
{
    job->ending = why;
    if (job->kill_at_ms == JOB_NEVER)
        job->kill_at_ms = now_ms + KILL_AFTER_MS;
    child_signal(&job->child, SIGTERM);
}

void job_interrupt(struct job *job, int signal)
{
    if (job->state != JOB_RUNNING)
        return;
    if (job->ending == JOB_BY_ITSELF)
        job->ending = JOB_INTERRUPTED;
    child_signal(&job->child, signal);
}

static void job_ended(struct job *job, const struct runner_options *o, int wait_status)
{
    buf_clear(&job->reason);
    switch (job->ending) {
    case JOB_LEASE_LOST:
        job_free(job);
        return;
    case JOB_INTERRUPTED:
        job_settle(job, JOB_RELEASE);
        return;
    case JOB_TIMED_OUT:
        buf_printf(&job->reason, "timed out after %s", o->timeout_text);
        job_settle(job, JOB_NACK);
        return;
    case JOB_BY_ITSELF:
        if (wait_status == 0) {
            job_settle(job, JOB_ACK);
            return;
        }
        child_explain(&job->child, wait_status, &job->reason);
        job_settle(job, JOB_NACK);
        return;
    }
}

/* A third of what is left of the lease, so that a request whose answer is lost can be tried again
 * while the lease lasts. */
static int64_t limit_of(const struct job *job, enum job_request request, int64_t now_ms)
{
    int64_t least_ms = request == JOB_EXTEND ? EXTEND_MS_MIN : SETTLE_MS_MIN;
    int64_t third_ms = (job->lease_ends_ms - now_ms) / 3;
    return third_ms > least_ms ? third_ms : least_ms;
}

static void arm(struct job *job, const struct cli *cli, enum job_request request, int64_t now_ms)
{
    static const char *const verbs[] = {
        [JOB_EXTEND] = "/extend", [JOB_ACK] = "", [JOB_NACK] = "/nack", [JOB_RELEASE] = "/release"};
    struct client *c = &job->call;
    client_begin(c, cli);
    client_path(c, "/v1/queues/%s/messages/%s", job->queue, job->id);
    client_path(c, verbs[request]);
    c->limit_ms = limit_of(job, request, now_ms);
    job->sent = request;
    job->sent_at_ms = now_ms;
    if (request == JOB_ACK) {
        client_header(c, "X-Receipt-Handle", job->receipt);
        client_arm(c, "DELETE", NULL);
        return;
    }
    buf_putc(&c->body, '{');
    member_put_text(&c->body, "receipt_handle", job->receipt);
    if (request == JOB_EXTEND)
        member_put_seconds(&c->body, "visibility_timeout_seconds", job->lease_ms);
    if (request == JOB_NACK)
        member_put_text(&c->body, "reason", buf_cstr(&job->reason));
    buf_putc(&c->body, '}');
    client_arm(c, "POST", TYPE_JSON);
}

bool job_step(struct job *job, const struct runner_options *o, const struct cli *cli,
              int64_t now_ms)
{
    int wait_status;
    if (job->state == JOB_RUNNING) {
        child_pump(&job->child);
        if (child_reap(&job->child, job->ending != JOB_BY_ITSELF, &wait_status))
            job_ended(job, o, wait_status);
    }
    if (job->state == JOB_RUNNING) {
        if (now_ms >= job->timeout_at_ms && job->ending == JOB_BY_ITSELF)
            job_stop(job, JOB_TIMED_OUT, now_ms);
        if (now_ms >= job->kill_at_ms) {
            child_signal(&job->child, SIGKILL);
            job->kill_at_ms = JOB_NEVER;
        }
    }
    if (job->sent != JOB_NOTHING || job_due_ms(job) > now_ms)
        return false;
    if (job->state == JOB_SETTLING)
        arm(job, cli, job->want, now_ms);
    else if (job->state == JOB_RUNNING && job->ending != JOB_LEASE_LOST &&
             now_ms >= job->extend_at_ms)
        arm(job, cli, JOB_EXTEND, now_ms);
    return job->sent != JOB_NOTHING;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t job_due_ms(const struct job *job)
{
    bool idle = job->sent == JOB_NOTHING;
    int64_t due = JOB_NEVER;
    if (job->state == JOB_SETTLING && idle)
        due = job->retry_at_ms;
    if (job->state != JOB_RUNNING)
        return due;
    if (job->ending == JOB_BY_ITSELF)
        due = earlier(due, job->timeout_at_ms);
    if (job->ending != JOB_LEASE_LOST && idle)
        due = earlier(due, job->extend_at_ms);
    return earlier(due, job->kill_at_ms);
}

/* Whether the call may be tried again: no answer came, or one that says to come back. */
static bool is_passing(const struct client *c)
{
    return c->http == 0 || c->http == 408 || c->http == 429 || c->http >= 500;
}

static void complain_refused(const struct job *job, const char *what, const char *then)
{
    struct buf text = {0};
    if (job->call.is_json)
        words_put_problem(&text, &job->call.doc, 0, job->call.http, false, NULL);
    else
        buf_printf(&text, "%ld", job->call.http);
    cli_complain("%s: %s (%s); %s", job->id, what, buf_cstr(&text), then);
    buf_fini(&text);
}

static void extend_answered(struct job *job, int64_t now_ms)
{
    const struct client *c = &job->call;
    if (client_succeeded(c)) {
        job->lease_ends_ms = job->sent_at_ms + job->lease_ms;
        job->extend_at_ms = job->sent_at_ms + job->lease_ms / 3;
        return;
    }
    int64_t again_ms = earlier(job->lease_ms / 10, BACKOFF_MS_MAX);
    job->extend_at_ms = now_ms + (again_ms < 100 ? 100 : again_ms);
    if ((c->http != 409 && c->http != 404) || job->state != JOB_RUNNING)
        return;
    complain_refused(job, "the lease is lost", "the command is stopped");
    job_stop(job, JOB_LEASE_LOST, now_ms);
}

static void report_nack(const struct job *job)
{
    const struct json_token *state = NULL;
    if (job->call.is_json)
        state = json_get(&job->call.doc, 0, "state");
    cli_complain("%s: %.*s; now %.*s", job->id, (int)job->reason.len, job->reason.data,
                 state ? (int)state->len : 7, state ? state->str : "waiting");
}

/* Whether an earlier try has settled the message and only its answer was lost: then the receipt is
 * refused now. */
static bool was_settled(const struct job *job)
{
    return job->repeated && (job->call.http == 404 || job->call.http == 409);
}

static void settle_answered(struct job *job, bool patient, int64_t now_ms)
{
    const struct client *c = &job->call;
    static const char *const failures[] = {
        [JOB_ACK] = "not acked", [JOB_NACK] = "not nacked", [JOB_RELEASE] = "not released"};
    bool passing = is_passing(c);
    if (passing && patient && now_ms + job->backoff_ms < job->lease_ends_ms) {
        job->retry_at_ms = now_ms + job->backoff_ms;
        job->backoff_ms = earlier(job->backoff_ms * 2, BACKOFF_MS_MAX);
        job->repeated = true;
        return;
    }
    if (passing && c->http == 0)
        cli_complain("%s: %s, the server is away; it will be delivered again", job->id,
                     failures[job->want]);
    else if (!client_succeeded(c) && !was_settled(job))
        complain_refused(job, failures[job->want], "it may be delivered again");
    else if (job->want == JOB_NACK && client_succeeded(c))
        report_nack(job);
    job_free(job);
}

enum job_answer job_answered(struct job *job, bool patient, int64_t now_ms)
{
    enum job_request sent = job->sent;
    enum job_answer answer = job->call.http == 0 ? JOB_UNANSWERED : JOB_ANSWERED;
    job->sent = JOB_NOTHING;
    if (sent == JOB_EXTEND)
        extend_answered(job, now_ms);
    else
        settle_answered(job, patient, now_ms);
    return answer;
}
