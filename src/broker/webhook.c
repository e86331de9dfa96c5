#define _GNU_SOURCE /* memrchr */
#include "broker/webhook.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <assert.h>
#include <ctype.h>
#include <curl/curl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <uv.h>

STAILQ_HEAD(webhook_list, webhook);

/* Who gets webhooks: a host and port, in small letters. Exists while webhooks wait for it. */
struct receiver {
    char *name;
    unsigned waiting; /* webhooks that wait for it; under the mutex */
    unsigned active;  /* webhooks under way; the thread's own */
};

/* The waiting webhooks of one queue, in order of arrival. Only the first may be sent. */
struct line {
    char queue[QUEUE_NAME_MAX + 1];
    struct webhook_list hooks;
};

struct webhook {
    char queue[QUEUE_NAME_MAX + 1];
    char *url;
    struct receiver *receiver; /* while it waits, as is the line */
    struct line *line;
    struct buf body;
    unsigned rank; /* how many wait before it for the same receiver; under the mutex */
    bool started;  /* whether a try was begun: until then it may be dropped. Under the mutex */
    STAILQ_ENTRY(webhook) next;
    STAILQ_ENTRY(webhook) next_in_line;

    /* The thread's own. */
    struct webhooks *owner;
    unsigned tries;  /* tries that failed */
    uint64_t due_ms; /* when the next try is due */
    CURL *easy;      /* NULL when no try is under way */
    bool local;      /* the try under way was refused, because its address is local */
};

struct webhooks {
    struct webhook_options options;
    atomic_uint_fast64_t lost;
    uv_thread_t thread;
    uv_mutex_t mutex;            /* for what follows; never held while something is sent */
    struct webhook_list waiting; /* in order of arrival; the thread takes out what it starts */
    unsigned waiting_count;
    struct map receivers; /* by name, those that webhooks wait for */
    struct map lines;     /* by queue, those that have webhooks */
    bool started;
    bool stopping;
    CURLM *multi; /* made by the thread; a wake-up ends its sleep */

    /* The thread's own. */
    unsigned active_count;
    struct curl_slist *headers;
};

/* Addresses */

/* Addresses at which clouds tell a machine its secrets, besides 169.254.169.254. Other addresses of
 * these networks may be receivers, so these are named one by one. */
static const uint8_t metadata_v4[][4] = {
    {100, 100, 100, 200}, /* Alibaba */
    {168, 63, 129, 16},   /* Azure */
};
static const uint8_t metadata_v6[][16] = {
    {0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, 0x54},             /* Amazon: fd00:ec2::254 */
    {0xfd, 0x20, 0x00, 0xce, [14] = 0x02, 0x54},             /* Google: fd20:ce::254 */
    {0xfd, 0x00, 0x00, 0xc1, [12] = 0xa9, 0xfe, 0xa9, 0xfe}, /* Oracle: fd00:c1::a9fe:a9fe */
};

static bool is_metadata(const uint8_t *a, const uint8_t *table, size_t count, size_t len)
{
    for (size_t i = 0; i < count; i++)
        if (memcmp(a, table + i * len, len) == 0)
            return true;
    return false;
}

static bool is_local_v4(const uint8_t a[4])
{
    return is_metadata(a, metadata_v4[0], sizeof(metadata_v4) / 4, 4) || a[0] == 0 || a[0] == 127 ||
           (a[0] == 169 && a[1] == 254) || a[0] >= 224;
}

/* The place of an IPv4 address inside an IPv6 address; -1: it has none. */
static int carried_v4(const uint8_t a[16])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}, compatible[12] = {0},
                         translated[12] = {0, 0x64, 0xff, 0x9b};
    if (memcmp(a, mapped, 12) == 0 || memcmp(a, compatible, 12) == 0 ||
        memcmp(a, translated, 12) == 0)
        return 12;
    return a[0] == 0x20 && a[1] == 0x02 ? 2 : -1; /* 6to4 */
}

static bool is_local_v6(const uint8_t a[16])
{
    int v4 = carried_v4(a);
    bool link_local = a[0] == 0xfe && (a[1] & 0xc0) == 0x80;
    return is_metadata(a, metadata_v6[0], sizeof(metadata_v6) / 16, 16) || link_local ||
           a[0] == 0xff || (v4 >= 0 && is_local_v4(a + v4));
}

bool webhook_is_local(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return is_local_v4((const uint8_t *)&((const struct sockaddr_in *)address)->sin_addr);
    if (address->sa_family == AF_INET6)
        return is_local_v6(((const struct sockaddr_in6 *)address)->sin6_addr.s6_addr);
    return true;
}

