#include "core/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct message_id ids[] = {
    {0, 0, 0, 0},
    {1, 4, 1775746800000, 1},
    {UINT32_MAX, 15, TIME_MS_MAX, (1ULL << 48) - 1},
    {7, 3, -TIME_MS_MAX, 99},
    {7, 3, -1, 99},
    {0x01020304, 5, 0x060708090A0B, 0x0C0D0E0F1011},
};
#define ID_COUNT (sizeof(ids) / sizeof(ids[0]))

static void ids_come_back_from_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < ID_COUNT; i++) {
        char text[MESSAGE_ID_TEXT + 1];
        message_id_format(&ids[i], text);
        assert_int_equal(strlen(text), MESSAGE_ID_TEXT);
        assert_memory_equal(text, "msg_", 4);
        struct message_id back;
        assert_true(message_id_parse(text, MESSAGE_ID_TEXT, &back));
        assert_int_equal(back.queue, ids[i].queue);
        assert_int_equal(back.slot, ids[i].slot);
        assert_int_equal(back.ready_ms, ids[i].ready_ms);
        assert_int_equal(back.seq, ids[i].seq);
    }
}

/* Every text that parses is the text of what it parsed to: an id has one spelling. */
static void ids_have_one_spelling(void **state)
{
    (void)state;
    for (size_t i = 0; i < ID_COUNT; i++) {
        char text[MESSAGE_ID_TEXT + 1], again[MESSAGE_ID_TEXT + 1];
        for (size_t at = 0; at < MESSAGE_ID_TEXT; at++) {
            message_id_format(&ids[i], text);
            for (int c = 1; c < 256; c++) {
                text[at] = (char)c;
                struct message_id id;
                if (!message_id_parse(text, MESSAGE_ID_TEXT, &id))
                    continue;
                message_id_format(&id, again);
                assert_string_equal(again, text);
                assert_true(id.slot < LEVEL_COUNT_MAX);
            }
        }
    }
}

static void ids_of_other_lengths_are_refused(void **state)
{
    (void)state;
    char text[MESSAGE_ID_TEXT + 2] = {0};
    struct message_id id;
    message_id_format(&ids[1], text);
    text[MESSAGE_ID_TEXT] = '0';
    assert_false(message_id_parse(text, MESSAGE_ID_TEXT + 1, &id));
    for (size_t len = 0; len < MESSAGE_ID_TEXT; len++)
        assert_false(message_id_parse(text, len, &id));
    text[3] = '-';
    assert_false(message_id_parse(text, MESSAGE_ID_TEXT, &id));
    message_id_format(&ids[1], text);
    text[10] = '\0';
    assert_false(message_id_parse(text, MESSAGE_ID_TEXT, &id));
}

static void ids_sort_by_queue_level_time_and_arrival(void **state)
{
    (void)state;
    static const struct message_id sorted[] = {
        {1, 0, -5, 9}, {1, 0, -4, 1}, {1, 0, 0, 1}, {1, 0, 7, 1},
        {1, 0, 7, 2},  {1, 1, -9, 0}, {2, 0, 0, 0},
    };
    for (size_t i = 0; i + 1 < sizeof(sorted) / sizeof(sorted[0]); i++) {
        char a[MESSAGE_ID_TEXT + 1], b[MESSAGE_ID_TEXT + 1];
        message_id_format(&sorted[i], a);
        message_id_format(&sorted[i + 1], b);
        assert_true(strcmp(a, b) < 0);
    }
}

static void receipts_come_back_from_text(void **state)
{
    (void)state;
    for (int round = 0; round < 256; round++) {
        uint8_t receipt[RECEIPT_BYTES], back[RECEIPT_BYTES];
        for (int i = 0; i < RECEIPT_BYTES; i++)
            receipt[i] = (uint8_t)(round + i * 37);
        char text[RECEIPT_TEXT + 1];
        receipt_format(receipt, text);
        assert_int_equal(strlen(text), RECEIPT_TEXT);
        assert_memory_equal(text, "rh_", 3);
        assert_true(receipt_parse(text, RECEIPT_TEXT, back));
        assert_memory_equal(back, receipt, RECEIPT_BYTES);
    }
}

