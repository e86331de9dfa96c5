/* The settings as people read them: --help, the pages of the manual, and what a shell completes.
 * All of it is made from the table of the settings. */
#include "term/complete.h"
#include "term/roff.h"
#include "triaged/rescue.h"
#include "triaged/settings_impl.h"

#include <stdio.h>
#include <string.h>

static const char about[] = "The Triage server: a durable priority queue over HTTP.";

static const char usage[] = "Usage: triaged [--check] [--config FILE] [--KEY VALUE]...\n"
                            "       triaged migrate|check|salvage ...\n";

/* Flags that are no settings. */
static const struct word {
    const char *flag, *takes, *meaning;
} words[] = {
    {"--config", "FILE", "read these settings from an INI file, section [server]"},
    {"--check", NULL,
     "say what is wrong with the settings and the files they name, and end:\n"
     "0 nothing, 2 something; changes nothing, also beside a running server"},
    {"--version", NULL, "print the version"},
    {"--help", NULL, "print this"},
};

#define WORD_COUNT (sizeof(words) / sizeof(words[0]))

static const char sources[] =
    "Each setting may also come from the environment: TRIAGE_LISTEN, TRIAGE_DATA, ...\n"
    "Flags override the environment, which overrides the file. SIGTERM drains and exits;\n"
    "SIGHUP reads certificates, tokens and log_level again.\n";

static const char examples[] =
    "  triaged --data /var/lib/triage/data\n"
    "  triaged --listen 127.0.0.1:0 --engine memory\n"
    "  triaged --config /etc/triage/triage.conf --durability os\n"
    "  triaged --engine postgres --postgres 'host=db1 dbname=triage'\n"
    "  triaged migrate --engine postgres --postgres 'host=db1 dbname=triage user=owner'\n"
    "  triaged --check --config /etc/triage/triage.conf    (the settings)\n"
    "  triaged check /var/lib/triage/data          (the data; see triaged check --help)\n"
    "  triaged salvage /var/lib/triage/data -o out (see triaged salvage --help)\n";

static const char *default_of(const struct setting *t)
{
    return *t->value ? t->value : "none";
}

static void help_word(const struct word *w)
{
    printf("  %s%s%s\n", w->flag, w->takes ? " " : "", w->takes ? w->takes : "");
    for (const char *at = w->meaning; *at; at += *at == '\n') {
        size_t len = strcspn(at, "\n");
        printf("        %.*s\n", (int)len, at);
        at += len;
    }
}

void settings_help(void)
{
    const struct setting *t;
    printf("%s\n%s\n\n", usage, about);
    for (size_t i = 0; (t = settings_at(i)); i++) {
        char flag[80];
        settings_key_name(SOURCE_FLAGS, t->key, flag);
        printf("  %s %s\n        %s (default: %s)\n", flag, t->takes, t->meaning, default_of(t));
    }
    for (size_t i = 0; i < WORD_COUNT; i++)
        help_word(&words[i]);
    printf("\n%s\nExamples:\n%s", sources, examples);
}

/* The manual */

static void item(const struct setting *t, int source)
{
    struct buf meaning = {0};
    char name[80];
    settings_key_name(source, t->key, name);
    buf_printf(&meaning, "%s (default: %s)", t->meaning, default_of(t));
    roff_item(stdout, source == SOURCE_FILE ? t->key : name, t->takes, buf_cstr(&meaning));
    buf_fini(&meaning);
}

static void items(int source)
{
    const struct setting *t;
    for (size_t i = 0; (t = settings_at(i)); i++)
        item(t, source);
}

static void manual_server(void)
{
    const char *word, *text;
    roff_head(stdout, "triaged", 8, "the Triage server, a durable priority queue over HTTP");
    roff_section(stdout, "SYNOPSIS");
    roff_text(stdout, "triaged [--check] [--config FILE] [--KEY VALUE]...\n\n"
                      "triaged migrate|check|salvage ...");
    roff_section(stdout, "DESCRIPTION");
    roff_text(stdout, about);
    roff_text(stdout, sources);
    roff_section(stdout, "OPTIONS");
    for (size_t i = 0; i < WORD_COUNT; i++)
        roff_item(stdout, words[i].flag, words[i].takes, words[i].meaning);
    items(SOURCE_FLAGS);
    for (size_t i = 0; (word = rescue_word(i, &text)); i++) {
        struct buf title = {0};
        buf_printf(&title, "triaged %s", word);
        roff_subsection(stdout, buf_cstr(&title));
        roff_example(stdout, text);
        buf_fini(&title);
    }
    roff_section(stdout, "EXAMPLES");
    roff_example(stdout, examples);
    roff_section(stdout, "SEE ALSO");
    roff_text(stdout, "triage.conf(5), triage(1)");
}

