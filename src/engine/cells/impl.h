/* Private to the cells engine, which is made of other engines.
 *
 *   caller ──op──> trip ──part──> cell a: an engine of its own, with a partition of the queue
 *                       ──part──> cell b
 *                       <─done──  each part is reported by its cell, inside cells_poll()
 *   caller <─op──  the op is finished when its trip has no part under way
 *
 * A cell is an engine (postgres, local, memory) with a name. A queue of this engine, struct whole,
 * has a partition in each cell that has a queue of its name. A partition has all levels, so that
 * escalation, aging and redrive stay inside a cell.
 *
 * A trip is an op of the caller on its way. It asks cells by parts, each of which is an op of one
 * cell. A part owns everything that its cell may still look at when the trip is over: a cell that
 * does not answer holds its parts, and not those who asked. */
#ifndef TRIAGE_ENGINE_CELLS_IMPL_H
#define TRIAGE_ENGINE_CELLS_IMPL_H

#include "base/map.h"
#include "base/tag.h"
#include "base/tourney.h"
#include "engine/cells/placement.h"
#include "engine/cells/split.h"
#include "engine/engine.h"

#include <assert.h>
#include <pthread.h>

#define CELLS_MAX     1024
#define CELLS_METERED 64 /* so many have metrics of their own */

/* A cell that has not answered for so long is away: nobody waits for it any more. */
#define CELL_SILENCE_MS   1000
/* A claim that other cells have something for does not wait so long: for one that owes an answer
 * for four times as long as its slowest answer of late, and for at least this time. */
#define CELL_HESITATES_MS 250
#define CELL_HEARD        INT64_MIN /* just now: the next look at the clock says when that was */

struct cells_engine;
struct whole;
struct trip;
struct cell_part;
struct shares;
struct drain;

/* What the kind counts, in the order of its table. Each has one place among its counters; the
 * window has three, and what is counted by cell has CELLS_METERED. */
enum {
    COUNT_CELLS,
    COUNT_AWAY,
    COUNT_ROUNDS,
    COUNT_LOOKS,
    COUNT_STRAY,
    COUNT_PASSED,
    COUNT_DIVISIONS,
    COUNT_MOVED,
    COUNT_WINDOW,
    COUNT_BY_CELL,
};
#define WINDOW_PLACES 3
#define PLACE_BY_CELL (COUNT_WINDOW + WINDOW_PLACES)
enum {
    BY_CELL_UP,
    BY_CELL_UNDER_WAY,
    BY_CELL_AHEAD,
    BY_CELL_COMMITS,
    BY_CELL_COMMITTED,
    BY_CELL_COMMIT_TIME,
    BY_CELL_LOOKS,
    BY_CELL_COUNT,
};
#define CELLS_COUNTERS (COUNT_BY_CELL + BY_CELL_COUNT)
static_assert(PLACE_BY_CELL + BY_CELL_COUNT * CELLS_METERED <= ENGINE_OWN_MAX, "each has a place");

/* A cell in one shard. */
struct cell {
    struct engine *engine;
    uint32_t number;    /* its place among the cells; the `partition` of an answer */
    uint32_t under_way; /* parts */
    int64_t heard_ms;   /* mono: since when it owes an answer, or when it gave the last one */
    bool away;
    bool hesitates;             /* it owes an answer, and claims do not wait for it */
    int64_t slow_ms;            /* its slowest answer of late */
    uint32_t outages;           /* how often it was away, or hesitated */
    uint64_t looks;             /* at heads of its partitions */
    bool submitted;             /* since the last flush */
    struct cell_part *parts;    /* under way */
    struct cell_part *sweeping; /* one of them, or NULL */
    bool sweep_due;
    bool patient; /* the next sweep is waited for: the last one had schedules, and nobody heard */
    int64_t swept_ms; /* mono: the last sweep was submitted */
    /* What it had counted when splits were thought about last, and what its commits took since. */
    uint64_t split_groups, split_commit_us;
    uint32_t commit_ms;
    int64_t reckoned_ms; /* by how much its clock is ahead in what the wholes have of it */
};

