/* What only makes sense when all settings are there: where to listen, behind which lock, and within
 * which ranges. */
#include "triaged/settings_impl.h"

#include "api/guard.h"
#include "base/limits.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_numeric(const char *address)
{
    char bare[128], parsed[sizeof(struct in6_addr)];
    snprintf(bare, sizeof(bare), "%.*s", (int)strcspn(address, "%"), address);
    return inet_pton(AF_INET, address, parsed) == 1 || inet_pton(AF_INET6, bare, parsed) == 1;
}

/* An address that is not one stays empty. */
static void endpoint_parse(struct settings *s, const char *text, struct settings_endpoint *e)
{
    char where[SETTINGS_PLACE_MAX];
    const char *colon = strrchr(text, ':');
    char *end = NULL;
    long port = colon ? strtol(colon + 1, &end, 10) : -1;
    size_t len = colon ? (size_t)(colon - text) : 0;
    const char *from = text;
    if (len > 2 && from[0] == '[' && from[len - 1] == ']') {
        from++;
        len -= 2;
    }
    if (!colon || end == colon + 1 || *end || port < 0 || port > 65535 || len == 0 ||
        len >= sizeof(e->address)) {
        settings_complain(s, "%s%s takes ADDR:PORT, as in 127.0.0.1:7420, not \"%s\"",
                          settings_endpoint_place(s, e, where), e->key, text);
        return;
    }
    snprintf(e->address, sizeof(e->address), "%.*s", (int)len, from);
    e->port = (int)port;
    if (strcmp(e->address, "localhost") == 0) /* not looked up, but this one is no secret */
        snprintf(e->address, sizeof(e->address), "127.0.0.1");
    if (is_numeric(e->address))
        return;
    settings_complain(s, "%s%s takes an address in numbers, as in 127.0.0.1:7420, not \"%s\"",
                      settings_endpoint_place(s, e, where), e->key, text);
    *e->address = '\0';
}

static bool is_loopback(const char *address)
{
    struct in6_addr v6;
    if (inet_pton(AF_INET6, address, &v6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&v6);
    return strncmp(address, "127.", 4) == 0;
}

static void finish_endpoints(struct settings *s, const char *key, const struct settings_list *list)
{
    for (unsigned i = 0; i < list->count; i++) {
        struct settings_endpoint *e = &s->endpoints[s->endpoint_count++];
        e->key = key;
        e->origin = list->origins[i];
        e->tls = list == &s->listen_tls;
        e->is_unix = list == &s->listen_unix;
        if (e->is_unix)
            snprintf(e->address, sizeof(e->address), "%s", list->items[i]);
        else
            endpoint_parse(s, list->items[i], e);
        e->local = e->is_unix || is_loopback(e->address);
    }
}

/* The default address is for servers that were told no other. */
static void finish_listen(struct settings *s)
{
    bool told = s->listen_tls.count > 0 || s->listen_unix.count > 0 || getenv("LISTEN_FDS");
    if (s->listen.source == SOURCE_DEFAULTS && told)
        s->listen.count = 0;
    finish_endpoints(s, "listen", &s->listen);
    finish_endpoints(s, "listen_tls", &s->listen_tls);
    finish_endpoints(s, "listen_unix", &s->listen_unix);
}

/* A port that the network can reach, and no lock on it, has to be somebody's decision. A
 * certificate that clients must have is a lock. */
static void finish_lock(struct settings *s)
{
    for (unsigned i = 0; i < s->endpoint_count; i++) {
        const struct settings_endpoint *e = &s->endpoints[i];
        bool locked = *s->tokens_file || (e->tls && s->tls_client_required);
        if (s->migrate || e->local || locked || s->insecure || !*e->address)
            continue;
        char where[SETTINGS_PLACE_MAX];
        settings_complain(
            s,
            "%son %s other machines could do everything. Set tokens_file, so that they "
            "need a token, or insecure = on, if they may; or listen on 127.0.0.1. With listen_tls "
            "tls_client_required = on is a lock too",
            settings_endpoint_place(s, e, where), e->address);
        return;
    }
}

static void finish_durability(struct settings *s)
{
    char said[128];
    if (durability_parse(s->durability_text, &s->durability, &s->sync_interval_ms))
        return;
    snprintf(said, sizeof(said),
             "durability takes fsync, os or interval:MS (1 to 60000), not \"%s\"",
             s->durability_text);
    settings_complain_of(s, said);
}

static void finish_hosts(struct settings *s)
{
    struct guard guard;
    struct buf error = {0};
    if (guard_init(&guard, s->allowed_hosts, true, &error))
        guard_fini(&guard);
    else
        settings_complain_of(s, buf_cstr(&error));
    buf_fini(&error);
}

static void check_range(struct settings *s, const char *key, uint64_t value, uint64_t min,
                        uint64_t max)
{
    char said[128];
    if (value >= min && value <= max)
        return;
    snprintf(said, sizeof(said), "%s takes %" PRIu64 " to %" PRIu64 ", not %" PRIu64, key, min, max,
             value);
    settings_complain_of(s, said);
}

static void check_engine_range(struct settings *s, const struct engine_kind *kind,
                               const struct engine_setting *setting, size_t at)
{
    (void)kind;
    if (setting->type != ENGINE_TEXT && setting->type != ENGINE_LINES && setting->max > 0)
        check_range(s, setting->name, s->engine_values[at].number, setting->min, setting->max);
}

static void finish_ranges(struct settings *s)
{
    const struct {
        const char *key;
        uint64_t value, min, max;
    } ranges[] = {
        {"shards", s->shards, 1, 64},
        {"net_threads", s->net_threads, 0, 64},
        {"max_connections", s->max_connections, 1, UINT32_MAX},
        {"inbox_max", s->inbox_max, 1, UINT32_MAX},
        {"history_memory", s->history_memory, 0, 1ull << 40},
        {"buffers_limit", s->buffers_limit, HTTP_BUFFERS_MIN, 1ull << 50},
    };
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
        check_range(s, ranges[i].key, ranges[i].value, ranges[i].min, ranges[i].max);
    settings_each_engine(s, check_engine_range);
}

static void finish_tls(struct settings *s)
{
    const char *wrong = NULL;
    if (*s->tls_cert && !*s->tls_key)
        wrong = "tls_cert and tls_key go together, and tls_key is not set";
    else if (*s->tls_key && !*s->tls_cert)
        wrong = "tls_key and tls_cert go together, and tls_cert is not set";
    else if (s->listen_tls.count > 0 && !*s->tls_cert)
        wrong = "listen_tls takes tls_cert and tls_key";
    else if (*s->tls_client_ca && !*s->tls_cert)
        wrong = "tls_client_ca takes tls_cert and tls_key";
    else if (s->tls_client_required && !*s->tls_client_ca)
        wrong = "tls_client_required takes tls_client_ca";
    if (wrong)
        settings_complain_of(s, wrong);
}

void settings_finish(struct settings *s)
{
    finish_listen(s);
    finish_tls(s);
    finish_lock(s);
    finish_durability(s);
    finish_hosts(s);
    finish_ranges(s);
}
