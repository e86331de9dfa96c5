/* Who may do what: bearer tokens from a file. Only digests of tokens are kept, in
 * the file and in memory, and neither is ever logged. Read once at start and then
 * constant, so that every thread may look.
 *
 * A line of the file:  NAME SHA256HEX ROLE[,ROLE…] [QUEUE_PREFIX]
 * where SHA256HEX is what `printf %s "$TOKEN" | sha256sum` prints. Empty lines and lines that start
 * with '#' are skipped. */
#ifndef TRIAGE_API_AUTH_H
#define TRIAGE_API_AUTH_H

#include "base/buf.h"
#include "base/limits.h"
#include "base/status.h"
#include "net/server.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rate;

enum role {
    ROLE_ADMIN = 1 << 0, /* everything */
    ROLE_PRODUCE = 1 << 1,
    ROLE_CONSUME = 1 << 2,
    ROLE_READ = 1 << 3,
};

#define AUTH_NAME_MAX   64
#define AUTH_TOKENS_MAX 1024
#define AUTH_DIGEST     32

struct auth_token {
    char name[AUTH_NAME_MAX + 1];
    uint8_t digest[AUTH_DIGEST];
    uint8_t roles;
    char prefix[QUEUE_NAME_MAX + 1]; /* of the queues it is good for; empty: all */
    struct rate *rate;               /* owned; NULL: no limit */
};

struct auth_table {
    struct auth_token *tokens;
    size_t count;
};

/* `per_second` 0 sets no limit per token. On failure nothing is kept and `error` has a sentence
 * with the line's number. */
MUST_USE bool auth_load(const char *path, double per_second, struct auth_table *table,
                        struct buf *error);
MUST_USE bool auth_parse(const char *text, size_t len, double per_second, struct auth_table *table,
                         struct buf *error);
void auth_fini(struct auth_table *table);

/* The token of an Authorization header, or NULL. */
const struct auth_token *auth_find(const struct auth_table *table, struct http_slice header);

/* Whether it has one of `roles` (0: any will do), and may touch `queue` (NULL: none is meant). */
bool auth_allows(const struct auth_token *token, uint8_t roles, const char *queue);

/* Appends the sentence for a call that needs one of `roles` and is not allowed: what the token
 * lacks, or which queues it is for. */
void auth_explain(const struct auth_token *token, uint8_t roles, struct buf *out);

#endif
