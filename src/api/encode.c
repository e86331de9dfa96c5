#include "api/encode.h"

#include "api/trace_context.h"
#include "base/codec.h"
#include "base/json.h"
#include "core/age.h"

#include <stdio.h>
#include <stdlib.h>

/* Answers of one moment carry the same few times, so each thread keeps the last one it wrote, and
 * within one second only the milliseconds change. */
void encode_time(struct buf *out, int64_t wall_ms)
{
    static _Thread_local struct {
        int64_t ms;
        size_t len;
        char text[TIME_TEXT_MAX + 2];
    } last = {.ms = INT64_MIN};
    if (last.ms != wall_ms) {
        if (last.len && wall_ms >= 0 && last.ms >= 0 && last.ms / 1000 == wall_ms / 1000) {
            char *digits = last.text + last.len - 5; /* mmmZ" */
            digits[0] = (char)('0' + wall_ms % 1000 / 100);
            digits[1] = (char)('0' + wall_ms % 100 / 10);
            digits[2] = (char)('0' + wall_ms % 10);
        } else {
            last.text[0] = '"';
            size_t len = time_format_ms(wall_ms, last.text + 1);
            last.text[len + 1] = '"';
            last.len = len + 2;
        }
        last.ms = wall_ms;
    }
    buf_put(out, last.text, last.len);
}

void encode_seconds(struct buf *out, int64_t ms)
{
    if (ms < 0) {
        buf_putc(out, '-');
        ms = -ms;
    }
    buf_put_u64(out, (uint64_t)(ms / 1000));
    int64_t rest = ms % 1000;
    if (rest == 0)
        return;
    char text[4] = {'.', (char)('0' + rest / 100), (char)('0' + rest / 10 % 10),
                    (char)('0' + rest % 10)};
    size_t len = 4;
    while (text[len - 1] == '0')
        len--;
    buf_put(out, text, len);
}

void encode_number(struct buf *out, double value)
{
    char text[32];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    buf_puts(out, text);
}

void encode_rate(struct buf *out, double per_second)
{
    encode_number(out, (double)(int64_t)(per_second * 100 + 0.5) / 100);
}

void encode_priority(struct buf *out, const struct level *level)
{
    if (level->has_number)
        buf_put_i64(out, level->number);
    else
        json_put_cstr(out, level->name);
}

void encode_priority_key(struct buf *out, const struct level *level)
{
    if (!level->has_number) {
        json_put_cstr(out, level->name);
        return;
    }
    buf_putc(out, '"');
    buf_put_i64(out, level->number);
    buf_putc(out, '"');
}

void encode_id(struct buf *out, const struct message_id *id)
{
    char text[MESSAGE_ID_TEXT + 1];
    message_id_format(id, text);
    buf_putc(out, '"');
    buf_put(out, text, MESSAGE_ID_TEXT);
    buf_putc(out, '"');
}

/* JSON text of a client's own. Line breaks in it can only be white space between its tokens. */
static void put_json_text(struct buf *out, const char *text, size_t len, bool one_line)
{
    size_t from = out->len;
    buf_put(out, text, len);
    for (size_t i = from; one_line && i < out->len; i++) {
        if (out->data[i] == '\n' || out->data[i] == '\r')
            out->data[i] = ' ';
    }
}

static void put_payload(struct buf *out, const struct message *m, bool one_line)
{
    const char *payload = message_payload(m);
    switch ((enum payload_kind)m->kind) {
    case PAYLOAD_TEXT:
        buf_lit(out, ",\"payload\":");
        json_put_string(out, payload, m->payload_len);
        break;
    case PAYLOAD_JSON:
        buf_lit(out, ",\"payload\":");
        put_json_text(out, payload, m->payload_len, one_line);
        break;
    case PAYLOAD_BYTES:
        buf_lit(out, ",\"payload_base64\":\"");
        base64_put(out, payload, m->payload_len);
        buf_putc(out, '"');
        break;
    }
}

static void put_metadata(struct buf *out, const struct message *m, bool one_line)
{
    buf_lit(out, ",\"metadata\":");
    if (m->metadata_len > 0)
        put_json_text(out, message_metadata(m), m->metadata_len, one_line);
    else
        buf_lit(out, "{}");
}

static const struct level *level_of_slot(const struct engine_queue *q, uint8_t slot)
{
    int rank = levels_rank_of_slot(&q->config, slot);
    return rank >= 0 ? &q->config.levels[rank] : NULL;
}

static const struct level *level_of(const struct engine_queue *q, const struct message *m)
{
    return level_of_slot(q, m->slot);
}

/* The level that the message counts as, by its age. */
static void put_effective(struct buf *out, const struct engine_queue *q, const struct message *m,
                          struct instant now)
{
    int rank = levels_rank_of_slot(&q->config, m->slot);
    if (rank < 0)
        return;
    rank = age_effective_rank(&q->config, rank, m->ready_ms, now.wall_ms);
    buf_lit(out, ",\"effective_level\":");
    json_put_cstr(out, q->config.levels[rank].name);
}

