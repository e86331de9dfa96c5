#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"
#include "engine/postgres/impl.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RETRY_MAX      20 /* tries of a job that collides with another transaction */
#define CLASHES_MAX    3  /* tries when a unique key collides: perhaps an index was added */
#define LOST_MAX       3  /* connections that one job may lose: perhaps it is the cause */
#define BURIALS_MAX    16 /* connections that are being given up at the same time */
#define BACKOFF_MS_MIN 50
#define BACKOFF_MS_MAX 500

struct link {
    uint32_t tag; /* LINK_TAG */
    struct pg *pg;
    uv_thread_t thread;
    uv_mutex_t mutex; /* guards the fields down to `trouble` */
    uv_cond_t cond;
    struct pg_job *todo, *done; /* at most one of the two is set */
    bool stopping;
    bool connected;
    char trouble[256];

    bool busy; /* the shard's own: whether it has given the link a job */
    _Atomic int backend;
    struct session session; /* the thread's own */
    int64_t backoff_ms;
    int64_t retry_at_ms; /* monotonic: no try before then */
    int64_t away_ms;     /* monotonic: since when the database cannot be reached; 0: it can */
};

#define LINK_TAG TAG('l', 'i', 'n', 'k')

static struct link *link_of(void *arg)
{
    struct link *l = (struct link *)arg;
    tag_check(l->tag, LINK_TAG);
    return l;
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

PGconn *link_connect(const char *conninfo, struct buf *error)
{
    /* Parameters before the connection string are defaults, which it may change. Those after it are
     * fixed. A peer that vanishes silently is noticed within half a minute. */
    static const char *const keys[] = {
        "connect_timeout", "keepalives_idle",           "keepalives_interval",  "keepalives_count",
        "dbname",          "fallback_application_name", "target_session_attrs", NULL};
    const char *values[] = {"5", "10", "5", "3", conninfo, "triaged", "read-write", NULL};
    PGconn *conn = PQconnectdbParams(keys, values, 1);
    if (PQstatus(conn) == CONNECTION_OK) {
        transaction_quiet(conn);
        return conn;
    }
    buf_puts(error, PQerrorMessage(conn));
    PQfinish(conn);
    return NULL;
}

static _Atomic int burials;

static void *bury(void *arg)
{
    PGconn *conn = arg;
    char why[256];
    PGcancel *cancel = PQgetCancel(conn);
    if (cancel)
        PQcancel(cancel, why, sizeof(why));
    PQfreeCancel(cancel);
    PQfinish(conn);
    atomic_fetch_sub(&burials, 1);
    return NULL;
}

/* Cancels what runs on the connection, then closes it. The order matters: a pooler knows the
 * statement by its connection. To cancel is to make another connection, which may take long, so a
 * thread of its own does it. When there are too many such threads, the connection is only closed,
 * and statement_timeout ends the statement. */
static void give_up(PGconn *conn)
{
    pthread_t thread;
    bool room = atomic_fetch_add(&burials, 1) < BURIALS_MAX;
    if (room && pthread_create(&thread, NULL, bury, conn) == 0) {
        pthread_detach(thread);
        return;
    }
    atomic_fetch_sub(&burials, 1);
    PQfinish(conn);
}

/* `running`: a statement may be running whose end nobody needs to know. */
static void disconnect(struct link *l, const char *why, bool running)
{
    PGconn *conn = l->session.conn;
    if (conn) {
        note_trouble(l, why);
        log_warn("postgres: connection lost", "reason=\"%s\"", log_plain(l->trouble));
        if (running && PQstatus(conn) == CONNECTION_OK)
            give_up(conn);
        else
            PQfinish(conn);
    }
    l->session.conn = NULL;
}

static void adopt(struct link *l, PGconn *conn)
{
    assert(!l->session.conn);
    transaction_start(&l->session, conn, clock_now().mono_ms + l->pg->shared->timeout_ms);
    atomic_store(&l->backend, PQbackendPID(conn));
}

/* Whether the schema is installed. If the database was away when the server started, it is
 * installed here. */
static bool prepared(struct pg_shared *shared, PGconn *conn, struct buf *error)
{
    if (!atomic_load(&shared->prepared))
        atomic_store(&shared->prepared, schema_install(conn, error) == STATUS_OK);
    return atomic_load(&shared->prepared);
}

static bool connect_now(struct link *l)
{
    struct buf error = {0};
    int64_t now_ms = clock_now().mono_ms;
    if (l->session.conn)
        return true;
    if (now_ms < l->retry_at_ms)
        return false;
    PGconn *conn = link_connect(l->pg->shared->conninfo, &error);
    if (conn && !prepared(l->pg->shared, conn, &error)) {
        PQfinish(conn);
        conn = NULL;
    }
    if (conn) {
        adopt(l, conn);
        note_connected(l);
        l->backoff_ms = BACKOFF_MS_MIN;
        l->away_ms = 0;
    } else {
        l->away_ms = l->away_ms ? l->away_ms : now_ms;
        note_trouble(l, buf_cstr(&error));
        if (l->backoff_ms == BACKOFF_MS_MIN) /* only the first failure is logged */
            log_warn("postgres: cannot connect", "reason=\"%s\"", log_plain(l->trouble));
        l->retry_at_ms = clock_now().mono_ms + l->backoff_ms;
        l->backoff_ms = l->backoff_ms * 2 > BACKOFF_MS_MAX ? BACKOFF_MS_MAX : l->backoff_ms * 2;
    }
    buf_fini(&error);
    return l->session.conn != NULL;
}

/* Jobs */

/* Waits until `until_ms` for a database that is away. But if it has been away for longer than a
 * group may take, jobs are refused at once until it is back. */
static bool connect_until(struct link *l, int64_t until_ms)
{
    while (!connect_now(l)) {
        int64_t now_ms = clock_now().mono_ms;
        if (now_ms >= until_ms || now_ms - l->away_ms >= l->pg->shared->timeout_ms)
            return false;
        usleep(BACKOFF_MS_MIN * 1000);
    }
    return true;
}

static const char *reason_of(const struct link *l, const struct pg_job *job)
{
    return job->error[0] ? job->error : PQerrorMessage(l->session.conn);
}

/* Finds out what became of a COMMIT that had no reliable answer. TAKEN, OK or LOST: see
 * transaction_ask(). */
static enum outcome resolve(struct link *l, struct pg_job *job)
{
    const struct pg_shared *shared = l->pg->shared;
    int64_t until_ms = clock_now().mono_ms + shared->timeout_ms;
    while (clock_now().mono_ms < until_ms && connect_until(l, until_ms)) {
        enum outcome outcome = transaction_ask(&l->session, shared, job, until_ms);
        if (outcome == OUTCOME_TAKEN || outcome == OUTCOME_OK)
            return outcome;
        disconnect(l, reason_of(l, job), false);
    }
    return OUTCOME_LOST;
}

static void pause_before(uint32_t tries)
{
    uint16_t bits;
    random_bytes(&bits, sizeof(bits));
    usleep((useconds_t)(bits % 1000) * (tries < 20 ? tries : 20));
}

/* One try. AGAIN: the transaction was not committed, and never will be. */
static enum outcome run_once(struct link *l, struct pg_job *job)
{
    const struct pg_shared *shared = l->pg->shared;
    bool commit_sent = false;
    assert(l->session.conn);
    enum outcome outcome = transaction_run(&l->session, shared, job, job->until_ms, &commit_sent);
    bool may_be_done = commit_sent && job->writes;
    if (outcome == OUTCOME_LOST)
        disconnect(l, reason_of(l, job), !may_be_done);
    if (outcome != OUTCOME_TAKEN && !(outcome == OUTCOME_LOST && may_be_done))
        return outcome == OUTCOME_LOST ? OUTCOME_UNDONE : outcome;
    enum outcome found = resolve(l, job);
    return found == OUTCOME_TAKEN ? OUTCOME_OK : found == OUTCOME_OK ? OUTCOME_AGAIN : found;
}

/* Runs the job until it is known what became of it. When the connection is lost before COMMIT, the
 * job is tried again as soon as the database is back, if it has time left. A job that no request
 * waits for is not tried again: the next sweep does its work. */
static enum outcome run_until_known(struct link *l, struct pg_job *job)
{
    enum outcome outcome = OUTCOME_LOST;
    uint32_t lost = 0;
    if (job->until_ms == 0)
        job->until_ms = clock_now().mono_ms + l->pg->shared->timeout_ms;
    for (uint32_t tries = 1; tries <= RETRY_MAX && clock_now().mono_ms < job->until_ms; tries++) {
        job->error[0] = '\0';
        job->refused = NULL;
        if (!connect_until(l, job_is_asked_for(job) ? job->until_ms : 0))
            return OUTCOME_LOST;
        outcome = run_once(l, job);
        if (outcome == OUTCOME_AGAIN && job->refused && tries >= CLASHES_MAX)
            outcome = OUTCOME_REFUSED; /* its values collide every time */
        if (outcome == OUTCOME_UNDONE && ++lost < LOST_MAX)
            random_bytes(job->token, sizeof(job->token)); /* the lost try may hold the old one */
        else if (outcome != OUTCOME_AGAIN)
            break;
        pause_before(tries);
    }
    return outcome;
}

static void run(struct link *l, struct pg_job *job)
{
    static const enum job_fate fates[] = {
        [OUTCOME_OK] = JOB_DONE,       [OUTCOME_STALE] = JOB_STALE,
        [OUTCOME_LOST] = JOB_FAILED,   [OUTCOME_AGAIN] = JOB_FAILED,
        [OUTCOME_LATE] = JOB_FAILED,   [OUTCOME_REFUSED] = JOB_REFUSED,
        [OUTCOME_UNDONE] = JOB_FAILED, [OUTCOME_FORGOT] = JOB_FAILED,
    };
    enum outcome outcome = run_until_known(l, job);
    assert(outcome != OUTCOME_TAKEN); /* run_once() has resolved that */
    job->fate = fates[outcome];
    /* Otherwise it is still to be found which op is refused. */
    bool known = !job->refused || job->refused->op_count <= 1;
    if (outcome == OUTCOME_REFUSED && known)
        log_error("postgres: the database refused", "reason=\"%s\"", log_plain(job->error));
    if (outcome == OUTCOME_LATE || outcome == OUTCOME_AGAIN)
        log_warn("postgres: gave up, nothing was changed", "reason=\"%s\"", log_plain(job->error));
}

/* The thread */

static struct pg_job *take_todo(struct link *l)
{
    uv_mutex_lock(&l->mutex);
    while (!l->todo && !l->stopping) {
        if (l->connected) {
            uv_cond_wait(&l->cond, &l->mutex);
            continue;
        }
        uv_cond_timedwait(&l->cond, &l->mutex, (uint64_t)l->backoff_ms * 1000000);
        break; /* no job: time to try to connect */
    }
    struct pg_job *job = l->todo;
    assert(!job || !l->done);
    l->todo = NULL;
    uv_mutex_unlock(&l->mutex);
    return job;
}

static void put_done(struct link *l, struct pg_job *job)
{
    uv_mutex_lock(&l->mutex);
    assert(!l->todo);
    assert(!l->done);
    l->done = job;
    uv_mutex_unlock(&l->mutex);
    pg_wake(l->pg);
}

static void thread_main(void *arg)
{
    struct link *l = link_of(arg);
    for (;;) {
        struct pg_job *job = take_todo(l);
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
            pg_wake(l->pg); /* those that wait for the database may go on */
        }
    }
    PQfinish(l->session.conn);
    l->session.conn = NULL;
}

