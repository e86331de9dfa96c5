#include "simulate/workload.h"

#include "api/config.h"
#include "api/fields.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define TOKENS_MAX 10000
#define SECOND_US  1000000

static const char *const pattern_names[] = {
    [ARRIVALS_POISSON] = "poisson", [ARRIVALS_STEADY] = "steady"};

/* A number of seconds above 0, kept in microseconds. */
static bool take_seconds(struct field *f, double max, int64_t *us)
{
    double seconds;
    if (!json_double(f->value, &seconds) || seconds < 1e-6 || seconds > max)
        return field_refuse(f, "must be a number of seconds, more than 0 and at most %.15g.", max);
    *us = llround(seconds * SECOND_US);
    return true;
}

/* Bursts */

static bool take_every(struct field *f, void *target)
{
    return take_seconds(f, WORKLOAD_SECONDS_MAX, &((struct arrivals *)target)->burst_every_us);
}

static bool take_length(struct field *f, void *target)
{
    return take_seconds(f, WORKLOAD_SECONDS_MAX, &((struct arrivals *)target)->burst_us);
}

static bool take_factor(struct field *f, void *target)
{
    return field_double(f, 0, WORKLOAD_FACTOR_MAX, &((struct arrivals *)target)->burst_factor);
}

static bool take_bursts(struct field *f, void *target)
{
    static const struct field_spec specs[] = {
        FIELD("every_seconds", take_every),
        FIELD("length_seconds", take_length),
        FIELD("factor", take_factor),
    };
    static const struct field_table table = FIELD_TABLE(specs);
    struct arrivals *a = target;
    char base[sizeof(f->problem->field)];
    struct problem place;
    problem_set_field(&place, f->base, "bursts", 6);
    memcpy(base, place.field, sizeof(base));
    a->burst_factor = -1;
    if (!fields_object(f->doc, f->at, base, &table, a, f->problem))
        return false;
    if (a->burst_every_us == 0 || a->burst_us == 0 || a->burst_factor < 0)
        return field_refuse(f, "needs every_seconds, length_seconds and factor.");
    return a->burst_us < a->burst_every_us ||
           field_refuse(f, "must have a length_seconds below every_seconds.");
}

/* Arrivals */

static bool take_rate(struct field *f, void *target)
{
    return field_double(f, 0, WORKLOAD_RATE_MAX, &((struct arrivals *)target)->per_second);
}

static bool take_service(struct field *f, void *target)
{
    return take_seconds(f, LEASE_SECONDS_MAX, &((struct arrivals *)target)->service_us);
}

static bool take_pattern(struct field *f, void *target)
{
    int choice;
    if (!field_choice(f, pattern_names, 2, &choice))
        return false;
    ((struct arrivals *)target)->pattern = (enum arrival_pattern)choice;
    return true;
}

static bool arrivals_take(struct field *f, const char *base, struct arrivals *a)
{
    static const struct field_spec specs[] = {
        FIELD("per_second", take_rate),
        FIELD("service_seconds", take_service),
        FIELD("pattern", take_pattern),
        FIELD("bursts", take_bursts),
    };
    static const struct field_table table = FIELD_TABLE(specs);
    *a = (struct arrivals){.given = true, .per_second = -1};
    if (!fields_object(f->doc, f->at, base, &table, a, f->problem))
        return false;
    return (a->per_second >= 0 && a->service_us > 0) ||
           field_refuse(f, "needs per_second and service_seconds.");
}

/* The level that a member's key names, by name or by number; -1 with the problem set. */
static int level_of_key(struct field *f, const struct queue_config *queue)
{
    const struct json_token *t = f->value;
    struct priority_ref ref = {.kind = PRIORITY_NAME};
    int rank = -1;
    if (t->key_len > 0 && t->key_len <= LEVEL_NAME_MAX) {
        memcpy(ref.name, t->key, t->key_len);
        rank = levels_resolve(queue, &ref);
    }
    if (rank < 0 && t->key_len < 12 && number_looks(t->key, t->key_len)) {
        ref = (struct priority_ref){.kind = PRIORITY_NUMBER, .number = atoll(ref.name)};
        rank = levels_resolve(queue, &ref);
    }
    if (rank >= 0)
        return rank;
    char known[300] = "";
    size_t at = 0;
    for (int i = 0; i < queue->level_count && at < sizeof(known); i++)
        at += (size_t)snprintf(known + at, sizeof(known) - at, "%s%s", i ? ", " : "",
                               queue->levels[i].name);
    problem_set_field(f->problem, f->base, t->key, t->key_len);
    problem_set(f->problem, STATUS_UNKNOWN_PRIORITY, "The queue has no such level; it has %s.",
                known);
    return -1;
}

/* Calls `take` for each member of the object, which are named by levels. */
typedef bool level_take(struct field *f, struct arrivals *a);

