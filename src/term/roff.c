#include "term/roff.h"

#include "base/buf.h"
#include "base/utf8.h"
#include "term/args.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#ifndef TRIAGE_VERSION
#define TRIAGE_VERSION "dev"
#endif

/* A character beyond ASCII. Its length; 0 when it is none. */
static size_t put_wide(FILE *to, const char *text, size_t left)
{
    size_t len = (unsigned char)text[0] < 0x80 ? 0 : utf8_sequence(text, left);
    unsigned code = len ? (unsigned char)text[0] & (0x7fu >> len) : 0;
    for (size_t i = 1; i < len; i++)
        code = code << 6 | ((unsigned char)text[i] & 0x3f);
    if (len > 0)
        fprintf(to, "\\[u%04X]", code);
    return len;
}

static void put(FILE *to, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        bool begins = i == 0 || text[i - 1] == '\n';
        size_t wide = put_wide(to, text + i, len - i);
        if (wide > 0) {
            i += wide - 1;
            continue;
        }
        if (begins && (text[i] == '.' || text[i] == '\''))
            fputs("\\&", to);
        if (text[i] == '\\')
            fputs("\\e", to);
        else if (text[i] == '-')
            fputs("\\-", to);
        else if (text[i] == '\'' || text[i] == '`' || text[i] == '^' || text[i] == '~')
            fputs(text[i] == '\''  ? "\\(aq"
                  : text[i] == '`' ? "\\(ga"
                  : text[i] == '^' ? "\\(ha"
                                   : "\\(ti",
                  to);
        else
            fputc(text[i], to);
    }
}

static void puts_roff(FILE *to, const char *text)
{
    put(to, text, strlen(text));
}

void roff_head(FILE *to, const char *name, int section, const char *about)
{
    fprintf(to, ".TH \"");
    for (const char *at = name; *at; at++)
        fputc(*at == '-' ? '-' : toupper((unsigned char)*at), to);
    fprintf(to, "\" %d \"\" \"Triage " TRIAGE_VERSION "\" \"Triage\"\n.SH NAME\n", section);
    puts_roff(to, name);
    fputs(" \\- ", to);
    puts_roff(to, about);
    fputc('\n', to);
}

void roff_section(FILE *to, const char *title)
{
    fputs(".SH ", to);
    puts_roff(to, title);
    fputc('\n', to);
}

void roff_subsection(FILE *to, const char *title)
{
    fputs(".SS \"", to);
    puts_roff(to, title);
    fputs("\"\n", to);
}

/* Lines of text from `from` on that are of one kind, with their newlines. */
static size_t run_len(const char *from)
{
    bool example = *from == ' ';
    size_t len = 0;
    while (from[len] && from[len] != '\n' && (from[len] == ' ') == example) {
        len += strcspn(from + len, "\n");
        len += from[len] == '\n';
    }
    return len;
}

static void put_example(FILE *to, const char *text, size_t len)
{
    fputs(".PP\n.nf\n", to);
    put(to, text, len);
    if (len > 0 && text[len - 1] != '\n')
        fputc('\n', to);
    fputs(".fi\n", to);
}

void roff_text(FILE *to, const char *text)
{
    while (*text) {
        size_t len = run_len(text);
        if (*text == '\n') {
            text++;
            fputs(*text && *text != ' ' && *text != '\n' ? ".PP\n" : "", to);
        } else if (*text == ' ') {
            put_example(to, text, len);
            fputs(text[len] && text[len] != '\n' ? ".PP\n" : "", to);
        } else {
            put(to, text, len);
            fputs(len > 0 && text[len - 1] != '\n' ? "\n" : "", to);
        }
        text += len;
    }
}

void roff_example(FILE *to, const char *text)
{
    put_example(to, text, strlen(text));
}

void roff_item(FILE *to, const char *term, const char *value, const char *meaning)
{
    fputs(".TP\n\\fB", to);
    puts_roff(to, term);
    fputs("\\fR", to);
    if (value) {
        fputs(" \\fI", to);
        puts_roff(to, value);
        fputs("\\fR", to);
    }
    fputc('\n', to);
    roff_text(to, meaning);
}

/* Commands */

static void put_option(FILE *to, const struct arg_option *o)
{
    struct buf term = {0};
    if (o->letter)
        buf_printf(&term, "-%c, ", o->letter);
    buf_printf(&term, "--%s", o->name);
    roff_item(to, buf_cstr(&term), o->value, o->help);
    buf_fini(&term);
}

static void put_usage(FILE *to, const struct arg_spec *spec)
{
    fputs("\\fBtriage ", to);
    size_t words = strcspn(spec->usage, "ABCDEFGHIJKLMNOPQRSTUVWXYZ[-");
    put(to, spec->usage, words);
    fputs("\\fR", to);
    puts_roff(to, spec->usage + words);
    fputc('\n', to);
}

static bool has_options(const struct arg_spec *spec)
{
    return spec->options && spec->options[0].name;
}

/* "triage-queue-set" */
static void put_name(struct buf *name, const struct arg_spec *spec)
{
    buf_puts(name, "triage");
    for (const char *at = spec->usage; *at >= 'a' && *at <= 'z';) {
        size_t len = strcspn(at, " ");
        buf_putc(name, '-');
        buf_put(name, at, len);
        at += len + (at[len] == ' ');
    }
}

/* The first sentence of what it is about, as a line of its own. */
static void put_summary(struct buf *line, const char *about)
{
    const char *end = about;
    while (*end &&
           !((*end == '.' || *end == ':') && (end[1] == '\0' || isspace((unsigned char)end[1]))))
        end++;
    for (const char *at = about; at < end; at++)
        buf_putc(line, *at == '\n' ? ' ' : at == about ? (char)tolower((unsigned char)*at) : *at);
}

void roff_spec_part(FILE *to, const struct arg_spec *spec)
{
    put_usage(to, spec);
    fputs(".PP\n", to);
    roff_text(to, spec->about);
    for (const struct arg_option *o = spec->options; has_options(spec) && o->name; o++)
        put_option(to, o);
    if (spec->examples)
        roff_example(to, spec->examples);
}

void roff_spec_page(FILE *to, const struct arg_spec *spec)
{
    struct buf name = {0}, summary = {0};
    put_name(&name, spec);
    put_summary(&summary, spec->about);
    roff_head(to, buf_cstr(&name), 1, buf_cstr(&summary));
    roff_section(to, "SYNOPSIS");
    put_usage(to, spec);
    roff_section(to, "DESCRIPTION");
    roff_text(to, spec->about);
    roff_section(to, "OPTIONS");
    for (const struct arg_option *o = spec->options; has_options(spec) && o->name; o++)
        put_option(to, o);
    if (has_options(spec))
        fputs(".PP\n", to);
    roff_text(to, "Options that every command takes are in triage(1).");
    if (spec->examples) {
        roff_section(to, "EXAMPLES");
        roff_example(to, spec->examples);
    }
    roff_section(to, "SEE ALSO");
    roff_text(to, "triage(1), triaged(8)");
    buf_fini(&name);
    buf_fini(&summary);
}
