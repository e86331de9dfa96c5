/* The handlers, from request to answer. */
#include "api/auth.h"
#include "api/call.h"
#include "api/mover.h"
#include "unit/api_rig.h"

#include <stdio.h>
#include <string.h>

/* One claimed message: its id and receipt. */
static void claim_message(char id[64], char receipt[64])
{
    assert_int_equal(ask(VERB_POST, "/v1/queues/q/messages/claim", NULL), 200);
    const struct json_token *list = json_get(&t.doc, 0, "messages");
    assert_int_equal(list->count, 1);
    uint32_t message = json_first(&t.doc, (uint32_t)(list - t.doc.tokens));
    const struct json_token *v = json_get(&t.doc, message, "message_id");
    snprintf(id, 64, "%.*s", (int)v->len, v->str);
    v = json_get(&t.doc, message, "receipt_handle");
    snprintf(receipt, 64, "%.*s", (int)v->len, v->str);
}

static void path_of(char out[160], const char *id, const char *verb)
{
    snprintf(out, 160, "/v1/queues/q/messages/%s%s", id, verb);
}

static void a_message_goes_in_out_and_away(void **state)
{
    char id[64], receipt[64], path[160];
    struct http_request req;
    (void)state;
    assert_int_equal(ask(VERB_POST, "/v1/queues/q/messages",
                         "{\"payload\":\"hi\",\"priority\":9,\"metadata\":{\"a\":1}}"),
                     201);
    assert_memory_equal(text("message_id"), "msg_", 4);
    claim_message(id, receipt);
    assert_string_equal(t.headers, "Cache-Control: no-store\r\n");
    assert_non_null(strstr(buf_cstr(&t.body), "\"payload\":\"hi\",\"priority\":9,\"level\":\"9\""));
    assert_non_null(strstr(buf_cstr(&t.body), "\"attempt\":1,\"visibility_timeout\":30,"
                                              "\"metadata\":{\"a\":1},\"effective_level\":\"9\""));
    path_of(path, id, "");
    assert_int_equal(ask(VERB_GET, path, NULL), 200);
    assert_string_equal(text("state"), "leased");
    assert_non_null(json_get(&t.doc, 0, "visible_at"));
    assert_int_equal(ask(VERB_DELETE, path, NULL), 400);
    problem_is(400, "receipt-missing", NULL);
    assert_int_equal(ask_as(&req, &(struct ask){.receipt = "rh_x"}, VERB_DELETE, path, NULL), 409);
    assert_int_equal(ask_as(&req, &(struct ask){.receipt = receipt}, VERB_DELETE, path, NULL), 204);
    assert_int_equal(t.body.len, 0);
    assert_int_equal(ask_as(&req, &(struct ask){.receipt = receipt}, VERB_DELETE, path, NULL), 404);
    assert_int_equal(ask(VERB_GET, "/v1/queues/q/messages?max=5", NULL), 200);
    assert_string_equal(buf_cstr(&t.body), "{\"messages\":[]}");
}

