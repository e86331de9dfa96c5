/* triage, the command line client: finds the server and the command, and hands over. */
#include "base/buf.h"
#include "base/suggest.h"
#include "cli/commands.h"
#include "cli/synonym.h"
#include "term/text.h"

#include <curl/curl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifndef TRIAGE_VERSION
#define TRIAGE_VERSION "dev"
#endif

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
    {"history", "what the numbers of a queue were", cmd_history},
    {"events", "follow what happens in queues", cmd_events},
    {"dead", "list, show, edit, redrive or purge dead letters", cmd_dead},
    {"import", "store what export wrote, or enqueue the lines of an NDJSON file", cmd_import},
    {"export", "write a queue as NDJSON: configuration and messages", cmd_export},
    {"move", "hand a queue over to another server while it serves", cmd_move},
    {"backup", "copy the server's data while it serves", cmd_backup},
    {"cells", "list, drain, open or remove the stores of a server with several", cmd_cells},
    {"simulate", "try a policy on invented work before you use it", cmd_program},
    {"bench", "measure a server", cmd_program},
    {NULL, NULL, NULL},
};

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
    text_write(stderr, question.data, question.len);
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
          "                 $TRIAGE_SERVER, else " CLI_SERVER_DEFAULT "\n"
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

static int command_perform(const struct cli_verb *command, int argc, char **argv,
                           const struct cli *cli)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
    int status = command->run(argc, argv, cli);
    curl_global_cleanup();
    return status;
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
        return command_perform(command, argc - 1, argv + 1, cli);
    if (argc > 1) {
        cli_complain("there is no command \"%s\"; `triage --help` lists them", name);
        verb_suggest(commands, "", name);
    } else {
        help(stderr);
    }
    return CLI_USAGE;
}

int main(int argc, char **argv)
{
    return cli_main(argc, argv, run);
}
