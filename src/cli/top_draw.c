/* The screen of `triage top`: head, list, last line. */
#include "base/clock.h"
#include "cli/top.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define NAME_MIN   20 /* columns of a name; on a narrow screen numbers are left out for them */
#define MARK_WIDTH 2  /* of what stands before a name */
#define RATE_WIDTH 6

/* Columns of a number with the blank before it, on a wide screen and on a narrow one. */
#define WIDE_NUMBER   11
#define NARROW_NUMBER 7

/* Numbers */

void top_count_text(int64_t count, int width, char out[32])
{
    static const char units[] = "KMGTP";
    int len = snprintf(out, 32, "%" PRId64, count);
    double value = (double)count;
    for (int i = 0; len > width && units[i]; i++) {
        value /= 1000;
        len = snprintf(out, 32, "%.*f%c", value < 10 ? 2 : value < 100 ? 1 : 0, value, units[i]);
    }
}

void top_age_text(int64_t seconds, char out[32])
{
    long long s = seconds;
    if (s < 60)
        snprintf(out, 32, "%llds", s);
    else if (s < 3600)
        snprintf(out, 32, "%lldm%02lld", s / 60, s % 60);
    else if (s < 86400)
        snprintf(out, 32, "%lldh%02lld", s / 3600, s / 60 % 60);
    else
        snprintf(out, 32, "%lldd%02lldh", s / 86400, s / 3600 % 24);
}

void top_rate_text(double per_second, char out[32])
{
    if (per_second < 0)
        snprintf(out, 32, "-");
    else if (per_second < 100)
        snprintf(out, 32, "%.1f", per_second);
    else
        top_count_text((int64_t)(per_second + 0.5), RATE_WIDTH, out);
}

int top_number_width(const struct screen *s)
{
    return s->cols >= 110 ? WIDE_NUMBER : NARROW_NUMBER;
}

/* Columns: the numbers of a row, with the order that each stands for. The last ones are left out
 * first where there is little room. */

typedef void column_text(const struct top_row *row, int width, char out[32]);

static void text_ready(const struct top_row *row, int width, char out[32])
{
    top_count_text(row->ready, width, out);
}

static void text_scheduled(const struct top_row *row, int width, char out[32])
{
    top_count_text(row->scheduled, width, out);
}

static void text_in_flight(const struct top_row *row, int width, char out[32])
{
    top_count_text(row->in_flight, width, out);
}

static void text_dead(const struct top_row *row, int width, char out[32])
{
    top_count_text(row->dead, width, out);
}

static void text_oldest(const struct top_row *row, int width, char out[32])
{
    (void)width;
    if (row->ready > 0)
        top_age_text(row->oldest_s, out);
    else
        snprintf(out, 32, "-");
}

static void text_in(const struct top_row *row, int width, char out[32])
{
    (void)width;
    top_rate_text(row->in_rate, out);
}

static void text_out(const struct top_row *row, int width, char out[32])
{
    (void)width;
    top_rate_text(row->out_rate, out);
}

static void text_waiting(const struct top_row *row, int width, char out[32])
{
    top_count_text(row->waiting, width, out);
}

static const struct top_column {
    const char *head;
    const char *order; /* the server's word; NULL: nothing can be put in order by it */
    column_text *text;
} columns[] = {
    {"DEAD", "dead", text_dead},
    {"OLDEST", "oldest", text_oldest},
    {"READY", "ready", text_ready},
    {"FLIGHT", "in_flight", text_in_flight},
    {"IN/S", NULL, text_in},
    {"OUT/S", NULL, text_out},
    {"SCHED", "scheduled", text_scheduled},
    {"WAIT", NULL, text_waiting},
};

#define COLUMN_COUNT ((int)(sizeof(columns) / sizeof(columns[0])))

static int columns_that_fit(const struct screen *s)
{
    int count = (s->cols - MARK_WIDTH - NAME_MIN) / top_number_width(s);
    return count < 0 ? 0 : count > COLUMN_COUNT ? COLUMN_COUNT : count;
}

int top_list_width(const struct top *t)
{
    size_t longest = NAME_MIN;
    for (size_t i = 0; i < t->page.count; i++)
        if (strlen(t->page.rows[i].name) > longest)
            longest = strlen(t->page.rows[i].name);
    return MARK_WIDTH + (int)longest + COLUMN_COUNT * WIDE_NUMBER;
}

/* The list */

