/* claim: take messages by hand, or in a script that reads lines. */
#include "cli/client.h"
#include "cli/commands.h"
#include "cli/out.h"
#include "cli/payload.h"
#include "term/args.h"
#include "term/member.h"
#include "term/text.h"
#include "term/words.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

struct claim_options {
    int64_t max, wait_ms, visibility_ms;
    const char *min_priority;
    bool ack, raw, fail_empty;
};

static void claim_body(const struct claim_options *o, struct buf *json)
{
    buf_putc(json, '{');
    if (o->max != ARG_UNSET) {
        member_put(json, "max");
        buf_put_i64(json, o->max);
    }
    if (o->wait_ms != ARG_UNSET)
        member_put_seconds(json, "wait_seconds", o->wait_ms);
    if (o->min_priority)
        member_put_priority(json, "min_priority", o->min_priority);
    if (o->visibility_ms != ARG_UNSET)
        member_put_seconds(json, "visibility_timeout_seconds", o->visibility_ms);
    buf_putc(json, '}');
}

static void put_field(struct buf *line, const struct json_token *t)
{
    if (t != NULL && t->type == JSON_STRING)
        text_escape(line, t->str, t->len, true);
    else
        buf_put(line, t ? t->raw : "-", t ? t->raw_len : 1);
    buf_putc(line, '\t');
}

/* One message is one line, whatever is in it: a payload could pretend to be the next message
 * otherwise. With --raw it comes as it is, but never to a terminal. */
static void put_payload(struct buf *line, const struct json_doc *doc, uint32_t message, bool raw)
{
    const struct json_token *bytes = json_get(doc, message, "payload_base64");
    if (bytes != NULL && !raw) {
        buf_printf(line, "base64:%.*s", (int)bytes->len, bytes->str);
        return;
    }
    struct buf payload = {0};
    payload_get(doc, message, &payload);
    if (raw)
        buf_put(line, payload.data, payload.len);
    else
        text_escape(line, payload.data, payload.len, true);
    buf_fini(&payload);
}

static void print_message(const struct json_doc *doc, uint32_t message, bool raw)
{
    struct buf line = {0};
    put_field(&line, json_get(doc, message, "message_id"));
    struct buf level = {0};
    out_level(&level, json_get(doc, message, "priority"), json_get(doc, message, "level"));
    text_escape(&line, level.data, level.len, true);
    buf_fini(&level);
    buf_putc(&line, '\t');
    put_field(&line, json_get(doc, message, "attempt"));
    put_field(&line, json_get(doc, message, "receipt_handle"));
    put_payload(&line, doc, message, raw);
    if (!raw || line.data[line.len - 1] != '\n')
        buf_putc(&line, '\n');
    fwrite(line.data, 1, line.len, stdout);
    buf_fini(&line);
}

static void put_receipts(struct buf *json, const struct json_doc *doc, uint32_t messages)
{
    buf_puts(json, "{\"receipts\":[");
    for (uint32_t i = json_first(doc, messages); i; i = json_next(doc, messages, i)) {
        const struct json_token *id = json_get(doc, i, "message_id");
        const struct json_token *receipt = json_get(doc, i, "receipt_handle");
        if (id == NULL || receipt == NULL)
            continue;
        if (json->data[json->len - 1] == '}')
            buf_putc(json, ',');
        buf_printf(json, "{\"message_id\":%.*s,\"receipt_handle\":%.*s}", (int)id->raw_len, id->raw,
                   (int)receipt->raw_len, receipt->raw);
    }
    buf_puts(json, "]}");
}

static int ack_results(const struct client *c)
{
    int status = CLI_DONE;
    uint32_t at = json_array(&c->doc, 0, "results");
    for (uint32_t i = at ? json_first(&c->doc, at) : 0; i; i = json_next(&c->doc, at, i)) {
        const struct json_token *error = json_get(&c->doc, i, "error");
        if (error == NULL || error->type != JSON_OBJECT)
            continue;
        struct buf text = {0};
        words_put_problem(&text, &c->doc, json_index(&c->doc, error), c->http, false, NULL);
        cli_complain("%s", buf_cstr(&text));
        buf_fini(&text);
        status = CLI_REFUSED;
    }
    return status;
}

