/* The driver for a priority queue written as Redis scripts, the way people build
 * one: a sorted set for each level by number of arrival, a hash of payloads, a sorted
 * set of leases by deadline. One script call for each operation, however many messages. */
#include "base/clock.h"
#include "base/mem.h"
#include "loadgen/connect.h"
#include "loadgen/loadgen.h"

#include <stdio.h>
#include <stdlib.h>

#define LEASE_MS 30000
#define SHA_LEN  40

static const char enqueue_script[] = "local q = KEYS[1]\n"
                                     "for i = 1, #ARGV, 2 do\n"
                                     "  local id = redis.call('INCR', q .. ':seq')\n"
                                     "  redis.call('HSET', q .. ':payload', id, ARGV[i + 1])\n"
                                     "  redis.call('ZADD', q .. ':ready:' .. ARGV[i], id, id)\n"
                                     "end\n"
                                     "return #ARGV / 2\n";

static const char claim_script[] =
    "local q, want, out = KEYS[1], tonumber(ARGV[1]), {}\n"
    "for level = tonumber(ARGV[3]), tonumber(ARGV[4]), -1 do\n"
    "  local popped = redis.call('ZPOPMIN', q .. ':ready:' .. level, want)\n"
    "  for i = 1, #popped, 2 do\n"
    "    redis.call('ZADD', q .. ':leased', ARGV[2], popped[i])\n"
    "    out[#out + 1] = popped[i]\n"
    "    out[#out + 1] = redis.call('HGET', q .. ':payload', popped[i])\n"
    "    want = want - 1\n"
    "  end\n"
    "  if want == 0 then break end\n"
    "end\n"
    "return out\n";

static const char ack_script[] = "local q = KEYS[1]\n"
                                 "local gone = redis.call('ZREM', q .. ':leased', unpack(ARGV))\n"
                                 "redis.call('HDEL', q .. ':payload', unpack(ARGV))\n"
                                 "return gone\n";

static const char *const scripts[] = {
    [LOADGEN_ENQUEUE] = enqueue_script,
    [LOADGEN_CLAIM] = claim_script,
    [LOADGEN_ACK] = ack_script,
};
#define SCRIPT_COUNT 3

struct redis {
    const struct loadgen_config *config;
    char shas[SCRIPT_COUNT][SHA_LEN + 1];
    struct buf *names; /* for each queue */
    struct buf *calls; /* for each queue and operation, up to the first argument */
    uint32_t tail_count;
    uint64_t next_tail;
    struct buf *tails; /* the arguments of an enqueue */
};

static void bulk_put(struct buf *out, const void *data, size_t len)
{
    buf_putc(out, '$');
    buf_put_u64(out, len);
    buf_lit(out, "\r\n");
    buf_put(out, data, len);
    buf_lit(out, "\r\n");
}

static void bulk_put_u64(struct buf *out, uint64_t value)
{
    char digits[24];
    bulk_put(out, digits,
             (size_t)snprintf(digits, sizeof(digits), "%llu", (unsigned long long)value));
}

static void *redis_open(const struct loadgen_config *config)
{
    struct redis *r = mem_zalloc(sizeof(*r));
    const uint32_t batch = config->enqueue_batch, len = config->payload_len;
    r->config = config;
    r->names = mem_zalloc(config->queue_count * sizeof(*r->names));
    r->calls = mem_zalloc(config->queue_count * SCRIPT_COUNT * sizeof(*r->calls));
    for (uint32_t q = 0; q < config->queue_count; q++)
        loadgen_queue_name(config, q, &r->names[q]);
    r->tail_count = loadgen_variants(config, (size_t)batch * (len + 32));
    r->tails = mem_zalloc(r->tail_count * sizeof(*r->tails));
    char *payloads = loadgen_payloads(r->tail_count * batch, len);
    for (uint32_t n = 0; n < r->tail_count * batch; n++) {
        bulk_put_u64(&r->tails[n / batch], loadgen_priority(config, n));
        bulk_put(&r->tails[n / batch], payloads + (size_t)n * len, len);
    }
    free(payloads);
    return r;
}

static void redis_close(void *state)
{
    struct redis *r = state;
    for (uint32_t q = 0; q < r->config->queue_count; q++)
        buf_fini(&r->names[q]);
    for (uint32_t i = 0; i < r->config->queue_count * SCRIPT_COUNT; i++)
        buf_fini(&r->calls[i]);
    for (uint32_t i = 0; i < r->tail_count; i++)
        buf_fini(&r->tails[i]);
    free(r->names);
    free(r->calls);
    free(r->tails);
    free(r);
}

/* One reply of RESP2, elements and all; LOADGEN_MORE or LOADGEN_GARBAGE. */
static size_t reply_len(const char *data, size_t len)
{
    size_t used = 0;
    for (uint64_t wanted = 1; wanted > 0; wanted--) {
        const char *eol = len > used ? memchr(data + used, '\n', len - used) : NULL;
        if (!eol)
            return LOADGEN_MORE;
        char type = data[used];
        uint64_t number = loadgen_number(data + used + 1, eol); /* 0 for the nil length -1 */
        bool nil = data[used + 1] == '-';
        used = (size_t)(eol - data) + 1;
        if (type == '*')
            wanted += number;
        else if (type == '$' && !nil)
            used += number + 2;
        else if (type != ':' && type != '+' && type != '-' && type != '$')
            return LOADGEN_GARBAGE;
    }
    return used <= len ? used : LOADGEN_MORE;
}

