#define _GNU_SOURCE /* pipe2, sigabbrev_np */
#include "cli/child.h"

#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINE_MAX_KEPT 800 /* leaves room in a reason for what stands before the line */

extern char **environ;

void child_env_init(struct child_env *env)
{
    static const char prefix[] = "TRIAGE_";
    size_t count = 0;
    while (environ[count])
        count++;
    *env = (struct child_env){.items = mem_alloc((count + 1) * sizeof(char *))};
    for (size_t i = 0; i < count; i++)
        if (strncmp(environ[i], prefix, strlen(prefix)) != 0)
            env->items[env->count++] = environ[i];
    env->inherited = env->count;
    env->items[env->count] = NULL;
}

/* Removes an inherited variable: in most C libraries the first of two equal names wins. */
static void env_drop(struct child_env *env, const char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < env->inherited; i++) {
        if (strncmp(env->items[i], name, len) != 0 || env->items[i][len] != '=')
            continue;
        memmove(&env->items[i], &env->items[i + 1], (env->count - i) * sizeof(char *));
        env->count--;
        env->inherited--;
        return;
    }
}

void child_env_set(struct child_env *env, const char *name, const char *value, size_t len)
{
    struct buf entry = {0};
    if (memchr(value, '\0', len) != NULL)
        return; /* a NUL cannot be in an environment */
    env_drop(env, name);
    buf_puts(&entry, name);
    buf_putc(&entry, '=');
    buf_put(&entry, value, len);
    env->items = mem_realloc(env->items, (env->count + 2) * sizeof(char *));
    env->items[env->count++] = buf_take(&entry);
    env->items[env->count] = NULL;
}

void child_env_fini(struct child_env *env)
{
    for (size_t i = env->inherited; i < env->count; i++)
        free(env->items[i]);
    free(env->items);
    *env = (struct child_env){0};
}

void child_init(struct child *child)
{
    *child = (struct child){.stdin_fd = -1, .stderr_fd = -1};
}

static void fd_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void child_fini(struct child *child)
{
    fd_close(&child->stdin_fd);
    fd_close(&child->stderr_fd);
    buf_fini(&child->input);
    buf_fini(&child->line);
    buf_fini(&child->last_line);
}

/* Runs in the new process. Signal handlers are reset by exec, but ignored signals stay ignored. */
static void exec_command(char **argv, char **env, int in, int err, int report)
{
    setpgid(0, 0);
    signal(SIGPIPE, SIG_DFL);
    if (dup2(in, STDIN_FILENO) >= 0 && dup2(err, STDERR_FILENO) >= 0) {
        environ = env;
        execvp(argv[0], argv);
    }
    int error = errno;
    ssize_t ignored = write(report, &error, sizeof(error));
    (void)ignored;
    _exit(127);
}

/* The report pipe is closed by an exec that succeeds. If exec fails, it carries errno. */
static int await_exec(pid_t pid, int report)
{
    int error = 0;
    ssize_t n;
    do {
        n = read(report, &error, sizeof(error));
    } while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof(error))
        return 0;
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return error;
}

static void pipe_close(int pipe[2])
{
    fd_close(&pipe[0]);
    fd_close(&pipe[1]);
}