static void manual_file(void)
{
    const struct setting *t;
    roff_head(stdout, "triage.conf", 5, "settings of the Triage server");
    roff_section(stdout, "DESCRIPTION");
    roff_text(stdout,
              "An INI file that triaged(8) reads with --config: lines of KEY = VALUE in the "
              "section [server];\nlines that begin with ; or # are comments.\n");
    roff_text(stdout, sources);
    for (size_t i = 0; (t = settings_at(i)); i++) {
        struct buf line = {0};
        buf_printf(&line, "Lines of the section [%s] are values of %s, too.\n", t->section, t->key);
        roff_text(stdout, t->section ? buf_cstr(&line) : "");
        buf_fini(&line);
    }
    roff_section(stdout, "SETTINGS");
    items(SOURCE_FILE);
    roff_section(stdout, "EXAMPLES");
    roff_example(stdout, "[server]\nlisten = 127.0.0.1:7420\ndata = /var/lib/triage/data\n");
    roff_section(stdout, "SEE ALSO");
    roff_text(stdout, "triaged(8)");
}

/* Completion */

/* "on|off": each of them. */
static void offer_values(const char *takes, const char *word)
{
    if (strcmp(takes, "FILE") == 0 || strcmp(takes, "DIR") == 0 || strcmp(takes, "PATH") == 0) {
        complete_files();
        return;
    }
    while (*takes) {
        size_t len = strcspn(takes, "|");
        char value[32];
        snprintf(value, sizeof(value), "%.*s", (int)len, takes);
        if (value[0] >= 'a' && value[0] <= 'z')
            complete_offer(word, value, "a value");
        takes += len + (takes[len] == '|');
    }
}

static const char *takes_of(const char *flag)
{
    const struct setting *t;
    char name[80];
    for (size_t i = 0; i < WORD_COUNT; i++)
        if (strcmp(words[i].flag, flag) == 0)
            return words[i].takes;
    for (size_t i = 0; (t = settings_at(i)); i++) {
        settings_key_name(SOURCE_FLAGS, t->key, name);
        if (strcmp(name, flag) == 0)
            return t->takes;
    }
    return NULL;
}

static void offer_flags(const char *word)
{
    const struct setting *t;
    char name[80];
    for (size_t i = 0; i < WORD_COUNT; i++)
        complete_offer(word, words[i].flag, words[i].meaning);
    for (size_t i = 0; (t = settings_at(i)); i++) {
        settings_key_name(SOURCE_FLAGS, t->key, name);
        complete_offer(word, name, t->meaning);
    }
}

static void complete(const char *word, int argc, char **argv)
{
    const char *takes = argc > 0 ? takes_of(argv[argc - 1]) : NULL, *text, *verb;
    if (takes)
        offer_values(takes, word);
    else if (rescue_wanted(argc + 1, argv - 1))
        complete_files();
    else if (word[0] == '-')
        offer_flags(word);
    if (argc > 0 || word[0] == '-')
        return;
    complete_offer(word, "migrate", "bring the engine's store up to date");
    for (size_t i = 0; (verb = rescue_word(i, &text)); i++)
        complete_offer(word, verb, "see its --help");
}

bool settings_described(int argc, char **argv)
{
    const char *word = argc > 1 ? complete_wanted(argv[1]) : NULL;
    if (word)
        complete(word, argc - 2, argv + 2);
    else if (argc == 2 && strcmp(argv[1], "--help=man") == 0)
        manual_server();
    else if (argc == 2 && strcmp(argv[1], "--help=conf") == 0)
        manual_file();
    else
        return false;
    return true;
}
