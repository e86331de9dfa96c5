#include "loadgen/loadgen.h"

#include "base/clock.h"
#include "base/mem.h"
#include "loadgen/connect.h"
#include "loadgen/loop.h"
#include "loadgen/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

const char *const loadgen_op_names[LOADGEN_OP_COUNT] = {"enqueue", "claim", "ack", "poll"};
const char *const loadgen_mix_names[LOADGEN_MIX_COUNT] = {"enqueue", "claim", "mixed", "poll"};

#define VARIANTS_MAX       64
#define VARIANTS_BYTES_MAX (4 * 1024 * 1024)

char *loadgen_payloads(uint32_t count, uint32_t payload_len)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    size_t len = (size_t)count * payload_len;
    char *text = mem_alloc(len + 1);
    uint64_t x = 0x9e3779b97f4a7c15;
    for (size_t i = 0; i < len; i++) {
        x ^= x << 13; /* Marsaglia's xorshift64 */
        x ^= x >> 7;
        x ^= x << 17;
        text[i] = letters[x >> 58];
    }
    text[len] = '\0';
    return text;
}

uint32_t loadgen_variants(const struct loadgen_config *config, size_t request_len)
{
    size_t fit = VARIANTS_BYTES_MAX / (request_len + 1);
    size_t wanted = VARIANTS_MAX;
    uint32_t levels = config->priority_max - config->priority_min + 1;
    if (fit < wanted)
        wanted = fit > 0 ? fit : 1;
    if (wanted < levels && config->enqueue_batch == 1)
        wanted = levels; /* single messages take the levels in turn */
    return (uint32_t)wanted;
}

uint32_t loadgen_priority(const struct loadgen_config *config, uint64_t i)
{
    uint32_t levels = config->priority_max - config->priority_min + 1;
    return config->priority_min + (uint32_t)(i % levels);
}

void loadgen_queue_name(const struct loadgen_config *config, uint32_t queue, struct buf *out)
{
    buf_puts(out, config->queue);
    if (config->queue_count > 1)
        buf_printf(out, "-%u", queue);
}

bool loadgen_lease_set(struct loadgen_lease *lease, const char *id, size_t id_len,
                       const char *receipt, size_t receipt_len)
{
    if (id_len == 0 || id_len > sizeof(lease->id) || receipt_len > sizeof(lease->receipt))
        return false;
    lease->id_len = (uint8_t)id_len;
    lease->receipt_len = (uint8_t)receipt_len;
    memcpy(lease->id, id, id_len);
    if (receipt_len > 0)
        memcpy(lease->receipt, receipt, receipt_len);
    return true;
}

uint64_t loadgen_number(const char *text, const char *end)
{
    uint64_t value = 0;
    for (; text < end && *text >= '0' && *text <= '9'; text++)
        value = value * 10 + (uint64_t)(*text - '0');
    return value;
}

static bool target_set(struct loadgen_config *config, const char *host, size_t host_len,
                       const char *port, size_t port_len)
{
    if (host_len > 2 && host[0] == '[' && host[host_len - 1] == ']') {
        host++; /* the resolver wants an IPv6 address without brackets */
        host_len -= 2;
    }
    if (port_len == 0) {
        port = config->driver->port;
        port_len = strlen(port);
    }
    if (host_len == 0 || host_len >= sizeof(config->host) || port_len >= sizeof(config->port))
        return false;
    memcpy(config->host, host, host_len);
    config->host[host_len] = '\0';
    memcpy(config->port, port, port_len);
    config->port[port_len] = '\0';
    return true;
}

bool loadgen_target_parse(struct loadgen_config *config, const char *url,
                          char error[LOADGEN_ERROR_MAX])
{
    static const struct loadgen_driver *const drivers[] = {
        &loadgen_http,
        &loadgen_bare,
        &loadgen_redis,
        &loadgen_beanstalk,
    };
    const char *rest = strstr(url, "://");
    size_t scheme_len = rest ? (size_t)(rest - url) : 0;
    config->driver = NULL;
    for (size_t i = 0; i < sizeof(drivers) / sizeof(drivers[0]); i++) {
        if (strlen(drivers[i]->scheme) == scheme_len &&
            memcmp(drivers[i]->scheme, url, scheme_len) == 0)
            config->driver = drivers[i];
    }
    if (!config->driver) {
        snprintf(error, LOADGEN_ERROR_MAX,
                 "%s: a target starts with http://, http-bare://, redis:// or beanstalk://", url);
        return false;
    }
    const char *host = rest + 3;
    size_t len = strcspn(host, "/");
    size_t host_len = *host == '[' ? strcspn(host, "]/") + 1 : strcspn(host, ":/");
    host_len = host_len < len ? host_len : len;
    const char *port = host + host_len + (host[host_len] == ':');
    config->path = host[len] ? host + len : "/";
    if (target_set(config, host, host_len, port, (size_t)(host + len - port)))
        return true;
    snprintf(error, LOADGEN_ERROR_MAX, "%s: no host, or too long a name", url);
    return false;
}

static bool run_setup(struct loadgen_run *run)
{
    const struct loadgen_config *config = run->config;
    struct loadgen_report *report = run->report;
    uint32_t files = config->connections + 64;
    if (!loadgen_files_reserve(files)) {
        snprintf(report->error, sizeof(report->error),
                 "%u connections need more open files than `ulimit -Hn` allows",
                 config->connections);
        return false;
    }
    if (!config->driver->setup)
        return true;
    int fd = loadgen_connect(config, report->error, sizeof(report->error));
    if (fd < 0)
        return false;
    bool ready = config->driver->setup(run->state, fd, report);
    close(fd);
    return ready;
}

bool loadgen_run(const struct loadgen_config *config, loadgen_progress_fn *progress, void *context,
                 struct loadgen_report *report)
{
    memset(report, 0, sizeof(*report));
    struct loadgen_run run = {
        .config = config,
        .report = report,
        .progress = progress,
        .progress_context = context,
        .state = config->driver->open(config),
    };
    bool poll = config->mix == LOADGEN_MIX_POLL;
    bool done = run_setup(&run) && (poll ? loadgen_poll_run(&run) : loadgen_mix_run(&run));
    config->driver->close(run.state);
    return done;
}
