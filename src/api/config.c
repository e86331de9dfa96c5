#include "api/config.h"

#include "api/fields.h"
#include "api/levels_field.h"
#include "base/limits.h"

#include <stdio.h>

#define CUSTOM "custom"

static const char *const backoff_names[] = {"none", "fixed", "exponential"};
static const char *const scope_names[] = {"window", "live"};
static const char *const expired_names[] = {"drop", "dead"};

/* What becomes of levels that a change does not name. */
enum drop_levels {
    DROP_NONE,  /* refuse the change */
    DROP_ALL,   /* drop them; one that holds messages is refused by the engine */
    DROP_EMPTY, /* drop those that hold no message */
};

struct patch {
    struct queue_config *config;
    bool inherits; /* a level takes what it does not name from the one of that name */
    enum drop_levels drop;
    bool has_levels;
    bool has_default;
    struct priority_ref default_priority;
};

/* The name is not looked at: the document may have been read from another queue. */
static bool take_name(struct field *f, void *target)
{
    const char *text;
    size_t len;
    (void)target;
    return field_text(f, 1, QUEUE_NAME_MAX, &text, &len);
}

/* Done before all other fields, in profile_apply(). */
static bool take_profile(struct field *f, void *target)
{
    (void)f;
    (void)target;
    return true;
}

static bool take_levels(struct field *f, void *target)
{
    struct patch *patch = target;
    patch->has_levels = true;
    return levels_field_take(f, patch->inherits, patch->config);
}

static bool take_drop_levels(struct field *f, void *target)
{
    struct patch *patch = target;
    bool all = f->value->type == JSON_BOOL && f->value->boolean;
    if (json_is(f->value, "empty"))
        patch->drop = DROP_EMPTY;
    else if (f->value->type == JSON_BOOL || field_null(f))
        patch->drop = all ? DROP_ALL : DROP_NONE;
    else
        return field_refuse(f, "must be true, false, or \"empty\" to drop those without messages.");
    return true;
}

static bool take_policy(struct field *f, void *target)
{
    struct patch *patch = target;
    char name[16] = "";
    if (f->value->type == JSON_STRING && f->value->len < sizeof(name))
        memcpy(name, f->value->str, f->value->len);
    if (strlen(name) == f->value->len && policy_parse(name, &patch->config->policy))
        return true;
    return field_refuse(f, "must be \"strict\" or \"weighted\".");
}

static bool take_default_priority(struct field *f, void *target)
{
    struct patch *patch = target;
    patch->has_default = true;
    return field_priority(f, &patch->default_priority);
}

static bool take_paused(struct field *f, void *target)
{
    struct patch *patch = target;
    return field_bool(f, &patch->config->paused);
}

static bool take_visibility(struct field *f, void *target)
{
    struct patch *patch = target;
    return field_seconds(f, 0, LEASE_SECONDS_MAX, &patch->config->visibility_ms);
}

static bool take_max_attempts(struct field *f, void *target)
{
    struct patch *patch = target;
    int64_t max;
    if (!field_i64(f, 1, ATTEMPTS_MAX, &max))
        return false;
    patch->config->max_attempts = (uint32_t)max;
    return true;
}

static bool take_backoff(struct field *f, void *target)
{
    struct queue_config *config = target;
    int choice;
    if (!field_choice(f, backoff_names, 3, &choice))
        return false;
    config->backoff = (enum backoff)choice;
    return true;
}

static bool take_backoff_base(struct field *f, void *target)
{
    struct queue_config *config = target;
    return field_seconds(f, 0, DELAY_SECONDS_MAX, &config->backoff_base_ms);
}

static bool take_backoff_max(struct field *f, void *target)
{
    struct queue_config *config = target;
    return field_seconds(f, 0, DELAY_SECONDS_MAX, &config->backoff_max_ms);
}

static bool take_backoff_jitter(struct field *f, void *target)
{
    struct queue_config *config = target;
    return field_double(f, 0, 1, &config->backoff_jitter);
}

