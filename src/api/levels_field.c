#include "api/levels_field.h"

#include <math.h>
#include <stdio.h>

#define NUMBER_MAX    1000000000
#define IN_FLIGHT_MAX 1000000000

static bool take_name(struct field *f, void *target)
{
    struct level *level = target;
    const char *name;
    size_t len;
    if (!field_text(f, 1, LEVEL_NAME_MAX, &name, &len))
        return false;
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)name[i] < ' ' || name[i] == 0x7f)
            return field_refuse(f, "must not have control characters.");
    }
    memcpy(level->name, name, len);
    level->name[len] = '\0';
    return true;
}

static bool take_number(struct field *f, void *target)
{
    struct level *level = target;
    level->has_number = !field_null(f);
    return field_null(f) || field_i64(f, -NUMBER_MAX, NUMBER_MAX, &level->number);
}

static bool take_weight(struct field *f, void *target)
{
    struct level *level = target;
    if (!field_double(f, WEIGHT_UNIT, WEIGHT_MAX, &level->weight))
        return false;
    double units = level->weight / WEIGHT_UNIT;
    return fabs(units - round(units)) < 1e-6 || field_refuse(f, "has at most three decimals.");
}

/* Seconds, or null for none, which is kept as 0. */
static bool take_wait(struct field *f, int64_t *ms)
{
    *ms = 0;
    if (field_null(f))
        return true;
    if (!field_seconds(f, 0, DELAY_SECONDS_MAX, ms))
        return false;
    return *ms > 0 || field_refuse(f, "must be more than 0, or null for none.");
}

static bool take_age_after(struct field *f, void *target)
{
    return take_wait(f, &((struct level *)target)->age_ms);
}

static bool take_max_wait(struct field *f, void *target)
{
    return take_wait(f, &((struct level *)target)->max_wait_ms);
}

bool field_in_flight(struct field *f, uint32_t *max)
{
    int64_t count = 0;
    if (!field_null(f) && !field_i64(f, 1, IN_FLIGHT_MAX, &count))
        return false;
    *max = (uint32_t)count;
    return true;
}

static bool take_max_in_flight(struct field *f, void *target)
{
    return field_in_flight(f, &((struct level *)target)->max_in_flight);
}

static const struct field_spec level_specs[] = {
    FIELD("name", take_name),
    FIELD("number", take_number),
    FIELD("weight", take_weight),
    FIELD("age_after_seconds", take_age_after),
    FIELD("max_wait_seconds", take_max_wait),
    FIELD("max_in_flight", take_max_in_flight),
};
static const struct field_table level_table = FIELD_TABLE(level_specs);

/* What the API shows for a level: two that look the same could not be told apart. */
static void shown(const struct level *level, char out[LEVEL_NAME_MAX + 1])
{
    if (level->has_number)
        snprintf(out, LEVEL_NAME_MAX + 1, "%lld", (long long)level->number);
    else
        memcpy(out, level->name, LEVEL_NAME_MAX + 1);
}

static bool distinct(struct field *f, const struct level *levels, int count)
{
    const struct level *last = &levels[count - 1];
    char mine[LEVEL_NAME_MAX + 1], other[LEVEL_NAME_MAX + 1];
    shown(last, mine);
    for (int i = 0; i < count - 1; i++) {
        shown(&levels[i], other);
        if (strcmp(levels[i].name, last->name) == 0 || strcmp(mine, other) == 0)
            return field_refuse(f, "has two levels that are called \"%s\".",
                                strcmp(mine, other) == 0 ? mine : last->name);
    }
    return true;
}

bool levels_field_take(struct field *f, struct queue_config *config)
{
    uint32_t count = f->value->count;
    struct level levels[LEVEL_COUNT_MAX];
    int n = 0;
    if (f->value->type != JSON_ARRAY || count == 0 || count > LEVEL_COUNT_MAX)
        return field_refuse(f, "must be an array of 1 to %d levels, most urgent first.",
                            LEVEL_COUNT_MAX);
    for (uint32_t i = json_first(f->doc, f->at); i; i = json_next(f->doc, f->at, i), n++) {
        char base[24];
        snprintf(base, sizeof(base), "/levels/%d", n);
        levels[n] = (struct level){.weight = 1};
        if (!fields_object(f->doc, i, base, &level_table, &levels[n], f->problem))
            return false;
        if (levels[n].name[0] == '\0') {
            problem_set_field(f->problem, base, "name", 4);
            return problem_set(f->problem, STATUS_INVALID_FIELD, "A level must have a name.");
        }
        if (!distinct(f, levels, n + 1))
            return false;
    }
    memset(config->levels, 0, sizeof(config->levels));
    memcpy(config->levels, levels, (size_t)n * sizeof(levels[0]));
    config->level_count = (uint8_t)n;
    config->default_rank = 0;
    return true;
}

bool levels_field_same(const struct queue_config *a, const struct queue_config *b)
{
    if (a->level_count != b->level_count)
        return false;
    for (int i = 0; i < a->level_count; i++) {
        const struct level *x = &a->levels[i], *y = &b->levels[i];
        if (strcmp(x->name, y->name) != 0 || x->has_number != y->has_number ||
            x->number != y->number || x->weight != y->weight || x->age_ms != y->age_ms ||
            x->max_wait_ms != y->max_wait_ms || x->max_in_flight != y->max_in_flight)
            return false;
    }
    return true;
}
