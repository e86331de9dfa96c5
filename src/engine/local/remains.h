/* Reads what is left of a data directory that no server has open: everything readable in its tables
 * and its log, merged as a start would merge it. Nothing is written. Damage is reported and passed
 * over: so some records may be missing, and deleted ones may be there again. But no record has
 * other bytes than were written. */
#ifndef TRIAGE_ENGINE_LOCAL_REMAINS_H
#define TRIAGE_ENGINE_LOCAL_REMAINS_H

#include "base/buf.h"
#include "base/status.h"
#include "engine/local/store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct remains;

/* Called for each damage, with a sentence that has file and offset. */
typedef void remains_damage(void *ctx, const char *sentence);
typedef void remains_record(void *ctx, const char *key, size_t key_len, const char *value,
                            size_t value_len);

/* Refuses what a server has open, and what is no data directory; `error` has a sentence. */
MUST_USE enum status remains_open(const char *dir, remains_damage *damage, void *ctx,
                                  struct remains **out, struct buf *error);
void remains_close(struct remains *r);

/* Every record of a family, in order of keys. No damage is told twice. */
void remains_each(struct remains *r, enum store_family f, remains_record *each, void *ctx);

/* How many bytes of how many have been read; to show progress. */
void remains_progress(const struct remains *r, uint64_t *bytes, uint64_t *bytes_total);

#endif
