#include "broker/webhook.h"

#include <arpa/inet.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

static bool is_local(const char *text)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        return webhook_is_local((struct sockaddr *)&v4);
    assert_int_equal(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
    return webhook_is_local((struct sockaddr *)&v6);
}

static void webhook_knows_the_addresses_of_this_machine_and_its_link(void **state)
{
    (void)state;
    static const char *const local[] = {
        "127.0.0.1",
        "127.255.255.254",
        "0.0.0.0",
        "0.1.2.3",
        "169.254.169.254",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "febf::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.1.1",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "fd00:ec2::254", /* where clouds have their metadata */
        "fd20:ce::254",
        "fd00:c1::a9fe:a9fe",
        "100.100.100.200",
        "::ffff:100.100.100.200",
        "168.63.129.16",
    };
    for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++)
        if (!is_local(local[i]))
            fail_msg("%s", local[i]);
}

static void webhook_takes_other_machines_for_what_they_are(void **state)
{
    (void)state;
    static const char *const other[] = {
        "10.0.0.1",    "192.168.1.1",     "172.16.0.1",       "8.8.8.8",        "128.0.0.1",
        "169.253.0.1", "2001:db8::1",     "fd00::1",          "fd00:ec2::253",  "100.100.100.1",
        "fec0::1",     "::ffff:10.0.0.1", "64:ff9b::808:808", "2002:808:808::",
    };
    for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
        if (is_local(other[i]))
            fail_msg("%s", other[i]);
}

/* Takes connections and says nothing. */
static int silent_open(char url[64])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(fd, 1000), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    snprintf(url, 64, "http://127.0.0.1:%d/", ntohs(at.sin_port));
    return fd;
}

static void post_from(struct webhooks *w, int queue, const char *url)
{
    char name[16];
    struct buf body = {0};
    snprintf(name, sizeof(name), "q%d", queue);
    buf_lit(&body, "{}");
    webhooks_post(w, name, url, &body);
}

static void webhook_finds_a_place_beside_silent_receivers(void **state)
{
    enum { SILENT = 16, EACH = 100 }; /* four of each are under way, and those are all */
    (void)state;
    int fds[SILENT + 1];
    char url[64];
    struct webhooks *w = webhooks_new(&(struct webhook_options){.local = true, .cacert = ""});
    for (int i = 0; i < SILENT; i++) {
        fds[i] = silent_open(url);
        for (int k = 0; k < EACH; k++)
            post_from(w, i * EACH + k, url);
    }
    /* All of them are at work before the last comes. */
    for (int i = 0; i < SILENT; i++)
        assert_int_equal(poll(&(struct pollfd){.fd = fds[i], .events = POLLIN}, 1, 600000), 1);
    assert_int_equal(webhooks_lost(w), SILENT * EACH - WEBHOOK_WAITING_MAX);
    fds[SILENT] = silent_open(url);
    post_from(w, SILENT * EACH, url);
    assert_int_equal(poll(&(struct pollfd){.fd = fds[SILENT], .events = POLLIN}, 1, 600000), 1);
    /* One gave its place, and none has had its three tries. */
    assert_int_equal(webhooks_lost(w), SILENT * EACH - WEBHOOK_WAITING_MAX + 1);
    webhooks_free(w);
    for (int i = 0; i <= SILENT; i++)
        close(fds[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(webhook_knows_the_addresses_of_this_machine_and_its_link),
        cmocka_unit_test(webhook_takes_other_machines_for_what_they_are),
        cmocka_unit_test(webhook_finds_a_place_beside_silent_receivers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