static bool take_retry(struct field *f, void *target)
{
    static const struct field_spec specs[] = {
        FIELD("backoff", take_backoff),
        FIELD("base_seconds", take_backoff_base),
        FIELD("max_seconds", take_backoff_max),
        FIELD("jitter", take_backoff_jitter),
    };
    static const struct field_table table = FIELD_TABLE(specs);
    struct patch *patch = target;
    return fields_object(f->doc, f->at, "/retry", &table, patch->config, f->problem);
}

static bool take_ttl(struct field *f, void *target)
{
    struct patch *patch = target;
    patch->config->ttl_ms = 0;
    if (field_null(f))
        return true;
    if (!field_seconds(f, 0, TTL_SECONDS_MAX, &patch->config->ttl_ms))
        return false;
    return patch->config->ttl_ms > 0 || field_refuse(f, "must be more than 0, or null for none.");
}

static bool take_expired(struct field *f, void *target)
{
    struct patch *patch = target;
    int choice;
    if (!field_choice(f, expired_names, 2, &choice))
        return false;
    patch->config->expired = (enum expired_fate)choice;
    return true;
}

static bool take_dedup_window(struct field *f, void *target)
{
    struct queue_config *config = target;
    return field_seconds(f, 0, TTL_SECONDS_MAX, &config->dedup_window_ms);
}

static bool take_dedup_scope(struct field *f, void *target)
{
    struct queue_config *config = target;
    int choice;
    if (!field_choice(f, scope_names, 2, &choice))
        return false;
    config->dedup_scope = (enum dedup_scope)choice;
    return true;
}

static bool take_dedup(struct field *f, void *target)
{
    static const struct field_spec specs[] = {
        FIELD("window_seconds", take_dedup_window),
        FIELD("scope", take_dedup_scope),
    };
    static const struct field_table table = FIELD_TABLE(specs);
    struct patch *patch = target;
    return fields_object(f->doc, f->at, "/dedup", &table, patch->config, f->problem);
}

/* A count, or null for none, which is kept as 0. */
static bool take_count(struct field *f, uint64_t *out)
{
    int64_t count = 0;
    if (!field_null(f) && !field_i64(f, 1, COUNT_MAX, &count))
        return false;
    *out = (uint64_t)count;
    return true;
}

static bool take_max_depth(struct field *f, void *target)
{
    struct patch *patch = target;
    return take_count(f, &patch->config->max_depth);
}

static bool take_max_bytes(struct field *f, void *target)
{
    struct patch *patch = target;
    return take_count(f, &patch->config->max_bytes);
}

static bool take_max_in_flight(struct field *f, void *target)
{
    struct patch *patch = target;
    return field_in_flight(f, &patch->config->max_in_flight);
}

static bool take_history(struct field *f, void *target)
{
    struct patch *patch = target;
    return field_seconds(f, 0, HISTORY_SECONDS_MAX, &patch->config->history_ms);
}

static bool take_alert_dead(struct field *f, void *target)
{
    struct queue_config *config = target;
    return take_count(f, &config->alert_dead_letters);
}

static bool take_alert_oldest(struct field *f, void *target)
{
    struct queue_config *config = target;
    config->alert_oldest_ready_seconds = 0;
    return field_null(f) || field_i64(f, 1, DELAY_SECONDS_MAX, &config->alert_oldest_ready_seconds);
}

bool config_url_valid(const char *url, size_t len)
{
    size_t scheme = len > 7 && memcmp(url, "http://", 7) == 0    ? 7
                    : len > 8 && memcmp(url, "https://", 8) == 0 ? 8
                                                                 : len;
    for (size_t i = scheme; i < len; i++) {
        if ((unsigned char)url[i] <= ' ' || url[i] == 0x7f)
            return false;
    }
    return scheme < len;
}

static bool take_alert_webhook(struct field *f, void *target)
{
    struct queue_config *config = target;
    const char *url;
    size_t len;
    config->alert_webhook[0] = '\0';
    if (field_null(f))
        return true;
    if (!field_text(f, 0, WEBHOOK_MAX, &url, &len) || !config_url_valid(url, len))
        return field_refuse(f,
                            "must be a URL that starts with http:// or https://, without blanks "
                            "and of at most %d bytes.",
                            WEBHOOK_MAX);
    memcpy(config->alert_webhook, url, len);
    config->alert_webhook[len] = '\0';
    return true;
}