/* A message that could not be printed is not acked: it comes back when its lease ends. */
static int ack_all(const struct cli *cli, const char *queue, const struct json_doc *doc,
                   uint32_t messages)
{
    if (fflush(stdout) != 0) {
        cli_complain("nothing acked, the output cannot be written: %s", strerror(errno));
        return CLI_REFUSED;
    }
    struct client c;
    client_init(&c);
    client_begin(&c, cli);
    client_path(&c, "/v1/queues/%s/messages/ack", queue);
    put_receipts(&c.body, doc, messages);
    int status = client_run(&c, "POST", TYPE_JSON);
    if (status == CLI_DONE && c.is_json)
        status = ack_results(&c);
    client_fini(&c);
    return status;
}

static int claim(const struct claim_options *o, const char *queue, const struct cli *cli)
{
    struct client c;
    client_init(&c);
    client_begin(&c, cli);
    c.has_options = true;
    client_path(&c, "/v1/queues/%s/messages/claim", queue);
    claim_body(o, &c.body);
    c.wait_seconds = o->wait_ms == ARG_UNSET ? 0 : (long)(o->wait_ms / 1000);
    int status = client_run(&c, "POST", TYPE_JSON);
    uint32_t at = status == CLI_DONE && c.is_json ? json_array(&c.doc, 0, "messages") : 0;
    if (status == CLI_DONE && cli->json)
        text_document(&c.answer);
    if (at) {
        bool raw = o->raw && !isatty(STDOUT_FILENO);
        for (uint32_t i = json_first(&c.doc, at); i && !cli->json; i = json_next(&c.doc, at, i))
            print_message(&c.doc, i, raw);
        if (c.doc.tokens[at].count == 0) {
            cli_complain("nothing to claim in %s", queue);
            status = o->fail_empty ? CLI_EMPTY : CLI_DONE;
        } else if (o->ack) {
            status = ack_all(cli, queue, &c.doc, at);
        }
    }
    client_fini(&c);
    return status;
}

int cmd_claim(int argc, char **argv, const struct cli *cli)
{
    struct claim_options o = {.max = ARG_UNSET, .wait_ms = ARG_UNSET, .visibility_ms = ARG_UNSET};
    const struct arg_option options[] = {
        {"max", 'n', ARG_INT, &o.max, "N", "at most so many messages (1 to 100)"},
        {"wait", 'w', ARG_DURATION, &o.wait_ms, "20s", "wait so long for a first message"},
        {"min-priority", 0, ARG_TEXT, &o.min_priority, "P", "this level and more urgent ones"},
        {"visibility", 0, ARG_DURATION, &o.visibility_ms, "30s", "how long the claim holds"},
        {"ack", 0, ARG_FLAG, &o.ack, NULL, "ack at once, after printing"},
        {"raw", 0, ARG_FLAG, &o.raw, NULL, "payloads byte for byte, into a file or a pipe"},
        {"fail-empty", 0, ARG_FLAG, &o.fail_empty, NULL, "nothing there: exit status 4"},
        {0},
    };
    const struct arg_spec spec = {
        "claim QUEUE [options]",
        "Takes the most urgent messages, most urgent first. Prints one line for each, with tabs\n"
        "between: id, level, attempt, receipt, payload. A level is its name with its number, as "
        "in\n"
        "HIGH (1). Control characters of a payload are spelled out (a newline is \\n), bytes that\n"
        "are no text are base64:...; --raw and --json give them as they are. Nothing there: a "
        "word\n"
        "on standard error and exit status 0, or 4 with --fail-empty.",
        "  triage claim mail\n"
        "  triage claim mail --max 10 --wait 20s --min-priority 7\n"
        "  while line=$(triage claim mail --fail-empty); do handle \"$line\"; done\n"
        "  triage claim mail --wait 20s | while IFS=$'\\t' read -r id level attempt receipt body; "
        "do\n"
        "      deliver \"$body\" && triage ack mail \"$id\" \"$receipt\"; done\n",
        options,
        1,
        1};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    return status == ARGS_GO ? claim(&o, ops.items[0], cli) : status;
}