static void draw_heads(const struct top *t, struct screen *s, int row)
{
    int count = columns_that_fit(s), width = top_number_width(s), at = s->cols - count * width;
    const char *order = top_orders[t->order].name;
    bool by_name = strcmp(order, "name") == 0;
    screen_puts(s, row, MARK_WIDTH, at - MARK_WIDTH, by_name ? SCREEN_BOLD : 0, "QUEUE");
    for (int i = 0; i < count; i++) {
        bool chosen = columns[i].order && strcmp(columns[i].order, order) == 0;
        screen_put_right(s, row, at + i * width + 1, width - 1, chosen ? SCREEN_BOLD : 0,
                         columns[i].head);
    }
    screen_style(s, row, SCREEN_REVERSE);
}

static unsigned column_style(const struct top_column *c, const struct top_row *row)
{
    return c->text == text_dead && row->dead > 0 ? SCREEN_RED : SCREEN_PLAIN;
}

static void draw_row(struct screen *s, int at_row, const struct top_row *row)
{
    int count = columns_that_fit(s), width = top_number_width(s), at = s->cols - count * width;
    unsigned style = row->is_paused ? SCREEN_YELLOW : SCREEN_PLAIN;
    screen_puts(s, at_row, 0, 1, style, row->is_paused ? "P" : " ");
    screen_puts(s, at_row, MARK_WIDTH, at - MARK_WIDTH, style, row->name);
    for (int i = 0; i < count; i++) {
        char text[32];
        columns[i].text(row, width - 1, text);
        screen_put_right(s, at_row, at + i * width + 1, width - 1, column_style(&columns[i], row),
                         text);
    }
}

static void draw_empty(const struct top *t, struct screen *s, int row)
{
    const char *text = t->page.at_ms == 0 ? "" : "There are no queues.";
    if (t->page.at_ms > 0 && (t->match[0] || t->o->prefix))
        text = "No queue has this in its name.";
    screen_puts(s, row, MARK_WIDTH, s->cols, SCREEN_DIM, text);
}

void top_draw_list(struct top *t, struct screen *s, int row, int rows)
{
    draw_heads(t, s, row);
    if (t->page.all.queues == 0)
        draw_empty(t, s, row + 1);
    for (int i = 0; i < rows - 1; i++) {
        const struct top_row *shown = top_row_at(t, t->first + i);
        if (shown == NULL)
            continue;
        draw_row(s, row + 1 + i, shown);
        if (t->first + i == t->cursor)
            screen_style(s, row + 1 + i, SCREEN_REVERSE);
    }
}

/* Head and last line */

static void put_clock(struct buf *out)
{
    time_t now = (time_t)(clock_now().wall_ms / 1000);
    struct tm local;
    char text[16];
    if (localtime_r(&now, &local) && strftime(text, sizeof(text), "%H:%M:%S", &local) > 0)
        buf_puts(out, text);
}

static void draw_title(const struct top *t, struct screen *s)
{
    struct buf left = {0}, right = {0};
    char every[32];
    if (t->o->interval_ms % 1000)
        snprintf(every, sizeof(every), "%" PRId64 "ms", t->o->interval_ms);
    else
        snprintf(every, sizeof(every), "%" PRId64 "s", t->o->interval_ms / 1000);
    buf_printf(&left, "triage top  %s  by %s%s", t->cli->server, top_orders[t->order].shown,
               t->reverse ? ", reversed" : "");
    if (t->match[0])
        buf_printf(&left, "  with \"%s\"", t->match);
    buf_printf(&right, "%s  every %s  ", t->frozen ? "FROZEN" : "", every);
    put_clock(&right);
    int room = s->cols - (int)right.len - 1;
    screen_put(s, 0, 0, room > 0 ? room : s->cols, SCREEN_BOLD, left.data, left.len);
    screen_put_right(s, 0, s->cols - (int)right.len, (int)right.len,
                     t->frozen ? SCREEN_CYAN : SCREEN_PLAIN, buf_cstr(&right));
    buf_fini(&left);
    buf_fini(&right);
}

static void put_count(struct buf *out, int64_t count, const char *what)
{
    char text[32];
    top_count_text(count, 9, text);
    buf_printf(out, "%s %s  ", text, what);
}

