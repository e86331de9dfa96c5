#include "cli/simple.h"

#include "cli/client.h"
#include "cli/out.h"
#include "term/args.h"

int simple_send(const struct cli *cli, const char *method, const char *path,
                const struct operands *ops)
{
    struct client c;
    client_init(&c);
    client_begin(&c, cli);
    client_path(&c, path, ops->items[0], ops->count > 1 ? ops->items[1] : NULL);
    int status = client_run(&c, method, NULL);
    if (status == CLI_DONE)
        out_answer(&c, cli);
    client_fini(&c);
    return status;
}

int simple_run(const struct arg_spec *spec, int argc, char **argv, const struct cli *cli,
               const char *method, const char *path)
{
    struct operands ops;
    int status = args_parse(spec, argc, argv, &ops);
    return status == ARGS_GO ? simple_send(cli, method, path, &ops) : status;
}
