#include "cli/editor.h"

#include "base/file.h"
#include "term/cli.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *editor_name(void)
{
    const char *visual = getenv("VISUAL"), *editor = getenv("EDITOR");
    return visual && *visual ? visual : editor && *editor ? editor : "vi";
}

/* The file can be read by its owner alone, as mkstemps() makes it. */
static bool file_make(const struct buf *text, const char *suffix, char path[EDITOR_PATH_MAX])
{
    const char *folder = getenv("TMPDIR");
    int len = snprintf(path, EDITOR_PATH_MAX, "%s/triage-XXXXXX%s",
                       folder && *folder ? folder : "/tmp", suffix);
    int fd = len < EDITOR_PATH_MAX ? mkstemps(path, (int)strlen(suffix)) : -1;
    if (fd < 0) {
        cli_complain("%s: %s", path, strerror(len < EDITOR_PATH_MAX ? errno : ENAMETOOLONG));
        return false;
    }
    bool written = file_write_all(fd, text->data, text->len);
    if (close(fd) == 0 && written)
        return true;
    cli_complain("%s: %s", path, strerror(errno));
    unlink(path);
    return false;
}

/* Runs the editor through the shell, because $EDITOR may have options. Ctrl-C goes to the editor
 * alone. */
static bool editor_wait(const char *path)
{
    struct buf command = {0};
    buf_printf(&command, "%s \"$1\"", editor_name());
    fflush(stdout);
    struct sigaction ignore = {.sa_handler = SIG_IGN}, interrupt, quit;
    sigaction(SIGINT, &ignore, &interrupt);
    sigaction(SIGQUIT, &ignore, &quit);
    pid_t pid = fork();
    if (pid == 0) {
        sigaction(SIGINT, &interrupt, NULL);
        sigaction(SIGQUIT, &quit, NULL);
        execl("/bin/sh", "sh", "-c", buf_cstr(&command), "sh", path, (char *)NULL);
        _exit(127);
    }
    int status = -1;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    sigaction(SIGINT, &interrupt, NULL);
    sigaction(SIGQUIT, &quit, NULL);
    buf_fini(&command);
    return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool ends_line(const struct buf *text)
{
    return text->len > 0 && text->data[text->len - 1] == '\n';
}

bool editor_run(struct buf *text, const char *suffix, char path[EDITOR_PATH_MAX])
{
    struct buf edited = {0};
    if (!file_make(text, suffix, path))
        return false;
    if (!editor_wait(path)) {
        cli_complain("the editor (%s) did not end well; nothing was changed", editor_name());
        unlink(path);
        return false;
    }
    if (!file_read(path, &edited)) {
        cli_complain("%s: %s", path, strerror(errno));
        buf_fini(&edited);
        return false;
    }
    if (ends_line(&edited) && !ends_line(text))
        edited.len--;
    buf_fini(text);
    *text = edited;
    return true;
}
