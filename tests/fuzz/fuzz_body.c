/* The API from request to answer, with a broker that only looks at what it is asked to do: no
 * request, however strange, asks an engine for something outside limits.h; every answer is JSON,
 * every refusal a whole problem document; and what goes in comes out the same.
 *
 * An input is a line "METHOD target content-type receipt", then the body. */
#include "api/api.h"
#include "api/config.h"
#include "api/encode.h"
#include "base/codec.h"
#include "base/json.h"
#include "broker/broker.h"
#include "fuzz.h"
#include "net/budget.h"
#include "net/server.h"

#include <stdio.h>
#include <sys/socket.h>

static struct {
    struct api *api;
    struct account *account;
    struct request *submitted; /* done never fires inside submit */
    struct engine_queue queue;
    struct message *sample;
    struct json_doc doc;
    unsigned answers;
    char cursor[80];
    struct list_cursor after;
} t;

/* What a producer handed in comes back to the consumer. */

static void parse(const struct buf *text)
{
    bool ok = json_parse(&t.doc, text->data, text->len, UINT32_MAX);
    assert(ok);
}

static void check_payload(const struct message *m, bool verbatim)
{
    const struct json_token *v =
        json_get(&t.doc, 0, m->kind == PAYLOAD_BYTES ? "payload_base64" : "payload");
    assert(v);
    if (m->kind == PAYLOAD_BYTES) {
        char *bytes = mem_alloc(base64_room(v->len) + 1);
        size_t len;
        assert(base64_decode(v->str, v->len, bytes, &len));
        assert_same(bytes, len, message_payload(m), m->payload_len);
        free(bytes);
    } else if (m->kind == PAYLOAD_TEXT) {
        assert(v->type == JSON_STRING);
        assert_same(v->str, v->len, message_payload(m), m->payload_len);
    } else if (verbatim) {
        assert_same(v->raw, v->raw_len, message_payload(m), m->payload_len);
    }
    const struct json_token *metadata = json_get(&t.doc, 0, "metadata");
    assert(metadata && metadata->type == JSON_OBJECT);
    if (verbatim && m->metadata_len > 0)
        assert_same(metadata->raw, metadata->raw_len, message_metadata(m), m->metadata_len);
}

static void check_encoded(const struct message *m)
{
    struct buf out = {0};
    struct instant now = {0};
    encode_claimed(&out, &t.queue, m, now, true);
    parse(&out);
    check_payload(m, true);
    assert(out.len <= ENCODED_MESSAGE_MAX);
    buf_clear(&out);
    encode_message(&out, &t.queue, m, now, true);
    parse(&out);
    check_payload(m, true);
    buf_clear(&out);
    encode_dead(&out, &t.queue, m);
    parse(&out);
    check_payload(m, true);
    buf_clear(&out);
    encode_exported(&out, &t.queue, m);
    assert(memchr(out.data, '\n', out.len) == out.data + out.len - 1);
    parse(&out);
    check_payload(m, false);
    if (m->dedup_len > 0) {
        const struct json_token *key = json_get(&t.doc, 0, "dedup_key");
        assert(key);
        assert_same(key->str, key->len, message_dedup_key(m), m->dedup_len);
    }
    buf_fini(&out);
}

static struct message *message_of_draft(const struct draft *d)
{
    struct message *m = message_new(7);
    struct delivery *delivery = message_delivery(m);
    delivery->lease_ms = 30000;
    m->body = exact_copy(d->body, (size_t)d->payload_len + d->metadata_len + d->dedup_len);
    m->payload_len = d->payload_len;
    m->metadata_len = d->metadata_len;
    m->dedup_len = d->dedup_len;
    m->kind = d->kind;
    m->state = MESSAGE_LEASED;
    m->attempts = 1;
    return m;
}

static void check_draft(const struct draft *d)
{
    assert(d->payload_len <= PAYLOAD_MAX);
    assert(d->metadata_len <= METADATA_MAX);
    assert(d->dedup_len <= DEDUP_KEY_MAX);
    assert(d->kind <= PAYLOAD_BYTES);
    assert(d->ready_ms == READY_NOW || (d->ready_ms >= -TIME_MS_MAX && d->ready_ms <= TIME_MS_MAX));
    assert(d->delay_ms >= 0 && d->delay_ms <= DELAY_SECONDS_MAX * 1000);
    assert(d->ttl_ms == TTL_DEFAULT || (d->ttl_ms > 0 && d->ttl_ms <= TTL_SECONDS_MAX * 1000));
    if (d->kind == PAYLOAD_TEXT)
        assert(utf8_valid(d->body, d->payload_len));
    struct message *m = message_of_draft(d);
    check_encoded(m);
    message_free(m);
}

