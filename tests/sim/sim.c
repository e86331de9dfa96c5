#include "sim/sim.h"
#include "core/age.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* splitmix64. */
static uint64_t next_random(struct sim *s)
{
    uint64_t z = s->random += 0x9E3779B97F4A7C15ULL;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ z >> 27) * 0x94D049BB133111EBULL;
    return z ^ z >> 31;
}

uint32_t sim_pick(struct sim *s, uint32_t n)
{
    return (uint32_t)((next_random(s) >> 32) * n >> 32);
}

bool sim_chance(struct sim *s, uint32_t percent)
{
    return sim_pick(s, 100) < percent;
}

uint64_t sim_hash(const void *data, size_t len)
{
    const unsigned char *at = data;
    uint64_t hash = 14695981039346656037ULL ^ len;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ at[i]) * 1099511628211ULL;
    return hash;
}

void sim_note(struct sim *s, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(s->log[s->log_count++ % SIM_LOG_LINES], SIM_LOG_LINE, fmt, args);
    va_end(args);
}

void sim_report(const struct sim *s)
{
    printf("# the last ops:\n");
    uint64_t from = s->log_count > SIM_LOG_LINES ? s->log_count - SIM_LOG_LINES : 0;
    for (uint64_t i = from; i < s->log_count; i++)
        printf("#   %" PRIu64 " %s\n", i, s->log[i % SIM_LOG_LINES]);
    printf("# %s%s%slittle memory: %s\n", s->deep ? "deep, " : "", s->reopens ? "reopens, " : "",
           s->jumps ? "the wall clock goes back, " : "", s->rig.memory_limit ? "yes" : "no");
    printf("# replay: test_sim_sim --engine %s --seed %" PRIu64 " --steps %" PRIu64 "\n", s->engine,
           s->seed, s->steps);
    fflush(stdout);
}

void sim_fail(struct sim *s, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    printf("# broken: ");
    vprintf(fmt, args);
    printf("\n");
    va_end(args);
    sim_report(s);
    printf("not ok 1 - %s seed %" PRIu64 "\n", s->engine, s->seed);
    fflush(stdout);
    _Exit(1);
}

/* Configuration */

static void vary_rules(struct sim *s, struct queue_config *c)
{
    static const enum backoff backoffs[] = {BACKOFF_NONE, BACKOFF_NONE, BACKOFF_FIXED,
                                            BACKOFF_EXPONENTIAL};
    c->visibility_ms = 1 + sim_pick(s, 30000);
    c->max_attempts = 1 + sim_pick(s, 5);
    c->backoff = backoffs[sim_pick(s, 4)];
    c->backoff_base_ms = 1 + sim_pick(s, 2000);
    c->backoff_max_ms = c->backoff_base_ms + sim_pick(s, 10000);
    c->ttl_ms = sim_chance(s, s->deep ? 80 : 50) ? 0 : 1 + (int64_t)sim_pick(s, 60000);
    c->expired = sim_chance(s, 50) ? EXPIRED_DROP : EXPIRED_DEAD;
    c->max_depth = sim_chance(s, 70) ? 0 : 1 + sim_pick(s, s->live_max / 2);
    c->max_bytes = sim_chance(s, 70) ? 0 : 1 + sim_pick(s, s->live_max * s->payload_max / 2);
    c->default_rank = (uint8_t)sim_pick(s, c->level_count);
    c->policy = sim_chance(s, 50) ? POLICY_STRICT : POLICY_WEIGHTED;
    c->max_in_flight = sim_chance(s, s->deep ? 95 : 75) ? 0 : 1 + sim_pick(s, 30);
}

/* What orders the levels, changed at random: most levels stay as they are. Many queues do without
 * one thing or another, which takes other ways through the engines. */
