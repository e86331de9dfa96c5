/* One HTTP call to the server at a time: build the address and the body, send,
 * look at the answer. A call can be reused; its connection stays open.
 *
 *     call_begin(&c, cli);
 *     call_path(&c, "/v1/queues/%s/stats", queue);
 *     int status = call_run(&c, "GET", NULL);
 *
 * call_run() waits and complains by itself. The worker, which has many calls
 * under way, uses call_arm() and call_send(), and call_finish() when curl says that it is over. */
#ifndef TRIAGE_CLI_CLIENT_H
#define TRIAGE_CLI_CLIENT_H

#include "base/buf.h"
#include "base/json.h"
#include "cli/cli.h"

#include <curl/curl.h>

struct call {
    CURL *easy;
    struct curl_slist *headers;
    char curl_error[CURL_ERROR_SIZE];
    struct buf url;
    struct buf body;    /* what is sent; the caller fills it */
    long wait_seconds;  /* how long the server may stay silent by agreement */
    int64_t limit_ms;   /* how long the whole call may take; 0: no limit but that of silence */
    CURLM *multi;       /* where it is under way; NULL when it is not, or is performed alone */
    const char *server; /* borrowed, for complaints */
    bool has_options;   /* its fields come from options: complaints name those */
    const char *priority_word; /* what its /priority is called, when that is no option */
    size_t base_len;           /* of the url: scheme and host, and a path before ours */

    /* The answer. */
    CURLcode result;
    long http; /* 0 when there was no answer */
    struct buf answer;
    struct buf cursor; /* X-Next-Cursor, empty when there is no more */
    struct json_doc doc;
    bool is_json; /* doc holds the answer */
};

#define TYPE_JSON   "application/json"
#define TYPE_NDJSON "application/x-ndjson"

void call_init(struct call *c);
void call_fini(struct call *c);
void call_begin(struct call *c, const struct cli *cli); /* forgets the last request and answer */

/* Appends to the address; every %s is percent-encoded, and no other conversion is known. */
void call_path(struct call *c, const char *fmt, ...);
void call_query(struct call *c, const char *name, const char *value);
void call_header(struct call *c, const char *name, const char *value);

/* Ready to be performed. `type` is the body's media type, NULL when there is no body. */
void call_arm(struct call *c, const char *method, const char *type);
void call_send(struct call *c, CURLM *multi); /* sets it under way; it may not be so already */
void call_abandon(struct call *c); /* hangs up without an answer; fine when it is not under way */
void call_finish(struct call *c, CURLcode result);

/* Sends and waits. CLI_DONE for 2xx; else complains and returns the exit status. */
int call_run(struct call *c, const char *method, const char *type);
void call_try(struct call *c, const char *method, const char *type); /* the same, silently */

bool call_succeeded(const struct call *c); /* 2xx */
bool call_is(const struct call *c, const char *problem_name);
int call_complain(const struct call *c); /* of a failed call; returns the exit status */

/* The problem document at a token, as in one result of a batch, in the words of the command line.
 */
void problem_print(const struct json_doc *doc, uint32_t at, long http, struct buf *out);

#endif
