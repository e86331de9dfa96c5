/* `triage top`: queues by trouble, in a terminal, again and again. Private to the top_ files.
 *
 *     top_look.c   asks the server for the queues on the page, or for one queue, and reads answers
 *     top_draw.c   draws the list; top_queue.c one queue
 *     top_act.c    pause, resume, redrive, escalate: asks, then does
 *     top_print.c  --once and --json
 *     top_run.c    the loop of the terminal, and its keys
 *
 * The server puts the queues in order and gives the rows around those on the page: thousands of
 * queues cost no more than one page. Rates are the differences of totals between two looks. */
#ifndef TRIAGE_CLI_TOP_H
#define TRIAGE_CLI_TOP_H

#include "base/limits.h"
#include "cli/client.h"
#include "term/screen.h"

#include <stdbool.h>
#include <stdint.h>

#define TOP_INTERVAL_MS_MIN 100
#define TOP_INTERVAL_MS_MAX 3600000
#define TOP_CALL_MS_MAX     10000 /* a look that takes longer counts as no answer */

/* What queues can be put in order by; the server's words. */
struct top_order {
    const char *name;  /* ?sort= */
    const char *shown; /* for people */
};
extern const struct top_order top_orders[];
#define TOP_ORDER_COUNT 9

struct top_options {
    int64_t interval_ms;
    const char *prefix; /* NULL: every queue */
    int64_t limit;      /* rows of --once and --json */
};

/* The numbers of a queue, or of all together. */
struct top_row {
    char name[QUEUE_NAME_MAX + 1];
    bool is_paused;
    int64_t ready, scheduled, in_flight, dead, oldest_s, waiting;
    int64_t queues, paused; /* of all together */
    int64_t enqueued, acked;
    double in_rate, out_rate; /* a second; negative: not known */
    const char *raw;          /* the row as the server wrote it, while its answer is there */
    size_t raw_len;
};

/* The rows of one look. */
struct top_page {
    struct top_row *rows; /* owned */
    size_t count;
    int64_t skip;       /* of all in their order: which one rows[0] is */
    struct top_row all; /* all that match, shown or not */
    int64_t at_ms;      /* monotonic; 0: there was no look */
};

struct top_level {
    char name[LEVEL_NAME_MAX + 1];
    int64_t ready, scheduled, in_flight, dead, oldest_s;
    double weight;
};

/* One queue, drilled into. */
struct top_queue {
    struct top_row row;
    struct top_level levels[LEVEL_COUNT_MAX];
    int level_count;
    bool is_weighted, is_configured; /* the configuration has come */
    int64_t aged, late;
    double claims_per_second;
    int64_t at_ms; /* monotonic; 0: there was no look */
};

enum top_mode {
    MODE_LIST,
    MODE_QUEUE,
};

/* What the last line of the screen is used for. */
enum top_prompt {
    PROMPT_NONE,
    PROMPT_SEARCH,
    PROMPT_LEVEL,   /* to which level? */
    PROMPT_CONFIRM, /* y or n */
    PROMPT_HELP,    /* the whole screen, until a key */
};

enum top_look { LOOK_NONE, LOOK_LIST, LOOK_STATS, LOOK_CONFIG };
enum top_verb { ACT_NONE, ACT_PAUSE, ACT_RESUME, ACT_REDRIVE, ACT_COUNT, ACT_ESCALATE };

/* Something to do, as it was asked for: rows may move while somebody answers. */
struct top_act {
    enum top_verb verb;
    char queue[QUEUE_NAME_MAX + 1];
    char from[LEVEL_NAME_MAX + 1], to[LEVEL_NAME_MAX + 1];
    int64_t count;
};

struct top {
    const struct cli *cli;
    const struct top_options *o;

    /* What is looked at. */
    enum top_mode mode;
    int order;
    bool reverse;
    char match[QUEUE_NAME_MAX + 1];
    char queue[QUEUE_NAME_MAX + 1]; /* of MODE_QUEUE */
    int64_t first;                  /* the row on top of the page, of all in their order */
    int64_t cursor;                 /* the row that keys are about */
    int level;                      /* the same in MODE_QUEUE */
    int page_rows;                  /* of the list that fit the screen */

    /* What was seen. */
    struct top_page page;
    struct top_queue detail;
    struct buf away;   /* why there is no answer; empty: there is */
    struct buf notice; /* what came of the last thing done */
    bool is_bad;       /* the notice is a refusal */
    bool frozen;

    /* The bottom line. */
    enum top_prompt prompt;
    int target; /* PROMPT_LEVEL: the level under consideration */
    struct top_act act;

    /* Calls under way. */
    CURLM *multi;
    struct client look, doing;
    enum top_look looking;
    enum top_verb acting;
    int64_t look_at_ms; /* monotonic: the next look */
    int64_t key_at_ms;  /* monotonic: when something was typed last */
    bool over;
    bool lost; /* the terminal is gone */
};

void top_init(struct top *t, const struct cli *cli, const struct top_options *o);
void top_fini(struct top *t);

/* top_look.c. Looks are asked for by path and read by kind, whoever performs them. */
void top_list_ask(struct top *t, struct client *c, int64_t skip, int64_t limit);
void top_list_read(struct top *t, const struct client *c, int64_t skip, int64_t now_ms);
void top_look_start(struct top *t, int64_t now_ms);
void top_look_answered(struct top *t, int64_t now_ms);
void top_look_soon(struct top *t); /* what is under way is of no interest any more */
const struct top_row *top_row_at(const struct top *t, int64_t at); /* NULL: it was not fetched */

/* top_act.c. Questions first; what is done is done after top_act_go(). */
void top_ask_pause(struct top *t);
void top_ask_redrive(struct top *t);
void top_ask_escalate(struct top *t); /* the level under the cursor, to t->target */
void top_act_question(const struct top *t, struct buf *out);
void top_act_go(struct top *t);
void top_act_answered(struct top *t);
void top_notice(struct top *t, bool is_bad, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* top_draw.c, top_queue.c */
void top_draw(struct top *t, struct screen *s);
int top_list_head_rows(void); /* above the list */
void top_draw_list(struct top *t, struct screen *s, int row, int rows);
void top_draw_queue(struct top *t, struct screen *s, int row, int rows);
void top_count_text(int64_t count, int width, char out[32]); /* 1234567, or 1.23M */
void top_age_text(int64_t seconds, char out[32]);            /* 59s, 4m07, 3h12, 5d02h */
int top_list_width(const struct top *t);      /* that every name on the page has room */
int top_number_width(const struct screen *s); /* columns of a number, with a blank before it */
void top_rate_text(double per_second, char out[32]);
double top_share(const struct top_queue *q, int level); /* of the next claims; negative: unknown */

/* Exit statuses. */
int top_once(struct top *t);
int top_stream(struct top *t); /* --json */
int top_run(struct top *t);

#endif
