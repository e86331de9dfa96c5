/* One transaction on a connection, with a time limit, and what became of it. */
#include "base/random.h"
#include "engine/postgres/impl.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

/* Waiting with a limit. libpq alone would wait as long as the network does. */

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

/* The next result; NULL: the statement has no more. *alive is false when the time or the connection
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

static enum outcome outcome_of(const PGresult *r, struct pg_job *job)
{
    static const struct {
        const char *state;
        enum outcome outcome;
    } known[] = {
        {"40001", OUTCOME_AGAIN},  {"40P01", OUTCOME_AGAIN}, {"23505", OUTCOME_AGAIN},
        {"TRCFG", OUTCOME_STALE},  {"55P03", OUTCOME_LATE},  {"57014", OUTCOME_LATE},
        {"57P01", OUTCOME_LOST},   {"57P02", OUTCOME_LOST},  {"57P03", OUTCOME_LOST},
        {"0A000", OUTCOME_FORGOT}, {"25006", OUTCOME_LOST},  {"26000", OUTCOME_FORGOT},
        {"42P05", OUTCOME_FORGOT},
    };
    const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
    const char *table = PQresultErrorField(r, PG_DIAG_TABLE_NAME);
    const char *text = PQresultErrorMessage(r);
    snprintf(job->error, sizeof(job->error), "%.*s", (int)strcspn(text, "\n"), text);
    job->refused = NULL;
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

/* Whether the values of the call are to blame, and not the state of the database. Then the other
 * calls can succeed without it. */
static bool about_values(const PGresult *r)
{
    static const char *const classes[] = {"22", "23", "54", "P0", "TR"};
    const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
    for (size_t i = 0; state && i < sizeof(classes) / sizeof(classes[0]); i++) {
        if (strncmp(state, classes[i], 2) == 0)
            return true;
    }
    return false;
}

/* The answers up to a sync. The first error decides: statements after it were not run. */
struct reading {
    struct pg_job *job;
    uint32_t before;      /* answers that come before that of the first call */
    struct pg_call *call; /* the call whose answer is next; NULL: answers are dropped */
    bool commits;         /* the statement is COMMIT, and the answer must say so */
};

static bool is_error(ExecStatusType status)
{
    return status == PGRES_FATAL_ERROR || status == PGRES_BAD_RESPONSE ||
           status == PGRES_NONFATAL_ERROR;
}

/* The last answer before that of the first call has the time in the database. */
static void keep_time(struct pg_job *job, const PGresult *r)
{
    if (PQntuples(r) == 0)
        return;
    job->exchange.theirs_us = cell_int(r, 0, 0);
    job->exchange.heard_us = clock_wall_us();
}

