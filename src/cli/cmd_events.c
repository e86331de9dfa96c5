/* events: follows the server's stream of events, one line an event, over every loss of the
 * connection, until it is interrupted. The stream is text/event-stream: lines of fields, and an
 * empty line at the end of each event. */
#include "base/limits.h"
#include "cli/client.h"
#include "cli/commands.h"
#include "term/args.h"
#include "term/text.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LINE_MAX_BYTES (1024 * 1024) /* a server that sends longer ones is none of ours */
#define BACKOFF_MS_MIN 500
#define BACKOFF_MS_MAX 30000

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

struct follower {
    const struct cli *cli;
    struct client call;
    struct buf line;  /* that is not whole yet */
    struct buf event; /* its name, terminated */
    struct buf data;
    struct buf id; /* terminated; empty: none yet */
    struct json_doc doc;
    bool spoke;   /* the stream has sent something */
    bool failed;  /* its text cannot be read, or ours not be written */
    bool reached; /* a stream was had before */
};

/* Shown to people */

static void put_count(struct buf *out, const struct json_doc *doc, const char *member,
                      const char *word)
{
    const struct json_token *t = json_get(doc, 0, member);
    buf_printf(out, "  %s ", word);
    if (t)
        buf_put(out, t->str, t->len);
}

static void put_text(struct buf *out, const struct json_doc *doc, const char *member)
{
    const struct json_token *t = json_get(doc, 0, member);
    if (t)
        text_escape(out, t->str, t->len, true);
}

static void put_clock(struct buf *out)
{
    char text[16];
    time_t now = time(NULL);
    struct tm tm;
    strftime(text, sizeof(text), "%H:%M:%S  ", localtime_r(&now, &tm));
    buf_puts(out, text);
}

static void put_event(struct buf *out, const char *name, const struct json_doc *doc)
{
    bool named = json_get(doc, 0, "queue") != NULL;
    put_clock(out);
    put_text(out, doc, named ? "queue" : "name");
    if (strcmp(name, "queue") == 0) {
        put_count(out, doc, "ready", "ready");
        put_count(out, doc, "scheduled", "scheduled");
        put_count(out, doc, "in_flight", "in flight");
        put_count(out, doc, "dead", "dead");
        buf_puts(out, json_is(json_get(doc, 0, "paused"), "true") ? "  paused\n" : "\n");
    } else if (strcmp(name, "alert") == 0) {
        buf_puts(out, "  alert ");
        put_text(out, doc, "alert");
        put_count(out, doc, "state", "is");
        put_count(out, doc, "value", "at");
        put_count(out, doc, "threshold", "of");
        buf_putc(out, '\n');
    } else {
        buf_puts(out, strcmp(name, "config") == 0 ? "  configuration changed\n" : "  deleted\n");
    }
}

static bool is_for_people(const char *name)
{
    return strcmp(name, "queue") == 0 || strcmp(name, "alert") == 0 ||
           strcmp(name, "config") == 0 || strcmp(name, "deleted") == 0;
}

static bool event_show(struct follower *f)
{
    struct buf out = {0};
    const char *name = buf_cstr(&f->event);
    if (f->cli->json)
        buf_printf(&out, "{\"event\":\"%s\",\"data\":%s}\n", name, buf_cstr(&f->data));
    else if (is_for_people(name))
        put_event(&out, name, &f->doc);
    bool fine = text_write(stdout, out.data, out.len) && fflush(stdout) == 0;
    buf_fini(&out);
    return fine;
}

/* The stream */

/* What is not an event as Triage writes them is left out: later servers may have others. */
static bool event_end(struct follower *f)
{
    bool whole = f->event.len > 0 && f->data.len > 0;
    for (size_t i = 0; i < f->event.len; i++)
        whole = whole &&
                ((f->event.data[i] >= 'a' && f->event.data[i] <= 'z') || f->event.data[i] == '_');
    bool fine = true;
    if (whole && json_parse(&f->doc, f->data.data, f->data.len, 100000))
        fine = event_show(f);
    buf_clear(&f->event);
    buf_clear(&f->data);
    return fine;
}

static bool field_is(const struct buf *line, const char *name, const char **value, size_t *len)
{
    size_t skip = strlen(name);
    if (line->len < skip || memcmp(line->data, name, skip) != 0)
        return false;
    *value = line->data + skip;
    *len = line->len - skip;
    return true;
}

