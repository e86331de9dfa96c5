/* The commands of whoever holds a receipt: ack, nack, release, extend; for one message or many. */
#include "base/clock.h"
#include "cli/client.h"
#include "cli/commands.h"
#include "cli/out.h"
#include "term/args.h"
#include "term/member.h"
#include "term/text.h"
#include "term/words.h"

#include <stdio.h>

/* What is done with every pair of ID and RECEIPT. */
struct settling {
    const char *verb;
    const char *shown; /* the member of the answer to print, or NULL */
    struct buf fields; /* members besides the receipts: {"reason":"x", not closed; empty: none */
};

static void put_fields(struct buf *json, const struct settling *s)
{
    if (s->fields.len > 1) {
        buf_putc(json, ',');
        buf_put(json, s->fields.data + 1, s->fields.len - 1);
    }
    buf_putc(json, '}');
}

static void warn_of_urgent(const struct client *c)
{
    const struct json_token *urgent = c->is_json ? json_get(&c->doc, 0, "urgent_waiting") : NULL;
    if (urgent != NULL && urgent->boolean)
        cli_complain("more urgent messages are ready and nobody is waiting for them");
}

static int settle_one(struct client *c, const struct settling *s, char **pair)
{
    if (strcmp(s->verb, "ack") == 0) {
        client_path(c, "/%s", pair[0]);
        client_header(c, "X-Receipt-Handle", pair[1]);
        return client_run(c, "DELETE", NULL);
    }
    client_path(c, "/%s/", pair[0]);
    client_path(c, s->verb);
    buf_putc(&c->body, '{');
    member_put_text(&c->body, "receipt_handle", pair[1]);
    put_fields(&c->body, s);
    return client_run(c, "POST", TYPE_JSON);
}

/* Prints one line for each: its id, and what became of it; with --json nothing. A refusal is
 * printed, and the others go on. */
static int print_many(const struct client *c, const struct settling *s, char **pairs, bool json)
{
    int status = CLI_DONE, n = 0;
    uint32_t at = c->is_json ? json_array(&c->doc, 0, "results") : 0;
    for (uint32_t i = at ? json_first(&c->doc, at) : 0; i; i = json_next(&c->doc, at, i), n++) {
        const struct json_token *error = json_get(&c->doc, i, "error");
        if (error == NULL) {
            const struct json_token *t = s->shown ? json_get(&c->doc, i, s->shown) : NULL;
            if (t != NULL && t->type == JSON_STRING && !json)
                printf("%s\t%.*s\n", pairs[2 * n], (int)t->len, t->str);
            continue;
        }
        struct buf text = {0};
        words_put_problem(&text, &c->doc, json_index(&c->doc, error), c->http, false, NULL);
        cli_complain("%s: %s", pairs[2 * n], buf_cstr(&text));
        buf_fini(&text);
        status = CLI_REFUSED;
    }
    return status;
}

static int settle_many(struct client *c, const struct settling *s, char **pairs, int count)
{
    client_path(c, "/");
    client_path(c, s->verb);
    buf_puts(&c->body, "{\"receipts\":");
    for (int i = 0; i < count; i++) {
        buf_puts(&c->body, i == 0 ? "[{" : ",{");
        member_put_text(&c->body, "message_id", pairs[2 * i]);
        member_put_text(&c->body, "receipt_handle", pairs[2 * i + 1]);
        buf_putc(&c->body, '}');
    }
    buf_putc(&c->body, ']');
    put_fields(&c->body, s);
    return client_run(c, "POST", TYPE_JSON);
}

/* `pairs` are `count` pairs of operands: ID and RECEIPT. Frees the fields. */
static int settle(struct settling *s, const struct cli *cli, const char *queue, char **pairs,
                  int count)
{
    struct client c;
    client_init(&c);
    client_begin(&c, cli);
    c.has_options = true;
    client_path(&c, "/v1/queues/%s/messages", queue);
    bool many = count > 1;
    int status = many ? settle_many(&c, s, pairs, count) : settle_one(&c, s, pairs);
    if (status == CLI_DONE && cli->json)
        text_document(&c.answer);
    if (status == CLI_DONE && many)
        status = print_many(&c, s, pairs, cli->json);
    else if (status == CLI_DONE && !cli->json && s->shown)
        out_member(&c, s->shown);
    if (!cli->json)
        warn_of_urgent(&c);
    client_fini(&c);
    buf_fini(&s->fields);
    return status;
}

