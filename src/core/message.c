#include "core/message.h"
#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

const char *message_state_name(enum message_state s)
{
    static const char *const names[MESSAGE_STATE_COUNT] = {
        [MESSAGE_NEW] = "new",         [MESSAGE_SCHEDULED] = "scheduled", [MESSAGE_READY] = "ready",
        [MESSAGE_LEASED] = "leased",   [MESSAGE_DEAD] = "dead",           [MESSAGE_DONE] = "done",
        [MESSAGE_EXPIRED] = "expired", [MESSAGE_CANCELLED] = "cancelled",
    };
    assert(s < MESSAGE_STATE_COUNT);
    return names[s];
}

static uint64_t get_be(const uint8_t *in, size_t width)
{
    uint64_t value = 0;
    for (size_t i = 0; i < width; i++)
        value = value << 8 | in[i];
    return value;
}

/* Base 32, without letters that look like digits or like each other. The text sorts as the bytes
 * do, and a double click selects all of it. Every answer has an id, so speed counts: two letters
 * are written at once, and `pairs` has the two letters for each value of ten bits. */
#define PAIRS(a)                                                                                   \
    a "0" a "1" a "2" a "3" a "4" a "5" a "6" a "7" a "8" a "9" a "a" a "b" a "c" a "d" a "e" a    \
      "f" a "g" a "h" a "j" a "k" a "m" a "n" a "p" a "q" a "r" a "s" a "t" a "v" a "w" a "x" a    \
      "y" a "z"
static const char pairs[] = PAIRS("0") PAIRS("1") PAIRS("2") PAIRS("3") PAIRS("4") PAIRS("5")
    PAIRS("6") PAIRS("7") PAIRS("8") PAIRS("9") PAIRS("a") PAIRS("b") PAIRS("c") PAIRS("d")
        PAIRS("e") PAIRS("f") PAIRS("g") PAIRS("h") PAIRS("j") PAIRS("k") PAIRS("m") PAIRS("n")
            PAIRS("p") PAIRS("q") PAIRS("r") PAIRS("s") PAIRS("t") PAIRS("v") PAIRS("w") PAIRS("x")
                PAIRS("y") PAIRS("z");
static_assert(sizeof(pairs) == 2 * 1024 + 1, "two letters for each ten bits");

/* Writes the first letters of a 40-bit number, which has eight. */
static inline void letters_put(char *out, uint64_t bits, int letters)
{
    for (int i = 0; i < letters; i += 2)
        memcpy(out + i, pairs + 2 * (bits >> (30 - 5 * i) & 1023), 2);
}

/* For each letter its value plus 1; 0: the letter is not in the alphabet. */
static const uint8_t numbers[256] = {
    ['0'] = 1,  ['1'] = 2,  ['2'] = 3,  ['3'] = 4,  ['4'] = 5,  ['5'] = 6,  ['6'] = 7,  ['7'] = 8,
    ['8'] = 9,  ['9'] = 10, ['a'] = 11, ['b'] = 12, ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
    ['g'] = 17, ['h'] = 18, ['j'] = 19, ['k'] = 20, ['m'] = 21, ['n'] = 22, ['p'] = 23, ['q'] = 24,
    ['r'] = 25, ['s'] = 26, ['t'] = 27, ['v'] = 28, ['w'] = 29, ['x'] = 30, ['y'] = 31, ['z'] = 32,
};

/* False when a letter is not in the alphabet or the spare bits are not zero: a value has one
 * text. */
static bool base32_decode(const char *text, size_t text_len, uint8_t *out, size_t len)
{
    uint32_t bits = 0;
    unsigned held = 0;
    size_t n = 0;
    for (size_t i = 0; i < text_len; i++) {
        uint8_t number = numbers[(uint8_t)text[i]];
        if (!number)
            return false;
        bits = bits << 5 | (number - 1u);
        held += 5;
        if (held >= 8) {
            held -= 8;
            if (n == len)
                return false;
            out[n++] = (uint8_t)(bits >> held);
        }
    }
    return n == len && (bits & ((1u << held) - 1)) == 0;
}

#define ID_BYTES 17 /* queue 4, slot 1, ready time 6, seq 6; big endian */
static_assert(ID_BYTES == 4 + 1 + 6 + 6, "the fields, one after the other");
static_assert((MESSAGE_ID_TEXT - 4) * 5 >= ID_BYTES * 8, "five bits a letter");
static_assert((RECEIPT_TEXT - 3) * 5 >= RECEIPT_BYTES * 8, "five bits a letter");
static_assert(TIME_MS_MAX < 1LL << 47, "a ready time fits six bytes with a sign");
static_assert(LEVEL_COUNT_MAX - 1 <= UINT8_MAX, "a slot fits its byte");

/* Each limit fits its field in the message and in the record. */
static_assert(PAYLOAD_MAX <= UINT32_MAX, "payload_len");
static_assert(METADATA_MAX <= UINT16_MAX, "metadata_len");
static_assert(DEDUP_KEY_MAX <= UINT16_MAX, "dedup_len");
static_assert(ATTEMPTS_MAX < UINT16_MAX, "attempts");
static_assert(REASON_MAX <= UINT16_MAX, "reason_len of an escalation");
static_assert(ACTOR_MAX <= UINT16_MAX, "actor_len of an escalation");
static_assert(MESSAGE_STATE_COUNT <= UINT8_MAX, "state");
static_assert(offsetof(struct message, node) + sizeof(struct order_node) == sizeof(struct message),
              "the links follow what embeds the node");
static_assert(offsetof(struct expiry, node) + sizeof(struct order_node) == sizeof(struct expiry),
              "the same");
static_assert(sizeof(struct message) <= 88, "there are millions of them");

