/* api/guard: which names, pages and content types get in. A real browser tries it in
 * system/test_browser.py. */
#include "api/guard.h"
#include "net/parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

static struct http_slice slice(const char *text)
{
    return (struct http_slice){text, text ? strlen(text) : 0};
}

/* A header that is looked up by name: one, for the requests of a test. */
static struct parse_head head;

static void header_set(const char *name, const char *value)
{
    head.field_count = 1;
    head.fields[0] = (struct parse_field){slice(name), slice(value)};
}

static struct guard guard_make(const char *hosts, bool loopback)
{
    struct guard g;
    struct buf error = {0};
    assert_true(guard_init(&g, hosts, loopback, &error));
    assert_int_equal(error.len, 0);
    return g;
}

static bool host_gets_in(const char *hosts, bool loopback, const char *host)
{
    struct guard g = guard_make(hosts, loopback);
    struct http_request req = {.host = slice(host)};
    struct problem p = {0};
    bool in = guard_host(&g, &req, &p);
    if (!in)
        assert_int_equal(p.status, STATUS_MISDIRECTED);
    guard_fini(&g);
    return in;
}

static void on_loopback_only_names_of_this_machine_are_taken(void **state)
{
    (void)state;
    static const char *const own[] = {"localhost",       "LocalHost:7420",   "localhost.",
                                      "app.localhost:1", "127.0.0.1",        "127.9.9.9:7420",
                                      "[::1]",           "[::1]:7420",       "[0:0::0:1]:80",
                                      "queue.example",   "Queue.Example:80", "other.example:8443"};
    static const char *const foreign[] = {"",
                                          "evil.test",
                                          "evil.test:7420",
                                          "localhost.evil.test",
                                          "127.0.0.1.evil.test",
                                          "notlocalhost",
                                          "127.1",
                                          "0.0.0.0:7420",
                                          "10.0.0.1",
                                          "[::2]",
                                          "[::1",
                                          "::1",
                                          "localhost:80:evil",
                                          "localhost:evil",
                                          "evil@localhost",
                                          ":7420",
                                          "other.example",
                                          "other.example:443",
                                          "sub.queue.example"};
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        assert_true(host_gets_in("queue.example, other.example:8443", true, own[i]));
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
        assert_false(host_gets_in("queue.example, other.example:8443", true, foreign[i]));
    assert_true(host_gets_in("", true, NULL)); /* HTTP/1.0 */
    assert_true(host_gets_in("*", true, "evil.test"));
}

static void elsewhere_names_are_checked_once_some_are_set(void **state)
{
    (void)state;
    assert_true(host_gets_in("", false, "whatever.test"));
    assert_false(host_gets_in("queue.example", false, "whatever.test"));
    assert_true(host_gets_in("queue.example", false, "queue.example:7420"));
    assert_true(host_gets_in("queue.example", false, "10.1.2.3:7420"));
    assert_true(host_gets_in("queue.example", false, "[fe80::1]:7420"));
    assert_true(host_gets_in("queue.example", false, "localhost:7420"));
}

static void mistakes_in_the_list_are_named(void **state)
{
    (void)state;
    static const char *const wrong[] = {"https://queue.example", "queue.example:https", "*.example",
                                        "a,b/c", "[::1"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct guard g;
        struct buf error = {0};
        assert_false(guard_init(&g, wrong[i], true, &error));
        assert_non_null(strstr(buf_cstr(&error), "allowed_hosts"));
        buf_fini(&error);
    }
}

static const struct route plain = {.verb = VERB_POST, .flags = ROUTE_CHANGES};
static const struct route open_page = {.verb = VERB_GET, .flags = ROUTE_OPEN};
static const struct route claiming = {.verb = VERB_GET, .flags = ROUTE_CHANGES};

static bool page_gets_in(const struct route *route, const char *host, const char *origin,
                         const char *site)
{
    struct guard g = guard_make("queue.example,queue.example:8443", true);
    struct http_request req = {
        .host = slice(host), .origin = slice(origin), .fetch_site = slice(site), .head = &head};
    struct problem p = {0};
    bool in = guard_site(&g, &req, route, &p);
    if (!in)
        assert_int_equal(p.status, STATUS_CROSS_SITE);
    guard_fini(&g);
    return in;
}

