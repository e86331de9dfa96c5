#include "api/auth.h"

#include "api/rate.h"
#include "base/mem.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

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

/* Whether some queue could have a name that starts so. */
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
    if (!hex_decode(digest, token->digest))
        return "the digest is not 64 hexadecimal digits";
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

static const char *table_add(struct auth_table *table, char *line, double per_second)
{
    struct auth_token token = {0};
    if (table->count == AUTH_TOKENS_MAX)
        return "too many tokens";
    const char *wrong = line_parse(line, &token);
    if (wrong)
        return wrong;
    for (size_t i = 0; i < table->count; i++) {
        if (strcmp(table->tokens[i].name, token.name) == 0)
            return "another token has this name already";
    }
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
    const char *wrong = NULL;
    unsigned number = 0;
    *table = (struct auth_table){0};
    for (char *line; !wrong && (line = strsep(&rest, "\n"));) {
        number++;
        line[strcspn(line, "\r")] = '\0';
        line += strspn(line, " \t");
        if (*line != '\0' && *line != '#')
            wrong = table_add(table, line, per_second);
    }
    free(copy);
    if (!wrong)
        return true;
    buf_printf(error, "line %u of the tokens file: %s", number, wrong);
    auth_fini(table);
    return false;
}

bool auth_load(const char *path, double per_second, struct auth_table *table, struct buf *error)
{
    struct buf text = {0};
    FILE *file = fopen(path, "re");
    if (!file) {
        buf_printf(error, "cannot open the tokens file %s: %s", path, strerror(errno));
        return false;
    }
    for (size_t got = 1; got > 0 && text.len < (1 << 20);) {
        buf_reserve(&text, 4096);
        got = fread(text.data + text.len, 1, 4096, file);
        text.len += got;
    }
    bool ok = !ferror(file);
    fclose(file);
    if (!ok)
        buf_printf(error, "cannot read the tokens file %s", path);
    ok = ok && auth_parse(text.data, text.len, per_second, table, error);
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
        if (CRYPTO_memcmp(table->tokens[i].digest, digest, AUTH_DIGEST) == 0)
            found = &table->tokens[i];
    }
    return found;
}

bool auth_allows(const struct auth_token *token, uint8_t roles, const char *queue)
{
    if (roles && !(token->roles & (roles | ROLE_ADMIN)))
        return false;
    return !queue || strncmp(queue, token->prefix, strlen(token->prefix)) == 0;
}

void auth_explain(const struct auth_token *token, uint8_t roles, struct buf *out)
{
    if (auth_allows(token, roles, NULL)) {
        buf_printf(out, "This token is for queues whose names start with \"%s\".", token->prefix);
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
