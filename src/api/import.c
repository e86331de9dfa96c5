/* Import: messages as an export wrote them, one a line, stored as they were. Each stands for
 * itself, as in a batch; but a level that the queue does not have refuses them all. */
#include "api/body.h"
#include "api/call.h"
#include "api/encode.h"
#include "api/enqueue.h"
#include "api/results.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define IMPORT_MAP_MAX 64

/* Where the messages of a level go: `map.LOW=3`. The level's name in a line is looked up here
 * first, then among the queue's levels. */
struct import_map {
    struct {
        struct http_slice from;
        struct priority_ref to;
    } pairs[IMPORT_MAP_MAX];
    uint32_t count;
};

/* The fields as they were found. */
struct import {
    struct enqueue e; /* first */
    struct import_item item;
    const struct import_map *map;
    struct http_slice level, from_level;
    bool has_id, has_enqueued, has_ready, has_died;
    int64_t ready_ms; /* used when no dequeue_at gives it exactly */
    struct http_slice reason, actor, why;
};

static bool take_id(struct field *f, void *target)
{
    struct import *im = target;
    im->has_id = f->value->type == JSON_STRING &&
                 message_id_parse(f->value->str, f->value->len, &im->item.origin);
    return im->has_id || field_refuse(f, "must be a message id.");
}

/* A leased message is imported as a ready one, at its place and with its attempts. */
static bool take_state(struct field *f, void *target)
{
    static const char *const names[] = {"ready", "scheduled", "leased", "dead"};
    struct import *im = target;
    int state;
    if (!field_choice(f, names, sizeof(names) / sizeof(names[0]), &state))
        return false;
    im->item.dead = state == 3;
    return true;
}

static bool take_name(struct field *f, struct http_slice *out)
{
    if (!field_text(f, 1, LEVEL_NAME_MAX, &out->data, &out->len))
        return false;
    return !memchr(out->data, '\0', out->len) || field_refuse(f, "must not have a zero byte.");
}

static bool take_level(struct field *f, void *target)
{
    return take_name(f, &((struct import *)target)->level);
}

static bool take_attempts(struct field *f, void *target)
{
    struct import *im = target;
    int64_t attempts;
    if (!field_i64(f, 0, UINT16_MAX, &attempts))
        return false;
    im->item.attempts = (uint16_t)attempts;
    return true;
}

static bool take_enqueued(struct field *f, void *target)
{
    struct import *im = target;
    im->has_enqueued = true;
    return field_time(f, &im->item.enqueued_ms);
}

static bool take_ready(struct field *f, void *target)
{
    struct import *im = target;
    im->has_ready = true;
    return field_time(f, &im->ready_ms);
}

static bool take_expires(struct field *f, void *target)
{
    struct import *im = target;
    return field_null(f) || field_time(f, &im->item.expire_ms);
}

static bool take_died(struct field *f, void *target)
{
    struct import *im = target;
    im->has_died = true;
    return field_time(f, &im->item.died_ms);
}

static bool take_reason(struct field *f, void *target)
{
    struct import *im = target;
    return field_null(f) || field_text(f, 0, REASON_MAX, &im->reason.data, &im->reason.len);
}

static bool take_at(struct field *f, void *target)
{
    struct import *im = target;
    im->item.escalated = true;
    return field_time(f, &im->item.escalated_ms);
}

static bool take_from(struct field *f, void *target)
{
    struct import *im = target;
    return field_priority(f, &im->item.escalated_from);
}

static bool take_from_level(struct field *f, void *target)
{
    return take_name(f, &((struct import *)target)->from_level);
}

static bool take_actor(struct field *f, void *target)
{
    struct import *im = target;
    return field_text(f, 0, ACTOR_MAX, &im->actor.data, &im->actor.len);
}

static bool take_why(struct field *f, void *target)
{
    struct import *im = target;
    return field_text(f, 0, REASON_MAX, &im->why.data, &im->why.len);
}

static bool take_escalated(struct field *f, void *target)
{
    static const struct field_spec specs[] = {
        FIELD("at", take_at),       FIELD("from", take_from),  FIELD("from_level", take_from_level),
        FIELD("actor", take_actor), FIELD("reason", take_why),
    };
    static const struct field_table table = FIELD_TABLE(specs);
    struct import *im = target;
    if (field_null(f))
        return true;
    if (!fields_object(f->doc, f->at, "/escalated", &table, im, f->problem))
        return false;
    return im->item.escalated || field_refuse(f, "must have `at`, the time it was done.");
}

