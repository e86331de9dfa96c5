#include "simulate/plot.h"

#include "simulate/human.h"

#include <math.h>

#define WIDTH        860
#define HEIGHT       440
#define LEFT         84
#define RIGHT        (WIDTH - 24)
#define TOP          104 /* below one row of legend */
#define ROW          18
#define NAME_SHOWN   24 /* bytes of a level's name */
#define BOTTOM       (HEIGHT - 52)
#define TICKS_MAX    7
#define DECADES_LOG  2   /* from this span of values on the scale is logarithmic */
#define LEGEND_EM    7.2 /* about the width of a character */
#define COLOUR_COUNT 8

/* Told apart on white and on black, by people who do not see all colours too. */
static const char *const colours[COLOUR_COUNT] = {"#d6455d", "#e08a1e", "#2e9e6b", "#3b82d0",
                                                  "#9061d6", "#8a7a2c", "#1fa3b5", "#b65a9e"};

/* Marks of a scale, in milliseconds. */
static const int64_t log_marks[] = {1,      10,      100,      1000,     10000,     60000,
                                    600000, 3600000, 21600000, 86400000, 864000000, 8640000000};
static const int64_t steps[] = {1,          2,          5,         10,        20,        50,
                                100,        200,        500,       1000,      2000,      5000,
                                10000,      15000,      30000,     60000,     120000,    300000,
                                600000,     900000,     1800000,   3600000,   7200000,   10800000,
                                21600000,   43200000,   86400000,  172800000, 432000000, 864000000,
                                1728000000, 4320000000, 8640000000};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct plot_frame {
    struct buf *svg;
    const struct workload *workload;
    const struct simulation *sim;
    bool log;
    double low_ms, high_ms;
    int64_t duration_ms;
    double top;
};

static bool drawn(const struct plot_frame *f, int rank)
{
    return f->sim->levels[rank].arrived > 0;
}

static double x_of(const struct plot_frame *f, double ms)
{
    return LEFT + ms / (double)f->duration_ms * (RIGHT - LEFT);
}

static double y_of(const struct plot_frame *f, double ms)
{
    double at = ms < f->low_ms ? f->low_ms : ms > f->high_ms ? f->high_ms : ms;
    double share = f->log ? log(at / f->low_ms) / log(f->high_ms / f->low_ms)
                          : (at - f->low_ms) / (f->high_ms - f->low_ms);
    return BOTTOM - share * (BOTTOM - f->top);
}

/* Text of a name: what XML would take for markup is escaped, what it does not allow is dropped. */
static void put_text(struct buf *svg, const char *text, size_t max)
{
    for (const char *from = text; *text; text++) {
        bool whole = (*text & 0xc0) != 0x80; /* the start of a character */
        if (whole && (size_t)(text - from) >= max)
            return;
        if (*text == '&')
            buf_lit(svg, "&amp;");
        else if (*text == '<')
            buf_lit(svg, "&lt;");
        else if ((unsigned char)*text >= ' ')
            buf_putc(svg, *text);
    }
}

/* Scales */

static void widen(double *low, double *high, int64_t ms)
{
    double value = ms < 1 ? 1 : (double)ms;
    *low = value < *low ? value : *low;
    *high = value > *high ? value : *high;
}

static void scale(struct plot_frame *f)
{
    double low = INFINITY, high = 0;
    for (int rank = 0; rank < f->sim->level_count; rank++) {
        const struct simulation_level *level = &f->sim->levels[rank];
        for (int i = 0; drawn(f, rank) && i < SIMULATION_POINTS; i++) {
            const struct simulation_point *p = &level->points[i];
            if (p->p50_ms >= 0)
                widen(&low, &high, p->p50_ms);
            if (p->longest_ms >= 0)
                widen(&low, &high, p->longest_ms);
        }
        if (drawn(f, rank) && f->workload->queue.levels[rank].max_wait_ms > 0)
            widen(&low, &high, f->workload->queue.levels[rank].max_wait_ms);
    }
    if (high == 0)
        low = high = 1;
    f->log = high / low >= pow(10, DECADES_LOG);
    f->low_ms = 0;
    f->high_ms = high < 10 ? 10 : high * 1.08;
    if (!f->log)
        return;
    f->high_ms = high * 1.5;
    f->low_ms = 1;
    for (size_t i = 0; i < COUNT(log_marks) && (double)log_marks[i] <= low; i++)
        f->low_ms = (double)log_marks[i];
}

static int64_t step_for(double span_ms)
{
    for (size_t i = 0; i < COUNT(steps); i++) {
        if (span_ms / (double)steps[i] <= TICKS_MAX)
            return steps[i];
    }
    return steps[COUNT(steps) - 1];
}

