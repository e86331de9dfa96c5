#include "triaged/rescue.h"
#include "api/config.h"
#include "api/encode.h"
#include "base/mem.h"
#include "base/seqmap.h"
#include "engine/engine.h"
#include "term/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WELL = 0, DAMAGED = 1, UNDONE = 2 };

/* A queue whose messages were written to a file. */
struct written {
    char name[QUEUE_NAME_MAX + 1]; /* empty: it cannot be read */
    uint32_t id;
    uint64_t messages;
};

struct rescue {
    struct engine_inspection inspection;
    struct progress progress;
    FILE *say; /* what is found: standard output, unless that has the messages */
    /* salvage */
    const char *out;      /* a folder, or with `queue` a file */
    const char *queue;    /* NULL: all of them */
    struct seqmap queues; /* struct written, by number */
    struct written *at;   /* of which `file` is open */
    FILE *file;
    struct buf line;
    bool failed;
};

static int complain(const char *what, const char *path)
{
    fprintf(stderr, "triaged: %s %s: %s\n", what, path, strerror(errno));
    return UNDONE;
}

static void on_damage(void *ctx, const char *sentence)
{
    struct rescue *r = ctx;
    progress_wipe(&r->progress);
    fprintf(r->say, "%s\n", sentence);
}

static void on_progress(void *ctx, uint64_t bytes, uint64_t bytes_total)
{
    struct rescue *r = ctx;
    r->progress.bytes_total = (int64_t)bytes_total;
    progress_update(&r->progress, (int64_t)bytes, (int64_t)r->inspection.messages);
}

static int inspect(struct rescue *r, const char *dir)
{
    struct buf error = {0};
    r->inspection.damage = on_damage;
    r->inspection.progress = on_progress;
    r->inspection.ctx = r;
    progress_init(&r->progress, true, 0);
    enum status status = engine_inspect(dir, &r->inspection, &error);
    progress_wipe(&r->progress);
    if (status)
        fprintf(stderr, "triaged: %s\n", buf_cstr(&error));
    buf_fini(&error);
    return status ? UNDONE : r->inspection.damages > 0 ? DAMAGED : WELL;
}

/* check */

static const char check_help[] =
    "Usage: triaged check DIR\n\n"
    "Reads everything in a data directory, or in a backup, and says what is damaged: a line for\n"
    "each, with file and offset, or the key of the record. Every block of every table and every\n"
    "frame of the log is compared with its checksum, every record is decoded, and queues,\n"
    "messages, index and counters are compared with each other. Changes nothing. A server that\n"
    "runs on the directory has to be stopped; or make a backup, and check that.\n\n"
    "Exit status: 0 all well, 1 damaged, 2 it could not be looked at.\n\n"
    "Whether a server would start with its settings says triaged --check, beside it too.\n\n"
    "Examples:\n"
    "  triaged check /var/lib/triage/data\n"
    "  triaged check /srv/backups/monday && echo good\n";

static int check(const char *dir)
{
    struct rescue r = {.say = stdout};
    int outcome = inspect(&r, dir);
    const struct engine_inspection *i = &r.inspection;
    if (outcome == WELL)
        printf("%s: all well: %" PRIu64 " messages in %" PRIu64 " queues\n", dir, i->messages,
               i->queues);
    else if (outcome == DAMAGED)
        printf("%s: damaged in %" PRIu64 " places; %" PRIu64 " messages in %" PRIu64
               " queues are readable, at least %" PRIu64 " are not\n",
               dir, i->damages, i->messages, i->queues, i->unreadable);
    return outcome;
}

/* salvage */

static const char salvage_help[] =
    "Usage: triaged salvage DIR -o FOLDER\n"
    "       triaged salvage DIR -o FILE|- --queue NAME\n\n"
    "Writes what is readable of a data directory as `triage export` does: for each queue a file\n"
    "NAME.ndjson in a new folder, or one queue alone to a new file, or to standard output. Blocks\n"
    "and files that are damaged are passed over and named. Prints the `triage import` commands\n"
    "that store all of it in another server. Changes nothing in DIR; no server may run on it.\n\n"
    "Messages in damaged parts are lost, with what is not exported: leases, finished messages,\n"
    "totals. What was acknowledged or deleted may come again, where the damaged part said so.\n\n"
    "Exit status: 0 all was readable, 1 something was not, 2 it could not be done.\n\n"
    "Examples:\n"
    "  triaged salvage /var/lib/triage/data -o salvaged\n"
    "  triaged salvage /var/lib/triage/data -o - --queue mail | triage import mail -\n";

/* The name of a queue's file. The file of a queue without a name has a plus in its name, which no
 * queue's name has. */
