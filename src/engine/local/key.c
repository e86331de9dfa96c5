#include "engine/local/field.h"
#include "engine/local/record.h"

static void key_add(struct key *k, uint64_t value, size_t width)
{
    assert(k->len + width <= KEY_MAX);
    for (size_t i = width; i-- > 0; value >>= 8)
        k->bytes[k->len + i] = (char)value;
    k->len = (uint16_t)(k->len + width);
}

static void key_place(struct key *k, const struct message_id *id)
{
    key_add(k, id->slot, 1);
    key_add(k, time_bias(id->ready_ms), 6);
    key_add(k, id->seq, 6);
}

void key_queue(struct key *k, enum key_tag tag, uint32_t queue)
{
    k->len = 0;
    key_add(k, tag, 1);
    key_add(k, queue, 4);
}

void key_message(struct key *k, const struct message_id *id)
{
    key_queue(k, KEY_MESSAGE, id->queue);
    key_place(k, id);
}

void key_lane(struct key *k, uint32_t queue, uint8_t slot)
{
    key_queue(k, KEY_MESSAGE, queue);
    key_add(k, slot, 1);
}

void key_expiry(struct key *k, const struct message_id *id, int64_t expire_ms)
{
    key_queue(k, KEY_EXPIRY, id->queue);
    key_add(k, time_bias(expire_ms), 6);
    key_place(k, id);
}

void key_seq(struct key *k, enum key_tag tag, uint32_t queue, uint64_t seq)
{
    key_queue(k, tag, queue);
    key_add(k, seq, 6);
}

void key_dedup(struct key *k, uint32_t queue, const char *key, size_t len)
{
    assert(len <= DEDUP_KEY_MAX);
    key_queue(k, KEY_DEDUP, queue);
    memcpy(k->bytes + k->len, key, len);
    k->len = (uint16_t)(k->len + len);
}

void key_schedule(struct key *k, uint32_t queue, const char *name)
{
    size_t len = strlen(name);
    static_assert(QUEUE_NAME_MAX <= DEDUP_KEY_MAX, "a key has room for a name");
    key_queue(k, KEY_SCHEDULE, queue);
    memcpy(k->bytes + k->len, name, len);
    k->len = (uint16_t)(k->len + len);
}

bool key_parse_message(const char *bytes, size_t len, struct message_id *id)
{
    struct decoder r = decoder_of(bytes, len);
    bool tag = get_be(&r, 1) == KEY_MESSAGE;
    id->queue = (uint32_t)get_be(&r, 4);
    get_place(&r, id);
    return tag && at_end(&r) && id->slot < LEVEL_COUNT_MAX;
}

bool key_parse_expiry(const char *bytes, size_t len, struct message_id *id, int64_t *expire_ms)
{
    struct decoder r = decoder_of(bytes, len);
    bool tag = get_be(&r, 1) == KEY_EXPIRY;
    id->queue = (uint32_t)get_be(&r, 4);
    *expire_ms = time_unbias(get_be(&r, 6));
    get_place(&r, id);
    return tag && at_end(&r) && id->slot < LEVEL_COUNT_MAX;
}

bool key_parse_queue(const char *bytes, size_t len, uint32_t *queue)
{
    struct decoder r = decoder_of(bytes, len);
    get_be(&r, 1);
    *queue = (uint32_t)get_be(&r, 4);
    return r.ok;
}

bool key_parse_seq(const char *bytes, size_t len, uint32_t *queue, uint64_t *seq)
{
    struct decoder r = decoder_of(bytes, len);
    get_be(&r, 1);
    *queue = (uint32_t)get_be(&r, 4);
    *seq = get_be(&r, 6);
    return at_end(&r);
}