static bool take_alerts(struct field *f, void *target)
{
    static const struct field_spec specs[] = {
        FIELD("dead_letters", take_alert_dead),
        FIELD("oldest_ready_seconds", take_alert_oldest),
        FIELD("webhook", take_alert_webhook),
    };
    static const struct field_table table = FIELD_TABLE(specs);
    struct patch *patch = target;
    return fields_object(f->doc, f->at, "/alerts", &table, patch->config, f->problem);
}

static const struct field_spec config_specs[] = {
    FIELD("name", take_name),
    FIELD("profile", take_profile),
    FIELD("levels", take_levels),
    FIELD("drop_levels", take_drop_levels),
    FIELD("policy", take_policy),
    FIELD("default_priority", take_default_priority),
    FIELD("paused", take_paused),
    FIELD("visibility_timeout_seconds", take_visibility),
    FIELD("max_attempts", take_max_attempts),
    FIELD("retry", take_retry),
    FIELD("ttl_seconds", take_ttl),
    FIELD("expired", take_expired),
    FIELD("dedup", take_dedup),
    FIELD("max_depth", take_max_depth),
    FIELD("max_bytes", take_max_bytes),
    FIELD("max_in_flight", take_max_in_flight),
    FIELD("history_seconds", take_history),
    FIELD("alerts", take_alerts),
};
static const struct field_table config_table = FIELD_TABLE(config_specs);

/* A profile is named again. If the queue has all of its levels, by name and number, they keep the
 * values that they have, and so do the policy and the default, if that is still one of them. False
 * when the queue's levels are not those of the profile. */
static bool profile_again(const struct queue_config *fresh, struct queue_config *config)
{
    struct level levels[LEVEL_COUNT_MAX] = {0};
    const char *default_name = config->levels[config->default_rank].name;
    for (int i = 0; i < fresh->level_count; i++) {
        const struct level *level = &fresh->levels[i];
        int rank = levels_rank_of_name(config, level->name);
        if (rank < 0 || !level_called_the_same(level, &config->levels[rank]))
            return false;
        levels[i] = config->levels[rank];
    }
    int default_rank = levels_rank_of_name(fresh, default_name);
    config->default_rank = default_rank >= 0 ? (uint8_t)default_rank : fresh->default_rank;
    config->level_count = fresh->level_count;
    memcpy(config->levels, levels, sizeof(levels));
    return true;
}

/* Another profile brings its levels; for a new queue also its other defaults. */
static bool profile_apply(const struct json_doc *doc, bool is_new, struct queue_config *config,
                          struct problem *p)
{
    const struct json_token *t = json_get(doc, 0, "profile");
    char name[sizeof(config->profile)] = "";
    struct queue_config fresh;
    if (!t || json_is(t, config->profile) || (json_is(t, CUSTOM) && json_get(doc, 0, "levels")))
        return true;
    if (t->type == JSON_STRING && t->len < sizeof(name))
        memcpy(name, t->str, t->len);
    if (strlen(name) != t->len || !config_profile(name, &fresh)) {
        problem_set_field(p, "", "profile", 7);
        return problem_set(
            p, STATUS_INVALID_FIELD,
            "profile must be \"levels\", \"tiers\", \"environments\" or \"timeline\"; "
            "for levels of your own give `levels`.");
    }
    if (is_new) {
        *config = fresh;
        return true;
    }
    memcpy(config->profile, fresh.profile, sizeof(config->profile));
    if (profile_again(&fresh, config))
        return true;
    memcpy(config->levels, fresh.levels, sizeof(config->levels));
    config->level_count = fresh.level_count;
    config->default_rank = fresh.default_rank;
    config->policy = fresh.policy;
    return true;
}

/* A queue keeps the name of its profile while its levels have the names and numbers of the
 * profile's, whatever their weights. So a configuration from GET can be PUT back, and the profile
 * named again. */
