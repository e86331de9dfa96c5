#include "api/exposition.h"

#include <string.h>

const struct exposition_scale exposition_waits = {&duration_waits, 0, DURATION_BOUNDS - 1};
const struct exposition_scale exposition_works = {&duration_works, 3, 20};
const struct exposition_scale exposition_turns = {&duration_works, 6, 18};

static size_t stem_len(const char *name)
{
    size_t len = strlen(name);
    return len > 6 && strcmp(name + len - 6, "_total") == 0 ? len - 6 : len;
}

void exposition_head(struct exposition *x, const char *name, const char *type, const char *help,
                     bool shares)
{
    size_t len = x->open && !shares ? stem_len(name) : strlen(name);
    if (x->open && shares)
        type = "unknown";
    buf_lit(x->out, "# HELP ");
    buf_put(x->out, name, len);
    buf_printf(x->out, " %s\n# TYPE ", help);
    buf_put(x->out, name, len);
    buf_printf(x->out, " %s\n", type);
}

void exposition_label_text(struct buf *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            buf_putc(out, '\\');
        buf_putc(out, *text);
    }
}

static void put_number(struct buf *out, uint64_t value, enum unit unit)
{
    if (unit == MICRO_SIGNED && (int64_t)value < 0) {
        buf_putc(out, '-');
        value = -value;
    }
    uint64_t scale = unit == PLAIN ? 1 : unit == MILLI ? 1000 : 1000000;
    buf_put_u64(out, value / scale);
    if (scale > 1)
        buf_printf(out, ".%0*u", unit == MILLI ? 3 : 6, (unsigned)(value % scale));
}

void exposition_value(struct buf *out, uint64_t value, enum unit unit)
{
    put_number(out, value, unit);
    buf_putc(out, '\n');
}

void exposition_sample(struct buf *out, const char *name, const char *label, const char *text,
                       uint64_t value, enum unit unit)
{
    buf_puts(out, name);
    if (label) {
        buf_putc(out, '{');
        buf_puts(out, label);
        buf_lit(out, "=\"");
        exposition_label_text(out, text);
        buf_lit(out, "\"}");
    }
    buf_putc(out, ' ');
    exposition_value(out, value, unit);
}

/* Histograms */

/* A bound in seconds, the same in both formats: 0.05, 1.0. OpenMetrics wants the point; with
 * another text in the other format the bucket would be another series. */
static void put_bound(struct buf *out, uint64_t bound, uint64_t per_second)
{
    uint64_t rest = bound % per_second;
    buf_put_u64(out, bound / per_second);
    buf_putc(out, '.');
    do {
        rest *= 10;
        buf_putc(out, (char)('0' + rest / per_second));
        rest %= per_second;
    } while (rest > 0);
}

static void put_exemplar(struct buf *out, const struct exemplar *e)
{
    buf_lit(out, " # {request_id=\"");
    exposition_label_text(out, e->id);
    buf_lit(out, "\"} ");
    put_number(out, e->took_us, MICRO);
    buf_putc(out, ' ');
    put_number(out, (uint64_t)e->at_ms, MILLI);
}

/* The last of the buckets `from` to `to` that has an exemplar, or NULL. */
static const struct exemplar *exemplar_of(const struct exemplar *exemplars, int from, int to)
{
    for (int i = to; exemplars && i >= from; i--)
        if (exemplars[i].id[0])
            return &exemplars[i];
    return NULL;
}

static void put_bucket(struct buf *out, const char *bound, uint64_t count, const struct exemplar *e)
{
    buf_puts(out, bound);
    buf_lit(out, "\"} ");
    buf_put_u64(out, count);
    if (e)
        put_exemplar(out, e);
    buf_putc(out, '\n');
}

static void put_end(struct buf *out, const char *name, const char *suffix, const char *labels)
{
    buf_puts(out, name);
    buf_puts(out, suffix);
    if (*labels) {
        buf_putc(out, '{');
        buf_puts(out, labels);
        buf_putc(out, '}');
    }
    buf_putc(out, ' ');
}

void exposition_histogram(struct buf *out, const char *name, const char *labels,
                          const struct durations *d, const struct exposition_scale *s,
                          const struct exemplar *exemplars)
{
    struct buf head = {0};
    uint64_t count = 0;
    int from = 0;
    buf_printf(&head, "%s_bucket{%s%sle=\"", name, labels, *labels ? "," : "");
    for (int i = 0; i <= s->last; i++) {
        count += d->buckets[i];
        if (i < s->first)
            continue;
        buf_put(out, head.data, head.len);
        put_bound(out, s->scale->bounds[i], s->scale->per_second);
        put_bucket(out, "", count, exemplar_of(exemplars, from, i));
        from = i + 1;
    }
    for (int i = s->last + 1; i < DURATION_BUCKETS; i++)
        count += d->buckets[i];
    buf_put(out, head.data, head.len);
    put_bucket(out, "+Inf", count, exemplar_of(exemplars, from, DURATION_BUCKETS - 1));
    put_end(out, name, "_sum", labels);
    exposition_value(out, d->sum, s->scale->per_second == 1000 ? MILLI : MICRO);
    put_end(out, name, "_count", labels);
    exposition_value(out, count, PLAIN);
    buf_fini(&head);
}
