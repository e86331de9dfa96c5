/* What every command of `triage` is given, and how it ends. A command is one
 * function; main.c has the table of them. Commands print results to standard
 * output, complaints to standard error, and return an exit status. */
#ifndef TRIAGE_CLI_CLI_H
#define TRIAGE_CLI_CLI_H

#include <stdbool.h>

struct cli {
    const char *server; /* as given, without a slash at its end */
    const char *url;    /* the same as a base URL; differs when the server is a socket's path */
    const char *socket; /* that path, or NULL */
    const char *cacert; /* file with the authorities to trust, or NULL for the system's */
    const char *cert;   /* file with the client's certificate, or NULL */
    const char *key;    /* and with its key; NULL when it is in the same file */
    const char *token;  /* bearer token, or NULL; from the environment, where ps does not show it */
    bool json;          /* print the server's documents as they came, one a line */
};

enum cli_exit {
    CLI_DONE = 0,
    CLI_REFUSED = 1,   /* the server said no */
    CLI_USAGE = 2,     /* the command line makes no sense */
    CLI_UNREACHED = 3, /* no answer from the server */
    CLI_EMPTY = 4,     /* claim --fail-empty: there was nothing to claim */
    CLI_DIFFERS = 5,   /* a dry run found something to do */
};

/* argv[0] is the command's own name; --server, --json and the like, and their values, have been
 * taken out. */
typedef int command_run(int argc, char **argv, const struct cli *cli);

command_run cmd_enqueue, cmd_claim, cmd_ack, cmd_nack, cmd_extend, cmd_release, cmd_show,
    cmd_cancel;
command_run cmd_escalate, cmd_position;
command_run cmd_queues, cmd_queue, cmd_stats;
command_run queue_apply, queue_dump; /* verbs of cmd_queue */
command_run cmd_dead, cmd_dead_edit;
command_run cmd_schedule;
command_run cmd_work;
command_run cmd_import, cmd_export;
command_run cmd_backup;
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

/* Before something that cannot be taken back. CLI_DONE when --yes was given or somebody at the
 * terminal says so; CLI_REFUSED when they do not; CLI_USAGE, after a complaint, when nobody can be
 * asked. */
int cli_confirm(bool yes, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
