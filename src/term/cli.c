#include "term/cli.h"

#include "base/buf.h"
#include "term/args.h"
#include "term/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void cli_complain(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    struct buf text = {0};
    buf_vprintf(&text, fmt, args);
    va_end(args);
    fflush(stdout);
    fputs("triage: ", stderr);
    text_write(stderr, text.data, text.len);
    fputc('\n', stderr);
    buf_fini(&text);
}

/* Options that every command takes. One with a field in struct cli has a value, and a variable that
 * gives it, too. */
static const struct global {
    struct arg_option option;
    const char *variable;
    size_t offset;
} globals[] = {
    {{.name = "server",
      .value = "URL",
      .help = "where triaged listens: http://, https:// or unix:PATH; else\n"
              "$TRIAGE_SERVER, else " CLI_SERVER_DEFAULT},
     "TRIAGE_SERVER",
     offsetof(struct cli, server)},
    {{.name = "cacert",
      .value = "FILE",
      .help = "authorities to trust instead of the system's; else $TRIAGE_CACERT"},
     "TRIAGE_CACERT",
     offsetof(struct cli, cacert)},
    {{.name = "cert",
      .value = "FILE",
      .help = "certificate to show to the server; else $TRIAGE_CERT"},
     "TRIAGE_CERT",
     offsetof(struct cli, cert)},
    {{.name = "key",
      .value = "FILE",
      .help = "its key, when it is in another file; else $TRIAGE_KEY"},
     "TRIAGE_KEY",
     offsetof(struct cli, key)},
    {{.name = "json", .help = "print the server's answers as they came, one document a line"},
     NULL,
     0},
    {{.name = "version", .help = "print the version"}, NULL, 0},
    {{.name = "help", .help = "this, or with a command its options and examples"}, NULL, 0},
};

#define GLOBAL_COUNT (sizeof(globals) / sizeof(globals[0]))

const struct arg_option *cli_option(size_t i)
{
    return i < GLOBAL_COUNT ? &globals[i].option : NULL;
}

static const char **global_field(struct cli *cli, const struct global *g)
{
    return (const char **)((char *)cli + g->offset);
}

static const struct global *global_find(const char *arg, size_t len)
{
    for (size_t i = 0; i < GLOBAL_COUNT; i++) {
        const char *name = globals[i].option.name;
        if (globals[i].variable && strlen(name) + 2 == len && strncmp(arg, "--", 2) == 0 &&
            strncmp(name, arg + 2, len - 2) == 0)
            return &globals[i];
    }
    return NULL;
}

static void globals_from_environment(struct cli *cli)
{
    for (size_t i = 0; i < GLOBAL_COUNT; i++) {
        const char *value = globals[i].variable ? getenv(globals[i].variable) : NULL;
        if (value && *value)
            *global_field(cli, &globals[i]) = value;
    }
}

/* Takes them and --json out of the arguments, wherever they stand before a "--". Returns the new
 * count, or -1 when a value is missing. */
static int take_globals(int argc, char **argv, struct cli *cli)
{
    int kept = 1;
    for (int i = 1; i < argc; i++) {
        size_t len = strcspn(argv[i], "=");
        const struct global *g = global_find(argv[i], len);
        if (strcmp(argv[i], "--") == 0) {
            while (i < argc)
                argv[kept++] = argv[i++];
        } else if (strcmp(argv[i], "--json") == 0) {
            cli->json = true;
        } else if (g && argv[i][len] == '=') {
            *global_field(cli, g) = argv[i] + len + 1;
        } else if (g) {
            if (i + 1 == argc) {
                cli_complain("--%s needs a value", g->option.name);
                return -1;
            }
            *global_field(cli, g) = argv[++i];
        } else {
            argv[kept++] = argv[i];
        }
    }
    argv[kept] = NULL;
    return kept;
}

/* unix:PATH is spoken to as http://localhost through that socket. */
static char *server_set(struct cli *cli)
{
    size_t len = strlen(cli->server);
    while (len > 0 && cli->server[len - 1] == '/')
        len--;
    char *server = strndup(cli->server, len);
    bool is_path = strncmp(server, "unix:", 5) == 0;
    cli->server = server;
    cli->socket = is_path ? server + 5 : NULL;
    cli->url = is_path ? "http://localhost" : server;
    return server;
}

/* Someone may have closed them; without this a pipe or a socket could take their numbers. */
static void open_standard_fds(void)
{
    int fd;
    do {
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        close(fd);
}

int cli_main(int argc, char **argv, command_run *run)
{
    const char *token = getenv("TRIAGE_TOKEN");
    struct cli cli = {
        .server = CLI_SERVER_DEFAULT,
        .token = token && *token ? token : NULL,
    };
    open_standard_fds();
    globals_from_environment(&cli);
    argc = take_globals(argc, argv, &cli);
    if (argc < 0)
        return CLI_USAGE;
    char *server = server_set(&cli);
    int status = run(argc, argv, &cli);
    free(server);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        cli_complain("cannot write the output: %s", strerror(errno));
        return CLI_REFUSED;
    }
    return status;
}
