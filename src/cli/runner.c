#define _GNU_SOURCE /* pipe2 */
#include "cli/runner.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "cli/job.h"
#include "term/args.h"
#include "term/cli.h"
#include "term/member.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define BACKOFF_MS_MIN 500
#define BACKOFF_MS_MAX 10000
#define EMPTY_MS_MIN   500 /* between two claims that were answered empty at once */
#define POLL_MS_MAX    60000

struct runner {
    const struct runner_options *o;
    const struct cli *cli;
    CURLM *multi;
    struct job *jobs;
    size_t job_count;
    struct curl_waitfd *fds;

    struct client claim;
    bool claiming;           /* the claim is under way */
    bool claim_is_last_word; /* no command ran when it was sent: what it does not find is not there
                              */
    int64_t claim_sent_ms;
    int64_t claim_at_ms; /* monotonic: no claim before then */
    int64_t backoff_ms;
    int64_t message_count; /* claimed so far */

    bool away; /* the server did not answer the last call, and that was said */
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

static size_t free_count(const struct runner *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->job_count; i++)
        n += r->jobs[i].state == JOB_FREE;
    return n;
}

static void server_away(struct runner *r, const struct client *c)
{
    if (!r->away)
        cli_complain("%s does not answer (%s); trying again", r->cli->server,
                     c->curl_error[0] ? c->curl_error : curl_easy_strerror(c->result));
    r->away = true;
}

static void server_back(struct runner *r)
{
    if (r->away)
        cli_complain("%s answers again", r->cli->server);
    r->away = false;
}

static int64_t claim_max(const struct runner *r)
{
    int64_t max = (int64_t)free_count(r);
    if (r->o->messages_max != ARG_UNSET && r->o->messages_max - r->message_count < max)
        max = r->o->messages_max - r->message_count;
    return max > CLAIM_MAX ? CLAIM_MAX : max;
}

/* Sets the address of the claim, and begins its body with the names of the queues. */
static void claim_address(const struct runner_options *o, struct client *c)
{
    buf_puts(&c->body, "{");
    if (o->queue_count == 1) {
        client_path(c, "/v1/queues/%s/messages/claim", o->queues[0]);
        return;
    }
    client_path(c, "/v1/claim");
    member_put(&c->body, "queues");
    for (size_t i = 0; i < o->queue_count; i++) {
        buf_putc(&c->body, i == 0 ? '[' : ',');
        json_put_cstr(&c->body, o->queues[i]);
    }
    buf_putc(&c->body, ']');
    if (o->listed)
        member_put_text(&c->body, "order", "listed");
}

static void claim_send(struct runner *r, int64_t max, int64_t now_ms)
{
    struct client *c = &r->claim;
    client_begin(c, r->cli);
    c->has_options = true;
    claim_address(r->o, c);
    member_put(&c->body, "max");
    buf_put_i64(&c->body, max);
    member_put_seconds(&c->body, "wait_seconds", r->o->wait_ms);
    if (r->o->min_priority)
        member_put_priority(&c->body, "min_priority", r->o->min_priority);
    if (r->o->visibility_ms != ARG_UNSET)
        member_put_seconds(&c->body, "visibility_timeout_seconds", r->o->visibility_ms);
    buf_putc(&c->body, '}');
    c->wait_seconds = (long)(r->o->wait_ms / 1000);
    client_arm(c, "POST", TYPE_JSON);
    client_send(c, r->multi);
    r->claiming = true;
    r->claim_is_last_word = free_count(r) == r->job_count;
    r->claim_sent_ms = now_ms;
}

static void claim_if_possible(struct runner *r, int64_t now_ms)
{
    if (r->o->messages_max != ARG_UNSET && r->message_count >= r->o->messages_max)
        r->finishing = true;
    if (r->finishing || r->claiming || now_ms < r->claim_at_ms)
        return;
    int64_t max = claim_max(r);
    if (max > 0)
        claim_send(r, max, now_ms);
}

