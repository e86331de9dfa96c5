/* The command `triage top`. */
#include "cli/commands.h"
#include "cli/top.h"
#include "term/args.h"

#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>

#define INTERVAL_MS_DEFAULT 2000
#define LIMIT_DEFAULT       20

struct asked {
    struct top_options top;
    const char *sort, *match;
    bool reverse, once;
};

/* The place of an order by the server's word for it; -1: there is none. */
static int order_find(const char *name)
{
    for (int i = 0; i < TOP_ORDER_COUNT; i++)
        if (strcmp(top_orders[i].name, name) == 0)
            return i;
    return -1;
}

/* ARGS_GO, or the status to exit with. */
static int check(const struct arg_spec *spec, const struct asked *a, bool live)
{
    int64_t least = live ? TOP_INTERVAL_MS_MIN : 0;
    if (a->sort && order_find(a->sort) < 0)
        return args_refuse(spec, "--sort takes trouble, name, ready, scheduled, in_flight, dead, "
                                 "depth, oldest or claims");
    if (a->match && strlen(a->match) > QUEUE_NAME_MAX)
        return args_refuse(spec, "--match: no queue has such a long name");
    if (a->top.limit < 1 || a->top.limit > LIST_MAX)
        return args_refuse(spec, "--limit takes 1 to %d", LIST_MAX);
    if (a->top.interval_ms < least || a->top.interval_ms > TOP_INTERVAL_MS_MAX)
        return args_refuse(spec, "--interval takes %s to 1h", live ? "100ms" : "0s");
    return ARGS_GO;
}

static int perform(const struct asked *a, const struct cli *cli)
{
    struct top t;
    top_init(&t, cli, &a->top);
    t.order = a->sort ? order_find(a->sort) : 0;
    t.reverse = a->reverse;
    if (a->match)
        snprintf(t.match, sizeof(t.match), "%s", a->match);
    int status = a->once ? top_once(&t) : cli->json ? top_stream(&t) : top_run(&t);
    top_fini(&t);
    return status;
}

int cmd_top(int argc, char **argv, const struct cli *cli)
{
    struct asked a = {.top = {.interval_ms = INTERVAL_MS_DEFAULT, .limit = LIMIT_DEFAULT}};
    const struct arg_option options[] = {
        {"interval", 0, ARG_DURATION, &a.top.interval_ms, "2s", "between two looks"},
        {"sort", 0, ARG_TEXT, &a.sort, "KEY", "what is first; without it trouble"},
        {"reverse", 0, ARG_FLAG, &a.reverse, NULL, "the same order from its end"},
        {"match", 0, ARG_TEXT, &a.match, "TEXT", "only queues with this in their names"},
        {"prefix", 0, ARG_TEXT, &a.top.prefix, "P", "only queues whose names start so"},
        {"limit", 0, ARG_INT, &a.top.limit, "N", "rows of --once and --json; else 20"},
        {"once", 0, ARG_FLAG, &a.once, NULL, "print the list as text, and end"},
        {0},
    };
    const struct arg_spec spec = {
        "top [--interval 2s] [--sort KEY] [--match TEXT] [--once]",
        "The queues by trouble, live: the most dead letters, then the oldest message, the\n"
        "greatest depth, the most in flight; rates since the look before. Keys put them in "
        "another\n"
        "order, search, open a queue with its levels, pause, redrive and escalate; ? lists them.\n"
        "KEY is one of trouble, name, ready, scheduled, in_flight, dead, depth, oldest, claims.\n"
        "--once looks twice, an interval apart, for the rates (with --interval 0s once, without\n"
        "them). With --json a line for each look, until it is stopped; with --once one line.",
        "  triage top\n"
        "  triage top --sort oldest --prefix mail.\n"
        "  triage top --once --limit 5\n"
        "  triage top --json --interval 10s | jq -c '.queues[] | [.name, .dead]'\n",
        options,
        0,
        0};
    struct operands ops;
    setlocale(LC_CTYPE, ""); /* which characters the terminal takes */
    int status = args_parse(&spec, argc, argv, &ops);
    if (status == ARGS_GO)
        status = check(&spec, &a, !a.once);
    return status == ARGS_GO ? perform(&a, cli) : status;
}
