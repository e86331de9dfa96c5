/* What every command of `triage` is given, and how it ends. A command is one
 * function; main.c has the table of them. Commands print results to standard
 * output, complaints to standard error, and return an exit status. */
#ifndef TRIAGE_CLI_CLI_H
#define TRIAGE_CLI_CLI_H

#include <stdbool.h>

struct cli {
    const char *server; /* base URL without a slash at its end */
    const char *token;  /* bearer token, or NULL; from the environment, where ps does not show it */
    bool json;          /* print the server's documents as they came, one a line */
};

enum cli_exit {
    CLI_DONE = 0,
    CLI_REFUSED = 1,   /* the server said no */
    CLI_USAGE = 2,     /* the command line makes no sense */
    CLI_UNREACHED = 3, /* no answer from the server */
};

/* argv[0] is the command's own name; --server, --json and their values have been taken out. */
typedef int command_run(int argc, char **argv, const struct cli *cli);

command_run cmd_enqueue, cmd_claim, cmd_ack, cmd_nack, cmd_extend, cmd_release, cmd_show,
    cmd_cancel;
command_run cmd_escalate, cmd_position;
command_run cmd_queues, cmd_queue, cmd_stats;
command_run cmd_dead;
command_run cmd_work;
command_run cmd_import, cmd_export;
command_run cmd_simulate;
command_run cmd_bench;

/* A command made of verbs, such as `queue pause`. The table ends with a NULL name. */
struct cli_verb {
    const char *name;
    const char *about;
    command_run *run;
};

int cli_run_verb(const struct cli_verb *verbs, int argc, char **argv, const struct cli *cli);

/* "triage: ..." on standard error, with a newline. */
void cli_complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Asks on a terminal and takes anything but a yes for a no; without a terminal the answer is yes.
 */
bool cli_confirm(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