static void draw_sums(const struct top *t, struct screen *s)
{
    const struct top_row *all = &t->page.all;
    struct buf line = {0};
    char in[32], out[32];
    if (t->page.at_ms == 0)
        return;
    top_rate_text(all->in_rate, in);
    top_rate_text(all->out_rate, out);
    put_count(&line, all->queues, all->queues == 1 ? "queue" : "queues");
    if (all->paused > 0)
        put_count(&line, all->paused, "paused");
    put_count(&line, all->ready, "ready");
    put_count(&line, all->in_flight, "in flight");
    put_count(&line, all->dead, "dead");
    buf_printf(&line, "in %s/s  out %s/s", in, out);
    screen_put(s, 1, 0, s->cols, SCREEN_PLAIN, line.data, line.len);
    buf_fini(&line);
}

static const char *keys_of(const struct top *t)
{
    if (t->mode == MODE_QUEUE)
        return "Up/Down level  e escalate  p pause  r redrive  Esc back  ? help  q "
               "quit";
    return "Enter open  p pause  r redrive  <> order  / search  Space freeze  ? help  q quit";
}

static void put_target(const struct top *t, struct buf *out)
{
    const struct top_queue *q = &t->detail;
    if (t->level < q->level_count && t->target < q->level_count)
        buf_printf(out, "Escalate what is in %s to: < %s >  (arrows, Enter, Esc)",
                   q->levels[t->level].name, q->levels[t->target].name);
}

/* The most pressing of: a question, the server's absence, what came of the last thing, the keys. */
static void draw_last(const struct top *t, struct screen *s)
{
    struct buf line = {0};
    unsigned style = SCREEN_BOLD;
    if (t->prompt == PROMPT_CONFIRM) {
        top_act_question(t, &line);
    } else if (t->prompt == PROMPT_SEARCH) {
        buf_printf(&line, "Search: %s_", t->match);
    } else if (t->prompt == PROMPT_LEVEL) {
        put_target(t, &line);
    } else if (t->away.len > 0) {
        buf_put(&line, t->away.data, t->away.len);
        style = SCREEN_RED | SCREEN_BOLD;
    } else if (t->notice.len > 0) {
        buf_put(&line, t->notice.data, t->notice.len);
        style = t->is_bad ? SCREEN_RED | SCREEN_BOLD : SCREEN_GREEN;
    } else {
        buf_puts(&line, keys_of(t));
        style = SCREEN_DIM;
    }
    screen_put(s, s->rows - 1, 0, s->cols, style, line.data, line.len);
    buf_fini(&line);
}

static void draw_help(struct screen *s)
{
    static const char *const lines[] = {
        "Keys of triage top",
        "",
        "Up Down j k   move            PgUp PgDn Home End   by pages, to the ends",
        "Enter Right   open a queue    Esc Left             back to the list",
        "p  pause or resume            r  make the dead letters ready again",
        "e  escalate a level's messages to another level (in a queue)",
        "/  search in the names; Esc ends it",
        "< >  another order; 1 trouble  2 name  3 ready  4 dead  5 age  6 depth",
        "     7 claims/s  8 in flight  9 scheduled;  i  inverts it",
        "Space  freeze what is shown   Ctrl-L  draw again   Ctrl-Z  suspend   q  quit",
        "",
        "trouble: the most dead letters, then the oldest ready message, the greatest",
        "depth, the most in flight.  P: the queue is paused.",
        "OLDEST  age of the oldest ready message     WAIT  consumers that wait",
        "IN/S OUT/S  enqueued and acknowledged, a second, since the look before",
        "SHARE  of the next claims, while no other level gets messages",
        "",
        "Any key goes on.",
    };
    for (int i = 0; i < (int)(sizeof(lines) / sizeof(lines[0])); i++)
        screen_puts(s, i, 1, s->cols - 1, i == 0 ? SCREEN_BOLD : SCREEN_PLAIN, lines[i]);
}

static void dim_old_numbers(struct screen *s)
{
    for (int row = 1; row < s->rows - 1; row++)
        screen_style(s, row, SCREEN_DIM);
}

int top_list_head_rows(void)
{
    return 3; /* title, sums, heads */
}

void top_draw(struct top *t, struct screen *s)
{
    screen_clear(s);
    if (t->prompt == PROMPT_HELP) {
        draw_help(s);
        return;
    }
    draw_title(t, s);
    if (t->mode == MODE_LIST) {
        draw_sums(t, s);
        top_draw_list(t, s, top_list_head_rows() - 1, s->rows - top_list_head_rows());
    } else {
        top_draw_queue(t, s, 1, s->rows - 2);
    }
    if (t->away.len > 0)
        dim_old_numbers(s);
    draw_last(t, s);
}
