/* triage-bench, which is `triage bench`: options in, a load generator run, a report out. */
#include "base/clock.h"
#include "base/mem.h"
#include "loadgen/bench_report.h"
#include "term/args.h"
#include "term/cli.h"

#include <stdlib.h>
#include <unistd.h>

#define CONNECTIONS_MAX 60000
#define QUEUES_MAX      100000
#define DURATION_MS     5000
#define WARMUP_MS       1000
#define COUNT_MS_MAX    (30 * 60 * 1000) /* for a count without a duration */

static const char about[] =
    "Puts load on a server and measures it. The mixes:\n"
    "  enqueue  every connection sends one message after the other\n"
    "  claim    claims and acks what is there; ends when nothing is left\n"
    "  mixed    every connection enqueues, claims and acks in turn (default); the\n"
    "           throughput is that of completed messages\n"
    "  poll     all connections wait on one queue and one message at a time is sent:\n"
    "           the time to its delivery, and whether it woke exactly one\n"
    "Messages it leaves behind stay in the queue. Peers are measured the same way:\n"
    "the target may be redis://, beanstalk:// or http-bare:// (any HTTP server). The CPU\n"
    "time of a --pid is that of all its threads and child processes.";

static const char examples[] = "  triage bench --mix enqueue --connections 256\n"
                               "  triage bench --mix enqueue --batch 100 --count 1000000\n"
                               "  triage bench --mix poll --connections 10000 --count 1000\n"
                               "  triage bench --target redis://127.0.0.1:6379 --pid $(pidof "
                               "redis-server)\n";

/* The command line as it was given; ARG_UNSET where it says nothing. */
struct bench_args {
    const char *target, *token, *mix, *queue, *priorities;
    int64_t connections, pipeline, batch, payload, queues, delay_ms, rate, count, refill;
    int64_t duration_ms, warmup_ms;
    struct arg_list pids;
    bool no_ack, json;
};

struct bench_range {
    const char *name;
    int64_t value;
    int64_t min, max;
};

static bool mix_parse(const char *name, enum loadgen_mix *mix)
{
    for (int i = 0; i < LOADGEN_MIX_COUNT; i++) {
        if (strcmp(name, loadgen_mix_names[i]) == 0) {
            *mix = (enum loadgen_mix)i;
            return true;
        }
    }
    return false;
}

static bool priorities_parse(const char *text, struct loadgen_config *config)
{
    char *end;
    unsigned long first = strtoul(text, &end, 10), last = first;
    if (end == text)
        return false;
    if (*end == '-') {
        text = end + 1;
        last = strtoul(text, &end, 10);
        if (end == text)
            return false;
    }
    config->priority_min = (uint32_t)first;
    config->priority_max = (uint32_t)last;
    return *end == '\0' && first <= last && last < 1000;
}

static bool pids_parse(const struct arg_list *pids, struct loadgen_config *config)
{
    if (pids->count > LOADGEN_PIDS_MAX)
        return false;
    for (size_t i = 0; i < pids->count; i++) {
        char *end;
        long pid = strtol(pids->items[i], &end, 10);
        if (end == pids->items[i] || *end != '\0' || pid < 1 || pid > INT32_MAX)
            return false;
        config->server_pids[config->server_pid_count++] = (pid_t)pid;
    }
    return true;
}

static int ranges_check(const struct arg_spec *spec, const struct bench_range *ranges, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct bench_range *r = &ranges[i];
        if (r->value < r->min || r->value > r->max)
            return args_refuse(spec, "--%s is from %lld to %lld", r->name, (long long)r->min,
                               (long long)r->max);
    }
    return ARGS_GO;
}

static int args_check(const struct arg_spec *spec, const struct bench_args *a)
{
    const struct bench_range ranges[] = {
        {"connections", a->connections, 1, CONNECTIONS_MAX},
        {"pipeline", a->pipeline, 1, HTTP_PIPELINE_MAX},
        {"batch", a->batch, 1, ENQUEUE_BATCH_MAX},
        {"payload", a->payload, 1, PAYLOAD_MAX},
        {"queues", a->queues, 1, QUEUES_MAX},
        {"delay", a->delay_ms, 0, DELAY_SECONDS_MAX * 1000},
        {"rate", a->rate, 0, 1000000000},
        {"count", a->count, 0, INT64_MAX},
        {"refill", a->refill, 0, ENQUEUE_BATCH_MAX},
        {"duration", a->duration_ms, 1, 86400000},
        {"warmup", a->warmup_ms, 0, 86400000},
    };
    return ranges_check(spec, ranges, sizeof(ranges) / sizeof(ranges[0]));
}

