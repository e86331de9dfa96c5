/* triage, the command line client: finds the server and the command, and hands over. */
#include "cli/cli.h"

#include "base/buf.h"
#include "base/suggest.h"
#include "cli/out.h"
#include "cli/synonym.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef TRIAGE_VERSION
#define TRIAGE_VERSION "dev"
#endif

#define SERVER_DEFAULT "http://127.0.0.1:7420"

static const struct cli_verb commands[] = {
    {"enqueue", "hand a message to a queue", cmd_enqueue},
    {"claim", "take the most urgent messages", cmd_claim},
    {"ack", "a claimed message is done", cmd_ack},
    {"nack", "a claimed message failed; try again later", cmd_nack},
    {"extend", "keep a claimed message for longer", cmd_extend},
    {"release", "give a claimed message back, its attempt not counted", cmd_release},
    {"show", "look at a message without claiming it", cmd_show},
    {"cancel", "drop a message that nobody has claimed", cmd_cancel},
    {"escalate", "give messages another priority", cmd_escalate},
    {"position", "why a message waits, and what goes before it", cmd_position},
    {"work", "run a command for every message", cmd_work},
    {"queues", "list the queues with their depths", cmd_queues},
    {"queue", "create, get, set, apply, dump, delete, purge, pause or resume queues", cmd_queue},
    {"schedule", "set, list, show or delete what a queue gets again and again", cmd_schedule},
    {"stats", "the numbers of a queue", cmd_stats},
    {"dead", "list, show, edit, redrive or purge dead letters", cmd_dead},
    {"import", "store what export wrote, or enqueue the lines of an NDJSON file", cmd_import},
    {"export", "write a queue as NDJSON: configuration and messages", cmd_export},
    {"backup", "copy the server's data while it serves", cmd_backup},
    {"simulate", "try a policy on invented work before you use it", cmd_simulate},
    {"bench", "measure a server", cmd_bench},
    {NULL, NULL, NULL},
};

void cli_complain(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    struct buf text = {0};
    buf_vprintf(&text, fmt, args);
    va_end(args);
    fflush(stdout);
    fputs("triage: ", stderr);
    out_text(stderr, text.data, text.len);
    fputc('\n', stderr);
    buf_fini(&text);
}

int cli_confirm(bool yes, const char *fmt, ...)
{
    char answer[16] = "";
    if (yes)
        return CLI_DONE;
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO)) {
        cli_complain("this cannot be taken back, and there is no terminal to ask at; give --yes");
        return CLI_USAGE;
    }
    struct buf question = {0};
    va_list args;
    va_start(args, fmt);
    buf_vprintf(&question, fmt, args);
    va_end(args);
    out_text(stderr, question.data, question.len);
    buf_fini(&question);
    fputs(" [y/N] ", stderr);
    bool agreed = fgets(answer, sizeof(answer), stdin) != NULL &&
                  (strcmp(answer, "y\n") == 0 || strcmp(answer, "yes\n") == 0);
    return agreed ? CLI_DONE : CLI_REFUSED;
}

static const struct cli_verb *verb_find(const struct cli_verb *verbs, const char *name)
{
    for (; verbs->name; verbs++)
        if (strcmp(verbs->name, name) == 0)
            return verbs;
    return NULL;
}

static void verb_list(const struct cli_verb *verbs, FILE *to)
{
    for (; verbs->name; verbs++)
        fprintf(to, "  %-9s %s\n", verbs->name, verbs->about);
}

/* Another word for it, or the name that was mistyped; false when neither is known. */
static bool verb_suggest(const struct cli_verb *verbs, const char *family, const char *asked)
{
    const char *meant = synonym_find(family, asked);
    struct suggestion s;
    suggest_begin(&s, asked, strlen(asked));
    for (; verbs->name; verbs++)
        suggest_offer(&s, verbs->name);
    if (meant != NULL)
        cli_complain("did you mean: %s", meant);
    else if (s.best != NULL)
        cli_complain("did you mean: triage %s%s%s", family, family[0] ? " " : "", s.best);
    return meant != NULL || s.best != NULL;
}

int cli_run_verb(const struct cli_verb *verbs, int argc, char **argv, const struct cli *cli)
{
    bool help = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    const struct cli_verb *verb = argc > 1 ? verb_find(verbs, argv[1]) : NULL;
    if (verb != NULL)
        return verb->run(argc - 1, argv + 1, cli);
    FILE *to = help ? stdout : stderr;
    if (argc > 1 && !help) {
        cli_complain("%s does not know \"%s\"", argv[0], argv[1]);
        if (verb_suggest(verbs, argv[0], argv[1]))
            return CLI_USAGE;
    }
    fprintf(to, "usage: triage %s VERB QUEUE ...\n\n", argv[0]);
    verb_list(verbs, to);
    fprintf(to, "\n`triage %s VERB --help` tells more.\n", argv[0]);
    return help ? CLI_DONE : CLI_USAGE;
}

