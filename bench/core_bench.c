/* What the core costs, through the memory engine: nanoseconds for a put, a claim, an ack and an
 * idle sweep, while more and more messages wait, are scheduled or are leased. The bars: none
 * of them costs more than 1.3 times as much among ten million as among a thousand, future-dated
 * messages add at most a tenth, a weighted or aged claim costs at most 1.2 times a strict one, and
 * a ready message with a 256-byte payload takes at most 459 bytes.
 *
 *   core_bench [MOST]     MOST: the largest number of waiting messages, 10000000 by default
 *
 * Exits with 1 when a bar is missed. */
#include "base/mem.h"
#include "engine/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PAYLOAD     256
#define BATCH       1000
#define ROUNDS      1000 /* batches of 100 timed for each figure */
#define REPEATS     4    /* the least of their medians counts: the machine has other work */
#define SWEEPS      20
#define CLAIM_BATCH 100
#define RATIO_BAR   1.3
#define FUTURE_BAR  1.1
#define POLICY_BAR  1.2
#define MEMORY_BAR  459

struct bench {
    struct engine *engine;
    struct engine_queue *queue;
    struct policy policy;
    struct instant now;
};

struct cost {
    double put_ns, claim_ns, ack_ns, sweep_ns;
};

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void ignore(struct engine_op *op)
{
    (void)op;
}

static void run(struct bench *b, struct engine_op *op)
{
    op->done = ignore;
    op->queue = b->queue;
    engine_submit(b->engine, op, b->now);
    engine_flush(b->engine);
    engine_poll(b->engine);
    if (op->status != STATUS_OK)
        abort();
}

static void open_with(struct bench *b, struct queue_config *c)
{
    struct buf error = {0};
    struct engine_options options = {0};
    b->now = (struct instant){.wall_ms = 1750000000000, .mono_ms = 1000};
    if (memory_open(&options, 1, &b->engine, &error) != STATUS_OK)
        abort();
    c->visibility_ms = LEASE_SECONDS_MAX * 1000LL;
    struct engine_op op = {.verb = ENGINE_QUEUE_SET, .set = {.name = "bench", .config = c}};
    b->queue = NULL;
    run(b, &op);
    b->queue = op.queue;
    policy_init(&b->policy, &b->queue->config);
}

static void open_bench(struct bench *b)
{
    struct queue_config c;
    if (!config_profile("levels", &c))
        abort();
    open_with(b, &c);
}

static void close_bench(struct bench *b)
{
    engine_close(&b->engine, 1);
}

/* Puts `count` messages over all levels; returns nanoseconds for each, the making of bodies aside.
 */
static double put(struct bench *b, uint64_t count, int64_t delay_ms)
{
    static struct put_item items[BATCH];
    double spent_ns = 0;
    for (uint64_t done = 0; done < count;) {
        uint32_t n = count - done < BATCH ? (uint32_t)(count - done) : BATCH;
        for (uint32_t i = 0; i < n; i++) {
            items[i].draft = (struct draft){.body = mem_zalloc(PAYLOAD),
                                            .payload_len = PAYLOAD,
                                            .ready_ms = READY_NOW,
                                            .delay_ms = delay_ms,
                                            .ttl_ms = TTL_DEFAULT};
            items[i].draft.priority = (struct priority_ref){.kind = PRIORITY_NUMBER,
                                                            .number = (int64_t)((done + i) % 10)};
        }
        struct engine_op op = {.verb = ENGINE_PUT, .put = {.items = items, .count = n}};
        double started = now_ns();
        run(b, &op);
        spent_ns += now_ns() - started;
        b->now.wall_ms++;
        b->now.mono_ms++;
        done += n;
    }
    return spent_ns / (double)count;
}

static struct settle_item claimed[CLAIM_BATCH];
static uint32_t claimed_count;

static void note_claim(struct engine_op *op, const struct engine_queue *q, const struct message *m,
                       struct instant now)
{
    (void)op, (void)now;
    struct settle_item *item = &claimed[claimed_count++];
    item->id = message_identity(m, q->id);
    memcpy(item->receipt, m->delivery->receipt, RECEIPT_BYTES);
}

static uint32_t claim_some(struct bench *b, uint32_t want)
{
    static struct plan plan;
    const struct queue_config *c = &b->queue->config;
    policy_plan(&b->policy, c, &b->queue->view, c->level_count - 1, want, b->now.wall_ms, &plan);
    struct engine_op op = {
        .verb = ENGINE_CLAIM, .visit = note_claim, .claim = {.plan = &plan, .lease_ms = -1}};
    run(b, &op);
    return op.claim.found;
}

static uint32_t claim(struct bench *b)
{
    claimed_count = 0;
    return claim_some(b, CLAIM_BATCH);
}