/* Two kinds of runs have no warmup unless it is asked for: those with a count, which is exact, and
 * the mix claim, because a warmup would use up the messages. */
static void defaults_apply(struct bench_args *a)
{
    bool exact = a->count > 0 || strcmp(a->mix, "claim") == 0;
    if (a->duration_ms == ARG_UNSET)
        a->duration_ms = a->count > 0 ? COUNT_MS_MAX : DURATION_MS;
    if (a->warmup_ms == ARG_UNSET)
        a->warmup_ms = exact ? 0 : WARMUP_MS;
}

static void config_fill(struct loadgen_config *config, const struct bench_args *a)
{
    config->token = a->token;
    config->queue = a->queue;
    config->connections = (uint32_t)a->connections;
    config->pipeline = (uint32_t)a->pipeline;
    config->batch = (uint32_t)a->batch;
    config->refill = a->refill > 0;
    config->enqueue_batch = (uint32_t)(a->refill > 0 ? a->refill : a->batch);
    config->payload_len = (uint32_t)a->payload;
    config->queue_count = (uint32_t)a->queues;
    config->delay_seconds = (uint32_t)(a->delay_ms / 1000);
    config->rate = (uint64_t)a->rate;
    config->count = (uint64_t)a->count;
    config->duration_ms = (uint64_t)a->duration_ms;
    config->warmup_ms = (uint64_t)a->warmup_ms;
    config->leave_leased = a->no_ack;
}

/* What the target's protocol cannot do is said before anything is sent. */
static int config_check(const struct arg_spec *spec, const struct loadgen_config *config)
{
    static const unsigned needs[LOADGEN_MIX_COUNT] = {
        [LOADGEN_MIX_ENQUEUE] = 1 << LOADGEN_ENQUEUE,
        [LOADGEN_MIX_CLAIM] = 1 << LOADGEN_CLAIM | 1 << LOADGEN_ACK,
        [LOADGEN_MIX_MIXED] = 1 << LOADGEN_ENQUEUE | 1 << LOADGEN_CLAIM | 1 << LOADGEN_ACK,
        [LOADGEN_MIX_POLL] = 1 << LOADGEN_ENQUEUE | 1 << LOADGEN_POLL | 1 << LOADGEN_ACK,
    };
    const struct loadgen_driver *driver = config->driver;
    bool claims = config->mix == LOADGEN_MIX_CLAIM || config->mix == LOADGEN_MIX_MIXED;
    if (needs[config->mix] & ~driver->ops)
        return args_refuse(spec, "%s:// cannot do the mix %s", driver->scheme,
                           loadgen_mix_names[config->mix]);
    if (config->delay_seconds > 0 && !driver->has_delay)
        return args_refuse(spec, "%s:// has no delays", driver->scheme);
    if (claims && config->batch > driver->claims_max)
        return args_refuse(spec, "a claim takes at most %u messages", driver->claims_max);
    if (config->mix == LOADGEN_MIX_POLL && (config->batch > 1 || config->pipeline > 1))
        return args_refuse(spec, "the mix poll has neither --batch nor --pipeline");
    if (config->mix == LOADGEN_MIX_POLL && config->queue_count > 1)
        return args_refuse(spec, "the mix poll has one queue");
    if (config->refill && (config->mix != LOADGEN_MIX_CLAIM || config->queue_count > 1))
        return args_refuse(spec, "--refill is for the mix claim on one queue");
    return ARGS_GO;
}

