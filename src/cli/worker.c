#define _GNU_SOURCE /* pipe2 */
#include "cli/worker.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "cli/args.h"
#include "cli/job.h"
#include "cli/payload.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define BACKOFF_MS_MIN 500
#define BACKOFF_MS_MAX 10000
#define EMPTY_MS_MIN   500 /* between two claims that were answered empty at once */
#define POLL_MS_MAX    60000

struct worker {
    const struct worker_options *o;
    const struct cli *cli;
    CURLM *multi;
    struct job *jobs;
    size_t job_count;
    struct curl_waitfd *fds;

    struct call claim;
    bool claiming;           /* the claim is under way */
    bool claim_is_last_word; /* no command ran when it was sent: what it does not find is not there
                              */
    int64_t claim_sent_ms;
    int64_t claim_at_ms; /* not before this */
    int64_t backoff_ms;
    int64_t message_count; /* claimed so far */

    bool away; /* the server did not answer last time, and we said so */
    bool told_no_queue;
    int signal_count; /* SIGINT and SIGTERM so far */
    bool finishing;   /* nothing more is claimed */
    int exit_status;
};

/* Signal handlers only leave a byte here, and the poll wakes up. */
static int wake_pipe[2] = {-1, -1};

static void on_signal(int signal)
{
    int saved = errno;
    char byte = signal == SIGCHLD ? 'c' : 's';
    ssize_t ignored = write(wake_pipe[1], &byte, 1);
    (void)ignored;
    errno = saved;
}

static bool signals_open(void)
{
    static const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD};
    if (pipe2(wake_pipe, O_CLOEXEC | O_NONBLOCK) != 0)
        return false;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof(caught) / sizeof(*caught); i++)
        sigaction(caught[i], &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    return true;
}

static size_t free_count(const struct worker *w)
{
    size_t n = 0;
    for (size_t i = 0; i < w->job_count; i++)
        n += w->jobs[i].state == JOB_FREE;
    return n;
}

static void server_away(struct worker *w, const struct call *c)
{
    if (!w->away)
        cli_complain("%s does not answer (%s); trying again", w->cli->server,
                     c->curl_error[0] ? c->curl_error : curl_easy_strerror(c->result));
    w->away = true;
}

static void server_back(struct worker *w)
{
    if (w->away)
        cli_complain("%s answers again", w->cli->server);
    w->away = false;
}

static int64_t claim_max(const struct worker *w)
{
    int64_t max = (int64_t)free_count(w);
    if (w->o->messages_max != ARG_UNSET && w->o->messages_max - w->message_count < max)
        max = w->o->messages_max - w->message_count;
    return max > CLAIM_MAX ? CLAIM_MAX : max;
}

/* Where to claim, and the body as far as it says from which queues. */
static void claim_address(const struct worker_options *o, struct call *c)
{
    buf_puts(&c->body, "{");
    if (o->queue_count == 1) {
        call_path(c, "/v1/queues/%s/messages/claim", o->queues[0]);
        return;
    }
    call_path(c, "/v1/claim");
    member_put(&c->body, "queues");
    for (size_t i = 0; i < o->queue_count; i++) {
        buf_putc(&c->body, i == 0 ? '[' : ',');
        json_put_cstr(&c->body, o->queues[i]);
    }
    buf_putc(&c->body, ']');
    if (o->listed)
        member_put_text(&c->body, "order", "listed");
}

static void claim_send(struct worker *w, int64_t max, int64_t now_ms)
{
    struct call *c = &w->claim;
    call_begin(c, w->cli);
    c->has_options = true;
    claim_address(w->o, c);
    member_put(&c->body, "max");
    buf_put_i64(&c->body, max);
    member_put_seconds(&c->body, "wait_seconds", w->o->wait_ms);
    if (w->o->min_priority)
        member_put_priority(&c->body, "min_priority", w->o->min_priority);
    if (w->o->visibility_ms != ARG_UNSET)
        member_put_seconds(&c->body, "visibility_timeout_seconds", w->o->visibility_ms);
    buf_putc(&c->body, '}');
    c->wait_seconds = (long)(w->o->wait_ms / 1000);
    call_arm(c, "POST", TYPE_JSON);
    call_send(c, w->multi);
    w->claiming = true;
    w->claim_is_last_word = free_count(w) == w->job_count;
    w->claim_sent_ms = now_ms;
}