static void a_receipt_knows_its_age(void **state)
{
    (void)state;
    uint8_t receipt[RECEIPT_BYTES];
    const int64_t now_ms = 1763495000123;
    memset(receipt, 0xff, sizeof(receipt));
    receipt_stamp(receipt, now_ms);
    assert_int_equal(receipt_held_ms(receipt, now_ms), 0);
    assert_int_equal(receipt_held_ms(receipt, now_ms + 86400000), 86400000);
    assert_int_equal(receipt_held_ms(receipt, now_ms - 1), -1);
    assert_int_equal(receipt_held_ms(receipt, now_ms + RECEIPT_HELD_MAX_MS + 1), -1);
    int64_t wrap_ms = (now_ms | 0xffffffffff) - 5; /* the stamp begins at 0 again in between */
    receipt_stamp(receipt, wrap_ms);
    assert_int_equal(receipt_held_ms(receipt, wrap_ms + 10), 10);
}

static void receipts_that_are_none_are_refused(void **state)
{
    (void)state;
    uint8_t receipt[RECEIPT_BYTES] = {0}, out[RECEIPT_BYTES];
    char text[RECEIPT_TEXT + 1];
    receipt_format(receipt, text);
    assert_false(receipt_parse(text, RECEIPT_TEXT - 1, out));
    assert_false(receipt_parse(text, 0, out));
    text[RECEIPT_TEXT - 1] = '1'; /* a spare bit that is set */
    assert_false(receipt_parse(text, RECEIPT_TEXT, out));
    receipt_format(receipt, text);
    static const char foreign[] = "iluoA!_- \x80\xff";
    for (size_t i = 0; i < sizeof(foreign) - 1; i++) {
        text[8] = foreign[i];
        assert_false(receipt_parse(text, RECEIPT_TEXT, out));
    }
    receipt_format(receipt, text);
    text[0] = 'R';
    assert_false(receipt_parse(text, RECEIPT_TEXT, out));
}

static void a_message_starts_with_nothing(void **state)
{
    (void)state;
    for (uint64_t seq = 1; seq < 200; seq++) {
        struct message *m = message_new(seq);
        assert_int_equal(message_seq(m), seq);
        assert_int_equal(m->state, MESSAGE_NEW);
        assert_int_equal(m->attempts, 0);
        assert_null(m->body);
        assert_null(m->delivery);
        assert_null(m->expiry);
        assert_int_equal(m->node.height, 0);
        message_free(m);
    }
    message_free(NULL);
}

static void a_body_has_three_parts(void **state)
{
    (void)state;
    struct message *m = message_new(1);
    m->body = strdup("payloadmetakey");
    m->payload_len = 7;
    m->metadata_len = 4;
    m->dedup_len = 3;
    assert_memory_equal(message_payload(m), "payload", 7);
    assert_memory_equal(message_metadata(m), "meta", 4);
    assert_memory_equal(message_dedup_key(m), "key", 3);
    assert_int_equal(message_body_len(m), 14);
    message_free(m);
}

static void every_state_has_a_name(void **state)
{
    (void)state;
    for (int s = 0; s < MESSAGE_STATE_COUNT; s++)
        assert_true(strlen(message_state_name(s)) > 0);
    assert_string_equal(message_state_name(MESSAGE_READY), "ready");
    assert_string_equal(message_state_name(MESSAGE_DEAD), "dead");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_come_back_from_text),
        cmocka_unit_test(ids_have_one_spelling),
        cmocka_unit_test(ids_of_other_lengths_are_refused),
        cmocka_unit_test(ids_sort_by_queue_level_time_and_arrival),
        cmocka_unit_test(receipts_come_back_from_text),
        cmocka_unit_test(a_receipt_knows_its_age),
        cmocka_unit_test(receipts_that_are_none_are_refused),
        cmocka_unit_test(a_message_starts_with_nothing),
        cmocka_unit_test(a_body_has_three_parts),
        cmocka_unit_test(every_state_has_a_name),
    };
    return cmocka_run_group_tests_name("message", tests, NULL, NULL);
}
