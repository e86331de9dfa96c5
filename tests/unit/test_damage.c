/* Records that no server wrote, in tables whose checksums are right: written through RocksDB
 * itself. Whatever a record says, the local engine refuses to start, or stops with a sentence, or
 * goes on; no byte of a disk reaches an assertion. */
#include "conformance/driver.h"
#include "engine/local/store.h"

#include <string.h>

#define Q      "orders"
#define LOTS   40 /* more than stay in memory: the level has a tail */
#define ROUNDS 60 /* of random damage, from each seed */

static struct buf error;
static struct store *store;
static uint32_t queue_id;
static struct message_id ids[LOTS + 8];
static uint32_t id_count;

static void remember(struct message_id id)
{
    ids[id_count++] = id;
}

/* A queue with something of every kind in it: a tail, a lease, a dead letter, history, a delay, a
 * time to live, a dedup key. */
static void build(void)
{
    struct queue_config c = rig_config(3);
    c.max_attempts = 1;
    c.history_ms = 3600000;
    make_queue(Q, &c);
    queue_id = queue(Q)->id;
    struct shown s;
    enum message_state state;
    remember(put(Q, "dies", 0));
    s = claim_one(Q);
    assert_int_equal(nack(Q, &s, 0, "broken", &state), STATUS_OK);
    remember(put(Q, "done", 0));
    s = claim_one(Q);
    assert_int_equal(ack(Q, &s), STATUS_OK);
    remember(put(Q, "leased", 1));
    claim_one(Q);
    remember(put_spec(Q, (struct spec){.payload = "later", .rank = 2, .delay_ms = 5000}).id);
    remember(put_spec(Q, (struct spec){.payload = "once", .rank = 1, .dedup = "key"}).id);
    for (int i = 0; i < LOTS; i++)
        remember(put_spec(Q, (struct spec){.payload = "lot", .ttl_ms = i % 3 ? 0 : 60000}).id);
    assert_true(queue(Q)->view.ready > LOTS / 2);
}

/* A queue with a place. */
static void build_part(void)
{
    struct queue_config c = rig_config(1);
    make_queue("part", &c);
    struct engine_op op = {.verb = ENGINE_QUEUE_PLACE, .queue = queue("part")};
    op.place.epoch = 1;
    op.place.map = "a=1";
    op.place.map_len = 3;
    rig_run_one(&d.rig, &op);
    assert_int_equal(op.status, STATUS_OK);
}

static int setup(void **state)
{
    (void)state;
    d = (struct driver){.variant = "local, damaged"};
    id_count = 0;
    rig_init(&d.rig,
             &(struct rig_options){
                 .kind = "local", .durability = DURABILITY_OS, .memory_limit = 4096, .asks = true});
    build();
    build_part();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    if (d.rig.engine)
        engine_close(&d.rig.engine, 1);
    folder_remove(d.rig.dir);
    buf_fini(&error);
    return 0;
}

static void open_store(void)
{
    engine_close(&d.rig.engine, 1);
    d.rig.engine = NULL;
    assert_int_equal(store_open(d.rig.dir, 1, true, &store, &error), STATUS_OK);
}

static void commit(struct store_batch *b)
{
    assert_int_equal(store_log(store, b, &error), STATUS_OK);
    assert_int_equal(store_log_write(store, false, &error), STATUS_OK);
    assert_int_equal(store_apply(store, b, &error), STATUS_OK);
    store_batch_free(b);
}

static bool open_engine(void)
{
    buf_clear(&error);
    d.rig.options.now = d.rig.now;
    bool opened = engine_open(&d.rig.options, 1, &d.rig.engine, &error) == STATUS_OK;
    d.rig.engine = opened ? d.rig.engine : NULL;
    return opened;
}

/* Everything that can be done to a queue, whatever it answers. */

static uint64_t seen_bytes;

static void look(struct engine_op *op, const struct engine_queue *q, const struct message *m,
                 struct instant now)
{
    (void)op, (void)now;
    const char *payload = message_payload(m);
    for (uint32_t i = 0; i < m->payload_len; i++)
        seen_bytes += (unsigned char)payload[i];
    seen_bytes += message_identity(m, q->id).seq;
}

