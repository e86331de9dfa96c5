/* The zones of this machine: /usr/share/zoneinfo, from the package tzdata. Each zone is
 * read once and kept. Every hour its file is looked at, and read again if it has changed.
 * Any thread. */
#ifndef TRIAGE_BASE_ZONEINFO_H
#define TRIAGE_BASE_ZONEINFO_H

#include "base/zone.h"

/* "Europe/Berlin": letters, digits, _ + - and single slashes between them. */
bool zone_name_valid(const char *name, size_t len);

/* False when there is no such zone, or its file cannot be read. *zone lives as long as the process;
 * for UTC, which needs no file, it is NULL. */
bool zone_find(const char *name, const struct zone **zone);

#endif
