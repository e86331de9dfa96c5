#include "broker/forward.h"
#include "base/mem.h"
#include "broker/shard.h"
#include "broker/webhook.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>

#define SLEEP_MS_MAX 60000

TAILQ_HEAD(forward_list, forward);

struct forwards {
    struct webhook_options options;
    uv_thread_t thread;
    uv_mutex_t mutex; /* for what follows; never held while something is sent */
    struct forward_list incoming;
    unsigned count; /* under way: those that came in and have not come back */
    size_t bytes;   /* of their bodies */
    bool started;
    bool ending;
    bool cancels; /* some forward was cancelled */
    CURLM *multi; /* made by the thread; a wake-up ends its sleep */

    struct forward_list active; /* the thread's own */
};

static const char shutting_down[] = "this server is shutting down";

static uint64_t now_ms(void)
{
    return uv_hrtime() / 1000000;
}

void forward_fini(struct forward *f)
{
    buf_fini(&f->path);
    buf_fini(&f->body);
    buf_fini(&f->answer);
    buf_fini(&f->url);
}

/* curl asks for the body piece by piece and cannot go back in it. So it does not send a request
 * again when a connection breaks, which it does by itself with a body that it has as a whole. */
static size_t read_body(char *out, size_t size, size_t count, void *ctx)
{
    struct forward *f = ctx;
    size_t left = f->body.len - f->sent, room = size * count;
    size_t len = left < room ? left : room;
    if (len > 0)
        memcpy(out, f->body.data + f->sent, len);
    f->sent += len;
    return len;
}

static size_t take_answer(char *data, size_t size, size_t count, void *ctx)
{
    struct forward *f = ctx;
    size_t len = size * count;
    if (f->answer.len + len > FORWARD_ANSWER_MAX)
        return 0;
    f->crowded = f->grows && !f->grows(f, f->answer.len + len);
    if (f->crowded)
        return 0;
    buf_put(&f->answer, data, len);
    return len;
}

static curl_socket_t open_socket(void *ctx, curlsocktype purpose, struct curl_sockaddr *to)
{
    struct forward *f = ctx;
    (void)purpose;
    f->local = !f->owner->options.local && webhook_is_local(&to->addr);
    return f->local ? CURL_SOCKET_BAD
                    : socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
}

static void header_add(struct forward *f, const char *name, const char *value)
{
    struct buf line = {0};
    buf_puts(&line, name);
    buf_puts(&line, value);
    f->headers = curl_slist_append(f->headers, buf_cstr(&line));
    if (!f->headers)
        abort();
    buf_fini(&line);
}

static void body_set_up(CURL *easy, struct forward *f)
{
    curl_easy_setopt(easy, CURLOPT_POST, 1L);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)f->body.len);
    curl_easy_setopt(easy, CURLOPT_READFUNCTION, read_body);
    curl_easy_setopt(easy, CURLOPT_READDATA, f);
    header_add(f, "Content-Type: ", f->type);
    header_add(f, "Expect:", "");
}

static void easy_set_up(CURL *easy, struct forward *f)
{
    const struct webhook_options *o = &f->owner->options;
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_URL, buf_cstr(&f->url));
    curl_easy_setopt(easy, CURLOPT_PRIVATE, f);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, f);
    if (!o->local) /* with a proxy, the address that is checked would be the proxy's */
        curl_easy_setopt(easy, CURLOPT_PROXY, "");
    if (f->type)
        body_set_up(easy, f);
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, f->method);
    if (f->target->token[0])
        header_add(f, "Authorization: Bearer ", f->target->token);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, f->headers);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_answer);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, f);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)f->timeout_ms);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)FORWARD_CONNECT_MS);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "triaged/" TRIAGE_VERSION);
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
    if (*o->cacert)
        curl_easy_setopt(easy, CURLOPT_CAINFO, o->cacert);
}

static void start(struct forwards *fs, struct forward *f)
{
    TAILQ_INSERT_TAIL(&fs->active, f, next);
    if (!f->method) {
        f->until_ms = now_ms() + (uint64_t)f->timeout_ms;
        return;
    }
    f->easy = curl_easy_init();
    if (!f->easy)
        abort();
    buf_puts(&f->url, f->target->url);
    buf_put(&f->url, f->path.data, f->path.len);
    easy_set_up(f->easy, f);
    curl_multi_add_handle(fs->multi, f->easy);
}

/* The forward is its caller's from here on. */
static void come_back(struct forward *f)
{
    f->request->answer_len = f->answer.len;
    inbox_put(&f->port->inbox, &f->request->mail);
}

static void finish(struct forwards *fs, struct forward *f, long status, const char *why)
{
    f->status = status;
    f->why = why;
    if (f->local)
        f->why = "its address is on this machine or its link, and webhook_local is off";
    if (f->crowded)
        f->why = "answers that were not read take all the room there is for its answer";
    if (f->easy) {
        curl_multi_remove_handle(fs->multi, f->easy);
        curl_easy_cleanup(f->easy);
        curl_slist_free_all(f->headers);
        f->easy = f->headers = NULL;
    }
    TAILQ_REMOVE(&fs->active, f, next);
    uv_mutex_lock(&fs->mutex);
    fs->count--;
    fs->bytes -= f->body.len;
    uv_mutex_unlock(&fs->mutex);
    come_back(f);
}

