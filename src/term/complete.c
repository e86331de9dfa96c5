#include "term/complete.h"

#include "term/args.h"
#include "term/cli.h"

#include <stdio.h>
#include <string.h>

static complete_queues *asker;
static const void *asker_ctx;

void complete_ask(complete_queues *ask, const void *ctx)
{
    asker = ask;
    asker_ctx = ctx;
}

const char *complete_wanted(const char *argument)
{
    size_t len = strlen(COMPLETE_FLAG);
    return argument && strncmp(argument, COMPLETE_FLAG, len) == 0 ? argument + len : NULL;
}

static bool is_plain(const char *value)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._";
    return value[0] != '\0' && value[strspn(value, plain)] == '\0';
}

void complete_offer(const char *word, const char *value, const char *meaning)
{
    if (!is_plain(value) || strncmp(value, word, strlen(word)) != 0)
        return;
    printf("%s\t%.*s\n", value, (int)strcspn(meaning, "\n"), meaning);
}

void complete_files(void)
{
    puts(":files");
}

/* By the name that usage and options give a value. */
static void offer_value(const char *name, const char *word)
{
    if (strncmp(name, "QUEUE", 5) == 0 && asker)
        asker(asker_ctx, word);
    else if (strncmp(name, "FILE", 4) == 0 || strncmp(name, "PATH", 4) == 0 ||
             strcmp(name, "DIR") == 0)
        complete_files();
}

static const struct arg_option *option_find(const struct arg_spec *spec, const char *word)
{
    for (const struct arg_option *o = spec->options; o && o->name; o++) {
        bool by_name = word[0] == '-' && word[1] == '-' && strcmp(word + 2, o->name) == 0;
        if (by_name || (word[0] == '-' && word[1] == o->letter && o->letter && word[2] == '\0'))
            return o;
    }
    return NULL;
}

static void offer_options(const struct arg_spec *spec, const char *word)
{
    char flag[64];
    for (const struct arg_option *o = spec->options; o && o->name; o++) {
        snprintf(flag, sizeof(flag), "--%s", o->name);
        complete_offer(word, flag, o->help);
    }
    const struct arg_option *o;
    for (size_t i = 0; (o = cli_option(i)); i++) {
        snprintf(flag, sizeof(flag), "--%s", o->name);
        complete_offer(word, flag, o->help);
    }
}

/* The name of the operand at this place, from the usage: words in capitals, alone or in brackets;
 * what stands in brackets behind an option's dash is the option's. The last one may be repeated.
 * False when there is none. */
static bool operand_name(const struct arg_spec *spec, int place, char out[32])
{
    char last[32] = "";
    int depth = 0;
    for (const char *at = spec->usage; *at;) {
        size_t len = strcspn(at, " ");
        size_t open = strspn(at, "[");
        bool option = at[open] == '-' && at[open + 1] != '\0';
        bool named = at[open] >= 'A' && at[open] <= 'Z';
        if (depth == 0 && option && open == 0)
            break; /* what follows belongs to it */
        if (named && depth == 0) {
            snprintf(last, sizeof(last), "%.*s", (int)(len - open), at + open);
            if (place-- == 0)
                break;
        }
        for (size_t i = 0; i < len; i++)
            depth += option || depth > 0 ? (at[i] == '[') - (at[i] == ']') : 0;
        at += len + strspn(at + len, " ");
    }
    snprintf(out, 32, "%s", last);
    return last[0] && (place < 0 || spec->operands_max < 0);
}

void complete_spec(const struct arg_spec *spec, const char *word, int argc, char **argv)
{
    const struct arg_option *open = NULL; /* waits for its value */
    int operands = 0;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) { /* a command of somebody else's */
            complete_files();
            return;
        }
        const struct arg_option *o = open ? NULL : option_find(spec, argv[i]);
        bool is_value = open != NULL;
        open = o && o->type != ARG_FLAG ? o : NULL;
        operands += !is_value && (argv[i][0] != '-' || argv[i][1] == '\0');
    }
    char name[32];
    if (open)
        offer_value(open->value, word);
    else if (word[0] == '-')
        offer_options(spec, word);
    else if (operand_name(spec, operands, name))
        offer_value(name, word);
}