int child_start(struct child *child, char **argv, const struct child_env *env, struct buf *input)
{
    int in[2] = {-1, -1}, err[2] = {-1, -1}, report[2] = {-1, -1};
    int error = 0;
    pid_t pid = -1;
    if (pipe2(in, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0 && pipe2(report, O_CLOEXEC) == 0)
        pid = fork();
    if (pid < 0)
        error = errno;
    if (pid == 0)
        exec_command(argv, env->items, in[0], err[1], report[1]);
    fd_close(&report[1]);
    if (pid > 0)
        error = await_exec(pid, report[0]);
    if (error == 0) {
        setpgid(pid, pid);
        fcntl(in[1], F_SETFL, O_NONBLOCK);
        fcntl(err[0], F_SETFL, O_NONBLOCK);
        child->pid = pid;
        child->stdin_fd = in[1];
        child->stderr_fd = err[0];
        in[1] = err[0] = -1;
        buf_fini(&child->input);
        child->input = *input;
        *input = (struct buf){0};
        child->input_sent = 0;
        buf_clear(&child->line);
        buf_clear(&child->last_line);
    }
    pipe_close(in);
    pipe_close(err);
    pipe_close(report);
    return error;
}

/* A command that does not read its input is not a failure: EPIPE only ends the feeding. */
static void pump_input(struct child *child)
{
    while (child->stdin_fd >= 0 && child->input_sent < child->input.len) {
        ssize_t n = write(child->stdin_fd, child->input.data + child->input_sent,
                          child->input.len - child->input_sent);
        if (n > 0)
            child->input_sent += (size_t)n;
        else if (n < 0 && errno == EINTR)
            continue;
        else if (n < 0 && errno == EAGAIN)
            return;
        else
            break;
    }
    fd_close(&child->stdin_fd);
}

static bool is_blank(const struct buf *line)
{
    for (size_t i = 0; i < line->len; i++)
        if (line->data[i] != ' ' && line->data[i] != '\t' && line->data[i] != '\r')
            return false;
    return true;
}

static void remember(struct child *child, const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (data[i] != '\n') {
            if (child->line.len < LINE_MAX_KEPT)
                buf_putc(&child->line, data[i]);
            continue;
        }
        if (!is_blank(&child->line)) {
            buf_clear(&child->last_line);
            buf_put(&child->last_line, child->line.data, child->line.len);
        }
        buf_clear(&child->line);
    }
}

static void pass_on(const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(STDERR_FILENO, data, len);
        if (n < 0 && errno != EINTR)
            return;
        if (n > 0) {
            data += n;
            len -= (size_t)n;
        }
    }
}

static void pump_errors(struct child *child)
{
    char chunk[16384];
    while (child->stderr_fd >= 0) {
        ssize_t n = read(child->stderr_fd, chunk, sizeof(chunk));
        if (n > 0) {
            pass_on(chunk, (size_t)n);
            remember(child, chunk, (size_t)n);
        } else if (n < 0 && errno == EAGAIN) {
            return;
        } else if (n == 0 || errno != EINTR) {
            fd_close(&child->stderr_fd);
        }
    }
}

void child_pump(struct child *child)
{
    pump_input(child);
    pump_errors(child);
}

void child_signal(struct child *child, int signal)
{
    if (child->pid > 0)
        kill(-child->pid, signal);
}

/* The group is killed before its leader is reaped. Until then its number cannot be given to another
 * group. */
bool child_reap(struct child *child, bool sweep, int *wait_status)
{
    siginfo_t info = {0};
    if (child->pid <= 0 ||
        waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid != child->pid)
        return false;
    if (sweep)
        kill(-child->pid, SIGKILL);
    if (waitpid(child->pid, wait_status, 0) != child->pid)
        return false;
    child->pid = 0;
    pump_errors(child);
    fd_close(&child->stderr_fd); /* a grandchild may hold the other end for ever */
    fd_close(&child->stdin_fd);
    return true;
}

static void put_clean(struct buf *out, const struct buf *line)
{
    size_t from = out->len;
    for (size_t i = 0; i < line->len; i++)
        if ((unsigned char)line->data[i] >= 0x20)
            buf_putc(out, line->data[i]);
    size_t len = out->len - from;
    for (int cut = 0; cut < 3 && len > 0 && !utf8_valid(out->data + from, len); cut++)
        len--; /* the line may have been cut inside a character */
    if (utf8_valid(out->data + from, len)) {
        out->len = from + len;
        return;
    }
    for (size_t i = from; i < out->len; i++)
        if ((unsigned char)out->data[i] >= 0x80)
            out->data[i] = '?';
}

void child_explain(const struct child *child, int wait_status, struct buf *out)
{
    if (WIFSIGNALED(wait_status)) {
        const char *name = sigabbrev_np(WTERMSIG(wait_status));
        if (name)
            buf_printf(out, "killed by signal SIG%s", name);
        else
            buf_printf(out, "killed by signal %d", WTERMSIG(wait_status));
    } else {
        buf_printf(out, "exit status %d", WEXITSTATUS(wait_status));
    }
    const struct buf *line = is_blank(&child->line) ? &child->last_line : &child->line;
    if (line->len == 0)
        return;
    buf_puts(out, ": ");
    put_clean(out, line);
}
