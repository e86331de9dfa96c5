/* The driver for Triage itself. Requests are prepared once; an enqueue is two
 * copies: the head of the queue, and a tail with Content-Length and body.
 *
 * Known limit: a claim looks for the first "message_id" and "receipt_handle" of each
 * message as text. A payload that is a JSON object with these very keys, enqueued by
 * somebody else, would mislead it; the ack is then refused and counted as an error. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include "loadgen/http.h"

#include "base/json.h"
#include "base/mem.h"
#include "loadgen/connect.h"
#include "loadgen/loadgen.h"
#include "term/words.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define PROBLEM_TOKENS_MAX 64

struct http {
    const struct loadgen_config *config;
    uint32_t tail_count;
    uint64_t next_tail;
    struct buf *paths;  /* for each queue: /v1/queues/NAME */
    struct buf *heads;  /* for each queue: head of an enqueue, up to Content-Length */
    struct buf *claims; /* for each queue: the whole request */
    struct buf *polls;  /* the same */
    struct buf *tails;  /* Content-Length, empty line, body */
    struct buf body;    /* of an ack, while it is built */
};

static const char *header_find(const char *head, size_t len, const char *name)
{
    size_t name_len = strlen(name);
    const char *end = head + len;
    for (const char *line = head; line < end;) {
        if ((size_t)(end - line) > name_len && line[name_len] == ':' &&
            strncasecmp(line, name, name_len) == 0) {
            line += name_len + 1;
            while (line < end && (*line == ' ' || *line == '\t'))
                line++;
            return line;
        }
        line = memchr(line, '\n', (size_t)(end - line));
        if (!line)
            return NULL;
        line++;
    }
    return NULL;
}

/* An answer of 204 has no body and needs no length. */
size_t loadgen_http_decode(const char *data, size_t len, struct loadgen_http_answer *answer)
{
    if (len >= 7 && memcmp(data, "HTTP/1.", 7) != 0)
        return LOADGEN_GARBAGE;
    const char *head_end = memmem(data, len, "\r\n\r\n", 4);
    if (!head_end)
        return len > HTTP_HEAD_MAX ? LOADGEN_GARBAGE : LOADGEN_MORE;
    size_t head_len = (size_t)(head_end - data) + 4;
    answer->status = (int)loadgen_number(data + 9, data + 12);
    answer->body = data + head_len;
    answer->body_len = 0;
    if (answer->status == 204)
        return head_len;
    const char *value = header_find(data, head_len, "Content-Length");
    if (!value)
        return LOADGEN_GARBAGE;
    answer->body_len = loadgen_number(value, head_end);
    if (answer->body_len > HTTP_BODY_MAX)
        return LOADGEN_GARBAGE;
    return len - head_len < answer->body_len ? LOADGEN_MORE : head_len + answer->body_len;
}

size_t loadgen_http_complete(const char *data, size_t len)
{
    struct loadgen_http_answer answer;
    return loadgen_http_decode(data, len, &answer);
}

static void token_put(struct buf *out, const struct loadgen_config *config)
{
    if (config->token)
        buf_printf(out, "Authorization: Bearer %s\r\n", config->token);
}

static void host_put(struct buf *out, const struct loadgen_config *config)
{
    bool v6 = strchr(config->host, ':') != NULL;
    buf_printf(out, "Host: %s%s%s:%s\r\n", v6 ? "[" : "", config->host, v6 ? "]" : "",
               config->port);
}

static void request_put(struct buf *out, const struct loadgen_config *config, const char *method,
                        const struct buf *path, const char *suffix)
{
    buf_printf(out, "%s %.*s%s HTTP/1.1\r\n", method, (int)path->len, path->data, suffix);
    host_put(out, config);
    buf_lit(out, "Content-Type: application/json\r\n");
    token_put(out, config);
}

static void body_put(struct buf *out, const struct buf *body)
{
    buf_printf(out, "Content-Length: %zu\r\n\r\n", body->len);
    buf_put(out, body->data, body->len);
}

