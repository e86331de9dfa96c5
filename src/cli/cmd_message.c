/* The commands about one message without its receipt: enqueue, show, cancel. */
#include "cli/client.h"
#include "cli/commands.h"
#include "cli/compose.h"
#include "cli/out.h"
#include "cli/show.h"
#include "cli/simple.h"
#include "term/args.h"
#include "term/member.h"
#include "term/text.h"

#include <stdlib.h>
#include <string.h>

struct enqueue_options {
    struct compose message;
    const char *at;
    int64_t dequeue_at_ms;
};

static bool enqueue_body(const struct enqueue_options *o, const char *operand, struct buf *json)
{
    buf_putc(json, '{');
    bool fine = compose_put(&o->message, operand, json);
    if (o->at)
        member_put_text(json, "delay_until", o->at);
    if (o->dequeue_at_ms != ARG_UNSET) {
        member_put(json, "dequeue_at");
        buf_put_i64(json, o->dequeue_at_ms);
    }
    buf_putc(json, '}');
    return fine;
}

static int enqueue(const struct enqueue_options *o, const struct operands *ops,
                   const struct cli *cli)
{
    struct client c;
    client_init(&c);
    client_begin(&c, cli);
    c.has_options = true;
    client_path(&c, "/v1/queues/%s/messages", ops->items[0]);
    const char *trace = getenv("TRACEPARENT");
    if (trace && strspn(trace, "0123456789abcdef-") == strlen(trace))
        client_header(&c, "traceparent", trace);
    int status = CLI_USAGE;
    if (enqueue_body(o, ops->count > 1 ? ops->items[1] : NULL, &c.body))
        status = client_run(&c, "POST", TYPE_JSON);
    if (status == CLI_DONE && cli->json) {
        text_document(&c.answer);
    } else if (status == CLI_DONE) {
        const struct json_token *twice = json_get(&c.doc, 0, "deduplicated");
        out_member(&c, "message_id");
        if (twice != NULL && twice->boolean)
            cli_complain("the key was known: this is the first message with it");
    }
    client_fini(&c);
    return status;
}

int cmd_enqueue(int argc, char **argv, const struct cli *cli)
{
    struct enqueue_options o = {.message = {.delay_ms = ARG_UNSET, .ttl_ms = ARG_UNSET},
                                .dequeue_at_ms = ARG_UNSET};
    const struct arg_option options[] = {
        COMPOSE_OPTIONS(o.message),
        {"at", 0, ARG_TIME, &o.at, "TIME",
         "ready only at this time: +2h, \"tomorrow 09:00\", RFC 3339"},
        {"dequeue-at", 0, ARG_MOMENT, &o.dequeue_at_ms, "TIME",
         "its place in the level: a time, or epoch ms"},
        {0},
    };
    const struct arg_spec spec = {
        "enqueue QUEUE [PAYLOAD|-] [options]",
        "Hands a message to a queue and prints its id. Without PAYLOAD, or with -, the payload\n"
        "is read from standard input; bytes that are not UTF-8 are kept as they are.",
        "  triage enqueue mail --priority 9 'hello'\n"
        "  triage enqueue mail --at 'tomorrow 09:00' 'good morning'\n"
        "  triage enqueue mail --delay 10m --meta tenant=acme < letter.eml\n"
        "  triage enqueue jobs --json-payload '{\"resize\": 42}' --dedup resize-42 --ttl 1h\n",
        options,
        1,
        2};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status == ARGS_GO) {
        if (ops.count > 1 && o.message.file)
            status = args_refuse(&spec, "both a payload and --file");
        else if ((o.at != NULL) + (o.message.delay_ms != ARG_UNSET) +
                     (o.dequeue_at_ms != ARG_UNSET) >
                 1)
            status = args_refuse(&spec, "--delay, --at and --dequeue-at exclude each other");
        else
            status = enqueue(&o, &ops, cli);
    }
    free(o.message.meta.items);
    return status;
}

int cmd_show(int argc, char **argv, const struct cli *cli)
{
    bool payload = false;
    const struct arg_option options[] = {
        {"payload", 0, ARG_FLAG, &payload, NULL, "only the payload, byte for byte"},
        {0},
    };
    const struct arg_spec spec = {"show QUEUE ID [--payload]",
                                  "Everything about a message, the payload at the end. Nothing is "
                                  "claimed.",
                                  "  triage show mail msg_01\n"
                                  "  triage show mail msg_01 --payload > letter.eml\n",
                                  options,
                                  2,
                                  2};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status != ARGS_GO)
        return status;
    return show_message(cli, "/v1/queues/%s/messages/%s", &ops, payload);
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
