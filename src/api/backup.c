/* Backups: POST makes one, and answers when it is whole and on the disk; GET tells how far it is.
 */
#include "api/call.h"
#include "api/encode.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>

/* The client may leave before the backup is done. Then the backup is ended, and nobody is
 * answered. */
struct backup_job {
    struct broker_backup work; /* first */
    struct call *call;
    char directory[BACKUP_PATH_MAX];
};

static bool take_directory(struct field *f, void *target)
{
    struct backup_job *job = target;
    const char *text;
    size_t len;
    if (!field_text(f, 1, sizeof(job->directory) - 1, &text, &len))
        return false;
    if (memchr(text, '\0', len))
        return field_refuse(f, "must be a name or a path.");
    memcpy(job->directory, text, len);
    job->directory[len] = '\0';
    return true;
}

static const struct field_spec backup_specs[] = {
    FIELD("directory", take_directory),
};
static const struct field_table backup_table = FIELD_TABLE(backup_specs);

static void put_made(struct buf *out, const struct engine_backup *b)
{
    buf_lit(out, "{\"directory\":");
    json_put_cstr(out, b->path);
    buf_lit(out, ",\"moment\":");
    encode_time(out, b->moment_ms);
    buf_lit(out, ",\"bytes\":");
    buf_put_u64(out, b->bytes);
    buf_lit(out, ",\"took_ms\":");
    buf_put_i64(out, b->took_ms);
    buf_putc(out, '}');
}

static void refuse(struct call *c, enum status status, struct buf *error)
{
    struct problem p = {.status = status};
    bool field = status == STATUS_INVALID_FIELD;
    if (field)
        problem_copy_text(p.field, sizeof(p.field), "/directory");
    problem_copy_text(p.detail, sizeof(p.detail), buf_cstr(error));
    call_refuse(c, &p);
}

static void backup_done(struct broker_backup *work)
{
    struct backup_job *job = (struct backup_job *)work;
    struct call *c = call_checked(job->call);
    struct engine_backup *b = &work->backup;
    if (work->status == STATUS_OK) {
        log_info("backup made", "directory=\"%s\" bytes=%llu took_ms=%lld", b->path,
                 (unsigned long long)b->bytes, (long long)b->took_ms);
        put_made(&c->out, b);
        call_reply(c, 201); /* ends the call, and with it the job */
        return;
    }
    log_warn("no backup", "directory=\"%s\" reason=\"%s\"", b->path,
             log_plain(buf_cstr(&b->error)));
    refuse(c, work->status, &b->error);
}

static void backup_cleanup(struct call *c)
{
    struct backup_job *job = c->extra;
    buf_fini(&job->work.backup.error);
}

static void hang_up(struct http_request *req)
{
    broker_backup_cancel(call_of_http(req)->extra);
}

void admin_backup(struct call *c)
{
    struct backup_job *job = c->extra = mem_zalloc(sizeof(*job));
    c->cleanup = backup_cleanup;
    if (!call_body(c, &backup_table, job))
        return;
    if (!job->directory[0]) {
        call_refuse_as(c, STATUS_INVALID_FIELD, "/directory",
                       "directory is missing: a new name in the folder that backup_dir names.");
        return;
    }
    job->call = c;
    job->work.backup.directory = job->directory;
    job->work.done = backup_done;
    c->http->user = c;
    c->http->on_hangup = hang_up;
    broker_backup(c->api->port, &job->work);
}

void admin_backup_show(struct call *c)
{
    struct engine_backup_progress p;
    struct buf *out = &c->out;
    broker_backup_progress(c->api->options.broker, &p);
    buf_printf(out, "{\"running\":%s,\"made\":%llu,\"failed\":%llu", p.running ? "true" : "false",
               (unsigned long long)p.made, (unsigned long long)p.failed);
    if (p.last_moment_ms) {
        buf_lit(out, ",\"last_moment\":");
        encode_time(out, p.last_moment_ms);
    }
    if (p.running) {
        buf_lit(out, ",\"directory\":");
        json_put_cstr(out, p.path);
        buf_lit(out, ",\"started_at\":");
        encode_time(out, p.started_ms);
        buf_printf(out, ",\"bytes\":%llu,\"bytes_total\":%llu", (unsigned long long)p.bytes,
                   (unsigned long long)p.bytes_total);
    }
    buf_putc(out, '}');
    call_reply_as(c, 200, NULL, "Cache-Control: no-store\r\n");
}
