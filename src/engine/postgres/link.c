#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"
#include "engine/postgres/impl.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_MS_MAX  30000 /* a transaction that takes longer is given up */
#define RESOLVE_MS_MAX 15000 /* … and for so long it is asked whether it was committed */
#define RETRY_MAX      20    /* of one that met another at the wrong time */
#define BACKOFF_MS_MIN 50
#define BACKOFF_MS_MAX 2000

struct link {
    struct pg *pg;
    uv_thread_t thread;
    uv_mutex_t mutex; /* guards what follows, up to the connection */
    uv_cond_t cond;
    struct job *todo, **todo_end;
    struct job *done, **done_end;
    bool stopping;
    bool connected;
    char trouble[256];

    bool busy; /* the shard's own: it has a job */
    _Atomic int backend;
    PGconn *conn; /* the thread's own */
    int64_t backoff_ms;
    int64_t retry_at_ms; /* mono: not before then */
};

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

/* Connecting */

static void note_trouble(struct link *l, const char *text)
{
    uv_mutex_lock(&l->mutex);
    snprintf(l->trouble, sizeof(l->trouble), "%s", text);
    size_t len = strcspn(l->trouble, "\n");
    l->trouble[len] = '\0';
    l->connected = false;
    uv_mutex_unlock(&l->mutex);
}

static void note_connected(struct link *l)
{
    uv_mutex_lock(&l->mutex);
    l->connected = true;
    l->trouble[0] = '\0';
    uv_mutex_unlock(&l->mutex);
}

static bool set_up(PGconn *conn, const struct pg_shared *shared, struct buf *error)
{
    /* In one statement each, so that a pooler that hands out connections by transaction cannot
     * come between; nothing after this depends on the session. */
    PGresult *r = PQexec(conn, shared->sync_commit ? "SELECT 1" : "SET synchronous_commit = off");
    ExecStatusType status = PQresultStatus(r);
    bool ok = status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK;
    if (!ok)
        buf_puts(error, PQerrorMessage(conn));
    PQclear(r);
    return ok;
}

PGconn *link_connect(const struct pg_shared *shared, struct buf *error)
{
    static const char *const keys[] = {"dbname", "fallback_application_name", "connect_timeout",
                                       "target_session_attrs", NULL};
    const char *values[] = {shared->conninfo, "triaged", "5", "read-write", NULL};
    PGconn *conn = PQconnectdbParams(keys, values, 1);
    if (PQstatus(conn) == CONNECTION_OK && set_up(conn, shared, error))
        return conn;
    if (error->len == 0)
        buf_puts(error, PQerrorMessage(conn));
    PQfinish(conn);
    return NULL;
}

static void disconnect(struct link *l, const char *why)
{
    if (l->conn) {
        note_trouble(l, why);
        log_warn("postgres: connection lost", "reason=\"%s\"", log_plain(l->trouble));
        PQfinish(l->conn);
    }
    l->conn = NULL;
}

static bool connect_now(struct link *l)
{
    struct buf error = {0};
    int64_t now_ms = clock_now().mono_ms;
    if (l->conn)
        return true;
    if (now_ms < l->retry_at_ms)
        return false;
    l->conn = link_connect(l->pg->shared, &error);
    if (l->conn) {
        atomic_store(&l->backend, PQbackendPID(l->conn));
        note_connected(l);
        l->backoff_ms = BACKOFF_MS_MIN;
    } else {
        note_trouble(l, buf_cstr(&error));
        l->retry_at_ms = clock_now().mono_ms + l->backoff_ms;
        l->backoff_ms = l->backoff_ms * 2 > BACKOFF_MS_MAX ? BACKOFF_MS_MAX : l->backoff_ms * 2;
    }
    buf_fini(&error);
    return l->conn != NULL;
}

/* Transactions */

enum outcome {
    OUTCOME_OK,
    OUTCOME_LOST,    /* the connection, or its time */
    OUTCOME_AGAIN,   /* met another transaction at the wrong time */
    OUTCOME_STALE,   /* a configuration has changed */
    OUTCOME_TAKEN,   /* its token is stored: it was committed before */
    OUTCOME_REFUSED, /* what should not happen */
};