static void claim_if_possible(struct worker *w, int64_t now_ms)
{
    if (w->o->messages_max != ARG_UNSET && w->message_count >= w->o->messages_max)
        w->finishing = true;
    if (w->finishing || w->claiming || now_ms < w->claim_at_ms)
        return;
    int64_t max = claim_max(w);
    if (max > 0)
        claim_send(w, max, now_ms);
}

/* A failed start of the command is the same for every message: finish what runs, and say so. */
static void claim_take(struct worker *w, uint32_t message, int64_t now_ms)
{
    for (size_t i = 0; i < w->job_count; i++) {
        if (w->jobs[i].state != JOB_FREE)
            continue;
        w->message_count++;
        if (!job_begin(&w->jobs[i], w->o, w->cli, &w->claim.doc, message, now_ms)) {
            w->finishing = true;
            w->exit_status = CLI_USAGE;
        }
        return;
    }
}

static void claim_messages(struct worker *w, int64_t now_ms)
{
    const struct json_doc *doc = &w->claim.doc;
    uint32_t at = w->claim.is_json ? json_array(doc, 0, "messages") : 0;
    w->backoff_ms = BACKOFF_MS_MIN;
    w->told_no_queue = false;
    if (!at || doc->tokens[at].count == 0) {
        if (w->o->drain && w->claim_is_last_word) /* else a command may yet give its message back */
            w->finishing = true;
        if (now_ms - w->claim_sent_ms < EMPTY_MS_MIN) /* paused, or draining before a stop */
            w->claim_at_ms = now_ms + EMPTY_MS_MIN;
        return;
    }
    for (uint32_t i = json_first(doc, at); i; i = json_next(doc, at, i))
        claim_take(w, i, now_ms);
}

static void claim_back_off(struct worker *w, int64_t now_ms)
{
    w->claim_at_ms = now_ms + w->backoff_ms;
    w->backoff_ms *= 2;
    if (w->backoff_ms > BACKOFF_MS_MAX)
        w->backoff_ms = BACKOFF_MS_MAX;
}

/* A queue that does not exist may be created by its first message, so that is waited for. */
static void claim_answered(struct worker *w, int64_t now_ms)
{
    const struct call *c = &w->claim;
    w->claiming = false;
    if (c->http == 0)
        server_away(w, c);
    else
        server_back(w);
    if (call_succeeded(c)) {
        claim_messages(w, now_ms);
    } else if (c->http == 0 || c->http == 429 || c->http >= 500) {
        claim_back_off(w, now_ms);
    } else if (call_is(c, "queue-not-found")) {
        if (!w->told_no_queue && w->o->queue_count == 1)
            cli_complain("there is no queue %s yet; waiting for it", w->o->queues[0]);
        else if (!w->told_no_queue)
            call_complain(c);
        w->told_no_queue = true;
        if (w->o->drain)
            w->finishing = true;
        claim_back_off(w, now_ms);
    } else {
        w->exit_status = call_complain(c);
        w->finishing = true;
    }
}

static void collect_answers(struct worker *w, int64_t now_ms)
{
    int left;
    CURLMsg *message;
    while ((message = curl_multi_info_read(w->multi, &left)) != NULL) {
        struct call *c = NULL;
        CURLcode result = message->data.result;
        if (message->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&c);
        call_finish(c, result);
        if (c == &w->claim) {
            claim_answered(w, now_ms);
            continue;
        }
        struct job *job = container_of(c, struct job, call);
        if (job_answered(job, w->signal_count < 3, now_ms) == JOB_UNANSWERED)
            server_away(w, c);
        else
            server_back(w);
        if (w->o->drain && !w->away && free_count(w) == w->job_count)
            w->claim_at_ms = now_ms; /* the last look need not wait */
    }
}

/* What the server has already sent counts as claimed, so it is looked at before hanging up. */
static void claim_abort(struct worker *w, int64_t now_ms)
{
    int running;
    w->finishing = true;
    curl_multi_perform(w->multi, &running);
    collect_answers(w, now_ms);
    call_abandon(&w->claim);
    w->claiming = false;
}

