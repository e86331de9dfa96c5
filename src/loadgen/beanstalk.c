/* The driver for beanstalkd. Its protocol has no batches: a batch is that many
 * commands in one write. Urgency counts the other way round there, 0 first. */
#include "base/mem.h"
#include "loadgen/connect.h"
#include "loadgen/loadgen.h"

#include <stdio.h>
#include <stdlib.h>

#define LEASE_SECONDS 60

struct beanstalk {
    const struct loadgen_config *config;
    uint32_t put_count;
    uint64_t next_put;
    struct buf *puts; /* `batch` commands each */
    struct buf claim;
    struct buf poll;
};

static void *beanstalk_open(const struct loadgen_config *config)
{
    struct beanstalk *b = mem_zalloc(sizeof(*b));
    const uint32_t batch = config->enqueue_batch, len = config->payload_len;
    b->config = config;
    b->put_count = loadgen_variants(config, (size_t)batch * (len + 32));
    b->puts = mem_zalloc(b->put_count * sizeof(*b->puts));
    char *payloads = loadgen_payloads(b->put_count * batch, len);
    for (uint32_t n = 0; n < b->put_count * batch; n++) {
        uint32_t level = loadgen_priority(config, n);
        buf_printf(&b->puts[n / batch], "put %u %u %d %u\r\n%.*s\r\n", 9 - (level < 9 ? level : 9),
                   config->delay_seconds, LEASE_SECONDS, len, (int)len, payloads + (size_t)n * len);
    }
    for (uint32_t i = 0; i < config->batch; i++)
        buf_lit(&b->claim, "reserve-with-timeout 0\r\n");
    buf_printf(&b->poll, "reserve-with-timeout %d\r\n", WAIT_SECONDS_MAX);
    free(payloads);
    return b;
}

static void beanstalk_close(void *state)
{
    struct beanstalk *b = state;
    for (uint32_t i = 0; i < b->put_count; i++)
        buf_fini(&b->puts[i]);
    free(b->puts);
    buf_fini(&b->claim);
    buf_fini(&b->poll);
    free(b);
}

static size_t three_lines(const char *data, size_t len)
{
    const char *at = data, *end = data + len;
    for (int i = 0; i < 3; i++) {
        at = memchr(at, '\n', (size_t)(end - at));
        if (!at)
            return LOADGEN_MORE;
        at++;
    }
    return (size_t)(at - data);
}

static bool beanstalk_greet(void *state, int fd, uint32_t queue, char error[LOADGEN_ERROR_MAX])
{
    struct beanstalk *b = state;
    struct buf name = {0}, request = {0}, reply = {0};
    loadgen_queue_name(b->config, queue, &name);
    buf_printf(&request, "use %s\r\nwatch %s\r\nignore default\r\n", buf_cstr(&name),
               buf_cstr(&name));
    bool ok = loadgen_talk(fd, request.data, request.len, three_lines, &reply) &&
              memcmp(reply.data, "USING ", 6) == 0;
    if (!ok)
        snprintf(error, LOADGEN_ERROR_MAX, "no beanstalkd answers there");
    buf_fini(&name);
    buf_fini(&request);
    buf_fini(&reply);
    return ok;
}

static void beanstalk_encode(void *state, const struct loadgen_slot *slot, struct buf *out)
{
    struct beanstalk *b = state;
    const struct buf *whole = slot->op == LOADGEN_ENQUEUE ? &b->puts[b->next_put++ % b->put_count]
                              : slot->op == LOADGEN_CLAIM ? &b->claim
                                                          : &b->poll;
    if (slot->op != LOADGEN_ACK) {
        buf_put(out, whole->data, whole->len);
        return;
    }
    for (uint32_t i = 0; i < slot->lease_count; i++) {
        buf_lit(out, "delete ");
        buf_put(out, slot->leases[i].id, slot->leases[i].id_len);
        buf_lit(out, "\r\n");
    }
}

static bool starts(const char *line, const char *end, const char *word)
{
    size_t len = strlen(word);
    return (size_t)(end - line) >= len && memcmp(line, word, len) == 0;
}

/* "RESERVED id bytes" and the bytes on the next line. Returns one past them, or NULL for more;
 * `*lease` is NULL when the slot has room for no more. */
static const char *reserved_decode(const char *line, const char *eol, const char *end,
                                   struct loadgen_lease *lease)
{
    const char *id = line + 9;
    const char *space = memchr(id, ' ', (size_t)(eol - id));
    if (!space)
        return NULL;
    uint64_t body_len = loadgen_number(space + 1, eol);
    if ((uint64_t)(end - eol) < 1 + body_len + 2)
        return NULL;
    loadgen_lease_set(lease, id, (size_t)(space - id), NULL, 0);
    return eol + 1 + body_len + 2;
}

static int status_of(const char *line, const char *end)
{
    return starts(line, end, "NOT_FOUND")       ? 404
           : starts(line, end, "DRAINING")      ? 503
           : starts(line, end, "JOB_TOO_BIG")   ? 413
           : starts(line, end, "OUT_OF_MEMORY") ? 507
                                                : 500;
}

static void refuse(struct loadgen_answer *answer, const char *line, const char *eol)
{
    answer->refused++;
    answer->status = status_of(line, eol);
    answer->detail = line;
    answer->detail_len = (size_t)(eol - line);
}

static size_t beanstalk_decode(void *state, struct loadgen_slot *slot, const char *data, size_t len,
                               struct loadgen_answer *answer)
{
    struct beanstalk *b = state;
    const char *at = data, *end = data + len;
    bool claim = slot->op == LOADGEN_CLAIM || slot->op == LOADGEN_POLL;
    uint32_t expected = slot->op == LOADGEN_ACK       ? slot->lease_count
                        : slot->op == LOADGEN_ENQUEUE ? b->config->enqueue_batch
                                                      : b->config->batch;
    uint32_t leases = 0;
    for (uint32_t i = 0; i < expected; i++) {
        const char *eol = memchr(at, '\n', (size_t)(end - at));
        const char *next = eol ? eol + 1 : NULL;
        if (eol && claim && starts(at, eol, "RESERVED ")) {
            next = reserved_decode(at, eol, end, &slot->leases[leases]);
            leases++;
        } else if (eol && (starts(at, eol, "INSERTED") || starts(at, eol, "DELETED"))) {
            answer->messages++;
        } else if (eol && !starts(at, eol, "TIMED_OUT") && !starts(at, eol, "DEADLINE_SOON")) {
            refuse(answer, at, eol);
        }
        if (!next)
            return LOADGEN_MORE;
        at = next;
    }
    if (claim)
        answer->messages = slot->lease_count = leases;
    return (size_t)(at - data);
}

const struct loadgen_driver loadgen_beanstalk = {
    .scheme = "beanstalk",
    .port = "11300",
    .ops = 1 << LOADGEN_ENQUEUE | 1 << LOADGEN_CLAIM | 1 << LOADGEN_ACK | 1 << LOADGEN_POLL,
    .has_delay = true,
    .claims_max = ENQUEUE_BATCH_MAX,
    .open = beanstalk_open,
    .close = beanstalk_close,
    .greet = beanstalk_greet,
    .encode = beanstalk_encode,
    .decode = beanstalk_decode,
};