static void vary_order(struct sim *s, struct queue_config *c)
{
    static const double weights[] = {0.5, 1, 1, 2, 2.5, 3, 4, 8, 0.125};
    bool ages = sim_chance(s, 60), promises = sim_chance(s, 60);
    uint32_t unlimited = s->deep ? 95 : sim_chance(s, 25) ? 20 : 70;
    for (int i = 0; i < c->level_count; i++) {
        struct level *l = &c->levels[i];
        if (sim_chance(s, 30))
            l->weight = weights[sim_pick(s, sizeof(weights) / sizeof(weights[0]))];
        if (sim_chance(s, 30))
            l->age_ms = sim_chance(s, 50) ? 0 : 1 + (int64_t)sim_pick(s, 20000);
        if (sim_chance(s, 30))
            l->max_wait_ms = sim_chance(s, 70) ? 0 : 1 + (int64_t)sim_pick(s, 30000);
        if (sim_chance(s, 30))
            l->max_in_flight = sim_chance(s, unlimited) ? 0 : 1 + sim_pick(s, 8);
        l->age_ms = ages ? l->age_ms : 0;
        l->max_wait_ms = promises ? l->max_wait_ms : 0;
    }
}

static void vary_pause(struct sim *s, struct queue_config *c)
{
    bool paused = sim_chance(s, 30);
    if (paused == c->paused || (paused && c->pause_count == PAUSES_MAX))
        return;
    age_pause(c, paused, s->rig.now.wall_ms);
}

/* A store may forget history by the clock alone, and remember it when the clock goes back. */
static int64_t any_history(struct sim *s)
{
    bool certain = !s->jumps || !rig_durable(&s->rig);
    return !certain || sim_chance(s, 70) ? 0 : 1 + (int64_t)sim_pick(s, 5000);
}

static struct queue_config any_config(struct sim *s)
{
    struct queue_config c = rig_config(1 + sim_pick(s, s->deep ? 2 : LEVEL_COUNT_MAX));
    c.dedup_scope = sim_chance(s, 50) ? DEDUP_WINDOW : DEDUP_LIVE;
    c.dedup_window_ms = 1 + sim_pick(s, 30000);
    c.history_ms = any_history(s);
    vary_rules(s, &c);
    vary_order(s, &c);
    return c;
}

static void adopt(struct sim *s, struct sim_queue *q)
{
    sim_check(s, q->real->id > s->queue_id_high, "queue number %u is used again", q->real->id);
    s->queue_id_high = q->real->id;
    model_init(&q->model, q->real, &s->rig.now);
    policy_init(&q->policy, &q->real->config);
    q->draining = false;
    q->met = true;
}

static void vary_levels(struct sim *s, struct queue_config *c)
{
    uint32_t a = sim_pick(s, c->level_count), b = sim_pick(s, c->level_count);
    struct level swapped = c->levels[a];
    c->levels[a] = c->levels[b];
    c->levels[b] = swapped;
    if (c->level_count > 1 && sim_chance(s, 30))
        c->level_count--;
    else if (c->level_count < LEVEL_COUNT_MAX && sim_chance(s, 30)) {
        struct level *fresh = &c->levels[c->level_count++];
        *fresh = (struct level){.weight = 1};
        snprintf(fresh->name, LEVEL_NAME_MAX, "N%" PRIu64, s->tag++);
    }
    c->default_rank = 0;
}

/* A level that `next` lacks while it holds messages; pending ones only when `strictly`. */
static bool loses_level(const struct model_queue *q, const struct queue_config *next, bool strictly)
{
    for (uint32_t i = 0; i < q->count; i++) {
        const struct model_message *m = &q->messages[i];
        int rank = levels_rank_of_slot(&q->config, m->slot);
        bool kept = rank < 0; /* a done one's level may have gone before */
        for (int k = 0; !kept && k < next->level_count; k++)
            kept = strcmp(next->levels[k].name, q->config.levels[rank].name) == 0;
        if (!kept && (!strictly || m->state != MESSAGE_DONE))
            return true;
    }
    return false;
}