static bool line_end(struct follower *f)
{
    const char *value;
    size_t len;
    bool fine = true;
    if (f->line.len == 0) {
        fine = event_end(f);
    } else if (field_is(&f->line, "event: ", &value, &len)) {
        buf_clear(&f->event);
        buf_put(&f->event, value, len);
    } else if (field_is(&f->line, "data: ", &value, &len)) {
        buf_put(&f->data, value, len);
    } else if (field_is(&f->line, "id: ", &value, &len)) {
        buf_clear(&f->id);
        buf_put(&f->id, value, len);
    }
    buf_clear(&f->line);
    return fine;
}

static size_t on_piece(char *data, size_t size, size_t count, void *ctx)
{
    struct follower *f = ctx;
    size_t len = size * count;
    long http = 0;
    curl_easy_getinfo(f->call.easy, CURLINFO_RESPONSE_CODE, &http);
    if (http != 200) {
        buf_put(&f->call.answer, data, len);
        return len;
    }
    f->spoke = true;
    for (size_t i = 0; i < len && !f->failed; i++) {
        if (data[i] == '\n')
            f->failed = !line_end(f);
        else
            buf_putc(&f->line, data[i]);
        f->failed = f->failed || f->line.len + f->data.len > LINE_MAX_BYTES;
    }
    return f->failed ? 0 : len;
}

static int on_progress(void *ctx, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    (void)ctx, (void)a, (void)b, (void)c, (void)d;
    return interrupted;
}

static void stream_follow(struct follower *f, const struct operands *ops, const char *prefix)
{
    struct client *c = &f->call;
    client_begin(c, f->cli);
    client_path(c, "/v1/events");
    for (int i = 0; i < ops->count; i++)
        client_query(c, "queue", ops->items[i]);
    if (prefix)
        client_query(c, "prefix", prefix);
    if (f->id.len > 0)
        client_header(c, "Last-Event-ID", buf_cstr(&f->id));
    client_arm(c, "GET", NULL);
    curl_easy_setopt(c->easy, CURLOPT_WRITEFUNCTION, on_piece);
    curl_easy_setopt(c->easy, CURLOPT_WRITEDATA, f);
    curl_easy_setopt(c->easy, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(c->easy, CURLOPT_XFERINFOFUNCTION, on_progress);
    f->spoke = false;
    buf_clear(&f->line);
    buf_clear(&f->event);
    buf_clear(&f->data);
    client_finish(c, curl_easy_perform(c->easy));
}

/* The server said no, and would again. */
static bool is_refused(const struct client *c)
{
    return c->http != 0 && !client_succeeded(c) && c->http != 503;
}

static void wait_ms(int64_t ms)
{
    for (; ms > 0 && !interrupted; ms -= 100)
        nanosleep(&(struct timespec){.tv_nsec = 100 * 1000000L}, NULL);
}

static int follow(struct follower *f, const struct operands *ops, const char *prefix)
{
    int64_t backoff_ms = BACKOFF_MS_MIN;
    while (!interrupted) {
        stream_follow(f, ops, prefix);
        if (interrupted)
            break;
        if (f->failed && ferror(stdout))
            return CLI_USAGE;
        f->failed = false;
        f->reached |= f->spoke;
        if (is_refused(&f->call) || !f->reached)
            return client_complain(&f->call);
        backoff_ms = f->spoke ? BACKOFF_MS_MIN : backoff_ms * 2;
        if (backoff_ms > BACKOFF_MS_MAX)
            backoff_ms = BACKOFF_MS_MAX;
        if (f->spoke)
            cli_complain("the stream of %s ended; trying again", f->cli->server);
        wait_ms(backoff_ms);
    }
    return CLI_DONE;
}

int cmd_events(int argc, char **argv, const struct cli *cli)
{
    const char *prefix = NULL;
    const struct arg_option options[] = {
        {"prefix", 0, ARG_TEXT, &prefix, "NAME", "only queues whose names start with it"},
        {0},
    };
    const struct arg_spec spec = {
        "events [QUEUE...] [--prefix NAME]",
        "Follows what happens in queues until it is interrupted: first each queue as it is, then,\n"
        "at most once a second, those whose numbers changed; alerts, changed configurations and\n"
        "deleted queues. With --json one document a line. Connects again when the server goes\n"
        "away, and then shows what changed meanwhile.",
        "  triage events\n"
        "  triage events mail sms\n"
        "  triage events --json | jq -c 'select(.event == \"alert\") | .data'\n",
        options,
        0,
        EVENT_QUEUES_MAX};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status != ARGS_GO)
        return status;
    struct follower f = {.cli = cli};
    const struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    client_init(&f.call);
    json_init(&f.doc);
    status = follow(&f, &ops, prefix);
    client_fini(&f.call);
    json_fini(&f.doc);
    buf_fini(&f.line);
    buf_fini(&f.event);
    buf_fini(&f.data);
    buf_fini(&f.id);
    return status;
}
