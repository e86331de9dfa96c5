/* Who may do what: bearer tokens from a file. Only digests of tokens are kept, in
 * the file and in memory, and neither is ever logged. A table is constant once it
 * was read, so that every thread may look; another reading makes another table.
 *
 * A line of the file:  NAME SHA256HEX ROLE[,ROLE…] [QUEUE_PREFIX]
 *
 * SHA256HEX is what `printf %s "$TOKEN" | sha256sum` prints. With - in its place there is no
 * secret: then only a client certificate of that NAME will do.
 *
 * QUEUE_PREFIX `mail` is good for the queue mail and for those below it, such as mail.in, mail_in
 * and mail-in, and not for mailbox. A prefix that ends in . _ or - is good for every name that
 * starts with it.
 *
 * Empty lines and lines that start with '#' are skipped. */
#ifndef TRIAGE_API_AUTH_H
#define TRIAGE_API_AUTH_H

#include "base/buf.h"
#include "base/limits.h"
#include "base/status.h"
#include "net/server.h"

#include <stdatomic.h>
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
    bool has_digest;
    uint8_t digest[AUTH_DIGEST];
    uint8_t roles;
    char prefix[QUEUE_NAME_MAX + 1]; /* of the queues it is good for, as above; empty: all */
    struct rate *rate;               /* owned; NULL: no limit */
};

struct auth_table {
    struct auth_token *tokens;
    size_t count;
};

/* `per_second` 0 sets no limit per token. On failure nothing is kept, and `error` has a line of
 * text for each mistake, with the number of the line in the file. */
MUST_USE bool auth_load(const char *path, double per_second, struct auth_table *table,
                        struct buf *error);
MUST_USE bool auth_parse(const char *text, size_t len, double per_second, struct auth_table *table,
                         struct buf *error);
void auth_fini(struct auth_table *table);

/* The token of an Authorization header, or NULL. */
const struct auth_token *auth_find(const struct auth_table *table, struct http_slice header);

/* The token of this name, or NULL. Only for a name that a client certificate has proved. */
const struct auth_token *auth_find_name(const struct auth_table *table, struct http_slice name);

/* Whether the token has one of `roles` (0: any will do), and is good for `queue` (NULL: the call is
 * not about a queue). */
bool auth_allows(const struct auth_token *token, uint8_t roles, const char *queue);

/* Appends the sentence for a call that needs one of `roles` and is not allowed: what the token
 * lacks, or which queues it is for. */
void auth_explain(const struct auth_token *token, uint8_t roles, struct buf *out);

/* A version of the table. The version in force is exchanged as a whole, while threads look at it;
 * calls under way keep theirs. */
struct auth_version {
    struct auth_table table;
    atomic_uint holders;
};

struct auth;

struct auth *auth_new(struct auth_table *table); /* takes the tokens over */
void auth_free(struct auth *a);                  /* NULL is fine */

/* Takes the tokens over and puts them in force. Tokens that stay as they were keep the account of
 * their rate limit. */
void auth_replace(struct auth *a, struct auth_table *table);

/* Any thread: makes *held the version in force; cheap when it is already. */
void auth_refresh(struct auth *a, struct auth_version **held);
struct auth_version *auth_hold(struct auth_version *v);
void auth_unref(struct auth_version *v); /* NULL is fine */

#endif