/* args_parse() for a queue, then pairs, then `after` more operands. */
static int parse_pairs(const struct arg_spec *spec, int argc, char **argv, int after,
                       struct operands *ops)
{
    int status = args_parse(spec, argc, argv, ops);
    if (status != ARGS_GO || (ops->count - 1 - after) % 2 == 0)
        return status;
    return args_refuse(spec, "every ID needs its RECEIPT");
}

int cmd_ack(int argc, char **argv, const struct cli *cli)
{
    const struct arg_spec spec = {"ack QUEUE ID RECEIPT [ID RECEIPT ...]",
                                  "The messages are done and leave the queue. A receipt is the one "
                                  "that claim printed.",
                                  "  triage ack mail msg_01 rh_7f\n",
                                  NULL,
                                  3,
                                  -1};
    struct settling s = {.verb = "ack"};
    struct operands ops;
    int status = parse_pairs(&spec, argc, argv, 0, &ops);
    if (status != ARGS_GO)
        return status;
    return settle(&s, cli, ops.items[0], ops.items + 1, (ops.count - 1) / 2);
}

int cmd_nack(int argc, char **argv, const struct cli *cli)
{
    int64_t delay_ms = ARG_UNSET;
    const char *reason = NULL;
    bool dead = false;
    const struct arg_option options[] = {
        {"dead", 0, ARG_FLAG, &dead, NULL, "no other attempt: it becomes a dead letter"},
        {"delay", 0, ARG_DURATION, &delay_ms, "10s", "not ready again before this long"},
        {"reason", 0, ARG_TEXT, &reason, "TEXT", "what went wrong, kept with the message"},
        {0},
    };
    const struct arg_spec spec = {
        "nack QUEUE ID RECEIPT [ID RECEIPT ...] [--delay 10s] [--reason TEXT] [--dead]",
        "The messages failed: they become ready again, after the delay or as the queue's `retry`\n"
        "says, or dead letters when their attempts are used up. Prints the new state; for "
        "several,\n"
        "ids and states with a tab between.",
        "  triage nack mail msg_01 rh_7f --delay 30s --reason 'smtp: 451 try later'\n",
        options,
        3,
        -1};
    struct settling s = {.verb = "nack", .shown = "state"};
    struct operands ops;
    int status = parse_pairs(&spec, argc, argv, 0, &ops);
    if (status != ARGS_GO)
        return status;
    buf_putc(&s.fields, '{');
    if (delay_ms != ARG_UNSET)
        member_put_seconds(&s.fields, "delay_seconds", delay_ms);
    if (dead) {
        member_put(&s.fields, "dead");
        buf_puts(&s.fields, "true");
    }
    if (reason)
        member_put_text(&s.fields, "reason", reason);
    return settle(&s, cli, ops.items[0], ops.items + 1, (ops.count - 1) / 2);
}

int cmd_release(int argc, char **argv, const struct cli *cli)
{
    const struct arg_spec spec = {
        "release QUEUE ID RECEIPT [ID RECEIPT ...]",
        "Gives claimed messages back at once; the attempt does not count.",
        "  triage release mail msg_01 rh_7f\n",
        NULL,
        3,
        -1};
    struct settling s = {.verb = "release"};
    struct operands ops;
    int status = parse_pairs(&spec, argc, argv, 0, &ops);
    if (status != ARGS_GO)
        return status;
    return settle(&s, cli, ops.items[0], ops.items + 1, (ops.count - 1) / 2);
}

int cmd_extend(int argc, char **argv, const struct cli *cli)
{
    const struct arg_spec spec = {
        "extend QUEUE ID RECEIPT [ID RECEIPT ...] DURATION",
        "Keeps claimed messages for DURATION from now. Prints when one would become visible;\n"
        "for several, ids and times with a tab between.",
        "  triage extend mail msg_01 rh_7f 60s\n",
        NULL,
        4,
        -1};
    struct settling s = {.verb = "extend", .shown = "visible_at"};
    struct operands ops;
    int64_t ms;
    int status = parse_pairs(&spec, argc, argv, 1, &ops);
    if (status != ARGS_GO)
        return status;
    const char *duration = ops.items[ops.count - 1];
    if (!duration_parse_ms(duration, &ms))
        return args_refuse(&spec, "\"%s\" is not a duration such as 60s", duration);
    buf_putc(&s.fields, '{');
    member_put_seconds(&s.fields, "visibility_timeout_seconds", ms);
    return settle(&s, cli, ops.items[0], ops.items + 1, (ops.count - 2) / 2);
}
