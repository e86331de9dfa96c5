#include "core/message.h"
#include "base/mem.h"

#include <assert.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>

const char *message_state_name(enum message_state s)
{
    static const char *const names[MESSAGE_STATE_COUNT] = {
        [MESSAGE_NEW] = "new",         [MESSAGE_SCHEDULED] = "scheduled", [MESSAGE_READY] = "ready",
        [MESSAGE_LEASED] = "leased",   [MESSAGE_DEAD] = "dead",           [MESSAGE_DONE] = "done",
        [MESSAGE_EXPIRED] = "expired", [MESSAGE_CANCELLED] = "cancelled",
    };
    return names[s];
}

static void put_be(uint8_t *out, uint64_t value, size_t width)
{
    for (size_t i = width; i-- > 0; value >>= 8)
        out[i] = (uint8_t)value;
}

static uint64_t get_be(const uint8_t *in, size_t width)
{
    uint64_t value = 0;
    for (size_t i = 0; i < width; i++)
        value = value << 8 | in[i];
    return value;
}

/* Base 32 without the letters that are mistaken for digits or each other; it sorts like the bytes,
 * and a double click selects all of it. Every answer has an id, so a block of five bytes becomes
 * its eight letters at once, in the bytes of one word. */
#define BLOCK_BYTES 5
#define BLOCK_TEXT  8
#define EACH(byte)  (UINT64_MAX / 255 * (byte))

/* Forty bits, five to each byte of the word. */
static uint64_t block_spread(uint64_t bits)
{
    bits = (bits & 0xfffff00000) << 12 | (bits & 0xfffff);
    bits = (bits & 0xffc00000ffc00) << 6 | (bits & 0x3ff000003ff);
    return (bits & 0x3e003e003e003e0) << 3 | (bits & 0x1f001f001f001f);
}

/* 1 for each byte that is `least` or more, of bytes below 128. */
static uint64_t bytes_from(uint64_t bytes, uint64_t least)
{
    return (bytes + EACH(128 - least)) >> 7 & EACH(1);
}

/* The alphabet is 0 to 9 and a to z, without i, l, o and u: each of them moves on those behind it.
 */
static uint64_t block_letters(uint64_t numbers)
{
    uint64_t letters = bytes_from(numbers, 10) * ('a' - '0' - 10);
    uint64_t left_out = bytes_from(numbers, 18) + bytes_from(numbers, 20) +
                        bytes_from(numbers, 22) + bytes_from(numbers, 27);
    return numbers + EACH('0') + letters + left_out;
}

static uint64_t block_encode(uint64_t first_bytes)
{
    return htobe64(block_letters(block_spread(be64toh(first_bytes) >> 24)));
}

static void base32_encode(const uint8_t *bytes, size_t len, char *out)
{
    uint64_t block = 0, text;
    for (; len >= BLOCK_BYTES; len -= BLOCK_BYTES, bytes += BLOCK_BYTES, out += BLOCK_TEXT) {
        memcpy(&block, bytes, BLOCK_BYTES);
        text = block_encode(block);
        memcpy(out, &text, BLOCK_TEXT);
    }
    block = 0;
    memcpy(&block, bytes, len);
    text = block_encode(block);
    size_t letters = (len * 8 + 4) / 5;
    memcpy(out, &text, letters);
    out[letters] = '\0';
}

/* A letter's number and 1; 0 for one that is not in the alphabet. */
static const uint8_t numbers[256] = {
    ['0'] = 1,  ['1'] = 2,  ['2'] = 3,  ['3'] = 4,  ['4'] = 5,  ['5'] = 6,  ['6'] = 7,  ['7'] = 8,
    ['8'] = 9,  ['9'] = 10, ['a'] = 11, ['b'] = 12, ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
    ['g'] = 17, ['h'] = 18, ['j'] = 19, ['k'] = 20, ['m'] = 21, ['n'] = 22, ['p'] = 23, ['q'] = 24,
    ['r'] = 25, ['s'] = 26, ['t'] = 27, ['v'] = 28, ['w'] = 29, ['x'] = 30, ['y'] = 31, ['z'] = 32,
};

/* False for a foreign letter, or for spare bits that are not zero: a text has one spelling. */
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

void message_id_format(const struct message_id *id, char out[MESSAGE_ID_TEXT + 1])
{
    uint8_t bytes[ID_BYTES];
    put_be(bytes, id->queue, 4);
    bytes[4] = id->slot;
    put_be(bytes + 5, (uint64_t)(id->ready_ms + TIME_MS_MAX + 1), 6);
    put_be(bytes + 11, id->seq, 6);
    memcpy(out, "msg_", 4);
    base32_encode(bytes, sizeof(bytes), out + 4);
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
    memcpy(out, "rh_", 3);
    base32_encode(receipt, RECEIPT_BYTES, out + 3);
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

void message_free(struct message *m)
{
    if (!m)
        return;
    delivery_free(m->delivery);
    free(m->expiry);
    free(m->body);
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