static void message_put(const struct http *h, struct buf *out, uint64_t i, const char *payload)
{
    const struct loadgen_config *config = h->config;
    buf_lit(out, "{\"payload\":\"");
    buf_put(out, payload, config->payload_len);
    buf_printf(out, "\",\"priority\":%u", loadgen_priority(config, i));
    if (config->delay_seconds > 0)
        buf_printf(out, ",\"delay_seconds\":%u", config->delay_seconds);
    buf_putc(out, '}');
}

static void tails_build(struct http *h)
{
    const struct loadgen_config *config = h->config;
    const uint32_t batch = config->enqueue_batch;
    h->tail_count = loadgen_variants(config, (size_t)batch * (config->payload_len + 32));
    h->tails = mem_zalloc(h->tail_count * sizeof(*h->tails));
    char *payloads = loadgen_payloads(h->tail_count * batch, config->payload_len);
    struct buf body = {0};
    for (uint32_t t = 0; t < h->tail_count; t++) {
        buf_clear(&body);
        if (batch > 1)
            buf_lit(&body, "{\"messages\":[");
        for (uint32_t i = 0; i < batch; i++) {
            uint64_t n = (uint64_t)t * batch + i;
            if (i > 0)
                buf_putc(&body, ',');
            message_put(h, &body, n, payloads + n * config->payload_len);
        }
        if (batch > 1)
            buf_lit(&body, "]}");
        body_put(&h->tails[t], &body);
    }
    buf_fini(&body);
    free(payloads);
}

static void claim_build(struct http *h, struct buf *out, uint32_t queue, int wait_seconds)
{
    struct buf body = {0};
    buf_printf(&body, "{\"max\":%u", h->config->batch);
    if (wait_seconds > 0)
        buf_printf(&body, ",\"wait_seconds\":%d", wait_seconds);
    buf_putc(&body, '}');
    request_put(out, h->config, "POST", &h->paths[queue], "/messages/claim");
    body_put(out, &body);
    buf_fini(&body);
}

static void *http_open(const struct loadgen_config *config)
{
    struct http *h = mem_zalloc(sizeof(*h));
    h->config = config;
    size_t size = config->queue_count * sizeof(struct buf);
    h->paths = mem_zalloc(size);
    h->heads = mem_zalloc(size);
    h->claims = mem_zalloc(size);
    h->polls = mem_zalloc(size);
    for (uint32_t q = 0; q < config->queue_count; q++) {
        buf_lit(&h->paths[q], "/v1/queues/");
        loadgen_queue_name(config, q, &h->paths[q]);
        request_put(&h->heads[q], config, "POST", &h->paths[q],
                    config->enqueue_batch > 1 ? "/messages/batch" : "/messages");
        claim_build(h, &h->claims[q], q, 0);
        claim_build(h, &h->polls[q], q, WAIT_SECONDS_MAX);
    }
    tails_build(h);
    return h;
}

static void bufs_free(struct buf *bufs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        buf_fini(&bufs[i]);
    free(bufs);
}

static void http_close(void *state)
{
    struct http *h = state;
    const uint32_t queues = h->config->queue_count;
    bufs_free(h->paths, queues);
    bufs_free(h->heads, queues);
    bufs_free(h->claims, queues);
    bufs_free(h->polls, queues);
    bufs_free(h->tails, h->tail_count);
    buf_fini(&h->body);
    free(h);
}

/* Words the refusal as every command does. */
static void refusal_take(const struct loadgen_http_answer *answer, struct loadgen_report *report)
{
    struct json_doc doc;
    struct buf text = {0};
    json_init(&doc);
    buf_lit(&text, "cannot create the queue: ");
    if (json_parse(&doc, answer->body, answer->body_len, PROBLEM_TOKENS_MAX))
        words_put_problem(&text, &doc, 0, answer->status, false, NULL);
    else
        buf_printf(&text, "status %d", answer->status);
    snprintf(report->error, LOADGEN_ERROR_MAX, "%s", buf_cstr(&text));
    report->refused[answer->status < LOADGEN_STATUS_MAX ? answer->status : 0]++;
    json_fini(&doc);
    buf_fini(&text);
}