static void keep_result(struct reading *reading, PGresult *r)
{
    if (reading->before > 0) {
        if (--reading->before == 0)
            keep_time(reading->job, r);
    } else if (reading->call && reading->call->prepares) {
        reading->call->prepares = false;
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
        if (is_error(status) && outcome == OUTCOME_OK) {
            outcome = outcome_of(r, reading->job);
            bool may_be = outcome == OUTCOME_REFUSED || outcome == OUTCOME_AGAIN;
            bool blamed = may_be && reading->before == 0 && about_values(r);
            reading->job->refused = blamed ? reading->call : NULL;
        }
        bool done = status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK;
        bool other = done && reading->commits && strcmp(PQcmdStatus(r), "COMMIT") != 0;
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
    return params_send(conn, NULL, sql, &none);
}

/* Sends a call. The first time its preparation goes before it, which has an answer of its own. A
 * statement is known by the address of its text. */
static bool send_call(struct session *s, const char *sql, const struct params *p, bool *prepares)
{
    char name[16];
    int at = 0;
    while (at < s->known && s->statements[at] != sql)
        at++;
    *prepares = !s->pooled && at == s->known && at < STATEMENTS_MAX;
    bool named = *prepares || (!s->pooled && at < s->known);
    snprintf(name, sizeof(name), "t%d", at);
    assert(s->known < STATEMENTS_MAX || !*prepares);
    if (*prepares)
        s->statements[s->known++] = sql;
    return (!*prepares || params_prepare(s->conn, name, sql, p)) &&
           params_send(s->conn, named ? name : NULL, sql, p);
}

static void param_ms(struct params *p, int64_t ms)
{
    char text[32];
    param_text(p, text, (size_t)snprintf(text, sizeof(text), "%lld", (long long)ms));
}

/* Begins a transaction, and asks what time it is in the database. Settings are made for the
 * transaction and not for the session, because a pooler may run the next one in another session. */
static bool send_begin(struct session *s, const struct pg_shared *shared, int64_t statement_ms,
                       const uint8_t *token, struct reading *reading)
{
#define LIMITS                                                                                     \
    "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, "                           \
    "set_config('lock_timeout', $1, true), set_config('statement_timeout', $2, true)"
#define LOOSE ", set_config('synchronous_commit', 'off', true)"
#define MARK  ", triage.engine_mark($3)"
    static const char *const begins[2][2] = {{LIMITS LOOSE, LIMITS},
                                             {LIMITS LOOSE MARK, LIMITS MARK}};
    static_assert(TOKEN_BYTES == 16, "a token is a uuid");
    struct params p = {0};
    bool prepares = false;
    param_ms(&p, shared->timeout_ms / 2);
    param_ms(&p, statement_ms);
    if (token)
        param_bytes(&p, WIRE_UUID, token, TOKEN_BYTES);
    bool ok = send_plain(s->conn, token ? "BEGIN" : "BEGIN READ ONLY") &&
              send_call(s, begins[token != NULL][shared->sync_commit], &p, &prepares);
    reading->before = prepares ? 3 : 2;
    params_fini(&p);
    return ok;
}

/* The database ends a statement that takes too long, a little before this process would give up. So
 * its answer is heard, and the connection stays usable. */
static int64_t statement_limit_ms(const struct session *s, const struct pg_shared *shared)
{
    int64_t ours_ms = shared->timeout_ms * 3 / 4;
    return s->statement_ms > 0 && s->statement_ms < ours_ms ? s->statement_ms : ours_ms;
}

/* Lets a COMMIT take as long as it needs. It may wait for a standby; if that wait were ended,
 * changes that only one machine has would become visible. */
static bool send_unlimited(struct session *s)
{
    struct params p = {0};
    bool prepares;
    param_ms(&p, s->statement_ms);
    bool ok = send_call(s, "SELECT set_config('statement_timeout', $1, true)", &p, &prepares);
    params_fini(&p);
    return ok;
}

/* Also forgets the prepared statements: it is not known which of them were prepared. */
static enum outcome rollback(struct session *s, const struct pg_job *job, int64_t until_ms)
{
    struct pg_job scratch = *job; /* a copy, so that the first error stays the reason */
    struct reading reading = {.job = &scratch};
    bool forget = s->known > 0;
    s->known = 0;
    if (!send_plain(s->conn, "ROLLBACK") || (forget && !send_plain(s->conn, "DEALLOCATE ALL")) ||
        !PQpipelineSync(s->conn) || !flush_all(s->conn, until_ms))
        return OUTCOME_LOST;
    return read_answers(s->conn, &reading, until_ms);
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

void transaction_start(struct session *s, PGconn *conn, int64_t until_ms)
{
    *s = (struct session){.conn = conn, .pooled = true};
    PQenterPipelineMode(conn);
    bool alive = send_plain(conn, "SELECT pg_backend_pid(), (SELECT setting::bigint FROM "
                                  "pg_settings WHERE name = 'statement_timeout')") &&
                 PQpipelineSync(conn) && flush_all(conn, until_ms);
    for (bool synced = false; alive && !synced;) {
        PGresult *r = next_result(conn, until_ms, &alive);
        ExecStatusType status = PQresultStatus(r);
        synced = status == PGRES_PIPELINE_SYNC;
        if (status == PGRES_TUPLES_OK) {
            s->pooled = cell_int(r, 0, 0) != PQbackendPID(conn);
            s->statement_ms = cell_int(r, 0, 1);
        }
        PQclear(r);
        alive = alive && PQstatus(conn) == CONNECTION_OK;
    }
}

struct warning {
    struct pg_job *job;
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

/* A COMMIT with a warning counts as no answer. The wait for the standby was cancelled, so what is
 * called committed may be lost with the primary. */
static enum outcome commit(struct session *s, struct pg_job *job, int64_t until_ms)
{
    struct reading reading = {.job = job, .commits = true};
    struct warning warning = {.job = job};
    enum outcome outcome = OUTCOME_LOST;
    PQsetNoticeReceiver(s->conn, note_warning, &warning);
    if (send_plain(s->conn, "COMMIT") && PQpipelineSync(s->conn) && flush_all(s->conn, until_ms))
        outcome = read_answers(s->conn, &reading, until_ms);
    transaction_quiet(s->conn);
    return warning.came ? OUTCOME_LOST : outcome;
}

/* Runs everything but the COMMIT. If the COMMIT has no answer, those of the calls are still
 * known. */
static enum outcome run_calls(struct session *s, const struct pg_shared *shared, struct pg_job *job,
                              int64_t until_ms)
{
    struct reading reading = {.job = job, .call = job->calls};
    job->exchange = (struct exchange){.asked_us = clock_wall_us()};
    bool ok = send_begin(s, shared, statement_limit_ms(s, shared), job->writes ? job->token : NULL,
                         &reading);
    for (struct pg_call *c = job->calls; ok && c; c = c->next)
        ok = send_call(s, c->sql, &c->params, &c->prepares);
    ok = ok && (!job->writes || send_unlimited(s));
    if (!ok || !PQpipelineSync(s->conn) || !flush_all(s->conn, until_ms))
        return OUTCOME_LOST;
    return read_answers(s->conn, &reading, until_ms);
}

/* The value would not fit the protocol, so nothing is sent. */
static enum outcome refuse_length(struct pg_job *job, struct pg_call *c)
{
    snprintf(job->error, sizeof(job->error), "a value is longer than PostgreSQL takes");
    job->refused = c;
    return OUTCOME_REFUSED;
}

enum outcome transaction_run(struct session *s, const struct pg_shared *shared, struct pg_job *job,
                             int64_t until_ms, bool *commit_sent)
{
    *commit_sent = false;
    assert(s->conn);
    assert(s->known <= STATEMENTS_MAX);
    for (struct pg_call *c = job->calls; c; c = c->next) {
        if (c->params.too_long)
            return refuse_length(job, c);
    }
    enum outcome outcome = run_calls(s, shared, job, until_ms);
    if (outcome == OUTCOME_LOST)
        return outcome;
    if (outcome != OUTCOME_OK) {
        s->pooled = s->pooled || outcome == OUTCOME_FORGOT;
        enum outcome end = rollback(s, job, until_ms);
        return end == OUTCOME_LOST ? end : outcome == OUTCOME_FORGOT ? OUTCOME_AGAIN : outcome;
    }
    *commit_sent = true;
    uint64_t began_us = clock_mono_us();
    outcome = commit(s, job, until_ms);
    job->commit_us += clock_mono_us() - began_us;
    return outcome;
}

/* Stores the token of the transaction again. That fails if the transaction was committed, and waits
 * while it is being committed. */
static enum outcome ask_token(struct session *s, const struct pg_shared *shared, struct pg_job *job,
                              int64_t until_ms)
{
    struct reading reading = {.job = job};
    if (!send_begin(s, shared, s->statement_ms, job->token, &reading) || !PQpipelineSync(s->conn) ||
        !flush_all(s->conn, until_ms))
        return OUTCOME_LOST;
    enum outcome outcome = read_answers(s->conn, &reading, until_ms);
    return outcome != OUTCOME_LOST && rollback(s, job, until_ms) == OUTCOME_LOST ? OUTCOME_LOST
                                                                                 : outcome;
}

/* Commits another transaction after the one that is in doubt. The log of the database is
 * sequential: once a later commit has reached the standbys, so has everything before it. */
static enum outcome commit_behind(struct session *s, const struct pg_shared *shared,
                                  struct pg_job *job, int64_t until_ms)
{
    struct reading reading = {.job = job};
    uint8_t token[TOKEN_BYTES];
    random_bytes(token, sizeof(token));
    if (!send_begin(s, shared, s->statement_ms, token, &reading) || !PQpipelineSync(s->conn) ||
        !flush_all(s->conn, until_ms))
        return OUTCOME_LOST;
    enum outcome outcome = read_answers(s->conn, &reading, until_ms);
    return outcome == OUTCOME_OK ? commit(s, job, until_ms) : OUTCOME_LOST;
}

enum outcome transaction_ask(struct session *s, const struct pg_shared *shared, struct pg_job *job,
                             int64_t until_ms)
{
    enum outcome outcome = ask_token(s, shared, job, until_ms);
    if (outcome == OUTCOME_TAKEN && commit_behind(s, shared, job, until_ms) != OUTCOME_OK)
        outcome = OUTCOME_LOST;
    return outcome;
}