static void ack(struct bench *b)
{
    struct engine_op op = {.verb = ENGINE_ACK,
                           .settle = {.items = claimed, .count = claimed_count}};
    run(b, &op);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), by_value);
    return values[count / 2];
}

static void sweep(struct bench *b)
{
    struct engine_op op = {.verb = ENGINE_SWEEP, .sweep = {.max = 1000}};
    run(b, &op);
}

static size_t resident_bytes(void)
{
    long all = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld %ld", &all, &resident) != 2)
        abort();
    fclose(f);
    return (size_t)resident * (size_t)sysconf(_SC_PAGESIZE);
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

static int judge(const char *what, double have, double bar)
{
    printf("%-34s %7.2f  bar %.2f  %s\n", what, have, bar, have <= bar ? "kept" : "MISSED");
    return have > bar;
}

/* Depths beside each other: the same work among few messages and among many. */

struct scene {
    uint64_t waiting, scheduled, leased;
    struct bench bench;
    double bytes; /* of memory, each waiting message */
    struct cost cost;
    double put_ns[ROUNDS], claim_ns[ROUNDS], ack_ns[ROUNDS], sweep_ns[ROUNDS];
};

static void open_scene(struct scene *s)
{
    open_bench(&s->bench);
    put(&s->bench, s->leased, 0);
    for (uint64_t left = s->leased; left > 0;)
        left -= claim(&s->bench);
    put(&s->bench, s->scheduled, 86400000);
    size_t before = resident_bytes();
    put(&s->bench, s->waiting, 0);
    s->bytes = (double)(resident_bytes() - before) / (double)s->waiting;
    s->cost = (struct cost){1e9, 1e9, 1e9, 1e9};
}

/* Steady state: as many go as come. */
static void run_round(struct scene *s, int round)
{
    s->put_ns[round] = put(&s->bench, CLAIM_BATCH, 0);
    double t0 = now_ns();
    uint32_t n = claim(&s->bench);
    double t1 = now_ns();
    ack(&s->bench);
    double t2 = now_ns();
    for (int k = 0; k < SWEEPS; k++)
        sweep(&s->bench);
    double t3 = now_ns();
    s->claim_ns[round] = (t1 - t0) / n;
    s->ack_ns[round] = (t2 - t1) / n;
    s->sweep_ns[round] = (t3 - t2) / SWEEPS;
}

/* Each round takes the scenes in turns, so that a busy moment meets all of them. */
static void run_scenes(struct scene *scenes, size_t count)
{
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        for (int round = 0; round < ROUNDS; round++) {
            for (size_t i = 0; i < count; i++)
                run_round(&scenes[i], round);
        }
        for (size_t i = 0; i < count; i++) {
            struct scene *s = &scenes[i];
            s->cost.put_ns = least(s->cost.put_ns, median(s->put_ns, ROUNDS));
            s->cost.claim_ns = least(s->cost.claim_ns, median(s->claim_ns, ROUNDS));
            s->cost.ack_ns = least(s->cost.ack_ns, median(s->ack_ns, ROUNDS));
            s->cost.sweep_ns = least(s->cost.sweep_ns, median(s->sweep_ns, ROUNDS));
        }
    }
}

static int depths(uint64_t most)
{
    static struct scene scenes[] = {{.waiting = 1000},
                                    {.waiting = 1000, .scheduled = 1},
                                    {.waiting = 1000, .leased = 100000},
                                    {.waiting = 1},
                                    {.waiting = 1}};
    enum { FEW, FUTURE, LEASED, TENTH, MOST, COUNT };
    scenes[FUTURE].scheduled = scenes[TENTH].waiting = most / 10;
    scenes[MOST].waiting = most;
    for (int i = 0; i < COUNT; i++)
        open_scene(&scenes[i]);
    run_scenes(scenes, COUNT);
    printf("%10s %10s %10s %7s %7s %7s %7s  ns/op\n", "waiting", "scheduled", "leased", "put",
           "claim", "ack", "sweep");
    for (int i = 0; i < COUNT; i++) {
        const struct scene *s = &scenes[i];
        const struct cost *c = &s->cost;
        printf("%10" PRIu64 " %10" PRIu64 " %10" PRIu64 " %7.0f %7.0f %7.0f %7.0f\n", s->waiting,
               s->scheduled, s->leased, c->put_ns, c->claim_ns, c->ack_ns, c->sweep_ns);
    }
    const struct cost *few = &scenes[FEW].cost, *deep = &scenes[MOST].cost;
    int missed = judge("put, deepest against 1000", deep->put_ns / few->put_ns, RATIO_BAR);
    missed += judge("claim, deepest against 1000", deep->claim_ns / few->claim_ns, RATIO_BAR);
    missed += judge("ack, deepest against 1000", deep->ack_ns / few->ack_ns, RATIO_BAR);
    missed += judge("sweep, deepest against 1000", deep->sweep_ns / few->sweep_ns, RATIO_BAR);
    missed += judge("claim, future-dated against none",
                    scenes[FUTURE].cost.claim_ns / few->claim_ns, FUTURE_BAR);
    missed += judge("claim, leased against none", scenes[LEASED].cost.claim_ns / few->claim_ns,
                    RATIO_BAR);
    missed += judge("bytes of a ready message", scenes[MOST].bytes, MEMORY_BAR);
    for (int i = 0; i < COUNT; i++)
        close_bench(&scenes[i].bench);
    return missed;
}