static const struct field_spec import_specs[] = {
    FIELD("message_id", take_id),
    FIELD("state", take_state),
    FIELD("priority", enqueue_take_priority),
    FIELD("level", take_level),
    FIELD("attempts", take_attempts),
    FIELD("enqueued_at", take_enqueued),
    FIELD("ready_at", take_ready),
    FIELD("dequeue_at", enqueue_take_dequeue_at),
    FIELD("dedup_key", enqueue_take_dedup_key),
    FIELD("expires_at", take_expires),
    FIELD("escalated", take_escalated),
    FIELD("reason", take_reason),
    FIELD("died_at", take_died),
    FIELD("metadata", enqueue_take_metadata),
    FIELD("payload", enqueue_take_payload),
    FIELD("payload_base64", enqueue_take_base64),
};
static const struct field_table import_table = FIELD_TABLE(import_specs);

/* The name of a field that every exported line has and this one lacks; NULL when it has all. */
static const char *missing(const struct import *im)
{
    if (!im->has_id)
        return "message_id";
    if (!im->has_enqueued)
        return "enqueued_at";
    if (im->e.draft.ready_ms == READY_NOW && !im->has_ready)
        return "dequeue_at";
    return im->item.dead && !im->has_died ? "died_at" : NULL;
}

static void texts_take(struct import *im)
{
    struct import_item *item = &im->item;
    const struct http_slice *const parts[] = {&im->reason, &im->actor, &im->why};
    struct buf text = {0};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (parts[i]->len > 0)
            buf_put(&text, parts[i]->data, parts[i]->len);
    }
    item->reason_len = (uint16_t)im->reason.len;
    item->actor_len = (uint16_t)im->actor.len;
    item->why_len = (uint16_t)im->why.len;
    item->text = text.data;
}

/* A number may mean another level in the queue that the line comes from. So the level's name
 * counts, and the number only where the line has no name. */
static void level_find(const struct import_map *map, struct http_slice name,
                       struct priority_ref *level)
{
    char number[24];
    if (name.len > 0) {
        level->kind = PRIORITY_NAME;
        memcpy(level->name, name.data, name.len);
        level->name[name.len] = '\0';
    }
    snprintf(number, sizeof(number), "%" PRId64, level->number);
    const char *called = level->kind == PRIORITY_NUMBER ? number : level->name;
    for (uint32_t i = 0; level->kind != PRIORITY_DEFAULT && i < map->count; i++) {
        struct http_slice from = map->pairs[i].from;
        if (from.len == strlen(called) && memcmp(from.data, called, from.len) == 0) {
            *level = map->pairs[i].to;
            return;
        }
    }
}

static void levels_find(struct import *im)
{
    struct import_item *item = &im->item;
    struct priority_ref *own = &im->e.draft.priority;
    item->has_number = im->level.len > 0 && own->kind == PRIORITY_NUMBER;
    item->number = own->number;
    level_find(im->map, im->level, own);
    level_find(im->map, im->from_level, &item->escalated_from);
}

static bool item_from_json(const struct json_doc *doc, const struct import_map *map,
                           struct import_item *item, struct problem *p)
{
    struct import im = {.item = {.expire_ms = INT64_MAX}, .map = map};
    enqueue_init(&im.e);
    if (!fields_object(doc, 0, "", &import_table, &im, p))
        return false;
    const char *lacks = missing(&im);
    if (lacks) {
        problem_set_field(p, "", lacks, strlen(lacks));
        return problem_set(p, STATUS_INVALID_FIELD,
                           "%s is missing; send the line as the export wrote it.", lacks);
    }
    levels_find(&im);
    if (!enqueue_body(&im.e, p))
        return false;
    if (im.e.draft.ready_ms == READY_NOW)
        im.e.draft.ready_ms = im.ready_ms;
    im.item.draft = im.e.draft;
    texts_take(&im);
    *item = im.item;
    return true;
}

