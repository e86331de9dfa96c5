/* The local engine's records: arbitrary bytes, as a torn or flipped page would give them. Nothing
 * may be read past the end, and what decodes is what the encoder writes: the same bytes again. */
#include "base/json.h"
#include "core/message.h"
#include "engine/local/record.h"
#include "fuzz.h"

#define BOOT 7

static const struct record_clock same_boot = {.boot = BOOT, .mono_ms = 1000000};

/* The boot stands in the record; a message does not remember it. */
#define STATE_BOOT_AT (1 + 4 + 2 + 8 + 8 + RECEIPT_BYTES)

static uint64_t boot_of(const char *data, size_t len, size_t at)
{
    uint64_t boot = 0;
    for (size_t i = at; i < at + 8 && i < len; i++)
        boot = boot << 8 | (uint8_t)data[i];
    return boot;
}

/* Older formats are read, but not written any more. */
static void assert_kept(const struct buf *again, const char *data, size_t len)
{
    assert(again->len > 0 && len > 0);
    if (again->data[0] == data[0])
        assert_same(again->data, again->len, data, len);
}

static void check_message(const char *data, size_t len)
{
    struct message_id id = {.queue = 1, .slot = 3, .ready_ms = -5, .seq = 99};
    struct buf again = {0};
    struct message *m = record_get_message(data, len, &id);
    if (!m)
        return;
    assert(m->body);
    assert(message_seq(m) == id.seq && m->born_ms == id.ready_ms && m->slot == id.slot);
    record_put_message(&again, m);
    assert_kept(&again, data, len);
    message_free(m);
    buf_fini(&again);
}

static void check_state(const char *data, size_t len)
{
    struct buf again = {0};
    struct message *m = record_get_state(data, len, 99, same_boot);
    if (!m)
        return;
    assert(m->slot < LEVEL_COUNT_MAX && m->born_slot < LEVEL_COUNT_MAX);
    /* A lease that would last longer than it was granted for is cut to that: written otherwise. */
    int64_t latest_ms = same_boot.mono_ms + m->delivery->lease_ms;
    assert(m->delivery->lease_until_ms <= latest_ms);
    if (boot_of(data, len, 1 + STATE_BOOT_AT - 1) == BOOT &&
        m->delivery->lease_until_ms < latest_ms) {
        record_put_state(&again, m, BOOT);
        assert_kept(&again, data, len);
    }
    struct message *born = message_new(99);
    record_apply_state(born, m);
    assert(born->touched && born->delivery);
    message_free(born);
    buf_fini(&again);
}

static void check_whole(const char *data, size_t len)
{
    struct buf again = {0};
    int64_t until_ms, died_ms;
    struct message *m = record_get_whole(data, len, 99, &until_ms);
    if (!m)
        return;
    assert(m->body);
    assert(record_whole_died(data, len, &died_ms));
    assert(died_ms == m->delivery->died_ms);
    record_put_whole(&again, m, boot_of(data, len, 8 + STATE_BOOT_AT), until_ms);
    assert_kept(&again, data, len);
    message_free(m);
    buf_fini(&again);
}

static void check_dedup(const char *data, size_t len)
{
    struct buf again = {0};
    struct dedup_hit hit;
    if (!record_get_dedup(data, len, 5, &hit))
        return;
    assert(hit.id.queue == 5);
    record_put_dedup(&again, &hit);
    assert_kept(&again, data, len);
    buf_fini(&again);
}

static void check_queue(const char *data, size_t len)
{
    struct buf again = {0};
    struct queue_config config;
    char name[QUEUE_NAME_MAX + 1];
    if (!record_get_queue(data, len, name, &config))
        return;
    assert(config.level_count > 0 && config.default_rank < config.level_count);
    record_put_queue(&again, name, &config);
    assert_kept(&again, data, len);
    buf_fini(&again);
}

static void check_counters(const char *data, size_t len)
{
    struct buf first = {0}, second = {0};
    struct record_counters c, d;
    if (!record_get_counters(data, len, &c))
        return;
    /* A later version may count more totals, so the bytes need not be the same; the numbers do. */
    record_put_counters(&first, &c);
    assert(record_get_counters(first.data, first.len, &d));
    record_put_counters(&second, &d);
    assert_same(first.data, first.len, second.data, second.len);
    assert(c.next_seq == d.next_seq && c.cold_bytes == d.cold_bytes);
    assert_same(&c.totals, sizeof(c.totals), &d.totals, sizeof(d.totals));
    buf_fini(&first);
    buf_fini(&second);
}

static void check_schedule(const char *data, size_t len)
{
    struct buf again = {0};
    struct schedule s;
    if (!record_get_schedule(data, len, &s))
        return;
    assert(s.draft.body && s.missed < MISSED_COUNT);
    record_put_schedule(&again, &s);
    assert_kept(&again, data, len);
    schedule_fini(&s);
    buf_fini(&again);
}

static void check_place(const char *data, size_t len)
{
    struct buf again = {0};
    struct queue_place *place = record_get_place(data, len);
    if (!place)
        return;
    assert(place->epoch > 0 && place->map_len <= PLACE_MAP_MAX);
    record_put_place(&again, place);
    assert_kept(&again, data, len);
    free(place);
    buf_fini(&again);
}

static void check_share(const char *data, size_t len)
{
    struct buf again = {0};
    struct queue_share *share = record_get_share(data, len);
    if (!share)
        return;
    assert(share->epoch > 0 && share->note_len <= PLACE_MAP_MAX);
    record_put_share(&again, share);
    assert_kept(&again, data, len);
    free(share);
    buf_fini(&again);
}

static void check_keys(const char *data, size_t len)
{
    struct message_id id;
    struct key k;
    int64_t expire_ms;
    uint32_t queue;
    uint64_t seq;
    if (key_parse_message(data, len, &id)) {
        key_message(&k, &id);
        assert_same(k.bytes, k.len, data, len);
        key_lane(&k, id.queue, id.slot);
        assert_same(k.bytes, k.len, data, k.len);
    }
    if (key_parse_expiry(data, len, &id, &expire_ms)) {
        key_expiry(&k, &id, expire_ms);
        assert_same(k.bytes, k.len, data, len);
    }
    if (key_parse_queue(data, len, &queue)) {
        key_queue(&k, (enum key_tag)(uint8_t)data[0], queue);
        assert_same(k.bytes, k.len, data, k.len);
    }
    if (key_parse_seq(data, len, &queue, &seq)) {
        key_seq(&k, (enum key_tag)(uint8_t)data[0], queue, seq);
        assert_same(k.bytes, k.len, data, len);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const checks[])(const char *data, size_t len) = {
        check_message,  check_state, check_whole,    check_dedup, check_queue,
        check_counters, check_keys,  check_schedule, check_place, check_share,
    };
    struct input in = {data, size};
    uint8_t choice = input_byte(&in);
    char *bytes = exact_copy(in.at, in.left);
    checks[choice % (sizeof(checks) / sizeof(checks[0]))](bytes, in.left);
    free(bytes);
    return 0;
}