static bool queue_create(struct http *h, int fd, uint32_t queue, struct loadgen_report *report)
{
    struct buf request = {0}, reply = {0};
    struct loadgen_http_answer answer = {0};
    request_put(&request, h->config, "PUT", &h->paths[queue], "");
    buf_lit(&request, "Content-Length: 2\r\n\r\n{}");
    bool answered = loadgen_talk(fd, request.data, request.len, loadgen_http_complete, &reply);
    if (answered)
        loadgen_http_decode(reply.data, reply.len, &answer);
    bool created = answered && answer.status / 100 == 2;
    if (!answered)
        snprintf(report->error, LOADGEN_ERROR_MAX, "the server does not answer in HTTP");
    else if (!created)
        refusal_take(&answer, report);
    buf_fini(&request);
    buf_fini(&reply);
    return created;
}

/* A claim of a queue that does not exist is refused, so every queue is made first. An empty
 * configuration changes nothing of one that is there. */
static bool http_setup(void *state, int fd, struct loadgen_report *report)
{
    struct http *h = state;
    for (uint32_t q = 0; q < h->config->queue_count; q++) {
        if (!queue_create(h, fd, q, report))
            return false;
    }
    return true;
}

static int64_t http_waiting(void *state, int fd)
{
    static const char key[] = "\"waiting_consumers\":";
    struct http *h = state;
    struct buf request = {0}, reply = {0}, none = {0};
    int64_t waiting = -1;
    request_put(&request, h->config, "GET", &h->paths[0], "/stats");
    body_put(&request, &none);
    if (loadgen_talk(fd, request.data, request.len, loadgen_http_complete, &reply)) {
        const char *at = memmem(reply.data, reply.len, key, sizeof(key) - 1);
        if (at)
            waiting = (int64_t)loadgen_number(at + sizeof(key) - 1 + (at[sizeof(key) - 1] == ' '),
                                              reply.data + reply.len);
    }
    buf_fini(&request);
    buf_fini(&reply);
    return waiting;
}

static void delete_put(struct http *h, const struct loadgen_slot *slot, struct buf *out)
{
    const struct buf *path = &h->paths[slot->queue];
    const struct loadgen_lease *lease = &slot->leases[0];
    buf_lit(out, "DELETE ");
    buf_put(out, path->data, path->len);
    buf_lit(out, "/messages/");
    buf_put(out, lease->id, lease->id_len);
    buf_lit(out, " HTTP/1.1\r\n");
    host_put(out, h->config);
    token_put(out, h->config);
    buf_lit(out, "X-Receipt-Handle: ");
    buf_put(out, lease->receipt, lease->receipt_len);
    buf_lit(out, "\r\n\r\n");
}

static void ack_put(struct http *h, const struct loadgen_slot *slot, struct buf *out)
{
    struct buf *body = &h->body;
    buf_clear(body);
    buf_lit(body, "{\"receipts\":[");
    for (uint32_t i = 0; i < slot->lease_count; i++) {
        const struct loadgen_lease *lease = &slot->leases[i];
        if (i > 0)
            buf_putc(body, ',');
        buf_lit(body, "{\"message_id\":\"");
        buf_put(body, lease->id, lease->id_len);
        buf_lit(body, "\",\"receipt_handle\":\"");
        buf_put(body, lease->receipt, lease->receipt_len);
        buf_lit(body, "\"}");
    }
    buf_lit(body, "]}");
    request_put(out, h->config, "POST", &h->paths[slot->queue], "/messages/ack");
    body_put(out, body);
}

static void http_encode(void *state, const struct loadgen_slot *slot, struct buf *out)
{
    struct http *h = state;
    const uint32_t q = slot->queue;
    const struct buf *tail;
    switch (slot->op) {
    case LOADGEN_ENQUEUE:
        tail = &h->tails[h->next_tail++ % h->tail_count];
        buf_put(out, h->heads[q].data, h->heads[q].len);
        buf_put(out, tail->data, tail->len);
        break;
    case LOADGEN_CLAIM:
        buf_put(out, h->claims[q].data, h->claims[q].len);
        break;
    case LOADGEN_POLL:
        buf_put(out, h->polls[q].data, h->polls[q].len);
        break;
    default:
        if (h->config->batch == 1)
            delete_put(h, slot, out);
        else
            ack_put(h, slot, out);
    }
}