static void mark_y(struct plot_frame *f, int64_t ms)
{
    char text[HUMAN_DURATION_MAX];
    double y = y_of(f, (double)ms);
    const char *at_most = f->log && (double)ms <= f->low_ms && ms == 1 ? "≤ " : "";
    buf_printf(f->svg, "<path class=\"g\" d=\"M%d %.1fH%d\"/>", LEFT, y, RIGHT);
    buf_printf(f->svg, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s%s</text>\n", LEFT - 8,
               y + 4, at_most, ms == 0 ? "0" : human_duration(ms, text));
}

static void mark_x(struct plot_frame *f, int64_t ms)
{
    char text[HUMAN_DURATION_MAX];
    double x = x_of(f, (double)ms);
    buf_printf(f->svg, "<path class=\"g\" d=\"M%.1f %dV%d\"/>", x, BOTTOM, BOTTOM + 5);
    buf_printf(f->svg, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x,
               BOTTOM + 20, ms == 0 ? "0" : human_duration(ms, text));
}

static void put_axes(struct plot_frame *f)
{
    int64_t step = step_for(f->high_ms - f->low_ms);
    if (f->log) {
        for (size_t i = 0; i < COUNT(log_marks); i++) {
            if ((double)log_marks[i] >= f->low_ms && (double)log_marks[i] <= f->high_ms)
                mark_y(f, log_marks[i]);
        }
    } else {
        for (int64_t ms = 0; (double)ms <= f->high_ms; ms += step)
            mark_y(f, ms);
    }
    step = step_for((double)f->duration_ms);
    for (int64_t ms = 0; ms <= f->duration_ms; ms += step)
        mark_x(f, ms);
    buf_printf(f->svg, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">simulated time</text>\n", RIGHT,
               BOTTOM + 40);
}

/* Levels */

static double point_x(const struct plot_frame *f, int i)
{
    return x_of(f, ((double)i + 0.5) * (double)f->duration_ms / SIMULATION_POINTS);
}

static int64_t median_of(const struct simulation_point *p)
{
    return p->p50_ms;
}

static int64_t longest_of(const struct simulation_point *p)
{
    return p->longest_ms;
}

typedef int64_t point_value(const struct simulation_point *p);

/* A line through the points that have a value; it breaks where one has none. */
static void put_line(struct plot_frame *f, const struct simulation_level *level, point_value *value,
                     const char *style)
{
    int run = 0;
    buf_printf(f->svg, "<path class=\"%s\" d=\"", style);
    for (int i = 0; i < SIMULATION_POINTS; i++) {
        int64_t ms = value(&level->points[i]);
        if (ms < 0 && run == 1)
            buf_lit(f->svg, "h0"); /* a single point is a dot */
        run = ms < 0 ? 0 : run + 1;
        if (ms >= 0)
            buf_printf(f->svg, "%s%.1f %.1f", run > 1 ? " " : "M", point_x(f, i),
                       y_of(f, (double)ms));
    }
    buf_lit(f->svg, "\"/>\n");
}

/* What lies between the two lines, as far as both are there. */
static void put_band(struct plot_frame *f, const struct simulation_level *level)
{
    buf_lit(f->svg, "<path class=\"b\" d=\"");
    for (int from = 0, to; from < SIMULATION_POINTS; from = to + 1) {
        for (to = from; to < SIMULATION_POINTS && level->points[to].p50_ms >= 0;)
            to++;
        for (int i = from; i < to; i++)
            buf_printf(f->svg, "%s%.1f %.1f", i == from ? "M" : " ", point_x(f, i),
                       y_of(f, (double)level->points[i].longest_ms));
        for (int i = to; i-- > from;)
            buf_printf(f->svg, " %.1f %.1f", point_x(f, i),
                       y_of(f, (double)level->points[i].p50_ms));
        if (to > from)
            buf_putc(f->svg, 'z');
    }
    buf_lit(f->svg, "\"/>\n");
}

static void put_level(struct plot_frame *f, int rank)
{
    const struct simulation_level *level = &f->sim->levels[rank];
    int64_t promise_ms = f->workload->queue.levels[rank].max_wait_ms;
    buf_printf(f->svg, "<g class=\"l%d\">\n", rank % COLOUR_COUNT);
    put_band(f, level);
    put_line(f, level, longest_of, "m");
    put_line(f, level, median_of, "p");
    if (promise_ms > 0) {
        double y = y_of(f, (double)promise_ms);
        buf_printf(f->svg, "<path class=\"w\" d=\"M%d %.1fH%d\"/>\n", LEFT, y, RIGHT);
        buf_printf(f->svg, "<text class=\"c\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">max_wait ",
                   RIGHT - 4, y - 5);
        put_text(f->svg, level->name, NAME_SHOWN);
        buf_lit(f->svg, "</text>\n");
    }
    buf_lit(f->svg, "</g>\n");
}