static void profile_name(struct queue_config *config)
{
    struct queue_config plain;
    if (config_profile(config->profile, &plain) && levels_field_same(&plain, config))
        return;
    snprintf(config->profile, sizeof(config->profile), CUSTOM);
}

static bool default_apply(const struct patch *patch, const char *old_name, struct problem *p)
{
    struct queue_config *config = patch->config;
    struct priority_ref ref = {.kind = PRIORITY_NAME};
    snprintf(ref.name, sizeof(ref.name), "%s", old_name);
    bool given = patch->has_default && patch->default_priority.kind != PRIORITY_DEFAULT;
    int rank = levels_resolve(config, given ? &patch->default_priority : &ref);
    if (given && rank < 0) {
        problem_set_field(p, "", "default_priority", 16);
        return problem_set(p, STATUS_UNKNOWN_PRIORITY,
                           "default_priority must be the number or the name of one of the levels.");
    }
    /* Of two levels in the middle the less urgent: a message without a priority is not urgent. */
    config->default_rank = (uint8_t)(rank >= 0 ? rank : config->level_count / 2);
    return true;
}

/* Refuses a change that would drop levels without `drop_levels`. */
static bool refuse_drop(const struct queue_config *was, const struct queue_config *config,
                        struct problem *p)
{
    char names[300] = "";
    size_t at = 0;
    for (int i = 0; i < was->level_count && at < sizeof(names); i++) {
        if (levels_rank_of_name(config, was->levels[i].name) < 0)
            at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%s", at ? ", " : "",
                                   was->levels[i].name);
    }
    if (at == 0)
        return true;
    problem_set_field(p, "", "levels", 6);
    return problem_set(p, STATUS_LEVELS_DROPPED,
                       "Name every level, or add \"drop_levels\": true, or add \"drop_levels\": "
                       "\"empty\" to keep those in use, or change single levels with "
                       "\"levels\": {\"NAME\": {…}}. It would drop: %s",
                       names);
}

static bool retry_check(const struct queue_config *config, struct problem *p)
{
    if (config->backoff != BACKOFF_EXPONENTIAL || config->backoff_max_ms >= config->backoff_base_ms)
        return true;
    problem_set_field(p, "/retry", "max_seconds", 11);
    return problem_set(p, STATUS_INVALID_FIELD,
                       "retry.max_seconds must not be below retry.base_seconds.");
}

static bool patch_apply(const struct json_doc *doc, struct config_change *change,
                        struct queue_config *config, struct problem *p)
{
    const struct queue_config was = *config;
    const struct json_token *profile = json_get(doc, 0, "profile");
    bool ready_made = profile && !json_is(profile, CUSTOM);
    struct patch patch = {.config = config, .inherits = !change->is_new || ready_made};
    if (!profile_apply(doc, change->is_new, config, p))
        return false;
    char old_default[LEVEL_NAME_MAX + 1];
    memcpy(old_default, config->levels[config->default_rank].name, sizeof(old_default));
    if (!fields_object(doc, 0, "", &config_table, &patch, p) || !retry_check(config, p) ||
        !default_apply(&patch, old_default, p))
        return false;
    change->keeps_used = patch.drop == DROP_EMPTY;
    if (!change->is_new && patch.drop == DROP_NONE && !refuse_drop(&was, config, p))
        return false;
    bool stay = !change->is_new && patch.drop == DROP_EMPTY && change->stay;
    if (stay && !levels_field_keep(&was, change->stay, config, p))
        return false;
    if (patch.has_levels || stay)
        profile_name(config);
    return true;
}

bool config_patch(const char *text, size_t len, struct config_change *change,
                  struct queue_config *config, struct problem *p)
{
    struct queue_config next = *config;
    struct json_doc doc;
    json_init(&doc);
    bool ok = json_parse(&doc, text, len, 1024);
    if (!ok)
        problem_set(p, STATUS_MALFORMED_JSON, "%s", doc.error);
    else
        ok = patch_apply(&doc, change, &next, p);
    json_fini(&doc);
    if (ok)
        *config = next;
    return ok;
}