/* Policies beside each other: the same messages, claimed in turns. */

struct variant {
    const char *name;
    enum policy_kind policy;
    int64_t age_ms; /* of each level; 0: none */
    bool extreme;   /* ten levels in one: batches are shown and not judged */
    struct bench bench;
    double one_ns, many_ns; /* a claim of one, and each message of a claim of many */
};

static void open_variant(struct variant *v)
{
    struct queue_config c;
    if (!config_profile("levels", &c))
        abort();
    c.policy = v->policy;
    for (int rank = 1; rank < c.level_count; rank++)
        c.levels[rank].age_ms = v->age_ms;
    open_with(&v->bench, &c);
    put(&v->bench, 1000, 0); /* in the cache: strict claims are often of what came just now */
}

static double time_claims(struct bench *b, uint32_t each)
{
    claimed_count = 0;
    put(b, CLAIM_BATCH, 0);
    double started = now_ns();
    for (uint32_t n = 0; n < CLAIM_BATCH; n += each) {
        if (claim_some(b, each) != each)
            abort();
    }
    double spent_ns = now_ns() - started;
    ack(b);
    return spent_ns / CLAIM_BATCH;
}

/* Each round takes the policies in turns, so that a busy moment meets all of them. */
static void compare(struct variant *variants, size_t count)
{
    static double ones[8][ROUNDS], manys[8][ROUNDS];
    for (size_t i = 0; i < count; i++)
        variants[i].one_ns = variants[i].many_ns = 1e9;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        for (int round = 0; round < ROUNDS; round++) {
            for (size_t i = 0; i < count; i++) {
                ones[i][round] = time_claims(&variants[i].bench, 1);
                manys[i][round] = time_claims(&variants[i].bench, CLAIM_BATCH);
            }
        }
        for (size_t i = 0; i < count; i++) {
            variants[i].one_ns = least(variants[i].one_ns, median(ones[i], ROUNDS));
            variants[i].many_ns = least(variants[i].many_ns, median(manys[i], ROUNDS));
        }
    }
}

static int policies(void)
{
    static struct variant variants[] = {
        {.name = "strict", .policy = POLICY_STRICT},
        {.name = "weighted", .policy = POLICY_WEIGHTED},
        {.name = "strict, aging", .policy = POLICY_STRICT, .age_ms = 3600000},
        {.name = "strict, all aged", .policy = POLICY_STRICT, .age_ms = 1, .extreme = true},
        {.name = "weighted, aging", .policy = POLICY_WEIGHTED, .age_ms = 3600000},
        {.name = "weighted, all aged", .policy = POLICY_WEIGHTED, .age_ms = 1, .extreme = true},
    };
    size_t count = sizeof(variants) / sizeof(variants[0]);
    int missed = 0;
    for (size_t i = 0; i < count; i++)
        open_variant(&variants[i]);
    compare(variants, count);
    printf("%-34s %7s %7s  ns a message, claimed one or %d at a time\n", "", "one", "many",
           CLAIM_BATCH);
    for (size_t i = 0; i < count; i++)
        printf("%-34s %7.0f %7.0f\n", variants[i].name, variants[i].one_ns, variants[i].many_ns);
    for (size_t i = 1; i < count; i++) {
        char what[64];
        snprintf(what, sizeof(what), "%s against strict", variants[i].name);
        missed += judge(what, variants[i].one_ns / variants[0].one_ns, POLICY_BAR);
        double ratio = variants[i].many_ns / variants[0].many_ns;
        snprintf(what, sizeof(what), "  %d at a time", CLAIM_BATCH);
        if (variants[i].extreme)
            printf("%-34s %7.2f\n", what, ratio);
        else
            missed += judge(what, ratio, POLICY_BAR);
    }
    for (size_t i = 0; i < count; i++)
        close_bench(&variants[i].bench);
    return missed;
}

int main(int argc, char **argv)
{
    int missed = depths(argc > 1 ? strtoull(argv[1], NULL, 10) : 10000000);
    missed += policies();
    return missed > 0;
}
