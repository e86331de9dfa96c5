/* The little of HTTP/1.1 that a load generator reads. */
#ifndef TRIAGE_LOADGEN_HTTP_H
#define TRIAGE_LOADGEN_HTTP_H

#include <stddef.h>

struct loadgen_answer;

struct loadgen_http_answer {
    int status;
    const char *body; /* borrowed */
    size_t body_len;
};

/* Bytes of the whole answer at the front of data; LOADGEN_MORE, or LOADGEN_GARBAGE for what is
 * neither HTTP/1.1 nor framed by Content-Length. */
size_t loadgen_http_decode(const char *data, size_t len, struct loadgen_http_answer *answer);

/* loadgen_http_decode() for a caller that only needs the length. */
size_t loadgen_http_complete(const char *data, size_t len);

#endif
