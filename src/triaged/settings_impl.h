/* Private to the settings: settings.c fills them in, settings_whole.c looks at them together. */
#ifndef TRIAGE_TRIAGED_SETTINGS_IMPL_H
#define TRIAGE_TRIAGED_SETTINGS_IMPL_H

#include "triaged/settings.h"

enum { SOURCE_DEFAULTS, SOURCE_FILE, SOURCE_ENVIRONMENT, SOURCE_FLAGS };

/* Names a mistake, and goes on: there may be more. */
void settings_complain(struct settings *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void settings_complain_of(struct settings *s, const char *sentence); /* … of its first word */

/* Every setting that an engine declares; `at` is its place in s->engine_values. */
typedef void settings_each_fn(struct settings *s, const struct engine_kind *kind,
                              const struct engine_setting *setting, size_t at);
void settings_each_engine(struct settings *s, settings_each_fn *each);

/* TRIAGE_LOG_LEVEL, --log-level; of the file log_level. */
void settings_key_name(int source, const char *key, char out[80]);

typedef bool parse_fn(const char *text, void *field, size_t size);

struct setting {
    const char *key;
    const char *section; /* whose lines it takes, too; or NULL */
    const char *value;   /* the default */
    parse_fn *parse;     /* NULL: a list */
    size_t offset, size;
    const char *takes;
    const char *meaning;
};

/* Every setting, in the order of --help; NULL behind the last. */
const struct setting *settings_at(size_t i);

/* settings_help.c */
void settings_help(void);

/* settings_whole.c */
void settings_finish(struct settings *s);

#endif
