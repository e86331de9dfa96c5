/* Commands that are programs of their own, because they need other libraries than the client:
 * `triage bench` is triage-bench. Such a program lies beside triage, or else in the PATH. It takes
 * the place of this process, so that signals, output and exit status are its own. */
#include "base/buf.h"
#include "base/mem.h"
#include "cli/commands.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The path of triage itself with the other name in the place of its own. Nothing when /proc does
 * not tell. */
static void path_beside(const char *name, struct buf *path)
{
    char self[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self));
    while (len > 0 && self[len - 1] != '/')
        len--;
    if (len > 0) {
        buf_put(path, self, (size_t)len);
        buf_puts(path, name);
    }
}

/* The arguments of the command, behind the options that were taken out of them. A token stays in
 * the environment. */
static char **args_of(char *name, char *server, int argc, char **argv, bool json)
{
    static char json_flag[] = "--json";
    char **args = mem_alloc(((size_t)argc + 3) * sizeof(*args)), **at = args;
    *at++ = name;
    *at++ = server;
    if (json)
        *at++ = json_flag;
    memcpy(at, argv + 1, (size_t)argc * sizeof(*at)); /* with the NULL at its end */
    return args;
}

int cmd_program(int argc, char **argv, const struct cli *cli)
{
    struct buf name = {0}, server = {0}, path = {0};
    buf_printf(&name, "triage-%s", argv[0]);
    buf_printf(&server, "--server=%s", cli->server);
    path_beside(buf_cstr(&name), &path);
    char **args = args_of(buf_cstr(&name), buf_cstr(&server), argc, argv, cli->json);
    errno = ENOENT;
    if (path.len > 0)
        execv(buf_cstr(&path), args);
    if (errno == ENOENT)
        execvp(args[0], args);
    cli_complain("cannot run %s, which belongs beside triage or in the PATH: %s", args[0],
                 strerror(errno));
    free(args);
    buf_fini(&name);
    buf_fini(&server);
    buf_fini(&path);
    return CLI_REFUSED;
}