static bool take_by_level(struct field *f, struct workload *w, level_take *take)
{
    char base[24];
    snprintf(base, sizeof(base), "/%.*s", (int)f->value->key_len, f->value->key);
    if (f->value->type != JSON_OBJECT)
        return field_refuse(f, "must be an object, by level.");
    for (uint32_t i = json_first(f->doc, f->at); i; i = json_next(f->doc, f->at, i)) {
        struct field member = {.value = &f->doc->tokens[i],
                               .doc = f->doc,
                               .at = i,
                               .base = base,
                               .problem = f->problem};
        int rank = level_of_key(&member, &w->queue);
        if (rank < 0 || !take(&member, &w->arrivals[rank]))
            return false;
    }
    return true;
}

static bool take_level_arrivals(struct field *f, struct arrivals *a)
{
    struct problem place;
    problem_set_field(&place, f->base, f->value->key, f->value->key_len);
    if (a->given)
        return field_refuse(f, "is a level that is given twice.");
    uint64_t backlog = a->backlog;
    bool ok = arrivals_take(f, place.field, a);
    a->backlog = backlog;
    return ok;
}

static bool take_level_backlog(struct field *f, struct arrivals *a)
{
    int64_t count;
    if (!field_i64(f, 0, WORKLOAD_BACKLOG_MAX, &count))
        return false;
    a->backlog = (uint64_t)count;
    return true;
}

static bool take_arrivals(struct field *f, void *target)
{
    return take_by_level(f, target, take_level_arrivals);
}

static bool take_backlog(struct field *f, void *target)
{
    return take_by_level(f, target, take_level_backlog);
}

/* The queue and its changes */

static bool queue_take(const struct json_token *t, const char *base, bool is_new,
                       struct queue_config *queue, struct problem *p)
{
    struct problem inner = {0};
    struct config_change change = {.is_new = is_new};
    if (config_patch(t->raw, t->raw_len, &change, queue, &inner))
        return true;
    *p = inner;
    snprintf(p->field, sizeof(p->field), "%.24s%.70s", base, inner.field);
    return false;
}

struct change_target {
    struct workload *workload;
    struct workload_change *change;
    bool has_time, has_queue;
    char base[24];
};

static bool take_at(struct field *f, void *target)
{
    struct change_target *c = target;
    double seconds;
    if (!field_double(f, 0, WORKLOAD_SECONDS_MAX, &seconds))
        return false;
    c->has_time = true;
    c->change->at_us = llround(seconds * SECOND_US);
    return true;
}

static bool same_levels(const struct queue_config *a, const struct queue_config *b)
{
    bool same = a->level_count == b->level_count;
    for (int i = 0; same && i < a->level_count; i++) {
        struct priority_ref ref = {.kind = PRIORITY_NAME};
        memcpy(ref.name, a->levels[i].name, sizeof(ref.name));
        same = levels_resolve(b, &ref) >= 0;
    }
    return same;
}

static bool take_change_queue(struct field *f, void *target)
{
    struct change_target *c = target;
    char base[32];
    snprintf(base, sizeof(base), "%s/queue", c->base);
    c->has_queue = true;
    bool taken = queue_take(f->value, base, false, &c->change->queue, f->problem);
    if (!taken && f->problem->status != STATUS_LEVELS_DROPPED)
        return false;
    return (taken && same_levels(&c->workload->queue, &c->change->queue)) ||
           field_refuse(f, "must keep the levels by their names; all else may change.");
}

/* Each change is made to what the one before it left. */
static bool change_take(struct field *f, uint32_t at, int index, struct workload *w)
{
    static const struct field_spec specs[] = {
        FIELD("at_seconds", take_at),
        FIELD("queue", take_change_queue),
    };
    static const struct field_table table = FIELD_TABLE(specs);
    const struct workload_change *last = index > 0 ? &w->changes[index - 1] : NULL;
    struct workload_change *change = &w->changes[index];
    struct change_target c = {.workload = w, .change = change};
    snprintf(c.base, sizeof(c.base), "/changes/%d", index);
    change->queue = last ? last->queue : w->queue;
    if (!fields_object(f->doc, at, c.base, &table, &c, f->problem))
        return false;
    if (!c.has_time || !c.has_queue)
        return field_refuse(f, "must each have at_seconds and queue.");
    return !last || last->at_us <= change->at_us || field_refuse(f, "must be in order of time.");
}

static bool take_changes(struct field *f, void *target)
{
    struct workload *w = target;
    if (f->value->type != JSON_ARRAY || f->value->count > WORKLOAD_CHANGES_MAX)
        return field_refuse(f, "must be an array of at most %d changes.", WORKLOAD_CHANGES_MAX);
    w->changes = mem_zalloc((f->value->count + 1) * sizeof(*w->changes));
    for (uint32_t i = json_first(f->doc, f->at); i; i = json_next(f->doc, f->at, i)) {
        if (!change_take(f, i, (int)w->change_count, w))
            return false;
        w->change_count++;
    }
    return true;
}