/* The broker: looks, and says yes. */

static void put(struct request *r)
{
    assert(r->op.put.count >= 1 && r->op.put.count <= ENQUEUE_BATCH_MAX);
    for (uint32_t i = 0; i < r->op.put.count; i++) {
        struct put_item *item = &r->op.put.items[i];
        check_draft(&item->draft);
        item->status = levels_resolve(&t.queue.config, &item->draft.priority) < 0
                           ? STATUS_UNKNOWN_PRIORITY
                           : STATUS_OK;
        item->id = (struct message_id){.queue = 1, .seq = i};
        item->deduplicated = item->draft.dedup_len > 3;
    }
}

static void import(struct request *r)
{
    assert(r->op.import.count >= 1 && r->op.import.count <= ENQUEUE_BATCH_MAX);
    for (uint32_t i = 0; i < r->op.import.count; i++) {
        struct import_item *item = &r->op.import.items[i];
        check_draft(&item->draft);
        assert(item->draft.ready_ms != READY_NOW);
        assert(item->enqueued_ms >= -TIME_MS_MAX && item->enqueued_ms <= TIME_MS_MAX);
        assert(item->reason_len <= REASON_MAX && item->why_len <= REASON_MAX);
        assert(item->actor_len <= ACTOR_MAX);
        size_t len = (size_t)item->reason_len + item->actor_len + item->why_len;
        assert(len == 0 || utf8_valid(item->text, len));
        item->status = levels_resolve(&t.queue.config, &item->draft.priority) < 0
                           ? STATUS_UNKNOWN_PRIORITY
                           : STATUS_OK;
        item->id = item->origin;
        item->known = item->attempts > 3;
    }
}

static void settle(struct request *r)
{
    assert(r->op.settle.count >= 1 && r->op.settle.count <= ACK_BATCH_MAX);
    assert(r->op.settle.reason_len <= REASON_MAX);
    if (r->op.verb == ENGINE_NACK)
        assert(r->op.settle.delay_ms >= -1 && r->op.settle.delay_ms <= DELAY_SECONDS_MAX * 1000);
    if (r->op.verb == ENGINE_EXTEND)
        assert(r->op.settle.lease_ms >= 0 && r->op.settle.lease_ms <= LEASE_SECONDS_MAX * 1000);
    if (r->op.settle.reason_len > 0)
        assert(utf8_valid(r->op.settle.reason, r->op.settle.reason_len));
    for (uint32_t i = 0; i < r->op.settle.count; i++) {
        struct settle_item *item = &r->op.settle.items[i];
        assert(item->id.slot < LEVEL_COUNT_MAX);
        item->state = MESSAGE_READY;
        item->status = item->receipt[0] & 1 ? STATUS_RECEIPT_EXPIRED : STATUS_OK;
    }
}

static void claim(struct request *r)
{
    assert(r->claim.max >= 1 && r->claim.max <= CLAIM_MAX);
    assert(r->claim.wait_ms >= 0 && r->claim.wait_ms <= WAIT_SECONDS_MAX * 1000);
    assert(r->op.claim.lease_ms >= -1 && r->op.claim.lease_ms <= LEASE_SECONDS_MAX * 1000);
    r->op.visit(&r->op, &t.queue, t.sample, (struct instant){0});
}

static void show(struct request *r)
{
    r->op.visit(&r->op, &t.queue, t.sample, (struct instant){0});
}

static void list(struct request *r)
{
    assert(r->op.list.limit >= 1 && r->op.list.limit <= LIST_MAX);
    t.after = r->op.list.after;
    show(r);
    r->op.list.found = 1;
    r->op.list.next = t.after;
    r->op.list.next.seq++;
    r->op.list.more = r->op.list.limit == 1;
}