static void receipts_nack_release_and_extend(void **state)
{
    char id[64], receipt[64], path[160], body[200];
    (void)state;
    ask(VERB_PUT, "/v1/queues/q", "{\"max_attempts\":2,\"retry\":{\"backoff\":\"none\"}}");
    ask(VERB_POST, "/v1/queues/q/messages", "{\"payload\":[1,2]}");
    claim_message(id, receipt);
    path_of(path, id, "/extend");
    snprintf(body, sizeof(body), "{\"receipt_handle\":\"%s\"}", receipt);
    ask(VERB_POST, path, body);
    problem_is(422, "invalid-field", "/visibility_timeout_seconds");
    snprintf(body, sizeof(body), "{\"receipt_handle\":\"%s\",\"visibility_timeout_seconds\":60}",
             receipt);
    assert_int_equal(ask(VERB_POST, path, body), 200);
    assert_non_null(json_get(&t.doc, 0, "urgent_waiting"));
    path_of(path, id, "/release");
    snprintf(body, sizeof(body), "{\"receipt_handle\":\"%s\"}", receipt);
    assert_int_equal(ask(VERB_POST, path, body), 200);
    assert_string_equal(text("state"), "ready");
    ask(VERB_POST, path, body);
    problem_is(409, "receipt-expired", NULL);
    for (int i = 0; i < 2; i++) {
        claim_message(id, receipt);
        path_of(path, id, "/nack");
        snprintf(body, sizeof(body), "{\"receipt_handle\":\"%s\",\"reason\":\"b\\u00e4d\"}",
                 receipt);
        assert_int_equal(ask(VERB_POST, path, body), 200);
    }
    assert_string_equal(text("state"), "dead");
    assert_int_equal(ask(VERB_GET, "/v1/queues/q/dead", NULL), 200);
    assert_non_null(strstr(buf_cstr(&t.body), "\"payload\":[1,2]"));
    assert_non_null(strstr(buf_cstr(&t.body), "\"reason\":\"bäd\",\"attempts\":2"));
    snprintf(path, sizeof(path), "/v1/queues/q/dead/%s", id);
    assert_int_equal(ask(VERB_GET, path, NULL), 200);
    assert_int_equal(ask(VERB_POST, "/v1/queues/q/dead/redrive", NULL), 200);
    assert_string_equal(buf_cstr(&t.body), "{\"redriven\":1}");
    ask(VERB_GET, path, NULL);
    problem_is(404, "message-not-found", NULL);
    ask(VERB_DELETE, path, NULL);
    problem_is(404, "message-not-found", NULL);
}

#define LARGE_COUNT 700

/* A batch whose body is large, of messages that are 2 kB each, with `end` behind it. */
static void large_batch(struct buf *body, const char *between, const char *end)
{
    for (int i = 0; i < LARGE_COUNT; i++) {
        buf_puts(body, i > 0 ? between : "");
        buf_printf(body, "{\"payload\":\"%0*d\"}", 2000, i);
    }
    buf_puts(body, end);
    buf_cstr(body);
}

/* Work of one turn is counted in steps: each is one message, or BODY_STEP bytes. */
static void a_large_batch_is_read_in_steps(void **state)
{
    (void)state;
    struct http_request req;
    struct buf body = {0};
    const struct ask lines = {.type = "application/x-ndjson"};
    buf_puts(&body, "{\"messages\":[");
    large_batch(&body, ",", "]}");
    t.turns = 0;
    assert_int_equal(ask(VERB_POST, "/v1/queues/q/messages/batch", body.data), 200);
    assert_int_equal(json_get(&t.doc, 0, "results")->count, LARGE_COUNT);
    assert_true(t.turns > LARGE_COUNT + body.len / (256 * 1024));
    buf_clear(&body);
    large_batch(&body, "\n", "\n");
    t.turns = 0;
    assert_int_equal(ask_as(&req, &lines, VERB_POST, "/v1/queues/q/messages/batch", body.data),
                     200);
    assert_int_equal(json_get(&t.doc, 0, "results")->count, LARGE_COUNT);
    assert_true(t.turns > LARGE_COUNT);
    buf_fini(&body);
}

static void a_large_batch_that_is_malformed_stores_nothing(void **state)
{
    (void)state;
    struct buf body = {0};
    assert_int_equal(ask(VERB_PUT, "/v1/queues/none", "{}"), 201);
    buf_puts(&body, "{\"messages\":[");
    large_batch(&body, ",", "]");
    t.turns = 0;
    ask(VERB_POST, "/v1/queues/none/messages/batch", body.data);
    problem_is(400, "malformed-json", NULL);
    assert_true(t.turns > 0);
    assert_int_equal(ask(VERB_GET, "/v1/queues/none/export", NULL), 200);
    assert_int_equal(t.body.len, 0);
    buf_fini(&body);
}

