#include "settings.h"
#include "core/levels.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <ini.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef bool parse_fn(const char *text, void *field, size_t size);

static bool parse_text(const char *text, void *field, size_t size)
{
    if (strlen(text) >= size)
        return false;
    snprintf(field, size, "%s", text);
    return true;
}

static bool parse_number(const char *text, void *field, size_t size)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (!isdigit((unsigned char)*text) || *end || value > UINT32_MAX || size != sizeof(uint32_t))
        return false;
    *(uint32_t *)field = (uint32_t)value;
    return true;
}

static bool parse_bytes(const char *text, void *field, size_t size)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    static const char units[] = "KMGT";
    const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (!isdigit((unsigned char)*text) || (*end && (!unit || end[1])) || size != sizeof(uint64_t) ||
        value > UINT64_MAX >> 40)
        return false;
    *(uint64_t *)field = value << (unit ? 10 * (unit - units + 1) : 0);
    return true;
}

static bool parse_switch(const char *text, void *field, size_t size)
{
    bool on = !strcmp(text, "on") || !strcmp(text, "true") || !strcmp(text, "yes");
    bool off = !strcmp(text, "off") || !strcmp(text, "false") || !strcmp(text, "no");
    if (size != sizeof(bool) || on == off)
        return false;
    *(bool *)field = on;
    return true;
}

static bool parse_level(const char *text, void *field, size_t size)
{
    return size == sizeof(enum log_level) && log_level_parse(text, field);
}

static bool parse_profile(const char *text, void *field, size_t size)
{
    struct queue_config config;
    return levels_profile(text, &config) && parse_text(text, field, size);
}

struct setting {
    const char *key;
    const char *value; /* the default */
    parse_fn *parse;
    size_t offset, size;
    const char *takes;
    const char *meaning;
};

#define FIELD(name) offsetof(struct settings, name), sizeof(((struct settings *)0)->name)

static const struct setting settings_table[] = {
    {"listen", "127.0.0.1:7420", parse_text, FIELD(listen), "ADDR:PORT",
     "address in numbers and port for HTTP; port 0 takes a free one"},
    {"data", "./data", parse_text, FIELD(data), "DIR",
     "directory of the local engine; created when missing"},
    {"engine", "local", parse_text, FIELD(engine), "memory|local|postgres", "where messages live"},
    {"postgres", "", parse_text, FIELD(postgres), "CONNINFO",
     "database of the postgres engine, as libpq takes it: \"host=db1,db2 dbname=triage\""},
    {"postgres_listen", "", parse_text, FIELD(postgres_listen), "CONNINFO",
     "the same without a pooler, for notifications alone; empty: as postgres"},
    {"postgres_timeout_seconds", "15", parse_number, FIELD(postgres_timeout_seconds), "NUMBER",
     "how long the database may take for a group of requests before they get 503"},
    {"durability", "fsync", parse_text, FIELD(durability_text), "fsync|os|interval:MS",
     "when an answer may leave"},
    {"log_level", "info", parse_level, FIELD(log_level), "error|warn|info|debug",
     "how much goes to standard error"},
    {"shards", "1", parse_number, FIELD(shards), "NUMBER", "threads that own queues, 1 to 64"},
    {"net_threads", "0", parse_number, FIELD(net_threads), "NUMBER",
     "threads of their own for HTTP, up to 64; 0: the shards' threads do it"},
    {"max_connections", "16000", parse_number, FIELD(max_connections), "NUMBER",
     "connections at once; further ones get 503"},
    {"auto_create", "on", parse_switch, FIELD(auto_create), "on|off",
     "whether a first enqueue creates its queue"},
    {"default_profile", "levels", parse_profile, FIELD(default_profile),
     "levels|tiers|environments|timeline", "profile of queues created without one"},
    {"max_queues", "10000", parse_number, FIELD(max_queues), "NUMBER",
     "queues at most; 0: no limit"},
    {"inbox_max", "65536", parse_number, FIELD(inbox_max), "NUMBER",
     "requests under way in one shard before enqueues get 503 overloaded"},
    {"memory_limit", "128M", parse_bytes, FIELD(memory_limit), "BYTES[K|M|G|T]",
     "messages kept in memory; what is behind stays on disk"},
    {"disk_reserve", "0", parse_bytes, FIELD(disk_reserve), "BYTES[K|M|G|T]",
     "enqueues get 507 below this much free space; 0: a third of a small disk, 1.5G of a large "
     "one"},
    {"drain_seconds", "30", parse_number, FIELD(drain_seconds), "NUMBER",
     "how long SIGTERM waits for answers under way"},
    {"tokens_file", "", parse_text, FIELD(tokens_file), "FILE",
     "who may do what, by bearer token; empty: everybody everything"},
    {"rate_limit", "0", parse_number, FIELD(rate_limit), "NUMBER",
     "requests a second before 429, for each token, or for all without one; 0: no limit"},
};

