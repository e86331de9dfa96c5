/* A small option parser driven by tables. A command describes its options once;
 * parsing, type checks, complaints and --help come from that description.
 * Options may stand between operands; "--" ends them. */
#ifndef TRIAGE_TERM_ARGS_H
#define TRIAGE_TERM_ARGS_H

#include <stddef.h>
#include <stdint.h>

#define ARG_UNSET     INT64_MIN /* what a number holds before its option was met */
#define ARG_TIMES_MAX 8         /* on one command line */

enum arg_type {
    ARG_FLAG,     /* bool * */
    ARG_TEXT,     /* const char ** */
    ARG_LIST,     /* struct arg_list *, the option may be repeated */
    ARG_INT,      /* int64_t * */
    ARG_DURATION, /* int64_t *, milliseconds: "10s", "1h30m", "250ms" */
    ARG_TIME,     /* const char **, RFC 3339 in UTC whatever was given; see term/when.h */
    ARG_MOMENT,   /* int64_t *, milliseconds since the epoch: a whole number or a time */
};

struct arg_list {
    const char **items; /* owned, the strings are borrowed from argv */
    size_t count;
};

struct arg_option {
    const char *name; /* without its dashes; NULL ends a table */
    char letter;      /* or 0 */
    enum arg_type type;
    void *out;
    const char *value; /* the value's name in --help; NULL for a flag */
    const char *help;
};

struct arg_spec {
    const char *usage; /* "ack QUEUE ID RECEIPT" */
    const char *about;
    const char *examples; /* indented lines, or NULL */
    const struct arg_option *options;
    int operands_min;
    int operands_max; /* -1 for no limit */
};

struct operands {
    char **items; /* borrowed from argv */
    int count;
    int after_dashes; /* index of the first operand behind "--"; count when there is none */
};

/* ARGS_GO, or the status to exit with after --help or a complaint. argv is rearranged. */
#define ARGS_GO -1
int args_parse(const struct arg_spec *spec, int argc, char **argv, struct operands *operands);

/* --help as a page of the manual, and as a part of a page. */
#define ARGS_MANUAL_PAGE "--help=man"
#define ARGS_MANUAL_PART "--help=man-part"

void args_help_option(const struct arg_option *o); /* its line of --help */

/* A complaint about an operand in the same form as the parser's own. Returns the exit status. */
int args_refuse(const struct arg_spec *spec, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
