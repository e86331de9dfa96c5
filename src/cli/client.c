#include "cli/client.h"

#include "term/words.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>

#ifndef TRIAGE_VERSION
#define TRIAGE_VERSION "dev"
#endif

#define CONNECT_MS_MAX 5000
#define SILENCE_S_MAX  60      /* without a single byte, besides the wait that was asked for */
#define TOKENS_MAX     2000000 /* of an answer; the largest list has a thousand messages */

static size_t on_body(char *data, size_t size, size_t count, void *ctx)
{
    struct client *c = ctx;
    buf_put(&c->answer, data, size * count);
    return size * count;
}

static size_t on_header(char *line, size_t size, size_t count, void *ctx)
{
    static const char name[] = "x-next-cursor:";
    struct client *c = ctx;
    size_t len = size * count;
    if (len > strlen(name) && strncasecmp(line, name, strlen(name)) == 0) {
        size_t from = strlen(name), to = len;
        while (from < to && line[from] == ' ')
            from++;
        while (to > from && (line[to - 1] == '\r' || line[to - 1] == '\n' || line[to - 1] == ' '))
            to--;
        buf_clear(&c->cursor);
        buf_put(&c->cursor, line + from, to - from);
    }
    return len;
}

/* A connection must not be inherited by the commands of `work`. A command that outlives us would
 * keep a waiting claim open, and so hold the message that the server picks for it. */
static curl_socket_t on_open_socket(void *ctx, curlsocktype purpose, struct curl_sockaddr *a)
{
    (void)ctx;
    (void)purpose;
    return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

void client_init(struct client *c)
{
    *c = (struct client){.easy = curl_easy_init()};
    if (c->easy == NULL)
        abort();
    json_init(&c->doc);
}

void client_fini(struct client *c)
{
    curl_easy_cleanup(c->easy);
    curl_slist_free_all(c->headers);
    buf_fini(&c->url);
    buf_fini(&c->body);
    buf_fini(&c->answer);
    buf_fini(&c->cursor);
    json_fini(&c->doc);
}

/* The server's address, the certificates to trust, and our own. NULL leaves curl's default. */
static void identity_set(CURL *e, const struct cli *cli)
{
    curl_easy_setopt(e, CURLOPT_UNIX_SOCKET_PATH, cli->socket);
    if (cli->cacert)
        curl_easy_setopt(e, CURLOPT_CAINFO, cli->cacert);
    if (cli->cert) {
        curl_easy_setopt(e, CURLOPT_SSLCERT, cli->cert);
        curl_easy_setopt(e, CURLOPT_SSLKEY, cli->key ? cli->key : cli->cert);
    }
}

void client_begin(struct client *c, const struct cli *cli)
{
    curl_easy_reset(c->easy);
    curl_slist_free_all(c->headers);
    c->headers = NULL;
    buf_clear(&c->url);
    buf_clear(&c->body);
    buf_clear(&c->answer);
    buf_clear(&c->cursor);
    c->wait_seconds = 0;
    c->limit_ms = 0;
    c->http = 0;
    c->is_json = false;
    c->has_options = false;
    c->priority_word = NULL;
    c->server = cli->server;
    buf_puts(&c->url, cli->url);
    c->base_len = c->url.len;
    identity_set(c->easy, cli);
    if (cli->token) {
        struct buf line = {0};
        buf_printf(&line, "Authorization: Bearer %s", cli->token);
        c->headers = curl_slist_append(c->headers, buf_cstr(&line));
        buf_fini(&line);
    }
}

static void put_encoded(struct buf *url, const char *s)
{
    static const char digits[] = "0123456789ABCDEF";
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    for (; *s; s++) {
        unsigned char byte = (unsigned char)*s;
        if (strchr(plain, *s) != NULL) {
            buf_putc(url, *s);
        } else {
            char text[3] = {'%', digits[byte >> 4], digits[byte & 15]};
            buf_put(url, text, sizeof(text));
        }
    }
}

void client_path(struct client *c, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    for (const char *at = fmt; *at; at++) {
        if (at[0] == '%' && at[1] == 's') {
            put_encoded(&c->url, va_arg(args, const char *));
            at++;
        } else {
            buf_putc(&c->url, *at);
        }
    }
    va_end(args);
}

void client_query(struct client *c, const char *name, const char *value)
{
    bool more = memchr(c->url.data + c->base_len, '?', c->url.len - c->base_len) != NULL;
    buf_putc(&c->url, more ? '&' : '?');
    put_encoded(&c->url, name);
    buf_putc(&c->url, '=');
    put_encoded(&c->url, value);
}

void client_header(struct client *c, const char *name, const char *value)
{
    struct buf line = {0};
    buf_printf(&line, "%s: %s", name, value);
    c->headers = curl_slist_append(c->headers, buf_cstr(&line));
    buf_fini(&line);
}

void client_arm(struct client *c, const char *method, const char *type)
{
    CURL *e = c->easy;
    c->curl_error[0] = '\0';
    curl_easy_setopt(e, CURLOPT_URL, buf_cstr(&c->url));
    curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(e, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_USERAGENT, "triage/" TRIAGE_VERSION);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, c->curl_error);
    curl_easy_setopt(e, CURLOPT_PRIVATE, c);
    curl_easy_setopt(e, CURLOPT_OPENSOCKETFUNCTION, on_open_socket);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, c);
    curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(e, CURLOPT_HEADERDATA, c);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS_MAX);
    curl_easy_setopt(e, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(e, CURLOPT_LOW_SPEED_TIME, c->wait_seconds + SILENCE_S_MAX);
    curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)c->limit_ms);
    if (type != NULL || strcmp(method, "POST") == 0) {
        curl_easy_setopt(e, CURLOPT_POSTFIELDS, c->body.len > 0 ? c->body.data : "");
        curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)c->body.len);
        client_header(c, "Expect", ""); /* no waiting for 100 Continue */
        client_header(c, "Content-Type", type ? type : TYPE_JSON);
    }
    curl_easy_setopt(e, CURLOPT_HTTPHEADER, c->headers);
}