static void bulk(struct request *r)
{
    assert(r->op.bulk.id_count <= LIST_MAX);
    for (uint32_t i = 0; i < r->op.bulk.id_count; i++)
        assert(r->op.bulk.ids[i].slot < LEVEL_COUNT_MAX);
    assert(r->portions.per_second >= 0);
    r->count = r->op.bulk.id_count;
}

static void check_config(const struct queue_config *config)
{
    struct queue_config again = *config, fresh;
    struct buf first = {0}, second = {0};
    struct problem p = {0};
    bool known = config_profile("levels", &fresh);
    assert(known);
    assert(config->level_count >= 1 && config->level_count <= LEVEL_COUNT_MAX);
    assert(config->default_rank < config->level_count);
    assert(config->visibility_ms >= 0 && config->max_attempts > 0);
    config_put(&first, t.queue.name, config);
    parse(&first);
    known =
        config_patch(first.data, first.len, &(struct config_change){.is_new = false}, &again, &p);
    assert(known);
    config_put(&second, t.queue.name, &again);
    assert_same(first.data, first.len, second.data, second.len);
    known =
        config_patch(first.data, first.len, &(struct config_change){.is_new = true}, &fresh, &p);
    assert(known);
    buf_clear(&second);
    config_put(&second, t.queue.name, &fresh);
    assert_same(first.data, first.len, second.data, second.len);
    buf_fini(&first);
    buf_fini(&second);
}

static void configure(struct request *r)
{
    struct queue_config config = t.queue.config;
    bool is_new = r->queue[0] == 'n';
    memcpy(t.queue.name, r->queue, sizeof(t.queue.name));
    r->status = r->configure.edit(r, &config, is_new);
    r->created = is_new;
    if (r->status != STATUS_OK)
        return;
    check_config(&config);
}

static void facts(struct request *r)
{
    struct queue_facts facts = {.queue = &t.queue, .view = &t.queue.view, .oldest_ready_ms = 1500};
    r->show.each(r, &facts);
}

static void check_note(const struct escalate_note *note)
{
    assert(note->actor_len <= ACTOR_MAX && note->reason_len <= REASON_MAX);
    assert(utf8_valid(note->actor, note->actor_len));
    assert(utf8_valid(note->reason, note->reason_len));
}

static void move(struct request *r)
{
    assert(r->op.escalate.count == 1);
    assert(r->priority.kind != PRIORITY_DEFAULT);
    check_note(&r->op.escalate.note);
    struct escalate_item *item = &r->op.escalate.items[0];
    item->status = item->id.seq & 1 ? STATUS_NOT_PENDING : STATUS_OK;
}

static void move_many(struct request *r)
{
    assert(r->priority.kind != PRIORITY_DEFAULT);
    assert(r->escalate.filter->older_than_ms >= -1);
    check_note(&r->op.escalate.note);
    bool leased = t.sample->state == MESSAGE_LEASED;
    t.sample->state = MESSAGE_READY;
    r->escalate.matched = filter_matches(r->escalate.filter, t.sample, -1, 1000);
    t.sample->state = leased ? MESSAGE_LEASED : MESSAGE_READY;
    r->count = r->escalate.dry_run ? 0 : r->escalate.matched;
}

static void explain(struct request *r)
{
    *r->position.answer = (struct position){.id = r->op.one.id,
                                            .state = (enum message_state)(1 + r->op.one.id.seq % 5),
                                            .level = t.queue.config.levels[2],
                                            .effective = t.queue.config.levels[1],
                                            .ready_ms = r->op.one.id.ready_ms,
                                            .wait_for = (uint32_t)r->op.one.id.seq & 7,
                                            .claims_per_second = 0.3,
                                            .start_ms = r->op.one.id.ready_ms};
}

static void nothing(struct request *r)
{
    (void)r;
}

static void (*const serve[REQUEST_KIND_COUNT])(struct request *r) = {
    [REQUEST_PUT] = put,           [REQUEST_SETTLE] = settle,
    [REQUEST_CANCEL] = nothing,    [REQUEST_GET] = show,
    [REQUEST_LIST] = list,         [REQUEST_CLAIM] = claim,
    [REQUEST_PURGE] = bulk,        [REQUEST_REDRIVE] = bulk,
    [REQUEST_DEAD_DROP] = bulk,    [REQUEST_CONFIGURE] = configure,
    [REQUEST_DELETE] = nothing,    [REQUEST_QUEUE] = facts,
    [REQUEST_QUEUES] = facts,      [REQUEST_STATS] = facts,
    [REQUEST_ESCALATE] = move,     [REQUEST_ESCALATE_ALL] = move_many,
    [REQUEST_POSITION] = explain,  [REQUEST_IMPORT] = import,
    [REQUEST_PLACEMENT] = nothing,
};

