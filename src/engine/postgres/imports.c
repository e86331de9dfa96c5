/* Imports: the parameters of the call, and its answer. */
#include "base/mem.h"
#include "engine/postgres/impl.h"
#include "engine/postgres/rows.h"

#include <stdlib.h>

void imports_check(struct pg_queue *q, struct engine_op *op)
{
    for (uint32_t i = 0; i < op->import.count; i++) {
        struct import_item *item = &op->import.items[i];
        bool known = levels_resolve(&q->face.config, &item->draft.priority) >= 0;
        item->status = known ? STATUS_OK : STATUS_UNKNOWN_PRIORITY;
        item->known = false;
    }
}

#define EACH_IMPORT(op, item)                                                                      \
    for (const struct import_item *item = (op)->import.items, *end_ = item + (op)->import.count;   \
         item < end_; item++)                                                                      \
        if (item->status == STATUS_OK)

static uint8_t slot_of(const struct pg_queue *q, const struct import_item *item)
{
    const struct queue_config *config = &q->face.config;
    return config->levels[levels_resolve(config, &item->draft.priority)].slot;
}

static void element_text_or_null(struct params *p, const char *text, size_t len)
{
    if (len > 0)
        element_text(p, text, len);
    else
        element_null(p);
}

static void put_drafts(struct params *p, const struct pg_queue *q, const struct engine_op *op)
{
    const struct draft **drafts = mem_alloc(op->import.count * sizeof(struct draft *));
    uint32_t count = 0;
    EACH_IMPORT(op, item) drafts[count++] = &item->draft;
    params_drafts(p, &q->face.config, drafts, count);
    free(drafts);
}

static void put_times(struct params *p, const struct engine_op *op)
{
    param_array(p, WIRE_INT8_ARRAY);
    EACH_IMPORT(op, item) element_int(p, WIRE_INT8, item->draft.ready_ms);
    param_array_end(p);
    param_array(p, WIRE_INT8_ARRAY);
    EACH_IMPORT(op, item) element_int(p, WIRE_INT8, item->enqueued_ms);
    param_array_end(p);
    param_array(p, WIRE_INT8_ARRAY);
    EACH_IMPORT(op, item) element_int_unless(p, WIRE_INT8, INT64_MAX, item->expire_ms);
    param_array_end(p);
    param_array(p, WIRE_INT4_ARRAY);
    EACH_IMPORT(op, item) element_int(p, WIRE_INT4, item->attempts);
    param_array_end(p);
    param_array(p, WIRE_INT8_ARRAY);
    EACH_IMPORT(op, item)
    element_int_unless(p, WIRE_INT8, INT64_MAX, item->dead ? item->died_ms : INT64_MAX);
    param_array_end(p);
}

static void put_words(struct params *p, const struct pg_queue *q, const struct engine_op *op)
{
    param_array(p, WIRE_TEXT_ARRAY);
    EACH_IMPORT(op, item) element_text_or_null(p, item->text, item->reason_len);
    param_array_end(p);
    param_array(p, WIRE_INT8_ARRAY);
    EACH_IMPORT(op, item)
    element_int_unless(p, WIRE_INT8, INT64_MAX, item->escalated ? item->escalated_ms : INT64_MAX);
    param_array_end(p);
    param_array(p, WIRE_TEXT_ARRAY);
    EACH_IMPORT(op, item)
    {
        const char *actor = item->actor_len > 0 ? item->text + item->reason_len : "";
        element_text_or_null(p, actor, item->actor_len);
    }
    param_array_end(p);
    param_array(p, WIRE_TEXT_ARRAY);
    EACH_IMPORT(op, item)
    {
        const char *why = item->why_len > 0 ? item->text + item->reason_len + item->actor_len : "";
        element_text_or_null(p, why, item->why_len);
    }
    param_array_end(p);
    param_array(p, WIRE_INT2_ARRAY);
    EACH_IMPORT(op, item)
    {
        int from = import_from_slot(item, &q->face.config, slot_of(q, item));
        element_int_unless(p, WIRE_INT2, -1, item->escalated ? from : -1);
    }
    param_array_end(p);
}

static void put_origins(struct params *p, const struct engine_op *op)
{
    param_array(p, WIRE_BYTEA_ARRAY);
    EACH_IMPORT(op, item)
    {
        char key[IMPORT_KEY_BYTES];
        import_key(item, key);
        element_bytes(p, key, sizeof(key));
    }
    param_array_end(p);
}

void imports_put(struct pg_call *c, const struct engine_op *op)
{
    struct params *p = &c->params;
    c->sql = "SELECT * FROM triage.engine_import_at($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,"
             "$15,$16,$17,$18,$19,$20,$21)";
    param_queue(p, c->queue);
    put_drafts(p, c->queue, op);
    put_times(p, op);
    put_words(p, c->queue, op);
    put_origins(p, op);
    param_int(p, WIRE_INT8, IMPORT_KNOWN_MS);
}

void imports_answer(struct pg *pg, struct engine_op *op, struct pg_call *c)
{
    int row = 0;
    int slot = PQfnumber(c->result, "slot"), ready = PQfnumber(c->result, "ready_ms"),
        seq = PQfnumber(c->result, "seq"), known = PQfnumber(c->result, "deduplicated");
    for (uint32_t i = 0; i < op->import.count; i++) {
        struct import_item *item = &op->import.items[i];
        if (item->status != STATUS_OK)
            continue;
        item->known = cell_int(c->result, row, known) != 0;
        item->id = (struct message_id){
            .queue = c->queue->face.id,
            .slot = cell_slot(c->result, row, slot),
            .ready_ms = cell_int(c->result, row, ready),
            .seq = (uint64_t)cell_int(c->result, row, seq),
        };
        if (!item->known)
            draft_fini(&item->draft);
        c->queue->perishable = c->queue->perishable || item->expire_ms != INT64_MAX;
        row++;
    }
    pg->due_ms = 0; /* sweep soon, and learn which delay or time to live ends first */
}
