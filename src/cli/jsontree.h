/* A JSON object under construction, addressed by dotted names: the way from
 * `retry.backoff=exponential` to {"retry": {"backoff": "exponential"}}. */
#ifndef TRIAGE_CLI_JSONTREE_H
#define TRIAGE_CLI_JSONTREE_H

#include "base/json.h"

struct jsontree {
    char *key;              /* owned; NULL for the root */
    char *raw;              /* owned JSON text of a leaf; NULL for an object */
    struct jsontree *child; /* first member */
    struct jsontree *next;
};

/* `raw` is JSON text. An object is taken apart, so that later names can change a part of it. */
void jsontree_set(struct jsontree *root, const char *path, const char *raw, size_t raw_len);
void jsontree_merge(struct jsontree *root, const struct json_doc *doc, uint32_t object);
/* The member of that name, which is made when it is not there. */
struct jsontree *jsontree_member(struct jsontree *object, const char *key, size_t len);
bool jsontree_has(const struct jsontree *object, const char *key);
void jsontree_put(const struct jsontree *root, struct buf *out);
void jsontree_fini(struct jsontree *root);

#endif
