#include "loadgen/bench_report.h"

#include "base/json.h"

#include <stdio.h>

static const double shares[] = {0.5, 0.99, 0.999};
static const char *const share_names[] = {"p50", "p99", "p99_9"};
#define SHARE_COUNT 3

static double ms(uint64_t us)
{
    return (double)us / 1000;
}

static double per_second(uint64_t n, const struct loadgen_report *report)
{
    return report->elapsed_us ? (double)n * 1e6 / (double)report->elapsed_us : 0;
}

/* Negative: not known. */
static double us_per_message(int64_t cpu_ns, const struct loadgen_report *report)
{
    return cpu_ns < 0 || report->completed == 0 ? -1
                                                : (double)cpu_ns / 1000 / (double)report->completed;
}

uint64_t bench_report_refused(const struct loadgen_report *report)
{
    uint64_t sum = 0;
    for (int i = 0; i < LOADGEN_STATUS_MAX; i++)
        sum += report->refused[i];
    return sum;
}

static void line_print(const char *name, uint64_t operations, const struct hist *latency,
                       const struct loadgen_report *report)
{
    printf("%-10s %12llu %12.0f", name, (unsigned long long)operations,
           per_second(operations, report));
    for (int i = 0; i < SHARE_COUNT; i++)
        printf(" %9.3f", ms(hist_quantile(latency, shares[i])));
    printf(" %9.3f\n", ms(latency->max));
}

static void errors_print(const struct loadgen_report *report)
{
    const char *separator = "errors      ";
    for (int i = 0; i < LOADGEN_STATUS_MAX; i++) {
        if (report->refused[i] == 0)
            continue;
        printf("%s%d: %llu", separator, i, (unsigned long long)report->refused[i]);
        separator = ", ";
    }
    if (report->lost_connections > 0) {
        printf("%slost connections: %llu", separator, (unsigned long long)report->lost_connections);
        separator = ", ";
    }
    if (report->unanswered > 0) {
        printf("%sunanswered: %llu", separator, (unsigned long long)report->unanswered);
        separator = ", ";
    }
    printf("%s\n", separator[0] == ',' ? "" : "errors      none");
    if (report->first_refusal[0])
        printf("the first   %s\n", report->first_refusal);
}

static void cpu_print(const struct loadgen_report *report)
{
    double own = us_per_message((int64_t)report->own_cpu_ns, report);
    double server = us_per_message(report->server_cpu_ns, report);
    if (own >= 0)
        printf("CPU         %.2f us a message here", own);
    if (own >= 0 && server >= 0)
        printf(", %.2f us a message in the server", server);
    if (own >= 0)
        printf("\n");
}

void bench_report_text(const struct loadgen_config *config, const struct loadgen_report *report)
{
    printf("%s://%s:%s  %s, %u connections, pipeline %u, batch %u, %u-byte payloads, %.2f s\n\n",
           config->driver->scheme, config->host, config->port, loadgen_mix_names[config->mix],
           config->connections, config->pipeline, config->batch, config->payload_len,
           (double)report->elapsed_us / 1e6);
    printf("%-10s %12s %12s %9s %9s %9s %9s\n", "", "requests", "per second", "p50 ms", "p99 ms",
           "p99.9 ms", "max ms");
    for (int op = 0; op < LOADGEN_OP_COUNT; op++) {
        const struct loadgen_op_report *r = &report->ops[op];
        if (r->operations > 0)
            line_print(loadgen_op_names[op], r->operations, &r->latency_us, report);
    }
    if (config->mix == LOADGEN_MIX_POLL)
        line_print("delivery", report->delivery_us.count, &report->delivery_us, report);
    printf("\nmessages    %llu, %.0f a second\n", (unsigned long long)report->completed,
           per_second(report->completed, report));
    if (report->empty > 0)
        printf("empty       %llu claims found nothing\n", (unsigned long long)report->empty);
    if (config->mix == LOADGEN_MIX_POLL) {
        printf("wakeups     %llu beyond one for each message\n",
               (unsigned long long)report->extra_wakeups);
        if (report->waiting >= 0)
            printf("waiting     %lld consumers by the server's count\n",
                   (long long)report->waiting);
    }
    errors_print(report);
    cpu_print(report);
}