#define SETTING_COUNT (sizeof(settings_table) / sizeof(settings_table[0]))

static const struct setting *find(const char *key)
{
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        if (strcmp(settings_table[i].key, key) == 0)
            return &settings_table[i];
    }
    return NULL;
}

static bool set(struct settings *s, const char *key, const char *value, const char *where)
{
    const struct setting *found = find(key);
    if (!found) {
        fprintf(stderr, "triaged: %s: there is no setting \"%s\"; see triaged --help\n", where,
                key);
        return false;
    }
    if (found->parse(value, (char *)s + found->offset, found->size))
        return true;
    fprintf(stderr, "triaged: %s: %s takes %s, not \"%s\"\n", where, key, found->takes, value);
    return false;
}

/* The file */

static int on_ini(void *user, const char *section, const char *key, const char *value)
{
    if (strcmp(section, "server") != 0) {
        if (*section)
            fprintf(stderr, "triaged: there is no section [%s]; settings stand in [server]\n",
                    section);
        else
            fprintf(stderr, "triaged: \"%s\" stands before the line [server]\n", key);
        return 0;
    }
    return set(user, key, value, "configuration file");
}

static bool load_file(struct settings *s)
{
    int line = ini_parse(s->config, on_ini, s);
    if (line < 0)
        fprintf(stderr, "triaged: cannot read %s\n", s->config);
    else if (line > 0)
        fprintf(stderr, "triaged: %s: the mistake is in line %d\n", s->config, line);
    return line == 0;
}

static bool load_environment(struct settings *s)
{
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        char name[64] = "TRIAGE_";
        for (size_t n = 7, k = 0; settings_table[i].key[k]; k++, n++)
            name[n] = (char)toupper((unsigned char)settings_table[i].key[k]);
        const char *value = getenv(name);
        if (value && !set(s, settings_table[i].key, value, name))
            return false;
    }
    return true;
}

/* Flags: --log-level debug, --log-level=debug */

static void help(void)
{
    printf("Usage: triaged [--config FILE] [--KEY VALUE]...\n\n"
           "The Triage server: a durable priority queue over HTTP.\n\n");
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        const struct setting *t = &settings_table[i];
        char flag[80] = "--";
        for (size_t n = 2, k = 0; t->key[k]; k++, n++)
            flag[n] = t->key[k] == '_' ? '-' : t->key[k];
        printf("  %s %s\n        %s (default: %s)\n", flag, t->takes, t->meaning,
               *t->value ? t->value : "none");
    }
    printf("  --config FILE\n        read these settings from an INI file, section [server]\n"
           "  --version, --help\n\n"
           "Each setting may also come from the environment: TRIAGE_LISTEN, TRIAGE_DATA, ...\n"
           "Flags override the environment, which overrides the file. SIGTERM drains and exits.\n\n"
           "Examples:\n"
           "  triaged --data /var/lib/triage\n"
           "  triaged --listen 127.0.0.1:0 --engine memory\n"
           "  triaged --config /etc/triage/triage.conf --durability os\n"
           "  triaged --engine postgres --postgres 'host=db1 dbname=triage'\n"
           "  triaged migrate --engine postgres --postgres 'host=db1 dbname=triage user=owner'\n");
}