/* Starts the command for a message. If it cannot be started, it could not be for any message: what
 * runs is finished, and the mistake is said. */
static void claim_take(struct runner *r, uint32_t message, int64_t now_ms)
{
    for (size_t i = 0; i < r->job_count; i++) {
        if (r->jobs[i].state != JOB_FREE)
            continue;
        r->message_count++;
        if (!job_begin(&r->jobs[i], r->o, r->cli, &r->claim.doc, message, now_ms)) {
            r->finishing = true;
            r->exit_status = CLI_USAGE;
        }
        return;
    }
}

static void claim_messages(struct runner *r, int64_t now_ms)
{
    const struct json_doc *doc = &r->claim.doc;
    uint32_t at = r->claim.is_json ? json_array(doc, 0, "messages") : 0;
    r->backoff_ms = BACKOFF_MS_MIN;
    r->told_no_queue = false;
    if (!at || doc->tokens[at].count == 0) {
        /* Otherwise a running command may give its message back. */
        if (r->o->drain && r->claim_is_last_word)
            r->finishing = true;
        /* The queue is paused, or the server is about to stop. */
        if (now_ms - r->claim_sent_ms < EMPTY_MS_MIN)
            r->claim_at_ms = now_ms + EMPTY_MS_MIN;
        return;
    }
    for (uint32_t i = json_first(doc, at); i; i = json_next(doc, at, i))
        claim_take(r, i, now_ms);
}

static void claim_back_off(struct runner *r, int64_t now_ms)
{
    r->claim_at_ms = now_ms + r->backoff_ms;
    r->backoff_ms *= 2;
    if (r->backoff_ms > BACKOFF_MS_MAX)
        r->backoff_ms = BACKOFF_MS_MAX;
}

/* A queue that does not exist may be created by its first message, so the runner waits for it. */
static void claim_answered(struct runner *r, int64_t now_ms)
{
    const struct client *c = &r->claim;
    r->claiming = false;
    if (c->http == 0)
        server_away(r, c);
    else
        server_back(r);
    if (client_succeeded(c)) {
        claim_messages(r, now_ms);
    } else if (c->http == 0 || c->http == 429 || c->http >= 500) {
        claim_back_off(r, now_ms);
    } else if (client_is(c, "queue-not-found")) {
        if (!r->told_no_queue && r->o->queue_count == 1)
            cli_complain("there is no queue %s yet; waiting for it", r->o->queues[0]);
        else if (!r->told_no_queue)
            client_complain(c);
        r->told_no_queue = true;
        if (r->o->drain)
            r->finishing = true;
        claim_back_off(r, now_ms);
    } else {
        r->exit_status = client_complain(c);
        r->finishing = true;
    }
}

static void collect_answers(struct runner *r, int64_t now_ms)
{
    int left;
    CURLMsg *message;
    while ((message = curl_multi_info_read(r->multi, &left)) != NULL) {
        struct client *c = NULL;
        CURLcode result = message->data.result;
        if (message->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&c);
        client_finish(c, result);
        if (c == &r->claim) {
            claim_answered(r, now_ms);
            continue;
        }
        struct job *job = container_of(c, struct job, call);
        if (job_answered(job, r->signal_count < 3, now_ms) == JOB_UNANSWERED)
            server_away(r, c);
        else
            server_back(r);
        if (r->o->drain && !r->away && free_count(r) == r->job_count)
            r->claim_at_ms = now_ms; /* the last look is made at once */
    }
}

/* Ends a claim that waits. An answer that the server has already sent holds claimed messages, so it
 * is looked at before hanging up. */
static void claim_abort(struct runner *r, int64_t now_ms)
{
    int running;
    r->finishing = true;
    curl_multi_perform(r->multi, &running);
    collect_answers(r, now_ms);
    client_abandon(&r->claim);
    r->claiming = false;
}