/* A queue in a cell. */
struct partition {
    uint32_t tag; /* PARTITION_TAG */
    struct whole *whole;
    struct cell *cell;
    struct engine_queue *q; /* the cell's handle; NULL: the cell has no queue of the name */
    uint32_t version;       /* of the configuration that the whole has seen of it */
    int seat;               /* its place in the placement; -1: none */
    uint32_t wants;         /* a bit for each slot: messages of these levels may be put here */
    bool placing;           /* a newer placement is on its way to the cell */
    bool looking;           /* a look at its heads is under way */
    uint32_t sought;        /* messages that claims under way want of it */
    bool unsure;            /* messages may be leaving from it */
    int64_t looked_ms;      /* mono: the last look was submitted */
    int64_t known_ms;       /* mono: what is known of its heads was asked for; 0: nothing is */
    uint32_t moments;       /* of its handle, when known_ms was set */
    int64_t over_ms;        /* mono: since when it is over what splits are for; 0: it is not */
    uint64_t split_count;   /* what was put there when splits were thought about last */
    /* What the sums of its whole have of it (sum.c). */
    struct counted *counted;      /* owned; NULL: nothing */
    bool dirty;                   /* it may be more by now: in whole->dirty */
    bool strange;                 /* its configuration is another one: in whole->strangers */
    struct partition *next_dirty; /* of its whole */
    uint64_t chosen;              /* the last choice of several partitions that it is in */
    uint64_t shared;              /* the last one in which it has a share … */
    uint32_t share;               /* … and the place of that */
    /* In whole->by_look unless it is looked at, in whole->by_known; without an exact view. */
    bool in_look, in_known;
    struct partition_link {
        struct partition *prev, *next;
    } look, known;
};

struct partition_list {
    struct partition *first, *last;
};

/* A queue as the caller sees it. */
struct whole {
    struct engine_queue face; /* first */
    uint32_t tag;             /* WHOLE_TAG */
    struct cells_engine *cells;
    struct queue_view moment; /* the moments of all partitions, added up */
    uint32_t busy;            /* ops that are not reported yet */
    uint32_t parts;           /* under way, also those that nobody waits for */
    bool told;                /* to be shown by the next sweep: in cells->told */
    struct whole *next_told;
    bool retired;           /* out of the map: freed when nothing is under way */
    uint64_t seq;           /* larger than every seq that was asked for */
    bool hidden;            /* no queue of the caller's: registry.c */
    bool deleting;          /* nobody is told of it, and nothing is asked of it any more */
    bool thin;              /* it lacked a partition when it was looked at last */
    struct cell *puts_to;   /* where the last message without a key went */
    struct trip *looking;   /* a claim that looks everywhere, … */
    uint64_t looking_flush; /* … and is sent with this flush */
    struct placement placement;
    bool unsettled; /* moves of buckets wait for their end: counted in cells->unsettled */
    bool unseated;  /* it had a partition without a seat when it was looked at last */
    bool banded;    /* a cell names the levels that it wants */
    bool placing;   /* a change of the placement is under way that nobody waits for */
    struct split_plan *splitting; /* owned: proposed, and not answered yet: splits.c; or NULL */
    struct trip *claims_first, **claims_last; /* claims that go one after the other */
    struct trip *claiming;                    /* the one of them that is under way */
    struct shares *shares;   /* owned: of its limits, shares.c; NULL: none were asked for */
    struct lookout *lookout; /* owned: what was passed over, window.c; NULL: nothing was */
    struct drain *drain;     /* owned: a page is on its way; NULL: none is */
    int64_t drain_due_ms;    /* mono: no page is begun before */
    uint32_t drain_next;     /* the cell that is looked at first */
    uint32_t there;          /* partitions with a handle … */
    uint32_t remote;         /* … and without an exact view */
    struct partition *dirty; /* by next_dirty */
    uint32_t strangers;      /* partitions whose configuration this whole has not seen */
    struct partition_list by_look, by_known; /* who was looked at, and is known, the longest ago */
    /* By slot, the first messages of the partitions: in the view and in the moment by (time on this
     * process's clock, 0, seq), and in the view by (sought, time, seq). The last are made when they
     * are needed first. */
    struct tourney heads[LEVEL_COUNT_MAX], moment_heads[LEVEL_COUNT_MAX], idle[LEVEL_COUNT_MAX];
    struct partition partitions[]; /* one for each cell, by its number */
};

