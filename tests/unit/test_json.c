#include "base/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define TOKENS_MAX 200000

/* The text is copied to memory of its exact size, so that a sanitizer sees one byte too far. */
struct fixture {
    struct json_doc doc;
    char *text;
};

static struct fixture f;

static int setup(void **state)
{
    (void)state;
    json_init(&f.doc);
    f.text = NULL;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    json_fini(&f.doc);
    free(f.text);
    return 0;
}

static bool parse_bytes(const char *text, size_t len)
{
    free(f.text);
    f.text = malloc(len ? len : 1);
    memcpy(f.text, text, len);
    return json_parse(&f.doc, f.text, len, TOKENS_MAX);
}

static bool parse(const char *text)
{
    return parse_bytes(text, strlen(text));
}

static void assert_text(const char *at, size_t len, const char *expected)
{
    assert_int_equal(len, strlen(expected));
    assert_memory_equal(at, expected, len);
}

static void json_keeps_every_value_as_it_stands(void **state)
{
    (void)state;
    const char *text = " {\"a\" : [1, -2.5e+3 ,true] ,\n\"b\":{ \"x\\n\": null },\"c\":\"q\\\"\"} ";
    assert_true(parse(text));
    static const char *const raws[] = {
        "{\"a\" : [1, -2.5e+3 ,true] ,\n\"b\":{ \"x\\n\": null },\"c\":\"q\\\"\"}",
        "[1, -2.5e+3 ,true]",
        "1",
        "-2.5e+3",
        "true",
        "{ \"x\\n\": null }",
        "null",
        "\"q\\\"\"",
    };
    static const uint32_t ends[] = {8, 5, 3, 4, 5, 7, 7, 8};
    assert_int_equal(f.doc.count, 8);
    for (uint32_t i = 0; i < f.doc.count; i++) {
        assert_text(f.doc.tokens[i].raw, f.doc.tokens[i].raw_len, raws[i]);
        assert_int_equal(f.doc.tokens[i].end, ends[i]);
    }
    assert_int_equal(f.doc.tokens[0].count, 3);
    assert_text(f.doc.tokens[6].key, f.doc.tokens[6].key_len, "x\n");
    assert_text(f.doc.tokens[7].str, f.doc.tokens[7].len, "q\"");
    assert_null(f.doc.tokens[2].key);
    assert_true(f.doc.tokens[4].boolean);
}

static void json_walks_a_container_in_order(void **state)
{
    (void)state;
    assert_true(parse("{\"a\":[[],[1]],\"b\":{},\"c\":3}"));
    char seen[4] = "";
    size_t n = 0;
    for (uint32_t i = json_first(&f.doc, 0); i; i = json_next(&f.doc, 0, i))
        seen[n++] = f.doc.tokens[i].key[0];
    assert_string_equal(seen, "abc");
    const struct json_token *b = json_get(&f.doc, 0, "b");
    assert_int_equal(json_first(&f.doc, (uint32_t)(b - f.doc.tokens)), 0);
    assert_null(json_get(&f.doc, 0, "d"));
    assert_null(json_get(&f.doc, 1, "a"));
}

static void json_takes_any_value_as_root(void **state)
{
    (void)state;
    static const char *const texts[] = {"1",     "-0", "0.5", "1e9", "true",    "false", "null",
                                        "\"x\"", "{}", "[]",  " 7 ", "\"\\n\"", "\"\"",  "[{}]\n"};
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
            assert_true(parse(texts[i]));
}

static void json_refuses_what_is_not_one_value(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",          " ",           "{",
        "}",         "[1,]",        "[,1]",
        "[1 2]",     "{\"a\"}",     "{\"a\":}",
        "{a:1}",     "{\"a\":1,}",  "{1:2}",
        "1 2",       "{} {}",       "[]]",
        "[] x",      "1 \"",        "1 \"abc",
        "1 tr",      "tru",         "\"abc",
        "nul",       "truefalse",   "01",
        "-",         "+1",          "1.",
        ".5",        "1e",          "1e+",
        "0x10",      "NaN",         "Infinity",
        "-Infinity", "1a",          "[1.2.3]",
        "[--1]",     "[1-2]",       "'x'",
        "// c\n1",   "/* c */ 1",   "\"a\nb\"",
        "\"\\x\"",   "\"\\u12g4\"", "\"\\",
        "\v1",       "[1,\f2]",     "[1\f]",
        "1\v",       "{\"a\"\v:1}", "\xef\xbb\xbf{}",
        "[1}",       "{\"a\":1]",   "\x7f",
        ",1",        "1,",          ":1",
        "[:1]",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        if (parse(texts[i]))
            fail_msg("taken: %s", texts[i]);
        assert_non_null(strstr(f.doc.error, "at byte "));
        assert_int_equal(f.doc.count, 0);
        assert_true(parse("[1]")); /* nothing of the failure stays behind */
    }
    assert_false(parse_bytes("1\0", 2));
    assert_false(parse_bytes("\"a\0b\"", 5));
}