static void file_of(const struct rescue *r, const struct written *w, struct buf *path)
{
    if (r->queue)
        buf_puts(path, r->out);
    else if (w->name[0])
        buf_printf(path, "%s/%s.ndjson", r->out, w->name);
    else
        buf_printf(path, "%s/+%" PRIu32 ".ndjson", r->out, w->id);
}

static void open_file(struct rescue *r, const struct written *w, int flags)
{
    struct buf path = {0};
    file_of(r, w, &path);
    bool to_stdout = r->queue && strcmp(r->out, "-") == 0;
    int fd = to_stdout ? STDOUT_FILENO
                       : open(buf_cstr(&path), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
    r->file = fd >= 0 ? fdopen(fd, "a") : NULL;
    if (!r->file) {
        complain("cannot write", buf_cstr(&path));
        r->failed = true;
    }
    buf_fini(&path);
}

static void close_file(struct rescue *r)
{
    bool to_stdout = r->queue && strcmp(r->out, "-") == 0;
    if (r->file && (to_stdout ? fflush(r->file) : fclose(r->file)) != 0) {
        complain("cannot write", r->out);
        r->failed = true;
    }
    r->file = NULL;
    r->at = NULL;
}

/* Messages come in runs of one queue: a file is open for as long as its run lasts. */
static void select_file(struct rescue *r, struct written *w, int flags)
{
    if (r->at == w)
        return;
    if (!r->queue || !r->file) {
        close_file(r);
        open_file(r, w, flags);
    }
    r->at = w;
}

static void write_line(struct rescue *r)
{
    if (r->file && fwrite(r->line.data, 1, r->line.len, r->file) != r->line.len && !r->failed) {
        complain("cannot write", r->out);
        r->failed = true;
    }
    buf_clear(&r->line);
}

/* As export writes it: the configuration without the name, which stands first in it. */
static void put_head(struct buf *out, const struct engine_queue *q)
{
    struct buf config = {0};
    config_put(&config, q->name, &q->config);
    const char *comma = memchr(config.data, ',', config.len);
    buf_printf(out, "{\"queue\":\"%s\",\"configuration\":{", q->name);
    buf_put(out, comma + 1, config.len - (size_t)(comma + 1 - config.data));
    buf_puts(out, "}\n");
    buf_fini(&config);
}

static bool is_wanted(const struct rescue *r, const struct engine_queue *q)
{
    return !r->queue || strcmp(r->queue, q->name) == 0;
}

static struct written *written_new(struct rescue *r, const struct engine_queue *q)
{
    struct written *w = mem_zalloc(sizeof(*w));
    w->id = q->id;
    memcpy(w->name, q->name, sizeof(w->name));
    seqmap_put(&r->queues, q->id, w);
    select_file(r, w, O_CREAT | O_EXCL);
    return w;
}

static void on_queue(void *ctx, const struct engine_queue *q)
{
    struct rescue *r = ctx;
    if (!is_wanted(r, q))
        return;
    written_new(r, q);
    put_head(&r->line, q);
    write_line(r);
}

static void on_message(void *ctx, const struct engine_queue *q, const struct message *m)
{
    struct rescue *r = ctx;
    if (r->failed || !is_wanted(r, q))
        return;
    struct written *w = seqmap_get(&r->queues, q->id);
    if (!w)
        w = written_new(r, q);
    select_file(r, w, O_APPEND);
    encode_exported(&r->line, q, m);
    write_line(r);
    w->messages++;
}

static void on_schedule(void *ctx, const struct engine_queue *q, const struct schedule *s)
{
    struct rescue *r = ctx;
    struct written *w = seqmap_get(&r->queues, q->id);
    if (r->failed || !is_wanted(r, q) || !w)
        return;
    select_file(r, w, O_APPEND);
    buf_printf(&r->line, "{\"schedule\":\"%s\",\"definition\":", s->name);
    encode_schedule_definition(&r->line, &q->config, s);
    buf_puts(&r->line, "}}\n");
    write_line(r);
}

/* Prints the commands that store the files in another server. A queue whose record is lost gets its
 * name and its levels there. */
static void print_commands(const struct rescue *r, const struct written *w, const char *path)
{
    if (!w->name[0])
        fprintf(r->say, "triage queue set NAME    # the name and the levels of this queue cannot "
                        "be read: choose them\n");
    fprintf(r->say, "triage import %s %s    # %" PRIu64 " messages\n",
            w->name[0] ? w->name : "NAME", path, w->messages);
}

static void put_foot(struct rescue *r, struct written *w)
{
    struct buf path = {0};
    file_of(r, w, &path);
    if (w->name[0]) {
        select_file(r, w, O_APPEND);
        buf_printf(&r->line, "{\"exported\":%" PRIu64 "}\n", w->messages);
        write_line(r);
    }
    close_file(r);
    if (strcmp(r->out, "-") != 0)
        print_commands(r, w, buf_cstr(&path));
    buf_fini(&path);
}

static void finish(struct rescue *r)
{
    uint64_t id = 0;
    for (struct written *w; (w = seqmap_next(&r->queues, id, &id)); id++) {
        put_foot(r, w);
        free(w);
    }
    seqmap_fini(&r->queues);
}

static int summary(const struct rescue *r, int outcome)
{
    const struct engine_inspection *i = &r->inspection;
    if (outcome == DAMAGED)
        fprintf(r->say,
                "%" PRIu64 " places are damaged, and at least %" PRIu64
                " messages cannot be read. What was acknowledged or deleted there may come "
                "again.\n",
                i->damages, i->unreadable);
    return r->failed ? UNDONE : outcome;
}

/* Whether a path is inside the data directory, by whatever name: nothing is written there. */
static bool is_inside(const char *dir, const char *out)
{
    char parent[PATH_MAX], real_dir[PATH_MAX], real_parent[PATH_MAX];
    const char *slash = strrchr(out, '/');
    snprintf(parent, sizeof(parent), "%.*s", slash ? (int)(slash - out) : 1, slash ? out : ".");
    if (slash == out)
        snprintf(parent, sizeof(parent), "/");
    if (!realpath(dir, real_dir) || !realpath(parent, real_parent))
        return false;
    size_t len = strlen(real_dir);
    return strncmp(real_parent, real_dir, len) == 0 &&
           (real_parent[len] == '/' || real_parent[len] == '\0');
}

static int salvage(const char *dir, const char *out, const char *queue)
{
    struct rescue r = {.out = out, .queue = queue, .say = stdout};
    if (strcmp(out, "-") == 0)
        r.say = stderr;
    if (is_inside(dir, out)) {
        fprintf(stderr, "triaged: %s lies in %s, where nothing is written\n", out, dir);
        return UNDONE;
    }
    if (!queue && mkdir(out, 0700) != 0)
        return complain("cannot make the folder", out);
    r.inspection.queue = on_queue;
    r.inspection.message = on_message;
    r.inspection.schedule = on_schedule;
    int outcome = inspect(&r, dir);
    bool found = r.queues.count > 0;
    if (outcome != UNDONE)
        finish(&r);
    if (outcome != UNDONE && queue && !found) {
        fprintf(stderr, "triaged: no queue %s can be found in %s\n", queue, dir);
        outcome = UNDONE;
    }
    if (outcome == UNDONE && !queue)
        rmdir(out);
    buf_fini(&r.line);
    return outcome == UNDONE ? UNDONE : summary(&r, outcome);
}

/* Words */

static int usage(const char *help)
{
    fputs(help, stderr);
    return UNDONE;
}

static int check_main(int argc, char **argv)
{
    if (argc != 2 || argv[1][0] == '-')
        return usage(check_help);
    return check(argv[1]);
}

static int salvage_main(int argc, char **argv)
{
    const char *dir = NULL, *out = NULL, *queue = NULL;
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        if ((!strcmp(argv[i], "-o") || !strcmp(argv[i], "--output")) && more)
            out = argv[++i];
        else if (!strcmp(argv[i], "--queue") && more)
            queue = argv[++i];
        else if (argv[i][0] != '-' && !dir)
            dir = argv[i];
        else
            return usage(salvage_help);
    }
    if (!dir || !out || (!queue && strcmp(out, "-") == 0))
        return usage(salvage_help);
    return salvage(dir, out, queue);
}

static const struct {
    const char *word;
    int (*run)(int argc, char **argv);
    const char *help;
} words[] = {
    {"check", check_main, check_help},
    {"salvage", salvage_main, salvage_help},
};

#define WORD_COUNT (sizeof(words) / sizeof(words[0]))

static size_t find_word(int argc, char **argv)
{
    size_t i = 0;
    while (i < WORD_COUNT && (argc < 2 || strcmp(argv[1], words[i].word) != 0))
        i++;
    return i;
}

const char *rescue_word(size_t i, const char **help)
{
    if (i >= WORD_COUNT)
        return NULL;
    *help = words[i].help;
    return words[i].word;
}

bool rescue_wanted(int argc, char **argv)
{
    return find_word(argc, argv) < WORD_COUNT;
}

int rescue_main(int argc, char **argv)
{
    size_t i = find_word(argc, argv);
    for (int k = 2; k < argc; k++) {
        if (!strcmp(argv[k], "--help") || !strcmp(argv[k], "-h")) {
            fputs(words[i].help, stdout);
            return WELL;
        }
    }
    int outcome = words[i].run(argc - 1, argv + 1);
    return fflush(stdout) == 0 ? outcome : UNDONE;
}
