/* The server's settings: one table of key, default and meaning, filled from
 * triage.conf, then TRIAGE_KEY in the environment, then --key flags. */
#ifndef TRIAGE_TRIAGED_SETTINGS_H
#define TRIAGE_TRIAGED_SETTINGS_H

#include "base/buf.h"
#include "base/log.h"
#include "engine/engine.h"

#include <stdbool.h>
#include <stdint.h>

#define SETTINGS_LIST_MAX 16

#define SETTINGS_MAX        64   /* keys in all */
#define SETTINGS_ENGINE_MAX 24   /* keys that engines declare */
#define SETTINGS_TEXT_MAX   4096 /* bytes of a text that an engine's setting takes, with its NUL */
#define SETTINGS_PLACE_MAX  640  /* bytes of the text of settings_place() */

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
    char engine[32];
    /* What engines declare (struct engine_setting), one kind after the other. */
    struct engine_value engine_values[SETTINGS_ENGINE_MAX];
    char engine_texts[SETTINGS_ENGINE_MAX][SETTINGS_TEXT_MAX];
    char durability_text[32];
    enum durability durability;
    int64_t sync_interval_ms;
    enum log_level log_level;
    bool trace_engine;
    uint32_t shards;
    uint32_t net_threads;
    uint32_t max_connections;
    uint32_t max_connections_per_address;
    uint32_t max_waiting;
    uint64_t buffers_limit;
    bool auto_create;
    char default_profile[16];
    uint32_t max_queues;
    uint32_t metrics_queues;
    uint32_t inbox_max;
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

/* --complete=WORD, --help=man and --help=conf: what a shell may complete, and the pages triaged(8)
 * and triage.conf(5), all from the table of the settings. False when argv asks for something else.
 */
bool settings_described(int argc, char **argv);

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

struct engine_options settings_engine(const struct settings *s); /* borrows its values */
const struct engine_kind *settings_kind(const struct settings *s);

/* Where the engine's data is, as a setting of its own says; or "". */
const char *settings_engine_place(const struct settings *s);

/* A setting that was given for another engine than the one that is to run: somebody forgot
 * something. NULL: there is none. */
const struct engine_setting *settings_unused(const struct settings *s,
                                             const struct engine_kind **meant);

#endif