/* The tokens of a weighted policy are forgotten with its configuration, and by a restart. */
static void start_over(struct sim_queue *q)
{
    policy_init(&q->policy, &q->real->config);
    model_refill(&q->model);
}

static void configure(struct sim *s, struct sim_queue *q)
{
    struct queue_config c = q->model.config;
    vary_rules(s, &c);
    vary_order(s, &c);
    vary_pause(s, &c);
    if (sim_chance(s, 30))
        c.history_ms = any_history(s);
    if (sim_chance(s, 60))
        vary_levels(s, &c);
    sim_note(s, "%s configure %u levels, attempts %u, expired %d, history %" PRId64, q->name,
             c.level_count, c.max_attempts, c.expired, c.history_ms);
    struct engine_op op = {.verb = ENGINE_QUEUE_SET, .queue = q->real};
    op.set.name = q->name;
    op.set.config = &c;
    rig_run_one(&s->rig, &op);
    if (op.status == STATUS_LEVEL_IN_USE) {
        sim_check(s, loses_level(&q->model, &c, false), "no level in use would vanish");
        return;
    }
    q->met = true;
    sim_check(s, op.status == STATUS_OK, "configure: %s", status_name(op.status));
    sim_check(s, !loses_level(&q->model, &c, true), "a level in use vanished");
    if (c.paused != q->model.config.paused)
        model_pause(&q->model, c.paused, s->rig.now.wall_ms);
    model_keep(&q->model, c.history_ms, s->rig.now);
    q->model.config = q->real->config;
    start_over(q);
}

static void recreate(struct sim *s, struct sim_queue *q)
{
    sim_note(s, "%s delete and create", q->name);
    struct engine_op op = {.verb = ENGINE_QUEUE_DELETE, .queue = q->real};
    rig_run_one(&s->rig, &op);
    sim_check(s, op.status == STATUS_OK, "delete: %s", status_name(op.status));
    sim_check(s, !engine_queue_find(s->rig.engine, q->name, strlen(q->name)), "still there");
    struct queue_config c = any_config(s);
    q->real = rig_queue(&s->rig, q->name, &c);
    adopt(s, q);
}

/* Time */

static void pass_time(struct sim *s)
{
    static const uint32_t spans[] = {1, 10, 10, 100, 1000, 40000};
    int64_t ms = sim_pick(s, spans[sim_pick(s, 6)] + 1);
    int64_t due = engine_next_due_ms(s->rig.engine, s->rig.now);
    if (due > 0 && due < 100000 && sim_chance(s, 30)) /* to the very moment, and just before */
        ms = due - sim_pick(s, 2);
    s->rig.now.wall_ms += ms;
    s->rig.now.mono_ms += ms;
    int64_t leap_ms = sim_chance(s, 2) ? sim_pick(s, 3600000) : 0;
    s->rig.now.wall_ms += leap_ms;
    s->rig.now.mono_ms += s->shared ? leap_ms : 0;
    if (s->jumps && sim_chance(s, 2))
        s->rig.now.wall_ms -= sim_pick(s, sim_chance(s, 50) ? 1500 : 3600000);
    if (s->rig.now.wall_ms > s->wall_high_ms)
        s->wall_high_ms = s->rig.now.wall_ms;
    s->waited = true;
    sim_note(s, "time passes: wall %" PRId64 " mono %" PRId64, s->rig.now.wall_ms,
             s->rig.now.mono_ms);
}

static void reopen(struct sim *s)
{
    sim_note(s, "close and open");
    s->refills += rig_counter(&s->rig, "refills_total");
    rig_reopen(&s->rig);
    for (uint32_t i = 0; i < s->queue_count; i++) {
        struct sim_queue *q = &s->queues[i];
        q->real = engine_queue_find(s->rig.engine, q->name, strlen(q->name));
        sim_check(s, q->real, "%s is gone after a restart", q->name);
        sim_check(s, s->shared || q->real->next_seq >= q->model.next_seq, "%s: next seq went back",
                  q->name);
        q->model.next_seq = s->shared ? q->model.next_seq : q->real->next_seq;
        q->met = !s->shared;
        start_over(q);
    }
}

