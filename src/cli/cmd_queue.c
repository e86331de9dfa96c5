/* The commands about whole queues: queues, stats, and the verbs of queue. */
#include "base/limits.h"
#include "base/mem.h"
#include "base/suggest.h"
#include "cli/client.h"
#include "cli/commands.h"
#include "cli/list.h"
#include "cli/setting.h"
#include "cli/simple.h"
#include "term/args.h"
#include "term/text.h"

#include <stdio.h>
#include <stdlib.h>

int cmd_stats(int argc, char **argv, const struct cli *cli)
{
    bool partitions = false;
    const struct arg_option options[] = {
        {"partitions", 0, ARG_FLAG, &partitions, NULL, "and those of each cell"},
        {0},
    };
    const struct arg_spec spec = {"stats QUEUE [--partitions]",
                                  "The depths and the totals of a queue.",
                                  "  triage stats mail\n"
                                  "  triage stats mail --partitions\n"
                                  "  triage stats mail --json | jq .depth_by_priority\n",
                                  options,
                                  1,
                                  1};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    const char *path = partitions ? "/v1/queues/%s/stats?partitions=true" : "/v1/queues/%s/stats";
    return status == ARGS_GO ? simple_send(cli, "GET", path, &ops) : status;
}

static int queue_get(int argc, char **argv, const struct cli *cli)
{
    const struct arg_spec spec = {"queue get QUEUE",
                                  "The whole configuration of a queue, defaults filled in.",
                                  "  triage queue get mail\n"
                                  "  triage queue get mail --json > mail.json\n",
                                  NULL,
                                  1,
                                  1};
    return simple_run(&spec, argc, argv, cli, "GET", "/v1/queues/%s");
}

static int queue_pause(int argc, char **argv, const struct cli *cli)
{
    const struct arg_spec spec = {
        "queue pause QUEUE",
        "Claims find the queue empty until it is resumed; enqueues go on.",
        "  triage queue pause mail\n",
        NULL,
        1,
        1};
    return simple_run(&spec, argc, argv, cli, "POST", "/v1/queues/%s/pause");
}

static int queue_resume(int argc, char **argv, const struct cli *cli)
{
    const struct arg_spec spec = {
        "queue resume QUEUE", "Ends a pause.", "  triage queue resume mail\n", NULL, 1, 1};
    return simple_run(&spec, argc, argv, cli, "POST", "/v1/queues/%s/resume");
}

static int queue_purge(int argc, char **argv, const struct cli *cli)
{
    bool yes = false;
    const struct arg_option options[] = {
        {"yes", 'y', ARG_FLAG, &yes, NULL, "do not ask"},
        {"force", 0, ARG_FLAG, &yes, NULL, "the same"},
        {0},
    };
    const struct arg_spec spec = {"queue purge QUEUE [--yes]",
                                  "Drops every scheduled and ready message of a queue. Asks first; "
                                  "without a\nterminal it needs --yes.",
                                  "  triage queue purge mail --yes\n",
                                  options,
                                  1,
                                  1};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status != ARGS_GO)
        return status;
    status = cli_confirm(yes, "Drop all waiting messages of %s?", ops.items[0]);
    if (status != CLI_DONE)
        return status;
    return simple_send(cli, "POST", "/v1/queues/%s/purge", &ops);
}

static int queue_delete(int argc, char **argv, const struct cli *cli)
{
    bool yes = false, force = false;
    const struct arg_option options[] = {
        {"yes", 'y', ARG_FLAG, &yes, NULL, "do not ask"},
        {"force", 0, ARG_FLAG, &force, NULL, "the same, and delete its messages with it"},
        {0},
    };
    const struct arg_spec spec = {"queue delete QUEUE [--yes] [--force]",
                                  "Deletes a queue. One that holds messages or has schedules is "
                                  "kept unless --force is given.\nAsks first; without a terminal "
                                  "it needs --yes or --force.",
                                  "  triage queue delete mail --force\n",
                                  options,
                                  1,
                                  1};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status != ARGS_GO)
        return status;
    status = cli_confirm(yes || force, "Delete the queue %s?", ops.items[0]);
    if (status != CLI_DONE)
        return status;
    return simple_send(cli, "DELETE", force ? "/v1/queues/%s?force=true" : "/v1/queues/%s", &ops);
}

/* After a refusal of level.NAME.FIELD: the level of the queue that was probably meant. */
static void suggest_level(const struct client *refused, const struct cli *cli, const char *queue)
{
    static const char start[] = "/levels/";
    const struct json_token *field = json_get(&refused->doc, 0, "field");
    size_t skip = strlen(start);
    struct client c;
    struct suggestion s;
    if (!field || field->len <= skip || memcmp(field->str, start, skip) != 0)
        return;
    client_init(&c);
    client_begin(&c, cli);
    client_path(&c, "/v1/queues/%s", queue);
    client_try(&c, "GET", NULL);
    const struct json_token *levels = client_succeeded(&c) ? json_get(&c.doc, 0, "levels") : NULL;
    uint32_t array = levels ? (uint32_t)(levels - c.doc.tokens) : 0;
    suggest_begin(&s, field->str + skip, field->len - skip);
    char names[LEVEL_COUNT_MAX][LEVEL_NAME_MAX + 1] = {0};
    int n = 0;
    for (uint32_t i = array ? json_first(&c.doc, array) : 0; i && n < LEVEL_COUNT_MAX;
         i = json_next(&c.doc, array, i)) {
        const struct json_token *name = json_get(&c.doc, i, "name");
        if (name && name->type == JSON_STRING && name->len <= LEVEL_NAME_MAX)
            suggest_offer(&s, memcpy(names[n++], name->str, name->len));
    }
    if (s.best)
        cli_complain("did you mean the level %s?", s.best);
    client_fini(&c);
}