/* What the last look said about splits of partitions in a cell. */
struct split_seen {
    enum split_state state;
    uint32_t shard; /* whose look it was */
    char now[256];  /* what is over, and what is waited for; empty: nothing is over */
    char last[256]; /* the last split; empty: there was none */
};

/* What is shared by all shards. */
struct cells_shared {
    struct engine_kind kind; /* cells_kind, with what its cells are capable of, and … */
    struct engine_counter counters[CELLS_COUNTERS]; /* … with their names */
    const char *names[CELLS_METERED];               /* NULL behind the last */
    struct window *window;                          /* owned */
    struct split_terms split;
    pthread_mutex_t split_lock; /* of what sites say of splits */
    uint32_t cell_count;
    struct site {
        char name[CELL_NAME_MAX + 1];
        char *store; /* owned: what stands behind ENGINE: */
        struct engine_options options;
        struct engine_value *values; /* owned */
        struct engine **shards;      /* owned; NULL: not open */
        _Atomic int seat;            /* enum seat_state: of the cell as a whole */
        _Atomic bool away;           /* as the first shard sees it, as the next */
        _Atomic int64_t ahead_us;
        struct split_seen split; /* under split_lock */
    } * sites;                   /* owned */
};

struct cells_engine {
    struct engine base; /* first */
    struct cells_shared *shared;
    uint32_t shard;
    engine_wake *wake;
    void *wake_ctx;
    uint32_t cell_count;
    struct map queues;                         /* struct whole by name */
    struct whole *told;                        /* by next_told: the next sweep shows them */
    struct instant now;                        /* of the last call */
    bool invented;                             /* tests pass their own clock */
    struct engine_op *done_first, **done_last; /* to be reported by the next poll */
    uint64_t tour_number;
    uint64_t choices; /* of several partitions */
    uint64_t flushes;
    uint32_t hesitating;  /* cells */
    int64_t listened_ms;  /* mono: when it was last found out who is silent */
    struct tourney load;  /* cells that are not away, by what is under way there */
    uint32_t thin;        /* queues that lack a partition in some cell */
    uint32_t unsettled;   /* queues that wait for a seat, or for the end of a move of buckets */
    int64_t published_ms; /* mono: the metrics have the window as of then */
    int64_t mended_ms;    /* mono: when partitions that are missing were last looked for */
    bool closing;         /* nothing is begun any more */
    int64_t drained_ms;   /* mono: when it was last looked what has to be drained */
    int64_t drain_due_ms; /* mono: when to look again; INT64_MAX: there is no need to */
    struct tour *tours;   /* bulk jobs over several asks: walk.c */
    struct cell cells[];  /* cell_count of them */
};

/* An op of a cell. */
typedef void part_done(struct cell_part *p);
struct cell_part {
    struct engine_op op; /* first; op.user is the part */
    uint32_t tag;        /* PART_TAG */
    struct cells_engine *cells;
    struct cell *cell;
    struct partition *partition;             /* or NULL */
    struct trip *trip;                       /* NULL: nobody waits for it any more */
    struct cell_part *next, *prev;           /* of its trip */
    struct cell_part *cell_next, *cell_prev; /* of its cell */
    struct instant asked;                    /* when it was submitted */
    part_done *done;
    /* Nobody has to wait for it when its cell is away: it owns all that it needs. */
    bool droppable;
    void *items;               /* owned: what op points to, or NULL */
    uint32_t *places;          /* owned: the places of these items in the caller's array, or NULL */
    uint32_t from;             /* CLAIM: the step of the caller's plan that its plan begins with */
    uint32_t sought;           /* CLAIM: by how much partition->sought is larger for it */
    struct settle_item *stray; /* owned: CLAIM: leases that nobody waits for any more */
    uint32_t stray_count;
};