static curl_socket_t open_socket(void *ctx, curlsocktype purpose, struct curl_sockaddr *to)
{
    struct webhook *h = ctx;
    (void)purpose;
    if (!h->owner->options.local && webhook_is_local(&to->addr)) {
        h->local = true;
        return CURL_SOCKET_BAD;
    }
    return socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
}

/* One webhook */

static uint64_t now_ms(void)
{
    return uv_hrtime() / 1000000;
}

/* The host and port of a URL: after the scheme and the user's name, before the path. */
static char *receiver_name(const char *url)
{
    const char *from = strstr(url, "://");
    from = from ? from + 3 : url;
    size_t len = strcspn(from, "/?#");
    const char *at = memrchr(from, '@', len);
    const char *host = at ? at + 1 : from;
    char *name = mem_dup(host, len - (size_t)(host - from));
    for (char *c = name; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    return name;
}

static struct webhook *webhook_new(struct webhooks *w, const char *queue, const char *url,
                                   struct buf *body)
{
    struct webhook *h = mem_zalloc(sizeof(*h));
    snprintf(h->queue, sizeof(h->queue), "%s", queue);
    h->owner = w;
    h->url = mem_dup(url, strlen(url));
    h->body = *body;
    *body = (struct buf){0};
    return h;
}

static void webhook_free(struct webhook *h)
{
    assert(!h->easy); /* otherwise curl still reads its body */
    free(h->url);
    buf_fini(&h->body);
    free(h);
}

static size_t ignore_answer(char *data, size_t size, size_t count, void *ctx)
{
    (void)data;
    (void)ctx;
    return size * count;
}

static void easy_set_up(CURL *easy, struct webhook *h)
{
    const struct webhooks *w = h->owner;
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_URL, h->url);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, h);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, h);
    /* With a proxy, the address that is checked would be the proxy's and not the receiver's. */
    if (!w->options.local)
        curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, w->headers);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, h->body.data);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, (long)h->body.len);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, ignore_answer);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)WEBHOOK_MS_MAX);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L); /* the next webhook may come in days */
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "triaged/" TRIAGE_VERSION);
    /* Otherwise a name lookup that hangs would delay the end of the process. */
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
    if (*w->options.cacert)
        curl_easy_setopt(easy, CURLOPT_CAINFO, w->options.cacert);
}

/* Lines of waiting webhooks. The mutex is held. */

static struct receiver *receiver_get(struct webhooks *w, char *name)
{
    struct receiver *r = map_get(&w->receivers, name, strlen(name));
    if (r) {
        free(name);
        return r;
    }
    r = mem_zalloc(sizeof(*r));
    r->name = name;
    map_put(&w->receivers, r->name, strlen(r->name), r);
    return r;
}

static struct line *line_get(struct webhooks *w, const char *queue)
{
    struct line *l = map_get(&w->lines, queue, strlen(queue));
    if (l)
        return l;
    l = mem_zalloc(sizeof(*l));
    snprintf(l->queue, sizeof(l->queue), "%s", queue);
    STAILQ_INIT(&l->hooks);
    map_put(&w->lines, l->queue, strlen(l->queue), l);
    return l;
}

static void put_in(struct webhooks *w, struct webhook *h)
{
    assert(!h->line);
    assert(w->waiting_count < WEBHOOK_WAITING_MAX);
    h->receiver = receiver_get(w, receiver_name(h->url));
    h->rank = h->receiver->waiting++;
    h->line = line_get(w, h->queue);
    STAILQ_INSERT_TAIL(&h->line->hooks, h, next_in_line);
    STAILQ_INSERT_TAIL(&w->waiting, h, next);
    w->waiting_count++;
}

/* The last webhook removes its receiver and its line. */
static void take_out(struct webhooks *w, struct webhook *h)
{
    struct receiver *r = h->receiver;
    struct line *l = h->line;
    struct webhook *other;
    assert(!h->easy);
    assert(w->waiting_count > 0);
    assert(r->waiting > 0);
    STAILQ_FOREACH(other, &w->waiting, next)
    other->rank -= other->receiver == r && other->rank > h->rank;
    STAILQ_REMOVE(&w->waiting, h, webhook, next);
    STAILQ_REMOVE(&l->hooks, h, webhook, next_in_line);
    w->waiting_count--;
    if (--r->waiting == 0) {
        map_remove(&w->receivers, r->name, strlen(r->name));
        free(r->name);
        free(r);
    }
    if (STAILQ_EMPTY(&l->hooks)) {
        map_remove(&w->lines, l->queue, strlen(l->queue));
        free(l);
    }
}

