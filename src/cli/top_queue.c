/* One queue in `triage top`: its numbers, and its levels with depth, oldest age and share. */
#include "cli/top.h"

#include <stdio.h>

#define COLUMN_COUNT 6
#define DEAD_COLUMN  5
#define NAME_MIN     8

static void put_number(struct buf *out, const char *name, int64_t value)
{
    char text[32];
    top_count_text(value, 9, text);
    buf_printf(out, "%s %s  ", name, text);
}

static void put_rate(struct buf *out, const char *name, double value)
{
    char text[32];
    top_rate_text(value, text);
    buf_printf(out, "%s %s/s  ", name, text);
}

static void draw_line(struct screen *s, int row, struct buf *line)
{
    screen_put(s, row, 0, s->cols, SCREEN_PLAIN, line->data, line->len);
    buf_clear(line);
}

static void draw_facts(const struct top *t, struct screen *s, int row)
{
    const struct top_queue *q = &t->detail;
    struct buf line = {0};
    screen_puts(s, row, 0, s->cols, SCREEN_BOLD, t->queue);
    if (q->row.is_paused)
        screen_put_right(s, row, s->cols - 8, 8, SCREEN_YELLOW, "PAUSED");
    put_number(&line, "ready", q->row.ready);
    put_number(&line, "scheduled", q->row.scheduled);
    put_number(&line, "in flight", q->row.in_flight);
    put_number(&line, "dead", q->row.dead);
    put_number(&line, "waiting consumers", q->row.waiting);
    draw_line(s, row + 1, &line);
    put_rate(&line, "in", q->row.in_rate);
    put_rate(&line, "out", q->row.out_rate);
    put_rate(&line, "claims", q->claims_per_second);
    put_number(&line, "aged", q->aged);
    put_number(&line, "late", q->late);
    if (q->is_configured)
        buf_puts(&line, q->is_weighted ? "policy weighted" : "policy strict");
    draw_line(s, row + 2, &line);
    buf_fini(&line);
}

static int columns_that_fit(const struct screen *s)
{
    int count = (s->cols - NAME_MIN) / top_number_width(s);
    return count < 0 ? 0 : count > COLUMN_COUNT ? COLUMN_COUNT : count;
}

static void draw_cells(struct screen *s, int row, unsigned dead_style, const char *name,
                       const char *const texts[COLUMN_COUNT])
{
    int count = columns_that_fit(s), width = top_number_width(s), at = s->cols - count * width;
    screen_puts(s, row, 0, at, SCREEN_PLAIN, name);
    for (int i = 0; i < count; i++)
        screen_put_right(s, row, at + i * width + 1, width - 1,
                         i == DEAD_COLUMN ? dead_style : SCREEN_PLAIN, texts[i]);
}

static void draw_level(const struct top_queue *q, struct screen *s, int row, int i)
{
    const struct top_level *level = &q->levels[i];
    char ready[32], oldest[32] = "-", share[32] = "-", scheduled[32], flight[32], dead[32];
    double part = top_share(q, i);
    int width = top_number_width(s) - 1;
    top_count_text(level->ready, width, ready);
    top_count_text(level->scheduled, width, scheduled);
    top_count_text(level->in_flight, width, flight);
    top_count_text(level->dead, width, dead);
    if (level->ready > 0) {
        top_age_text(level->oldest_s, oldest);
        if (part >= 0)
            snprintf(share, sizeof(share), "%.1f%%", part * 100);
    }
    draw_cells(s, row, level->dead > 0 ? SCREEN_RED : SCREEN_PLAIN, level->name,
               (const char *const[]){ready, oldest, share, flight, scheduled, dead});
}

void top_draw_queue(struct top *t, struct screen *s, int row, int rows)
{
    static const char *const heads[] = {"READY", "OLDEST", "SHARE", "FLIGHT", "SCHED", "DEAD"};
    const struct top_queue *q = &t->detail;
    int room = rows - 4;
    int from = room > 0 && t->level >= room ? t->level - room + 1 : 0; /* the cursor is seen */
    draw_facts(t, s, row);
    if (q->at_ms == 0)
        return;
    draw_cells(s, row + 3, SCREEN_PLAIN, "LEVEL", heads);
    screen_style(s, row + 3, SCREEN_REVERSE);
    for (int i = from; i < q->level_count && i - from < room; i++) {
        draw_level(q, s, row + 4 + i - from, i);
        if (i == t->level)
            screen_style(s, row + 4 + i - from, SCREEN_REVERSE);
    }
}
