/* What comes in a URL or stands for bytes in text: queries, percent-encoding, base64, message ids,
 * receipts, times, names. What is taken has one meaning, and writing it gives it back. */
#include "api/call.h"
#include "api/enqueue.h"
#include "api/fields.h"
#include "base/clock.h"
#include "base/codec.h"
#include "base/json.h"
#include "core/message.h"
#include "fuzz.h"

static void put_encoded(struct buf *out, const char *text, size_t len)
{
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        buf_putc(out, '%');
        buf_putc(out, digits[c >> 4]);
        buf_putc(out, digits[c & 15]);
    }
}

static void check_percent(char *text, size_t len)
{
    char *whole = exact_copy(text, len);
    size_t decoded = len;
    struct buf encoded = {0};
    if (percent_decode(text, &decoded, false)) {
        assert(decoded <= len);
        put_encoded(&encoded, text, decoded);
        size_t again = encoded.len;
        assert(percent_decode(encoded.data, &again, true) || again == 0);
        assert_same(encoded.data, again, text, decoded);
    } else {
        assert(memchr(whole, '%', len));
    }
    buf_fini(&encoded);
    free(whole);
}

/* The pairs of a query, encoded byte by byte, make a query with the same pairs. */
static void check_query(char *text, size_t len)
{
    struct buf again = {0};
    struct query_pair pairs[64], pair;
    size_t count = 0;
    char *at = text, *end = text + len;
    enum query_step step = QUERY_END;
    while (count < 64 && (step = query_next(&at, end, &pairs[count])) == QUERY_PAIR) {
        const struct query_pair *p = &pairs[count++];
        assert(at <= end);
        assert(p->key >= text && p->key + p->key_len <= at);
        assert(p->value >= p->key && p->value + p->value_len <= at);
        put_encoded(&again, p->key, p->key_len);
        buf_putc(&again, '=');
        put_encoded(&again, p->value, p->value_len);
        buf_putc(&again, '&');
    }
    if (step == QUERY_END)
        assert(at == end);
    buf_reserve(&again, 1);
    char *twice = again.data, *stop = twice + again.len;
    for (size_t i = 0; i < count; i++) {
        assert(query_next(&twice, stop, &pair) == QUERY_PAIR);
        assert_same(pair.key, pair.key_len, pairs[i].key, pairs[i].key_len);
        assert_same(pair.value, pair.value_len, pairs[i].value, pairs[i].value_len);
    }
    assert(query_next(&twice, stop, &pair) == QUERY_END);
    buf_fini(&again);
}

static void check_base64(char *text, size_t len)
{
    char *out = mem_alloc(base64_room(len) ? base64_room(len) : 1);
    size_t out_len;
    struct buf again = {0};
    if (base64_decode(text, len, out, &out_len)) {
        assert(out_len <= base64_room(len));
        base64_put(&again, out, out_len);
        assert_same(again.data, again.len, text, len);
    }
    buf_clear(&again);
    base64_put(&again, text, len);
    free(out);
    out = mem_alloc(base64_room(again.len) ? base64_room(again.len) : 1);
    assert(base64_decode(again.data, again.len, out, &out_len));
    assert_same(out, out_len, text, len);
    free(out);
    buf_fini(&again);
}

static void check_id(char *text, size_t len)
{
    struct message_id id = {0}, again;
    char out[MESSAGE_ID_TEXT + 1];
    if (message_id_parse(text, len, &id)) {
        message_id_format(&id, out);
        assert_same(out, strlen(out), text, len);
    }
    /* And the other way: any id is text that is the same id. */
    uint64_t bits[3] = {0};
    memcpy(bits, text, len < sizeof(bits) ? len : sizeof(bits));
    id = (struct message_id){
        .queue = (uint32_t)bits[0],
        .slot = (uint8_t)(bits[0] >> 32) % LEVEL_COUNT_MAX,
        .ready_ms = (int64_t)(bits[1] >> 16) - TIME_MS_MAX - 1,
        .seq = bits[2] >> 16,
    };
    message_id_format(&id, out);
    assert(strlen(out) == MESSAGE_ID_TEXT);
    assert(message_id_parse(out, MESSAGE_ID_TEXT, &again));
    assert(again.queue == id.queue && again.slot == id.slot);
    assert(again.ready_ms == id.ready_ms && again.seq == id.seq);
}

