/* work: a command for every message, settled by its exit status. The loop is in runner.c. */
#include "base/clock.h"
#include "base/limits.h"
#include "cli/commands.h"
#include "cli/runner.h"
#include "term/args.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define JOBS_MAX        1000
#define WAIT_MS_DEFAULT 20000

static bool is_executable(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* Checked before anything is claimed: a mistyped command must not cost a message an attempt. */
static bool command_exists(const char *name)
{
    if (strchr(name, '/') != NULL)
        return is_executable(name);
    const char *path = getenv("PATH");
    for (path = path ? path : "/bin:/usr/bin"; name[0] != '\0'; path++) {
        char full[4096];
        size_t len = strcspn(path, ":");
        snprintf(full, sizeof(full), "%.*s/%s", len ? (int)len : 1, len ? path : ".", name);
        if (is_executable(full))
            return true;
        path += len;
        if (*path == '\0')
            break;
    }
    return false;
}

static int check(const struct arg_spec *spec, struct runner_options *o, bool once,
                 const char *timeout, const struct operands *ops)
{
    if (ops->after_dashes < 1 || ops->count <= ops->after_dashes)
        return args_refuse(spec, "expected one QUEUE or more, then -- and a command");
    if (ops->after_dashes > CLAIM_QUEUES_MAX)
        return args_refuse(spec, "at most %d queues", CLAIM_QUEUES_MAX);
    if (o->jobs < 1 || o->jobs > JOBS_MAX)
        return args_refuse(spec, "--jobs: from 1 to %d", JOBS_MAX);
    if (o->wait_ms > WAIT_SECONDS_MAX * 1000)
        return args_refuse(spec, "--wait: at most %ds", WAIT_SECONDS_MAX);
    if (o->visibility_ms != ARG_UNSET && o->visibility_ms < 1000)
        return args_refuse(spec, "--visibility: at least 1s");
    if (o->messages_max != ARG_UNSET && (once || o->messages_max < 1))
        return args_refuse(spec, once ? "--once and --max-messages exclude each other"
                                      : "--max-messages: at least 1");
    if (timeout != NULL && !duration_parse_ms(timeout, &o->timeout_ms))
        return args_refuse(spec, "--timeout: \"%s\" is not a duration such as 10m", timeout);
    o->timeout_text = timeout;
    o->queues = ops->items;
    o->queue_count = (size_t)ops->after_dashes;
    o->argv = ops->items + ops->after_dashes;
    ops->items[ops->count] = NULL;
    if (once)
        o->messages_max = 1;
    if (o->drain)
        o->wait_ms = 0;
    return ARGS_GO;
}

int cmd_work(int argc, char **argv, const struct cli *cli)
{
    struct runner_options o = {.jobs = 1,
                               .wait_ms = WAIT_MS_DEFAULT,
                               .visibility_ms = ARG_UNSET,
                               .messages_max = ARG_UNSET,
                               .timeout_ms = ARG_UNSET};
    const char *timeout = NULL;
    bool once = false;
    const struct arg_option options[] = {
        {"jobs", 'j', ARG_INT, &o.jobs, "N", "run up to N commands at a time (1)"},
        {"visibility", 0, ARG_DURATION, &o.visibility_ms, "30s", "lease; extended while it runs"},
        {"wait", 0, ARG_DURATION, &o.wait_ms, "20s", "how long one claim waits for a message"},
        {"min-priority", 0, ARG_TEXT, &o.min_priority, "P",
         "this level and more urgent ones; of several queues one that all of them have: a number "
         "is to mean the level of the same name everywhere"},
        {"in-order", 0, ARG_FLAG, &o.listed, NULL,
         "of several queues the first that has something, not the most urgent message"},
        {"once", 0, ARG_FLAG, &once, NULL,
         "one message, then stop; waits for it, with --drain to stop when nothing is ready"},
        {"max-messages", 0, ARG_INT, &o.messages_max, "N", "N messages, then stop"},
        {"drain", 0, ARG_FLAG, &o.drain, NULL,
         "stop when nothing is ready and no command runs; what waits for its retry is left"},
        {"timeout", 0, ARG_TEXT, &timeout, "10m", "end a command that runs longer; nack"},
        {0},
    };
    const struct arg_spec spec = {
        "work QUEUE... [-j N] [options] -- COMMAND [ARG ...]",
        "Runs COMMAND for every message, the payload on its standard input. Exit status 0 acks;\n"
        "anything else nacks with the exit status and the last line of standard error as the\n"
        "reason. Leases are extended while a command runs; when one is lost, its command is "
        "ended.\n"
        "\n"
        "With several queues the most urgent message of all of them is next; TRIAGE_QUEUE says\n"
        "where it came from.\n"
        "\n"
        "Ctrl-C stops claiming and lets running commands finish; a second one sends them SIGTERM\n"
        "and releases their messages; a third one kills them.\n"
        "\n"
        "The environment has TRIAGE_QUEUE, TRIAGE_MESSAGE_ID, TRIAGE_PRIORITY, TRIAGE_LEVEL,\n"
        "TRIAGE_ATTEMPT, TRIAGE_RECEIPT, TRIAGE_ENQUEUED_AT, TRIAGE_METADATA (JSON),\n"
        "TRIAGE_META_TENANT and the like for metadata with simple names (trace-id becomes\n"
        "TRIAGE_META_TRACE_ID), TRIAGE_SERVER, and TRACEPARENT if the message has a trace "
        "context.\n"
        "docs/cli.md has the table.",
        "  triage work mail -- ./send-mail\n"
        "  triage work mail -j 8 --timeout 10m -- sh -c 'curl -sf --data-binary @- $URL'\n"
        "  triage work mail --min-priority 7 --visibility 30s -- ./send-mail --fast\n"
        "  triage work reports --drain -- ./render\n"
        "  triage work mail sms push -j 4 -- ./notify\n",
        options,
        1,
        -1};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status == ARGS_GO)
        status = check(&spec, &o, once, timeout, &ops);
    if (status != ARGS_GO)
        return status;
    if (!command_exists(o.argv[0])) {
        cli_complain("%s: no such command", o.argv[0]);
        return CLI_USAGE;
    }
    return runner_run(&o, cli);
}