static void a_batch_tells_each_message_its_own(void **state)
{
    struct http_request req;
    const struct ask lines = {.type = "application/x-ndjson"};
    (void)state;
    assert_int_equal(ask(VERB_POST, "/v1/queues/q/messages/batch",
                         "{\"messages\":[{\"payload\":1},{},{\"payload\":2,\"priority\":77},5]}"),
                     200);
    assert_non_null(strstr(buf_cstr(&t.body), "unknown-priority"));
    assert_non_null(strstr(buf_cstr(&t.body), "invalid-field"));
    assert_int_equal(json_get(&t.doc, 0, "results")->count, 4);
    assert_int_equal(ask_as(&req, &lines, VERB_POST, "/v1/queues/q/messages/batch",
                            "{\"payload\":3}\n\n{broken\r\n{\"payload\":4}"),
                     200);
    assert_int_equal(json_get(&t.doc, 0, "results")->count, 3);
    assert_int_equal(ask_as(&req, &lines, VERB_POST, "/v1/queues/q/messages/batch", "{\n"), 200);
    ask(VERB_POST, "/v1/queues/q/messages/batch", "{\"messages\":[]}");
    problem_is(422, "invalid-field", "/messages");
    ask(VERB_POST, "/v1/queues/q/messages/batch", "{\"messages\":{}}");
    problem_is(422, "invalid-field", "/messages");
    ask_as(&req, &lines, VERB_POST, "/v1/queues/q/messages/batch", "\n");
    problem_is(422, "invalid-field", "/messages");
    assert_int_equal(ask(VERB_POST, "/v1/queues/q/messages/claim", "{\"max\":10}"), 200);
    assert_int_equal(json_get(&t.doc, 0, "messages")->count, 3);
    ask(VERB_POST, "/v1/queues/q/messages/ack",
        "{\"receipts\":[{\"message_id\":\"m\",\"receipt_handle\":\"r\"},{}]}");
    assert_int_equal(t.status, 200);
    assert_int_equal(json_get(&t.doc, 0, "results")->count, 2);
}

static void what_was_exported_can_be_imported(void **state)
{
    struct http_request req;
    const struct ask lines = {.type = "application/x-ndjson"};
    (void)state;
    ask(VERB_POST, "/v1/queues/q/messages", "{\"payload\":{\"a\":\n1},\"dedup_key\":\"k\"}");
    ask(VERB_POST, "/v1/queues/q/messages", "{\"payload_base64\":\"AAH/\",\"priority\":9}");
    ask(VERB_PUT, "/v1/queues/other", "{}");
    assert_int_equal(ask(VERB_GET, "/v1/queues/q/export", NULL), 200);
    struct buf exported = {0};
    buf_put(&exported, t.body.data, t.body.len);
    buf_puts(&exported, "\n{\"message_id\":\"msg_0\"}\n{\n");
    const char *body = buf_cstr(&exported);
    static const char *const known[] = {"false", "true"};
    for (int again = 0; again < 2; again++) {
        ask_as(&req, &lines, VERB_POST, "/v1/queues/other/messages/import", body);
        assert_int_equal(t.status, 200);
        const struct json_token *results = json_get(&t.doc, 0, "results");
        assert_int_equal(results->count, 4);
        uint32_t at = json_first(&t.doc, (uint32_t)(results - t.doc.tokens));
        const struct json_token *k = json_get(&t.doc, at, "known");
        assert_memory_equal(k->raw, known[again], k->raw_len);
        assert_non_null(strstr(buf_cstr(&t.body), "/message_id"));
        assert_non_null(strstr(buf_cstr(&t.body), "malformed-json"));
    }
    buf_fini(&exported);
    ask(VERB_GET, "/v1/queues/other/export?state=dead", NULL);
    assert_int_equal(t.body.len, 0);
    ask(VERB_GET, "/v1/queues/other/export?state=alive", NULL);
    problem_is(422, "invalid-field", "/state");
    ask(VERB_POST, "/v1/queues/other/messages/import", "{}");
    problem_is(415, "unsupported-media-type", NULL);
    ask_as(&req, &lines, VERB_POST, "/v1/queues/other/messages/import", "\n \n");
    problem_is(422, "invalid-field", NULL);
}