void broker_submit(struct broker_port *port, struct request *r)
{
    (void)port;
    assert(!t.submitted);
    t.submitted = r;
}

bool broker_is_late(const struct broker_port *port)
{
    (void)port;
    return false;
}

void broker_later(struct broker_port *port, struct request *r)
{
    (void)port;
    (void)r;
    abort();
}

void broker_hangup(struct request *r)
{
    (void)r;
    assert(!"nobody hangs up");
}

bool broker_speaks(struct broker *b)
{
    (void)b;
    return true;
}

enum status broker_health(struct broker *b, struct buf *detail)
{
    (void)b;
    (void)detail;
    return STATUS_OK;
}

const struct engine_kind *broker_engine_kind(const struct broker *b)
{
    (void)b;
    return engine_kind_at(0);
}

void broker_forward(struct broker_port *port, struct forward *f)
{
    (void)port;
    (void)f;
    abort(); /* no queue moves here */
}

void broker_forward_cancel(struct broker_port *port, struct forward *f)
{
    (void)port;
    (void)f;
}

bool broker_moves(const struct broker *b)
{
    (void)b;
    return false;
}

uint32_t broker_queue_count(struct broker *b)
{
    (void)b;
    return 1;
}

const struct level_times *broker_level_times(const struct queue_facts *facts, uint8_t slot)
{
    (void)facts;
    (void)slot;
    return NULL;
}

void broker_cell_each(struct broker *b, engine_cell_visit *visit, void *ctx)
{
    (void)b;
    (void)visit;
    (void)ctx;
}

void broker_partition_each(const struct queue_facts *facts, engine_partition_visit *visit,
                           void *ctx)
{
    (void)facts;
    (void)visit;
    (void)ctx;
}

void broker_counters(struct broker *b, struct broker_counters *counters,
                     struct engine_counters *engine)
{
    (void)b;
    *counters = (struct broker_counters){0};
    *engine = (struct engine_counters){0};
}

/* The net. */

static void check_problem(int status, const void *body, size_t len)
{
    int64_t said;
    bool ok = json_parse(&t.doc, body, len, 16);
    assert(ok);
    assert(json_i64(json_get(&t.doc, 0, "status"), &said) && said == status);
    const struct json_token *type = json_get(&t.doc, 0, "type");
    assert(type && type->len > 11 && memcmp(type->str, "urn:triage:", 11) == 0);
    assert(json_get(&t.doc, 0, "title") && json_get(&t.doc, 0, "detail"));
}

struct http_slice http_header(const struct http_request *req, const char *name)
{
    (void)req;
    (void)name;
    return (struct http_slice){NULL, 0};
}

bool http_body_take(struct http_request *req, struct buf *memory)
{
    (void)req;
    (void)memory;
    return false;
}

bool http_wait(struct http_request *req, unsigned places)
{
    (void)req;
    (void)places;
    return true;
}

struct account *http_account(const struct http_request *req)
{
    (void)req;
    return t.account;
}

void http_respond(struct http_request *req, int status, const char *content_type,
                  const char *extra_headers, const void *body, size_t body_len)
{
    (void)req;
    t.answers++;
    assert(status >= 200 && status < 600);
    if (extra_headers && sscanf(extra_headers, "X-Next-Cursor: %79s", t.cursor) != 1)
        t.cursor[0] = '\0';
    if (status >= 400) {
        assert(strcmp(content_type, "application/problem+json") == 0);
        check_problem(status, body, body_len);
    } else if (content_type && strcmp(content_type, "application/json") == 0 && body_len > 0) {
        bool ok = json_parse(&t.doc, body, body_len, UINT32_MAX);
        assert(ok);
    }
}

static bool admitted(struct http_request *req)
{
    struct http_verdict verdict = {0};
    api_admit(req, t.api, &verdict);
    assert((verdict.status == 0) == (verdict.body.len == 0));
    buf_fini(&verdict.body);
    req->fresh = true;
    return verdict.status == 0 && req->body_len <= verdict.body_max;
}