static void help(FILE *to)
{
    fputs("usage: triage [--server URL] [--json] COMMAND ...\n\n"
          "The command line client of Triage, a durable priority queue.\n\nCommands:\n",
          to);
    verb_list(commands, to);
    fputs("\nOptions:\n"
          "  --server URL   where triaged listens: http://, https:// or unix:PATH; else\n"
          "                 $TRIAGE_SERVER, else " SERVER_DEFAULT "\n"
          "  --cacert FILE  authorities to trust instead of the system's; else $TRIAGE_CACERT\n"
          "  --cert FILE    certificate to show to the server; else $TRIAGE_CERT\n"
          "  --key FILE     its key, when it is in another file; else $TRIAGE_KEY\n"
          "  --json         print the server's answers as they came, one document a line\n"
          "  --version      print the version\n"
          "  --help         this, or with a command its options and examples\n\n"
          "Examples:\n"
          "  triage enqueue mail --priority 9 'hello'\n"
          "  triage claim mail --wait 20s\n"
          "  triage work mail -j 4 -- ./send-mail\n"
          "  triage stats mail --json\n\n"
          "A server with tokens gets the one in $TRIAGE_TOKEN.\n"
          "Exit status: 0 done, 1 refused, 2 usage, 3 server not reached, 4 nothing to claim\n"
          "(with claim --fail-empty), 5 something to change (with queue apply --dry-run).\n"
          "docs/cli.md has the rest.\n",
          to);
}

/* Options with a value that every command takes. */
static const struct global {
    const char *flag, *variable;
    size_t offset;
} globals[] = {
    {"--server", "TRIAGE_SERVER", offsetof(struct cli, server)},
    {"--cacert", "TRIAGE_CACERT", offsetof(struct cli, cacert)},
    {"--cert", "TRIAGE_CERT", offsetof(struct cli, cert)},
    {"--key", "TRIAGE_KEY", offsetof(struct cli, key)},
};

#define GLOBAL_COUNT (sizeof(globals) / sizeof(globals[0]))

static const char **global_field(struct cli *cli, const struct global *g)
{
    return (const char **)((char *)cli + g->offset);
}

static const struct global *global_find(const char *arg, size_t len)
{
    for (size_t i = 0; i < GLOBAL_COUNT; i++)
        if (strlen(globals[i].flag) == len && strncmp(globals[i].flag, arg, len) == 0)
            return &globals[i];
    return NULL;
}

static void globals_from_environment(struct cli *cli)
{
    for (size_t i = 0; i < GLOBAL_COUNT; i++) {
        const char *value = getenv(globals[i].variable);
        if (value && *value)
            *global_field(cli, &globals[i]) = value;
    }
}

/* Takes them and --json out of the arguments, wherever they stand before a "--". Returns the new
 * count, or -1 when a value is missing. */
static int take_globals(int argc, char **argv, struct cli *cli)
{
    int kept = 1;
    for (int i = 1; i < argc; i++) {
        size_t len = strcspn(argv[i], "=");
        const struct global *g = global_find(argv[i], len);
        if (strcmp(argv[i], "--") == 0) {
            while (i < argc)
                argv[kept++] = argv[i++];
        } else if (strcmp(argv[i], "--json") == 0) {
            cli->json = true;
        } else if (g && argv[i][len] == '=') {
            *global_field(cli, g) = argv[i] + len + 1;
        } else if (g) {
            if (i + 1 == argc) {
                cli_complain("%s needs a value", g->flag);
                return -1;
            }
            *global_field(cli, g) = argv[++i];
        } else {
            argv[kept++] = argv[i];
        }
    }
    argv[kept] = NULL;
    return kept;
}

/* unix:PATH is spoken to as http://localhost through that socket. */
static char *server_set(struct cli *cli)
{
    size_t len = strlen(cli->server);
    while (len > 0 && cli->server[len - 1] == '/')
        len--;
    char *server = strndup(cli->server, len);
    bool is_path = strncmp(server, "unix:", 5) == 0;
    cli->server = server;
    cli->socket = is_path ? server + 5 : NULL;
    cli->url = is_path ? "http://localhost" : server;
    return server;
}

static int run(int argc, char **argv, const struct cli *cli)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "--version") == 0) {
        puts("triage " TRIAGE_VERSION);
        return CLI_DONE;
    }
    if (strcmp(name, "help") == 0 && argc == 3) { /* `help claim` is `claim --help` */
        static char flag[] = "--help";
        argv[1] = argv[2];
        argv[2] = flag;
        return run(argc, argv, cli);
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        help(stdout);
        return CLI_DONE;
    }
    const struct cli_verb *command = verb_find(commands, name);
    if (command != NULL)
        return command->run(argc - 1, argv + 1, cli);
    if (argc > 1) {
        cli_complain("there is no command \"%s\"; `triage --help` lists them", name);
        verb_suggest(commands, "", name);
    } else {
        help(stderr);
    }
    return CLI_USAGE;
}

/* Someone may have closed them; without this a pipe or a socket could take their numbers. */
static void open_standard_fds(void)
{
    int fd;
    do {
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        close(fd);
}

int main(int argc, char **argv)
{
    const char *token = getenv("TRIAGE_TOKEN");
    struct cli cli = {
        .server = SERVER_DEFAULT,
        .token = token && *token ? token : NULL,
    };
    open_standard_fds();
    globals_from_environment(&cli);
    argc = take_globals(argc, argv, &cli);
    if (argc < 0)
        return CLI_USAGE;
    char *server = server_set(&cli);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    int status = run(argc, argv, &cli);
    curl_global_cleanup();
    free(server);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        cli_complain("cannot write the output: %s", strerror(errno));
        return CLI_REFUSED;
    }
    return status;
}
