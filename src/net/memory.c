#include "net/conn.h"

#include "base/plant.h"

#include <assert.h>

/* The memory that connections hold, counted against the budget, and who gives way when it is too
 * much.
 *
 * A connection is charged when it ends its turn, in steps of MEMORY_STEP. The common request is
 * answered in the turn in which it came and is never charged. Memory that a connection gives back
 * stays charged until the next sweep, unless it is much: so a busy connection changes the numbers
 * that all threads share a few times a second, and not with every request.
 *
 * Not counted: the kernel's buffers, the spare buffers of the server, and `struct conn` itself. */

#define MEMORY_STEP  4096
#define MEMORY_SLACK (64 * 1024) /* so much is given back at once, less with the next sweep */
#define MEMORY_SMALL (16 * 1024) /* what a connection may hold even when there is no room */

#define STARVED_SWEEPS 8 /* so long a connection waits for others to give way */

#define REQUEST_COST 4096       /* of a request under way, whatever it asks */
#define WAITING_COST (8 * 1024) /* in addition, of a request that waits */

static size_t memory_of(const struct conn *c)
{
    size_t answers = PLANTED(UNCOUNTED_BUFFER) ? 0 : c->out.cap + c->sending.cap + c->held;
    size_t bytes = c->in.cap + answers + c->request_bytes;
    bytes += c->tls ? tls_stream_memory(c->tls) : 0;
    return (bytes + MEMORY_STEP - 1) / MEMORY_STEP * MEMORY_STEP;
}

static void charged_update(struct conn *c)
{
    bool charged = c->charge > 0 || c->waiting_charge > 0;
    if (charged == c->charged)
        return;
    if (charged)
        TAILQ_INSERT_TAIL(&c->server->charged, c, charged_link);
    else
        TAILQ_REMOVE(&c->server->charged, c, charged_link);
    c->charged = charged;
}

static void bytes_set(struct conn *c, size_t bytes)
{
    int64_t change = (int64_t)bytes - (int64_t)c->charge;
    if (change == 0 || !c->account)
        return;
    net_count(c->server, buffer_bytes, change);
    account_charge(c->account, BUDGET_BYTES, change);
    c->charge = bytes;
    charged_update(c);
}

static void waiting_set(struct conn *c, unsigned waiting)
{
    if (waiting == c->waiting_charge)
        return;
    account_charge(c->account, BUDGET_WAITING, (int64_t)waiting - c->waiting_charge);
    c->waiting_charge = waiting;
    charged_update(c);
}

void memory_charge(struct conn *c)
{
    size_t bytes = memory_of(c);
    if (bytes > c->charge)
        bytes_set(c, bytes);
}

void memory_give_back(struct conn *c)
{
    bytes_set(c, 0);
    waiting_set(c, 0);
}

/* Giving way */

bool memory_is_tight(const struct conn *c)
{
    return c->account && budget_is_short(c->server->budget, BUDGET_BYTES) &&
           account_is_over(c->account, BUDGET_BYTES);
}

bool memory_fits(struct conn *c, uint64_t body_len)
{
    if (body_len <= account_due(c->account, BUDGET_BYTES))
        return true;
    account_note(c->account, BUDGET_REFUSED_BODY);
    return false;
}

static bool receives_much(const struct conn *c)
{
    return c->in.cap > 2 * CONN_READ_SIZE && !c->last;
}

static void body_refuse(struct conn *c)
{
    account_note(c->account, BUDGET_REFUSED_BODY);
    c->starved = false;
    buf_fini(&c->in);
    conn_refuse(c, STATUS_OVERLOADED, "Too much is being received at once.");
    bytes_set(c, memory_of(c));
}

/* Takes a connection's memory away. A client that is sending a body is told so with 503; a client
 * that does not read cannot be told anything, and is cut off. */
static void shed(struct conn *c)
{
    account_note(c->account, BUDGET_SHED);
    if (receives_much(c))
        body_refuse(c);
    else
        conn_close(c);
}

/* Nothing is left and nobody is above a share, because many hold a little each: refuses this one.
 */
static void turn_away(struct conn *c)
{
    if (c->head_len > 0)
        body_refuse(c);
    else
        shed(c);
}

/* The address is within its share, so others have to give way. Until they have, nothing is read
 * from this connection. */
static void starve(struct conn *c, size_t bytes)
{
    bytes_set(c, bytes);
    c->starved = true;
}

void memory_count(struct conn *c)
{
    size_t bytes = memory_of(c);
    if (bytes <= c->charge) {
        if (c->charge - bytes >= MEMORY_SLACK)
            bytes_set(c, bytes);
        return;
    }
    if (!c->account || bytes - c->charge <= account_room(c->account, BUDGET_BYTES))
        bytes_set(c, bytes);
    else if (receives_much(c) && bytes - c->charge <= account_due(c->account, BUDGET_BYTES))
        starve(c, bytes);
    else if (receives_much(c))
        body_refuse(c);
    else if (bytes > MEMORY_SMALL && account_is_over(c->account, BUDGET_BYTES))
        shed(c);
    else if (bytes > MEMORY_SMALL && budget_is_spent(c->server->budget))
        turn_away(c);
    else
        bytes_set(c, bytes);
}