static struct engine_op *run(struct engine_queue *q, struct engine_op *op)
{
    op->queue = q;
    op->visit = look;
    rig_run_one(&d.rig, op);
    return op;
}

static void let_pass(int64_t ms)
{
    d.rig.now.wall_ms += ms;
    d.rig.now.mono_ms += ms;
    struct engine_op op = {.verb = ENGINE_SWEEP, .sweep = {.max = 1000}};
    run(NULL, &op);
}

static void read_all(struct engine_queue *q)
{
    struct list_cursor after = {0};
    for (int page = 0; page < 50; page++) {
        struct engine_op op = {.verb = ENGINE_LIST, .list = {.after = after, .limit = 7}};
        run(q, &op);
        after = op.list.next;
        if (op.status || !op.list.more)
            break;
    }
    struct engine_op dead = {.verb = ENGINE_DEAD_LIST, .list = {.limit = 100}};
    run(q, &dead);
    for (uint32_t i = 0; i < id_count; i++) {
        struct engine_op get = {.verb = ENGINE_GET, .one = {.id = ids[i]}};
        run(q, &get);
    }
}

static void claim_some(struct engine_queue *q)
{
    for (int i = 0; i < q->config.level_count; i++) {
        struct plan plan = plan_from(q->name, i, 30);
        struct engine_op op = {.verb = ENGINE_CLAIM, .claim = {.plan = &plan, .lease_ms = 1000}};
        run(q, &op);
    }
}

static void use(struct engine_queue *q)
{
    read_all(q);
    struct put_item item = {.draft =
                                draft_of(q->name, (struct spec){.payload = "new", .dedup = "key"})};
    struct engine_op put = {.verb = ENGINE_PUT, .put = {.items = &item, .count = 1}};
    run(q, &put);
    draft_fini(&item.draft);
    claim_some(q);
    let_pass(6000);
    struct engine_op redrive = {.verb = ENGINE_DEAD_REDRIVE,
                                .bulk = {.max = 10, .before_seq = UINT64_MAX, .slot = -1}};
    run(q, &redrive);
    claim_some(q);
    for (uint32_t i = 0; i < id_count; i += 5) {
        struct engine_op cancel = {.verb = ENGINE_CANCEL, .one = {.id = ids[i]}};
        run(q, &cancel);
    }
    let_pass(60000);
    read_all(q);
    struct engine_op purge = {.verb = ENGINE_PURGE, .bulk = {.max = 10, .before_seq = UINT64_MAX}};
    for (int i = 0; i < 20 && !run(q, &purge)->status && purge.bulk.more; i++)
        ;
    struct engine_op drop = {.verb = ENGINE_DEAD_DROP,
                             .bulk = {.max = 100, .before_seq = UINT64_MAX}};
    run(q, &drop);
}

static void use_all(void)
{
    size_t at = 0;
    for (struct engine_queue *q; (q = engine_queue_each(d.rig.engine, &at));)
        use(q);
}

/* The engine says why it does not go on. */
static void assert_named(const char *words)
{
    if (d.rig.engine) {
        buf_clear(&error);
        assert_int_equal(engine_health(d.rig.engine, &error), STATUS_ENGINE_UNAVAILABLE);
    }
    if (!strstr(buf_cstr(&error), words))
        fail_msg("\"%s\" does not say \"%s\"", buf_cstr(&error), words);
}

static void put_record(enum store_family f, const struct key *k, const struct buf *value)
{
    struct store_batch *b = store_batch_new();
    store_put(store, b, f, k, value);
    commit(b);
}

static struct key key_for(enum key_tag tag)
{
    struct key k;
    key_queue(&k, tag, queue_id);
    return k;
}

static void put_queue(const struct queue_config *config, uint32_t id)
{
    struct buf value = {0};
    struct key k;
    key_queue(&k, KEY_QUEUE, id);
    record_put_queue(&value, Q, config);
    put_record(STORE_HOT, &k, &value);
    buf_fini(&value);
}

