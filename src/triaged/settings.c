#include "triaged/settings_impl.h"

#include "base/suggest.h"
#include "core/config.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void settings_complain(struct settings *s, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fputs("triaged: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    s->mistakes++;
}

/* TRIAGE_LOG_LEVEL, --log-level */
void settings_key_name(int source, const char *key, char out[80])
{
    bool flag = source == SOURCE_FLAGS;
    int len = snprintf(out, 80, "%s%s", flag ? "--" : "TRIAGE_", key);
    for (char *at = out + (flag ? 2 : 7); at < out + len && *at; at++)
        *at = flag ? (char)(*at == '_' ? '-' : *at) : (char)toupper((unsigned char)*at);
}

static const char *place(const struct settings *s, const char *key, struct settings_origin origin,
                         char out[SETTINGS_PLACE_MAX])
{
    char name[80];
    *out = '\0';
    if (origin.source == SOURCE_FILE)
        snprintf(out, SETTINGS_PLACE_MAX, "%s, line %u: ", s->config, origin.line);
    else if (origin.source != SOURCE_DEFAULTS) {
        settings_key_name(origin.source, key, name);
        snprintf(out, SETTINGS_PLACE_MAX, "%s: ", name);
    }
    return out;
}

static bool parse_text(const char *text, void *field, size_t size)
{
    if (strlen(text) >= size)
        return false;
    snprintf(field, size, "%s", text);
    return true;
}

/* Items with commas between them, which is how the environment gives several. */
static bool parse_list(const char *text, struct settings_list *list)
{
    for (const char *at = text; *at;) {
        size_t len = strcspn(at, ",");
        if (len == 0 || len >= sizeof(list->items[0]) || list->count == SETTINGS_LIST_MAX)
            return false;
        snprintf(list->items[list->count++], sizeof(list->items[0]), "%.*s", (int)len, at);
        at += len + (at[len] == ',');
    }
    return true;
}

/* Another line of a text. */
static bool parse_line(const char *text, void *field, size_t size)
{
    char *lines = field;
    size_t len = strlen(lines), more = strlen(text);
    if (len + more + 2 > size)
        return false;
    if (more == 0)
        return true; /* the default: there is none */
    snprintf(lines + len, size - len, "%s\n", text);
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
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    if (!isdigit((unsigned char)*text) || (*end && (!unit || end[1])) || size != sizeof(uint64_t) ||
        value > (UINT64_MAX >> 1) >> shift)
        return false;
    *(uint64_t *)field = value << shift;
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
    return config_profile(text, &config) && parse_text(text, field, size);
}

static bool parse_engine(const char *text, void *field, size_t size)
{
    return engine_kind_find(text) && parse_text(text, field, size);
}

/* A number of an engine, in a wider field. */
static bool parse_engine_number(const char *text, void *field, size_t size)
{
    uint32_t value;
    if (size != sizeof(uint64_t) || !parse_number(text, &value, sizeof(value)))
        return false;
    *(uint64_t *)field = value;
    return true;
}

#define FIELD(name) offsetof(struct settings, name), sizeof(((struct settings *)0)->name)