static int queue_set(int argc, char **argv, const struct cli *cli)
{
    const char *file = NULL;
    const struct arg_option options[] = {
        {"file", 'f', ARG_TEXT, &file, "PATH", "a JSON object; key=value settings go on top"},
        {0},
    };
    const struct arg_spec spec = {
        "queue set QUEUE [KEY=VALUE ...] [--file config.json]",
        "Creates a queue or changes its configuration; what is not named stays. Members of\n"
        "members have dots, and level.NAME.FIELD is a field of one level, of a queue that is\n"
        "there. A value is JSON when it parses as JSON, else a string. `levels` names all levels:\n"
        "others are dropped with drop_levels=true alone.",
        "  triage queue set mail profile=tiers max_attempts=8\n"
        "  triage queue set mail level.CRITICAL.weight=16 level.LOW.age_after_seconds=600\n"
        "  triage queue set mail retry.backoff=exponential retry.base_seconds=2 ttl_seconds=null\n"
        "  triage queue set mail dedup.scope=live levels='[{\"name\": \"fast\"}, {\"name\": "
        "\"slow\"}]'\n"
        "  triage queue set mail --file mail.json max_depth=100000\n",
        options,
        1,
        -1};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status != ARGS_GO)
        return status;
    struct client c;
    client_init(&c);
    client_begin(&c, cli);
    client_path(&c, "/v1/queues/%s", ops.items[0]);
    const char *method = setting_body(file, &ops, &c.body);
    status = method ? client_run(&c, method, TYPE_JSON) : CLI_USAGE;
    if (status == CLI_DONE && cli->json)
        text_document(&c.answer);
    else if (status == CLI_DONE)
        printf("%s %s\n", c.http == 201 ? "created" : "changed", ops.items[0]);
    else if (method && client_is(&c, "unknown-priority"))
        suggest_level(&c, cli, ops.items[0]);
    client_fini(&c);
    return status;
}

/* ARGS_GO when there is no such queue. */
static int check_absent(const struct cli *cli, const char *queue)
{
    struct client c;
    client_init(&c);
    client_begin(&c, cli);
    client_path(&c, "/v1/queues/%s", queue);
    client_try(&c, "GET", NULL);
    int status = ARGS_GO;
    if (client_succeeded(&c)) {
        cli_complain("%s exists already; `triage queue set` changes it", queue);
        status = CLI_REFUSED;
    } else if (!client_is(&c, "queue-not-found")) {
        status = client_complain(&c);
    }
    client_fini(&c);
    return status;
}

static int queue_create(int argc, char **argv, const struct cli *cli)
{
    const char *file = NULL;
    const struct arg_option options[] = {
        {"file", 'f', ARG_TEXT, &file, "PATH", "a JSON object; key=value settings go on top"},
        {0},
    };
    const struct arg_spec spec = {
        "queue create QUEUE [KEY=VALUE ...] [--file config.json]",
        "Creates a queue, with settings as `queue set` takes them. One that exists is left as it\n"
        "is, and the exit status is 1. (Where auto_create is on, a first message creates it too.)",
        "  triage queue create mail profile=tiers\n",
        options,
        1,
        -1};
    struct operands ops;
    char **copy = mem_dup(argv, (size_t)argc * sizeof(*argv)); /* parsing rearranges them */
    int status = args_parse(&spec, argc, copy, &ops);
    if (status == ARGS_GO)
        status = check_absent(cli, ops.items[0]);
    free(copy);
    return status == ARGS_GO ? queue_set(argc, argv, cli) : status;
}

static const struct cli_verb queue_verbs[] = {
    {"list", "the queues with their depths; the same as `triage queues`", cmd_queues},
    {"create", "make it, with settings", queue_create},
    {"get", "print the configuration", queue_get},
    {"set", "create it or change its configuration", queue_set},
    {"apply", "give queues the configurations of a file", queue_apply},
    {"dump", "write the configurations of all queues, for apply", queue_dump},
    {"delete", "delete it", queue_delete},
    {"purge", "drop its scheduled and ready messages", queue_purge},
    {"pause", "hand out nothing until resumed", queue_pause},
    {"resume", "end a pause", queue_resume},
    {NULL, NULL, NULL},
};

int cmd_queue(int argc, char **argv, const struct cli *cli)
{
    return cli_run_verb(queue_verbs, argc, argv, cli);
}

int cmd_queues(int argc, char **argv, const struct cli *cli)
{
    struct list_options o = {.limit = ARG_UNSET};
    const struct arg_option options[] = {
        {"prefix", 0, ARG_TEXT, &o.prefix, "P", "only names that start so"},
        {"limit", 0, ARG_INT, &o.limit, "N", "at most so many; without it all"},
        {"after", 0, ARG_TEXT, &o.after, "NAME", "only those behind this one"},
        {0},
    };
    const struct arg_spec spec = {"queues [--prefix P] [--limit N] [--after NAME]",
                                  "Lists the queues with their depths.",
                                  "  triage queues\n"
                                  "  triage queues --prefix mail. --json\n",
                                  options,
                                  0,
                                  0};
    static const char *const columns[] = {"name", "ready",  "scheduled", "in_flight",
                                          "dead", "paused", NULL};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status != ARGS_GO)
        return status;
    return list_print(cli, "/v1/queues", NULL, &o, columns);
}