/* An op of the caller. */
struct trip {
    uint32_t tag; /* TRIP_TAG */
    struct cells_engine *cells;
    struct engine_op *op;
    struct whole *whole;     /* or NULL */
    struct cell_part *parts; /* under way */
    uint32_t under_way;
    bool finished;
    bool submitting;              /* parts are being made: it is not over yet */
    void (*then)(struct trip *t); /* when no part is under way */
    uint32_t at;                  /* what `then` counts by */
    uint32_t rounds;
    bool fresh;       /* every view has been asked for */
    uint32_t want;    /* LIST */
    uint32_t version; /* CLAIM: of the configuration that the plan was made by */
    uint8_t *barren;  /* owned: CLAIM: how many steps, from the first, each cell had nothing for */
    enum status status;
    struct trip *next;      /* in whole->claims, or among the followers of another */
    struct trip *followers; /* CLAIM: by next: they go on when this one has looked */
    struct whole *made;
    struct place *cuts; /* owned: HEADS: behind this place of a lane nothing is known */
    struct tour *tour;  /* PURGE and its like */
    bool *settled;      /* owned: PUT, IMPORT: items that have their answer; NULL: none has */
    struct placement *next_placement; /* owned: on its way to the home of the queue */
    bool stale;                       /* the home had a newer one */
    uint64_t epoch; /* PUT: of the placement whose moves are looked at. PLACEMENT: of the one that a
                       partition had when it was removed */
    bool must;      /* shares.c: it fails if not every cell confirms */
    uint32_t divisions;       /* CLAIM, PUT: how often it has waited for shares to be others */
    bool crowded;             /* PUT: a partition has refused items for which there may be room */
    struct partition *pinned; /* PUT: … and it gets the room, or NULL */
};

#define WHOLE_TAG     TAG('w', 'h', 'o', 'l')
#define PARTITION_TAG TAG('p', 'a', 't', 'n')
#define PART_TAG      TAG('p', 'a', 'r', 't')
#define TRIP_TAG      TAG('t', 'r', 'i', 'p')

extern const struct engine_ops cells_ops;

static inline struct cells_engine *cells_of(struct engine *e)
{
    assert(e->ops == &cells_ops);
    return (struct cells_engine *)e;
}

/* Behind a handle, which may be NULL. */
static inline struct whole *whole_of(void *p)
{
    struct whole *w = (struct whole *)p;
    if (w)
        tag_check(w->tag, WHOLE_TAG);
    return w;
}

/* Behind a cell's handle; NULL: the cell has shown it for the first time. */
static inline struct partition *partition_of(const struct engine_queue *q)
{
    struct partition *p = (struct partition *)q->user;
    if (p)
        tag_check(p->tag, PARTITION_TAG);
    return p;
}

static inline struct cell_part *part_of(const struct engine_op *op)
{
    struct cell_part *p = (struct cell_part *)op->user;
    tag_check(p->tag, PART_TAG);
    assert(op == &p->op);
    return p;
}

static inline bool cell_is_live(const struct cell *c)
{
    return engine_has(c->engine, ENGINE_LIVE_VIEW);
}

/* There, and can be asked. */
static inline bool partition_serves(const struct partition *p)
{
    return p->q && !p->q->gone && !p->cell->away && !p->whole->deleting;
}

/* whole.c: queues */
struct whole *whole_new(struct cells_engine *c, const char *name);
/* The whole of a cell's queue, made if need be. */
struct whole *whole_adopt(struct cells_engine *c, struct cell *cell, struct engine_queue *q);
struct partition *whole_home(const struct whole *w); /* whose configuration counts; NULL: none */
/* The partition with the queue id of a message; NULL: none. */
struct partition *whole_partition(const struct whole *w, uint32_t queue_id);
struct partition *whole_only(struct whole *w); /* its one partition; NULL: there are several */
bool whole_follow(struct whole *w);   /* takes the configuration of its home; true: it is another */
void whole_lose(struct partition *p); /* the cell has it no more */
void whole_retire(struct whole *w);   /* the name is free */
void whole_let_go(struct whole *w);   /* freed, if it is retired and nothing is under way */
/* The first of `count` seqs that are behind all that was put so far. Engines with an exact view go
 * by it: so what this server puts has one order over all cells. */
uint64_t whole_take_seqs(struct whole *w, uint32_t count);
void whole_tell(struct whole *w); /* the next sweep shows it */

/* sum.c: what all partitions say together. A view of a partition changes only in calls of its cell;
 * who makes one says so (partition_changed), and the whole counts again what has changed. */
void whole_merge(struct whole *w); /* its view is that of its partitions */
void partition_changed(struct partition *p);
void partition_uncount(struct partition *p); /* nothing of it counts any more */
void partition_seek(struct partition *p, uint32_t more, uint32_t less); /* changes p->sought */
void whole_sums_free(struct whole *w);
void whole_sums_check(const struct whole *w); /* for cells_check() */
/* By whole->idle of this slot; made when that is asked for first. */
struct tourney *whole_idle(struct whole *w, uint8_t slot);
/* The cell's clock, or whether it is away, is another: in every whole. */
void cell_changed(struct cells_engine *c, struct cell *cell);

