#include "api/config.h"

#include "api/encode.h"
#include "base/json.h"

/* 0 stands for none, and becomes null; so it does in the next function. */
static void put_count(struct buf *out, uint64_t count)
{
    if (count > 0)
        buf_put_u64(out, count);
    else
        buf_lit(out, "null");
}

static void put_seconds(struct buf *out, int64_t ms)
{
    if (ms > 0)
        encode_seconds(out, ms);
    else
        buf_lit(out, "null");
}

static void put_level(struct buf *out, const struct level *level)
{
    buf_lit(out, "{\"name\":");
    json_put_cstr(out, level->name);
    buf_lit(out, ",\"number\":");
    if (level->has_number)
        buf_put_i64(out, level->number);
    else
        buf_lit(out, "null");
    buf_lit(out, ",\"weight\":");
    encode_number(out, level->weight);
    buf_lit(out, ",\"age_after_seconds\":");
    put_seconds(out, level->age_ms);
    buf_lit(out, ",\"max_wait_seconds\":");
    put_seconds(out, level->max_wait_ms);
    buf_lit(out, ",\"max_in_flight\":");
    put_count(out, level->max_in_flight);
    buf_putc(out, '}');
}

static void put_retry(struct buf *out, const struct queue_config *config)
{
    static const char *const names[] = {
        [BACKOFF_NONE] = "none", [BACKOFF_FIXED] = "fixed", [BACKOFF_EXPONENTIAL] = "exponential"};
    buf_lit(out, ",\"retry\":{\"backoff\":\"");
    buf_puts(out, names[config->backoff]);
    buf_lit(out, "\",\"base_seconds\":");
    encode_seconds(out, config->backoff_base_ms);
    buf_lit(out, ",\"max_seconds\":");
    encode_seconds(out, config->backoff_max_ms);
    buf_lit(out, ",\"jitter\":");
    encode_number(out, config->backoff_jitter);
    buf_putc(out, '}');
}

static void put_limits(struct buf *out, const struct queue_config *config)
{
    buf_lit(out, ",\"ttl_seconds\":");
    put_seconds(out, config->ttl_ms);
    buf_lit(out, ",\"expired\":");
    json_put_cstr(out, config->expired == EXPIRED_DEAD ? "dead" : "drop");
    buf_lit(out, ",\"dedup\":{\"window_seconds\":");
    encode_seconds(out, config->dedup_window_ms);
    buf_lit(out, ",\"scope\":");
    json_put_cstr(out, config->dedup_scope == DEDUP_LIVE ? "live" : "window");
    buf_lit(out, "},\"max_depth\":");
    put_count(out, config->max_depth);
    buf_lit(out, ",\"max_bytes\":");
    put_count(out, config->max_bytes);
    buf_lit(out, ",\"max_in_flight\":");
    put_count(out, config->max_in_flight);
    buf_lit(out, ",\"history_seconds\":");
    encode_seconds(out, config->history_ms);
}

static void put_alerts(struct buf *out, const struct queue_config *config)
{
    buf_lit(out, ",\"alerts\":{\"dead_letters\":");
    put_count(out, config->alert_dead_letters);
    buf_lit(out, ",\"oldest_ready_seconds\":");
    put_count(out, (uint64_t)config->alert_oldest_ready_seconds);
    buf_lit(out, ",\"webhook\":");
    if (config->alert_webhook[0])
        json_put_cstr(out, config->alert_webhook);
    else
        buf_lit(out, "null");
    buf_putc(out, '}');
}

void config_put(struct buf *out, const char *queue, const struct queue_config *config)
{
    buf_lit(out, "{\"name\":");
    json_put_cstr(out, queue);
    buf_lit(out, ",\"profile\":");
    json_put_cstr(out, config->profile);
    buf_lit(out, ",\"levels\":[");
    for (int i = 0; i < config->level_count; i++) {
        if (i > 0)
            buf_putc(out, ',');
        put_level(out, &config->levels[i]);
    }
    buf_lit(out, "],\"policy\":");
    json_put_cstr(out, policy_name(config->policy));
    buf_lit(out, ",\"default_priority\":");
    encode_priority(out, &config->levels[config->default_rank]);
    buf_puts(out, config->paused ? ",\"paused\":true" : ",\"paused\":false");
    buf_lit(out, ",\"visibility_timeout_seconds\":");
    encode_seconds(out, config->visibility_ms);
    buf_lit(out, ",\"max_attempts\":");
    buf_put_u64(out, config->max_attempts);
    put_retry(out, config);
    put_limits(out, config);
    put_alerts(out, config);
    buf_putc(out, '}');
}
