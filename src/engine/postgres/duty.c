/* The duty to speak for all servers on the database. One server has it, and renews it with a sweep
 * every DUTY_ASK_MS. It counts its time from before it asked. So it stops speaking before the
 * database gives the duty to another server. */
#include "base/log.h"
#include "engine/postgres/impl.h"

#include <assert.h>

#define DUTY_MS     5000
#define DUTY_ASK_MS 1000

static_assert(DUTY_MS + DUTY_ASK_MS < ENGINE_SPEAKER_MS, "the next one asks in time");

/* Logs a change, so that a takeover shows in the logs of both servers. */
static void duty_tell(struct pg *pg, bool ours)
{
    if (ours != pg->duty_told)
        log_info(ours ? "sends alerts" : "sends alerts no more", "engine=postgres");
    pg->duty_told = ours;
}

void duty_ask(struct pg *pg, struct pg_job *job)
{
    bool early = pg->duty_mono_ms > 0 && job->now.mono_ms - pg->duty_mono_ms < DUTY_ASK_MS;
    if (pg->shard != 0 || pg->shared->invented_time || early)
        return;
    pg->duty_mono_ms = job->now.mono_ms;
    if (!duty_speaks(pg->shared, job->now)) /* its time ran out before an answer came */
        duty_tell(pg, false);
    struct pg_call *c =
        call_add(job, CALL_DUTY, NULL, 0, "SELECT triage.engine_duty('alerts', $1, $2)");
    param_bytes(&c->params, WIRE_UUID, pg->shared->node, sizeof(pg->shared->node));
    param_int(&c->params, WIRE_INT8, DUTY_MS);
    job->writes = true;
}

void duty_answer(struct pg *pg, const struct pg_job *job, const struct pg_call *c)
{
    bool ours = PQntuples(c->result) == 1 && cell_int(c->result, 0, 0) != 0;
    atomic_store(&pg->shared->speaks_until_ms, ours ? job->now.mono_ms + DUTY_MS : 0);
    duty_tell(pg, ours);
}

bool duty_speaks(const struct pg_shared *shared, struct instant now)
{
    return shared->invented_time || now.mono_ms < atomic_load(&shared->speaks_until_ms);
}
