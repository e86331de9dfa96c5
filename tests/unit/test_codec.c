#include "base/codec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static void encodes(const char *bytes, size_t len, const char *text)
{
    struct buf out = {0};
    base64_put(&out, bytes, len);
    assert_string_equal(buf_cstr(&out), text);
    buf_fini(&out);
}

/* In memory of its exact size, so that a sanitizer sees one byte too far. */
static bool decodes(const char *text, const char *bytes, size_t len)
{
    size_t text_len = strlen(text), got = 0;
    char *copy = malloc(text_len ? text_len : 1);
    size_t room = base64_room(text_len);
    char *out = malloc(room ? room : 1);
    memcpy(copy, text, text_len);
    bool ok = base64_decode(copy, text_len, out, &got);
    if (ok)
        ok = got == len && memcmp(out, bytes, len) == 0;
    free(copy);
    free(out);
    return ok;
}

static void base64_follows_the_examples_of_rfc_4648(void **state)
{
    static const struct {
        const char *bytes, *text;
    } examples[] = {{"", ""},
                    {"f", "Zg=="},
                    {"fo", "Zm8="},
                    {"foo", "Zm9v"},
                    {"foob", "Zm9vYg=="},
                    {"fooba", "Zm9vYmE="},
                    {"foobar", "Zm9vYmFy"},
                    {"\xfb\xff\xfe", "+//+"}};
    (void)state;
    for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
        encodes(examples[i].bytes, strlen(examples[i].bytes), examples[i].text);
        assert_true(decodes(examples[i].text, examples[i].bytes, strlen(examples[i].bytes)));
    }
}

static void base64_refuses_what_is_not_whole(void **state)
{
    static const char *const bad[] = {
        "Z",        "Zg",   "Zg=",  "Zh==", "Zm9=", "Z===",  "====", "=",
        "Zg==Zg==", "Zm 9", "Zm9-", "Zm9_", "Zg=v", "Zm9vZ", "Zm9\n"};
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char out[16];
        size_t len;
        assert_false(base64_decode(bad[i], strlen(bad[i]), out, &len));
    }
}

static void base64_gives_every_byte_back_at_every_length(void **state)
{
    char bytes[300];
    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (char)(i * 151 + 7);
    for (size_t len = 0; len <= sizeof(bytes); len++) {
        struct buf text = {0};
        base64_put(&text, bytes, len);
        assert_true(decodes(buf_cstr(&text), bytes, len));
        buf_fini(&text);
    }
}

static void percents(const char *text, bool plus, const char *expected)
{
    size_t len = strlen(text);
    char *copy = malloc(len ? len : 1);
    memcpy(copy, text, len);
    bool ok = percent_decode(copy, &len, plus);
    assert_int_equal(ok, expected != NULL);
    if (ok) {
        assert_int_equal(len, strlen(expected));
        assert_memory_equal(copy, expected, len);
    }
    free(copy);
}

static void percent_decoding_is_strict(void **state)
{
    (void)state;
    percents("", false, "");
    percents("a%20b%2fC%2F", false, "a b/C/");
    percents("a+b", false, "a+b");
    percents("a+b", true, "a b");
    percents("%41%42", true, "AB");
    percents("%", false, NULL);
    percents("%4", false, NULL);
    percents("ab%4", false, NULL);
    percents("%zz", false, NULL);
    percents("%4g", false, NULL);
}

static void a_query_is_taken_pair_by_pair(void **state)
{
    char text[] = "&a=1&&b=x%26y&c&=v&d=%3D+e&";
    static const char *const expected[][2] = {
        {"a", "1"}, {"b", "x&y"}, {"c", ""}, {"", "v"}, {"d", "= e"}};
    char *at = text, *end = text + sizeof(text) - 1;
    struct query_pair pair;
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(query_next(&at, end, &pair), QUERY_PAIR);
        assert_int_equal(pair.key_len, strlen(expected[i][0]));
        assert_memory_equal(pair.key, expected[i][0], pair.key_len);
        assert_int_equal(pair.value_len, strlen(expected[i][1]));
        assert_memory_equal(pair.value, expected[i][1], pair.value_len);
    }
    assert_int_equal(query_next(&at, end, &pair), QUERY_END);
    char bad[] = "a=%q";
    at = bad;
    assert_int_equal(query_next(&at, bad + 4, &pair), QUERY_MALFORMED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(base64_follows_the_examples_of_rfc_4648),
        cmocka_unit_test(base64_refuses_what_is_not_whole),
        cmocka_unit_test(base64_gives_every_byte_back_at_every_length),
        cmocka_unit_test(percent_decoding_is_strict),
        cmocka_unit_test(a_query_is_taken_pair_by_pair),
    };
    return cmocka_run_group_tests_name("codec", tests, NULL, NULL);
}