static void ask(struct http_request *req)
{
    t.answers = 0;
    t.cursor[0] = '\0';
    if (!admitted(req))
        return;
    api_handle(req, t.api);
    while (t.submitted) {
        struct request *r = t.submitted;
        t.submitted = NULL;
        r->status = STATUS_OK;
        serve[r->kind](r);
        r->done(r);
    }
    assert(t.answers == 1);
}

/* The next page starts where the last one ended. */
static void ask_next_page(const struct http_request *first)
{
    struct http_request req = *first;
    struct list_cursor before = t.after;
    char query[120];
    req.query = query;
    req.query_len = (size_t)snprintf(query, sizeof(query), "limit=1&after=%s", t.cursor);
    ask(&req);
    assert(t.after.phase == before.phase && t.after.slot == before.slot);
    assert(t.after.ready_ms == before.ready_ms && t.after.seq == before.seq + 1);
}

static void open_api(void)
{
    static const struct api_options options = {
        .version = "0", .engine = "memory", .durability = "none", .openapi = "", .openapi_len = 0};
    static char body[] = "payload{\"a\":1}key";
    struct draft d = {.body = body, .payload_len = 7, .metadata_len = 7, .dedup_len = 3};
    struct budget_limits limits = {.max = {1ull << 40, 1000}};
    t.account = account_open(budget_new(&limits), &(struct sockaddr){.sa_family = AF_UNIX});
    t.api = api_new(NULL, &options);
    t.sample = message_of_draft(&d);
    json_init(&t.doc);
    snprintf(t.queue.name, sizeof(t.queue.name), "q");
    bool known = config_profile("levels", &t.queue.config);
    assert(known);
    for (uint8_t i = 0; i < t.queue.config.level_count; i++)
        t.queue.config.levels[i].slot = i;
}

static struct http_slice word_take(char **at, char *end)
{
    char *from = *at;
    char *stop = memchr(from, ' ', (size_t)(end - from));
    stop = stop ? stop : end;
    *at = stop < end ? stop + 1 : end;
    return (struct http_slice){from, (size_t)(stop - from)};
}

/* What net hands over: a target as net/parse takes it. */
static bool target_take(struct http_request *req, struct http_slice target)
{
    if (target.len == 0 || target.data[0] != '/')
        return false;
    for (size_t i = 0; i < target.len; i++) {
        unsigned char c = (unsigned char)target.data[i];
        if (c <= ' ' || c >= 0x7f || c == '#')
            return false;
    }
    const char *mark = memchr(target.data, '?', target.len);
    req->path = target.data;
    req->path_len = mark ? (size_t)(mark - target.data) : target.len;
    req->query = mark ? mark + 1 : NULL;
    req->query_len = mark ? target.len - req->path_len - 1 : 0;
    return req->path_len <= HTTP_PATH_MAX;
}

static enum http_verb verb_of(struct http_slice word)
{
    static const char *const names[] = {"GET", "HEAD", "POST", "PUT", "DELETE"};
    for (int i = 0; i < 5; i++) {
        if (strlen(names[i]) == word.len && memcmp(names[i], word.data, word.len) == 0)
            return (enum http_verb)i;
    }
    return VERB_OTHER;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!t.api)
        open_api();
    const uint8_t *line_end = size > 0 ? memchr(data, '\n', size) : NULL;
    if (!line_end)
        return 0;
    size_t line_len = (size_t)(line_end - data), body_len = size - line_len - 1;
    char *line = exact_copy(data, line_len), *body = exact_copy(line_end + 1, body_len);
    char *at = line, *end = line + line_len;
    struct http_request req = {.body = body, .body_len = body_len, .has_body = body_len > 0};
    req.verb = verb_of(word_take(&at, end));
    bool ok = target_take(&req, word_take(&at, end));
    req.content_type = word_take(&at, end);
    if (req.content_type.len == 0)
        req.content_type = (struct http_slice){"application/json", 16};
    req.receipt = word_take(&at, end);
    if (ok) {
        ask(&req);
        if (t.cursor[0])
            ask_next_page(&req);
    }
    free(line);
    free(body);
    return 0;
}