/* The thread */

/* Whether the webhook may be sent: it is the first of its queue, and its receiver has a free
 * place. */
static bool has_turn(const struct webhook *h)
{
    return STAILQ_FIRST(&h->line->hooks) == h && h->receiver->active < WEBHOOK_PARALLEL_MAX;
}

/* The webhook to send now, or NULL. It is the oldest one for the receiver that has the fewest under
 * way. So a receiver that answers waits for one place only, however many webhooks wait for
 * receivers that do not answer. The mutex is held. `*due_ms` is lowered to the time of the next try
 * that has to wait. */
static struct webhook *find_next(struct webhooks *w, uint64_t *due_ms)
{
    uint64_t now = now_ms();
    struct webhook *h, *found = NULL;
    unsigned fewest = WEBHOOK_PARALLEL_MAX;
    if (w->active_count == WEBHOOK_ACTIVE_MAX)
        return NULL;
    STAILQ_FOREACH(h, &w->waiting, next)
    {
        if (h->easy || !has_turn(h))
            continue;
        if (h->due_ms > now) {
            *due_ms = h->due_ms < *due_ms ? h->due_ms : *due_ms;
        } else if (h->receiver->active < fewest) {
            fewest = h->receiver->active;
            found = h;
        }
    }
    return found;
}

static void webhook_start(struct webhooks *w, struct webhook *h)
{
    assert(!h->easy); /* otherwise it would be sent twice */
    assert(STAILQ_FIRST(&h->line->hooks) == h);
    assert(h->receiver->active < WEBHOOK_PARALLEL_MAX);
    assert(w->active_count < WEBHOOK_ACTIVE_MAX);
    h->easy = curl_easy_init();
    if (!h->easy)
        abort();
    h->local = false;
    h->started = true;
    easy_set_up(h->easy, h);
    curl_multi_add_handle(w->multi, h->easy);
    h->receiver->active++;
    w->active_count++;
}

/* Starts what may be sent now. Returns how long the thread may sleep, or -1 when it has to end. */
static int start_all(struct webhooks *w)
{
    uint64_t due_ms = now_ms() + WEBHOOK_MS_MAX;
    uv_mutex_lock(&w->mutex);
    bool stopping = w->stopping;
    for (struct webhook *h; !stopping && (h = find_next(w, &due_ms));)
        webhook_start(w, h);
    uv_mutex_unlock(&w->mutex);
    uint64_t now = now_ms();
    return stopping ? -1 : due_ms > now ? (int)(due_ms - now) : 0;
}

static void webhook_remove(struct webhooks *w, struct webhook *h)
{
    uv_mutex_lock(&w->mutex);
    take_out(w, h);
    uv_mutex_unlock(&w->mutex);
    webhook_free(h);
}

static void give_up(struct webhooks *w, const struct webhook *h, const char *why)
{
    atomic_fetch_add(&w->lost, 1);
    log_warn("webhook given up", "queue=%s reason=\"%s\"", h->queue, why);
}

/* NULL: the webhook was delivered. Otherwise a constant text that says why not. */
static const char *outcome(const struct webhook *h, CURLcode result)
{
    long status = 0;
    if (h->local)
        return "its receiver is on this machine or its link, and webhook_local is off";
    if (result != CURLE_OK)
        return curl_easy_strerror(result);
    curl_easy_getinfo(h->easy, CURLINFO_RESPONSE_CODE, &status);
    return status >= 200 && status < 300 ? NULL : "the answer is not 2xx";
}

static void easy_end(struct webhooks *w, struct webhook *h)
{
    assert(h->easy);
    assert(h->receiver->active > 0);
    assert(w->active_count > 0);
    curl_multi_remove_handle(w->multi, h->easy);
    curl_easy_cleanup(h->easy);
    h->easy = NULL;
    h->receiver->active--;
    w->active_count--;
}

static void webhook_finish(struct webhooks *w, struct webhook *h, CURLcode result)
{
    static const uint64_t backoff_ms[WEBHOOK_TRIES] = {0, 500, 2000};
    const char *why = outcome(h, result);
    easy_end(w, h);
    if (why && ++h->tries < WEBHOOK_TRIES && !h->local) {
        h->due_ms = now_ms() + backoff_ms[h->tries];
        return;
    }
    if (why)
        give_up(w, h, why);
    webhook_remove(w, h);
}

