/* The driver for any HTTP server that answers every POST the same way: what the
 * machine, the kernel and HTTP cost before a queue does anything. The body is the same
 * as that of a Triage enqueue. */
#include "base/mem.h"
#include "loadgen/http.h"
#include "loadgen/loadgen.h"

#include <stdlib.h>

struct bare {
    const struct loadgen_config *config;
    struct buf request;
};

static void *bare_open(const struct loadgen_config *config)
{
    struct bare *b = mem_zalloc(sizeof(*b));
    struct buf body = {0};
    char *payload = loadgen_payloads(1, config->payload_len);
    b->config = config;
    buf_printf(&body, "{\"payload\":\"%s\",\"priority\":%u}", payload, config->priority_min);
    buf_printf(&b->request,
               "POST %s HTTP/1.1\r\nHost: %s:%s\r\nContent-Type: application/json\r\n"
               "Content-Length: %zu\r\n\r\n",
               config->path, config->host, config->port, body.len);
    buf_put(&b->request, body.data, body.len);
    buf_fini(&body);
    free(payload);
    return b;
}

static void bare_close(void *state)
{
    struct bare *b = state;
    buf_fini(&b->request);
    free(b);
}

static void bare_encode(void *state, const struct loadgen_slot *slot, struct buf *out)
{
    struct bare *b = state;
    (void)slot;
    buf_put(out, b->request.data, b->request.len);
}

static size_t bare_decode(void *state, struct loadgen_slot *slot, const char *data, size_t len,
                          struct loadgen_answer *answer)
{
    struct loadgen_http_answer got;
    (void)state;
    (void)slot;
    size_t used = loadgen_http_decode(data, len, &got);
    if (used == LOADGEN_MORE || used == LOADGEN_GARBAGE)
        return used;
    bool ok = got.status / 100 == 2;
    *answer = (struct loadgen_answer){.messages = ok,
                                      .refused = !ok,
                                      .status = ok ? 0 : got.status,
                                      .detail = got.body,
                                      .detail_len = got.body_len};
    return used;
}

const struct loadgen_driver loadgen_bare = {
    .scheme = "http-bare",
    .port = "80",
    .ops = 1 << LOADGEN_ENQUEUE,
    .claims_max = 1,
    .open = bare_open,
    .close = bare_close,
    .encode = bare_encode,
    .decode = bare_decode,
};
