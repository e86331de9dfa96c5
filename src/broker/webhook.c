#include "broker/webhook.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"

#include <curl/curl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <uv.h>

struct webhook {
    char queue[QUEUE_NAME_MAX + 1];
    char *url;
    struct buf body;
    STAILQ_ENTRY(webhook) next;
};

struct webhooks {
    uv_mutex_t mutex; /* of everything up to `lost`; never held while something is sent */
    uv_cond_t changed;
    STAILQ_HEAD(, webhook) waiting;
    unsigned waiting_count;
    bool started;
    bool stopping;
    CURLM *multi; /* made by the thread; a wake-up ends its waiting */
    atomic_uint_fast64_t lost;
    uv_thread_t thread;
};

struct webhooks *webhooks_new(void)
{
    struct webhooks *w = mem_zalloc(sizeof(*w));
    if (uv_mutex_init(&w->mutex) != 0 || uv_cond_init(&w->changed) != 0)
        abort();
    STAILQ_INIT(&w->waiting);
    return w;
}

static void webhook_free(struct webhook *h)
{
    free(h->url);
    buf_fini(&h->body);
    free(h);
}

static bool is_stopping(struct webhooks *w)
{
    uv_mutex_lock(&w->mutex);
    bool stopping = w->stopping;
    uv_mutex_unlock(&w->mutex);
    return stopping;
}

/* Sleeps before another try; a stop ends it early. */
static void pause_ms(struct webhooks *w, uint64_t ms)
{
    uint64_t until_ns = uv_hrtime() + ms * 1000000;
    uv_mutex_lock(&w->mutex);
    for (uint64_t now_ns; !w->stopping && (now_ns = uv_hrtime()) < until_ns;)
        uv_cond_timedwait(&w->changed, &w->mutex, until_ns - now_ns);
    uv_mutex_unlock(&w->mutex);
}

static size_t ignore_answer(char *data, size_t size, size_t count, void *ctx)
{
    (void)data;
    (void)ctx;
    return size * count;
}

static void easy_set_up(CURL *easy, const struct webhook *h, struct curl_slist *headers)
{
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_URL, h->url);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, h->body.data);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, (long)h->body.len);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, ignore_answer);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)WEBHOOK_MS_MAX);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L); /* the next may be days away */
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "triaged/" TRIAGE_VERSION);
    /* A name lookup that hangs would hold up the end of the process. */
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
}

/* NULL when it was delivered; else a constant text that says why not. */
static const char *outcome(CURLM *multi, CURL *easy)
{
    int left;
    long status = 0;
    const CURLMsg *message = curl_multi_info_read(multi, &left);
    if (!message)
        return "the server is shutting down";
    if (message->data.result != CURLE_OK)
        return curl_easy_strerror(message->data.result);
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    return status >= 200 && status < 300 ? NULL : "the answer is not 2xx";
}

static const char *webhook_try(struct webhooks *w, const struct webhook *h)
{
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
    CURL *easy = curl_easy_init();
    if (!easy || !headers)
        abort();
    easy_set_up(easy, h, headers);
    curl_multi_add_handle(w->multi, easy);
    int running = 1;
    while (curl_multi_perform(w->multi, &running) == CURLM_OK && running > 0 && !is_stopping(w))
        curl_multi_poll(w->multi, NULL, 0, WEBHOOK_MS_MAX, NULL);
    const char *why = outcome(w->multi, easy);
    curl_multi_remove_handle(w->multi, easy);
    curl_easy_cleanup(easy);
    curl_slist_free_all(headers);
    return why;
}

static void webhook_send(struct webhooks *w, const struct webhook *h)
{
    static const uint64_t backoff_ms[WEBHOOK_TRIES] = {0, 500, 2000};
    const char *why = NULL;
    for (int i = 0; i < WEBHOOK_TRIES; i++) {
        pause_ms(w, backoff_ms[i]);
        if (is_stopping(w))
            break;
        why = webhook_try(w, h);
        if (!why)
            return;
    }
    atomic_fetch_add(&w->lost, 1);
    log_warn("webhook given up", "queue=%s reason=\"%s\"", h->queue,
             why ? why : "the server is shutting down");
}

/* Waits for the next; NULL when it is time to stop. */
static struct webhook *webhook_take(struct webhooks *w)
{
    uv_mutex_lock(&w->mutex);
    while (!w->stopping && w->waiting_count == 0)
        uv_cond_wait(&w->changed, &w->mutex);
    struct webhook *h = w->stopping ? NULL : STAILQ_FIRST(&w->waiting);
    if (h) {
        STAILQ_REMOVE_HEAD(&w->waiting, next);
        w->waiting_count--;
    }
    uv_mutex_unlock(&w->mutex);
    return h;
}

static void thread_main(void *arg)
{
    struct webhooks *w = arg;
    CURLM *multi = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK ? curl_multi_init() : NULL;
    if (!multi)
        abort();
    uv_mutex_lock(&w->mutex);
    w->multi = multi;
    uv_mutex_unlock(&w->mutex);
    for (struct webhook *h; (h = webhook_take(w));) {
        webhook_send(w, h);
        webhook_free(h);
    }
}

void webhooks_post(struct webhooks *w, const char *queue, const char *url, struct buf *body)
{
    struct webhook *h = mem_zalloc(sizeof(*h));
    snprintf(h->queue, sizeof(h->queue), "%s", queue);
    h->url = mem_dup(url, strlen(url));
    h->body = *body;
    *body = (struct buf){0};
    uv_mutex_lock(&w->mutex);
    bool room = w->waiting_count < WEBHOOK_WAITING_MAX && !w->stopping;
    if (room && !w->started)
        room = w->started = uv_thread_create(&w->thread, thread_main, w) == 0;
    if (room) {
        STAILQ_INSERT_TAIL(&w->waiting, h, next);
        w->waiting_count++;
        uv_cond_signal(&w->changed);
    }
    uv_mutex_unlock(&w->mutex);
    if (room)
        return;
    atomic_fetch_add(&w->lost, 1);
    log_warn("webhook dropped, too many are waiting", "queue=%s waiting_max=%d", queue,
             WEBHOOK_WAITING_MAX);
    webhook_free(h);
}

uint64_t webhooks_lost(const struct webhooks *w)
{
    return atomic_load(&w->lost);
}

static void stop(struct webhooks *w)
{
    uv_mutex_lock(&w->mutex);
    w->stopping = true;
    uv_cond_signal(&w->changed);
    if (w->multi)
        curl_multi_wakeup(w->multi);
    uv_mutex_unlock(&w->mutex);
    uv_thread_join(&w->thread);
    curl_multi_cleanup(w->multi);
    curl_global_cleanup();
}

void webhooks_free(struct webhooks *w)
{
    if (!w)
        return;
    if (w->started)
        stop(w);
    if (w->waiting_count > 0)
        log_warn("webhooks dropped, the server is shutting down", "count=%u", w->waiting_count);
    for (struct webhook *h; (h = STAILQ_FIRST(&w->waiting));) {
        STAILQ_REMOVE_HEAD(&w->waiting, next);
        webhook_free(h);
    }
    uv_cond_destroy(&w->changed);
    uv_mutex_destroy(&w->mutex);
    free(w);
}