/* The rest */

/* Read before all other fields, which name its levels. */
static bool take_queue(struct field *f, void *target)
{
    (void)f;
    (void)target;
    return true;
}

static bool take_u32(struct field *f, int64_t max, uint32_t *out)
{
    int64_t value;
    if (!field_i64(f, 1, max, &value))
        return false;
    *out = (uint32_t)value;
    return true;
}

static bool take_consumers(struct field *f, void *target)
{
    return take_u32(f, WORKLOAD_CONSUMERS_MAX, &((struct workload *)target)->consumers);
}

static bool take_claim_max(struct field *f, void *target)
{
    return take_u32(f, CLAIM_MAX, &((struct workload *)target)->claim_max);
}

static bool take_duration(struct field *f, void *target)
{
    return take_seconds(f, WORKLOAD_SECONDS_MAX, &((struct workload *)target)->duration_us);
}

static bool take_seed(struct field *f, void *target)
{
    int64_t seed;
    if (!field_i64(f, 0, INT64_MAX, &seed))
        return false;
    ((struct workload *)target)->seed = (uint64_t)seed;
    return true;
}

static const struct field_spec workload_specs[] = {
    FIELD("queue", take_queue),       FIELD("consumers", take_consumers),
    FIELD("arrivals", take_arrivals), FIELD("backlog", take_backlog),
    FIELD("changes", take_changes),   FIELD("duration_seconds", take_duration),
    FIELD("seed", take_seed),         FIELD("claim_max", take_claim_max),
};
static const struct field_table workload_table = FIELD_TABLE(workload_specs);

static double expected_messages(const struct workload *w)
{
    double sum = 0;
    for (int rank = 0; rank < w->queue.level_count; rank++) {
        const struct arrivals *a = &w->arrivals[rank];
        double rate = a->per_second;
        if (a->burst_every_us > 0)
            rate *= 1 + (a->burst_factor - 1) * (double)a->burst_us / (double)a->burst_every_us;
        sum += (double)a->backlog + (a->given ? rate * (double)w->duration_us / SECOND_US : 0);
    }
    return sum;
}

static bool refuse(struct problem *p, const char *field, const char *sentence)
{
    problem_set_field(p, "", field, strlen(field));
    return problem_set(p, STATUS_INVALID_FIELD, "%s", sentence);
}

static bool complete(const struct workload *w, struct problem *p)
{
    if (w->consumers == 0)
        return refuse(p, "consumers", "consumers is missing: how many there are.");
    if (w->duration_us == 0)
        return refuse(p, "duration_seconds", "duration_seconds is missing: how long to simulate.");
    bool any = false;
    uint64_t backlog = 0;
    for (int rank = 0; rank < w->queue.level_count; rank++) {
        const struct arrivals *a = &w->arrivals[rank];
        any = any || a->given;
        backlog += a->backlog;
        if (a->backlog > 0 && !a->given)
            return refuse(p, "backlog",
                          "backlog has a level without a service_seconds: give it arrivals, with "
                          "per_second 0 if nothing more comes.");
    }
    if (!any)
        return refuse(p, "arrivals",
                      "arrivals is missing: by level, per_second and "
                      "service_seconds.");
    if (backlog > WORKLOAD_BACKLOG_MAX)
        return refuse(p, "backlog", "backlog is more than 5 million messages.");
    if (expected_messages(w) > WORKLOAD_MESSAGES_MAX)
        return refuse(p, "arrivals",
                      "arrivals would be more than 100 million messages; simulate "
                      "a shorter time or lower rates.");
    return true;
}

static bool read_all(const struct json_doc *doc, struct workload *w, struct problem *p)
{
    const struct json_token *queue = json_get(doc, 0, "queue");
    if (queue && !queue_take(queue, "/queue", true, &w->queue, p))
        return false;
    return fields_object(doc, 0, "", &workload_table, w, p) && complete(w, p);
}

bool workload_parse(const char *text, size_t len, struct workload *w, struct problem *p)
{
    struct json_doc doc;
    *w = (struct workload){.claim_max = 1, .seed = 1};
    *p = (struct problem){0};
    config_profile("levels", &w->queue);
    json_init(&doc);
    bool ok = json_parse(&doc, text, len, TOKENS_MAX);
    if (!ok)
        problem_set(p, STATUS_MALFORMED_JSON, "%s", doc.error);
    else
        ok = read_all(&doc, w, p);
    json_fini(&doc);
    if (!ok)
        workload_fini(w);
    return ok;
}

void workload_fini(struct workload *w)
{
    free(w->changes);
    w->changes = NULL;
    w->change_count = 0;
}
