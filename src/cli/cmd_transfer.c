/* import and export: whole queues as NDJSON, one message a line. What export writes, import reads
 * back: same payloads, priorities, order and delays; ids and attempts start anew. */
#include "base/clock.h"
#include "base/limits.h"
#include "cli/args.h"
#include "cli/client.h"
#include "cli/payload.h"
#include "cli/progress.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define BATCH_BYTES_MAX (HTTP_BODY_MAX / 4)
#define LINE_TOKENS_MAX 200000

struct import {
    const struct cli *cli;
    const char *queue;
    struct call call;
    struct json_doc line;
    struct buf batch;
    int64_t lines[ENQUEUE_BATCH_MAX]; /* where each message of the batch stood */
    size_t batch_count;
    int64_t line_number, bytes;
    int64_t stored, deduplicated, expired, failed;
    struct progress progress;
};

static void import_fail(struct import *im, int64_t line, const char *why)
{
    im->failed++;
    progress_wipe(&im->progress);
    cli_complain("line %" PRId64 ": %s", line, why);
}

/* A time in an exported line: text, or milliseconds since the epoch. */
static bool line_time(const struct json_doc *doc, const char *name, int64_t *ms)
{
    const struct json_token *t = json_get(doc, 0, name);
    if (t == NULL)
        return false;
    if (t->type == JSON_STRING)
        return time_parse_ms(t->str, t->len, ms);
    return json_i64(t, ms);
}

/* An exported message as the enqueue that makes it again. False when its time to live is over. */
static bool import_map(const struct json_doc *doc, struct buf *out)
{
    static const char *const kept[] = {"payload",  "payload_base64", "priority",
                                       "metadata", "dedup_key",      "dequeue_at"};
    int64_t ready_ms, expires_ms;
    bool placed = json_get(doc, 0, "dequeue_at") != NULL;
    buf_putc(out, '{');
    for (size_t i = 0; i < sizeof(kept) / sizeof(*kept); i++) {
        const struct json_token *t = json_get(doc, 0, kept[i]);
        bool absent = t == NULL || (t->type == JSON_NULL && i > 0); /* null is a fine payload */
        if (absent)
            continue;
        member_put(out, kept[i]);
        buf_put(out, t->raw, t->raw_len);
    }
    if (!placed && line_time(doc, "ready_at", &ready_ms)) {
        member_put(out, "dequeue_at");
        buf_put_i64(out, ready_ms);
    }
    if (line_time(doc, "expires_at", &expires_ms)) {
        int64_t left_ms = expires_ms - clock_now().wall_ms;
        if (left_ms <= 0)
            return false;
        member_put(out, "ttl_seconds");
        buf_put_i64(out, (left_ms + 999) / 1000);
    }
    buf_putc(out, '}');
    return true;
}

static void import_result(struct import *im, const struct json_doc *doc, uint32_t result,
                          int64_t line)
{
    const struct json_token *error = json_get(doc, result, "error");
    const struct json_token *twice = json_get(doc, result, "deduplicated");
    if (error == NULL) {
        im->stored++;
        im->deduplicated += twice != NULL && twice->boolean;
        return;
    }
    struct buf text = {0};
    problem_print(doc, (uint32_t)(error - doc->tokens), im->call.http, &text);
    import_fail(im, line, buf_cstr(&text));
    buf_fini(&text);
}

static int import_send(struct import *im)
{
    struct call *c = &im->call;
    if (im->batch_count == 0)
        return CLI_DONE;
    call_begin(c, im->cli);
    call_path(c, "/v1/queues/%s/messages/batch", im->queue);
    buf_put(&c->body, im->batch.data, im->batch.len);
    int status = call_run(c, "POST", TYPE_NDJSON);
    if (status != CLI_DONE) {
        cli_complain("stopped: lines %" PRId64 " to %" PRId64 " may not be stored", im->lines[0],
                     im->lines[im->batch_count - 1]);
        return status;
    }
    const struct json_token *results = c->is_json ? json_get(&c->doc, 0, "results") : NULL;
    if (results == NULL || results->count != im->batch_count) {
        cli_complain("stopped: the server's answer does not match the batch");
        return CLI_REFUSED;
    }
    uint32_t array = (uint32_t)(results - c->doc.tokens);
    size_t n = 0;
    for (uint32_t i = json_first(&c->doc, array); i; i = json_next(&c->doc, array, i))
        import_result(im, &c->doc, i, im->lines[n++]);
    buf_clear(&im->batch);
    im->batch_count = 0;
    return CLI_DONE;
}

