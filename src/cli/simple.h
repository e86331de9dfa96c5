/* Commands that are one request without a body, and print its answer. */
#ifndef TRIAGE_CLI_SIMPLE_H
#define TRIAGE_CLI_SIMPLE_H

struct arg_spec;
struct cli;
struct operands;

/* The operands, one or two, stand for the %s of the path. Returns an exit status. */
int simple_send(const struct cli *cli, const char *method, const char *path,
                const struct operands *ops);

/* The whole command: parses and sends. */
int simple_run(const struct arg_spec *spec, int argc, char **argv, const struct cli *cli,
               const char *method, const char *path);

#endif
