#include "engine/postgres/schema.h"
#include "base/log.h"
#include "engine/postgres/impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool run(PGconn *conn, const char *sql, struct buf *error)
{
    PGresult *r = PQexec(conn, sql);
    ExecStatusType status = PQresultStatus(r);
    bool ok = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
    if (!ok && error->len == 0) {
        const char *text = PQresultErrorMessage(r);
        buf_put(error, text, strcspn(text, "\n"));
    }
    PQclear(r);
    return ok;
}

static bool version_now(PGconn *conn, int *version, struct buf *error)
{
    PGresult *r = PQexec(conn, "SELECT coalesce(max(step), 0) FROM triage.version");
    bool ok = PQresultStatus(r) == PGRES_TUPLES_OK;
    if (ok)
        *version = atoi(PQgetvalue(r, 0, 0));
    else
        buf_puts(error, PQresultErrorMessage(r));
    PQclear(r);
    return ok;
}

int schema_version(void)
{
    int known = 0;
    for (const struct schema_step *s = schema_steps; s->name; s++)
        known = s->number > known ? s->number : known;
    return known;
}

static bool apply(PGconn *conn, const struct schema_step *step, struct buf *error)
{
    char note[96];
    snprintf(note, sizeof(note), "INSERT INTO triage.version (step) VALUES (%d)", step->number);
    if (run(conn, step->text, error) && run(conn, note, error)) {
        log_info("postgres: schema", "step=%d file=%s", step->number, step->name);
        return true;
    }
    if (error->len == 0)
        buf_puts(error, PQerrorMessage(conn));
    buf_printf(error, " (in %s)", step->name);
    return false;
}

static bool upgrade(PGconn *conn, struct buf *error)
{
    int version = 0, known = schema_version();
    if (!run(conn, schema_steps[0].text, error) || !version_now(conn, &version, error))
        return false;
    if (version > known) {
        buf_printf(error,
                   "the database has schema version %d, and this triaged knows up to %d; use a "
                   "newer triaged",
                   version, known);
        return false;
    }
    for (const struct schema_step *s = schema_steps + 1; s->name; s++) {
        if (s->number > version && !apply(conn, s, error))
            return false;
    }
    return true;
}

enum status schema_install(PGconn *conn, struct buf *error)
{
    bool ok = run(conn, "BEGIN", error) && upgrade(conn, error) && run(conn, "COMMIT", error);
    if (!ok) {
        struct buf ignored = {0};
        run(conn, "ROLLBACK", &ignored);
        buf_fini(&ignored);
    }
    return ok ? STATUS_OK : STATUS_ENGINE_UNAVAILABLE;
}