static void told_to_stop(struct runner *r, int64_t now_ms)
{
    size_t busy = r->job_count - free_count(r);
    r->signal_count++;
    if (r->signal_count == 1) {
        claim_abort(r, now_ms);
        busy = r->job_count - free_count(r);
        if (busy > 0)
            cli_complain("stopping when %zu running command%s done; again to interrupt", busy,
                         busy == 1 ? " is" : "s are");
        return;
    }
    if (busy > 0)
        cli_complain(r->signal_count == 2 ? "interrupting; again to kill" : "killing");
    for (size_t i = 0; i < r->job_count; i++)
        job_interrupt(&r->jobs[i], r->signal_count == 2 ? SIGTERM : SIGKILL);
}

static void read_signals(struct runner *r, int64_t now_ms)
{
    char bytes[64];
    ssize_t n;
    while ((n = read(wake_pipe[0], bytes, sizeof(bytes))) > 0)
        for (ssize_t i = 0; i < n; i++)
            if (bytes[i] == 's')
                told_to_stop(r, now_ms);
}

static int poll_timeout(const struct runner *r, int64_t now_ms)
{
    int64_t due = now_ms + POLL_MS_MAX;
    if (!r->claiming && !r->finishing && free_count(r) > 0 && r->claim_at_ms < due)
        due = r->claim_at_ms;
    for (size_t i = 0; i < r->job_count; i++) {
        int64_t job_due = job_due_ms(&r->jobs[i]);
        if (job_due < due)
            due = job_due;
    }
    return due <= now_ms ? 0 : (int)(due - now_ms);
}

static void wait_for_something(struct runner *r, int64_t now_ms)
{
    unsigned count = 0;
    int ready;
    r->fds[count++] = (struct curl_waitfd){.fd = wake_pipe[0], .events = CURL_WAIT_POLLIN};
    for (size_t i = 0; i < r->job_count; i++) {
        const struct child *child = &r->jobs[i].child;
        if (child->stdin_fd >= 0)
            r->fds[count++] =
                (struct curl_waitfd){.fd = child->stdin_fd, .events = CURL_WAIT_POLLOUT};
        if (child->stderr_fd >= 0)
            r->fds[count++] =
                (struct curl_waitfd){.fd = child->stderr_fd, .events = CURL_WAIT_POLLIN};
    }
    curl_multi_poll(r->multi, r->fds, count, poll_timeout(r, now_ms), &ready);
}

static bool is_over(const struct runner *r)
{
    return r->finishing && !r->claiming && free_count(r) == r->job_count;
}

static void loop(struct runner *r)
{
    for (;;) {
        int64_t now_ms = clock_now().mono_ms;
        int running;
        read_signals(r, now_ms);
        for (size_t i = 0; i < r->job_count; i++)
            if (job_step(&r->jobs[i], r->o, r->cli, now_ms))
                client_send(&r->jobs[i].call, r->multi);
        claim_if_possible(r, now_ms);
        curl_multi_perform(r->multi, &running);
        collect_answers(r, now_ms);
        if (is_over(r))
            return;
        wait_for_something(r, now_ms);
    }
}

int runner_run(const struct runner_options *o, const struct cli *cli)
{
    struct runner r = {.o = o,
                       .cli = cli,
                       .job_count = (size_t)o->jobs,
                       .backoff_ms = BACKOFF_MS_MIN,
                       .exit_status = CLI_DONE};
    if (!signals_open()) {
        cli_complain("cannot watch signals: %s", strerror(errno));
        return CLI_USAGE;
    }
    r.multi = curl_multi_init();
    r.jobs = mem_alloc(r.job_count * sizeof(*r.jobs));
    r.fds = mem_alloc((1 + 2 * r.job_count) * sizeof(*r.fds));
    client_init(&r.claim);
    for (size_t i = 0; i < r.job_count; i++)
        job_init(&r.jobs[i]);
    loop(&r);
    for (size_t i = 0; i < r.job_count; i++)
        job_fini(&r.jobs[i]);
    client_fini(&r.claim);
    curl_multi_cleanup(r.multi);
    free(r.jobs);
    free(r.fds);
    return r.exit_status;
}