/* The text and where the error says that it went wrong. */
static void json_tells_the_byte_that_is_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *error;
    } cases[] = {
        {"", "expected a value but the text ends at byte 0"},
        {"[1,]", "expected a value at byte 3"},
        {"[1 2]", "expected a comma or ] at byte 3"},
        {"{\"a\":1", "expected a comma or } but the text ends at byte 6"},
        {"{\"a\":1,}", "expected a name in quotes at byte 7"},
        {"{\"a\" 1}", "expected the colon after a name at byte 5"},
        {"[tru]", "expected a value at byte 1"},
        {"01", "more text follows the value at byte 1"},
        {"[-]", "expected a digit at byte 2"},
        {"1.e5", "expected a digit at byte 2"},
        {"\"ab", "expected the closing quote of a string but the text ends at byte 3"},
        {"\"a\tb\"", "a control character in a string at byte 2"},
        {"\"\\u00g0\"", "expected a hexadecimal digit at byte 5"},
        {"\"\\u00", "expected a hexadecimal digit but the text ends at byte 5"},
        {"\"a\\v\"", "a backslash with nothing that it can escape at byte 2"},
        {"\"a\\ud800\\n\"", "half a surrogate pair at byte 2"},
        {"\"a\xc3(\"", "invalid UTF-8 at byte 2"},
        {"[\xc3\xa9]", "expected a value at byte 1"},
        {"{\"a\":1,\"a\": 2}", "the name \"a\" is repeated at byte 12"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_false(parse(cases[i].text));
        assert_string_equal(f.doc.error, cases[i].error);
    }
    assert_false(json_parse(&f.doc, NULL, 0, TOKENS_MAX));
}

/* Strings are passed over in strides: whatever ends or interrupts one is seen at each place of a
 * stride, with anything from nothing to several strides of text behind it. */
static void json_sees_every_byte_at_every_place_of_a_string(void **state)
{
    (void)state;
    char text[96];
    for (size_t before = 0; before < 40; before++)
        for (size_t after = 0; after < 40; after++)
            for (int byte = 0; byte < 256; byte++) {
                size_t len = before + after + 3;
                memset(text, 'x', len);
                text[0] = text[len - 1] = '"';
                text[1 + before] = (char)byte;
                bool plain = byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\';
                assert_int_equal(json_parse(&f.doc, text, len, 1), plain);
                if (plain)
                    assert_ptr_equal(f.doc.tokens[0].str, text + 1);
                if (plain)
                    assert_int_equal(f.doc.tokens[0].len, len - 2);
            }
}

static void json_keeps_text_beyond_ascii_verbatim_until_an_escape(void **state)
{
    (void)state;
    assert_true(parse("[\"\xc3\xa9t\xc3\xa9 \xe2\x82\xac\",\"\xc3\xa9\\t\xe2\x82\xac\\u00e9x\"]"));
    assert_ptr_equal(f.doc.tokens[1].str, f.doc.tokens[1].raw + 1);
    assert_text(f.doc.tokens[1].str, f.doc.tokens[1].len, "\xc3\xa9t\xc3\xa9 \xe2\x82\xac");
    assert_text(f.doc.tokens[2].str, f.doc.tokens[2].len, "\xc3\xa9\t\xe2\x82\xac\xc3\xa9x");
}

static void json_decodes_the_first_and_last_of_each_length(void **state)
{
    (void)state;
    assert_true(parse("\"\\u0001\\u007f\\u0080\\u07ff\\u0800\\ud7ff\\ue000\\uffff"
                      "\\ud800\\udc00\\udbff\\udfff\""));
    assert_text(f.doc.tokens[0].str, f.doc.tokens[0].len,
                "\x01\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf"
                "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf");
}

