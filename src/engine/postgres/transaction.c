/* One transaction on a connection, with a limit of time, and what became of it. */
#include "base/random.h"
#include "engine/postgres/impl.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

/* Waiting with a limit: libpq blocks for as long as the network does. */

static bool wait_socket(PGconn *conn, short events, int64_t until_ms)
{
    struct pollfd p = {.fd = PQsocket(conn), .events = events};
    int64_t left_ms = until_ms - clock_now().mono_ms;
    int n = left_ms > 0 ? poll(&p, 1, (int)left_ms) : 0;
    return n > 0 || (n < 0 && errno == EINTR);
}

static bool flush_all(PGconn *conn, int64_t until_ms)
{
    int left;
    while ((left = PQflush(conn)) > 0) {
        if (!wait_socket(conn, POLLIN | POLLOUT, until_ms) || !PQconsumeInput(conn))
            return false;
    }
    return left == 0;
}

/* The next result, or NULL at the end of a statement's; *alive is false when time or the connection
 * ran out. */
static PGresult *next_result(PGconn *conn, int64_t until_ms, bool *alive)
{
    while (PQisBusy(conn)) {
        if (!wait_socket(conn, POLLIN, until_ms) || !PQconsumeInput(conn)) {
            *alive = false;
            return NULL;
        }
    }
    *alive = true;
    return PQgetResult(conn);
}

/* Answers */

static enum outcome outcome_of(const PGresult *r, struct job *job)
{
    static const struct {
        const char *state;
        enum outcome outcome;
    } known[] = {
        {"40001", OUTCOME_AGAIN}, {"40P01", OUTCOME_AGAIN}, {"23505", OUTCOME_AGAIN},
        {"TRCFG", OUTCOME_STALE}, {"55P03", OUTCOME_LATE},  {"57014", OUTCOME_LATE},
        {"57P01", OUTCOME_LOST},  {"57P02", OUTCOME_LOST},  {"57P03", OUTCOME_LOST},
        {"25006", OUTCOME_LOST},
    };
    const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
    const char *table = PQresultErrorField(r, PG_DIAG_TABLE_NAME);
    const char *text = PQresultErrorMessage(r);
    snprintf(job->error, sizeof(job->error), "%.*s", (int)strcspn(text, "\n"), text);
    if (!state)
        return OUTCOME_LOST;
    if (strcmp(state, "23505") == 0 && table && strcmp(table, "mark") == 0)
        return OUTCOME_TAKEN;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(known[i].state, state) == 0)
            return known[i].outcome;
    }
    return strncmp(state, "08", 2) == 0 ? OUTCOME_LOST : OUTCOME_REFUSED;
}

/* Everything up to a sync. The first error decides; what follows it was not run. */
struct reading {
    struct job *job;
    struct call *call; /* whose answer is next; NULL: what comes is dropped */
    uint32_t before;   /* statements before the first call */
    const char *tag;   /* what each statement has to say that it was; NULL: anything */
};

static bool is_error(ExecStatusType status)
{
    return status == PGRES_FATAL_ERROR || status == PGRES_BAD_RESPONSE ||
           status == PGRES_NONFATAL_ERROR;
}

static void keep_result(struct reading *reading, PGresult *r)
{
    if (reading->before > 0) {
        reading->before--;
    } else if (reading->call) {
        PQclear(reading->call->result);
        reading->call->result = r;
        reading->call = reading->call->next;
        return;
    }
    PQclear(r);
}

static enum outcome read_answers(PGconn *conn, struct reading *reading, int64_t until_ms)
{
    enum outcome outcome = OUTCOME_OK;
    bool alive, synced = false;
    while (!synced) {
        PGresult *r = next_result(conn, until_ms, &alive);
        if (!alive)
            return OUTCOME_LOST;
        if (!r)
            continue; /* between statements */
        ExecStatusType status = PQresultStatus(r);
        synced = status == PGRES_PIPELINE_SYNC;
        if (is_error(status) && outcome == OUTCOME_OK)
            outcome = outcome_of(r, reading->job);
        bool done = status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK;
        bool other = done && reading->tag && strcmp(PQcmdStatus(r), reading->tag) != 0;
        if (other || PQstatus(conn) == CONNECTION_BAD) {
            PQclear(r);
            return OUTCOME_LOST;
        }
        if (done)
            keep_result(reading, r);
        else
            PQclear(r);
    }
    return outcome;
}

/* Statements */

static bool send_plain(PGconn *conn, const char *sql)
{
    static const struct params none;
    return params_send(conn, sql, &none);
}

/* How a transaction starts. Settings are its own and not the session's, because a pooler may give
 * the next one another session. */
static bool send_begin(PGconn *conn, const struct pg_shared *shared, const uint8_t *token)
{
    char sql[192];
    struct params p = {0};
    snprintf(sql, sizeof(sql), "SELECT set_config('lock_timeout', '%lld', true)%s%s",
             (long long)shared->timeout_ms / 2,
             shared->sync_commit ? "" : ", set_config('synchronous_commit', 'off', true)",
             token ? ", triage.engine_mark($1)" : "");
    if (token)
        param_bytes(&p, WIRE_UUID, token, TOKEN_BYTES);
    bool ok = send_plain(conn, token ? "BEGIN" : "BEGIN READ ONLY") && params_send(conn, sql, &p);
    params_fini(&p);
    return ok;
}

