/* Reads request heads and chunked bodies out of memory, strictly: whatever two
 * readers could understand in two ways is refused. No I/O and no state beyond
 * the structs below.
 *
 * A head is read in two steps: parse_find() says where it ends, as bytes come in,
 * and parse_head() reads it once it is whole. Functions return STATUS_OK,
 * STATUS_MALFORMED_REQUEST, STATUS_HEADERS_TOO_LARGE or STATUS_PAYLOAD_TOO_LARGE.
 * After a status other than OK `*why` is a constant sentence, the rest of the byte
 * stream has no meaning, and the connection has to end. */
#ifndef TRIAGE_NET_PARSE_H
#define TRIAGE_NET_PARSE_H

#include "base/limits.h"
#include "base/status.h"
#include "net/server.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct parse_field {
    struct http_slice name;
    struct http_slice value; /* without white space around it */
};

/* Slices borrow the bytes that were parsed. */
struct parse_head {
    enum http_verb verb;
    bool http10;
    bool keep_alive;
    bool chunked;
    bool expect_continue;
    uint64_t content_length; /* 0 when absent */
    struct http_slice path;  /* starts with '/' */
    struct http_slice query;

    struct http_slice host;
    struct http_slice length;
    struct http_slice coding;
    struct http_slice expect;
    struct http_slice connection; /* the last of them */
    struct http_slice content_type;
    struct http_slice authorization;
    struct http_slice origin;
    struct http_slice fetch_site;
    struct http_slice receipt;
    struct http_slice request_id;
    struct http_slice accept;
    struct http_slice traceparent;

    unsigned field_count;
    struct parse_field fields[HTTP_HEADERS_MAX];
};

/* Looks for the end of the head at the front of data[0, len). `*scanned` is 0 for a new request,
 * and is kept between calls as bytes are added. On STATUS_OK `*head_len` is the length of the head
 * with its empty line, or 0 when the end is not there yet. Refuses a line feed without its CR,
 * because readers do not agree where such a head ends; everything else is left to parse_head(). */
MUST_USE enum status parse_find(const char *data, size_t len, size_t head_max, size_t *scanned,
                                size_t *head_len, const char **why);

/* Reads a head that parse_find() has delimited. `fields_max` is at most HTTP_HEADERS_MAX. */
MUST_USE enum status parse_head(struct parse_head *head, const char *data, size_t head_len,
                                unsigned fields_max, const char **why);

/* A chunked body on its way in. All zero at the start. */
struct parse_chunks {
    int state; /* private to parse.c */
    unsigned digits;
    uint64_t size;  /* of the chunk under way, then what is left of it */
    size_t decoded; /* bytes of body so far */
    bool done;
};

/* Decodes data[0, len) in place: the `*made` bytes of the body end up at the front of `data`.
 * `*used` is len, or less when the body ended before that. Refuses chunk extensions, trailers, and
 * a chunk that takes the body past `body_max` as soon as its size is known. */
MUST_USE enum status parse_chunks(struct parse_chunks *chunks, char *data, size_t len,
                                  size_t body_max, size_t *used, size_t *made, const char **why);

/* Compares without regard to case; `name` is in lower case. */
bool parse_name_is(struct http_slice slice, const char *name);

#endif