static enum outcome outcome_of(const PGresult *r, struct job *job)
{
    static const struct {
        const char *state;
        enum outcome outcome;
    } known[] = {
        {"40001", OUTCOME_AGAIN}, {"40P01", OUTCOME_AGAIN}, {"55P03", OUTCOME_AGAIN},
        {"TRCFG", OUTCOME_STALE}, {"23505", OUTCOME_AGAIN}, {"57P01", OUTCOME_LOST},
        {"57P02", OUTCOME_LOST},  {"57P03", OUTCOME_LOST},  {"25006", OUTCOME_LOST},
        {"57014", OUTCOME_LOST},
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

/* Everything up to a sync. The first error decides; what follows it was not run. `keep` gets the
 * result of the statement, or NULL to drop it. */
struct reading {
    struct job *job;
    struct call *call; /* whose answer is next */
    uint32_t before;   /* statements before the first call */
    bool keep;
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
        if (PQstatus(conn) == CONNECTION_BAD) {
            PQclear(r);
            return OUTCOME_LOST;
        }
        if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK)
            keep_result(reading, r);
        else
            PQclear(r);
    }
    return outcome;
}

static bool send_plain(PGconn *conn, const char *sql)
{
    static const struct params none;
    return params_send(conn, sql, &none);
}

static bool send_token(PGconn *conn, const struct job *job)
{
    struct params p = {0};
    param_bytes(&p, WIRE_UUID, job->token, TOKEN_BYTES);
    bool ok = params_send(conn, "SELECT triage.engine_mark($1)", &p);
    params_fini(&p);
    return ok;
}

static enum outcome finish_with(PGconn *conn, struct job *job, const char *sql, int64_t until_ms)
{
    struct reading reading = {.job = job, .before = 1};
    if (!send_plain(conn, sql) || !PQpipelineSync(conn) || !flush_all(conn, until_ms))
        return OUTCOME_LOST;
    return read_answers(conn, &reading, until_ms);
}

/* All but the COMMIT. */
static enum outcome run_calls(PGconn *conn, struct job *job, int64_t until_ms)
{
    struct reading reading = {.job = job, .call = job->calls, .before = job->writes ? 2 : 1};
    bool ok = send_plain(conn, job->writes ? "BEGIN" : "BEGIN READ ONLY");
    if (ok && job->writes)
        ok = send_token(conn, job);
    for (struct call *c = job->calls; ok && c; c = c->next)
        ok = params_send(conn, c->sql, &c->params);
    if (!ok || !PQpipelineSync(conn) || !flush_all(conn, until_ms))
        return OUTCOME_LOST;
    return read_answers(conn, &reading, until_ms);
}

static enum outcome attempt(struct link *l, struct job *job, bool *commit_sent)
{
    int64_t until_ms = clock_now().mono_ms + ANSWER_MS_MAX;
    *commit_sent = false;
    enum outcome outcome = run_calls(l->conn, job, until_ms);
    if (outcome == OUTCOME_LOST)
        return outcome;
    if (outcome != OUTCOME_OK) {
        struct job scratch = *job; /* the reason is the first error's */
        enum outcome end = finish_with(l->conn, &scratch, "ROLLBACK", until_ms);
        return end == OUTCOME_LOST ? end : outcome;
    }
    *commit_sent = true;
    return finish_with(l->conn, job, "COMMIT", until_ms);
}

/* COMMIT was sent and never answered. Storing the token again tells: that fails when it was
 * committed, and waits while it is being. */
static enum outcome resolve(struct link *l, struct job *job)
{
    int64_t until_ms = clock_now().mono_ms + RESOLVE_MS_MAX;
    while (clock_now().mono_ms < until_ms) {
        if (!connect_now(l)) {
            usleep(BACKOFF_MS_MIN * 1000);
            continue;
        }
        PQenterPipelineMode(l->conn);
        struct reading reading = {.job = job, .before = 2};
        enum outcome outcome = OUTCOME_LOST;
        if (send_plain(l->conn, "BEGIN") && send_token(l->conn, job) && PQpipelineSync(l->conn) &&
            flush_all(l->conn, until_ms))
            outcome = read_answers(l->conn, &reading, until_ms);
        if (outcome != OUTCOME_LOST &&
            finish_with(l->conn, job, "ROLLBACK", until_ms) == OUTCOME_LOST)
            outcome = OUTCOME_LOST;
        if (outcome == OUTCOME_TAKEN || outcome == OUTCOME_OK)
            return outcome;
        disconnect(l, PQerrorMessage(l->conn));
    }
    return OUTCOME_LOST;
}

static void pause_before(uint32_t tries)
{
    uint16_t bits;
    random_bytes(&bits, sizeof(bits));
    usleep((useconds_t)(bits % 1000) * (tries < 20 ? tries : 20));
}

