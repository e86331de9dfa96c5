/* The server's settings: one table of key, default and meaning, filled from
 * triage.conf, then TRIAGE_KEY in the environment, then --key flags. */
#ifndef TRIAGE_SETTINGS_H
#define TRIAGE_SETTINGS_H

#include "base/buf.h"
#include "base/log.h"
#include "engine/engine.h"

#include <stdbool.h>
#include <stdint.h>

struct settings {
    bool migrate; /* the word before the flags: bring the engine's store up to date, and end */
    char config[512];
    char listen[128]; /* as given */
    char address[100];
    int port;
    char data[512];
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
    bool auto_create;
    char default_profile[16];
    uint32_t max_queues;
    uint32_t inbox_max;
    uint64_t memory_limit;
    uint64_t disk_reserve;
    uint32_t drain_seconds;
    char tokens_file[512];
    uint32_t rate_limit;
};

enum settings_outcome { SETTINGS_RUN, SETTINGS_EXIT_OK, SETTINGS_EXIT_USAGE };

/* Fills in everything. On a mistake says which line, variable or flag on standard error. */
enum settings_outcome settings_load(struct settings *s, int argc, char **argv);

#endif