/* place.c: where partitions are, and who has been told */
struct cell *cell_named(struct cells_engine *c, const char *name); /* NULL: there is none */
const char *cell_name(const struct cells_engine *c, uint32_t number);
/* Takes the newest placement that a partition has. True: it is another. */
bool place_follow(struct whole *w);
void place_seat(struct whole *w);        /* partitions, configuration or placement are others */
bool place_lacks(const struct whole *w); /* messages may not be put before it has one */
/* Gives the queue its first placement. `fresh`: nothing was ever put into it. */
void place_first(struct trip *t, struct whole *w, bool fresh, void (*then)(struct trip *t));
/* Whether the cell of this partition refuses what is sent by an older placement. */
bool place_holds(const struct partition *p);
/* Whether no cell before this one can be the home: it has the queue, or is known not to. */
bool home_is_sure(const struct whole *w, const struct partition *home);
/* Makes `next`, which stays the caller's, the placement at the home of the queue; the trip, or
 * NULL, waits for it. False: there is nobody to ask. */
bool place_propose(struct trip *t, struct whole *w, const struct placement *next);
/* Hands the placement to a partition that has an older one; the trip, or NULL, waits for it. */
void place_tell(struct trip *t, struct partition *p);
void place_tell_all(struct trip *t, struct whole *w);
void wholes_place(struct cells_engine *c); /* what time does: new cells, cells that are told late */
/* The partition of a seat; NULL: this server does not have it. */
struct partition *place_partition(const struct whole *w, uint32_t seat);
/* Gives moves of buckets their end in `next` whose old cells have been told. */
void place_settle(const struct whole *w, struct placement *next);
/* The same for a cell whose partition is gone, and had the placement of `epoch`. */
void place_settle_gone(const struct whole *w, struct placement *next, const char *cell,
                       uint64_t epoch);

/* splits.c: partitions that are over for a while give a share away */
struct split_terms split_terms_of(const struct engine_options *options);
void wholes_split(struct cells_engine *c);
/* The home has answered to the proposal of a placement. */
void split_answered(struct whole *w, const struct engine_op *op);
/* What is said of splits of partitions in this cell; any thread. `detail` gets words for people. */
const char *split_show(struct cells_shared *shared, uint32_t cell, struct buf *detail);

/* check.c */
engine_check_fn cells_check; /* asserts every invariant, of its cells too; for tests */

/* clock.c: the clocks of cells */
int64_t cell_ahead_ms(const struct cell *c);
int64_t time_from_cell(const struct cell *c, int64_t ms); /* to this process's clock */
int64_t time_to_cell(const struct cell *c, int64_t ms);
void plan_to_cell(const struct cell *c, struct plan *plan); /* just before it is submitted */

/* window.c: how long messages are passed over. Any thread: window_read. */
struct window_facts {
    uint64_t total;                        /* samples so far */
    uint32_t half_ms, most_ms, longest_ms; /* of those of the last minutes: 50 %, 99 %, all */
};
struct window *window_new(void);
void window_free(struct window *w);
void window_read(struct window *w, int64_t now_ms, struct window_facts *facts);
/* A part of a claim by this plan of the caller is done. */
void window_took(const struct cell_part *part, const struct plan *plan);
/* The view of a partition may be a new one, which was asked for then. */
void window_saw(struct partition *p, struct instant asked);

/* trip.c: ops on their way */
struct trip *trip_new(struct cells_engine *c, struct engine_op *op);
void trip_finish(struct trip *t, enum status status);
void trip_outdated(struct trip *t); /* made by a configuration that is not the present one */
/* To be called when the parts of a round have been submitted. If none is under way, `then` is
 * called at once, else when the last of them is done. */
void trip_await(struct trip *t, void (*then)(struct trip *t));

struct cell_part *part_new(struct trip *t, struct cell *cell, struct partition *partition);
struct cell_part *part_new_alone(struct cells_engine *c, struct cell *cell,
                                 struct partition *partition);