/* The server's own settings. Those that the engines declare are put behind `engine`. */
static const struct setting server_settings[] = {
    {"listen", NULL, "127.0.0.1:7420", NULL, FIELD(listen), "ADDR:PORT",
     "address in numbers or localhost, and port for HTTP; port 0 takes a free one; may be "
     "repeated"},
    {"listen_unix", NULL, "", NULL, FIELD(listen_unix), "PATH",
     "socket in the file system for HTTP, for the server's user and group; may be repeated"},
    {"listen_tls", NULL, "", NULL, FIELD(listen_tls), "ADDR:PORT",
     "the same for HTTPS; takes tls_cert and tls_key; may be repeated"},
    {"tls_cert", NULL, "", parse_text, FIELD(tls_cert), "FILE",
     "certificate of the server and those between it and the root, as PEM"},
    {"tls_key", NULL, "", parse_text, FIELD(tls_key), "FILE",
     "its key, as PEM without a passphrase"},
    {"tls_client_ca", NULL, "", parse_text, FIELD(tls_client_ca), "FILE",
     "authorities of client certificates, as PEM; a certificate's name is a token's name"},
    {"tls_client_required", NULL, "off", parse_switch, FIELD(tls_client_required), "on|off",
     "whether a client without a certificate is refused"},
    {"engine", NULL, "local", parse_engine, FIELD(engine), NULL, "where messages live"},
    {"durability", NULL, "fsync", parse_text, FIELD(durability_text), "fsync|os|interval:MS",
     "when an answer may leave"},
    {"log_level", NULL, "info", parse_level, FIELD(log_level), "error|warn|info|debug",
     "how much goes to standard error"},
    {"trace_engine", NULL, "off", parse_switch, FIELD(trace_engine), "on|off",
     "whether every operation of the engine is logged, with what became of it; at log_level info"},
    {"shards", NULL, "1", parse_number, FIELD(shards), "NUMBER",
     "threads that own queues, 1 to 64"},
    {"net_threads", NULL, "0", parse_number, FIELD(net_threads), "NUMBER",
     "threads of their own for HTTP, up to 64; 0: the shards' threads do it"},
    {"max_connections", NULL, "16000", parse_number, FIELD(max_connections), "NUMBER",
     "connections at once; further ones get 503"},
    {"max_connections_per_address", NULL, "0", parse_number, FIELD(max_connections_per_address),
     "NUMBER", "connections from one address; 0: seven eighths of max_connections"},
    {"max_waiting", NULL, "0", parse_number, FIELD(max_waiting), "NUMBER",
     "claims that wait at once; further ones get 503; 0: as many as max_connections"},
    {"buffers_limit", NULL, "512M", parse_bytes, FIELD(buffers_limit), "BYTES[K|M|G|T]",
     "what clients may make the server hold in requests and answers under way, 128M at least"},
    {"auto_create", NULL, "on", parse_switch, FIELD(auto_create), "on|off",
     "whether a first enqueue creates its queue"},
    {"default_profile", NULL, "levels", parse_profile, FIELD(default_profile),
     "levels|tiers|environments|timeline", "profile of queues created without one"},
    {"max_queues", NULL, "10000", parse_number, FIELD(max_queues), "NUMBER",
     "queues at most; 0: no limit"},
    {"metrics_queues", NULL, "500", parse_number, FIELD(metrics_queues), "NUMBER",
     "queues that /metrics shows one by one, the others as one; 0: all of them"},
    {"inbox_max", NULL, "65536", parse_number, FIELD(inbox_max), "NUMBER",
     "requests under way in one shard before enqueues get 503 overloaded"},
    {"drain_seconds", NULL, "30", parse_number, FIELD(drain_seconds), "NUMBER",
     "how long SIGTERM waits for answers under way"},
    {"tokens_file", NULL, "", parse_text, FIELD(tokens_file), "FILE",
     "who may do what, by bearer token; empty: everybody everything"},
    {"insecure", NULL, "off", parse_switch, FIELD(insecure), "on|off",
     "whether other machines may do everything, where listen lets them in and no tokens_file is "
     "set"},
    {"allowed_hosts", NULL, "", parse_text, FIELD(allowed_hosts), "NAME[:PORT],...|*",
     "names that requests may call this server by, beside localhost; empty: on loopback no other, "
     "elsewhere any"},
    {"rate_limit", NULL, "0", parse_number, FIELD(rate_limit), "NUMBER",
     "requests a second before 429, for each token, or for all without one; 0: no limit"},
    {"webhook_local", NULL, "off", parse_switch, FIELD(webhook_local), "on|off",
     "whether webhooks may go to loopback and link-local addresses"},
    {"webhook_cacert", NULL, "", parse_text, FIELD(webhook_cacert), "FILE",
     "certificates that sign those of webhooks' receivers; empty: the system's"},
};

#define SERVER_COUNT (sizeof(server_settings) / sizeof(server_settings[0]))

/* All of them, in the order of --help. Made once. */
static struct setting settings_table[SETTINGS_MAX];
static size_t setting_count;
static struct buf engine_names;

static const struct setting *find(const char *key)
{
    for (size_t i = 0; i < setting_count; i++) {
        if (strcmp(settings_table[i].key, key) == 0)
            return &settings_table[i];
    }
    return NULL;
}

static const struct setting *find_section(const char *section)
{
    for (size_t i = 0; *section && i < setting_count; i++) {
        if (settings_table[i].section && strcmp(settings_table[i].section, section) == 0)
            return &settings_table[i];
    }
    return NULL;
}

const char *settings_place(const struct settings *s, const char *sentence,
                           char out[SETTINGS_PLACE_MAX])
{
    char key[64];
    snprintf(key, sizeof(key), "%.*s", (int)strspn(sentence, "abcdefghijklmnopqrstuvwxyz_"),
             sentence);
    const struct setting *found = find(key);
    struct settings_origin none = {0};
    return place(s, key, found ? s->origins[found - settings_table] : none, out);
}

