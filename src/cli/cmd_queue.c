/* The commands about whole queues: queues, stats, and the verbs of queue. */
#include "cli/args.h"
#include "cli/client.h"
#include "cli/jsontree.h"
#include "cli/list.h"
#include "cli/out.h"
#include "cli/payload.h"
#include "cli/simple.h"

#include <errno.h>
#include <stdio.h>

#define CONFIG_TOKENS_MAX 10000

int cmd_stats(int argc, char **argv, const struct cli *cli)
{
    const struct arg_spec spec = {"stats QUEUE",
                                  "The depths and the totals of a queue.",
                                  "  triage stats mail\n"
                                  "  triage stats mail --json | jq .depth_by_priority\n",
                                  NULL,
                                  1,
                                  1};
    return simple_run(&spec, argc, argv, cli, "GET", "/v1/queues/%s/stats");
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
                                  "Drops every scheduled and ready message of a queue.",
                                  "  triage queue purge mail --yes\n",
                                  options,
                                  1,
                                  1};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status != ARGS_GO)
        return status;
    if (!yes && !cli_confirm("Drop all waiting messages of %s?", ops.items[0]))
        return CLI_REFUSED;
    return simple_send(cli, "POST", "/v1/queues/%s/purge", &ops);
}

static int queue_delete(int argc, char **argv, const struct cli *cli)
{
    bool yes = false, force = false;
    const struct arg_option options[] = {
        {"yes", 'y', ARG_FLAG, &yes, NULL, "do not ask"},
        {"force", 0, ARG_FLAG, &force, NULL, "do not ask, and delete its messages with it"},
        {0},
    };
    const struct arg_spec spec = {"queue delete QUEUE [--yes] [--force]",
                                  "Deletes a queue. One that holds messages is kept unless --force "
                                  "is given.",
                                  "  triage queue delete mail --force\n",
                                  options,
                                  1,
                                  1};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status != ARGS_GO)
        return status;
    if (!yes && !force && !cli_confirm("Delete the queue %s?", ops.items[0]))
        return CLI_REFUSED;
    return simple_send(cli, "DELETE", force ? "/v1/queues/%s?force=true" : "/v1/queues/%s", &ops);
}

static bool config_file(struct jsontree *config, struct json_doc *doc, const char *path)
{
    struct buf text = {0};
    bool fine = payload_read(strcmp(path, "-") == 0 ? NULL : path, &text);
    if (!fine) {
        cli_complain("%s: %s", path, strerror(errno));
    } else if (!json_parse(doc, text.data, text.len, CONFIG_TOKENS_MAX)) {
        cli_complain("%s: %s", path, doc->error);
        fine = false;
    } else if (doc->tokens[0].type != JSON_OBJECT) {
        cli_complain("%s: not a JSON object", path);
        fine = false;
    }
    if (fine)
        jsontree_merge(config, doc, 0);
    buf_fini(&text);
    return fine;
}

/* What parses as JSON is JSON, anything else is a string. */
static bool config_setting(struct jsontree *config, struct json_doc *doc, char *setting)
{
    char *equals = strchr(setting, '=');
    if (equals == NULL || equals == setting) {
        cli_complain("%s: expected key=value", setting);
        return false;
    }
    const char *value = equals + 1;
    *equals = '\0';
    if (json_parse(doc, value, strlen(value), CONFIG_TOKENS_MAX)) {
        jsontree_set(config, setting, value, strlen(value));
        return true;
    }
    if (!utf8_valid(value, strlen(value))) {
        cli_complain("%s: not valid UTF-8", setting);
        return false;
    }
    struct buf text = {0};
    json_put_cstr(&text, value);
    jsontree_set(config, setting, text.data, text.len);
    buf_fini(&text);
    return true;
}

static bool config_build(const char *file, const struct operands *ops, struct buf *out)
{
    struct jsontree config = {0};
    struct json_doc doc;
    json_init(&doc);
    bool fine = file == NULL || config_file(&config, &doc, file);
    for (int i = 1; fine && i < ops->count; i++)
        fine = config_setting(&config, &doc, ops->items[i]);
    if (fine)
        jsontree_put(&config, out);
    json_fini(&doc);
    jsontree_fini(&config);
    return fine;
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
        "members have dots. A value is JSON when it parses as JSON, else a string.",
        "  triage queue set mail profile=tiers max_attempts=5\n"
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
    struct call c;
    call_init(&c);
    call_begin(&c, cli);
    call_path(&c, "/v1/queues/%s", ops.items[0]);
    status = CLI_USAGE;
    if (config_build(file, &ops, &c.body))
        status = call_run(&c, "PUT", TYPE_JSON);
    if (status == CLI_DONE && cli->json)
        out_document(&c.answer);
    else if (status == CLI_DONE)
        printf("%s %s\n", c.http == 201 ? "created" : "changed", ops.items[0]);
    call_fini(&c);
    return status;
}

static const struct cli_verb queue_verbs[] = {
    {"get", "print the configuration", queue_get},
    {"set", "create it or change its configuration", queue_set},
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