/* Whether any try has ended. */
static bool finish_all(struct webhooks *w)
{
    bool any = false;
    int left;
    for (const CURLMsg *m; (m = curl_multi_info_read(w->multi, &left)); any = true) {
        char *h = NULL;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &h);
        assert(h);
        assert(((struct webhook *)h)->easy == m->easy_handle);
        webhook_finish(w, (struct webhook *)h, m->data.result);
    }
    return any;
}

static void multi_open(struct webhooks *w)
{
    CURLM *multi = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK ? curl_multi_init() : NULL;
    w->headers = curl_slist_append(NULL, "Content-Type: application/json");
    if (!multi || !w->headers)
        abort();
    uv_mutex_lock(&w->mutex);
    w->multi = multi;
    uv_mutex_unlock(&w->mutex);
}

static void thread_main(void *arg)
{
    struct webhooks *w = arg;
    multi_open(w);
    for (int sleep_ms; (sleep_ms = start_all(w)) >= 0;) {
        int running;
        curl_multi_perform(w->multi, &running);
        if (!finish_all(w))
            curl_multi_poll(w->multi, NULL, 0, sleep_ms, NULL);
    }
}

/* What the other threads call */

struct webhooks *webhooks_new(const struct webhook_options *options)
{
    struct webhooks *w = mem_zalloc(sizeof(*w));
    w->options = *options;
    if (uv_mutex_init(&w->mutex) != 0)
        abort();
    STAILQ_INIT(&w->waiting);
    return w;
}

static void drop(struct webhooks *w, struct webhook *h)
{
    atomic_fetch_add(&w->lost, 1);
    log_warn("webhook dropped, too many are waiting", "queue=%s receiver_max=%d", h->queue,
             WEBHOOK_RECEIVER_MAX);
    webhook_free(h);
}

/* The webhook to drop for a new one: the last of the receiver that has the most, if it has more
 * than `most`, which is what the receiver of the new one has. NULL: no receiver has more. The mutex
 * is held. */
static struct webhook *find_surplus(struct webhooks *w, unsigned most)
{
    struct webhook *h, *found = NULL;
    STAILQ_FOREACH(h, &w->waiting, next)
    {
        if (h->started || h->rank <= most)
            continue;
        most = h->rank;
        found = h;
    }
    return found;
}

/* Whether there is room for a new webhook. If another one lost its place, `*dropped` is that one.
 * The mutex is held. */
static bool has_room(struct webhooks *w, const char *url, struct webhook **dropped)
{
    char *name = receiver_name(url);
    const struct receiver *r = map_get(&w->receivers, name, strlen(name));
    unsigned waiting = r ? r->waiting : 0;
    free(name);
    if (w->stopping || waiting >= WEBHOOK_RECEIVER_MAX)
        return false;
    if (w->waiting_count < WEBHOOK_WAITING_MAX)
        return true;
    *dropped = find_surplus(w, waiting);
    if (*dropped)
        take_out(w, *dropped);
    return *dropped;
}

void webhooks_post(struct webhooks *w, const char *queue, const char *url, struct buf *body)
{
    struct webhook *h = webhook_new(w, queue, url, body), *dropped = NULL;
    uv_mutex_lock(&w->mutex);
    bool room = has_room(w, url, &dropped);
    if (room && !w->started)
        room = w->started = uv_thread_create(&w->thread, thread_main, w) == 0;
    if (room) {
        put_in(w, h);
        if (w->multi)
            curl_multi_wakeup(w->multi);
    } else {
        dropped = h;
    }
    uv_mutex_unlock(&w->mutex);
    if (dropped)
        drop(w, dropped);
}

uint64_t webhooks_lost(const struct webhooks *w)
{
    return atomic_load(&w->lost);
}

static void stop(struct webhooks *w)
{
    uv_mutex_lock(&w->mutex);
    w->stopping = true;
    if (w->multi)
        curl_multi_wakeup(w->multi);
    uv_mutex_unlock(&w->mutex);
    uv_thread_join(&w->thread);
}

static void close_multi(struct webhooks *w)
{
    curl_multi_cleanup(w->multi);
    curl_slist_free_all(w->headers);
    curl_global_cleanup();
}

void webhooks_free(struct webhooks *w)
{
    if (!w)
        return;
    if (w->started)
        stop(w);
    for (struct webhook *h; (h = STAILQ_FIRST(&w->waiting));) {
        give_up(w, h, "the server is shutting down");
        if (h->easy)
            easy_end(w, h);
        webhook_remove(w, h);
    }
    assert(w->waiting_count == 0);
    assert(w->active_count == 0);
    if (w->started)
        close_multi(w);
    map_fini(&w->receivers);
    map_fini(&w->lines);
    uv_mutex_destroy(&w->mutex);
    free(w);
}
