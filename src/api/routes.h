/* The table of routes: which path and method lead to which handler. Private to src/api. */
#ifndef TRIAGE_API_ROUTES_H
#define TRIAGE_API_ROUTES_H

#include "base/limits.h"
#include "net/server.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct call;

enum route_body { BODY_SMALL, BODY_MESSAGE, BODY_BATCH, BODY_IMPORT };

enum media { MEDIA_JSON, MEDIA_BYTES, MEDIA_NDJSON, MEDIA_OTHER };

enum route_flag {
    ROUTE_OPEN = 1 << 0,    /* no token needed, no rate limit */
    ROUTE_CHANGES = 1 << 1, /* not while draining, and not with HEAD */
    ROUTE_QUERY = 1 << 2,   /* the handler reads the query; otherwise there must be none */
    ROUTE_SERVER = 1 << 3,  /* concerns all queues: not for a token bound to some of them */
};

struct route {
    enum http_verb verb;
    const char *pattern; /* "{queue}", "{name}" and "{id}" stand for any one segment */
    void (*handle)(struct call *c);
    uint8_t roles; /* any of these; 0: any token */
    uint8_t flags;
    enum route_body body;
};

#define ROUTE_SEGMENTS_MAX 7

/* A route that was found, and the raw text of its parameters. */
struct route_match {
    const struct route *route; /* NULL: see `known` */
    bool known;                /* the path exists, with other methods … */
    char allow[48];            /* … which are these */
    struct http_slice queue;
    struct http_slice name;
    struct http_slice id;
};

void route_find(enum http_verb verb, const char *path, size_t len, struct route_match *match);

/* Finds the parameters alone, in a path for which this route was found before. */
void route_parameters(const struct route *route, const char *path, size_t len,
                      struct route_match *match);
size_t route_body_max(enum route_body body);
bool route_takes(enum route_body body, enum media media);
const char *route_advice(enum route_body body); /* a sentence: which types it takes */
const struct route *route_at(size_t i);         /* NULL past the end */

/* A message whose every character is escaped, or is base64, with its fields. */
#define MESSAGE_BODY_MAX (6 * (PAYLOAD_MAX + METADATA_MAX + DEDUP_KEY_MAX + LEVEL_NAME_MAX) + 4096)
#define SMALL_BODY_MAX   (256 * 1024)
#define BODY_TOKENS_MAX  16384

#endif
