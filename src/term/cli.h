/* What every command is given, and how it ends: the commands of `triage`, and triage-bench and
 * triage-simulate, which `triage` starts for its commands of that name. A command is one function.
 * It prints results to standard output, complaints to standard error, and returns an exit status.
 */
#ifndef TRIAGE_TERM_CLI_H
#define TRIAGE_TERM_CLI_H

#include <stdbool.h>
#include <stddef.h>

struct arg_option;

#define CLI_SERVER_DEFAULT "http://127.0.0.1:7420"

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

/* The whole of a program, but for what it does: takes --server, --json and the like out of the
 * arguments, runs, and sees whether the output could be written. Returns the exit status. */
int cli_main(int argc, char **argv, command_run *run);

/* The options that every command takes, for --help and what is made like it; NULL behind the last.
 */
const struct arg_option *cli_option(size_t i);

/* "triage: ..." on standard error, with a newline. */
void cli_complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