static bool is_blank(const char *line, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r')
            return false;
    return true;
}

/* A line with a message id comes from an export; any other goes to the server as it is, which
 * then refuses what it does not know. */
static int import_line(struct import *im, const char *line, size_t len)
{
    im->line_number++;
    if (is_blank(line, len))
        return CLI_DONE;
    if (!json_parse(&im->line, line, len, LINE_TOKENS_MAX)) {
        import_fail(im, im->line_number, im->line.error);
        return CLI_DONE;
    }
    size_t before = im->batch.len;
    if (json_get(&im->line, 0, "message_id") == NULL) {
        buf_put(&im->batch, line, len);
    } else if (!import_map(&im->line, &im->batch)) {
        im->batch.len = before;
        im->expired++;
        return CLI_DONE;
    }
    buf_putc(&im->batch, '\n');
    im->lines[im->batch_count++] = im->line_number;
    if (im->batch_count == ENQUEUE_BATCH_MAX || im->batch.len > BATCH_BYTES_MAX)
        return import_send(im);
    return CLI_DONE;
}

static int import_file(struct import *im, FILE *file)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    int status = CLI_DONE;
    while (status == CLI_DONE && (len = getline(&line, &cap, file)) >= 0) {
        im->bytes += len;
        if (len > 0 && line[len - 1] == '\n')
            len--;
        status = import_line(im, line, (size_t)len);
        progress_update(&im->progress, im->bytes, im->stored);
    }
    if (status == CLI_DONE && ferror(file)) {
        cli_complain("line %" PRId64 ": %s", im->line_number + 1, strerror(errno));
        status = CLI_USAGE;
    }
    free(line);
    return status == CLI_DONE ? import_send(im) : status;
}

static void import_report(const struct import *im)
{
    if (im->cli->json) {
        printf("{\"stored\":%" PRId64 ",\"deduplicated\":%" PRId64 ",\"expired\":%" PRId64
               ",\"failed\":%" PRId64 "}\n",
               im->stored - im->deduplicated, im->deduplicated, im->expired, im->failed);
        return;
    }
    printf("stored %" PRId64, im->stored - im->deduplicated);
    if (im->deduplicated)
        printf(", %" PRId64 " were known", im->deduplicated);
    if (im->expired)
        printf(", %" PRId64 " had expired", im->expired);
    if (im->failed)
        printf(", %" PRId64 " failed", im->failed);
    putchar('\n');
}

static int import_run(const struct cli *cli, const char *queue, FILE *file)
{
    struct import *im = calloc(1, sizeof(*im));
    struct stat st;
    bool sized = fstat(fileno(file), &st) == 0 && S_ISREG(st.st_mode);
    if (im == NULL)
        abort();
    im->cli = cli;
    im->queue = queue;
    call_init(&im->call);
    json_init(&im->line);
    progress_init(&im->progress, true, sized ? (int64_t)st.st_size : 0);
    int status = import_file(im, file);
    progress_wipe(&im->progress);
    import_report(im);
    if (status == CLI_DONE && im->failed > 0)
        status = CLI_REFUSED;
    call_fini(&im->call);
    json_fini(&im->line);
    buf_fini(&im->batch);
    free(im);
    return status;
}

int cmd_import(int argc, char **argv, const struct cli *cli)
{
    const struct arg_spec spec = {
        "import QUEUE FILE.ndjson|-",
        "Enqueues every line of a file, a thousand at a time. A line is what enqueue takes in the\n"
        "HTTP API, or what export wrote. Lines that are refused are reported by number, the\n"
        "others are stored.",
        "  triage import mail backup.ndjson\n"
        "  triage export mail | triage --server http://other:7420 import mail -\n",
        NULL,
        2,
        2};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status != ARGS_GO)
        return status;
    bool from_stdin = strcmp(ops.items[1], "-") == 0;
    FILE *file = from_stdin ? stdin : fopen(ops.items[1], "re");
    if (file == NULL) {
        cli_complain("%s: %s", ops.items[1], strerror(errno));
        return CLI_USAGE;
    }
    status = import_run(cli, ops.items[0], file);
    if (!from_stdin)
        fclose(file);
    return status;
}

struct export
{
    const struct cli *cli;
    const char *queue;
    bool dead;
    FILE *to;
    struct call call;
    struct json_doc line; /* in hand */
    struct buf lines;     /* of one page */
    struct buf after;     /* cursor of the next page, terminated; empty at the end */
    struct progress progress;
    int64_t bytes, messages;
};

