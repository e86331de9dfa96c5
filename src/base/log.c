#include "base/log.h"
#include "base/clock.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static _Atomic int threshold = LOG_INFO;
static const char *const names[] = {"error", "warn", "info", "debug"};

void log_set_level(enum log_level level)
{
    atomic_store(&threshold, (int)level);
}

const char *log_level_name(enum log_level level)
{
    return names[level];
}

bool log_wants(enum log_level level)
{
    return (int)level <= atomic_load_explicit(&threshold, memory_order_relaxed);
}

bool log_level_parse(const char *name, enum log_level *level)
{
    for (int i = 0; i < (int)(sizeof(names) / sizeof(names[0])); i++) {
        if (strcmp(name, names[i]) == 0) {
            *level = (enum log_level)i;
            return true;
        }
    }
    return false;
}

void log_event(enum log_level level, const char *message, const char *keys, ...)
{
    if (!log_wants(level))
        return;
    char line[1024], when[TIME_TEXT_MAX];
    time_format_ms(clock_now().wall_ms, when);
    int used = snprintf(line, sizeof(line) - 1, "ts=%s level=%s msg=\"%s\"%s", when, names[level],
                        message, *keys ? " " : "");
    va_list args;
    va_start(args, keys);
    int more = vsnprintf(line + used, sizeof(line) - 1 - (size_t)used, keys, args);
    va_end(args);
    size_t len = (size_t)used + (more > 0 ? (size_t)more : 0);
    if (len > sizeof(line) - 2)
        len = sizeof(line) - 2;
    line[len++] = '\n';
    /* One write, so that lines of several threads do not mix. */
    if (write(STDERR_FILENO, line, len) < 0)
        return;
}

char *log_plain(char *text)
{
    for (char *at = text; *at; at++) {
        if (*at == '"')
            *at = '\'';
        else if ((unsigned char)*at < ' ')
            *at = ' ';
    }
    return text;
}
