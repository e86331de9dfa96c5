#include "term/progress.h"

#include "base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DRAW_US   100000
#define BAR_WIDTH 30

void progress_init(struct progress *p, bool wanted, int64_t bytes_total)
{
    *p = (struct progress){.shown = wanted && isatty(STDERR_FILENO),
                           .bytes_total = bytes_total,
                           .started_us = clock_mono_us()};
}

static void draw_bar(const struct progress *p)
{
    if (p->bytes_total <= 0)
        return;
    double share = (double)p->bytes / (double)p->bytes_total;
    int full = share >= 1 ? BAR_WIDTH : (int)(share * BAR_WIDTH);
    char bar[BAR_WIDTH + 1];
    memset(bar, '.', BAR_WIDTH);
    memset(bar, '#', (size_t)full);
    bar[BAR_WIDTH] = '\0';
    fprintf(stderr, "[%s] %3d%%  ", bar, (int)(share * 100));
}

void progress_update(struct progress *p, int64_t bytes, int64_t messages)
{
    p->bytes = bytes;
    p->messages = messages;
    uint64_t now = clock_mono_us();
    if (!p->shown || now - p->drawn_us < DRAW_US)
        return;
    p->drawn_us = now;
    double seconds = (double)(now - p->started_us) / 1e6;
    fputc('\r', stderr);
    draw_bar(p);
    if (!p->hide_bytes)
        fprintf(stderr, "%.1f MiB  ", (double)bytes / 1048576);
    if (!p->hide_messages)
        fprintf(stderr, "%" PRId64 " messages  %.0f/s", messages,
                seconds > 0 ? (double)messages / seconds : 0);
    fputs("\x1b[K", stderr);
    fflush(stderr);
}

void progress_wipe(const struct progress *p)
{
    if (p->shown && p->drawn_us != 0)
        fputs("\r\x1b[K", stderr);
}
