#include "net/conn.h"

#include "base/clock.h"

/* TLS on a connection: the bytes that come are records, first of a handshake, then with requests in
 * them. tls_stream.c speaks to OpenSSL; this file decides when it may. */

/* A client that speaks plain HTTP to a port for TLS is told so, in HTTP. It is known by the
 * connection's first byte. While a handshake waits, earlier bytes have not reached OpenSSL: then
 * these are not the first. */
static bool is_plain_http(const struct conn *c, const char *data)
{
    return c->tls->since_text == 0 && !c->greeting_waits && !c->tls->greeted && data[0] >= 'A' &&
           data[0] <= 'Z';
}

static void tls_drop(struct conn *c)
{
    tls_stream_free(c->tls);
    c->tls = NULL;
    net_count(c->server, parse_errors, 1);
    conn_refuse(c, STATUS_MALFORMED_REQUEST, "This port speaks TLS: use https:// here.");
}

static void greeting_count(struct conn *c)
{
    net_count(c->server, handshakes, 1);
    net_count(c->server, handshakes_resumed, SSL_session_reused(c->tls->ssl));
}

static void records_take(struct conn *c, const char *data, size_t len)
{
    struct http_server *s = c->server;
    bool greeted = c->tls->greeted;
    ssize_t n;
    if (greeted && c->in.len == 0 && !tls_stream_is_partial(c->tls))
        c->began_ms = uv_now(s->loop);
    tls_stream_feed(c->tls, data, len);
    while ((n = tls_stream_read(c->tls, s->text, sizeof(s->text))) > 0) {
        if (!c->last)
            intake_feed(c, s->text, (size_t)n);
    }
    if (c->tls->greeted && !greeted)
        greeting_count(c);
    if (n == TLS_READ_END)
        c->ended = true;
    if (n == TLS_READ_FAILED) {
        net_count(s, handshakes_failed, 1);
        conn_close(c);
    }
}

/* A step of a handshake takes as long as many requests, so a turn has few of them: the bytes wait
 * in `in`, and those that wait go on in the order in which they came. */
static void greeting_wait(struct conn *c, bool waits)
{
    c->server->greetings_waiting += (unsigned)waits - (unsigned)c->greeting_waits;
    c->greeting_waits = waits;
    if (waits)
        conn_postpone(c);
}

/* An address may not take all handshake steps of a turn: it leaves one to other addresses, however
 * many of its own connections wait. */
static bool greeting_may(const struct conn *c)
{
    const struct http_server *s = c->server;
    unsigned max = s->limits.handshakes_max, own = 0;
    for (unsigned i = 0; i < s->turn_handshakes; i++)
        own += s->turn_greeters[i] == c->account;
    if (s->turn_handshakes == 0)
        return true;
    return s->turn_handshakes < max && own < max - 1 &&
           clock_mono_us() - s->turn_handshakes_us < HTTP_HANDSHAKES_US;
}

static void greeting_note(const struct conn *c)
{
    struct http_server *s = c->server;
    if (s->turn_handshakes == 0)
        s->turn_handshakes_us = clock_mono_us();
    s->turn_greeters[s->turn_handshakes++] = c->account;
}

void records_feed(struct conn *c, const char *data, size_t len)
{
    struct http_server *s = c->server;
    bool may = s->greetings_waiting == 0 && greeting_may(c);
    if (is_plain_http(c, data)) {
        tls_drop(c);
    } else if (c->tls->greeted || may) {
        if (!c->tls->greeted)
            greeting_note(c);
        records_take(c, data, len);
    } else {
        buf_put(&c->in, data, len);
        greeting_wait(c, true);
    }
}

void greeting_resume(struct conn *c)
{
    if (!greeting_may(c)) {
        conn_postpone(c);
        return;
    }
    struct buf waited = c->in;
    c->in = (struct buf){0};
    greeting_note(c);
    greeting_wait(c, false);
    records_take(c, waited.data, waited.len);
    buf_fini(&waited);
}

/* Sends the close_notify, which says that nothing is missing, if the kernel takes it at once. */
void records_end(struct conn *c)
{
    c->server->greetings_waiting -= c->greeting_waits;
    tls_stream_end(c->tls);
    uv_buf_t rest = uv_buf_init(c->tls->records.data, (unsigned)c->tls->records.len);
    if (rest.len > 0 && c->sending.len == 0 && !c->shut)
        (void)uv_try_write(&c->io.stream, &rest, 1);
    tls_stream_free(c->tls);
    c->tls = NULL;
}
