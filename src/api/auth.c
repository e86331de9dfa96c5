#include "api/auth.h"

#include "api/rate.h"
#include "base/mem.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define MISTAKES_MAX 20 /* named one by one */
#define FILE_MAX     (1 << 20)

#define ROLE_COUNT 4
static const char *const role_names[ROLE_COUNT] = {"admin", "produce", "consume",
                                                   "read"}; /* bits */

static bool hex_decode(const char *hex, uint8_t out[AUTH_DIGEST])
{
    if (strlen(hex) != 2 * AUTH_DIGEST || strspn(hex, "0123456789abcdefABCDEF") != 2 * AUTH_DIGEST)
        return false;
    for (int i = 0; i < AUTH_DIGEST; i++) {
        char pair[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        out[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return true;
}

static bool roles_parse(char *list, uint8_t *roles)
{
    char *rest = NULL;
    *roles = 0;
    for (char *name = strtok_r(list, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        int found = -1;
        for (int i = 0; i < ROLE_COUNT; i++) {
            if (strcmp(name, role_names[i]) == 0)
                found = i;
        }
        if (found < 0)
            return false;
        *roles |= (uint8_t)(1 << found);
    }
    return *roles != 0;
}

/* Whether a queue's name could start with this prefix. */
static bool prefix_possible(const char *prefix)
{
    return strspn(prefix, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") ==
           strlen(prefix);
}

/* What is wrong with the line, or NULL. */
static const char *line_parse(char *line, struct auth_token *token)
{
    char *rest = NULL;
    const char *name = strtok_r(line, " \t", &rest);
    const char *digest = strtok_r(NULL, " \t", &rest);
    char *roles = strtok_r(NULL, " \t", &rest);
    const char *prefix = strtok_r(NULL, " \t", &rest);
    if (!name || !digest || !roles || strtok_r(NULL, " \t", &rest))
        return "expected NAME SHA256HEX ROLE[,ROLE] [QUEUE_PREFIX]";
    if (strlen(name) > AUTH_NAME_MAX)
        return "the name is too long";
    token->has_digest = strcmp(digest, "-") != 0;
    if (token->has_digest && !hex_decode(digest, token->digest))
        return "the digest is not 64 hexadecimal digits, and not - for a certificate alone";
    if (!roles_parse(roles, &token->roles))
        return "the roles are admin, produce, consume and read, with commas between them";
    if (prefix && strlen(prefix) > QUEUE_NAME_MAX)
        return "the queue prefix is too long";
    if (prefix && !prefix_possible(prefix))
        return "no queue has a name with this prefix; names have the characters A-Z a-z 0-9 . _ -";
    snprintf(token->name, sizeof(token->name), "%s", name);
    snprintf(token->prefix, sizeof(token->prefix), "%s", prefix ? prefix : "");
    return NULL;
}

static const struct auth_token *find_name(const struct auth_table *table, const char *name,
                                          size_t len)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct auth_token *token = &table->tokens[i];
        if (strlen(token->name) == len && memcmp(token->name, name, len) == 0)
            return token;
    }
    return NULL;
}

/* Whether another token has this secret. If two had, the order of lines would decide which rights
 * it gives. */
static bool has_digest(const struct auth_table *table, const struct auth_token *wanted)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct auth_token *token = &table->tokens[i];
        if (token->has_digest && wanted->has_digest &&
            memcmp(token->digest, wanted->digest, AUTH_DIGEST) == 0)
            return true;
    }
    return false;
}

static const char *table_add(struct auth_table *table, char *line, double per_second)
{
    struct auth_token token = {0};
    if (table->count == AUTH_TOKENS_MAX)
        return "too many tokens";
    const char *wrong = line_parse(line, &token);
    if (wrong)
        return wrong;
    if (find_name(table, token.name, strlen(token.name)))
        return "another token has this name already";
    if (has_digest(table, &token))
        return "another name has this digest already; make a token for each";
    if (per_second > 0)
        token.rate = rate_new(per_second, per_second < 1 ? 1 : per_second);
    table->tokens = mem_realloc(table->tokens, (table->count + 1) * sizeof(token));
    table->tokens[table->count++] = token;
    return NULL;
}

bool auth_parse(const char *text, size_t len, double per_second, struct auth_table *table,
                struct buf *error)
{
    char *copy = mem_dup(text, len), *rest = copy;
    unsigned number = 0, mistakes = 0;
    *table = (struct auth_table){0};
    for (char *line; mistakes < MISTAKES_MAX && (line = strsep(&rest, "\n"));) {
        number++;
        line[strcspn(line, "\r")] = '\0';
        line += strspn(line, " \t");
        const char *wrong =
            *line != '\0' && *line != '#' ? table_add(table, line, per_second) : NULL;
        if (wrong)
            buf_printf(error, "%sline %u of the tokens file: %s", mistakes++ ? "\n" : "", number,
                       wrong);
    }
    free(copy);
    if (mistakes > 0)
        auth_fini(table);
    return mistakes == 0;
}

bool auth_load(const char *path, double per_second, struct auth_table *table, struct buf *error)
{
    struct buf text = {0};
    FILE *file = fopen(path, "re");
    if (!file) {
        buf_printf(error, "cannot open the tokens file %s: %s", path, strerror(errno));
        return false;
    }
    for (size_t got = 1; got > 0 && text.len <= FILE_MAX;) {
        buf_reserve(&text, 4096);
        got = fread(text.data + text.len, 1, 4096, file);
        text.len += got;
    }
    bool ok = !ferror(file);
    fclose(file);
    if (!ok)
        buf_printf(error, "cannot read the tokens file %s", path);
    else if (text.len > FILE_MAX) /* a part of it could end in a line that lost its prefix */
        buf_printf(error, "the tokens file %s is larger than %d bytes", path, FILE_MAX);
    ok = ok && text.len <= FILE_MAX && auth_parse(text.data, text.len, per_second, table, error);
    buf_fini(&text);
    return ok;
}

void auth_fini(struct auth_table *table)
{
    for (size_t i = 0; i < table->count; i++)
        rate_free(table->tokens[i].rate);
    free(table->tokens);
    *table = (struct auth_table){0};
}

const struct auth_token *auth_find(const struct auth_table *table, struct http_slice header)
{
    uint8_t digest[AUTH_DIGEST];
    unsigned digest_len = 0;
    if (header.len <= 7 || strncasecmp(header.data, "Bearer ", 7) != 0)
        return NULL;
    const char *token = header.data + 7, *end = header.data + header.len;
    while (token < end && *token == ' ')
        token++;
    if (!EVP_Digest(token, (size_t)(end - token), digest, &digest_len, EVP_sha256(), NULL) ||
        digest_len != AUTH_DIGEST)
        return NULL;
    /* All are compared, so that the time does not tell which one fitted. */
    const struct auth_token *found = NULL;
    for (size_t i = 0; i < table->count; i++) {
        bool same = CRYPTO_memcmp(table->tokens[i].digest, digest, AUTH_DIGEST) == 0;
        if (same && table->tokens[i].has_digest)
            found = &table->tokens[i];
    }
    return found;
}

const struct auth_token *auth_find_name(const struct auth_table *table, struct http_slice name)
{
    return find_name(table, name.data, name.len);
}

/* A name goes on below a prefix with one of these. */
static bool is_boundary(char c)
{
    return c == '.' || c == '_' || c == '-';
}

static bool prefix_covers(const char *prefix, const char *queue)
{
    size_t len = strlen(prefix);
    if (strncmp(queue, prefix, len) != 0)
        return false;
    return len == 0 || is_boundary(prefix[len - 1]) || !queue[len] || is_boundary(queue[len]);
}

bool auth_allows(const struct auth_token *token, uint8_t roles, const char *queue)
{
    if (roles && !(token->roles & (roles | ROLE_ADMIN)))
        return false;
    return !queue || prefix_covers(token->prefix, queue);
}

void auth_explain(const struct auth_token *token, uint8_t roles, struct buf *out)
{
    if (auth_allows(token, roles, NULL)) {
        bool open = is_boundary(token->prefix[strlen(token->prefix) - 1]);
        buf_printf(out,
                   open ? "This token is for queues whose names start with \"%s\"."
                        : "This token is for the queue \"%s\" and those whose names go on after it "
                          "with . _ or -.",
                   token->prefix);
        return;
    }
    const char *before = "This needs the role ";
    for (int i = 0; i < ROLE_COUNT; i++) {
        if (!(roles & 1 << i))
            continue;
        buf_printf(out, "%s%s", before, role_names[i]);
        before = " or ";
    }
    buf_lit(out, ", which this token does not have.");
}

/* The version in force */

struct auth {
    pthread_mutex_t mutex; /* while the current version changes, or gets another holder */
    _Atomic(struct auth_version *) current;
};

static struct auth_version *version_new(struct auth_table *table)
{
    struct auth_version *v = mem_zalloc(sizeof(*v));
    v->table = *table;
    *table = (struct auth_table){0};
    atomic_init(&v->holders, 1);
    return v;
}

struct auth *auth_new(struct auth_table *table)
{
    struct auth *a = mem_zalloc(sizeof(*a));
    pthread_mutex_init(&a->mutex, NULL);
    atomic_init(&a->current, version_new(table));
    return a;
}

void auth_free(struct auth *a)
{
    if (!a)
        return;
    auth_unref(atomic_load(&a->current));
    pthread_mutex_destroy(&a->mutex);
    free(a);
}

static bool token_same(const struct auth_token *a, const struct auth_token *b)
{
    return a->has_digest == b->has_digest && memcmp(a->digest, b->digest, AUTH_DIGEST) == 0 &&
           a->roles == b->roles && strcmp(a->prefix, b->prefix) == 0;
}

static void accounts_keep(struct auth_table *table, const struct auth_table *before)
{
    for (size_t i = 0; i < table->count; i++) {
        struct auth_token *token = &table->tokens[i];
        const struct auth_token *old = find_name(before, token->name, strlen(token->name));
        if (!old || !token_same(old, token))
            continue;
        rate_free(token->rate);
        token->rate = rate_share(old->rate);
    }
}

void auth_replace(struct auth *a, struct auth_table *table)
{
    struct auth_version *before = atomic_load(&a->current);
    accounts_keep(table, &before->table);
    pthread_mutex_lock(&a->mutex);
    atomic_store(&a->current, version_new(table));
    pthread_mutex_unlock(&a->mutex);
    auth_unref(before);
}

/* A version that is held keeps its address, so one that is equal is the same. */
void auth_refresh(struct auth *a, struct auth_version **held)
{
    if (*held == atomic_load_explicit(&a->current, memory_order_relaxed))
        return;
    auth_unref(*held);
    pthread_mutex_lock(&a->mutex);
    *held = auth_hold(atomic_load(&a->current));
    pthread_mutex_unlock(&a->mutex);
}

struct auth_version *auth_hold(struct auth_version *v)
{
    atomic_fetch_add(&v->holders, 1);
    return v;
}

void auth_unref(struct auth_version *v)
{
    if (!v || atomic_fetch_sub(&v->holders, 1) != 1)
        return;
    auth_fini(&v->table);
    free(v);
}