static void told_to_stop(struct worker *w, int64_t now_ms)
{
    size_t busy = w->job_count - free_count(w);
    w->signal_count++;
    if (w->signal_count == 1) {
        claim_abort(w, now_ms);
        busy = w->job_count - free_count(w);
        if (busy > 0)
            cli_complain("stopping when %zu running command%s done; again to interrupt", busy,
                         busy == 1 ? " is" : "s are");
        return;
    }
    if (busy > 0)
        cli_complain(w->signal_count == 2 ? "interrupting; again to kill" : "killing");
    for (size_t i = 0; i < w->job_count; i++)
        job_interrupt(&w->jobs[i], w->signal_count == 2 ? SIGTERM : SIGKILL);
}

static void read_signals(struct worker *w, int64_t now_ms)
{
    char bytes[64];
    ssize_t n;
    while ((n = read(wake_pipe[0], bytes, sizeof(bytes))) > 0)
        for (ssize_t i = 0; i < n; i++)
            if (bytes[i] == 's')
                told_to_stop(w, now_ms);
}

static int poll_timeout(const struct worker *w, int64_t now_ms)
{
    int64_t due = now_ms + POLL_MS_MAX;
    if (!w->claiming && !w->finishing && free_count(w) > 0 && w->claim_at_ms < due)
        due = w->claim_at_ms;
    for (size_t i = 0; i < w->job_count; i++) {
        int64_t job_due = job_due_ms(&w->jobs[i]);
        if (job_due < due)
            due = job_due;
    }
    return due <= now_ms ? 0 : (int)(due - now_ms);
}

static void wait_for_something(struct worker *w, int64_t now_ms)
{
    unsigned count = 0;
    int ready;
    w->fds[count++] = (struct curl_waitfd){.fd = wake_pipe[0], .events = CURL_WAIT_POLLIN};
    for (size_t i = 0; i < w->job_count; i++) {
        const struct child *child = &w->jobs[i].child;
        if (child->stdin_fd >= 0)
            w->fds[count++] =
                (struct curl_waitfd){.fd = child->stdin_fd, .events = CURL_WAIT_POLLOUT};
        if (child->stderr_fd >= 0)
            w->fds[count++] =
                (struct curl_waitfd){.fd = child->stderr_fd, .events = CURL_WAIT_POLLIN};
    }
    curl_multi_poll(w->multi, w->fds, count, poll_timeout(w, now_ms), &ready);
}

static bool is_over(const struct worker *w)
{
    return w->finishing && !w->claiming && free_count(w) == w->job_count;
}

static void loop(struct worker *w)
{
    for (;;) {
        int64_t now_ms = clock_now().mono_ms;
        int running;
        read_signals(w, now_ms);
        for (size_t i = 0; i < w->job_count; i++)
            if (job_step(&w->jobs[i], w->o, w->cli, now_ms))
                call_send(&w->jobs[i].call, w->multi);
        claim_if_possible(w, now_ms);
        curl_multi_perform(w->multi, &running);
        collect_answers(w, now_ms);
        if (is_over(w))
            return;
        wait_for_something(w, now_ms);
    }
}

int worker_run(const struct worker_options *o, const struct cli *cli)
{
    struct worker w = {.o = o,
                       .cli = cli,
                       .job_count = (size_t)o->jobs,
                       .backoff_ms = BACKOFF_MS_MIN,
                       .exit_status = CLI_DONE};
    if (!signals_open()) {
        cli_complain("cannot watch signals: %s", strerror(errno));
        return CLI_USAGE;
    }
    w.multi = curl_multi_init();
    w.jobs = mem_alloc(w.job_count * sizeof(*w.jobs));
    w.fds = mem_alloc((1 + 2 * w.job_count) * sizeof(*w.fds));
    call_init(&w.claim);
    for (size_t i = 0; i < w.job_count; i++)
        job_init(&w.jobs[i]);
    loop(&w);
    for (size_t i = 0; i < w.job_count; i++)
        job_fini(&w.jobs[i]);
    call_fini(&w.claim);
    curl_multi_cleanup(w.multi);
    free(w.jobs);
    free(w.fds);
    return w.exit_status;
}
