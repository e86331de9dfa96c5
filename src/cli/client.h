/* One HTTP call to the server at a time: build the address and the body, send,
 * look at the answer. A client can be used again; its connection stays open.
 *
 *     client_begin(&c, cli);
 *     client_path(&c, "/v1/queues/%s/stats", queue);
 *     int status = client_run(&c, "GET", NULL);
 *
 * client_run() waits and complains by itself. The runner, which has many calls
 * under way, uses client_arm() and client_send(), and client_finish() when curl says that it is
 * over. */
#ifndef TRIAGE_CLI_CLIENT_H
#define TRIAGE_CLI_CLIENT_H

#include "base/buf.h"
#include "base/json.h"
#include "term/cli.h"

#include <curl/curl.h>

struct client {
    CURL *easy;
    struct curl_slist *headers;
    char curl_error[CURL_ERROR_SIZE];
    struct buf url;
    struct buf body;    /* what is sent; the caller fills it */
    long wait_seconds;  /* how long the server was asked to wait: so long it may stay silent */
    int64_t limit_ms;   /* how long the whole call may take; 0: no limit but that of silence */
    CURLM *multi;       /* where it is under way; NULL when it is not, or is performed alone */
    const char *server; /* borrowed, for complaints */
    bool has_options;   /* its fields come from options: complaints name those */
    const char *priority_word; /* what complaints call the field /priority, when it is no option */
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

void client_init(struct client *c);
void client_fini(struct client *c);

/* Forgets the last request and its answer. */
void client_begin(struct client *c, const struct cli *cli);

/* Appends to the address; every %s is percent-encoded, and no other conversion is known. */
void client_path(struct client *c, const char *fmt, ...);
void client_query(struct client *c, const char *name, const char *value);
void client_header(struct client *c, const char *name, const char *value);

/* Ready to be performed. `type` is the body's media type, NULL when there is no body. */
void client_arm(struct client *c, const char *method, const char *type);
void client_send(struct client *c, CURLM *multi); /* sets it under way; it may not be so already */
void client_finish(struct client *c, CURLcode result);

/* Hangs up without an answer; fine when nothing is under way. */
void client_abandon(struct client *c);

/* Sends and waits. CLI_DONE for 2xx; else complains and returns the exit status. */
int client_run(struct client *c, const char *method, const char *type);
void client_try(struct client *c, const char *method, const char *type); /* the same, silently */

bool client_succeeded(const struct client *c); /* 2xx */
bool client_is(const struct client *c, const char *problem_name);
void client_explain(const struct client *c, struct buf *out); /* what a failed call failed of */
int client_complain(const struct client *c); /* of a failed call; returns the exit status */

#endif
