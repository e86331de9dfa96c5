#include "api/fields.h"
#include "api/problem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

struct taken {
    int64_t count;
    int64_t wait_ms;
    double share;
    bool flag;
    char text[32];
    struct priority_ref priority;
    int choice;
    int64_t when_ms;
    unsigned tags;
};

static bool take_count(struct field *f, void *target)
{
    return field_i64(f, 1, 100, &((struct taken *)target)->count);
}

static bool take_wait(struct field *f, void *target)
{
    return field_seconds(f, 0, 60, &((struct taken *)target)->wait_ms);
}

static bool take_share(struct field *f, void *target)
{
    return field_double(f, 0, 1, &((struct taken *)target)->share);
}

static bool take_flag(struct field *f, void *target)
{
    return field_bool(f, &((struct taken *)target)->flag);
}

static bool take_text(struct field *f, void *target)
{
    struct taken *t = target;
    const char *text;
    size_t len;
    if (!field_text(f, 1, 31, &text, &len))
        return false;
    memcpy(t->text, text, len);
    t->text[len] = '\0';
    return true;
}

static bool take_priority(struct field *f, void *target)
{
    return field_priority(f, &((struct taken *)target)->priority);
}

static bool take_choice(struct field *f, void *target)
{
    static const char *const names[] = {"none", "fixed"};
    return field_choice(f, names, 2, &((struct taken *)target)->choice);
}

static bool take_when(struct field *f, void *target)
{
    return field_time(f, &((struct taken *)target)->when_ms);
}

static bool take_tag(struct field *f, void *target)
{
    (void)f;
    ((struct taken *)target)->tags++;
    return true;
}

static const struct field_spec specs[] = {
    FIELD("count", take_count),   FIELD("wait_seconds", take_wait),
    FIELD("share", take_share),   FIELD("flag", take_flag),
    FIELD("text", take_text),     FIELD("priority", take_priority),
    FIELD("choice", take_choice), FIELD("when", take_when),
    FIELD("tag.*", take_tag),
};
static const struct field_table table = FIELD_TABLE(specs);

static struct problem problem;
static struct taken taken;

static bool json(const char *text)
{
    struct json_doc doc;
    problem = (struct problem){0};
    taken = (struct taken){0};
    json_init(&doc);
    assert_true(json_parse(&doc, text, strlen(text), 100));
    bool ok = fields_object(&doc, 0, "", &table, &taken, &problem);
    json_fini(&doc);
    return ok;
}

static bool query(const char *text)
{
    struct buf scratch = {0};
    problem = (struct problem){0};
    taken = (struct taken){0};
    bool ok = fields_query(text, strlen(text), &scratch, &table, &taken, &problem);
    buf_fini(&scratch);
    return ok;
}

static void values_of_an_object_are_taken(void **state)
{
    (void)state;
    assert_true(json("{\"count\":7,\"wait_seconds\":1.5,\"share\":0.25,\"flag\":true,"
                     "\"text\":\"h\\u00e4\",\"priority\":-3,\"choice\":\"fixed\","
                     "\"when\":\"1970-01-01T00:00:01Z\"}"));
    assert_int_equal(taken.count, 7);
    assert_int_equal(taken.wait_ms, 1500);
    assert_true(taken.share == 0.25);
    assert_true(taken.flag);
    assert_string_equal(taken.text, "hä");
    assert_int_equal(taken.priority.kind, PRIORITY_NUMBER);
    assert_int_equal(taken.priority.number, -3);
    assert_int_equal(taken.choice, 1);
    assert_int_equal(taken.when_ms, 1000);
}

static void the_same_values_come_from_a_query(void **state)
{
    (void)state;
    assert_true(query("count=7&wait_seconds=1.5&flag=true&text=123&priority=HIGH&choice=none&"
                      "when=1970-01-01T00:00:01%2B00:00"));
    assert_int_equal(taken.count, 7);
    assert_int_equal(taken.wait_ms, 1500);
    assert_true(taken.flag);
    assert_string_equal(taken.text, "123");
    assert_int_equal(taken.priority.kind, PRIORITY_NAME);
    assert_string_equal(taken.priority.name, "HIGH");
    assert_int_equal(taken.when_ms, 1000);
    assert_true(query(""));
    assert_true(query("priority=9"));
    assert_int_equal(taken.priority.kind, PRIORITY_NUMBER);
    assert_true(query("tag.a=1&tag.b=2"));
    assert_int_equal(taken.tags, 2);
}

