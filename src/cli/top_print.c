/* `triage top` for scripts: one look as text, or a line of JSON for each look. */
#include "base/clock.h"
#include "cli/top.h"

#include <poll.h>
#include <stdio.h>

static void sleep_until(int64_t mono_ms)
{
    for (int64_t left; (left = mono_ms - clock_now().mono_ms) > 0;)
        poll(NULL, 0, (int)left);
}

/* CLI_DONE when there is an answer; else t->look says why not. */
static int look(struct top *t)
{
    top_list_ask(t, &t->look, 0, t->o->limit);
    client_try(&t->look, "GET", NULL);
    if (!client_succeeded(&t->look) || !t->look.is_json)
        return t->look.http == 0 ? CLI_UNREACHED : CLI_REFUSED;
    top_list_read(t, &t->look, 0, clock_now().mono_ms);
    return CLI_DONE;
}

/* Rates need two looks. */
static int look_twice(struct top *t)
{
    int status = look(t);
    if (status == CLI_DONE && t->o->interval_ms > 0) {
        sleep_until(t->page.at_ms + t->o->interval_ms);
        status = look(t);
    }
    return status == CLI_DONE ? status : client_complain(&t->look);
}

/* JSON: what the server said of a queue, and the rates in front. */

static void put_rate(struct buf *out, const char *name, double rate)
{
    if (rate < 0)
        buf_printf(out, "\"%s\":null,", name);
    else
        buf_printf(out, "\"%s\":%.3f,", name, rate);
}

static void put_row(struct buf *out, const struct top_row *row)
{
    buf_putc(out, '{');
    put_rate(out, "in_per_second", row->in_rate);
    put_rate(out, "out_per_second", row->out_rate);
    if (row->raw_len <= 2)
        out->len--; /* an empty object: no comma */
    buf_put(out, row->raw + 1, row->raw_len - 1);
}

static void put_page(struct buf *out, const struct top_page *page)
{
    buf_puts(out, ",\"all\":");
    put_row(out, &page->all);
    buf_puts(out, ",\"queues\":[");
    for (size_t i = 0; i < page->count; i++) {
        if (i > 0)
            buf_putc(out, ',');
        put_row(out, &page->rows[i]);
    }
    buf_putc(out, ']');
}

static void put_error(struct buf *out, const struct client *c)
{
    struct buf why = {0};
    client_explain(c, &why);
    buf_puts(out, ",\"error\":");
    json_put_string(out, why.data, utf8_valid(why.data, why.len) ? why.len : 0);
    buf_fini(&why);
}

static bool print_line(const struct top *t, int status)
{
    struct buf line = {0};
    char at[TIME_TEXT_MAX];
    time_format_ms(clock_now().wall_ms, at);
    buf_printf(&line, "{\"at\":\"%s\"", at);
    if (status == CLI_DONE)
        put_page(&line, &t->page);
    else
        put_error(&line, &t->look);
    buf_puts(&line, "}\n");
    bool written = fwrite(line.data, 1, line.len, stdout) == line.len && fflush(stdout) == 0;
    buf_fini(&line);
    return written;
}

/* Until somebody stops it, or nobody reads any more. */
int top_stream(struct top *t)
{
    int64_t next_ms = clock_now().mono_ms;
    for (;;) {
        if (!print_line(t, look(t)))
            return CLI_REFUSED;
        int64_t now_ms = clock_now().mono_ms;
        next_ms += t->o->interval_ms;
        if (next_ms < now_ms)
            next_ms = now_ms;
        sleep_until(next_ms);
    }
}

/* Text: as wide as the longest name asks for. */

static void print_text(struct top *t)
{
    struct screen s;
    int rows = top_list_head_rows() + (int)t->page.count + 1;
    screen_init(&s, rows, top_list_width(t));
    t->cursor = -1;
    t->page_rows = rows;
    top_draw(t, &s);
    for (int row = 0; row < s.rows - 1; row++) {
        struct buf line = {0};
        screen_text(&s, row, &line);
        printf("%s\n", buf_cstr(&line));
        buf_fini(&line);
    }
    screen_fini(&s);
}

int top_once(struct top *t)
{
    int status = look_twice(t);
    if (status == CLI_DONE && t->cli->json)
        print_line(t, status);
    else if (status == CLI_DONE)
        print_text(t);
    return status;
}