static struct queue_config config_of(uint32_t levels)
{
    struct queue_config c = rig_config(levels);
    for (uint8_t i = 0; i < levels; i++)
        c.levels[i].slot = i;
    return c;
}

static void assert_refused_at_start(const char *words)
{
    store_close(store);
    assert_false(open_engine());
    assert_named(words);
}

/* One kind of damage each */

static void two_queues_of_one_name_are_damage(void **state)
{
    (void)state;
    struct queue_config c = config_of(3);
    open_store();
    put_queue(&c, queue_id + 1);
    assert_refused_at_start("second queue");
}

static void a_configuration_that_nobody_could_have_made_is_damage(void **state)
{
    (void)state;
    struct queue_config c = config_of(3);
    c.ttl_ms = TIME_MS_MAX; /* would reach past what a key can hold */
    open_store();
    put_queue(&c, queue_id);
    assert_refused_at_start("damaged queue record");
}

static void a_configuration_without_a_level_that_holds_messages_is_damage(void **state)
{
    (void)state;
    struct queue_config c = config_of(2); /* the third has one that is scheduled */
    open_store();
    put_queue(&c, queue_id);
    assert_refused_at_start("damaged message or counters record");
}

static void a_key_with_something_behind_it_is_damage(void **state)
{
    (void)state;
    struct queue_config c = config_of(3);
    struct buf value = {0};
    open_store();
    struct key k = key_for(KEY_QUEUE);
    k.bytes[k.len++] = 'x';
    record_put_queue(&value, "other", &c);
    put_record(STORE_HOT, &k, &value);
    buf_fini(&value);
    assert_refused_at_start("damaged queue record");
}

static void put_place(uint32_t id, const char *bytes, size_t len)
{
    struct buf value = {0};
    struct key k;
    key_queue(&k, KEY_PLACE, id);
    buf_put(&value, bytes, len);
    put_record(STORE_HOT, &k, &value);
    buf_fini(&value);
}

static void a_place_that_does_not_decode_is_damage(void **state)
{
    (void)state;
    open_store();
    put_place(queue_id, "\3nothing", 8);
    assert_refused_at_start("damaged place record");
}

static void put_share(uint32_t id, const struct queue_share *share, size_t cut)
{
    struct buf value = {0};
    struct key k;
    key_queue(&k, KEY_SHARE, id);
    record_put_share(&value, share);
    value.len -= cut;
    put_record(STORE_HOT, &k, &value);
    buf_fini(&value);
}

static void a_share_that_does_not_decode_is_damage(void **state)
{
    (void)state;
    struct queue_share share = {.epoch = 1};
    open_store();
    put_share(queue_id, &share, 1);
    assert_refused_at_start("damaged share record");
}

static void a_share_larger_than_any_limit_is_damage(void **state)
{
    (void)state;
    struct queue_share share = {.epoch = 1, .most = {(uint64_t)SHARE_WHOLE + 1}};
    open_store();
    put_share(queue_id, &share, 0);
    assert_refused_at_start("damaged share record");
}

static void a_place_of_no_queue_is_damage(void **state)
{
    (void)state;
    open_store();
    put_place(queue_id + 7, "\3\0\0\0\0\0\0\0\1\0\0\0", 12);
    assert_refused_at_start("damaged place record");
}

static struct engine_inspection inspected(void)
{
    struct engine_inspection i = {0};
    assert_int_equal(engine_inspect(d.rig.dir, &i, &error), STATUS_OK);
    return i;
}

static void an_inspection_knows_what_a_place_is(void **state)
{
    (void)state;
    engine_close(&d.rig.engine, 1);
    d.rig.engine = NULL;
    struct engine_inspection i = inspected();
    assert_int_equal(i.damages, 0);
    assert_int_equal(i.queues, 2);
    assert_int_equal(store_open(d.rig.dir, 1, true, &store, &error), STATUS_OK);
    put_place(queue_id, "\3nothing", 8);
    store_close(store);
    i = inspected();
    assert_int_equal(i.damages, 1);
    assert_int_equal(i.queues, 2);
}