const char *settings_endpoint_place(const struct settings *s, const struct settings_endpoint *e,
                                    char out[SETTINGS_PLACE_MAX])
{
    return place(s, e->key, e->origin, out);
}

/* The place of an engine's setting among all that engines declare. */
void settings_each_engine(struct settings *s, settings_each_fn *each)
{
    size_t at = 0;
    const struct engine_kind *kind;
    for (size_t k = 0; (kind = engine_kind_at(k)); k++) {
        for (uint32_t i = 0; i < kind->setting_count; i++)
            each(s, kind, &kind->settings[i], at++);
    }
}

static void table_add(struct setting setting)
{
    assert(setting_count < SETTINGS_MAX);
    assert(!find(setting.key));
    settings_table[setting_count++] = setting;
}

static void table_add_engine(struct settings *s, const struct engine_kind *kind,
                             const struct engine_setting *e, size_t at)
{
    bool lines = e->type == ENGINE_LINES, is_text = lines || e->type == ENGINE_TEXT;
    (void)s, (void)kind;
    assert(at < SETTINGS_ENGINE_MAX);
    assert(!is_text || e->max < SETTINGS_TEXT_MAX);
    table_add((struct setting){
        .key = e->name,
        .section = e->section,
        .value = e->value,
        .parse = lines                      ? parse_line
                 : is_text                  ? parse_text
                 : e->type == ENGINE_NUMBER ? parse_engine_number
                                            : parse_bytes,
        .offset = is_text ? offsetof(struct settings, engine_texts) + at * SETTINGS_TEXT_MAX
                          : offsetof(struct settings, engine_values) +
                                at * sizeof(struct engine_value) +
                                offsetof(struct engine_value, number),
        .size = is_text ? e->max + 1 : sizeof(uint64_t),
        .takes = e->takes,
        .meaning = e->help,
    });
}

static void make_table(void)
{
    if (setting_count > 0)
        return;
    engine_kind_names(&engine_names, "|");
    for (size_t i = 0; i < SERVER_COUNT; i++) {
        struct setting setting = server_settings[i];
        bool is_engine = strcmp(setting.key, "engine") == 0;
        if (is_engine)
            setting.takes = buf_cstr(&engine_names);
        table_add(setting);
        if (is_engine)
            settings_each_engine(NULL, table_add_engine);
    }
}

static void name_value(struct settings *s, const struct engine_kind *kind,
                       const struct engine_setting *setting, size_t at)
{
    (void)kind;
    s->engine_values[at].name = setting->name;
    s->engine_values[at].text =
        setting->type == ENGINE_TEXT || setting->type == ENGINE_LINES ? s->engine_texts[at] : NULL;
}

/* A sentence that begins with the key of the setting. */
void settings_complain_of(struct settings *s, const char *sentence)
{
    char where[SETTINGS_PLACE_MAX];
    settings_complain(s, "%s%s", settings_place(s, sentence, where), sentence);
}

/* The first item from a later source drops all items of the sources before. */
static bool list_take(const struct settings *s, struct settings_list *list, const char *value)
{
    if (list->source != s->now.source)
        list->count = 0;
    list->source = s->now.source;
    unsigned before = list->count;
    bool ok = parse_list(value, list);
    for (unsigned i = before; i < list->count; i++)
        list->origins[i] = s->now;
    return ok;
}

/* Names the nearest as it is written here: in the file or as a flag. */
static void complain_unknown(struct settings *s, const char *key)
{
    static const char *const words[] = {"check", "config", "help", "version"};
    bool flag = s->now.source == SOURCE_FLAGS;
    char where[SETTINGS_PLACE_MAX], name[80];
    struct suggestion near;
    suggest_begin(&near, key, strlen(key));
    for (size_t i = 0; i < setting_count; i++)
        suggest_offer(&near, settings_table[i].key);
    for (size_t i = 0; flag && i < sizeof(words) / sizeof(words[0]); i++)
        suggest_offer(&near, words[i]);
    place(s, key, s->now, where);
    if (!near.best) {
        settings_complain(s, "%sthere is no setting \"%s\"; see triaged --help", where, key);
        return;
    }
    if (flag)
        settings_key_name(SOURCE_FLAGS, near.best, name);
    settings_complain(s, "%sthere is no setting \"%s\"; did you mean %s?", where, key,
                      flag ? name : near.best);
}