/* The string value of the next `key` (with its quotes) at or after `at`; NULL when there is none.
 */
static const char *value_find(const char *at, const char *end, const char *key, size_t *len)
{
    size_t key_len = strlen(key);
    const char *value = memmem(at, (size_t)(end - at), key, key_len);
    if (!value)
        return NULL;
    value += key_len;
    while (value < end && (*value == ':' || *value == ' '))
        value++;
    if (value >= end || *value != '"')
        return NULL;
    value++;
    const char *quote = memchr(value, '"', (size_t)(end - value));
    if (!quote)
        return NULL;
    *len = (size_t)(quote - value);
    return value;
}

static bool leases_decode(struct http *h, struct loadgen_slot *slot, const char *at,
                          const char *end)
{
    slot->lease_count = 0;
    while (slot->lease_count < h->config->batch) {
        size_t id_len, receipt_len;
        const char *id = value_find(at, end, "\"message_id\"", &id_len);
        if (!id)
            return true;
        const char *receipt = value_find(id + id_len, end, "\"receipt_handle\"", &receipt_len);
        if (!receipt ||
            !loadgen_lease_set(&slot->leases[slot->lease_count], id, id_len, receipt, receipt_len))
            return false;
        slot->lease_count++;
        at = receipt + receipt_len;
    }
    return true;
}

static uint32_t errors_count(const struct loadgen_http_answer *answer, const char **first)
{
    const char *end = answer->body + answer->body_len;
    uint32_t count = 0;
    *first = NULL;
    for (const char *at = answer->body;
         (at = memmem(at, (size_t)(end - at), "\"error\":", 8)) != NULL; at += 8) {
        if (!*first)
            *first = at;
        count++;
    }
    return count;
}

/* A batch is answered with 200 even when some of its messages were refused. */
static void batch_decode(struct loadgen_answer *answer, uint32_t asked,
                         const struct loadgen_http_answer *got)
{
    const char *first;
    uint32_t refused = errors_count(got, &first);
    answer->refused = refused < asked ? refused : asked;
    answer->messages = asked - answer->refused;
    if (refused > 0) {
        const char *status =
            memmem(first, (size_t)(got->body + got->body_len - first), "\"status\":", 9);
        answer->status = status ? (int)loadgen_number(status + 9, got->body + got->body_len) : 0;
        answer->detail = first;
        answer->detail_len = (size_t)(got->body + got->body_len - first);
    }
}

static size_t http_decode(void *state, struct loadgen_slot *slot, const char *data, size_t len,
                          struct loadgen_answer *answer)
{
    struct http *h = state;
    struct loadgen_http_answer got;
    size_t used = loadgen_http_decode(data, len, &got);
    if (used == LOADGEN_MORE || used == LOADGEN_GARBAGE)
        return used;
    bool claim = slot->op == LOADGEN_CLAIM || slot->op == LOADGEN_POLL;
    const struct loadgen_config *config = h->config;
    uint32_t asked = slot->op == LOADGEN_ACK ? slot->lease_count : config->enqueue_batch;
    uint32_t batch = slot->op == LOADGEN_ACK ? config->batch : config->enqueue_batch;
    if (got.status / 100 != 2) {
        *answer = (struct loadgen_answer){.refused = claim ? 1 : asked,
                                          .status = got.status,
                                          .detail = got.body,
                                          .detail_len = got.body_len};
        return used;
    }
    if (claim) {
        if (!leases_decode(h, slot, got.body, got.body + got.body_len))
            return LOADGEN_GARBAGE;
        answer->messages = slot->lease_count;
    } else if (batch > 1) {
        batch_decode(answer, asked, &got);
    } else {
        answer->messages = 1;
    }
    return used;
}

const struct loadgen_driver loadgen_http = {
    .scheme = "http",
    .port = "7420",
    .ops = 1 << LOADGEN_ENQUEUE | 1 << LOADGEN_CLAIM | 1 << LOADGEN_ACK | 1 << LOADGEN_POLL,
    .has_delay = true,
    .claims_max = CLAIM_MAX,
    .open = http_open,
    .close = http_close,
    .setup = http_setup,
    .waiting = http_waiting,
    .encode = http_encode,
    .decode = http_decode,
};