struct link *link_open(struct pg *pg, struct buf *error)
{
    struct link *l = mem_zalloc(sizeof(*l));
    l->tag = LINK_TAG;
    l->pg = pg;
    l->backoff_ms = BACKOFF_MS_MIN;
    bool waits = !atomic_load(&pg->shared->prepared);
    PGconn *conn = waits ? NULL : link_connect(pg->shared->conninfo, error);
    if (!conn && !waits) {
        free(l);
        return NULL;
    }
    if (conn)
        adopt(l, conn);
    l->connected = conn != NULL;
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
    tag_end(&l->tag, LINK_TAG);
    free(l);
}

bool link_idle(const struct link *l)
{
    return !l->busy;
}

void link_put(struct link *l, struct pg_job *job)
{
    assert(!l->busy);
    l->busy = true;
    uv_mutex_lock(&l->mutex);
    assert(!l->stopping);
    assert(!l->todo);
    assert(!l->done);
    l->todo = job;
    uv_cond_signal(&l->cond);
    uv_mutex_unlock(&l->mutex);
}

struct pg_job *link_take(struct link *l)
{
    uv_mutex_lock(&l->mutex);
    struct pg_job *done = l->done;
    l->done = NULL;
    uv_mutex_unlock(&l->mutex);
    assert(!done || l->busy);
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