static void set(struct settings *s, const char *key, const char *value)
{
    const struct setting *found = find(key);
    char where[SETTINGS_PLACE_MAX];
    place(s, key, s->now, where);
    if (!found) {
        complain_unknown(s, key);
        return;
    }
    void *field = (char *)s + found->offset;
    struct settings_origin *origin = &s->origins[found - settings_table];
    if (found->parse == parse_line && origin->source != s->now.source)
        *(char *)field = '\0'; /* a later source takes the place of an earlier one */
    if (found->parse ? found->parse(value, field, found->size) : list_take(s, field, value))
        *origin = s->now;
    else
        settings_complain(s, "%s%s takes %s, not \"%s\"", where, key, found->takes, value);
}

/* The file */

struct file {
    struct settings *settings;
    FILE *stream;
    bool whole; /* the line that was read last, to its end: the next begins another */
};

#define complain_line(s, fmt, ...)                                                                 \
    settings_complain(s, "%s, line %u: " fmt, (s)->config, (s)->now.line, __VA_ARGS__)

/* A setting, a section, a comment, or what goes on from the line before. */
static bool line_fits(const char *line)
{
    return strchr(" \t\r\n;#[", *line) || strpbrk(line, "=:");
}

/* As fgets; counts, because inih does not tell in which line it is. */
static char *read_line(char *line, int size, void *stream)
{
    struct file *f = stream;
    if (!fgets(line, size, f->stream))
        return NULL;
    bool begins = f->whole;
    f->whole = strchr(line, '\n') != NULL;
    f->settings->now.line += begins;
    if (begins && !line_fits(line))
        complain_line(f->settings, "expected KEY = VALUE, not \"%.*s\"", (int)strcspn(line, "\r\n"),
                      line);
    return line;
}

static int on_ini(void *user, const char *section, const char *key, const char *value)
{
    struct file *f = user;
    const struct setting *lines = find_section(section);
    char line[SETTINGS_TEXT_MAX];
    if (lines) {
        snprintf(line, sizeof(line), "%s=%s", key, value);
        set(f->settings, lines->key, line);
    } else if (strcmp(section, "server") == 0)
        set(f->settings, key, value);
    else if (*section)
        complain_line(f->settings, "there is no section [%s]; settings stand in [server]", section);
    else
        complain_line(f->settings, "\"%s\" stands before the line [server]", key);
    return 1;
}

static void load_file(struct settings *s)
{
    struct file f = {.settings = s, .stream = fopen(s->config, "re"), .whole = true};
    unsigned before = s->mistakes;
    if (!f.stream) {
        settings_complain(s, "cannot read %s: %s", s->config, strerror(errno));
        return;
    }
    int line = ini_parse_stream(read_line, &f, on_ini, &f);
    if (line != 0 && s->mistakes == before)
        settings_complain(s, "%s, line %d: this is no line of an INI file", s->config, line);
    if (ferror(f.stream))
        settings_complain(s, "cannot read %s: %s", s->config, strerror(errno));
    fclose(f.stream);
}

bool settings_is_variable(const char *variable, size_t len)
{
    for (size_t i = 0; i < setting_count; i++) {
        char name[80];
        settings_key_name(SOURCE_ENVIRONMENT, settings_table[i].key, name);
        if (strlen(name) == len && memcmp(name, variable, len) == 0)
            return true;
    }
    return false;
}

static void load_environment(struct settings *s)
{
    for (size_t i = 0; i < setting_count; i++) {
        char name[80];
        settings_key_name(SOURCE_ENVIRONMENT, settings_table[i].key, name);
        const char *value = getenv(name);
        if (value)
            set(s, settings_table[i].key, value);
    }
}

/* Flags: --log-level debug, --log-level=debug; a switch may stand alone: --trace-engine */

const struct setting *settings_at(size_t i)
{
    make_table();
    return i < setting_count ? &settings_table[i] : NULL;
}

/* The setting that a flag names; false when it is none. */
static bool flag_key(struct settings *s, const char *flag, size_t len, char key[64])
{
    if (strncmp(flag, "--", 2) != 0 || len < 3 || len - 2 >= 64) {
        settings_complain(s, "\"%s\" is not a flag; see triaged --help", flag);
        return false;
    }
    for (size_t k = 2; k < len; k++)
        key[k - 2] = flag[k] == '-' ? '_' : flag[k];
    key[len - 2] = '\0';
    return true;
}

static bool is_word(const char *flag)
{
    return !strcmp(flag, "--help") || !strcmp(flag, "-h") || !strcmp(flag, "--version") ||
           !strcmp(flag, "--check");
}