/* Takes the caller's op as it is. */
struct cell_part *part_copy(struct trip *t, struct partition *partition);
void part_submit(struct cell_part *p);
void part_drop(struct cell_part *p);  /* its trip does not wait for it any more: it is away */
void part_leave(struct cell_part *p); /* the same, while it is not known to be */
/* Whether the partition's configuration is the one that the caller knows. */
bool partition_is_known(const struct partition *p);
void trip_pass(struct trip *t, struct partition *p);        /* the op is for this partition alone */
void cell_weigh(struct cells_engine *c, struct cell *cell); /* brings c->load up to date */
void cell_is_away(struct cells_engine *c, struct cell *cell); /* nobody waits for it any more */

/* One function for each verb, or for several. */
typedef void trip_verb(struct trip *t);
trip_verb trip_open, trip_set, trip_delete; /* manage.c */
#define MEND_MS 5000                        /* how often */
bool whole_can_spread(
    const struct whole *w); /* manage.c: a new partition would be like the others */
part_done whole_mended; /* manage.c: it was made, or is deleted again if the queue was meanwhile */
/* manage.c: `part` makes a partition of the queue in its cell. */
void whole_make_in(const struct whole *w, struct cell_part *part);
void wholes_mend(struct cells_engine *c); /* manage.c: makes partitions that are missing */
trip_verb trip_home;                      /* manage.c: schedules */
trip_verb trip_put, trip_import;          /* put.c */
trip_verb put_again; /* put.c: a cell has a newer placement, or another has room */
/* put.c: of a PUT that went to one partition, items that were refused may find room */
bool put_is_crowded(struct trip *t);
void put_refused_fire(struct trip *t);          /* put.c: so may the message of a schedule, later */
trip_verb trip_claim;                           /* claim.c */
trip_verb trip_one, trip_settle, trip_escalate; /* settle.c */
trip_verb trip_count, trip_heads;               /* count.c */
trip_verb trip_list, trip_dead_list, trip_bulk; /* walk.c */
trip_verb trip_sweep;                           /* sweep.c */
trip_verb trip_placement;                       /* place_change.c */

/* sweep.c */
int64_t cells_next_due_ms(struct engine *e, struct instant now);
void cells_listen(struct cells_engine *c); /* finds out which cells are silent */
/* Asks for the heads of all partitions for which that has not just been done. */
void whole_look(struct whole *w);
/* A question for the heads of the partition is on its way. */
void partition_looked(struct partition *p);
void partition_knows(struct partition *p, int64_t asked_ms);  /* its heads as of then */
bool whole_is_stale(const struct whole *w, int64_t stale_ms); /* a head is known from before then */
void partition_line_up(struct partition *p); /* it has a handle: it is in the lists … */
void partition_leave(struct partition *p);   /* … as long as it has one */

void touched_in_cell(struct engine_op *op, struct engine_queue *q);

/* claim.c */
void claims_next(struct whole *w); /* the next of those that go one after the other */
/* Claims that wait for cells that hesitate alone, this one among them, go on with what is known of
 * the others. True: there were some. */
bool claims_leave(struct cell *cell);

/* over.c */
extern const struct engine_counter cells_counters[CELLS_COUNTERS];
void cells_sites_free(struct cells_shared *shared, uint32_t shard_count);
/* The cells are open: the kind of the engine is `kind`, with what they are capable of and with
 * their names, and there is a window. */
void cells_kind_make(struct cells_shared *shared, const struct engine_kind *kind);
struct cells_engine *cells_shard_new(struct cells_shared *shared, uint32_t index,
                                     const struct engine_options *options);

/* registry.c: cells as a whole */
bool registry_is(const char *name);
void registry_follow(struct whole *w); /* it has another placement */
/* Whether new queues have a partition there that takes messages. */
bool cell_is_open(const struct cells_engine *c, uint32_t number);
trip_verb registry_change;

/* drain.c */
void wholes_drain(struct cells_engine *c); /* begins to move what has to move */
void drain_look(struct whole *w);          /* it has another placement */
void drain_free(struct drain *d);          /* NULL is fine */

/* walk.c */
void tours_end(struct cells_engine *c);

/* report.c: what an operator sees */
void report_count(struct cells_engine *c); /* brings the counters up to date */
engine_cell_each_fn report_cells;
engine_partition_each_fn report_partitions;

#endif