/* Reads from a starved connection again, once others gave way. Servers of other threads may take a
 * sweep longer for that. */
static void feed(struct conn *c)
{
    if (account_room(c->account, BUDGET_BYTES) > CONN_READ_SIZE) {
        c->starved = false;
        c->starved_sweeps = 0;
        c->window_ms = uv_now(c->server->loop);
        c->window_len = c->in.len;
        conn_touch(c);
    } else if (++c->starved_sweeps == STARVED_SWEEPS) {
        body_refuse(c);
    }
}

/* Takes memory from connections that hold at least `least` bytes and whose address is above its
 * share, until there is enough again. */
static void shed_some(struct http_server *s, size_t least)
{
    struct conn *c = TAILQ_FIRST(&s->charged);
    while (c && budget_is_short(s->budget, BUDGET_BYTES)) {
        struct conn *next = TAILQ_NEXT(c, charged_link);
        if (c->charge > least && account_is_over(c->account, BUDGET_BYTES))
            shed(c);
        c = next;
    }
}

/* Waits that end early */

static struct http_request *first_waiting(const struct conn *c)
{
    struct http_request *req = STAILQ_FIRST(&c->requests);
    while (req && req->waits == 0)
        req = STAILQ_NEXT(req, next);
    return req;
}

/* The places are free at once; the empty answer comes in this turn or a later one. It costs its
 * client nothing but the next claim. */
static void wait_end(struct http_request *req)
{
    struct conn *c = req->conn;
    void (*end)(struct http_request * req) = req->on_hangup;
    assert(end);
    assert(c->waiting >= req->waits);
    c->waiting -= req->waits;
    req->waits = 0;
    req->on_hangup = NULL;
    waiting_set(c, c->waiting);
    account_note(c->account, BUDGET_ENDED_WAIT);
    conn_postpone(c);
    end(req);
}

/* The list may lose the connection with its last wait. */
static void end_some_waits(struct http_server *s)
{
    struct conn *c = TAILQ_FIRST(&s->charged);
    while (c && budget_is_short(s->budget, BUDGET_WAITING)) {
        struct conn *next = TAILQ_NEXT(c, charged_link);
        struct http_request *req;
        while (budget_is_short(s->budget, BUDGET_WAITING) &&
               account_is_over(c->account, BUDGET_WAITING) && (req = first_waiting(c)))
            wait_end(req);
        c = next;
    }
}

static void feed_all(struct http_server *s)
{
    struct conn *c = TAILQ_FIRST(&s->charged);
    while (c) {
        struct conn *next = TAILQ_NEXT(c, charged_link);
        if (c->starved)
            feed(c);
        c = next;
    }
}

void memory_sweep(struct http_server *s)
{
    struct conn *c = TAILQ_FIRST(&s->charged);
    while (c) {
        struct conn *next = TAILQ_NEXT(c, charged_link);
        waiting_set(c, c->waiting);
        bytes_set(c, memory_of(c));
        c = next;
    }
    /* Roughly the largest first, so that few connections have to go. */
    for (size_t least = 32ul << 20; least >= MEMORY_STEP / 8; least /= 8)
        shed_some(s, least);
    end_some_waits(s);
    feed_all(s);
}

/* Requests */

void request_charge(struct http_request *req, size_t body_len)
{
    assert(req->charge == 0);
    req->charge = REQUEST_COST + body_len;
    req->conn->request_bytes += req->charge;
}

bool http_wait(struct http_request *req, unsigned places)
{
    struct conn *c = req->conn;
    unsigned waiting = c->waiting + places;
    if (waiting > c->waiting_charge) {
        if (account_room(c->account, BUDGET_WAITING) < waiting - c->waiting_charge) {
            account_note(c->account, BUDGET_REFUSED_WAITING);
            return false;
        }
        waiting_set(c, waiting);
    }
    c->waiting = waiting;
    req->waits = places;
    req->charge += places * WAITING_COST;
    c->request_bytes += places * WAITING_COST;
    return true;
}

/* The connection of a request is gone, or soon will be: it must not be used any more. */
static inline void leave_connection(struct http_request *req)
{
    struct conn *c = req->conn;
    assert(c->request_bytes >= req->charge);
    c->request_bytes -= req->charge;
    c->waiting -= req->waits;
    req->waits = 0;
}

void request_discharge(struct http_request *req)
{
    if (req->conn) {
        leave_connection(req);
    } else if (req->account) {
        account_charge(req->account, BUDGET_BYTES, -(int64_t)req->charge);
        account_unref(req->account);
        req->account = NULL;
    }
    req->charge = 0;
}

void request_orphan(struct http_request *req)
{
    struct conn *c = req->conn;
    assert(!req->account);
    leave_connection(req);
    req->conn = NULL;
    if (!c->account)
        return;
    req->account = account_ref(c->account);
    account_charge(req->account, BUDGET_BYTES, (int64_t)req->charge);
}

struct account *http_account(const struct http_request *req)
{
    return req->conn ? req->conn->account : req->account;
}
