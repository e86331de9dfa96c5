/* One line per event on standard error, in key=value form:
 *   ts=2026-04-09T12:00:00.000Z level=warn msg="slow sender closed" peer=127.0.0.1:4242
 * error: someone must act. warn: we went on, and the text says so. info: births,
 * deaths, configuration. Never a payload, never a credential. Any thread may log. */
#ifndef TRIAGE_BASE_LOG_H
#define TRIAGE_BASE_LOG_H

#include <stdbool.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_set_level(enum log_level level);
const char *log_level_name(enum log_level level);
bool log_wants(enum log_level level); /* whether a line of this level is written */
bool log_level_parse(const char *name, enum log_level *level); /* error, warn, info, debug */

/* `message` is constant text; `keys` is a printf format of key=value pairs, or "". */
void log_event(enum log_level level, const char *message, const char *keys, ...)
    __attribute__((format(printf, 3, 4)));

/* Makes foreign text fit to stand in quotes: its own quotes and line ends are changed in place. */
char *log_plain(char *text);

#define log_error(message, ...) log_event(LOG_ERROR, message, __VA_ARGS__)
#define log_warn(message, ...)  log_event(LOG_WARN, message, __VA_ARGS__)
#define log_info(message, ...)  log_event(LOG_INFO, message, __VA_ARGS__)
#define log_debug(message, ...) log_event(LOG_DEBUG, message, __VA_ARGS__)

#endif
