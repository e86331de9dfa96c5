/* triage, the command line client: finds the server and the command, and hands over. */
#include "cli/cli.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
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
    {"queue", "get, set, delete, purge, pause or resume a queue", cmd_queue},
    {"stats", "the numbers of a queue", cmd_stats},
    {"dead", "list, show, redrive or purge dead letters", cmd_dead},
    {"import", "store what export wrote, or enqueue the lines of an NDJSON file", cmd_import},
    {"export", "write a queue as NDJSON: configuration and messages", cmd_export},
    {"simulate", "try a policy on invented work before you use it", cmd_simulate},
    {"bench", "measure a server", cmd_bench},
    {NULL, NULL, NULL},
};

void cli_complain(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fflush(stdout);
    fputs("triage: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
}

bool cli_confirm(const char *fmt, ...)
{
    char answer[16] = "";
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
        return true;
    va_list args;
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputs(" [y/N] ", stderr);
    if (fgets(answer, sizeof(answer), stdin) == NULL)
        return false;
    return strcmp(answer, "y\n") == 0 || strcmp(answer, "yes\n") == 0;
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

int cli_run_verb(const struct cli_verb *verbs, int argc, char **argv, const struct cli *cli)
{
    bool help = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    const struct cli_verb *verb = argc > 1 ? verb_find(verbs, argv[1]) : NULL;
    if (verb != NULL)
        return verb->run(argc - 1, argv + 1, cli);
    FILE *to = help ? stdout : stderr;
    if (argc > 1 && !help)
        cli_complain("%s does not know \"%s\"", argv[0], argv[1]);
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
          "  --server URL  where triaged listens; else $TRIAGE_SERVER, else " SERVER_DEFAULT "\n"
          "  --json        print the server's answers as they came, one document a line\n"
          "  --version     print the version\n"
          "  --help        this, or with a command its options and examples\n\n"
          "Examples:\n"
          "  triage enqueue mail --priority 9 'hello'\n"
          "  triage claim mail --wait 20s\n"
          "  triage work mail -j 4 -- ./send-mail\n"
          "  triage stats mail --json\n\n"
          "A server with tokens gets the one in $TRIAGE_TOKEN.\n"
          "Exit status: 0 done, 1 refused by the server, 2 usage, 3 server not reached.\n",
          to);
}

/* Takes --server and --json out of the arguments, wherever they stand before a "--". Returns the
 * new count, or -1 when a value is missing. */
static int take_globals(int argc, char **argv, struct cli *cli)
{
    int kept = 1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) {
            while (i < argc)
                argv[kept++] = argv[i++];
        } else if (strcmp(argv[i], "--json") == 0) {
            cli->json = true;
        } else if (strncmp(argv[i], "--server=", 9) == 0) {
            cli->server = argv[i] + 9;
        } else if (strcmp(argv[i], "--server") == 0) {
            if (++i == argc)
                return -1;
            cli->server = argv[i];
        } else {
            argv[kept++] = argv[i];
        }
    }
    argv[kept] = NULL;
    return kept;
}

static char *server_base(const char *url)
{
    size_t len = strlen(url);
    while (len > 0 && url[len - 1] == '/')
        len--;
    return strndup(url, len);
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
    if (argc > 1)
        cli_complain("there is no command \"%s\"; `triage --help` lists them", name);
    else
        help(stderr);
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
    const char *from_env = getenv("TRIAGE_SERVER");
    const char *token = getenv("TRIAGE_TOKEN");
    struct cli cli = {
        .server = from_env && *from_env ? from_env : SERVER_DEFAULT,
        .token = token && *token ? token : NULL,
    };
    open_standard_fds();
    argc = take_globals(argc, argv, &cli);
    if (argc < 0) {
        cli_complain("--server needs a value");
        return CLI_USAGE;
    }
    char *server = server_base(cli.server);
    cli.server = server;
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