static void an_export_is_continued_by_its_cursor(void **state)
{
    unsigned lines = 0;
    char target[200] = "/v1/queues/q/export?limit=7";
    (void)state;
    for (int i = 0; i < 40; i++)
        ask(VERB_POST, "/v1/queues/q/messages", "{\"payload\":{\"a\":\n1},\"dedup_key\":null}");
    for (int page = 0; page < 10; page++) {
        assert_int_equal(ask(VERB_GET, target, NULL), 200);
        assert_string_equal(t.type, "application/x-ndjson");
        for (size_t i = 0; i < t.body.len; i++)
            lines += t.body.data[i] == '\n';
        char *cursor = strstr(t.headers, "X-Next-Cursor: ");
        if (!cursor)
            break;
        cursor[strcspn(cursor, "\r")] = '\0';
        snprintf(target, sizeof(target), "/v1/queues/q/export?limit=7&after=%s", cursor + 15);
    }
    assert_int_equal(lines, 40);
    ask(VERB_GET, "/v1/queues/q/export?after=1-2", NULL);
    problem_is(422, "invalid-field", "/after");
    assert_int_equal(ask(VERB_GET, "/v1/queues/q/export", NULL), 200);
    lines = 0;
    for (size_t i = 0; i < t.body.len; i++)
        lines += t.body.data[i] == '\n';
    assert_int_equal(lines, 40); /* fetched in several steps */
}

static void a_priority_is_changed_and_a_place_explained(void **state)
{
    char target[128], id[64];
    (void)state;
    assert_int_equal(ask(VERB_POST, "/v1/queues/q/messages", "{\"payload\":1,\"priority\":2}"),
                     201);
    snprintf(id, sizeof(id), "%s", text("message_id"));
    snprintf(target, sizeof(target), "/v1/queues/q/messages/%s/priority", id);
    assert_int_equal(
        ask(VERB_POST, target, "{\"priority\":7,\"actor\":\"ann\",\"reason\":\"vip\"}"), 200);
    assert_string_equal(text("priority"), "7");
    assert_non_null(strstr(buf_cstr(&t.body), "\"actor\":\"ann\",\"reason\":\"vip\""));
    ask(VERB_POST, target, "{\"priority\":77}");
    problem_is(422, "unknown-priority", NULL);
    ask(VERB_POST, target, "{\"actor\":\"ann\"}");
    problem_is(422, "invalid-field", "/priority");
    snprintf(target, sizeof(target), "/v1/queues/q/messages/%s/position", id);
    assert_int_equal(ask(VERB_GET, target, NULL), 200);
    assert_string_equal(text("messages_ahead"), "17");
    assert_string_equal(text("level"), "5");
    assert_string_equal(text("effective_level"), "6");
    assert_non_null(strstr(buf_cstr(&t.body), "\"blocked_by\":[\"pause\",\"limit\"]"));
    assert_non_null(strstr(buf_cstr(&t.body), "\"estimated_start\":null"));
}

static void a_message_that_is_gone_after_its_change_was_changed(void **state)
{
    char target[160];
    (void)state;
    t.vanish = true;
    assert_int_equal(ask(VERB_POST, "/v1/queues/q/messages", "{\"payload\":1}"), 201);
    path_of(target, text("message_id"), "/priority");
    assert_int_equal(ask(VERB_POST, target, "{\"priority\":7}"), 204);
}

static void many_priorities_are_changed_by_a_filter(void **state)
{
    (void)state;
    ask(VERB_PUT, "/v1/queues/q", NULL);
    assert_int_equal(ask(VERB_POST, "/v1/queues/q/messages/priority",
                         "{\"filter\":{\"metadata\":{\"a\":1},\"older_than_seconds\":5},"
                         "\"priority\":7,\"actor\":\"ann\"}"),
                     200);
    assert_string_equal(text("matched"), "3");
    assert_string_equal(text("changed"), "3");
    assert_int_equal(ask(VERB_POST, "/v1/queues/q/messages/priority",
                         "{\"filter\":{},\"priority\":7,\"dry_run\":true}"),
                     200);
    assert_string_equal(text("matched"), "5");
    assert_string_equal(text("changed"), "0");
}

