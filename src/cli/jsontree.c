#include "cli/jsontree.h"

#include "base/mem.h"

#include <stdlib.h>

static void clear(struct jsontree *node)
{
    struct jsontree *next;
    for (struct jsontree *child = node->child; child; child = next) {
        next = child->next;
        clear(child);
        free(child->key);
        free(child);
    }
    node->child = NULL;
    free(node->raw);
    node->raw = NULL;
}

void jsontree_fini(struct jsontree *root)
{
    clear(root);
}

struct jsontree *jsontree_member(struct jsontree *object, const char *key, size_t len)
{
    struct jsontree **at = &object->child;
    for (; *at; at = &(*at)->next)
        if (strlen((*at)->key) == len && memcmp((*at)->key, key, len) == 0)
            return *at;
    free(object->raw);
    object->raw = NULL;
    *at = mem_zalloc(sizeof(**at));
    (*at)->key = mem_dup(key, len);
    return *at;
}

static void set_leaf(struct jsontree *node, const char *raw, size_t raw_len)
{
    clear(node);
    node->raw = mem_dup(raw, raw_len);
}

void jsontree_set(struct jsontree *root, const char *path, const char *raw, size_t raw_len)
{
    struct jsontree *node = root;
    for (;;) {
        size_t len = strcspn(path, ".");
        node = jsontree_member(node, path, len);
        if (path[len] == '\0')
            break;
        path += len + 1;
    }
    set_leaf(node, raw, raw_len);
}

bool jsontree_has(const struct jsontree *object, const char *key)
{
    const struct jsontree *child = object->child;
    while (child && strcmp(child->key, key) != 0)
        child = child->next;
    return child;
}

void jsontree_merge(struct jsontree *root, const struct json_doc *doc, uint32_t object)
{
    for (uint32_t i = json_first(doc, object); i; i = json_next(doc, object, i)) {
        const struct json_token *t = &doc->tokens[i];
        struct jsontree *node = jsontree_member(root, t->key, t->key_len);
        if (t->type == JSON_OBJECT && t->count > 0)
            jsontree_merge(node, doc, i);
        else
            set_leaf(node, t->raw, t->raw_len);
    }
}

void jsontree_put(const struct jsontree *root, struct buf *out)
{
    if (root->raw != NULL) {
        buf_puts(out, root->raw);
        return;
    }
    buf_putc(out, '{');
    for (const struct jsontree *child = root->child; child; child = child->next) {
        json_put_cstr(out, child->key);
        buf_putc(out, ':');
        jsontree_put(child, out);
        if (child->next)
            buf_putc(out, ',');
    }
    buf_putc(out, '}');
}
