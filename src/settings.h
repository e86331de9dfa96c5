/* The server's settings: one table of key, default and meaning, filled from
 * triage.conf, then TRIAGE_KEY in the environment, then --key flags. */
#ifndef TRIAGE_SETTINGS_H
#define TRIAGE_SETTINGS_H

#include "base/buf.h"
#include "base/log.h"
#include "engine/engine.h"

#include <stdbool.h>
#include <stdint.h>

#define SETTINGS_LIST_MAX 16

#define SETTINGS_MAX       64  /* keys */
#define SETTINGS_PLACE_MAX 640 /* of a place's text */

/* Where a value came from. */
struct settings_origin {
    int source;    /* defaults, file, environment, flags */
    unsigned line; /* of the file */
};

/* A setting that may be given several times. A later source (file, environment, flags) takes the
 * place of an earlier one as a whole. */
struct settings_list {
    char items[SETTINGS_LIST_MAX][128];
    struct settings_origin origins[SETTINGS_LIST_MAX];
    unsigned count;
    int source;
};

/* Where to listen. */
struct settings_endpoint {
    const char *key; /* of the setting that says so */
    struct settings_origin origin;
    bool tls;
    bool is_unix;
    bool local;        /* only this machine can connect */
    char address[128]; /* in numbers; or a path */
    int port;
};

struct settings {
    struct settings_origin now; /* what is being read */
    struct settings_origin origins[SETTINGS_MAX];
    bool migrate;      /* the word before the flags: bring the engine's store up to date, and end */
    bool check;        /* --check: only say what is wrong */
    unsigned mistakes; /* that were named */
    char config[512];
    struct settings_list listen, listen_tls, listen_unix;
    struct settings_endpoint endpoints[3 * SETTINGS_LIST_MAX]; /* made of these three */
    unsigned endpoint_count;
    char tls_cert[512];
    char tls_key[512];
    char tls_client_ca[512];
    bool tls_client_required;
    char data[512];
    char backup_dir[512];
    char engine[32];
    char postgres[1024];
    char postgres_listen[1024];
    uint32_t postgres_timeout_seconds;
    char durability_text[32];
    enum durability durability;
    int64_t sync_interval_ms;
    enum log_level log_level;
    uint32_t shards;
    uint32_t net_threads;
    uint32_t max_connections;
    uint32_t max_connections_per_address;
    uint32_t max_waiting;
    uint64_t buffers_limit;
    bool auto_create;
    char default_profile[16];
    uint32_t max_queues;
    uint32_t inbox_max;
    uint64_t memory_limit;
    uint64_t disk_reserve;
    uint32_t drain_seconds;
    char tokens_file[512];
    char allowed_hosts[2048];
    bool insecure;
    uint32_t rate_limit;
    bool webhook_local;
    char webhook_cacert[512];
};

/* Whether a variable of the environment, without its value, is a setting. */
bool settings_is_variable(const char *name, size_t len);

enum settings_outcome { SETTINGS_RUN, SETTINGS_EXIT_OK, SETTINGS_EXIT_USAGE };

/* Fills in everything. Says of every mistake in which line, variable or flag it is, on standard
 * error; what is right is filled in also then. */
enum settings_outcome settings_load(struct settings *s, int argc, char **argv);

/* Where the setting came from that `sentence` begins with, as in "data: …", with a colon and a
 * space behind it: "triage.conf, line 3: ", "TRIAGE_DATA: ", "--data: "; empty for a default, and
 * when the sentence begins with no setting. */
const char *settings_place(const struct settings *s, const char *sentence,
                           char out[SETTINGS_PLACE_MAX]);
const char *settings_endpoint_place(const struct settings *s, const struct settings_endpoint *e,
                                    char out[SETTINGS_PLACE_MAX]);

struct engine_options settings_engine(const struct settings *s); /* borrows its texts */

#endif