static void queues_are_made_changed_listed_and_shown(void **state)
{
    (void)state;
    assert_int_equal(ask(VERB_PUT, "/v1/queues/b", NULL), 201);
    assert_int_equal(ask(VERB_PUT, "/v1/queues/b", "{\"max_attempts\":4}"), 200);
    assert_string_equal(text("max_attempts"), "4");
    assert_int_equal(ask(VERB_PUT, "/v1/queues/a", "{}"), 201);
    assert_int_equal(ask(VERB_GET, "/v1/queues/%61", NULL), 200);
    assert_string_equal(text("profile"), "levels");
    assert_int_equal(ask(VERB_GET, "/v1/queues?limit=1", NULL), 200);
    assert_string_equal(text("next"), "a");
    assert_int_equal(ask(VERB_GET, "/v1/queues?after=a", NULL), 200);
    assert_int_equal(json_get(&t.doc, 0, "queues")->count, 1);
    assert_int_equal(ask(VERB_POST, "/v1/queues/a/pause", NULL), 200);
    assert_int_equal(ask(VERB_GET, "/v1/queues/a/stats", NULL), 200);
    assert_true(json_get(&t.doc, 0, "paused")->boolean);
    assert_int_equal(json_get(&t.doc, 0, "depth_by_priority")->count, 10);
    ask(VERB_POST, "/v1/queues/nope/pause", NULL);
    problem_is(404, "queue-not-found", NULL);
    assert_int_equal(ask(VERB_GET, "/metrics", NULL), 200);
    assert_non_null(strstr(buf_cstr(&t.body), "\ntriage_queue_ready{queue=\"b\"} 0\n"));
    assert_non_null(
        strstr(buf_cstr(&t.body), "\ntriage_queue_level_ready{queue=\"a\",level=\"9\"} 0\n"));
    assert_non_null(strstr(buf_cstr(&t.body), "\ntriage_broker_waiting 3\n"));
}

static void what_is_refused_says_why(void **state)
{
    static const struct {
        enum http_verb verb;
        const char *target, *body;
        int status;
        const char *type, *field;
    } refused[] = {
        {VERB_POST, "/v1/queues/q/messages", "{", 400, "malformed-json", NULL},
        {VERB_POST, "/v1/queues/q/messages", "", 400, "malformed-json", NULL},
        {VERB_POST, "/v1/queues/q/messages", "[]", 422, "invalid-field", NULL},
        {VERB_POST, "/v1/queues/q/messages?a=1", "{\"payload\":1}", 422, "unknown-field", "/a"},
        {VERB_POST, "/v1/queues/q/messages", "{\"payload\":1,\"priority\":77}", 422,
         "unknown-priority", "/priority"},
        {VERB_POST, "/v1/queues/q/messages/claim", "{\"max\":0}", 422, "invalid-field", "/max"},
        {VERB_POST, "/v1/queues/q/messages/claim", "{\"min_priority\":\"x\"}", 422,
         "unknown-priority", "/min_priority"},
        {VERB_POST, "/v1/queues/q/messages/claim?max=1", NULL, 422, "unknown-field", "/max"},
        {VERB_GET, "/v1/queues/q/messages?max=101", NULL, 422, "invalid-field", "/max"},
        {VERB_GET, "/v1/queues/none/stats", NULL, 404, "queue-not-found", NULL},
        {VERB_GET, "/v1/queues/a%20b", NULL, 422, "invalid-field", "/queue"},
        {VERB_PUT, "/v1/queues/..", NULL, 422, "invalid-field", "/queue"},
        {VERB_PUT, "/v1/queues/%2e", NULL, 422, "invalid-field", "/queue"},
        {VERB_GET, "/v1/queues/q/messages/msg_x", NULL, 404, "message-not-found", NULL},
        {VERB_POST, "/v1/queues/q/messages/priority", "{}", 422, "invalid-field", "/filter"},
        {VERB_POST, "/v1/queues/q/messages/priority", "{\"filter\":{}}", 422, "invalid-field",
         "/priority"},
        {VERB_POST, "/v1/queues/q/messages/priority", "{\"filter\":{\"age\":1},\"priority\":1}",
         422, "unknown-field", "/filter/age"},
        {VERB_POST, "/v1/queues/q/messages/msg_x/priority", "{\"priority\":1}", 404,
         "message-not-found", NULL},
        {VERB_GET, "/v1/queues/q/messages/msg_x/position", NULL, 404, "message-not-found", NULL},
        {VERB_GET, "/v3", NULL, 404, "route-not-found", NULL},
        {VERB_PUT, "/healthz", NULL, 405, "method-not-allowed", NULL},
        {VERB_PUT, "/v1/queues/q", "{\"policy\":\"fair\"}", 422, "invalid-field", "/policy"},
        {VERB_PUT, "/v1/queues/q", "{\"retry\":{\"x\":1}}", 422, "unknown-field", "/retry/x"},
        {VERB_POST, "/v1/queues/q/purge", "{\"a\":1}", 422, "unknown-field", "/a"},
        {VERB_POST, "/v1/queues/q/messages/ack", "{}", 422, "invalid-field", "/receipts"},
        {VERB_POST, "/v1/queues/q/messages/nack", "{}", 422, "invalid-field", "/receipts"},
        {VERB_POST, "/v1/queues/q/messages/release", "{\"receipts\":[{}],\"delay_seconds\":1}", 422,
         "unknown-field", "/delay_seconds"},
        {VERB_POST, "/v1/queues/q/messages/extend", "{\"receipts\":[{}]}", 422, "invalid-field",
         "/visibility_timeout_seconds"},
        {VERB_POST, "/v1/queues/q/dead/redrive", "{\"ids\":[1]}", 422, "invalid-field", "/ids"},
        {VERB_POST, "/v1/queues/q/dead/msg_00000080g6gy284gn0000000000g/redrive", "{}", 422,
         "invalid-field", "/payload"},
        {VERB_POST, "/v1/queues/q/dead/msg_00000080g6gy284gn0000000000g/redrive", "{\"payload\":1}",
         404, "message-not-found", NULL},
    };
    struct http_request req;
    (void)state;
    ask(VERB_PUT, "/v1/queues/q", NULL);
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        ask(refused[i].verb, refused[i].target, refused[i].body);
        problem_is(refused[i].status, refused[i].type, refused[i].field);
    }
    ask_as(&req, &(struct ask){.type = "text/plain"}, VERB_POST, "/v1/queues/q/messages", "x");
    problem_is(415, "unsupported-media-type", NULL);
    ask(VERB_PUT, "/v1/queues/q/messages", NULL);
    assert_string_equal(t.headers, "Allow: POST, GET\r\n");
}

