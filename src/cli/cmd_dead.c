/* The verbs of dead: look at the dead letters of a queue, bring them back, drop them. */
#include "cli/client.h"
#include "cli/commands.h"
#include "cli/list.h"
#include "cli/matching.h"
#include "cli/out.h"
#include "cli/show.h"
#include "term/args.h"
#include "term/member.h"

#include <stdlib.h>

static int dead_list(int argc, char **argv, const struct cli *cli)
{
    struct list_options o = {.limit = ARG_UNSET};
    const struct arg_option options[] = {
        {"limit", 0, ARG_INT, &o.limit, "N", "at most so many; without it all"},
        {"after", 0, ARG_TEXT, &o.after, "ID", "only those behind this one"},
        {0},
    };
    const struct arg_spec spec = {"dead list QUEUE [--limit N] [--after ID]",
                                  "Lists the dead letters of a queue with the reasons.",
                                  "  triage dead list mail\n"
                                  "  triage dead list mail --limit 10 --json\n",
                                  options,
                                  1,
                                  1};
    static const char *const columns[] = {"message_id", "level",  "attempts",
                                          "died_at",    "reason", NULL};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status != ARGS_GO)
        return status;
    return list_print(cli, "/v1/queues/%s/dead", ops.items[0], &o, columns);
}

static int dead_show(int argc, char **argv, const struct cli *cli)
{
    bool payload = false;
    const struct arg_option options[] = {
        {"payload", 0, ARG_FLAG, &payload, NULL, "only the payload, byte for byte"},
        {0},
    };
    const struct arg_spec spec = {"dead show QUEUE ID [--payload]",
                                  "Everything about one dead letter, the payload at the end.",
                                  "  triage dead show mail msg_01\n"
                                  "  triage dead show mail msg_01 --payload | jq .\n",
                                  options,
                                  2,
                                  2};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status != ARGS_GO)
        return status;
    return show_message(cli, "/v1/queues/%s/dead/%s", &ops, payload);
}

static void put_number(struct buf *json, const char *name, int64_t value)
{
    if (value == ARG_UNSET)
        return;
    member_put(json, name);
    buf_put_i64(json, value);
}

static void put_ids(struct buf *json, const struct operands *ops)
{
    if (ops->count < 2)
        return;
    member_put(json, "ids");
    for (int i = 1; i < ops->count; i++) {
        buf_putc(json, i == 1 ? '[' : ',');
        json_put_cstr(json, ops->items[i]);
    }
    buf_putc(json, ']');
}

static int dead_redrive(int argc, char **argv, const struct cli *cli)
{
    int64_t max = ARG_UNSET, per_second = ARG_UNSET;
    const char *priority = NULL;
    struct match_options o = MATCH_NONE;
    const struct arg_option options[] = {
        {"max", 0, ARG_INT, &max, "N", "at most so many"},
        {"per-second", 0, ARG_INT, &per_second, "N", "not faster than this"},
        {"priority", 'p', ARG_TEXT, &priority, "P", "with this priority; else they keep theirs"},
        {"reason", 0, ARG_TEXT, &o.reason, "TEXT", "all with this reason"},
        MATCH_OPTIONS(o),
        {0},
    };
    const struct arg_spec spec = {
        "dead redrive QUEUE [ID ...] [--max N] [--per-second N] [--priority P] [options]",
        "Makes dead letters ready again, their attempts counted from 0: the named ones; without "
        "an\n"
        "ID those that match, else all of the queue, or --max of them, and without asking.",
        "  triage dead redrive mail --max 100 --per-second 10\n"
        "  triage dead redrive mail msg_01 msg_02 --priority 9\n"
        "  triage dead redrive mail --reason 'smtp timeout' --dry-run\n",
        options,
        1,
        -1};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status == ARGS_GO && (match_asked(&o) || o.dry_run)) {
        if (ops.count > 1 || per_second != ARG_UNSET)
            status = args_refuse(&spec, "no ID and no --per-second with those that match");
        else
            status = match_run(cli, "/v1/queues/%s/dead/redrive", ops.items[0], &o, "redriven",
                               priority, max);
    }
    free(o.meta.items);
    if (status != ARGS_GO)
        return status;
    struct client c;
    client_init(&c);
    client_begin(&c, cli);
    c.has_options = true;
    client_path(&c, "/v1/queues/%s/dead/redrive", ops.items[0]);
    buf_putc(&c.body, '{');
    put_ids(&c.body, &ops);
    put_number(&c.body, "max", max);
    put_number(&c.body, "per_second", per_second);
    if (priority)
        member_put_priority(&c.body, "priority", priority);
    buf_putc(&c.body, '}');
    status = client_run(&c, "POST", TYPE_JSON);
    if (status == CLI_DONE)
        out_answer(&c, cli);
    client_fini(&c);
    return status;
}