/* What has no value. */
static enum settings_outcome take_word(struct settings *s, const char *flag)
{
    if (!strcmp(flag, "--check")) {
        s->check = true;
        return SETTINGS_RUN;
    }
    if (!strcmp(flag, "--version"))
        printf("triaged %s\n", TRIAGE_VERSION);
    else
        settings_help();
    return SETTINGS_EXIT_OK;
}

static void take_flag(struct settings *s, const char *flag, const char *value, bool first)
{
    const char *equals = strchr(flag, '=');
    size_t len = equals ? (size_t)(equals - flag) : strlen(flag);
    bool is_config = len == 8 && strncmp(flag, "--config", len) == 0;
    char key[64];
    if (is_config && first && value && !parse_text(value, s->config, sizeof(s->config)))
        settings_complain(s, "--config takes a path of less than %zu bytes", sizeof(s->config));
    if (first || !flag_key(s, flag, len, key))
        return;
    const struct setting *found = find(key);
    if (!value && found && found->parse == parse_switch)
        value = "on";
    if (!value && (is_config || found))
        settings_complain(s, "%s needs a value; see triaged --help", flag);
    else if (!is_config)
        set(s, key, value);
}

/* Goes through the flags. The first pass looks for words and --config alone, because the file is
 * read before the flags count. */
static enum settings_outcome walk_flags(struct settings *s, int argc, char **argv, bool first)
{
    enum settings_outcome outcome = SETTINGS_RUN;
    s->migrate = argc > 1 && strcmp(argv[1], "migrate") == 0;
    for (int i = s->migrate ? 2 : 1; i < argc && outcome == SETTINGS_RUN; i++) {
        const char *flag = argv[i], *equals = strchr(flag, '=');
        bool has_value = !equals && strncmp(flag, "--", 2) == 0 && i + 1 < argc &&
                         strncmp(argv[i + 1], "--", 2) != 0;
        if (is_word(flag))
            outcome = take_word(s, flag);
        else
            take_flag(s, flag, equals ? equals + 1 : has_value ? argv[++i] : NULL, first);
    }
    return outcome;
}

enum settings_outcome settings_load(struct settings *s, int argc, char **argv)
{
    *s = (struct settings){0};
    make_table();
    settings_each_engine(s, name_value);
    for (size_t i = 0; i < setting_count; i++)
        set(s, settings_table[i].key, settings_table[i].value);
    if (s->mistakes > 0)
        abort();
    enum settings_outcome outcome = walk_flags(s, argc, argv, true);
    if (outcome != SETTINGS_RUN)
        return outcome;
    s->now = (struct settings_origin){.source = SOURCE_FILE};
    if (*s->config)
        load_file(s);
    s->now = (struct settings_origin){.source = SOURCE_ENVIRONMENT};
    load_environment(s);
    s->now = (struct settings_origin){.source = SOURCE_FLAGS};
    walk_flags(s, argc, argv, false);
    settings_finish(s);
    return s->mistakes > 0 ? SETTINGS_EXIT_USAGE : SETTINGS_RUN;
}

static uint32_t engine_setting_count(void)
{
    uint32_t count = 0;
    const struct engine_kind *kind;
    for (size_t k = 0; (kind = engine_kind_at(k)); k++)
        count += kind->setting_count;
    return count;
}

struct engine_options settings_engine(const struct settings *s)
{
    return (struct engine_options){
        .kind = s->engine,
        .values = s->engine_values,
        .value_count = engine_setting_count(),
        .durability = s->durability,
        .sync_interval_ms = s->sync_interval_ms,
        .trace = s->trace_engine,
    };
}

const struct engine_kind *settings_kind(const struct settings *s)
{
    return engine_kind_find(s->engine);
}

const char *settings_engine_place(const struct settings *s)
{
    struct engine_options options = settings_engine(s);
    const struct engine_kind *kind = settings_kind(s);
    return kind->place ? engine_option_text(&options, kind->place) : "";
}

const struct engine_setting *settings_unused(const struct settings *s,
                                             const struct engine_kind **meant)
{
    struct engine_options options = settings_engine(s);
    for (size_t k = 0; (*meant = engine_kind_at(k)); k++) {
        for (uint32_t i = 0; *meant != settings_kind(s) && i < (*meant)->setting_count; i++) {
            const struct engine_setting *setting = &(*meant)->settings[i];
            if (setting->unused && *engine_option_text(&options, setting->name))
                return setting;
        }
    }
    return NULL;
}