static void a_consumer_that_hangs_up_is_told_to_the_broker(void **state)
{
    struct http_request req;
    (void)state;
    ask(VERB_PUT, "/v1/queues/q", NULL);
    t.hold = true;
    ask_as(&req, &(struct ask){0}, VERB_POST, "/v1/queues/q/messages/claim",
           "{\"wait_seconds\":30}");
    assert_int_equal(t.status, 0);
    assert_int_equal(t.parked->claim.wait_ms, 30000);
    req.on_hangup(&req);
    assert_int_equal(t.hangups, 1);
    t.parked->done(t.parked);
    assert_int_equal(t.status, 200);
}

#define HASH_OF_SECRET "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"

static void tokens_and_draining_stand_before_the_handlers(void **state)
{
    static const char tokens[] = "shop " HASH_OF_SECRET " produce shop-\n";
    struct auth_table table;
    struct buf error = {0};
    struct http_request req;
    atomic_bool draining = false;
    const struct ask shop = {.authorization = "Bearer secret"};
    (void)state;
    assert_true(auth_parse(tokens, strlen(tokens), 0, &table, &error));
    struct auth *auth = auth_new(&table);
    api_free(t.api);
    t.api = api_new(NULL, &(struct api_options){.version = "1",
                                                .engine = "memory",
                                                .durability = "none",
                                                .auth = auth,
                                                .draining = &draining});
    ask(VERB_GET, "/v1/info", NULL);
    problem_is(401, "unauthenticated", NULL);
    assert_non_null(strstr(t.headers, "WWW-Authenticate: Bearer"));
    assert_int_equal(ask(VERB_GET, "/healthz", NULL), 200);
    assert_int_equal(ask_as(&req, &shop, VERB_GET, "/v1/info", NULL), 200);
    assert_int_equal(
        ask_as(&req, &shop, VERB_POST, "/v1/queues/shop-1/messages", "{\"payload\":1}"), 201);
    ask_as(&req, &shop, VERB_POST, "/v1/queues/q/messages", "{\"payload\":1}");
    problem_is(403, "forbidden", NULL);
    ask_as(&req, &shop, VERB_POST, "/v1/queues/shop-1/messages/claim", NULL);
    problem_is(403, "forbidden", NULL);
    atomic_store(&draining, true);
    ask_as(&req, &shop, VERB_POST, "/v1/queues/shop-1/messages", "{\"payload\":1}");
    problem_is(503, "draining", NULL);
    assert_string_equal(t.headers, "Retry-After: 1\r\n");
    ask(VERB_GET, "/readyz", NULL);
    problem_is(503, "draining", NULL);
    auth_free(auth);
}