static void latency_put(struct buf *out, const struct hist *latency)
{
    for (int i = 0; i < SHARE_COUNT; i++)
        buf_printf(out, "\"%s_ms\":%.3f,", share_names[i], ms(hist_quantile(latency, shares[i])));
    buf_printf(out, "\"max_ms\":%.3f,\"mean_ms\":%.4f}", ms(latency->max),
               hist_mean(latency) / 1000);
}

static void ops_put(struct buf *out, const struct loadgen_report *report)
{
    bool first = true;
    buf_lit(out, ",\"operations\":{");
    for (int op = 0; op < LOADGEN_OP_COUNT; op++) {
        const struct loadgen_op_report *r = &report->ops[op];
        if (r->operations == 0)
            continue;
        buf_printf(out, "%s\"%s\":{\"requests\":%llu,\"messages\":%llu,\"per_second\":%.1f,",
                   first ? "" : ",", loadgen_op_names[op], (unsigned long long)r->operations,
                   (unsigned long long)r->messages, per_second(r->operations, report));
        latency_put(out, &r->latency_us);
        first = false;
    }
    buf_putc(out, '}');
}

static void errors_put(struct buf *out, const struct loadgen_report *report)
{
    bool first = true;
    buf_lit(out, ",\"errors\":{");
    for (int i = 0; i < LOADGEN_STATUS_MAX; i++) {
        if (report->refused[i] == 0)
            continue;
        buf_printf(out, "%s\"%d\":%llu", first ? "" : ",", i,
                   (unsigned long long)report->refused[i]);
        first = false;
    }
    buf_printf(out, "},\"lost_connections\":%llu,\"unanswered\":%llu",
               (unsigned long long)report->lost_connections,
               (unsigned long long)report->unanswered);
    if (report->first_refusal[0]) {
        buf_lit(out, ",\"first_error\":");
        json_put_cstr(out, report->first_refusal);
    }
}

static void cpu_put(struct buf *out, const char *name, double us)
{
    buf_printf(out, ",\"%s\":", name);
    if (us < 0)
        buf_lit(out, "null");
    else
        buf_printf(out, "%.3f", us);
}

void bench_report_json(const struct loadgen_config *config, const struct loadgen_report *report)
{
    struct buf out = {0};
    buf_printf(&out,
               "{\"target\":\"%s\",\"mix\":\"%s\",\"connections\":%u,\"pipeline\":%u,\"batch\":%u,"
               "\"payload\":%u,\"seconds\":%.4f,\"messages\":%llu,\"messages_per_second\":%.1f,"
               "\"empty\":%llu",
               config->driver->scheme, loadgen_mix_names[config->mix], config->connections,
               config->pipeline, config->batch, config->payload_len,
               (double)report->elapsed_us / 1e6, (unsigned long long)report->completed,
               per_second(report->completed, report), (unsigned long long)report->empty);
    ops_put(&out, report);
    if (config->mix == LOADGEN_MIX_POLL) {
        buf_printf(&out, ",\"extra_wakeups\":%llu,\"waiting\":%lld,\"delivery\":{",
                   (unsigned long long)report->extra_wakeups, (long long)report->waiting);
        latency_put(&out, &report->delivery_us);
    }
    errors_put(&out, report);
    cpu_put(&out, "own_cpu_us", us_per_message((int64_t)report->own_cpu_ns, report));
    cpu_put(&out, "server_cpu_us", us_per_message(report->server_cpu_ns, report));
    printf("%s}\n", buf_cstr(&out));
    buf_fini(&out);
}

void bench_progress_show(void *context, const struct loadgen_report *so_far, bool warmup,
                         uint64_t elapsed_us)
{
    struct bench_progress *progress = context;
    uint64_t before = progress->completed <= so_far->completed ? progress->completed : 0;
    fprintf(stderr, "\r\033[K%5.0f s  %llu messages, %llu in the last second%s%s",
            (double)elapsed_us / 1e6, (unsigned long long)so_far->completed,
            (unsigned long long)(so_far->completed - before), warmup ? " (warmup)" : "",
            bench_report_refused(so_far) > 0 ? ", with errors" : "");
    fflush(stderr);
    progress->completed = so_far->completed;
    progress->shown = true;
}

void bench_progress_clear(const struct bench_progress *progress)
{
    if (progress->shown)
        fprintf(stderr, "\r\033[K");
}
