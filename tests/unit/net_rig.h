/* net over a real loopback socket, with client and loop in one thread, so that
 * every step is in the test's hand: what the tests unit/net_* are written with. */
#ifndef TRIAGE_TESTS_NET_RIG_H
#define TRIAGE_TESTS_NET_RIG_H

#include "net/server.h"

#include "base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <netinet/in.h>
#include <uv.h>

#define PATIENCE_MS 120000 /* only a test that fails waits for so long */
#define PAGE_SIZE   (100 * 1024)
#define BIG_SIZE    (8 * 1024 * 1024)
#define KEPT_MAX    128

#define GET(path) "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"

/* A server whose handler does as the path says: /now echoes at once, /later keeps the request for
 * the test to answer, /wait too, in a place to wait in, and wants to know of a hang-up, /none
 * answers 204, /page 100 KiB, /big 8 MiB, /stream begins a stream.  /closed is not admitted. */
struct net_rig {
    uv_loop_t loop;
    struct http_server *server;
    struct sockaddr_in addr;
    struct http_request *kept[KEPT_MAX];
    int kept_count;
    int asked;
    int handled;
    int hangups;
    struct http_request *stream; /* that is open */
    const char *piece;           /* what its next tick writes; NULL: nothing */
    size_t piece_len;
    bool piece_again; /* … and all ticks after that, one in each turn */
    int ticks;
    bool answer_in_hangup;
    bool drained;
    bool closed;
};

struct client {
    struct net_rig *rig;
    int fd;
    struct buf got;
    bool ended;
    bool reset;
};

/* `limits` NULL: the default ones. */
struct net_rig *net_rig_new(const struct http_limits *limits);
/* Every request that is still kept gets its answer, as the contract asks. */
void net_rig_free(struct net_rig *rig);
struct http_hooks net_rig_hooks(struct net_rig *rig);     /* for a server beside the rig's own */
void note_drained(struct http_server *server, void *rig); /* for http_server_drain() */

/* A client on a connection of its own. */
struct client client_open(struct net_rig *rig);
struct client client_open_from(struct net_rig *rig, const char *address);
void client_close(struct client *c);
void put_bytes(struct client *c, const char *data, size_t len);
void say(struct client *c, const char *text);

/* Let the loop run, and the client take in what has come: once, or for so long. */
void turn(struct client *c);
void turns(struct client *c, int ms);

/* Let them run until it is so; fail after PATIENCE_MS. */
void expect(struct client *c, const char *needle); /* it has come once */
void expect_times(struct client *c, const char *needle, int count);
void expect_end(struct client *c);
void expect_kept(struct client *c, int count);
int count_of(const struct client *c, const char *needle); /* how often it has come */

/* Answers to requests that were kept. */
void answer_text(struct http_request *req, const char *text);
void kept_answer(struct net_rig *rig, int i, const char *text);

#endif