static int purge_matching(const struct arg_spec *spec, const struct operands *ops,
                          const struct match_options *o, bool yes, const struct cli *cli)
{
    int status = CLI_DONE;
    if (ops->count > 1)
        return args_refuse(spec, "no ID with those that match");
    if (!o->dry_run)
        status = cli_confirm(yes, "Drop all dead letters of %s that match?", ops->items[0]);
    if (status != CLI_DONE)
        return status;
    return match_run(cli, "/v1/queues/%s/dead/purge", ops->items[0], o, "purged", NULL, ARG_UNSET);
}

static int dead_purge(int argc, char **argv, const struct cli *cli)
{
    bool yes = false;
    struct match_options o = MATCH_NONE;
    const struct arg_option options[] = {
        {"yes", 'y', ARG_FLAG, &yes, NULL, "do not ask"},
        {"force", 0, ARG_FLAG, &yes, NULL, "the same"},
        {"reason", 0, ARG_TEXT, &o.reason, "TEXT", "all with this reason"},
        MATCH_OPTIONS(o),
        {0},
    };
    const struct arg_spec spec = {
        "dead purge QUEUE [ID ...] [--yes] [options]",
        "Drops dead letters for good: the named ones, those that match, or all. Asks first; "
        "without a\nterminal it needs --yes.",
        "  triage dead purge mail --yes\n"
        "  triage dead purge mail msg_01 --yes\n"
        "  triage dead purge mail --reason 'no such mailbox' --dry-run\n",
        options,
        1,
        -1};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status == ARGS_GO && (match_asked(&o) || o.dry_run))
        status = purge_matching(&spec, &ops, &o, yes, cli);
    free(o.meta.items);
    if (status != ARGS_GO)
        return status;
    bool all = ops.count == 1;
    status = cli_confirm(
        yes, all ? "Drop all dead letters of %s?" : "Drop these dead letters of %s?", ops.items[0]);
    if (status != CLI_DONE)
        return status;
    struct client c;
    client_init(&c);
    status = CLI_DONE;
    for (int i = all ? 0 : 1; status == CLI_DONE && i < ops.count; i++) {
        client_begin(&c, cli);
        client_path(&c, "/v1/queues/%s/dead/%s", ops.items[0], all ? "purge" : ops.items[i]);
        status = client_run(&c, all ? "POST" : "DELETE", NULL);
        if (status == CLI_DONE)
            out_answer(&c, cli);
    }
    client_fini(&c);
    return status;
}

static const struct cli_verb dead_verbs[] = {
    {"list", "with the reasons", dead_list},
    {"show", "one of them, with its payload", dead_show},
    {"edit", "change its payload, and make it ready again", cmd_dead_edit},
    {"redrive", "make them ready again", dead_redrive},
    {"purge", "drop them for good", dead_purge},
    {NULL, NULL, NULL},
};

int cmd_dead(int argc, char **argv, const struct cli *cli)
{
    return cli_run_verb(dead_verbs, argc, argv, cli);
}
