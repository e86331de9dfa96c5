/* The commands about one message: enqueue, ack, nack, extend, release, show, cancel. */
#include "base/clock.h"
#include "cli/args.h"
#include "cli/client.h"
#include "cli/out.h"
#include "cli/payload.h"
#include "cli/simple.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define TEXT_TOKENS_MAX 100000 /* of a JSON payload */

struct enqueue_options {
    const char *priority, *at, *dedup, *file;
    int64_t delay_ms, dequeue_at_ms, ttl_ms;
    struct arg_list meta;
    bool json_payload;
};

static bool json_checks(const struct buf *text)
{
    struct json_doc doc;
    json_init(&doc);
    bool valid = json_parse(&doc, text->data, text->len, TEXT_TOKENS_MAX);
    if (!valid)
        cli_complain("the payload is not JSON: %s", doc.error);
    json_fini(&doc);
    return valid;
}

static bool enqueue_payload(const struct enqueue_options *o, const char *operand, struct buf *out)
{
    if (operand != NULL && strcmp(operand, "-") != 0) {
        buf_puts(out, operand);
    } else if (!payload_read(o->file, out)) {
        cli_complain("%s: %s", o->file ? o->file : "standard input", strerror(errno));
        return false;
    }
    return !o->json_payload || json_checks(out);
}

static bool enqueue_body(const struct enqueue_options *o, const char *operand, struct buf *json)
{
    struct buf payload = {0};
    bool fine = enqueue_payload(o, operand, &payload);
    buf_putc(json, '{');
    if (fine && o->json_payload) {
        member_put(json, "payload");
        buf_put(json, payload.data, payload.len);
    } else if (fine) {
        payload_put(json, payload.data, payload.len);
    }
    buf_fini(&payload);
    if (o->priority)
        member_put_priority(json, "priority", o->priority);
    if (o->at)
        member_put_text(json, "delay_until", o->at);
    if (o->delay_ms != ARG_UNSET)
        member_put_seconds(json, "delay_seconds", o->delay_ms);
    if (o->dequeue_at_ms != ARG_UNSET) {
        member_put(json, "dequeue_at");
        buf_put_i64(json, o->dequeue_at_ms);
    }
    if (o->dedup)
        member_put_text(json, "dedup_key", o->dedup);
    if (o->ttl_ms != ARG_UNSET)
        member_put_seconds(json, "ttl_seconds", o->ttl_ms);
    fine = fine && member_put_metadata(json, &o->meta);
    buf_putc(json, '}');
    return fine;
}

static void print_member(const struct call *c, const char *name)
{
    const struct json_token *t = c->is_json ? json_get(&c->doc, 0, name) : NULL;
    if (t != NULL && t->type == JSON_STRING)
        printf("%.*s\n", (int)t->len, t->str);
}

static int enqueue(const struct enqueue_options *o, const struct operands *ops,
                   const struct cli *cli)
{
    struct call c;
    call_init(&c);
    call_begin(&c, cli);
    call_path(&c, "/v1/queues/%s/messages", ops->items[0]);
    int status = CLI_USAGE;
    if (enqueue_body(o, ops->count > 1 ? ops->items[1] : NULL, &c.body))
        status = call_run(&c, "POST", TYPE_JSON);
    if (status == CLI_DONE && cli->json) {
        out_document(&c.answer);
    } else if (status == CLI_DONE) {
        const struct json_token *twice = json_get(&c.doc, 0, "deduplicated");
        print_member(&c, "message_id");
        if (twice != NULL && twice->boolean)
            cli_complain("the key was known: this is the first message with it");
    }
    call_fini(&c);
    return status;
}

int cmd_enqueue(int argc, char **argv, const struct cli *cli)
{
    struct enqueue_options o = {
        .delay_ms = ARG_UNSET, .dequeue_at_ms = ARG_UNSET, .ttl_ms = ARG_UNSET};
    const struct arg_option options[] = {
        {"priority", 'p', ARG_TEXT, &o.priority, "P", "a number or a name of the queue's levels"},
        {"delay", 0, ARG_DURATION, &o.delay_ms, "10s", "ready only after this long"},
        {"at", 0, ARG_TIME, &o.at, "TIME", "ready only at this time"},
        {"dequeue-at", 0, ARG_INT, &o.dequeue_at_ms, "MS", "the place in the order, as epoch ms"},
        {"dedup", 0, ARG_TEXT, &o.dedup, "KEY", "drop it when this key is known"},
        {"ttl", 0, ARG_DURATION, &o.ttl_ms, "1h", "worthless after this long"},
        {"meta", 0, ARG_LIST, &o.meta, "K=V", "metadata; may be repeated"},
        {"json-payload", 0, ARG_FLAG, &o.json_payload, NULL, "the payload is JSON and stays JSON"},
        {"file", 'f', ARG_TEXT, &o.file, "PATH", "read the payload from a file"},
        {0},
    };
    const struct arg_spec spec = {
        "enqueue QUEUE [PAYLOAD|-] [options]",
        "Hands a message to a queue and prints its id. Without PAYLOAD, or with -, the payload\n"
        "is read from standard input; bytes that are not UTF-8 are kept as they are.",
        "  triage enqueue mail --priority 9 'hello'\n"
        "  triage enqueue mail --delay 10m --meta tenant=acme < letter.eml\n"
        "  triage enqueue jobs --json-payload '{\"resize\": 42}' --dedup resize-42 --ttl 1h\n",
        options,
        1,
        2};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status == ARGS_GO) {
        if (ops.count > 1 && o.file)
            status = args_refuse(&spec, "both a payload and --file");
        else if ((o.at != NULL) + (o.delay_ms != ARG_UNSET) + (o.dequeue_at_ms != ARG_UNSET) > 1)
            status = args_refuse(&spec, "--delay, --at and --dequeue-at exclude each other");
        else
            status = enqueue(&o, &ops, cli);
    }
    free(o.meta.items);
    return status;
}