static void put_born(enum store_family f, struct message_id id)
{
    struct buf value = {0};
    struct key k;
    struct message *m = message_new(id.seq);
    record_put_message(&value, m);
    key_message(&k, &id);
    put_record(f, &k, &value);
    message_free(m);
    buf_fini(&value);
}

static void two_messages_of_one_number_are_damage(void **state)
{
    (void)state;
    open_store();
    struct message_id id = ids[3]; /* in memory */
    id.ready_ms++;
    put_born(STORE_HOT, id);
    assert_refused_at_start("damaged message");
}

static void a_message_that_the_counters_do_not_have_is_damage(void **state)
{
    (void)state;
    open_store();
    struct message_id id = ids[id_count - 1]; /* the last of the tail */
    id.seq = 999;
    put_born(STORE_COLD, id);
    store_close(store);
    if (open_engine())
        use_all();
    assert_named("of queue " Q " is in the store");
}

static void counters_that_were_set_back_are_damage(void **state)
{
    (void)state;
    open_store();
    struct record_counters c = {.next_seq = id_count + 1, .peaks = {.seen_ms = INT64_MIN}};
    struct buf value = {0};
    struct key k = key_for(KEY_COUNTERS);
    record_put_counters(&value, &c);
    put_record(STORE_HOT, &k, &value);
    buf_fini(&value);
    store_close(store);
    assert_true(open_engine());
    use_all();
    assert_named("of queue " Q " is");
}

static void put_whole(enum key_tag tag, uint64_t seq, enum message_state state)
{
    struct buf value = {0};
    struct key k;
    struct message *m = message_new(seq);
    m->state = (uint8_t)state;
    m->born_ms = m->ready_ms = ids[0].ready_ms;
    message_delivery(m)->died_ms = d.rig.now.wall_ms;
    record_put_whole(&value, m, 1, INT64_MAX);
    key_seq(&k, tag, queue_id, seq);
    put_record(STORE_COLD, &k, &value);
    message_free(m);
    buf_fini(&value);
}

static void a_dead_letter_that_never_died_is_damage(void **state)
{
    (void)state;
    open_store();
    put_whole(KEY_DEAD, ids[0].seq, MESSAGE_DONE);
    store_close(store);
    assert_true(open_engine());
    use_all();
    assert_named("and was neither");
}

static void a_dead_letter_that_the_counters_do_not_have_is_damage(void **state)
{
    (void)state;
    open_store();
    put_whole(KEY_DEAD, 5, MESSAGE_DEAD);
    store_close(store);
    assert_true(open_engine());
    use_all();
    assert_named("its queue's counters do not have");
}

static void a_dedup_key_that_does_not_decode_is_damage(void **state)
{
    (void)state;
    struct key k;
    struct buf value = {0};
    open_store();
    key_dedup(&k, queue_id, "key", 3);
    buf_puts(&value, "nonsense");
    put_record(STORE_COLD, &k, &value);
    buf_fini(&value);
    store_close(store);
    assert_true(open_engine());
    use_all();
    assert_named("a dedup key in the store does not decode");
}

/* Any damage */

static uint64_t seed;

static uint32_t pick(uint32_t below)
{
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (uint32_t)(seed >> 33) % below;
}

#define RECORDS_MAX 400

struct stored {
    enum store_family family;
    struct key key;
    struct buf value;
};

static struct stored records[RECORDS_MAX];
static uint32_t record_count;

static void read_family(enum store_family f)
{
    for (int tag = 'a'; tag <= 'z'; tag++) {
        struct key prefix = {.len = 1, .bytes = {(char)tag}};
        struct store_iter *it = store_iter_open(store, f, &prefix, NULL);
        for (; tag != KEY_LOG && store_iter_valid(it); store_iter_next(it)) {
            assert_true(record_count < RECORDS_MAX);
            struct stored *s = &records[record_count++];
            size_t len;
            const char *bytes = store_iter_key(it, &len);
            *s = (struct stored){.family = f, .key = {.len = (uint16_t)len}};
            memcpy(s->key.bytes, bytes, len);
            bytes = store_iter_value(it, &len);
            buf_put(&s->value, bytes, len);
        }
        assert_true(store_iter_close(it, &error));
    }
}