/* Checks that hold after every step */

static void check_lane(struct sim *s, const struct sim_queue *q, int slot,
                       const struct lane_view *want)
{
    const struct lane_view *have = &q->real->view.lanes[slot];
    sim_check(s,
              have->ready == want->ready && have->scheduled == want->scheduled &&
                  have->leased == want->leased,
              "%s slot %d: ready %" PRIu64 " scheduled %" PRIu64 " leased %" PRIu64
              ", expected %" PRIu64 " %" PRIu64 " %" PRIu64,
              q->name, slot, have->ready, have->scheduled, have->leased, want->ready,
              want->scheduled, want->leased);
    sim_check(s, have->dead == want->dead, "%s slot %d: dead %" PRIu64 ", expected %" PRIu64,
              q->name, slot, have->dead, want->dead);
    sim_check(s, want->ready == 0 || !s->heads || have->head_ms == want->head_ms,
              "%s slot %d: head %" PRId64 ", expected %" PRId64, q->name, slot, have->head_ms,
              want->head_ms);
}

static void check_totals(struct sim *s, const struct sim_queue *q)
{
    static const char *const names[] = {"enqueued",     "claimed",       "acked",     "nacked",
                                        "released",     "lease_expired", "expired",   "dead",
                                        "deduplicated", "redelivered",   "cancelled", "redriven",
                                        "aged",         "late",          "escalated"};
    uint64_t have[15], want[15];
    _Static_assert(sizeof(have) == sizeof(struct queue_totals), "a total has no name here");
    memcpy(have, &q->real->view.totals, sizeof(have));
    memcpy(want, &q->model.totals, sizeof(want));
    for (int i = 0; i < 15; i++)
        sim_check(s, have[i] == want[i], "%s total %s is %" PRIu64 ", expected %" PRIu64, q->name,
                  names[i], have[i], want[i]);
}

static void check_queue(struct sim *s, const struct sim_queue *q)
{
    const struct queue_view *have = &q->real->view;
    struct queue_view want = model_view(&q->model);
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++)
        check_lane(s, q, slot, &want.lanes[slot]);
    sim_check(s,
              have->ready == want.ready && have->scheduled == want.scheduled &&
                  have->leased == want.leased && have->dead == want.dead,
              "%s: ready %" PRIu64 " scheduled %" PRIu64 " leased %" PRIu64 " dead %" PRIu64
              ", expected %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64,
              q->name, have->ready, have->scheduled, have->leased, have->dead, want.ready,
              want.scheduled, want.leased, want.dead);
    sim_check(s, have->bytes == want.bytes, "%s: bytes %" PRIu64 ", expected %" PRIu64, q->name,
              have->bytes, want.bytes);
    check_totals(s, q);
    sim_check(s, model_conserves(have), "%s: messages are not conserved", q->name);
    sim_check(s, s->shared || q->real->next_seq == q->model.next_seq, "%s: next seq", q->name);
    sim_check(s, q->real->next_seq >= q->model.next_seq, "%s: next seq went back", q->name);
}

/* No timer is late: the engine asks for a sweep no later than the model has something due. */
static void check_due(struct sim *s)
{
    int64_t due = engine_next_due_ms(s->rig.engine, s->rig.now);
    for (uint32_t i = 0; i < s->queue_count; i++) {
        int64_t want = model_due_ms(&s->queues[i].model, s->rig.now);
        sim_check(s, due <= want, "next due in %" PRId64 " ms, expected %" PRId64 " at the latest",
                  due, want);
    }
}

/* Between two sweeps an engine may move what is due earlier, when it meets it; the reference does
 * not, and there the time in between is judged too. */
static bool has_to_sweep(struct sim *s)
{
    if (rig_durable(&s->rig))
        return !s->shared || s->waited || sim_chance(s, 50);
    return sim_chance(s, 70);
}