struct imports {
    struct results results;
    struct body body;
    struct import_map map;
    struct buf query;          /* decoded, for the map of a large body */
    struct import_item *items; /* those that are handed to the engine */
};

static void imports_add(struct imports *im, const struct json_doc *doc, bool parsed)
{
    struct problem p;
    p.field[0] = p.detail[0] = '\0';
    if (parsed ? item_from_json(doc, &im->map, &im->items[im->results.items], &p)
               : problem_set(&p, STATUS_MALFORMED_JSON, "%s", doc->error))
        results_add_item(&im->results);
    else
        results_add_problem(&im->results, &p);
}

static void item_put(struct call *c, uint32_t n)
{
    const struct import_item *item = &((const struct imports *)c->extra)->items[n];
    struct buf *out = &c->out;
    if (item->status != STATUS_OK) {
        const struct put_item refused = {.draft = {.priority = item->draft.priority},
                                         .status = item->status};
        messages_put_result(c, &refused);
        return;
    }
    buf_lit(out, "{\"message_id\":");
    encode_id(out, &item->id);
    buf_puts(out, item->known ? ",\"known\":true}" : ",\"known\":false}");
}

static void imports_finish(struct call *c)
{
    const struct imports *im = c->extra;
    results_reply(c, &im->results, item_put);
}

static void imports_cleanup(struct call *c)
{
    struct imports *im = c->extra;
    for (uint32_t i = 0; i < im->results.items; i++)
        import_item_fini(&im->items[i]);
    free(im->items);
    results_fini(&im->results);
    buf_fini(&im->query);
    body_fini(&im->body);
}

static bool take_pair(struct field *f, void *target)
{
    struct import_map *map = target;
    size_t prefix = strlen("map.");
    if (map->count == IMPORT_MAP_MAX)
        return field_refuse(f, "is one too many: at most %d levels are mapped.", IMPORT_MAP_MAX);
    map->pairs[map->count].from =
        (struct http_slice){f->value->key + prefix, f->value->key_len - prefix};
    return field_priority(f, &map->pairs[map->count++].to);
}

static enum body_step read_line(struct call *c)
{
    struct imports *im = c->extra;
    struct json_doc *doc = im->body.doc;
    const char *line;
    size_t len;
    if (!call_line(&im->body.at, im->body.end, &line, &len))
        return BODY_END;
    imports_add(im, doc, json_parse(doc, line, len, MESSAGE_TOKENS_MAX));
    return BODY_MORE;
}

static void imports_submit(struct call *c)
{
    struct imports *im = c->extra;
    if (im->results.items == 0) {
        imports_finish(c);
        return;
    }
    c->request.op.verb = ENGINE_IMPORT;
    c->request.op.import.items = im->items;
    c->request.op.import.count = im->results.items;
    call_submit(c, REQUEST_IMPORT, imports_finish);
}

static struct imports *imports_new(struct call *c)
{
    struct imports *im = mem_alloc(sizeof(*im));
    im->results.count = im->results.items = 0;
    im->results.errors = (struct buf){0};
    im->map.count = 0;
    im->query = (struct buf){0};
    im->items = NULL;
    body_init(&im->body, c);
    return im;
}

static uint32_t lines_count(const struct body *b)
{
    const char *at = b->at, *line;
    size_t len;
    uint32_t count = 0;
    while (count <= ENQUEUE_BATCH_MAX && call_line(&at, b->end, &line, &len))
        count++;
    return count;
}

void import_lines(struct call *c)
{
    static const struct field_spec specs[] = {FIELD("map.*", take_pair)};
    static const struct field_table table = FIELD_TABLE(specs);
    struct imports *im = c->extra = imports_new(c);
    c->cleanup = imports_cleanup;
    if (!call_query(c, &table, &im->map))
        return;
    uint32_t count = lines_count(&im->body);
    if (count == 0 || count > ENQUEUE_BATCH_MAX) {
        call_refuse_as(c, STATUS_INVALID_FIELD, NULL, "An import has 1 to 1000 lines.");
        return;
    }
    im->items = mem_alloc(count * sizeof(im->items[0]));
    if (im->body.large) { /* the map points into it */
        im->query = c->api->scratch;
        c->api->scratch = (struct buf){0};
    }
    body_read(c, &im->body, read_line, imports_submit);
}