static void check_receipt(char *text, size_t len)
{
    uint8_t receipt[RECEIPT_BYTES] = {0}, again[RECEIPT_BYTES];
    char out[RECEIPT_TEXT + 1];
    if (receipt_parse(text, len, receipt)) {
        receipt_format(receipt, out);
        assert_same(out, strlen(out), text, len);
    }
    memcpy(receipt, text, len < sizeof(receipt) ? len : sizeof(receipt));
    receipt_format(receipt, out);
    assert(receipt_parse(out, RECEIPT_TEXT, again));
    assert_same(receipt, sizeof(receipt), again, sizeof(again));
}

static void check_time(char *text, size_t len)
{
    int64_t ms, again;
    char out[TIME_TEXT_MAX];
    if (time_parse_ms(text, len, &ms)) {
        size_t out_len = time_format_ms(ms, out);
        assert(out_len < sizeof(out));
        assert(time_parse_ms(out, out_len, &again));
        /* An offset may lead out of the years that RFC 3339 can say. */
        assert(again == ms || out[0] == '0' || out[0] == '9');
    }
    char *line = mem_dup(text, len);
    if (duration_parse_ms(line, &ms))
        assert(ms >= 0);
    free(line);
}

static void check_words(char *text, size_t len)
{
    struct json_doc doc;
    bool number = number_looks(text, len);
    size_t first = len > 0 && text[0] == '-';
    bool padded = len > first + 1 && text[first] == '0' && text[first + 1] != '.';
    json_init(&doc);
    if (number && !padded) {
        assert(json_parse(&doc, text, len, 1));
        assert(doc.tokens[0].type == JSON_NUMBER);
    }
    json_fini(&doc);
    if (queue_name_valid(text, len)) {
        assert(len > 0 && len <= QUEUE_NAME_MAX);
        assert(!memchr(text, '/', len) && !memchr(text, '\0', len));
    }
}

/* A raw payload's other fields, from the query. */
static void check_enqueue(char *text, size_t len)
{
    struct buf scratch = {0};
    struct problem p = {0};
    struct draft d;
    if (enqueue_from_bytes("\xff", 1, text, len, &scratch, &d, &p)) {
        assert(d.kind == PAYLOAD_BYTES && d.payload_len == 1);
        assert(d.metadata_len <= METADATA_MAX);
        assert(d.dedup_len <= DEDUP_KEY_MAX);
        assert(d.ready_ms == READY_NOW ||
               (d.ready_ms >= -TIME_MS_MAX && d.ready_ms <= TIME_MS_MAX));
        assert(d.delay_ms >= 0 && d.delay_ms <= DELAY_SECONDS_MAX * 1000);
        assert(d.ttl_ms == TTL_DEFAULT || (d.ttl_ms > 0 && d.ttl_ms <= TTL_SECONDS_MAX * 1000));
        if (d.metadata_len > 0) {
            struct json_doc doc;
            json_init(&doc);
            assert(json_parse(&doc, d.body + 1, d.metadata_len, 2 * METADATA_KEYS_MAX));
            assert(doc.tokens[0].type == JSON_OBJECT);
            json_fini(&doc);
        }
        draft_fini(&d);
    } else {
        assert(p.status != STATUS_OK);
        assert(utf8_valid(p.field, strlen(p.field)) && utf8_valid(p.detail, strlen(p.detail)));
    }
    buf_fini(&scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const checks[])(char *text, size_t len) = {
        check_query,   check_percent, check_base64, check_id,
        check_receipt, check_time,    check_words,  check_enqueue,
    };
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
        char *text = exact_copy(data, size); /* some decode in place */
        checks[i](text, size);
        free(text);
    }
    return 0;
}
