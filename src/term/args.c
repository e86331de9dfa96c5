#include "term/args.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/suggest.h"
#include "term/cli.h"
#include "term/complete.h"
#include "term/roff.h"
#include "term/when.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int args_refuse(const struct arg_spec *spec, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fputs("triage: ", stderr);
    vfprintf(stderr, fmt, args);
    fprintf(stderr, "\nusage: triage %s\n", spec->usage);
    va_end(args);
    return CLI_USAGE;
}

void args_help_option(const struct arg_option *o)
{
    char left[64];
    int n = 0;
    if (o->letter)
        n = snprintf(left, sizeof(left), "-%c, ", o->letter);
    snprintf(left + n, sizeof(left) - (size_t)n, "--%s%s%s", o->name, o->value ? " " : "",
             o->value ? o->value : "");
    printf("  %-26s ", left);
    for (const char *at = o->help;; at += 1) { /* further lines stand below the first */
        size_t len = strcspn(at, "\n");
        printf("%.*s\n", (int)len, at);
        at += len;
        if (*at == '\0')
            break;
        printf("%29s", "");
    }
}

static void help(const struct arg_spec *spec)
{
    printf("usage: triage %s\n\n%s\n", spec->usage, spec->about);
    if (spec->options != NULL && spec->options[0].name != NULL) {
        printf("\nOptions:\n");
        for (const struct arg_option *o = spec->options; o->name; o++)
            args_help_option(o);
    }
    if (spec->examples)
        printf("\nExamples:\n%s", spec->examples);
}

static const struct arg_option *find_long(const struct arg_spec *spec, const char *name, size_t len)
{
    for (const struct arg_option *o = spec->options; o && o->name; o++)
        if (strlen(o->name) == len && memcmp(o->name, name, len) == 0)
            return o;
    return NULL;
}

static const struct arg_option *find_letter(const struct arg_spec *spec, char letter)
{
    for (const struct arg_option *o = spec->options; o && o->name; o++)
        if (o->letter == letter)
            return o;
    return NULL;
}

static bool store_int(const char *text, int64_t *out)
{
    char *rest;
    errno = 0;
    long long value = strtoll(text, &rest, 10);
    if (rest == text || *rest != '\0' || errno != 0)
        return false;
    *out = value;
    return true;
}

/* The text lives as long as the process: options point to it. */
static bool store_time(const char *text, const char **out)
{
    static char texts[ARG_TIMES_MAX][TIME_TEXT_MAX];
    static size_t used;
    int64_t ms;
    if (used == ARG_TIMES_MAX || !when_parse_ms(text, clock_now().wall_ms, &ms))
        return false;
    time_format_ms(ms, texts[used]);
    *out = texts[used++];
    return true;
}

static bool store(const struct arg_option *o, const char *value)
{
    struct arg_list *list;
    switch (o->type) {
    case ARG_FLAG:
        *(bool *)o->out = true;
        return true;
    case ARG_TEXT:
        *(const char **)o->out = value;
        return true;
    case ARG_LIST:
        list = o->out;
        list->items = mem_realloc(list->items, (list->count + 1) * sizeof(*list->items));
        list->items[list->count++] = value;
        return true;
    case ARG_INT:
        return store_int(value, o->out);
    case ARG_DURATION:
        return duration_parse_ms(value, o->out);
    case ARG_TIME:
        return store_time(value, o->out);
    case ARG_MOMENT:
        return store_int(value, o->out) || when_parse_ms(value, clock_now().wall_ms, o->out);
    }
    abort();
}

static const char *expected(enum arg_type type)
{
    static const char *const names[] = {
        [ARG_INT] = "a whole number",
        [ARG_DURATION] = "a duration such as 10s, 5m or 1h30m",
    };
    return type == ARG_TIME || type == ARG_MOMENT ? when_forms : names[type];
}

static int take_option(const struct arg_spec *spec, const struct arg_option *o, const char *shown,
                       const char *value)
{
    if (o->type != ARG_FLAG && value == NULL)
        return args_refuse(spec, "%s needs a value", shown);
    if (o->type == ARG_FLAG && value != NULL)
        return args_refuse(spec, "%s takes no value", shown);
    if (!store(o, value))
        return args_refuse(spec, "%s: \"%s\" is not %s", shown, value, expected(o->type));
    return ARGS_GO;
}