static void foreign_pages_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *host, *origin, *site;
        bool in;
    } cases[] = {
        {"localhost:1", NULL, NULL, true}, /* no browser */
        {"localhost:1", "http://localhost:1", "same-origin", true},
        {"localhost:1", "http://LOCALHOST:1", NULL, true},
        {"localhost:1", NULL, "none", true}, /* typed by its user */
        {"localhost:1", NULL, "same-origin", true},
        {"localhost:1", NULL, "cross-site", false},
        {"localhost:1", "http://localhost:1", "cross-site", false},
        {"localhost:1", NULL, "same-site", false}, /* another port of this machine */
        {"localhost:1", "http://localhost:1", "same-site", true},
        {"localhost:1", NULL, "what-comes-next", false},
        {"localhost:1", NULL, "", false},
        {"localhost:1", "http://localhost:2", NULL, false},
        {"localhost:1", "http://localhost", NULL, false},
        {"localhost:1", "http://localhost:1.evil.test", NULL, false},
        {"localhost:1", "http://127.0.0.1:1", NULL, false},
        {"localhost:1", "null", NULL, false},
        {"localhost:1", "", NULL, false},
        {"localhost:1", "file://localhost:1", NULL, false},
        {"localhost:1", "http://", NULL, false},
        {NULL, "http://localhost:1", NULL, false},
        {"queue.example", "https://queue.example", "same-origin", true}, /* TLS was taken off */
        {"127.0.0.1:7420", "https://queue.example", "same-origin", true},
        {"127.0.0.1:7420", "https://queue.example:8443", NULL, true},
        {"127.0.0.1:7420", "https://queue.example:9999", NULL, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(page_gets_in(&plain, cases[i].host, cases[i].origin, cases[i].site),
                         cases[i].in);
}

static void link_leads_to_an_open_page_and_to_no_other(void **state)
{
    (void)state;
    header_set("Sec-Fetch-Dest", "document");
    assert_true(page_gets_in(&open_page, "localhost", NULL, "cross-site"));
    assert_false(page_gets_in(&plain, "localhost", NULL, "cross-site"));
    header_set("Sec-Fetch-Dest", "image");
    assert_false(page_gets_in(&open_page, "localhost", NULL, "cross-site"));
    head.field_count = 0;
}

static void claim_by_get_needs_what_no_picture_has(void **state)
{
    (void)state;
    assert_false(page_gets_in(&claiming, "localhost", NULL, NULL));
    header_set("X-Requested-With", "");
    assert_true(page_gets_in(&claiming, "localhost", NULL, NULL));
    assert_false(page_gets_in(&claiming, "localhost", NULL, "cross-site"));
    head.field_count = 0;
    struct guard g = guard_make("", true);
    struct problem p = {0};
    struct http_request req = {.authorization = slice("bearer x")};
    assert_true(guard_site(&g, &req, &claiming, &p));
    req.authorization = slice("Basic eDp5"); /* of http://x:y@localhost/ */
    assert_false(guard_site(&g, &req, &claiming, &p));
    guard_fini(&g);
}

static bool type_gets_in(enum http_verb verb, enum route_body body, const char *type, bool has_body)
{
    const struct route route = {.verb = verb, .flags = ROUTE_CHANGES, .body = body};
    struct http_request req = {.verb = verb, .content_type = slice(type), .has_body = has_body};
    struct problem p = {0};
    bool in = guard_type(&req, &route, &p);
    if (!in)
        assert_int_equal(p.status, STATUS_UNSUPPORTED_MEDIA_TYPE);
    return in;
}

static void post_needs_a_type_that_no_form_has(void **state)
{
    (void)state;
    static const char *const simple[] = {NULL,
                                         "",
                                         "text/plain",
                                         "text/plain; charset=application/json",
                                         "application/x-www-form-urlencoded",
                                         "multipart/form-data; boundary=x",
                                         "text/plain, application/json",
                                         "application/jsonx"};
    for (size_t i = 0; i < sizeof(simple) / sizeof(simple[0]); i++) {
        for (enum route_body body = BODY_SMALL; body <= BODY_IMPORT; body++) {
            assert_false(type_gets_in(VERB_POST, body, simple[i], true));
            assert_false(type_gets_in(VERB_POST, body, simple[i], false));
        }
        assert_false(type_gets_in(VERB_PUT, BODY_SMALL, simple[i], true));
        assert_true(type_gets_in(VERB_DELETE, BODY_SMALL, simple[i], false));
    }
    assert_true(type_gets_in(VERB_POST, BODY_SMALL, "application/json", false));
    assert_true(type_gets_in(VERB_POST, BODY_SMALL, "Application/JSON; charset=utf-8", true));
    assert_true(type_gets_in(VERB_POST, BODY_MESSAGE, "application/octet-stream", true));
    assert_false(type_gets_in(VERB_POST, BODY_SMALL, "application/octet-stream", true));
    assert_true(type_gets_in(VERB_POST, BODY_BATCH, "application/x-ndjson", true));
    assert_false(type_gets_in(VERB_POST, BODY_IMPORT, "application/json", true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_loopback_only_names_of_this_machine_are_taken),
        cmocka_unit_test(elsewhere_names_are_checked_once_some_are_set),
        cmocka_unit_test(mistakes_in_the_list_are_named),
        cmocka_unit_test(foreign_pages_are_refused),
        cmocka_unit_test(link_leads_to_an_open_page_and_to_no_other),
        cmocka_unit_test(claim_by_get_needs_what_no_picture_has),
        cmocka_unit_test(post_needs_a_type_that_no_form_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
