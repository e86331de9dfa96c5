/* The little of HTTP/1.1 that a load generator reads. */
#ifndef TRIAGE_CLI_LOADGEN_HTTP_H
#define TRIAGE_CLI_LOADGEN_HTTP_H

#include <stddef.h>

struct http_answer {
    int status;
    const char *body; /* borrowed */
    size_t body_len;
};

/* Bytes of the whole answer at the front of data; LOADGEN_MORE, or LOADGEN_GARBAGE for what is
 * neither HTTP/1.1 nor framed by Content-Length. */
size_t http_answer_decode(const char *data, size_t len, struct http_answer *answer);

#endif