static void put_escalation(struct buf *out, const struct engine_queue *q, const struct message *m)
{
    const struct escalation *e = m->delivery ? m->delivery->escalation : NULL;
    if (!e)
        return;
    const struct level *from = level_of_slot(q, e->from_slot);
    buf_lit(out, ",\"escalated\":{\"at\":");
    encode_time(out, e->at_ms);
    if (from) {
        buf_lit(out, ",\"from\":");
        encode_priority(out, from);
        buf_lit(out, ",\"from_level\":");
        json_put_cstr(out, from->name);
    }
    if (e->actor_len > 0) {
        buf_lit(out, ",\"actor\":");
        json_put_string(out, e->text, e->actor_len);
    }
    if (e->reason_len > 0) {
        buf_lit(out, ",\"reason\":");
        json_put_string(out, e->text + e->actor_len, e->reason_len);
    }
    buf_putc(out, '}');
}

void encode_level(struct buf *out, const struct level *level)
{
    buf_lit(out, "\"priority\":");
    encode_priority(out, level);
    buf_lit(out, ",\"level\":");
    json_put_cstr(out, level->name);
}

static void put_level(struct buf *out, const struct level *level)
{
    if (!level) /* a level that was dropped while dead letters of it remain */
        return;
    buf_putc(out, ',');
    encode_level(out, level);
}

static void put_identity(struct buf *out, const struct engine_queue *q, const struct message *m)
{
    struct message_id id = message_identity(m, q->id);
    buf_lit(out, "{\"message_id\":");
    encode_id(out, &id);
}

static void put_trace(struct buf *out, const struct message *m)
{
    const char *trace = trace_context_find(message_metadata(m), m->metadata_len);
    if (!trace)
        return;
    buf_lit(out, ",\"traceparent\":");
    json_put_string(out, trace, TRACEPARENT_LEN);
}

void encode_claimed(struct buf *out, const struct engine_queue *q, const struct message *m,
                    struct instant now, bool name_queue)
{
    char receipt[RECEIPT_TEXT + 1];
    buf_reserve(out, 512 + message_body_len(m));
    put_identity(out, q, m);
    if (name_queue)
        buf_printf(out, ",\"queue\":\"%s\"", q->name);
    put_payload(out, m, false);
    put_level(out, level_of(q, m));
    buf_lit(out, ",\"receipt_handle\":\"");
    receipt_format(m->delivery->receipt, receipt);
    buf_put(out, receipt, RECEIPT_TEXT);
    buf_lit(out, "\",\"enqueued_at\":");
    encode_time(out, m->enqueued_ms);
    buf_lit(out, ",\"attempt\":");
    buf_put_u64(out, m->attempts);
    buf_lit(out, ",\"visibility_timeout\":");
    encode_seconds(out, m->delivery->lease_ms);
    put_metadata(out, m, false);
    put_trace(out, m);
    put_effective(out, q, m, now);
    buf_putc(out, '}');
}

static void put_time(struct buf *out, const char *name, int64_t wall_ms)
{
    buf_puts(out, name);
    encode_time(out, wall_ms);
}

static void put_reason(struct buf *out, const struct message *m)
{
    if (!m->delivery || !m->delivery->reason)
        return;
    buf_lit(out, ",\"reason\":");
    json_put_string(out, m->delivery->reason, m->delivery->reason_len);
}

static void put_expiry(struct buf *out, const struct message *m)
{
    if (m->expiry)
        put_time(out, ",\"expires_at\":", m->expiry->node.key);
}

static void put_state(struct buf *out, const struct engine_queue *q, const struct message *m)
{
    put_identity(out, q, m);
    buf_lit(out, ",\"state\":\"");
    buf_puts(out, message_state_name(m->state));
    buf_putc(out, '"');
    put_level(out, level_of(q, m));
    buf_lit(out, ",\"attempts\":");
    buf_put_u64(out, m->attempts);
    put_time(out, ",\"enqueued_at\":", m->enqueued_ms);
    put_time(out, ",\"ready_at\":", m->ready_ms);
}

void encode_message(struct buf *out, const struct engine_queue *q, const struct message *m,
                    struct instant now, bool contents)
{
    put_state(out, q, m);
    if (m->state == MESSAGE_READY)
        put_effective(out, q, m, now);
    put_escalation(out, q, m);
    put_expiry(out, m);
    if (m->delivery && m->state == MESSAGE_LEASED) {
        int64_t left_ms = m->delivery->lease_until_ms - now.mono_ms;
        put_time(out, ",\"visible_at\":", now.wall_ms + left_ms);
    }
    put_reason(out, m);
    if (m->delivery && m->state == MESSAGE_DEAD)
        put_time(out, ",\"died_at\":", m->delivery->died_ms);
    if (m->delivery && m->state == MESSAGE_DONE)
        put_time(out, ",\"done_at\":", m->delivery->died_ms);
    if (contents) {
        put_metadata(out, m, false);
        put_payload(out, m, false);
    }
    buf_putc(out, '}');
}