static enum settings_outcome walk_flags(struct settings *s, int argc, char **argv, bool config_only)
{
    s->migrate = argc > 1 && strcmp(argv[1], "migrate") == 0;
    for (int i = s->migrate ? 2 : 1; i < argc; i++) {
        char key[64];
        const char *flag = argv[i], *equals = strchr(flag, '=');
        if (!strcmp(flag, "--help") || !strcmp(flag, "-h")) {
            help();
            return SETTINGS_EXIT_OK;
        }
        if (!strcmp(flag, "--version")) {
            printf("triaged %s\n", TRIAGE_VERSION);
            return SETTINGS_EXIT_OK;
        }
        size_t len = equals ? (size_t)(equals - flag) : strlen(flag);
        if (strncmp(flag, "--", 2) != 0 || len < 3 || len - 2 >= sizeof(key)) {
            fprintf(stderr, "triaged: \"%s\" is not a flag; see triaged --help\n", flag);
            return SETTINGS_EXIT_USAGE;
        }
        for (size_t k = 2; k < len; k++)
            key[k - 2] = flag[k] == '-' ? '_' : flag[k];
        key[len - 2] = '\0';
        const char *value = equals ? equals + 1 : i + 1 < argc ? argv[++i] : NULL;
        if (!value) {
            fprintf(stderr, "triaged: %s needs a value; see triaged --help\n", flag);
            return SETTINGS_EXIT_USAGE;
        }
        bool is_config = strcmp(key, "config") == 0;
        if (is_config && config_only && !parse_text(value, s->config, sizeof(s->config))) {
            fprintf(stderr, "triaged: --config takes a path of less than %zu bytes\n",
                    sizeof(s->config));
            return SETTINGS_EXIT_USAGE;
        }
        if (!is_config && !config_only && !set(s, key, value, flag))
            return SETTINGS_EXIT_USAGE;
    }
    return SETTINGS_RUN;
}

/* What only makes sense as a whole. */

static bool finish_listen(struct settings *s)
{
    const char *colon = strrchr(s->listen, ':');
    char *end = NULL;
    long port = colon ? strtol(colon + 1, &end, 10) : -1;
    size_t len = colon ? (size_t)(colon - s->listen) : 0;
    const char *from = s->listen;
    if (len > 2 && from[0] == '[' && from[len - 1] == ']') {
        from++;
        len -= 2;
    }
    if (!colon || end == colon + 1 || *end || port < 0 || port > 65535 || len == 0 ||
        len >= sizeof(s->address)) {
        fprintf(stderr, "triaged: listen takes ADDR:PORT, as in 127.0.0.1:7420, not \"%s\"\n",
                s->listen);
        return false;
    }
    memcpy(s->address, from, len);
    s->address[len] = '\0';
    s->port = (int)port;
    if (strcmp(s->address, "localhost") == 0) { /* not looked up, but this one is no secret */
        snprintf(s->address, sizeof(s->address), "127.0.0.1");
        return true;
    }
    char bare[sizeof(s->address)], parsed[sizeof(struct in6_addr)];
    snprintf(bare, sizeof(bare), "%.*s", (int)strcspn(s->address, "%"), s->address);
    if (inet_pton(AF_INET, s->address, parsed) == 1 || inet_pton(AF_INET6, bare, parsed) == 1)
        return true;
    fprintf(stderr,
            "triaged: listen takes an address in numbers, as in 127.0.0.1:7420, not \"%s\"\n",
            s->listen);
    return false;
}

static bool finish_durability(struct settings *s)
{
    if (!durability_parse(s->durability_text, &s->durability, &s->sync_interval_ms)) {
        fprintf(stderr,
                "triaged: durability takes fsync, os or interval:MS (1 to 60000), not "
                "\"%s\"\n",
                s->durability_text);
        return false;
    }
    return true;
}

static bool finish_ranges(const struct settings *s)
{
    const struct {
        const char *key;
        uint32_t value, min, max;
    } ranges[] = {
        {"shards", s->shards, 1, 64},
        {"postgres_timeout_seconds", s->postgres_timeout_seconds, 1, 600},
        {"net_threads", s->net_threads, 0, 64},
        {"max_connections", s->max_connections, 1, UINT32_MAX},
        {"inbox_max", s->inbox_max, 1, UINT32_MAX},
    };
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        if (ranges[i].value >= ranges[i].min && ranges[i].value <= ranges[i].max)
            continue;
        fprintf(stderr, "triaged: %s takes %u to %u, not %u\n", ranges[i].key, ranges[i].min,
                ranges[i].max, ranges[i].value);
        return false;
    }
    return true;
}

static bool finish(struct settings *s)
{
    return finish_listen(s) && finish_durability(s) && finish_ranges(s);
}

enum settings_outcome settings_load(struct settings *s, int argc, char **argv)
{
    *s = (struct settings){0};
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        if (!set(s, settings_table[i].key, settings_table[i].value, "defaults"))
            abort();
    }
    enum settings_outcome outcome = walk_flags(s, argc, argv, true);
    if (outcome != SETTINGS_RUN)
        return outcome;
    if (*s->config && !load_file(s))
        return SETTINGS_EXIT_USAGE;
    if (!load_environment(s))
        return SETTINGS_EXIT_USAGE;
    outcome = walk_flags(s, argc, argv, false);
    if (outcome != SETTINGS_RUN)
        return outcome;
    return finish(s) ? SETTINGS_RUN : SETTINGS_EXIT_USAGE;
}