static void a_claim_waits_only_where_there_is_a_place(void **state)
{
    (void)state;
    t.wait_refused = true;
    ask(VERB_POST, "/v1/queues/q/messages", "{\"payload\":1}");
    ask(VERB_POST, "/v1/queues/q/messages/claim", "{\"wait_seconds\":5}");
    problem_is(503, "overloaded", NULL);
    assert_int_equal(ask(VERB_POST, "/v1/queues/q/messages/claim", "{}"), 200);
}

static void what_shows_messages_needs_room_for_them(void **state)
{
    (void)state;
    static const char *const paths[] = {"/v1/queues/q/export", "/v1/queues/q/dead"};
    ask(VERB_POST, "/v1/queues/q/messages", "{\"payload\":1}");
    uint64_t room = account_room(t.account, BUDGET_BYTES);
    account_charge(t.account, BUDGET_BYTES, (int64_t)room);
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        ask(VERB_GET, paths[i], NULL);
        problem_is(503, "overloaded", NULL);
    }
    assert_int_equal(budget_counters(t.budget).refused_answers, 2);
    account_charge(t.account, BUDGET_BYTES, -(int64_t)room);
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        assert_int_equal(ask(VERB_GET, paths[i], NULL), 200);
    assert_int_equal(budget_counters(t.budget).budget_bytes, 0);
}

/* The only request that is under way. */
static struct request *taken(void)
{
    assert_int_equal(t.queued, 1);
    return t.queue[--t.queued];
}

static void a_move_that_begins_as_its_mover_ends_has_a_mover(void **state)
{
    struct move_progress progress;
    (void)state;
    t.api->options.moves = moves_new();
    mover_start(t.api, "q");
    struct request *look = taken(); /* it has seen a queue that does not move */
    mover_start(t.api, "q");        /* and now it does: this mover is found */
    look->done(look);
    mover_progress(t.api->options.moves, "q", &progress);
    assert_true(progress.running);
    look = taken(); /* it looks once more; and if nobody asked meanwhile, it ends */
    look->done(look);
    mover_progress(t.api->options.moves, "q", &progress);
    assert_false(progress.running);
    assert_int_equal(t.queued, 0);
    moves_free(t.api->options.moves);
    t.api->options.moves = NULL;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, api_setup, api_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_message_goes_in_out_and_away),
        TEST(receipts_nack_release_and_extend),
        TEST(a_batch_tells_each_message_its_own),
        TEST(a_large_batch_is_read_in_steps),
        TEST(a_large_batch_that_is_malformed_stores_nothing),
        TEST(what_was_exported_can_be_imported),
        TEST(an_export_is_continued_by_its_cursor),
        TEST(a_priority_is_changed_and_a_place_explained),
        TEST(a_message_that_is_gone_after_its_change_was_changed),
        TEST(many_priorities_are_changed_by_a_filter),
        TEST(queues_are_made_changed_listed_and_shown),
        TEST(what_is_refused_says_why),
        TEST(a_consumer_that_hangs_up_is_told_to_the_broker),
        TEST(tokens_and_draining_stand_before_the_handlers),
        TEST(a_claim_waits_only_where_there_is_a_place),
        TEST(what_shows_messages_needs_room_for_them),
        TEST(a_move_that_begins_as_its_mover_ends_has_a_mover),
    };
#undef TEST
    return cmocka_run_group_tests_name("api calls", tests, NULL, NULL);
}