static int config_run(const struct loadgen_config *config, bool json)
{
    struct loadgen_report *report = mem_zalloc(sizeof(*report));
    struct bench_progress progress = {0};
    bool terminal = isatty(STDERR_FILENO);
    bool done = loadgen_run(config, terminal ? bench_progress_show : NULL, &progress, report);
    int status = CLI_DONE;
    bench_progress_clear(&progress);
    if (!done) {
        cli_complain("%s", report->error);
        status = bench_report_refused(report) > 0 ? CLI_REFUSED : CLI_UNREACHED;
    } else {
        (json ? bench_report_json : bench_report_text)(config, report);
        if (report->completed == 0 && bench_report_refused(report) > 0)
            status = CLI_REFUSED;
    }
    free(report);
    return status;
}

static int args_run(const struct arg_spec *spec, struct bench_args *a)
{
    struct loadgen_config config = {0};
    char error[LOADGEN_ERROR_MAX];
    defaults_apply(a);
    int status = args_check(spec, a);
    if (status != ARGS_GO)
        return status;
    if (!mix_parse(a->mix, &config.mix))
        return args_refuse(spec, "--mix is enqueue, claim, mixed or poll, not %s", a->mix);
    if (!priorities_parse(a->priorities, &config))
        return args_refuse(spec, "--priorities is a number or a range such as 0-9, not %s",
                           a->priorities);
    if (!pids_parse(&a->pids, &config))
        return args_refuse(spec, "--pid is the number of a process, at most %d times",
                           LOADGEN_PIDS_MAX);
    if (!loadgen_target_parse(&config, a->target, error))
        return args_refuse(spec, "%s", error);
    config_fill(&config, a);
    status = config_check(spec, &config);
    return status == ARGS_GO ? config_run(&config, a->json) : status;
}

static int bench(int argc, char **argv, const struct cli *cli)
{
    struct bench_args a = {
        .target = cli->server,
        .token = cli->token,
        .mix = "mixed",
        .queue = "bench",
        .priorities = "0-9",
        .connections = 64,
        .pipeline = 1,
        .batch = 1,
        .payload = 256,
        .queues = 1,
        .duration_ms = ARG_UNSET,
        .warmup_ms = ARG_UNSET,
        .json = cli->json,
    };
    const struct arg_option options[] = {
        {"target", 't', ARG_TEXT, &a.target, "URL",
         "instead of --server; http:// or a peer, no TLS"},
        {"mix", 'm', ARG_TEXT, &a.mix, "MIX", "enqueue, claim, mixed or poll"},
        {"connections", 'c', ARG_INT, &a.connections, "N", "64"},
        {"pipeline", 0, ARG_INT, &a.pipeline, "N", "requests under way on each connection, 1"},
        {"batch", 'b', ARG_INT, &a.batch, "N", "messages of each request, 1"},
        {"payload", 0, ARG_INT, &a.payload, "BYTES", "256"},
        {"duration", 'd', ARG_DURATION, &a.duration_ms, "TIME", "5s"},
        {"count", 'n', ARG_INT, &a.count, "N", "stop after so many messages"},
        {"warmup", 0, ARG_DURATION, &a.warmup_ms, "TIME", "not measured; 1s, 0 with a count"},
        {"queue", 'q', ARG_TEXT, &a.queue, "NAME", "bench"},
        {"queues", 0, ARG_INT, &a.queues, "N", "NAME-0, NAME-1 ... shared by the connections"},
        {"priorities", 0, ARG_TEXT, &a.priorities, "RANGE", "0-9, or one number"},
        {"delay", 0, ARG_DURATION, &a.delay_ms, "TIME", "of every message, whole seconds"},
        {"rate", 0, ARG_INT, &a.rate, "N", "begin so many a second; latency from when due"},
        {"no-ack", 0, ARG_FLAG, &a.no_ack, NULL, "leave what was claimed leased"},
        {"refill", 0, ARG_INT, &a.refill, "N", "in claim, put back N whenever N were claimed"},
        {"pid", 0, ARG_LIST, &a.pids, "PID", "the server's process, for its CPU time; repeatable"},
        {0},
    };
    const struct arg_spec spec = {
        .usage = "bench [OPTION]...",
        .about = about,
        .examples = examples,
        .options = options,
    };
    struct operands operands;
    int status = args_parse(&spec, argc, argv, &operands);
    if (status == ARGS_GO)
        status = args_run(&spec, &a);
    free(a.pids.items);
    return status;
}

int main(int argc, char **argv)
{
    return cli_main(argc, argv, bench);
}