/* Dead letters come as a list, which is taken apart into lines. */
static void export_dead_page(struct export *ex)
{
    const struct json_doc *doc = &ex->call.doc;
    const struct json_token *messages = json_get(doc, 0, "messages");
    const struct json_token *next = json_get(doc, 0, "next");
    if (messages == NULL)
        return;
    uint32_t array = (uint32_t)(messages - doc->tokens);
    for (uint32_t i = json_first(doc, array); i; i = json_next(doc, array, i)) {
        buf_put(&ex->lines, doc->tokens[i].raw, doc->tokens[i].raw_len);
        buf_putc(&ex->lines, '\n');
    }
    ex->messages += messages->count;
    if (next != NULL && next->type == JSON_STRING)
        buf_put(&ex->after, next->str, next->len);
}

static bool line_is_dead(struct export *ex, const char *line, size_t len)
{
    return json_parse(&ex->line, line, len, LINE_TOKENS_MAX) &&
           json_is(json_get(&ex->line, 0, "state"), "dead");
}

/* The server's lines without the dead letters: an import would make them ready again. */
static void export_live_page(struct export *ex)
{
    const struct buf *answer = &ex->call.answer;
    const char *line = answer->data, *end = line + answer->len;
    while (line < end) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        const char *next = stop ? stop + 1 : end;
        if (!line_is_dead(ex, line, (size_t)(next - line))) {
            buf_put(&ex->lines, line, (size_t)(next - line));
            ex->messages++;
        }
        line = next;
    }
    buf_put(&ex->after, ex->call.cursor.data, ex->call.cursor.len);
}

static int export_page(struct export *ex)
{
    struct call *c = &ex->call;
    call_begin(c, ex->cli);
    call_path(c, ex->dead ? "/v1/queues/%s/dead" : "/v1/queues/%s/export", ex->queue);
    call_query(c, "limit", "1000");
    if (ex->after.len > 0)
        call_query(c, "after", ex->after.data);
    int status = call_run(c, "GET", NULL);
    if (status != CLI_DONE)
        return status;
    buf_clear(&ex->lines);
    buf_clear(&ex->after);
    if (!ex->dead)
        export_live_page(ex);
    else if (c->is_json)
        export_dead_page(ex);
    buf_cstr(&ex->after);
    ex->bytes += (int64_t)ex->lines.len;
    progress_update(&ex->progress, ex->bytes, ex->messages);
    if (fwrite(ex->lines.data, 1, ex->lines.len, ex->to) == ex->lines.len)
        return CLI_DONE;
    cli_complain("cannot write: %s", strerror(errno));
    return CLI_USAGE;
}

static int export_run(const struct cli *cli, const char *queue, bool dead, FILE *to)
{
    struct export ex = {.cli = cli, .queue = queue, .dead = dead, .to = to};
    int status;
    call_init(&ex.call);
    json_init(&ex.line);
    progress_init(&ex.progress, !isatty(fileno(to)), 0);
    do {
        status = export_page(&ex);
    } while (status == CLI_DONE && ex.after.len > 0);
    progress_wipe(&ex.progress);
    call_fini(&ex.call);
    json_fini(&ex.line);
    buf_fini(&ex.lines);
    buf_fini(&ex.after);
    return status;
}

int cmd_export(int argc, char **argv, const struct cli *cli)
{
    bool dead = false;
    const char *path = NULL;
    const struct arg_option options[] = {
        {"dead", 0, ARG_FLAG, &dead, NULL, "only the dead letters, as the list of them shows them"},
        {"output", 'o', ARG_TEXT, &path, "PATH", "write to a file"},
        {0},
    };
    const struct arg_spec spec = {
        "export QUEUE [--dead] [--output PATH]",
        "Writes the messages of a queue as NDJSON, for backups and for import: scheduled, ready\n"
        "and leased ones. Claims nothing. Dead letters are left out; with --dead they alone are\n"
        "written, and an import of them makes them ready again.",
        "  triage export mail > backup.ndjson\n"
        "  triage export mail --dead | jq -r .reason | sort | uniq -c\n",
        options,
        1,
        1};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status != ARGS_GO)
        return status;
    FILE *to = path ? fopen(path, "we") : stdout;
    if (to == NULL) {
        cli_complain("%s: %s", path, strerror(errno));
        return CLI_USAGE;
    }
    status = export_run(cli, ops.items[0], dead, to);
    if (path && fclose(to) != 0 && status == CLI_DONE) {
        cli_complain("%s: %s", path, strerror(errno));
        status = CLI_USAGE;
    }
    return status;
}