void message_id_format(const struct message_id *id, char out[MESSAGE_ID_TEXT + 1])
{
    static_assert(MESSAGE_ID_TEXT == 4 + 3 * 8 + 4, "three times five bytes, and two");
    uint64_t ready_ms = (uint64_t)(id->ready_ms + TIME_MS_MAX + 1);
    assert(id->slot < LEVEL_COUNT_MAX);
    assert((ready_ms | id->seq) >> 48 == 0); /* each fits six bytes */
    memcpy(out, "msg_", 4);
    letters_put(out + 4, (uint64_t)id->queue << 8 | id->slot, 8);
    letters_put(out + 12, ready_ms >> 8, 8);
    letters_put(out + 20, (ready_ms & 0xff) << 32 | id->seq >> 16, 8);
    letters_put(out + 28, (id->seq & 0xffff) << 24, 4);
    out[MESSAGE_ID_TEXT] = '\0';
}

bool message_id_parse(const char *text, size_t len, struct message_id *id)
{
    uint8_t bytes[ID_BYTES];
    if (len != MESSAGE_ID_TEXT || memcmp(text, "msg_", 4) != 0 ||
        !base32_decode(text + 4, len - 4, bytes, sizeof(bytes)) || bytes[4] >= LEVEL_COUNT_MAX)
        return false;
    id->queue = (uint32_t)get_be(bytes, 4);
    id->slot = bytes[4];
    id->ready_ms = (int64_t)get_be(bytes + 5, 6) - TIME_MS_MAX - 1;
    id->seq = get_be(bytes + 11, 6);
    return true;
}

void receipt_format(const uint8_t receipt[RECEIPT_BYTES], char out[RECEIPT_TEXT + 1])
{
    static_assert(RECEIPT_TEXT == 3 + 3 * 8 + 2 && RECEIPT_BYTES == 3 * 5 + 1, "and one");
    memcpy(out, "rh_", 3);
    for (int i = 0; i < 3; i++)
        letters_put(out + 3 + 8 * i, get_be(receipt + 5 * i, 5), 8);
    letters_put(out + 27, (uint64_t)receipt[15] << 32, 2);
    out[RECEIPT_TEXT] = '\0';
}

void receipt_stamp(uint8_t receipt[RECEIPT_BYTES], int64_t wall_ms)
{
    for (int i = 0; i < RECEIPT_TIME_BYTES; i++)
        receipt[i] = (uint8_t)((uint64_t)wall_ms >> 8 * (RECEIPT_TIME_BYTES - 1 - i));
}

/* The bytes hold the time modulo 2^40 milliseconds, which are 34 years. */
int64_t receipt_held_ms(const uint8_t receipt[RECEIPT_BYTES], int64_t wall_ms)
{
    uint64_t held_ms = ((uint64_t)wall_ms - get_be(receipt, RECEIPT_TIME_BYTES)) &
                       ((1ULL << 8 * RECEIPT_TIME_BYTES) - 1);
    return held_ms <= RECEIPT_HELD_MAX_MS ? (int64_t)held_ms : -1;
}

bool receipt_parse(const char *text, size_t len, uint8_t receipt[RECEIPT_BYTES])
{
    return len == RECEIPT_TEXT && memcmp(text, "rh_", 3) == 0 &&
           base32_decode(text + 3, len - 3, receipt, RECEIPT_BYTES);
}

void draft_fini(struct draft *d)
{
    free(d->body);
    d->body = NULL;
}

struct message *message_new(uint64_t seq)
{
    struct message *m = mem_alloc(sizeof(*m) + order_node_extra(seq));
    memset(m, 0, sizeof(*m));
    m->node.tie = seq;
    m->node.tag = MESSAGE_TAG;
    return m;
}

static void delivery_free(struct delivery *d)
{
    if (!d)
        return;
    free(d->reason);
    free(d->escalation);
    free(d);
}

void message_drop_expiry(struct message *m)
{
    if (!m->expiry)
        return;
    tag_end(&m->expiry->node.tag, EXPIRY_TAG);
    free(m->expiry);
    m->expiry = NULL;
}

void message_free(struct message *m)
{
    if (!m)
        return;
    delivery_free(m->delivery);
    if (m->expiry)
        message_drop_expiry(m);
    free(m->body);
    tag_end(&m->node.tag, MESSAGE_TAG);
    free(m);
}

struct delivery *message_delivery(struct message *m)
{
    if (!m->delivery)
        m->delivery = mem_zalloc(sizeof(*m->delivery));
    return m->delivery;
}

void message_set_reason(struct message *m, const char *reason, uint32_t len)
{
    struct delivery *d = message_delivery(m);
    assert(reason || len == 0);
    free(d->reason);
    d->reason = len > 0 ? mem_dup(reason, len) : NULL;
    d->reason_len = len;
}

void message_set_expiry(struct message *m, int64_t expire_ms)
{
    assert(!m->expiry);
    m->expiry = mem_alloc(sizeof(*m->expiry) + order_node_extra(message_seq(m)));
    *m->expiry = (struct expiry){.message = m};
    m->expiry->node.key = expire_ms;
    m->expiry->node.tie = message_seq(m);
    m->expiry->node.tag = EXPIRY_TAG;
    m->expiry->node.height = 0;
}

struct message_id message_identity(const struct message *m, uint32_t queue)
{
    return (struct message_id){
        .queue = queue,
        .slot = m->born_slot,
        .ready_ms = m->born_ms,
        .seq = message_seq(m),
    };
}

size_t message_memory(const struct message *m)
{
    const size_t malloc_overhead = 8;
    size_t bytes = sizeof(*m) + order_node_extra(message_seq(m)) + malloc_overhead;
    if (m->body)
        bytes += message_body_len(m) + malloc_overhead;
    return bytes;
}
