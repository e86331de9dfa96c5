/* The commands about the order of messages: escalate, position. */
#include "cli/client.h"
#include "cli/commands.h"
#include "cli/simple.h"
#include "term/args.h"
#include "term/member.h"
#include "term/text.h"

#include <stdio.h>
#include <stdlib.h>

struct escalate_options {
    const char *actor, *reason;
    bool all, dry_run;
    /* The filter, when no id is given. */
    const char *from;
    int64_t older_ms;
    struct arg_list meta;
};

static bool has_filter(const struct escalate_options *o)
{
    return o->all || o->from || o->older_ms != ARG_UNSET || o->meta.count > 0;
}

static bool put_filter(struct buf *json, const struct escalate_options *o)
{
    member_put(json, "filter");
    buf_putc(json, '{');
    if (o->from)
        member_put_priority(json, "priority", o->from);
    if (o->older_ms != ARG_UNSET)
        member_put_seconds(json, "older_than_seconds", o->older_ms);
    bool fine = member_put_metadata(json, &o->meta);
    buf_putc(json, '}');
    return fine;
}

/* Who asks: as given, or the user's name in the system. */
static const char *actor_of(const struct escalate_options *o)
{
    const char *user = getenv("USER");
    return o->actor ? o->actor : user && user[0] ? user : NULL;
}

static void print_counts(const struct client *c)
{
    int64_t matched = 0, changed = 0;
    const struct json_token *m = json_get(&c->doc, 0, "matched");
    const struct json_token *n = json_get(&c->doc, 0, "changed");
    if (m && n && json_i64(m, &matched) && json_i64(n, &changed))
        printf("%lld matched, %lld changed\n", (long long)matched, (long long)changed);
}

static int escalate(const struct escalate_options *o, const struct operands *ops,
                    const struct cli *cli)
{
    bool many = has_filter(o);
    struct client c;
    client_init(&c);
    client_begin(&c, cli);
    c.has_options = true;
    c.priority_word = "PRIORITY";
    client_path(&c, "/v1/queues/%s/messages/", ops->items[0]);
    if (!many)
        client_path(&c, "%s/", ops->items[1]);
    client_path(&c, "priority");
    buf_putc(&c.body, '{');
    member_put_priority(&c.body, "priority", ops->items[ops->count - 1]);
    if (actor_of(o))
        member_put_text(&c.body, "actor", actor_of(o));
    if (o->reason)
        member_put_text(&c.body, "reason", o->reason);
    bool fine = !many || put_filter(&c.body, o);
    if (o->dry_run) {
        member_put(&c.body, "dry_run");
        buf_puts(&c.body, "true");
    }
    buf_putc(&c.body, '}');
    int status = fine ? client_run(&c, "POST", TYPE_JSON) : CLI_USAGE;
    if (status == CLI_DONE && cli->json)
        text_document(&c.answer);
    else if (status == CLI_DONE && many)
        print_counts(&c);
    client_fini(&c);
    return status;
}

int cmd_escalate(int argc, char **argv, const struct cli *cli)
{
    struct escalate_options o = {.older_ms = ARG_UNSET};
    const struct arg_option options[] = {
        {"reason", 0, ARG_TEXT, &o.reason, "TEXT", "why, kept with the message"},
        {"actor", 0, ARG_TEXT, &o.actor, "NAME", "who asks for it; else $USER"},
        {"from", 0, ARG_TEXT, &o.from, "P", "all of this priority"},
        {"older-than", 0, ARG_DURATION, &o.older_ms, "10m", "all that were enqueued before that"},
        {"meta", 0, ARG_LIST, &o.meta, "K=V", "all with this metadata; may be repeated"},
        {"all", 0, ARG_FLAG, &o.all, NULL, "all that are scheduled or ready"},
        {"dry-run", 'n', ARG_FLAG, &o.dry_run, NULL, "only count those that match"},
        {0},
    };
    const struct arg_spec spec = {
        "escalate QUEUE [ID] PRIORITY [options]",
        "Gives a scheduled or ready message another priority, up or down, from the next claim\n"
        "on. It keeps its age. Without ID: all messages for which --from, --older-than and\n"
        "--meta hold together; prints how many.",
        "  triage escalate mail msg_01 CRITICAL --reason 'the customer is on the phone'\n"
        "  triage escalate mail CRITICAL --meta tenant=acme --older-than 10m --dry-run\n"
        "  triage escalate thumbs 0 --from 5\n",
        options,
        2,
        3};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status == ARGS_GO) {
        if (ops.count == 3 && has_filter(&o))
            status = args_refuse(&spec, "both an ID and --from, --older-than, --meta or --all");
        else if (ops.count == 2 && !has_filter(&o))
            status = args_refuse(&spec, "which ones? give an ID, or --from, --older-than, --meta, "
                                        "or --all");
        else if (ops.count == 3 && o.dry_run)
            status = args_refuse(&spec, "--dry-run is for many; `triage position` tells of one");
        else
            status = escalate(&o, &ops, cli);
    }
    free(o.meta.items);
    return status;
}

int cmd_position(int argc, char **argv, const struct cli *cli)
{
    const struct arg_spec spec = {
        "position QUEUE ID",
        "Why a message waits: how many would be claimed before it under the queue's present\n"
        "policy, what blocks it (delay, pause, limit), and when it may start at the rate of the\n"
        "last half minute.",
        "  triage position mail msg_01\n",
        NULL,
        2,
        2};
    return simple_run(&spec, argc, argv, cli, "GET", "/v1/queues/%s/messages/%s/position");
}
