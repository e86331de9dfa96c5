#include "api/levels_field.h"

#include <math.h>
#include <stdio.h>

#define STAYED "-old" /* added to the name of a level that stays */

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
    level->number = 0;
    return field_null(f) || field_i64(f, -LEVEL_NUMBER_MAX, LEVEL_NUMBER_MAX, &level->number);
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
/* Of a level that is named by its key. */
static const struct field_table named_table = {level_specs + 1,
                                               sizeof(level_specs) / sizeof(level_specs[0]) - 1};

/* Refuses a number or a name that two levels have. */
static bool distinct(struct field *f, const struct level *levels, int count)
{
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < i; j++) {
            if (level_clashes(&levels[i], &levels[j]))
                return field_refuse(f,
                                    "has two levels that are called the same: \"%s\" and \"%s\".",
                                    levels[j].name, levels[i].name);
        }
    }
    return true;
}

/* What a level of the array is before its fields are read. */
static struct level level_before(struct field *f, uint32_t at, bool inherits,
                                 const struct queue_config *config)
{
    const struct json_token *name = json_get(f->doc, at, "name");
    char text[LEVEL_NAME_MAX + 1] = "";
    if (inherits && name && name->type == JSON_STRING && name->len <= LEVEL_NAME_MAX)
        memcpy(text, name->str, name->len);
    int rank = text[0] ? levels_rank_of_name(config, text) : -1;
    return rank >= 0 ? config->levels[rank] : (struct level){.weight = 1};
}

static bool take_all(struct field *f, bool inherits, struct queue_config *config)
{
    uint32_t count = f->value->count;
    struct level levels[LEVEL_COUNT_MAX];
    int n = 0;
    if (f->value->type != JSON_ARRAY || count == 0 || count > LEVEL_COUNT_MAX)
        return field_refuse(f,
                            "must be an array of 1 to %d levels, most urgent first, or an object "
                            "of those to change, by name.",
                            LEVEL_COUNT_MAX);
    for (uint32_t i = json_first(f->doc, f->at); i; i = json_next(f->doc, f->at, i), n++) {
        char base[24];
        snprintf(base, sizeof(base), "/levels/%d", n);
        levels[n] = level_before(f, i, inherits, config);
        if (!fields_object(f->doc, i, base, &level_table, &levels[n], f->problem))
            return false;
        if (levels[n].name[0] == '\0') {
            problem_set_field(f->problem, base, "name", 4);
            return problem_set(f->problem, STATUS_INVALID_FIELD, "A level must have a name.");
        }
    }
    if (!distinct(f, levels, n))
        return false;
    memset(config->levels, 0, sizeof(config->levels));
    memcpy(config->levels, levels, (size_t)n * sizeof(levels[0]));
    config->level_count = (uint8_t)n;
    config->default_rank = 0;
    return true;
}

/* The rank of the level that the member's key names; -1 with the problem set. */
static int rank_of_key(struct field *f, const struct json_token *member,
                       const struct queue_config *config)
{
    char name[LEVEL_NAME_MAX + 1] = "", known[300] = "";
    size_t at = 0;
    if (member->key_len <= LEVEL_NAME_MAX)
        memcpy(name, member->key, member->key_len);
    int rank = levels_rank_of_name(config, name);
    if (rank >= 0)
        return rank;
    for (int i = 0; i < config->level_count && at < sizeof(known); i++)
        at += (size_t)snprintf(known + at, sizeof(known) - at, "%s%s", i ? ", " : "",
                               config->levels[i].name);
    problem_set_field(f->problem, "/levels", member->key, member->key_len);
    problem_set(f->problem, STATUS_UNKNOWN_PRIORITY,
                "The queue has no level \"%s\"; `levels` as an array adds one. It has: %s", name,
                known);
    return -1;
}

static bool take_named(struct field *f, struct queue_config *config)
{
    for (uint32_t i = json_first(f->doc, f->at); i; i = json_next(f->doc, f->at, i)) {
        const struct json_token *member = &f->doc->tokens[i];
        struct problem place;
        int rank = rank_of_key(f, member, config);
        if (rank < 0)
            return false;
        problem_set_field(&place, "/levels", member->key, member->key_len);
        if (!fields_object(f->doc, i, place.field, &named_table, &config->levels[rank], f->problem))
            return false;
    }
    return distinct(f, config->levels, config->level_count);
}

bool levels_field_take(struct field *f, bool inherits, struct queue_config *config)
{
    return f->value->type == JSON_OBJECT ? take_named(f, config) : take_all(f, inherits, config);
}

static bool clashes(const struct queue_config *config, const struct level *level)
{
    for (int i = 0; i < config->level_count; i++) {
        if (level_clashes(&config->levels[i], level))
            return true;
    }
    return false;
}

/* Gives a level that stays another number or name if a new level has taken its own. A name that
 * clashes with a number is a number itself, so it is short and has room for STAYED. */
static void make_room(const struct queue_config *config, struct level *level)
{
    level->heir_of = (uint8_t)(level->slot + 1);
    if (clashes(config, level)) {
        level->has_number = false;
        level->number = 0;
    }
    for (size_t len = strlen(level->name);
         clashes(config, level) && len + sizeof(STAYED) <= sizeof(level->name);
         len += sizeof(STAYED) - 1)
        memcpy(level->name + len, STAYED, sizeof(STAYED));
}

bool levels_field_keep(const struct queue_config *was, uint32_t stay, struct queue_config *config,
                       struct problem *p)
{
    double weight = config->levels[config->level_count - 1].weight;
    for (int i = 0; i < was->level_count; i++) {
        struct level level = was->levels[i];
        if (!(stay >> level.slot & 1) || levels_rank_of_name(config, level.name) >= 0)
            continue;
        if (config->level_count == LEVEL_COUNT_MAX) {
            problem_set_field(p, "", "levels", 6);
            return problem_set(
                p, STATUS_LEVEL_IN_USE,
                "Level \"%s\" is still in use and stays, which is more than %d levels in "
                "all: drain it first, or name fewer.",
                level.name, LEVEL_COUNT_MAX);
        }
        make_room(config, &level);
        level.weight = weight;
        config->levels[config->level_count++] = level;
    }
    return true;
}

bool level_called_the_same(const struct level *a, const struct level *b)
{
    return strcmp(a->name, b->name) == 0 && a->has_number == b->has_number &&
           a->number == b->number;
}

bool levels_field_same(const struct queue_config *a, const struct queue_config *b)
{
    bool same = a->level_count == b->level_count;
    for (int i = 0; same && i < a->level_count; i++)
        same = level_called_the_same(&a->levels[i], &b->levels[i]);
    return same;
}