static void set_byte(char *bytes, size_t len)
{
    static const unsigned char odd[] = {0, 1, 2, 0x7f, 0x80, 0xff};
    size_t at = len > 0 ? pick((uint32_t)len) : 0;
    if (len > 0)
        bytes[at] = (char)(pick(2) ? odd[pick(sizeof(odd))] : pick(256));
}

/* What is common is rarely of interest: half of the time it is one that there is only one of. */
static struct stored *any_record(void)
{
    struct stored *s = &records[pick(record_count)];
    for (int i = 0; i < 8 && s->key.bytes[0] == KEY_MESSAGE; i++)
        s = &records[pick(record_count)];
    return pick(2) ? s : &records[pick(record_count)];
}

static void damage_one(struct store_batch *b)
{
    const struct stored *s = any_record();
    struct key k = s->key;
    struct buf value = {0};
    buf_put(&value, s->value.data, s->value.len);
    uint32_t what = pick(12);
    if (what < 5) {
        set_byte(value.data, value.len);
    } else if (what < 8) { /* a copy in another place */
        set_byte(k.bytes + 1, k.len - 1U);
    } else if (what == 8) {
        value.len = value.len > 0 ? pick((uint32_t)value.len) : 0;
    } else if (what == 9) {
        store_delete(store, b, s->family, &k);
        buf_fini(&value);
        return;
    } else if (what == 10) { /* in the other family */
        store_put(store, b, s->family == STORE_HOT ? STORE_COLD : STORE_HOT, &k, &value);
        buf_fini(&value);
        return;
    } else {
        const struct stored *other = any_record();
        buf_clear(&value);
        buf_put(&value, other->value.data, other->value.len);
    }
    store_put(store, b, s->family, &k, &value);
    buf_fini(&value);
}

static void any_damage_is_survived(uint64_t from)
{
    for (uint64_t round = 0; round < ROUNDS; round++) {
        seed = from + round;
        pick(1);
        setup(NULL);
        open_store();
        read_family(STORE_HOT);
        read_family(STORE_COLD);
        struct store_batch *b = store_batch_new();
        for (uint32_t i = 1 + pick(3); i > 0; i--)
            damage_one(b);
        commit(b);
        store_close(store);
        if (open_engine())
            use_all();
        else
            assert_true(error.len > 0);
        while (record_count > 0)
            buf_fini(&records[--record_count].value);
        teardown(NULL);
    }
}

static void what_a_record_says_never_ends_the_server(void **state)
{
    (void)state;
    const char *given = getenv("TRIAGE_SEED");
    any_damage_is_survived(given ? strtoull(given, NULL, 10) : 1000);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(two_queues_of_one_name_are_damage),
        TEST(a_configuration_that_nobody_could_have_made_is_damage),
        TEST(a_configuration_without_a_level_that_holds_messages_is_damage),
        TEST(a_key_with_something_behind_it_is_damage),
        TEST(a_place_that_does_not_decode_is_damage),
        TEST(a_place_of_no_queue_is_damage),
        TEST(a_share_that_does_not_decode_is_damage),
        TEST(a_share_larger_than_any_limit_is_damage),
        TEST(an_inspection_knows_what_a_place_is),
        TEST(two_messages_of_one_number_are_damage),
        TEST(a_message_that_the_counters_do_not_have_is_damage),
        TEST(counters_that_were_set_back_are_damage),
        TEST(a_dead_letter_that_never_died_is_damage),
        TEST(a_dead_letter_that_the_counters_do_not_have_is_damage),
        TEST(a_dedup_key_that_does_not_decode_is_damage),
        cmocka_unit_test(what_a_record_says_never_ends_the_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
