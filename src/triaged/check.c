#include "triaged/check.h"
#include "api/auth.h"
#include "net/tls.h"

#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ; /* of the process */

struct check {
    const struct settings *settings;
    unsigned problems;
};

/* Prints each line of a text as a complaint. `about` is a file or a setting; without it the line
 * itself begins with the setting. A setting is named with the place that it came from. */
static unsigned say_each(const struct settings *s, const char *before, const char *about,
                         const char *text)
{
    unsigned count = 0;
    char where[SETTINGS_PLACE_MAX];
    for (const char *at = text; *at; count++) {
        size_t len = strcspn(at, "\n");
        fprintf(stderr, "triaged: %s%s%s%s%.*s\n", before,
                settings_place(s, *about ? about : at, where), about, *about ? ": " : "", (int)len,
                at);
        at += len + (at[len] == '\n');
    }
    return count;
}

static void problem(struct check *c, const char *about, const char *text)
{
    c->problems += say_each(c->settings, "", about, text);
}

static void note(const struct settings *s, const char *about, const char *text)
{
    say_each(s, "note: ", about, text);
}

static bool check_readable(struct check *c, const char *key, const char *path)
{
    if (!*path || access(path, R_OK) == 0)
        return true;
    struct buf text = {0};
    buf_printf(&text, "cannot read %s: %s", path, strerror(errno));
    problem(c, key, buf_cstr(&text));
    buf_fini(&text);
    return false;
}

static void check_tokens(struct check *c)
{
    const char *path = c->settings->tokens_file;
    struct auth_table table = {0};
    struct buf error = {0};
    if (!*path || !check_readable(c, "tokens_file", path))
        return;
    if (!auth_load(path, 0, &table, &error))
        problem(c, path, buf_cstr(&error));
    else if (table.count == 0)
        problem(c, path, "it has no token in it; add one, or leave tokens_file out");
    auth_fini(&table);
    buf_fini(&error);
}

static void check_certificate(const struct settings *s, struct tls *tls)
{
    struct stat key;
    if (!tls_is_valid_now(tls))
        note(s, s->tls_cert, "the certificate is not valid now: clients will refuse it");
    if (stat(s->tls_key, &key) == 0 && key.st_mode & S_IROTH)
        note(s, s->tls_key, "everybody on this machine can read the key; chmod 640");
}

static void check_tls(struct check *c)
{
    const struct settings *s = c->settings;
    struct tls_options options = {
        .cert = s->tls_cert,
        .key = s->tls_key,
        .client_ca = s->tls_client_ca,
        .client_required = s->tls_client_required,
    };
    struct buf error = {0};
    if (!*s->tls_cert || !*s->tls_key) { /* half of it, which was said */
        check_readable(c, "tls_cert", s->tls_cert);
        check_readable(c, "tls_key", s->tls_key);
        check_readable(c, "tls_client_ca", s->tls_client_ca);
        return;
    }
    struct tls *tls = tls_new(&options, &error);
    if (tls)
        check_certificate(s, tls);
    else
        problem(c, "", buf_cstr(&error));
    tls_free(tls);
    buf_fini(&error);
}

static void check_engine(struct check *c)
{
    struct engine_options options = settings_engine(c->settings);
    struct engine_preview p = {0};
    engine_preview(&options, &p);
    problem(c, "", buf_cstr(&p.problems));
    note(c->settings, "", buf_cstr(&p.notes));
    buf_fini(&p.problems);
    buf_fini(&p.notes);
}

/* Where a socket's file is to be. */
static void check_listen(struct check *c)
{
    for (unsigned i = 0; i < c->settings->endpoint_count; i++) {
        const struct settings_endpoint *e = &c->settings->endpoints[i];
        char folder[sizeof(e->address)];
        snprintf(folder, sizeof(folder), "%s", e->address);
        if (!e->is_unix || access(dirname(folder), W_OK | X_OK) == 0)
            continue;
        struct buf text = {0};
        char where[SETTINGS_PLACE_MAX];
        buf_printf(&text, "%slisten_unix: cannot make a socket %s: %s",
                   settings_endpoint_place(c->settings, e, where), e->address, strerror(errno));
        problem(c, "", buf_cstr(&text));
        buf_fini(&text);
    }
}

static void check_cacert(struct check *c)
{
    const char *path = c->settings->webhook_cacert;
    if (!*path || access(path, R_OK) == 0)
        return;
    struct buf text = {0};
    buf_printf(&text, "cannot read %s: %s", path, strerror(errno));
    note(c->settings, "webhook_cacert", buf_cstr(&text));
    buf_fini(&text);
}

/* Whether a variable belongs to `triage` or its handlers: a server may be started with such ones.
 */
static bool is_of_the_client(const char *name, size_t len)
{
    static const char *const names[] = {"SERVER",  "TOKEN",       "CACERT",   "CERT",  "KEY",
                                        "QUEUE",   "MESSAGE_ID",  "PRIORITY", "LEVEL", "ATTEMPT",
                                        "RECEIPT", "ENQUEUED_AT", "METADATA"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0)
            return true;
    return len > 5 && memcmp(name, "META_", 5) == 0;
}

/* Notes variables of the environment that are no settings: they do nothing, so a typo would not be
 * seen otherwise. */
static void check_environment(const struct settings *s)
{
    static const char prefix[] = "TRIAGE_";
    const size_t skip = sizeof(prefix) - 1;
    for (char *const *at = environ; *at; at++) {
        size_t len = strcspn(*at, "=");
        if (len <= skip || memcmp(*at, prefix, skip) != 0 || settings_is_variable(*at, len) ||
            is_of_the_client(*at + skip, len - skip))
            continue;
        struct buf text = {0};
        buf_printf(&text, "%.*s in the environment is no setting", (int)len, *at);
        note(s, "", buf_cstr(&text));
        buf_fini(&text);
    }
}

int check_settings(const struct settings *s)
{
    struct check c = {.settings = s, .problems = s->mistakes};
    check_listen(&c);
    check_tls(&c);
    check_tokens(&c);
    check_cacert(&c);
    check_engine(&c);
    check_environment(s);
    if (c.problems > 0)
        fprintf(stderr, "triaged: %u mistake%s; a server would not start\n", c.problems,
                c.problems == 1 ? "" : "s");
    else
        printf("triaged: no mistake found; engine %s\n", s->engine);
    return c.problems > 0 ? 2 : 0;
}
