/* What all clients of the process may take together: memory for what they send and what they do
 * not read, and places for claims that wait. The servers of all threads share one budget, and each
 * function here may be called on any thread.
 *
 * A budget is divided by address. IPv4 counts by address, IPv6 by network of 64 bits, and all
 * sockets in the file system as one. The share of an address is the limit divided by the addresses
 * that hold something worth counting.
 *
 *   0 ................................... soft ..... limit
 *   any address may take                  | only those that stay within their share
 *
 * So one address alone may take seven eighths (up to `soft`). The last eighth is for newcomers.
 * When half of that is in use, addresses above their share have to give something back:
 * budget_is_short() says when, account_is_over() who. The half before that is for bytes that nobody
 * could ask for in advance.
 *
 * Places for claims that wait may be overdrawn by a quarter of the limit, by addresses within their
 * share: so a newcomer is not refused while waits of addresses above their share are being ended.
 * Bytes are never overdrawn.
 *
 * An address that holds next to nothing has no share of its own. When very many such addresses take
 * everything together, none of them is above a share: then whoever asks for more is refused. */
#ifndef TRIAGE_NET_BUDGET_H
#define TRIAGE_NET_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

struct sockaddr;
struct budget;
struct account; /* of one address */

enum budget_kind { BUDGET_BYTES, BUDGET_WAITING, BUDGET_KIND_COUNT };

struct budget_limits {
    uint64_t max[BUDGET_KIND_COUNT];
    uint64_t connections_max; /* of one address; 0: no limit */
};

/* Everything counts up but what ends in _bytes or _open. */
#define BUDGET_COUNTERS(X)                                                                         \
    X(budget_bytes, "Bytes that clients make the server hold now.")                                \
    X(budget_limit_bytes, "How many they may be: buffers_limit.")                                  \
    X(waiting_open, "Places of waiting claims that are taken now.")                                \
    X(addresses_open, "Addresses that have connections now.")                                      \
    X(refused_connections, "Connections turned away because their address had its number.")        \
    X(refused_bodies, "Requests refused because there was no room for their body.")                \
    X(refused_answers, "Requests refused because there was no room for the answer.")               \
    X(refused_waiting, "Claims refused because too many were waiting.")                            \
    X(ended_waits, "Waits ended early, with an empty answer, to give places to other addresses.")  \
    X(shed_connections, "Connections closed to give what they held to other addresses.")

struct budget_counters {
#define X(name, meaning) uint64_t name;
    BUDGET_COUNTERS(X)
#undef X
};

enum budget_event {
    BUDGET_REFUSED_CONNECTION,
    BUDGET_REFUSED_BODY,
    BUDGET_REFUSED_ANSWER,
    BUDGET_REFUSED_WAITING,
    BUDGET_ENDED_WAIT,
    BUDGET_SHED,
    BUDGET_EVENT_COUNT
};

struct budget *budget_new(const struct budget_limits *limits);
void budget_free(struct budget *b); /* every account is closed; NULL is fine */
bool budget_is_short(const struct budget *b, enum budget_kind kind);
bool budget_is_spent(const struct budget *b); /* no byte is left for anybody */
struct budget_counters budget_counters(struct budget *b);

/* The account of a peer's address, for one connection; NULL when the address has as many
 * connections as it may. */
struct account *account_open(struct budget *b, const struct sockaddr *peer);
void account_close(struct account *a); /* NULL is fine */
uint32_t account_connections(const struct account *a);
/* Keeps the account for something that outlives the connection. */
struct account *account_ref(struct account *a);
void account_unref(struct account *a);

/* How much more the address may take now (account_room), and how much once the addresses above
 * their share have given way (account_due). */
uint64_t account_room(const struct account *a, enum budget_kind kind);
uint64_t account_due(const struct account *a, enum budget_kind kind);
/* Whether the address holds more than its share. */
bool account_is_over(const struct account *a, enum budget_kind kind);
/* Takes (change > 0) or gives back. It is never refused: ask account_room() before. */
void account_charge(struct account *a, enum budget_kind kind, int64_t change);
void account_note(struct account *a, enum budget_event event);

#endif