static void json_decodes_escapes(void **state)
{
    (void)state;
    assert_true(parse("[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\u20AC\\ud83d\\uDE00\",\"plain\","
                      "\"\\u0000x\"]"));
    assert_text(f.doc.tokens[1].str, f.doc.tokens[1].len,
                "\"\\/\b\f\n\r\t\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    assert_ptr_equal(f.doc.tokens[2].str, f.doc.tokens[2].raw + 1);
    assert_int_equal(f.doc.tokens[3].len, 2);
    assert_memory_equal(f.doc.tokens[3].str, "\0x", 2);
}

static void json_keeps_decoded_strings_in_place_while_more_arrive(void **state)
{
    (void)state;
    struct buf text = {0};
    buf_putc(&text, '[');
    for (int i = 0; i < 5000; i++)
        buf_printf(&text, "%s\"\\t%d\"", i ? "," : "", i);
    buf_putc(&text, ']');
    assert_true(parse_bytes(text.data, text.len));
    for (uint32_t i = 1; i <= 5000; i++) {
        char expected[16];
        snprintf(expected, sizeof(expected), "\t%u", i - 1);
        assert_text(f.doc.tokens[i].str, f.doc.tokens[i].len, expected);
    }
    buf_fini(&text);
}

static void json_refuses_half_a_surrogate_pair(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "\"\\ud800\"",        "\"\\udc00\"",        "\"\\ud800x\"",
        "\"\\ud800\\n\"",     "\"\\ud800\\u0041\"", "\"\\ud800\\ud800\"",
        "\"\\udc00\\ud800\"", "{\"\\uDFFF\":1}",    "\"\\\\\\ud83d\"",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        if (parse(texts[i]))
            fail_msg("taken: %s", texts[i]);
    assert_true(parse("\"\\\\ud800\"")); /* an escaped backslash, then letters */
}

static void json_refuses_invalid_utf8(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "\xff",
        "\x80",
        "\xc0\x80",
        "\xc1\xbf",
        "\xe0\x80\x80",
        "\xed\xa0\x80",
        "\xe2\x82",
        "\xf0\x80\x80\x80",
        "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80",
        "\xc3",
        "\xc3\x28",
        "abcdefgh\xe2\x28\xa1",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        char text[64];
        assert_false(utf8_valid(bad[i], strlen(bad[i])));
        snprintf(text, sizeof(text), "[\"%s\"]", bad[i]);
        assert_false(parse(text));
        snprintf(text, sizeof(text), "{\"%s\":1}", bad[i]);
        assert_false(parse(text));
    }
    const char *good =
        "a\xc3\xa9\xe2\x82\xac\xed\x9f\xbf\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf";
    assert_true(utf8_valid(good, strlen(good)));
    assert_true(utf8_valid("", 0));
}

static void json_refuses_a_repeated_name(void **state)
{
    (void)state;
    assert_false(parse("{\"a\":1,\"b\":{},\"a\":2}"));
    assert_non_null(strstr(f.doc.error, "\"a\" is repeated"));
    assert_false(parse("{\"a\":1,\"\\u0061\":2}"));
    assert_false(parse("[{\"x\":{\"\":1,\"\":1}}]"));
    assert_true(parse("{\"a\":{\"a\":{\"a\":1}},\"A\":1,\"aa\":2}"));
}

static void build_object(struct buf *text, int keys, const char *last)
{
    buf_clear(text);
    buf_putc(text, '{');
    for (int i = 0; i < keys; i++)
        buf_printf(text, "\"key-%d\":[%d],", i, i);
    buf_printf(text, "\"%s\":0}", last);
}

static void json_finds_a_repeated_name_among_many(void **state)
{
    (void)state;
    struct buf text = {0};
    static const int sizes[] = {15, 16, 17, 1000, 60000};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        build_object(&text, sizes[i], "key-7");
        assert_false(parse_bytes(text.data, text.len));
        build_object(&text, sizes[i], "other");
        assert_true(parse_bytes(text.data, text.len));
        assert_int_equal(f.doc.tokens[0].count, sizes[i] + 1);
    }
    buf_fini(&text);
}

static void json_error_about_a_long_name_is_valid_utf8(void **state)
{
    (void)state;
    struct buf text = {0};
    for (int shift = 0; shift < 3; shift++) {
        buf_clear(&text);
        buf_putc(&text, '{');
        for (int twice = 0; twice < 2; twice++) {
            buf_printf(&text, "%s\"%.*s", twice ? "," : "", shift, "xx");
            for (int i = 0; i < 60; i++)
                buf_puts(&text, "\xe2\x82\xac");
            buf_puts(&text, "\":1");
        }
        buf_putc(&text, '}');
        assert_false(parse_bytes(text.data, text.len));
        assert_true(utf8_valid(f.doc.error, strlen(f.doc.error)));
    }
    buf_fini(&text);
}

static void json_limits_depth(void **state)
{
    (void)state;
    char text[2 * JSON_DEPTH_MAX + 2];
    memset(text, '[', JSON_DEPTH_MAX);
    memset(text + JSON_DEPTH_MAX, ']', JSON_DEPTH_MAX);
    assert_true(parse_bytes(text, 2 * JSON_DEPTH_MAX));
    memset(text, '[', JSON_DEPTH_MAX + 1);
    memset(text + JSON_DEPTH_MAX + 1, ']', JSON_DEPTH_MAX + 1);
    assert_false(parse_bytes(text, sizeof(text)));
    assert_non_null(strstr(f.doc.error, "deeper"));
}