void encode_dead(struct buf *out, const struct engine_queue *q, const struct message *m)
{
    put_identity(out, q, m);
    put_payload(out, m, false);
    put_level(out, level_of(q, m));
    put_reason(out, m);
    buf_lit(out, ",\"attempts\":");
    buf_put_u64(out, m->attempts);
    put_time(out, ",\"original_enqueued_at\":", m->enqueued_ms);
    if (m->delivery)
        put_time(out, ",\"died_at\":", m->delivery->died_ms);
    put_metadata(out, m, false);
    buf_putc(out, '}');
}

void encode_exported(struct buf *out, const struct engine_queue *q, const struct message *m)
{
    put_state(out, q, m);
    buf_lit(out, ",\"dequeue_at\":");
    buf_put_i64(out, m->ready_ms);
    if (m->dedup_len > 0) {
        buf_lit(out, ",\"dedup_key\":");
        json_put_string(out, message_dedup_key(m), m->dedup_len);
    }
    put_expiry(out, m);
    put_escalation(out, q, m);
    put_reason(out, m);
    if (m->delivery && m->state == MESSAGE_DEAD)
        put_time(out, ",\"died_at\":", m->delivery->died_ms);
    put_metadata(out, m, true);
    put_payload(out, m, true);
    buf_lit(out, "}\n");
}

static void put_rule(struct buf *out, const struct schedule *s)
{
    if (s->rule.every_s > 0) {
        buf_lit(out, "\"every_seconds\":");
        buf_put_i64(out, s->rule.every_s);
    } else {
        buf_lit(out, "\"cron\":");
        json_put_cstr(out, s->rule.cron);
    }
    buf_lit(out, ",\"time_zone\":");
    json_put_cstr(out, s->rule.time_zone);
    buf_lit(out, ",\"missed\":");
    json_put_cstr(out, missed_names[s->missed]);
    buf_lit(out, ",\"grace_seconds\":");
    encode_seconds(out, s->grace_ms);
    buf_puts(out, s->paused ? ",\"paused\":true" : ",\"paused\":false");
}

/* A priority of a level that the queue does not have, as it was given. */
static void put_unknown_priority(struct buf *out, const struct priority_ref *priority)
{
    if (priority->kind == PRIORITY_NUMBER)
        buf_put_i64(out, priority->number);
    else
        json_put_cstr(out, priority->name);
}

static void put_draft(struct buf *out, const struct draft *d)
{
    const struct message m = {
        .body = d->body,
        .payload_len = d->payload_len,
        .metadata_len = d->metadata_len,
        .dedup_len = d->dedup_len,
        .kind = d->kind,
    };
    if (d->delay_ms > 0) {
        buf_lit(out, ",\"delay_seconds\":");
        encode_seconds(out, d->delay_ms);
    }
    if (d->ttl_ms != TTL_DEFAULT) {
        buf_lit(out, ",\"ttl_seconds\":");
        encode_seconds(out, d->ttl_ms);
    }
    if (d->dedup_len > 0) {
        buf_lit(out, ",\"dedup_key\":");
        json_put_string(out, message_dedup_key(&m), d->dedup_len);
    }
    put_metadata(out, &m, true);
    put_payload(out, &m, true);
}

void encode_draft(struct buf *out, const struct draft *d)
{
    buf_lit(out, "{\"priority\":");
    if (d->priority.kind == PRIORITY_DEFAULT)
        buf_lit(out, "null");
    else
        put_unknown_priority(out, &d->priority);
    if (d->ready_ms != READY_NOW) {
        buf_lit(out, ",\"dequeue_at\":");
        buf_put_i64(out, d->ready_ms);
    }
    put_draft(out, d);
    buf_putc(out, '}');
}

/* `priority` only if the schedule names one; `level` is where the next message goes. */
void encode_schedule_row(struct buf *out, const struct queue_config *config,
                         const struct schedule *s)
{
    const struct priority_ref *priority = &s->draft.priority;
    int rank = levels_resolve(config, priority);
    buf_lit(out, "{\"name\":");
    json_put_cstr(out, s->name);
    buf_putc(out, ',');
    put_rule(out, s);
    if (priority->kind != PRIORITY_DEFAULT) {
        buf_lit(out, ",\"priority\":");
        if (rank >= 0)
            encode_priority(out, &config->levels[rank]);
        else
            put_unknown_priority(out, priority);
    }
    buf_lit(out, ",\"level\":");
    if (rank >= 0)
        json_put_cstr(out, config->levels[rank].name);
    else
        buf_lit(out, "null");
}

void encode_schedule(struct buf *out, const struct queue_config *config, const struct schedule *s)
{
    encode_schedule_row(out, config, s);
    put_draft(out, &s->draft);
}

/* In another queue the numbers may mean other levels, so the level goes by its name. */
void encode_schedule_definition(struct buf *out, const struct queue_config *config,
                                const struct schedule *s)
{
    int rank = schedule_rank(s, config);
    buf_putc(out, '{');
    put_rule(out, s);
    if (s->draft.priority.kind != PRIORITY_DEFAULT) {
        buf_lit(out, ",\"priority\":");
        if (rank >= 0)
            json_put_cstr(out, config->levels[rank].name);
        else
            put_unknown_priority(out, &s->draft.priority);
    }
    put_draft(out, &s->draft);
}