void client_send(struct client *c, CURLM *multi)
{
    assert(c->multi == NULL);
    if (curl_multi_add_handle(multi, c->easy) != CURLM_OK)
        abort();
    c->multi = multi;
}

void client_abandon(struct client *c)
{
    if (c->multi == NULL)
        return;
    curl_multi_remove_handle(c->multi, c->easy);
    c->multi = NULL;
}

void client_finish(struct client *c, CURLcode result)
{
    client_abandon(c); /* it has its answer and is no longer curl's */
    c->result = result;
    c->http = 0;
    if (result == CURLE_OK)
        curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &c->http);
    c->is_json = c->http != 0 && c->answer.len > 0 &&
                 json_parse(&c->doc, c->answer.data, c->answer.len, TOKENS_MAX);
}

bool client_succeeded(const struct client *c)
{
    return c->http >= 200 && c->http < 300;
}

bool client_is(const struct client *c, const char *problem_name)
{
    char urn[80];
    snprintf(urn, sizeof(urn), "urn:triage:%s", problem_name);
    return c->is_json && json_is(json_get(&c->doc, 0, "type"), urn);
}

/* The error in curl's words. For a socket in the file system the system's words are used, because
 * curl would name a port. */
static const char *failure(const struct client *c)
{
    long system_error = 0;
    curl_easy_getinfo(c->easy, CURLINFO_OS_ERRNO, &system_error);
    if (c->result == CURLE_COULDNT_CONNECT && system_error && strncmp(c->server, "unix:", 5) == 0)
        return strerror((int)system_error);
    return c->curl_error[0] ? c->curl_error : curl_easy_strerror(c->result);
}

/* What to do about it, if an option of ours helps. */
static const char *remedy(const struct client *c)
{
    long verified = 0;
    curl_easy_getinfo(c->easy, CURLINFO_SSL_VERIFYRESULT, &verified);
    if (c->result == CURLE_PEER_FAILED_VERIFICATION && verified != 0)
        return "; --cacert FILE names an authority to trust";
    if (c->result == CURLE_SSL_CERTPROBLEM)
        return "; --cert FILE and --key FILE belong together";
    if (c->result == CURLE_SSL_CONNECT_ERROR && strstr(c->curl_error, "wrong version number"))
        return "; a port without TLS wants http://";
    return "";
}

void client_explain(const struct client *c, struct buf *out)
{
    if (c->http == 0)
        buf_printf(out, "%s does not answer: %s%s", c->server, failure(c), remedy(c));
    else if (c->is_json)
        words_put_problem(out, &c->doc, 0, c->http, c->has_options, c->priority_word);
    else
        buf_printf(out, "%ld from %s, which does not look like a Triage server", c->http,
                   c->server);
}

int client_complain(const struct client *c)
{
    struct buf text = {0};
    client_explain(c, &text);
    cli_complain("%s", buf_cstr(&text));
    buf_fini(&text);
    return c->http == 0 ? CLI_UNREACHED : CLI_REFUSED;
}

void client_try(struct client *c, const char *method, const char *type)
{
    client_arm(c, method, type);
    client_finish(c, curl_easy_perform(c->easy));
}

int client_run(struct client *c, const char *method, const char *type)
{
    client_try(c, method, type);
    return client_succeeded(c) ? CLI_DONE : client_complain(c);
}