static void json_limits_tokens(void **state)
{
    (void)state;
    assert_true(json_parse(&f.doc, "[1,2,3]", 7, 4));
    assert_false(json_parse(&f.doc, "[1,2,3]", 7, 3));
    assert_non_null(strstr(f.doc.error, "more than 3 values"));
}

static void json_reads_integers_exactly(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool taken;
        int64_t value;
    } cases[] = {
        {"0", true, 0},
        {"-0", true, 0},
        {"9223372036854775807", true, INT64_MAX},
        {"-9223372036854775808", true, INT64_MIN},
        {"9223372036854775808", false, 0},
        {"-9223372036854775809", false, 0},
        {"99999999999999999999999", false, 0},
        {"5.0", true, 5},
        {"1e3", true, 1000},
        {"5.5", false, 0},
        {"1e30", false, 0},
        {"\"5\"", false, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        int64_t value = 0;
        assert_true(parse(cases[i].text));
        assert_int_equal(json_i64(&f.doc.tokens[0], &value), cases[i].taken);
        assert_int_equal(value, cases[i].value);
    }
}

static void json_reads_finite_doubles(void **state)
{
    (void)state;
    double value = 0;
    assert_true(
        parse("[0.5,1e999,1.00000000000000000000000000000000000000000000000000000000000001]"));
    assert_true(json_double(&f.doc.tokens[1], &value));
    assert_true(value == 0.5);
    assert_false(json_double(&f.doc.tokens[2], &value));
    assert_true(json_double(&f.doc.tokens[3], &value));
    assert_true(value == 1.0);
    assert_false(json_double(&f.doc.tokens[0], &value));
    assert_false(json_double(NULL, &value));
}

static void json_writes_strings_that_it_reads_back(void **state)
{
    (void)state;
    struct buf out = {0};
    char every[128 + 4];
    for (int i = 0; i < 128; i++)
        every[i] = (char)i;
    memcpy(every + 128, "\xf0\x9f\x98\x80", 4);
    json_put_string(&out, every, sizeof(every));
    assert_true(parse_bytes(out.data, out.len));
    assert_int_equal(f.doc.tokens[0].len, sizeof(every));
    assert_memory_equal(f.doc.tokens[0].str, every, sizeof(every));
    buf_clear(&out);
    json_put_cstr(&out, "a\"\\\n\x01z");
    assert_text(out.data, out.len, "\"a\\\"\\\\\\n\\u0001z\"");
    buf_fini(&out);
}

static void json_compares_strings_and_names(void **state)
{
    (void)state;
    assert_true(parse("{\"a\":\"live\",\"b\":1}"));
    assert_true(json_is(json_get(&f.doc, 0, "a"), "live"));
    assert_false(json_is(json_get(&f.doc, 0, "a"), "liv"));
    assert_false(json_is(json_get(&f.doc, 0, "b"), "1"));
    assert_false(json_is(json_get(&f.doc, 0, "none"), "1"));
    assert_true(json_key_is(&f.doc.tokens[2], "b"));
    assert_false(json_key_is(&f.doc.tokens[0], "b"));
}

/* A document is read the same after every prefix of it was refused by the same parser. */
static void json_survives_every_cut(void **state)
{
    (void)state;
    const char *text =
        "{\"payload\":\"h\\u00e9\\ud83d\\ude00\",\"n\":[-1.5e3,true,null,{}],\"\":\"\"}";
    for (size_t cut = 0; cut < strlen(text); cut++) {
        assert_false(parse_bytes(text, cut));
        assert_true(parse(text));
        assert_int_equal(f.doc.count, 8);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(json_keeps_every_value_as_it_stands),
        TEST(json_walks_a_container_in_order),
        TEST(json_takes_any_value_as_root),
        TEST(json_refuses_what_is_not_one_value),
        TEST(json_tells_the_byte_that_is_wrong),
        TEST(json_sees_every_byte_at_every_place_of_a_string),
        TEST(json_keeps_text_beyond_ascii_verbatim_until_an_escape),
        TEST(json_decodes_the_first_and_last_of_each_length),
        TEST(json_decodes_escapes),
        TEST(json_keeps_decoded_strings_in_place_while_more_arrive),
        TEST(json_refuses_half_a_surrogate_pair),
        TEST(json_refuses_invalid_utf8),
        TEST(json_refuses_a_repeated_name),
        TEST(json_finds_a_repeated_name_among_many),
        TEST(json_error_about_a_long_name_is_valid_utf8),
        TEST(json_limits_depth),
        TEST(json_limits_tokens),
        TEST(json_reads_integers_exactly),
        TEST(json_reads_finite_doubles),
        TEST(json_writes_strings_that_it_reads_back),
        TEST(json_compares_strings_and_names),
        TEST(json_survives_every_cut),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
