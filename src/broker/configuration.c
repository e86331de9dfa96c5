/* A queue gets another configuration, from a client or from another process. */
#include "broker/shard.h"
#include "core/age.h"

#include <stdio.h>

void configuration_follow(struct dispatcher *d)
{
    assert(d->state == DISPATCHER_OPEN);
    if (d->version == d->queue->version)
        return;
    d->version = d->queue->version;
    level_times_follow(d);
    dispatch_reconfigured(d);
    alerts_watch(d);
}

enum status configuration_edit(struct shard *s, struct request *r, struct queue_config *config,
                               bool is_new)
{
    bool was_paused = config->paused;
    assert(r->kind == REQUEST_CONFIGURE);
    assert(r->configure.edit);
    r->configure.keeps_used = false;
    enum status status = r->configure.edit(r, config, is_new);
    bool paused = config->paused;
    config->paused = was_paused;
    age_pause(config, paused, s->now.wall_ms);
    return status;
}

/* Makes the change again, on top of the configuration that the queue has now. */
static void make_anew(struct request *r, uint32_t stay)
{
    assert(r->kind == REQUEST_CONFIGURE);
    work_free(r->shard, r);
    r->configure.stay = stay;
    if (r->dispatcher->state == DISPATCHER_OPEN)
        configuration_change(r->dispatcher, r);
    else
        request_conclude(r->shard, r, STATUS_QUEUE_NOT_FOUND);
}

static void tell_level(struct request *r, const char *level, const char *schedule)
{
    snprintf(r->field, sizeof(r->field), "/levels");
    if (schedule[0])
        snprintf(r->detail, sizeof(r->detail),
                 "Schedule \"%s\" puts its messages at level \"%s\": keep the level, set the "
                 "schedule with another priority, or add \"drop_levels\": \"empty\", which leaves "
                 "it until no schedule names it.",
                 schedule, level);
    else
        snprintf(r->detail, sizeof(r->detail),
                 "Level \"%s\" still holds messages: keep it, drain it first, or add "
                 "\"drop_levels\": \"empty\", which leaves it until it is empty.",
                 level);
}

/* The change would drop a level that is in use. Returns true when the change is made again and
 * keeps that level. */
static bool level_stays(struct request *r, const struct engine_op *op)
{
    const char *name = op->set.level_name;
    const struct queue_config *config = &r->dispatcher->queue->config;
    int rank = levels_rank_of_name(config, name);
    uint32_t bit = rank >= 0 ? 1U << config->levels[rank].slot : 0;
    if (r->configure.keeps_used && bit & ~r->configure.stay) {
        make_anew(r, r->configure.stay | bit);
        return true;
    }
    tell_level(r, name, op->set.schedule_name);
    return false;
}

static void configure_done(struct engine_op *op)
{
    struct request *r = request_of_op(op);
    bool open = r->dispatcher->state == DISPATCHER_OPEN;
    assert(op == &work_of(r, WORK_CONFIGURATION)->own);
    if (op->outdated) {
        make_anew(r, 0);
        return;
    }
    if (op->status == STATUS_LEVEL_IN_USE && open && level_stays(r, op))
        return;
    if (!op->status && open)
        configuration_follow(r->dispatcher);
    request_conclude(r->shard, r, op->status);
}

static void configure_surely(struct dispatcher *d, struct request *r);

/* A refusal counts only when the configuration is fresh. Another process may have changed it, so
 * with a shared engine the view is refreshed first, and the change is tried again. */
static void configure_now(struct dispatcher *d, struct request *r, bool sure)
{
    struct shard *s = d->shard;
    assert(r->dispatcher == d);
    assert(d->state == DISPATCHER_OPEN);
    struct work *w = work_new(s, r, WORK_CONFIGURATION);
    w->configuration.config = d->queue->config;
    enum status status = configuration_edit(s, r, &w->configuration.config, false);
    if (status && !sure && engine_has(s->engine, ENGINE_SHARED)) {
        work_free(s, r);
        view_refresh(d, r, configure_surely);
        return;
    }
    if (status) {
        request_finish(s, r, status);
        return;
    }
    w->own = (struct engine_op){
        .verb = ENGINE_QUEUE_SET, .queue = d->queue, .done = configure_done, .user = r};
    w->own.set.config = &w->configuration.config;
    w->own.set.dry = r->configure.dry_run;
    w->configuration.schedule_name[0] = '\0';
    w->own.set.schedule_name = w->configuration.schedule_name;
    shard_submit(s, &w->own);
    configuration_follow(d); /* an engine with a live view has it by now */
}

static void configure_surely(struct dispatcher *d, struct request *r)
{
    work_free(d->shard, r);
    configure_now(d, r, true);
}

void configuration_change(struct dispatcher *d, struct request *r)
{
    configure_now(d, r, false);
}
