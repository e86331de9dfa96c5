/* What a shell may complete a word of a command line to, told by the same tables as --help.
 *
 * A shell's script (packaging/completion) runs the program with --complete=WORD and the words
 * before that one. The answer is lines of a value, a tab and what it means; the line ":files" asks
 * the shell for the names of files. Every value begins with WORD, and none has a character that a
 * shell would take for something else. */
#ifndef TRIAGE_TERM_COMPLETE_H
#define TRIAGE_TERM_COMPLETE_H

#include <stdbool.h>

struct arg_spec;

#define COMPLETE_FLAG "--complete="

/* The word under way, when `argument` asks for it; else NULL. */
const char *complete_wanted(const char *argument);

/* Prints the value if it begins with the word under way. */
void complete_offer(const char *word, const char *value, const char *meaning);
void complete_files(void);

/* Completes a command's options and operands. `argv` has the words before the one under way,
 * without the command's own name. */
void complete_spec(const struct arg_spec *spec, const char *word, int argc, char **argv);

/* Who offers the names of queues; without one there are none. */
typedef void complete_queues(const void *ctx, const char *word);
void complete_ask(complete_queues *ask, const void *ctx);

#endif