static double name_width(const char *name)
{
    size_t len = strlen(name);
    return 44 + (double)(len < NAME_SHOWN ? len : NAME_SHOWN) * LEGEND_EM;
}

/* As many rows as the names need; the frame starts below them. */
static void put_legend(struct plot_frame *f)
{
    double x = LEFT, y = 78;
    for (int rank = 0; rank < f->sim->level_count; rank++) {
        const char *name = f->sim->levels[rank].name;
        if (!drawn(f, rank))
            continue;
        if (x > LEFT && x + name_width(name) > WIDTH) {
            x = LEFT;
            y += ROW;
        }
        buf_printf(f->svg, "<g class=\"l%d\"><path class=\"p\" d=\"M%.1f %.0fh18\"/></g>",
                   rank % COLOUR_COUNT, x, y);
        buf_printf(f->svg, "<text x=\"%.1f\" y=\"%.0f\">", x + 24, y + 4);
        put_text(f->svg, name, NAME_SHOWN);
        buf_lit(f->svg, "</text>\n");
        x += name_width(name);
    }
    f->top = TOP + y - 78;
}

static void put_changes(struct plot_frame *f)
{
    for (uint32_t i = 0; i < f->workload->change_count; i++) {
        double at_ms = (double)f->workload->changes[i].at_us / 1000;
        if (at_ms > (double)f->duration_ms)
            continue;
        double x = x_of(f, at_ms);
        buf_printf(f->svg, "<path class=\"t\" d=\"M%.1f %.0fV%d\"/>", x, f->top - 2, BOTTOM);
        buf_printf(f->svg, "<text x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">change</text>\n", x,
                   f->top - 6);
    }
}

static void put_head(struct plot_frame *f, const char *title)
{
    buf_printf(f->svg,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
               "height=\"%d\" role=\"img\">\n<title>",
               WIDTH, HEIGHT, WIDTH, HEIGHT);
    put_text(f->svg, title, SIZE_MAX);
    buf_lit(f->svg, "</title>\n<style>\n"
                    "svg{font:12px system-ui,sans-serif}\n"
                    ".bg{fill:#fff}text{fill:#57606a}.h{fill:#1f2328;font-size:15px;"
                    "font-weight:600}.g{stroke:#d0d7de;stroke-opacity:.7}\n"
                    "path{fill:none}.p{stroke-width:2;stroke-linejoin:round;stroke-linecap:round}"
                    ".m{stroke-width:1;stroke-opacity:.7}.b{stroke:none;fill-opacity:.08}"
                    ".w{stroke-dasharray:6 4}.t{stroke:#8c959f;stroke-dasharray:2 3}\n");
    for (int i = 0; i < COLOUR_COUNT; i++)
        buf_printf(f->svg, ".l%d path{stroke:%s}.l%d .b{fill:%s;stroke:none}.l%d .c{fill:%s}\n", i,
                   colours[i], i, colours[i], i, colours[i]);
    buf_lit(f->svg, "@media(prefers-color-scheme:dark){.bg{fill:#0d1117}text{fill:#9198a1}"
                    ".h{fill:#f0f6fc}.g{stroke:#3d444d}}\n</style>\n");
    buf_printf(f->svg, "<rect class=\"bg\" width=\"%d\" height=\"%d\" rx=\"8\"/>\n", WIDTH, HEIGHT);
    buf_printf(f->svg, "<text class=\"h\" x=\"%d\" y=\"32\">", LEFT);
    put_text(f->svg, title, SIZE_MAX);
    buf_printf(f->svg,
               "</text>\n<text x=\"%d\" y=\"54\">Wait until claimed: median (line) up to the "
               "longest (edge), also of those still waiting</text>\n",
               LEFT);
}

void plot_waits(struct buf *svg, const struct workload *w, const struct simulation *sim,
                const char *title)
{
    struct plot_frame f = {.svg = svg, .workload = w, .sim = sim};
    f.duration_ms = w->duration_us / 1000 > 0 ? w->duration_us / 1000 : 1;
    scale(&f);
    put_head(&f, title);
    put_legend(&f);
    put_axes(&f);
    put_changes(&f);
    for (int rank = sim->level_count; rank-- > 0;) { /* the most urgent on top */
        if (drawn(&f, rank))
            put_level(&f, rank);
    }
    buf_lit(svg, "</svg>\n");
}