#define BEGIN_STATEMENTS 2

static enum outcome rollback(PGconn *conn, const struct job *job, int64_t until_ms)
{
    struct job scratch = *job; /* the reason is the first error's */
    struct reading reading = {.job = &scratch};
    if (!send_plain(conn, "ROLLBACK") || !PQpipelineSync(conn) || !flush_all(conn, until_ms))
        return OUTCOME_LOST;
    return read_answers(conn, &reading, until_ms);
}

static void ignore_notice(void *ctx, const PGresult *notice)
{
    (void)ctx;
    (void)notice;
}

void transaction_quiet(PGconn *conn)
{
    PQsetNoticeReceiver(conn, ignore_notice, NULL);
}

struct warning {
    struct job *job;
    bool came;
};

static void note_warning(void *ctx, const PGresult *notice)
{
    struct warning *w = ctx;
    const char *severity = PQresultErrorField(notice, PG_DIAG_SEVERITY_NONLOCALIZED);
    const char *text = PQresultErrorField(notice, PG_DIAG_MESSAGE_PRIMARY);
    if (!severity || strcmp(severity, "WARNING") != 0)
        return;
    w->came = true;
    snprintf(w->job->error, sizeof(w->job->error), "%s", text ? text : "");
}

/* A COMMIT that ends in a warning has not kept its promise: the wait for the standby was cancelled,
 * and what the answer calls committed may not outlive the primary. That counts as no answer. */
static enum outcome commit(PGconn *conn, struct job *job, int64_t until_ms)
{
    struct reading reading = {.job = job, .tag = "COMMIT"};
    struct warning warning = {.job = job};
    enum outcome outcome = OUTCOME_LOST;
    PQsetNoticeReceiver(conn, note_warning, &warning);
    if (send_plain(conn, "COMMIT") && PQpipelineSync(conn) && flush_all(conn, until_ms))
        outcome = read_answers(conn, &reading, until_ms);
    transaction_quiet(conn);
    return warning.came ? OUTCOME_LOST : outcome;
}

/* All but the COMMIT. */
static enum outcome run_calls(PGconn *conn, const struct pg_shared *shared, struct job *job,
                              int64_t until_ms)
{
    struct reading reading = {.job = job, .call = job->calls, .before = BEGIN_STATEMENTS};
    bool ok = send_begin(conn, shared, job->writes ? job->token : NULL);
    for (struct call *c = job->calls; ok && c; c = c->next)
        ok = params_send(conn, c->sql, &c->params);
    if (!ok || !PQpipelineSync(conn) || !flush_all(conn, until_ms))
        return OUTCOME_LOST;
    return read_answers(conn, &reading, until_ms);
}

enum outcome transaction_run(PGconn *conn, const struct pg_shared *shared, struct job *job,
                             int64_t until_ms, bool *commit_sent)
{
    *commit_sent = false;
    enum outcome outcome = run_calls(conn, shared, job, until_ms);
    if (outcome == OUTCOME_LOST)
        return outcome;
    if (outcome != OUTCOME_OK) {
        enum outcome end = rollback(conn, job, until_ms);
        return end == OUTCOME_LOST ? end : outcome;
    }
    *commit_sent = true;
    return commit(conn, job, until_ms);
}

/* Storing the token again tells: that fails when the transaction was committed, and waits while it
 * is being. */
static enum outcome ask_token(PGconn *conn, const struct pg_shared *shared, struct job *job,
                              int64_t until_ms)
{
    struct reading reading = {.job = job};
    if (!send_begin(conn, shared, job->token) || !PQpipelineSync(conn) ||
        !flush_all(conn, until_ms))
        return OUTCOME_LOST;
    enum outcome outcome = read_answers(conn, &reading, until_ms);
    return outcome != OUTCOME_LOST && rollback(conn, job, until_ms) == OUTCOME_LOST ? OUTCOME_LOST
                                                                                    : outcome;
}

/* The log is one line: when a later commit is where the standbys must have it, so is all that came
 * before it. */
static enum outcome commit_behind(PGconn *conn, const struct pg_shared *shared, struct job *job,
                                  int64_t until_ms)
{
    struct reading reading = {.job = job};
    uint8_t token[TOKEN_BYTES];
    random_bytes(token, sizeof(token));
    if (!send_begin(conn, shared, token) || !PQpipelineSync(conn) || !flush_all(conn, until_ms))
        return OUTCOME_LOST;
    enum outcome outcome = read_answers(conn, &reading, until_ms);
    return outcome == OUTCOME_OK ? commit(conn, job, until_ms) : OUTCOME_LOST;
}

enum outcome transaction_ask(PGconn *conn, const struct pg_shared *shared, struct job *job,
                             int64_t until_ms)
{
    enum outcome outcome = ask_token(conn, shared, job, until_ms);
    if (outcome == OUTCOME_TAKEN && commit_behind(conn, shared, job, until_ms) != OUTCOME_OK)
        outcome = OUTCOME_LOST;
    return outcome;
}
