/* triage, the command line client: finds the server and the command, and hands over. */
#include "base/buf.h"
#include "base/mem.h"
#include "base/suggest.h"
#include "cli/commands.h"
#include "cli/list.h"
#include "cli/synonym.h"
#include "term/args.h"
#include "term/complete.h"
#include "term/roff.h"
#include "term/text.h"

#include <curl/curl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
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
    {"top", "the queues by trouble, live in the terminal", cmd_top},
    {"queues", "list the queues with their depths", cmd_queues},
    {"queue", "create, get, set, apply, dump, delete, purge, pause or resume queues", cmd_queue},
    {"schedule", "set, list, show or delete what a queue gets again and again", cmd_schedule},
    {"stats", "the numbers of a queue", cmd_stats},
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

/* The verbs as sections of one page. */
static void family_manual(const struct cli_verb *verbs, const char *family, const struct cli *cli)
{
    static char part[] = ARGS_MANUAL_PART;
    struct buf name = {0}, synopsis = {0};
    buf_printf(&name, "triage-%s", family);
    buf_printf(&synopsis, "triage %s VERB ...", family);
    roff_head(stdout, buf_cstr(&name), 1, verb_find(commands, family)->about);
    roff_section(stdout, "SYNOPSIS");
    roff_text(stdout, buf_cstr(&synopsis));
    roff_section(stdout, "VERBS");
    for (; verbs->name; verbs++) {
        char *verb = mem_dup(verbs->name, strlen(verbs->name));
        char *argv[] = {verb, part, NULL};
        roff_subsection(stdout, verbs->name);
        verbs->run(2, argv, cli);
        free(verb);
    }
    roff_section(stdout, "SEE ALSO");
    roff_text(stdout, "triage(1), triaged(8)");
    buf_fini(&name);
    buf_fini(&synopsis);
}

/* argv[0] is the family, or "triage"; argv[1] asks for words, and the words before follow. */
static int verb_complete(const struct cli_verb *verbs, int argc, char **argv, const struct cli *cli)
{
    const char *word = complete_wanted(argv[1]);
    const struct cli_verb *verb = argc > 2 ? verb_find(verbs, argv[2]) : NULL;
    if (verb != NULL) { /* it is asked in its own name */
        char *name = argv[2];
        argv[2] = argv[1];
        argv[1] = name;
        return verb->run(argc - 1, argv + 1, cli);
    }
    for (; argc == 2 && verbs->name; verbs++)
        complete_offer(word, verbs->name, verbs->about);
    return CLI_DONE;
}

int cli_run_verb(const struct cli_verb *verbs, int argc, char **argv, const struct cli *cli)
{
    bool help = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    const struct cli_verb *verb = argc > 1 ? verb_find(verbs, argv[1]) : NULL;
    if (verb != NULL)
        return verb->run(argc - 1, argv + 1, cli);
    if (argc > 1 && complete_wanted(argv[1]))
        return verb_complete(verbs, argc, argv, cli);
    if (argc > 1 && strcmp(argv[1], ARGS_MANUAL_PAGE) == 0) {
        family_manual(verbs, argv[0], cli);
        return CLI_DONE;
    }
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

static const char about[] = "The command line client of Triage, a durable priority queue.";
static const char examples[] = "  triage enqueue mail --priority 9 'hello'\n"
                               "  triage claim mail --wait 20s\n"
                               "  triage work mail -j 4 -- ./send-mail\n"
                               "  triage stats mail --json\n";
static const char exit_status[] =
    "Exit status: 0 done, 1 refused, 2 usage, 3 server not reached, 4 nothing to claim\n"
    "(with claim --fail-empty), 5 something to change (with queue apply --dry-run).\n";

static void help_options(FILE *to)
{
    const struct arg_option *o;
    for (size_t i = 0; (o = cli_option(i)); i++) {
        fprintf(to, "  --%s %-*s ", o->name, (int)(11 - strlen(o->name)), o->value ? o->value : "");
        for (const char *at = o->help; *at; at += *at == '\n') {
            size_t len = strcspn(at, "\n");
            fprintf(to, "%.*s\n%s", (int)len, at, at[len] ? "                 " : "");
            at += len;
        }
    }
}

static void help(FILE *to)
{
    fprintf(to, "usage: triage [--server URL] [--json] COMMAND ...\n\n%s\n\nCommands:\n", about);
    verb_list(commands, to);
    fputs("\nOptions:\n", to);
    help_options(to);
    fprintf(to,
            "\nExamples:\n%s\nA server with tokens gets the one in $TRIAGE_TOKEN.\n%s"
            "docs/cli.md has the rest.\n",
            examples, exit_status);
}

static void manual(void)
{
    const struct arg_option *o;
    roff_head(stdout, "triage", 1, "talk to a Triage server");
    roff_section(stdout, "SYNOPSIS");
    roff_text(stdout, "triage [--server URL] [--json] COMMAND ...");
    roff_section(stdout, "DESCRIPTION");
    roff_text(stdout, about);
    roff_text(stdout, "Each command has a page of its own: triage-claim(1), ...");
    roff_section(stdout, "COMMANDS");
    for (const struct cli_verb *c = commands; c->name; c++)
        roff_item(stdout, c->name, NULL, c->about);
    roff_section(stdout, "OPTIONS");
    for (size_t i = 0; (o = cli_option(i)); i++) {
        struct buf flag = {0};
        buf_printf(&flag, "--%s", o->name);
        roff_item(stdout, buf_cstr(&flag), o->value, o->help);
        buf_fini(&flag);
    }
    roff_section(stdout, "ENVIRONMENT");
    roff_item(stdout, "TRIAGE_TOKEN", NULL, "the token for a server that wants one");
    roff_section(stdout, "EXIT STATUS");
    roff_text(stdout, exit_status);
    roff_section(stdout, "EXAMPLES");
    roff_example(stdout, examples);
    roff_section(stdout, "SEE ALSO");
    roff_text(stdout, "triaged(8), triage.conf(5)");
}

static int command_perform(const struct cli_verb *command, int argc, char **argv,
                           const struct cli *cli)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
    int status = command->run(argc, argv, cli);
    curl_global_cleanup();
    return status;
}

/* For a shell: the words of the whole command line. */
static int complete(int argc, char **argv, const struct cli *cli)
{
    const struct arg_option *o;
    const char *word = complete_wanted(argv[1]);
    complete_ask(queues_offer, cli);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    int status = verb_complete(commands, argc, argv, cli);
    curl_global_cleanup();
    for (size_t i = 0; argc == 2 && word[0] == '-' && (o = cli_option(i)); i++) {
        char flag[32];
        snprintf(flag, sizeof(flag), "--%s", o->name);
        complete_offer(word, flag, o->help);
    }
    return status;
}

static int run(int argc, char **argv, const struct cli *cli)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "--version") == 0) {
        puts("triage " TRIAGE_VERSION);
        return CLI_DONE;
    }
    if (strcmp(name, ARGS_MANUAL_PAGE) == 0) {
        manual();
        return CLI_DONE;
    }
    if (complete_wanted(name))
        return complete(argc, argv, cli);
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