/* POST .../{id}/{verb} with the receipt; further members may follow before receipt_send(). */
static void receipt_begin(struct call *c, const struct cli *cli, const struct operands *ops,
                          const char *verb)
{
    call_init(c);
    call_begin(c, cli);
    call_path(c, "/v1/queues/%s/messages/%s/", ops->items[0], ops->items[1]);
    call_path(c, verb);
    buf_putc(&c->body, '{');
    member_put_text(&c->body, "receipt_handle", ops->items[2]);
}

static int receipt_send(struct call *c, const struct cli *cli)
{
    buf_putc(&c->body, '}');
    int status = call_run(c, "POST", TYPE_JSON);
    if (status == CLI_DONE && cli->json)
        out_document(&c->answer);
    return status;
}

int cmd_ack(int argc, char **argv, const struct cli *cli)
{
    const struct arg_spec spec = {"ack QUEUE ID RECEIPT",
                                  "The message is done and leaves the queue. The receipt is the "
                                  "one that claim printed.",
                                  "  triage ack mail msg_01 rh_7f\n",
                                  NULL,
                                  3,
                                  3};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status != ARGS_GO)
        return status;
    struct call c;
    call_init(&c);
    call_begin(&c, cli);
    call_path(&c, "/v1/queues/%s/messages/%s", ops.items[0], ops.items[1]);
    call_header(&c, "X-Receipt-Handle", ops.items[2]);
    status = call_run(&c, "DELETE", NULL);
    call_fini(&c);
    return status;
}

int cmd_nack(int argc, char **argv, const struct cli *cli)
{
    int64_t delay_ms = ARG_UNSET;
    const char *reason = NULL;
    const struct arg_option options[] = {
        {"delay", 0, ARG_DURATION, &delay_ms, "10s", "not ready again before this long"},
        {"reason", 0, ARG_TEXT, &reason, "TEXT", "what went wrong, kept with the message"},
        {0},
    };
    const struct arg_spec spec = {
        "nack QUEUE ID RECEIPT [--delay 10s] [--reason TEXT]",
        "The message failed: it becomes ready again, or a dead letter when its attempts are\n"
        "used up. Prints its new state.",
        "  triage nack mail msg_01 rh_7f --delay 30s --reason 'smtp: 451 try later'\n",
        options,
        3,
        3};
    struct operands ops;
    struct call c;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status != ARGS_GO)
        return status;
    receipt_begin(&c, cli, &ops, "nack");
    if (delay_ms != ARG_UNSET)
        member_put_seconds(&c.body, "delay_seconds", delay_ms);
    if (reason)
        member_put_text(&c.body, "reason", reason);
    status = receipt_send(&c, cli);
    if (status == CLI_DONE && !cli->json)
        print_member(&c, "state");
    call_fini(&c);
    return status;
}

int cmd_release(int argc, char **argv, const struct cli *cli)
{
    const struct arg_spec spec = {
        "release QUEUE ID RECEIPT",
        "Gives a claimed message back at once; the attempt does not count.",
        "  triage release mail msg_01 rh_7f\n",
        NULL,
        3,
        3};
    struct operands ops;
    struct call c;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status != ARGS_GO)
        return status;
    receipt_begin(&c, cli, &ops, "release");
    status = receipt_send(&c, cli);
    call_fini(&c);
    return status;
}

int cmd_extend(int argc, char **argv, const struct cli *cli)
{
    const struct arg_spec spec = {
        "extend QUEUE ID RECEIPT DURATION",
        "Keeps a claimed message for DURATION from now. Prints when it would become visible.",
        "  triage extend mail msg_01 rh_7f 60s\n",
        NULL,
        4,
        4};
    struct operands ops;
    struct call c;
    int64_t ms;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status != ARGS_GO)
        return status;
    if (!duration_parse_ms(ops.items[3], &ms))
        return args_refuse(&spec, "\"%s\" is not a duration such as 60s", ops.items[3]);
    receipt_begin(&c, cli, &ops, "extend");
    member_put_seconds(&c.body, "visibility_timeout_seconds", ms);
    status = receipt_send(&c, cli);
    if (status == CLI_DONE && !cli->json) {
        const struct json_token *urgent = json_get(&c.doc, 0, "urgent_waiting");
        print_member(&c, "visible_at");
        if (urgent != NULL && urgent->boolean)
            cli_complain("more urgent messages are ready and nobody is waiting for them");
    }
    call_fini(&c);
    return status;
}

int cmd_show(int argc, char **argv, const struct cli *cli)
{
    const struct arg_spec spec = {"show QUEUE ID",
                                  "Everything about a message. Nothing is claimed.",
                                  "  triage show mail msg_01\n"
                                  "  triage show mail msg_01 --json | jq -r .payload\n",
                                  NULL,
                                  2,
                                  2};
    return simple_run(&spec, argc, argv, cli, "GET", "/v1/queues/%s/messages/%s");
}

int cmd_cancel(int argc, char **argv, const struct cli *cli)
{
    const struct arg_spec spec = {"cancel QUEUE ID",
                                  "Drops a message that is scheduled or ready.",
                                  "  triage cancel mail msg_01\n",
                                  NULL,
                                  2,
                                  2};
    return simple_run(&spec, argc, argv, cli, "DELETE", "/v1/queues/%s/messages/%s?cancel=true");
}