static void finish_answered(struct forwards *fs)
{
    int left;
    for (const CURLMsg *m; (m = curl_multi_info_read(fs->multi, &left));) {
        CURLcode result = m->data.result;
        char *f = NULL;
        long status = 0;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &f);
        if (result == CURLE_OK)
            curl_easy_getinfo(m->easy_handle, CURLINFO_RESPONSE_CODE, &status);
        finish(fs, (struct forward *)f, status, curl_easy_strerror(result));
    }
}

/* Ends what was cancelled, and what has waited long enough. Returns when the next wait is over. */
static uint64_t finish_due(struct forwards *fs, bool cancels, bool all)
{
    uint64_t now = now_ms(), due_ms = now + SLEEP_MS_MAX;
    for (struct forward *f = TAILQ_FIRST(&fs->active), *next; f; f = next) {
        next = TAILQ_NEXT(f, next);
        bool over = !f->method && f->until_ms <= now;
        uv_mutex_lock(&fs->mutex);
        bool cancelled = cancels && f->cancelled;
        uv_mutex_unlock(&fs->mutex);
        if (all || over || cancelled)
            finish(fs, f, 0, all ? shutting_down : "");
        else if (!f->method && f->until_ms < due_ms)
            due_ms = f->until_ms;
    }
    return due_ms;
}

/* Starts what came in. False: the thread has to end. */
static bool start_all(struct forwards *fs, bool *cancels)
{
    struct forward_list list = TAILQ_HEAD_INITIALIZER(list);
    uv_mutex_lock(&fs->mutex);
    TAILQ_CONCAT(&list, &fs->incoming, next);
    *cancels = fs->cancels;
    fs->cancels = false;
    bool ending = fs->ending;
    uv_mutex_unlock(&fs->mutex);
    for (struct forward *f; (f = TAILQ_FIRST(&list));) {
        TAILQ_REMOVE(&list, f, next);
        start(fs, f);
    }
    return !ending;
}

static void thread_main(void *arg)
{
    struct forwards *fs = arg;
    CURLM *multi = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK ? curl_multi_init() : NULL;
    bool cancels;
    if (!multi)
        abort();
    curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, 256L);
    uv_mutex_lock(&fs->mutex);
    fs->multi = multi;
    uv_mutex_unlock(&fs->mutex);
    while (start_all(fs, &cancels)) {
        int running;
        curl_multi_perform(multi, &running);
        finish_answered(fs);
        uint64_t due_ms = finish_due(fs, cancels, false), now = now_ms();
        curl_multi_poll(multi, NULL, 0, due_ms > now ? (int)(due_ms - now) : 0, NULL);
    }
    finish_due(fs, false, true);
}

/* What the other threads call */

struct forwards *forwards_new(const struct webhook_options *options)
{
    struct forwards *fs = mem_zalloc(sizeof(*fs));
    fs->options = *options;
    if (uv_mutex_init(&fs->mutex) != 0)
        abort();
    TAILQ_INIT(&fs->incoming);
    TAILQ_INIT(&fs->active);
    return fs;
}

/* Why it cannot be taken, or NULL. The mutex is held. */
static const char *refusal(const struct forwards *fs, const struct forward *f)
{
    if (fs->ending)
        return shutting_down;
    unsigned most = f->waits ? FORWARDS_MAX - FORWARDS_MAX / 4 : FORWARDS_MAX;
    bool full = fs->count >= most || (fs->bytes > 0 && fs->bytes + f->body.len > FORWARD_BYTES_MAX);
    return full ? "too many requests are on their way to it" : NULL;
}

void forwards_put(struct forwards *fs, struct broker_port *port, struct forward *f)
{
    f->owner = fs;
    f->port = port;
    uv_mutex_lock(&fs->mutex);
    f->why = refusal(fs, f);
    if (!f->why && !fs->started) {
        fs->started = uv_thread_create(&fs->thread, thread_main, fs) == 0;
        f->why = fs->started ? NULL : "no thread could be started";
    }
    bool taken = !f->why;
    if (taken) {
        fs->count++;
        fs->bytes += f->body.len;
        TAILQ_INSERT_TAIL(&fs->incoming, f, next);
        if (fs->multi)
            curl_multi_wakeup(fs->multi);
    }
    uv_mutex_unlock(&fs->mutex);
    if (!taken)
        come_back(f);
}

void forwards_cancel(struct forwards *fs, struct forward *f)
{
    uv_mutex_lock(&fs->mutex);
    f->cancelled = fs->cancels = true;
    if (fs->multi)
        curl_multi_wakeup(fs->multi);
    uv_mutex_unlock(&fs->mutex);
}

void forwards_end(struct forwards *fs)
{
    uv_mutex_lock(&fs->mutex);
    bool joins = fs->started && !fs->ending;
    fs->ending = true;
    if (fs->multi)
        curl_multi_wakeup(fs->multi);
    uv_mutex_unlock(&fs->mutex);
    if (joins)
        uv_thread_join(&fs->thread);
}

void forwards_free(struct forwards *fs)
{
    if (!fs)
        return;
    forwards_end(fs);
    if (fs->multi) {
        curl_multi_cleanup(fs->multi);
        curl_global_cleanup();
    }
    uv_mutex_destroy(&fs->mutex);
    free(fs);
}
