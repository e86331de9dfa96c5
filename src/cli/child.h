/* One command under way: a process in a group of its own, fed through standard
 * input, with its standard error passed on while the last line is remembered.
 * Nothing here blocks except child_start(), which waits for exec to succeed. */
#ifndef TRIAGE_CLI_CHILD_H
#define TRIAGE_CLI_CHILD_H

#include "base/buf.h"

#include <stdbool.h>
#include <sys/types.h>

struct child {
    pid_t pid;               /* 0 when there is none */
    int stdin_fd, stderr_fd; /* -1 when closed */
    struct buf input;        /* what remains to be fed */
    size_t input_sent;
    struct buf line;      /* the line of standard error being read, cut when long */
    struct buf last_line; /* the last whole line that was not blank */
};

/* The environment of a command: ours, with names set on top. */
struct child_env {
    char **items; /* NULL at the end; strings are owned from `inherited` on */
    size_t count;
    size_t inherited;
};

void child_env_init(struct child_env *env); /* without TRIAGE_ names */
void child_env_set(struct child_env *env, const char *name, const char *value, size_t len);
void child_env_fini(struct child_env *env);

void child_init(struct child *child);
void child_fini(struct child *child);

/* Takes the bytes of `input`. Returns 0, or the errno of what failed, with nothing left running. */
int child_start(struct child *child, char **argv, const struct child_env *env, struct buf *input);
void child_pump(struct child *child);               /* moves what can be moved now */
void child_signal(struct child *child, int signal); /* to the whole group */

/* True once, when the command has ended; `sweep` kills what it left in its group. */
bool child_reap(struct child *child, bool sweep, int *wait_status);

/* "exit status 3: no such user", "killed by signal SIGKILL": valid UTF-8 of at most REASON_MAX. */
void child_explain(const struct child *child, int wait_status, struct buf *out);

#endif
