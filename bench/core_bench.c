/* What the core costs, through the memory engine: nanoseconds for a put, a claim, an ack and an
 * idle sweep, while more and more messages wait, are scheduled or are leased. The bars: a claim
 * among ten million costs at most 1.3 times one among a thousand, future-dated messages add at most
 * a tenth, a weighted or aged claim costs at most 1.2 times a strict one, and a ready message with
 * a 256-byte payload takes at most 459 bytes.
 *
 *   core_bench [MOST]     MOST: the largest number of waiting messages, 10000000 by default
 *
 * Exits with 1 when a bar is missed. */
#include "base/mem.h"
#include "engine/engine.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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
    struct engine_options options = {.kind = "memory"};
    b->now = (struct instant){.wall_ms = 1750000000000, .mono_ms = 1000};
    if (engine_open(&options, 1, &b->engine, &error) != STATUS_OK)
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
    if (!levels_profile("levels", &c))
        abort();
    open_with(b, &c);
}

static void close_bench(struct bench *b)
{
    engine_close(&b->engine, 1);
    malloc_trim(0);
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
    policy_settle(&b->policy, &plan);
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

/* Steady state: as many go as come. The median batch, so that a neighbour's noise is not the
 * core's. */
static struct cost measure(struct bench *b)
{
    static double puts[ROUNDS], claims[ROUNDS], acks[ROUNDS], sweeps[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        puts[i] = put(b, CLAIM_BATCH, 0);
        double t0 = now_ns();
        uint32_t n = claim(b);
        double t1 = now_ns();
        ack(b);
        double t2 = now_ns();
        for (int k = 0; k < SWEEPS; k++)
            sweep(b);
        double t3 = now_ns();
        claims[i] = (t1 - t0) / n;
        acks[i] = (t2 - t1) / n;
        sweeps[i] = (t3 - t2) / SWEEPS;
    }
    return (struct cost){median(puts, ROUNDS), median(claims, ROUNDS), median(acks, ROUNDS),
                         median(sweeps, ROUNDS)};
}

static size_t in_use(void)
{
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

static struct cost report(struct bench *b, const char *what)
{
    struct cost c = measure(b);
    for (int i = 0; i < REPEATS; i++) {
        struct cost again = measure(b);
        c.put_ns = least(c.put_ns, again.put_ns);
        c.claim_ns = least(c.claim_ns, again.claim_ns);
        c.ack_ns = least(c.ack_ns, again.ack_ns);
        c.sweep_ns = least(c.sweep_ns, again.sweep_ns);
    }
    printf("%-34s %7.0f %7.0f %7.0f %7.0f\n", what, c.put_ns, c.claim_ns, c.ack_ns, c.sweep_ns);
    fflush(stdout);
    return c;
}

static int judge(const char *what, double have, double bar)
{
    printf("%-34s %7.2f  bar %.2f  %s\n", what, have, bar, have <= bar ? "kept" : "MISSED");
    return have > bar;
}

static double fill_memory(struct bench *b, uint64_t waiting)
{
    size_t before = in_use();
    put(b, waiting, 0);
    return (double)(in_use() - before) / (double)waiting;
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
    if (!levels_profile("levels", &c))
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
    uint64_t most = argc > 1 ? strtoull(argv[1], NULL, 10) : 10000000;
    uint64_t depths[] = {1000, most / 10, most};
    struct cost costs[3];
    double bytes = 0;
    struct bench b;
    printf("%-34s %7s %7s %7s %7s  ns/op\n", "", "put", "claim", "ack", "sweep");
    for (int i = 0; i < 3; i++) {
        char what[64];
        open_bench(&b);
        bytes = fill_memory(&b, depths[i]);
        snprintf(what, sizeof(what), "%" PRIu64 " waiting", depths[i]);
        costs[i] = report(&b, what);
        close_bench(&b);
    }

    open_bench(&b);
    put(&b, most / 10, 86400000);
    put(&b, 1000, 0);
    struct cost future = report(&b, "1000 waiting, most/10 scheduled");
    close_bench(&b);

    open_bench(&b);
    put(&b, 100000, 0);
    while (claim(&b) > 0)
        continue;
    put(&b, 1000, 0);
    struct cost leased = report(&b, "1000 waiting, 100000 leased");
    close_bench(&b);

    /* Once more, so that a busy moment at the start does not flatter the ratios. */
    open_bench(&b);
    put(&b, 1000, 0);
    costs[0].claim_ns = least(costs[0].claim_ns, report(&b, "1000 waiting, again").claim_ns);
    close_bench(&b);

    int missed =
        judge("claim, deepest against 1000", costs[2].claim_ns / costs[0].claim_ns, RATIO_BAR);
    missed +=
        judge("claim, future-dated against none", future.claim_ns / costs[0].claim_ns, FUTURE_BAR);
    missed += judge("claim, leased against none", leased.claim_ns / costs[0].claim_ns, RATIO_BAR);
    missed += judge("bytes of a ready message", bytes, MEMORY_BAR);
    missed += policies();
    return missed > 0;
}