static int refuse_option(const struct arg_spec *spec, const char *shown)
{
    const struct arg_option *everywhere;
    const char *name = shown + strspn(shown, "-");
    struct suggestion s;
    suggest_begin(&s, name, strcspn(name, "="));
    for (const struct arg_option *o = spec->options; o && o->name; o++)
        suggest_offer(&s, o->name);
    for (size_t i = 0; (everywhere = cli_option(i)); i++)
        suggest_offer(&s, everywhere->name);
    if (s.best == NULL)
        return args_refuse(spec, "unknown option %s", shown);
    return args_refuse(spec, "unknown option %s; did you mean --%s?", shown, s.best);
}

/* The option at argv[*at], with its value in the same or in the next argument. */
static int parse_option(const struct arg_spec *spec, int argc, char **argv, int *at)
{
    const char *shown = argv[*at];
    const struct arg_option *o;
    const char *value = NULL;
    if (shown[1] == '-') {
        size_t len = strcspn(shown + 2, "=");
        if (shown[2 + len] == '=')
            value = shown + 2 + len + 1;
        o = find_long(spec, shown + 2, len);
    } else {
        if (shown[2] != '\0')
            value = shown + 2 + (shown[2] == '=');
        o = find_letter(spec, shown[1]);
    }
    if (o == NULL)
        return refuse_option(spec, shown);
    if (o->type != ARG_FLAG && value == NULL && *at + 1 < argc)
        value = argv[++*at];
    return take_option(spec, o, shown, value);
}

static bool is_help(const char *arg)
{
    return strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0;
}

/* What programs ask for, not people: a page of the manual, and words to complete. False when argv
 * asks for something else. */
static bool describe(const struct arg_spec *spec, int argc, char **argv)
{
    const char *word = argc > 1 ? complete_wanted(argv[1]) : NULL;
    if (word)
        complete_spec(spec, word, argc - 2, argv + 2);
    else if (argc == 2 && strcmp(argv[1], ARGS_MANUAL_PAGE) == 0)
        roff_spec_page(stdout, spec);
    else if (argc == 2 && strcmp(argv[1], ARGS_MANUAL_PART) == 0)
        roff_spec_part(stdout, spec);
    else
        return false;
    return true;
}

/* The name of the operand at this place: the words of the usage in capitals that stand outside of
 * brackets. */
static int refuse_missing(const struct arg_spec *spec, int place)
{
    const char *word = spec->usage;
    for (;;) {
        size_t len = strcspn(word, " ");
        bool named = word[0] >= 'A' && word[0] <= 'Z';
        if (named && place-- == 0)
            return args_refuse(spec, "%.*s is missing", (int)len, word);
        int open = 0; /* a bracket may hold several words */
        for (; *word && (*word != ' ' || open > 0); word++)
            open += (*word == '[') - (*word == ']');
        if (*word == '\0')
            return args_refuse(spec, "an operand is missing");
        word++;
    }
}

int args_parse(const struct arg_spec *spec, int argc, char **argv, struct operands *operands)
{
    *operands = (struct operands){.items = argv + 1, .after_dashes = -1};
    if (describe(spec, argc, argv))
        return CLI_DONE;
    for (int i = 1; i < argc; i++) {
        bool options_over = operands->after_dashes >= 0;
        if (!options_over && is_help(argv[i])) {
            help(spec);
            return CLI_DONE;
        }
        if (!options_over && strcmp(argv[i], "--") == 0) {
            operands->after_dashes = operands->count;
        } else if (!options_over && argv[i][0] == '-' && argv[i][1] != '\0') {
            int status = parse_option(spec, argc, argv, &i);
            if (status != ARGS_GO)
                return status;
        } else {
            operands->items[operands->count++] = argv[i];
        }
    }
    if (operands->after_dashes < 0)
        operands->after_dashes = operands->count;
    if (operands->count < spec->operands_min)
        return refuse_missing(spec, operands->count);
    if (spec->operands_max >= 0 && operands->count > spec->operands_max)
        return args_refuse(spec, "\"%s\" is one too many", operands->items[spec->operands_max]);
    return ARGS_GO;
}