static void what_is_not_allowed_names_its_field(void **state)
{
    static const struct {
        const char *text, *field;
        enum status status;
    } bad[] = {
        {"{\"count\":0}", "/count", STATUS_INVALID_FIELD},
        {"{\"count\":101}", "/count", STATUS_INVALID_FIELD},
        {"{\"count\":\"7\"}", "/count", STATUS_INVALID_FIELD},
        {"{\"count\":1.5}", "/count", STATUS_INVALID_FIELD},
        {"{\"wait_seconds\":-0.1}", "/wait_seconds", STATUS_INVALID_FIELD},
        {"{\"wait_seconds\":1e300}", "/wait_seconds", STATUS_INVALID_FIELD},
        {"{\"flag\":1}", "/flag", STATUS_INVALID_FIELD},
        {"{\"flag\":\"true\"}", "/flag", STATUS_INVALID_FIELD},
        {"{\"text\":5}", "/text", STATUS_INVALID_FIELD},
        {"{\"text\":\"\"}", "/text", STATUS_INVALID_FIELD},
        {"{\"priority\":1.5}", "/priority", STATUS_UNKNOWN_PRIORITY},
        {"{\"priority\":[]}", "/priority", STATUS_UNKNOWN_PRIORITY},
        {"{\"choice\":\"often\"}", "/choice", STATUS_INVALID_FIELD},
        {"{\"when\":\"soon\"}", "/when", STATUS_INVALID_FIELD},
        {"{\"cuont\":1}", "/cuont", STATUS_UNKNOWN_FIELD},
        {"{\"a/b~c\":1}", "/a~1b~0c", STATUS_UNKNOWN_FIELD},
        {"[]", "", STATUS_INVALID_FIELD},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_false(json(bad[i].text));
        assert_int_equal(problem.status, bad[i].status);
        assert_string_equal(problem.field, bad[i].field);
        assert_true(problem.detail[0] != '\0');
    }
}

static void a_query_is_held_to_the_same_rules(void **state)
{
    (void)state;
    assert_false(query("count=0"));
    assert_string_equal(problem.field, "/count");
    assert_false(query("count=1&count=2"));
    assert_int_equal(problem.status, STATUS_INVALID_FIELD);
    assert_false(query("nonsense=1"));
    assert_int_equal(problem.status, STATUS_UNKNOWN_FIELD);
    assert_false(query("text=%ff"));
    assert_int_equal(problem.status, STATUS_MALFORMED_REQUEST);
    assert_false(query("text=%"));
    assert_int_equal(problem.status, STATUS_MALFORMED_REQUEST);
    assert_false(query("flag=yes"));
    assert_false(query("tag.=1"));
    assert_int_equal(problem.status, STATUS_UNKNOWN_FIELD);
}

static void numbers_look_like_numbers(void **state)
{
    static const char *const yes[] = {"0", "-1", "10", "1.5", "-0.25"};
    static const char *const no[] = {"", "-", "1.", ".5", "1e3", "0x1", "1 ", "nan", "+1"};
    (void)state;
    for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++)
        assert_true(number_looks(yes[i], strlen(yes[i])));
    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
        assert_false(number_looks(no[i], strlen(no[i])));
}

static void a_problem_is_a_document_with_a_way_out(void **state)
{
    struct buf out = {0};
    struct problem p = {.status = STATUS_RECEIPT_EXPIRED};
    (void)state;
    problem_put(&out, &p);
    struct json_doc doc;
    json_init(&doc);
    assert_true(json_parse(&doc, out.data, out.len, 20));
    assert_true(json_is(json_get(&doc, 0, "type"), "urn:triage:receipt-expired"));
    int64_t status = 0;
    assert_true(json_i64(json_get(&doc, 0, "status"), &status));
    assert_int_equal(status, 409);
    assert_non_null(json_get(&doc, 0, "detail"));
    assert_null(json_get(&doc, 0, "field"));
    assert_null(problem_headers(STATUS_RECEIPT_EXPIRED));
    assert_non_null(problem_headers(STATUS_QUEUE_FULL));
    assert_non_null(problem_headers(STATUS_DRAINING));
    json_fini(&doc);
    buf_fini(&out);
}

/* A long name in two-byte characters is cut at every possible place. */
static void what_is_cut_to_fit_stays_utf8(void **state)
{
    char name[401];
    (void)state;
    for (size_t shift = 0; shift < 4; shift++) {
        struct problem p = {0};
        memset(name, 'x', shift);
        for (size_t i = shift; i + 1 < 400; i += 2)
            memcpy(name + i, "\xc3\xa4", 2);
        size_t len = shift + (400 - shift) / 2 * 2;
        name[len < 400 ? len : 400] = '\0';
        problem_set_field(&p, "/base", name, len);
        problem_set(&p, STATUS_UNKNOWN_FIELD, "%s", name);
        assert_true(utf8_valid(p.field, strlen(p.field)));
        assert_true(utf8_valid(p.detail, strlen(p.detail)));
        char small[64];
        problem_copy_text(small, sizeof(small), name);
        assert_true(utf8_valid(small, strlen(small)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_of_an_object_are_taken),
        cmocka_unit_test(the_same_values_come_from_a_query),
        cmocka_unit_test(what_is_not_allowed_names_its_field),
        cmocka_unit_test(a_query_is_held_to_the_same_rules),
        cmocka_unit_test(numbers_look_like_numbers),
        cmocka_unit_test(a_problem_is_a_document_with_a_way_out),
        cmocka_unit_test(what_is_cut_to_fit_stays_utf8),
    };
    return cmocka_run_group_tests_name("api fields", tests, NULL, NULL);
}