static void sweep(struct sim *s)
{
    rig_sweep(&s->rig, 1 + sim_pick(s, 50));
    for (uint32_t i = 0; i < s->queue_count; i++) {
        model_sweep(&s->queues[i].model, s->rig.now);
        s->queues[i].met = true;
    }
    s->waited = false;
}

static void check_inside(struct sim *s)
{
    for (uint32_t i = 0; i < s->queue_count; i++)
        policy_check(&s->queues[i].policy, &s->queues[i].real->config);
    engine_check(s->rig.engine);
}

static void settle_time(struct sim *s)
{
    bool sweeps = has_to_sweep(s);
    if (sweeps)
        sweep(s);
    s->heads = sweeps || !s->shared;
    for (uint32_t i = 0; i < s->queue_count; i++) {
        if (s->queues[i].met)
            check_queue(s, &s->queues[i]);
    }
    if (sweeps || !s->shared)
        check_due(s);
    check_inside(s);
}

/* Steps */

void sim_step(struct sim *s)
{
    uint32_t what = sim_pick(s, 1000);
    if (what < 150)
        pass_time(s);
    else if (what < 160)
        configure(s, sim_any_queue(s));
    else if (what < 163)
        recreate(s, sim_any_queue(s));
    else if (what < 170)
        sim_list_all(s, sim_any_queue(s));
    else if (what < 180)
        sim_group(s, 1, &sim_purge);
    else if (what < 190)
        sim_position(s, sim_any_queue(s));
    else if (what < 195 && s->reopens)
        reopen(s);
    else
        sim_group(s, sim_chance(s, 75) ? 1 : 2 + sim_pick(s, SIM_GROUP_MAX - 1), NULL);
    settle_time(s);
}

void sim_open(struct sim *s, const char *engine, uint64_t seed, uint64_t steps)
{
    s->seed = seed;
    s->engine = engine;
    s->steps = steps;
    s->random = seed;
    s->queue_id_high = 0;
    s->tag = s->past_count = 0;
    s->log_count = 0;
    bool files = strcmp(engine, "local") == 0, database = strcmp(engine, "postgres") == 0;
    uint64_t memory_limit = files && sim_chance(s, 70) ? 1 : 0;
    s->deep = memory_limit ? sim_chance(s, 70) : database && sim_chance(s, 15);
    bool large = memory_limit || (database && sim_chance(s, 50));
    s->payload_max = large ? SIM_PAYLOAD_MAX : 30;
    s->items_max = s->deep ? SIM_ITEMS : 6;
    s->live_max = s->deep ? 3000 : 200;
    static const enum durability durabilities[] = {DURABILITY_FSYNC, DURABILITY_INTERVAL,
                                                   DURABILITY_OS, DURABILITY_OS, DURABILITY_OS};
    rig_init(&s->rig, &(struct rig_options){.kind = engine,
                                            .durability = durabilities[sim_pick(s, 5)],
                                            .memory_limit = memory_limit,
                                            .asks = files && seed % 2});
    s->shared = engine_has(s->rig.engine, ENGINE_SHARED);
    s->waited = false;
    s->reopens = rig_durable(&s->rig) && sim_chance(s, 80);
    s->jumps = !s->reopens && !s->shared;
    s->wall_high_ms = s->rig.now.wall_ms;
    s->queue_count = s->deep ? 1 : 1 + sim_pick(s, SIM_QUEUES);
    for (uint32_t i = 0; i < s->queue_count; i++) {
        struct sim_queue *q = &s->queues[i];
        snprintf(q->name, sizeof(q->name), "q%u", i);
        struct queue_config c = any_config(s);
        q->real = rig_queue(&s->rig, q->name, &c);
        adopt(s, q);
    }
}

void sim_close(struct sim *s)
{
    s->refills += rig_counter(&s->rig, "refills_total");
    rig_fini(&s->rig);
}