/* Runs the job until its fate is known. */
static void run(struct link *l, struct job *job)
{
    static const enum job_fate fates[] = {
        [OUTCOME_OK] = JOB_DONE,     [OUTCOME_TAKEN] = JOB_DONE,   [OUTCOME_STALE] = JOB_STALE,
        [OUTCOME_LOST] = JOB_FAILED, [OUTCOME_AGAIN] = JOB_FAILED, [OUTCOME_REFUSED] = JOB_REFUSED,
    };
    enum outcome outcome = OUTCOME_LOST;
    bool commit_sent = false;
    for (uint32_t tries = 0; tries < RETRY_MAX; tries++) {
        outcome = OUTCOME_LOST;
        if (!connect_now(l))
            break;
        PQenterPipelineMode(l->conn);
        outcome = attempt(l, job, &commit_sent);
        if (outcome == OUTCOME_LOST) {
            disconnect(l, job->error[0] ? job->error : PQerrorMessage(l->conn));
            outcome = commit_sent && job->writes ? resolve(l, job) : outcome;
            if (outcome == OUTCOME_OK)
                continue; /* it was not committed, and never will be: once more */
            break;
        }
        if (outcome != OUTCOME_AGAIN)
            break;
        pause_before(tries + 1);
    }
    job->fate = fates[outcome];
    if (outcome == OUTCOME_REFUSED)
        log_error("postgres: the database refused", "reason=\"%s\"", log_plain(job->error));
}

/* The thread */

static struct job *take_todo(struct link *l)
{
    uv_mutex_lock(&l->mutex);
    while (!l->todo && !l->stopping) {
        if (l->connected) {
            uv_cond_wait(&l->cond, &l->mutex);
            continue;
        }
        uv_cond_timedwait(&l->cond, &l->mutex, (uint64_t)l->backoff_ms * 1000000);
        break; /* without work: try to connect */
    }
    struct job *job = l->todo;
    if (job) {
        l->todo = job->next;
        if (!l->todo)
            l->todo_end = &l->todo;
    }
    uv_mutex_unlock(&l->mutex);
    return job;
}

static void put_done(struct link *l, struct job *job)
{
    job->next = NULL;
    uv_mutex_lock(&l->mutex);
    *l->done_end = job;
    l->done_end = &job->next;
    uv_mutex_unlock(&l->mutex);
    pg_wake(l->pg);
}

static void thread_main(void *arg)
{
    struct link *l = arg;
    for (;;) {
        struct job *job = take_todo(l);
        if (job) {
            run(l, job);
            put_done(l, job);
            continue;
        }
        uv_mutex_lock(&l->mutex);
        bool stopping = l->stopping;
        uv_mutex_unlock(&l->mutex);
        if (stopping)
            break;
        if (connect_now(l)) {
            log_info("postgres: connected again", "shard=%u", l->pg->shard);
            pg_wake(l->pg); /* those who wait may go on */
        }
    }
    PQfinish(l->conn);
    l->conn = NULL;
}

struct link *link_open(struct pg *pg, struct buf *error)
{
    struct link *l = mem_zalloc(sizeof(*l));
    l->pg = pg;
    l->todo_end = &l->todo;
    l->done_end = &l->done;
    l->backoff_ms = BACKOFF_MS_MIN;
    l->conn = link_connect(pg->shared, error);
    if (!l->conn) {
        free(l);
        return NULL;
    }
    l->connected = true;
    atomic_store(&l->backend, PQbackendPID(l->conn));
    uv_mutex_init(&l->mutex);
    uv_cond_init(&l->cond);
    uv_thread_create(&l->thread, thread_main, l);
    return l;
}

void link_close(struct link *l)
{
    uv_mutex_lock(&l->mutex);
    l->stopping = true;
    uv_cond_signal(&l->cond);
    uv_mutex_unlock(&l->mutex);
    uv_thread_join(&l->thread);
    uv_mutex_destroy(&l->mutex);
    uv_cond_destroy(&l->cond);
    free(l);
}

bool link_idle(const struct link *l)
{
    return !l->busy;
}

void link_put(struct link *l, struct job *job)
{
    job->next = NULL;
    l->busy = true;
    uv_mutex_lock(&l->mutex);
    *l->todo_end = job;
    l->todo_end = &job->next;
    uv_cond_signal(&l->cond);
    uv_mutex_unlock(&l->mutex);
}

struct job *link_take(struct link *l)
{
    uv_mutex_lock(&l->mutex);
    struct job *done = l->done;
    l->done = NULL;
    l->done_end = &l->done;
    uv_mutex_unlock(&l->mutex);
    l->busy = l->busy && !done;
    return done;
}

int link_backend(const struct link *l)
{
    return atomic_load(&((struct link *)l)->backend);
}

bool link_healthy(struct link *l, struct buf *why)
{
    uv_mutex_lock(&l->mutex);
    bool ok = l->connected;
    buf_puts(why, ok ? "connected" : l->trouble);
    uv_mutex_unlock(&l->mutex);
    return ok;
}
