#include "engine/postgres/rows.h"

#include "base/mem.h"
#include "engine/postgres/wire.h"

#include <string.h>

enum message_state cell_state(const PGresult *r, int row, int column)
{
    for (int state = MESSAGE_NEW; state < MESSAGE_STATE_COUNT; state++) {
        if (cell_is(r, row, column, message_state_name((enum message_state)state)))
            return (enum message_state)state;
    }
    return MESSAGE_NEW;
}

struct columns columns_of(const PGresult *r)
{
    static const char *const names[COLUMN_COUNT] = {
        "state",    "seq",          "slot",           "step",         "ready_ms",      "born_slot",
        "born_ms",  "enqueued_ms",  "expire_ms",      "attempts",     "kind",          "payload",
        "metadata", "dedup_key",    "reason",         "receipt",      "until_ms",      "lease_ms",
        "ended_ms", "escalated_ms", "escalated_from", "escalated_by", "escalated_why",
    };
    struct columns c;
    for (int i = 0; i < COLUMN_COUNT; i++)
        c.at[i] = PQfnumber(r, names[i]);
    return c;
}

bool row_has(const struct row *row, enum column c)
{
    return row->columns->at[c] >= 0 && !cell_null(row->result, row->at, row->columns->at[c]);
}

int64_t row_int(const struct row *row, enum column c)
{
    return row_has(row, c) ? cell_int(row->result, row->at, row->columns->at[c]) : 0;
}

uint8_t cell_slot(const PGresult *r, int row, int column)
{
    return (uint8_t)(cell_int(r, row, column) & (LEVEL_COUNT_MAX - 1));
}

uint8_t row_slot(const struct row *row, enum column c)
{
    return (uint8_t)(row_int(row, c) & (LEVEL_COUNT_MAX - 1));
}

size_t row_len(const struct row *row, enum column c)
{
    return row_has(row, c) ? (size_t)PQgetlength(row->result, row->at, row->columns->at[c]) : 0;
}

const char *row_bytes(const struct row *row, enum column c, size_t *len)
{
    *len = 0;
    return row_has(row, c) ? cell_bytes(row->result, row->at, row->columns->at[c], len) : "";
}

/* A text, cut to what a message can hold: others may write to the tables. */
static const char *row_short(const struct row *row, enum column c, size_t *len)
{
    const char *bytes = row_bytes(row, c, len);
    *len = *len < UINT16_MAX ? *len : UINT16_MAX;
    return bytes;
}

static void read_body(const struct row *row, struct message *m)
{
    size_t payload_len, metadata_len, key_len;
    const char *payload = row_bytes(row, COLUMN_PAYLOAD, &payload_len);
    const char *metadata = row_short(row, COLUMN_METADATA, &metadata_len);
    const char *key = row_short(row, COLUMN_KEY, &key_len);
    m->body = mem_alloc(payload_len + metadata_len + key_len + 1);
    memcpy(m->body, payload, payload_len);
    memcpy(m->body + payload_len, metadata, metadata_len);
    memcpy(m->body + payload_len + metadata_len, key, key_len);
    m->payload_len = (uint32_t)payload_len;
    m->metadata_len = (uint16_t)metadata_len;
    m->dedup_len = (uint16_t)key_len;
    m->kind = (uint8_t)row_int(row, COLUMN_KIND);
}

static void read_escalation(const struct row *row, struct delivery *d)
{
    if (!row_has(row, COLUMN_ESCALATED))
        return;
    size_t by_len, why_len;
    const char *by = row_short(row, COLUMN_ESCALATED_BY, &by_len);
    const char *why = row_short(row, COLUMN_ESCALATED_WHY, &why_len);
    d->escalation = mem_alloc(sizeof(*d->escalation) + by_len + why_len);
    d->escalation->at_ms = row_int(row, COLUMN_ESCALATED);
    d->escalation->from_slot = row_slot(row, COLUMN_ESCALATED_FROM);
    d->escalation->actor_len = (uint16_t)by_len;
    d->escalation->reason_len = (uint16_t)why_len;
    memcpy(d->escalation->text, by, by_len);
    memcpy(d->escalation->text + by_len, why, why_len);
}

static void read_delivery(const struct row *row, struct message *m, struct instant now)
{
    struct delivery *d = message_delivery(m);
    size_t len;
    const char *receipt = row_bytes(row, COLUMN_RECEIPT, &len);
    if (len == RECEIPT_BYTES)
        memcpy(d->receipt, receipt, len);
    const char *reason = row_short(row, COLUMN_REASON, &len);
    message_set_reason(m, reason, (uint32_t)len);
    d->lease_ms = row_int(row, COLUMN_LEASE);
    d->lease_until_ms = now.mono_ms + row_int(row, COLUMN_UNTIL) - now.wall_ms;
    d->died_ms = row_int(row, COLUMN_ENDED);
    read_escalation(row, d);
}

/* At most what a message can count: the column is wider. */
static uint16_t row_attempts(const struct row *row)
{
    int64_t attempts = row_int(row, COLUMN_ATTEMPTS);
    return attempts < UINT16_MAX ? (uint16_t)attempts : UINT16_MAX;
}

static struct message *read_message(const struct row *row, struct instant now)
{
    struct message *m = message_new((uint64_t)row_int(row, COLUMN_SEQ));
    m->slot = row_slot(row, COLUMN_SLOT);
    m->born_slot = row_slot(row, COLUMN_BORN_SLOT);
    m->ready_ms = row_int(row, COLUMN_READY);
    m->born_ms = row_int(row, COLUMN_BORN);
    m->enqueued_ms = row_int(row, COLUMN_ENQUEUED);
    m->attempts = row_attempts(row);
    m->state = MESSAGE_LEASED;
    if (row_has(row, COLUMN_STATE))
        m->state = (uint8_t)cell_state(row->result, row->at, row->columns->at[COLUMN_STATE]);
    if (row_has(row, COLUMN_EXPIRE))
        message_set_expiry(m, row_int(row, COLUMN_EXPIRE));
    read_body(row, m);
    read_delivery(row, m, now);
    return m;
}

void row_show(struct engine_op *op, const struct row *row, struct instant now)
{
    struct message *m = read_message(row, now);
    if (op->visit)
        op->visit(op, op->queue, m, now);
    message_free(m);
}
