/* Manual pages, as man(7) writes them. Text is plain and comes from the tables that --help prints:
 * lines that begin with a blank are examples and stay as they are, the others are filled. */
#ifndef TRIAGE_TERM_ROFF_H
#define TRIAGE_TERM_ROFF_H

#include <stdio.h>

struct arg_spec;

/* The head of a page: triage-claim(1), "take the most urgent messages". */
void roff_head(FILE *to, const char *name, int section, const char *about);
void roff_section(FILE *to, const char *title);
void roff_subsection(FILE *to, const char *title);
void roff_text(FILE *to, const char *text);
void roff_example(FILE *to, const char *text); /* as it is, line by line */

/* A term in bold and what it means. The value of an option, or NULL, is in italics. */
void roff_item(FILE *to, const char *term, const char *value, const char *meaning);

/* What a command's --help says. As a page of its own, or as a part of another one. */
void roff_spec_page(FILE *to, const struct arg_spec *spec);
void roff_spec_part(FILE *to, const struct arg_spec *spec);

#endif