static void call_build(struct redis *r, uint32_t queue, uint32_t op)
{
    struct buf *call = &r->calls[queue * SCRIPT_COUNT + op];
    bulk_put(call, "EVALSHA", 7);
    bulk_put(call, r->shas[op], SHA_LEN);
    bulk_put_u64(call, 1);
    bulk_put(call, r->names[queue].data, r->names[queue].len);
}

static bool redis_setup(void *state, int fd, struct loadgen_report *report)
{
    struct redis *r = state;
    struct buf request = {0}, reply = {0};
    bool ok = true;
    for (uint32_t op = 0; op < SCRIPT_COUNT && ok; op++) {
        buf_clear(&request);
        buf_lit(&request, "*3\r\n");
        bulk_put(&request, "SCRIPT", 6);
        bulk_put(&request, "LOAD", 4);
        bulk_put(&request, scripts[op], strlen(scripts[op]));
        ok = loadgen_talk(fd, request.data, request.len, reply_len, &reply) &&
             reply.len >= SHA_LEN + 7 && reply.data[0] == '$';
        if (ok)
            memcpy(r->shas[op], reply.data + 5, SHA_LEN);
        for (uint32_t q = 0; q < r->config->queue_count && ok; q++)
            call_build(r, q, op);
    }
    if (!ok)
        snprintf(report->error, LOADGEN_ERROR_MAX, "cannot load a script: %.*s", (int)reply.len,
                 reply.data ? reply.data : "");
    buf_fini(&request);
    buf_fini(&reply);
    return ok;
}

static void call_put(struct redis *r, const struct loadgen_slot *slot, uint32_t arguments,
                     struct buf *out)
{
    const struct buf *call = &r->calls[slot->queue * SCRIPT_COUNT + slot->op];
    buf_putc(out, '*');
    buf_put_u64(out, 4 + arguments);
    buf_lit(out, "\r\n");
    buf_put(out, call->data, call->len);
}

static void redis_encode(void *state, const struct loadgen_slot *slot, struct buf *out)
{
    struct redis *r = state;
    const struct loadgen_config *config = r->config;
    const struct buf *tail;
    switch (slot->op) {
    case LOADGEN_ENQUEUE:
        call_put(r, slot, 2 * config->enqueue_batch, out);
        tail = &r->tails[r->next_tail++ % r->tail_count];
        buf_put(out, tail->data, tail->len);
        break;
    case LOADGEN_CLAIM:
        call_put(r, slot, 4, out);
        bulk_put_u64(out, config->batch);
        bulk_put_u64(out, slot->sent_us / 1000 + LEASE_MS);
        bulk_put_u64(out, config->priority_max);
        bulk_put_u64(out, config->priority_min);
        break;
    default:
        call_put(r, slot, slot->lease_count, out);
        for (uint32_t i = 0; i < slot->lease_count; i++)
            bulk_put(out, slot->leases[i].id, slot->leases[i].id_len);
    }
}

/* Every other element of the array is an id; the payloads between them are stepped over. */
static bool leases_decode(struct redis *r, struct loadgen_slot *slot, const char *data, size_t len)
{
    const char *at = memchr(data, '\n', len);
    uint64_t elements = loadgen_number(data + 1, data + len);
    slot->lease_count = 0;
    if (data[0] != '*' || !at)
        return false;
    at++;
    for (uint64_t i = 0; i + 1 < elements && slot->lease_count < r->config->batch; i += 2) {
        const char *id = (const char *)memchr(at, '\n', (size_t)(data + len - at)) + 1;
        size_t id_len = loadgen_number(at + 1, id);
        if (!loadgen_lease_set(&slot->leases[slot->lease_count++], id, id_len, NULL, 0))
            return false;
        at = id + id_len + 2;
        at += reply_len(at, (size_t)(data + len - at));
    }
    return true;
}

static size_t redis_decode(void *state, struct loadgen_slot *slot, const char *data, size_t len,
                           struct loadgen_answer *answer)
{
    struct redis *r = state;
    size_t used = reply_len(data, len);
    if (used == LOADGEN_MORE || used == LOADGEN_GARBAGE)
        return used;
    if (data[0] == '-') {
        *answer = (struct loadgen_answer){
            .refused = slot->op == LOADGEN_ENQUEUE ? r->config->enqueue_batch : 1,
            .status = 500,
            .detail = data + 1,
            .detail_len = used - 3,
        };
        return used;
    }
    if (slot->op == LOADGEN_CLAIM) {
        if (!leases_decode(r, slot, data, used))
            return LOADGEN_GARBAGE;
        answer->messages = slot->lease_count;
    } else {
        answer->messages = (uint32_t)loadgen_number(data + 1, data + used);
    }
    return used;
}

const struct loadgen_driver loadgen_redis = {
    .scheme = "redis",
    .port = "6379",
    .ops = 1 << LOADGEN_ENQUEUE | 1 << LOADGEN_CLAIM | 1 << LOADGEN_ACK,
    .claims_max = ENQUEUE_BATCH_MAX,
    .open = redis_open,
    .close = redis_close,
    .setup = redis_setup,
    .encode = redis_encode,
    .decode = redis_decode,
};
