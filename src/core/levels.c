#include "core/config.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int levels_rank_of_name(const struct queue_config *config, const char *name)
{
    for (int i = 0; i < config->level_count; i++) {
        if (strcmp(config->levels[i].name, name) == 0)
            return i;
    }
    return -1;
}

static bool number_is(int64_t number, const char *name)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRId64, number);
    return strcmp(text, name) == 0;
}

bool level_clashes(const struct level *a, const struct level *b)
{
    return strcmp(a->name, b->name) == 0 ||
           (a->has_number && b->has_number && a->number == b->number) ||
           (a->has_number && number_is(a->number, b->name)) ||
           (b->has_number && number_is(b->number, a->name));
}

static int rank_of_number(const struct queue_config *config, int64_t number)
{
    for (int i = 0; i < config->level_count; i++) {
        if (config->levels[i].has_number && config->levels[i].number == number)
            return i;
    }
    for (int i = 0; i < config->level_count; i++) {
        if (number_is(number, config->levels[i].name))
            return i;
    }
    return -1;
}

int levels_resolve(const struct queue_config *config, const struct priority_ref *priority)
{
    switch (priority->kind) {
    case PRIORITY_DEFAULT:
        assert(config->default_rank < config->level_count);
        return config->default_rank;
    case PRIORITY_NAME:
        return levels_rank_of_name(config, priority->name);
    case PRIORITY_NUMBER:
        return rank_of_number(config, priority->number);
    }
    return -1;
}

int levels_rank_of_slot(const struct queue_config *config, uint8_t slot)
{
    if (slot < config->level_count && config->levels[slot].slot == slot)
        return slot; /* the usual case: levels were never reordered */
    for (int i = 0; i < config->level_count; i++) {
        if (config->levels[i].slot == slot)
            return i;
    }
    return -1;
}

/* The rank of the level in the next configuration, under its old name or a new one; -1: it is
 * dropped. */
static int rank_of_heir(const struct queue_config *next, const struct level *old)
{
    for (int i = 0; i < next->level_count; i++) {
        if (next->levels[i].heir_of == old->slot + 1)
            return i;
    }
    int rank = levels_rank_of_name(next, old->name);
    return rank >= 0 && next->levels[rank].heir_of == 0 ? rank : -1;
}

bool levels_adopt_slots(const struct queue_config *now, const bool used[LEVEL_COUNT_MAX],
                        struct queue_config *next, const char **level_name)
{
    bool taken[LEVEL_COUNT_MAX] = {false}, known[LEVEL_COUNT_MAX] = {false};
    assert(next->level_count <= LEVEL_COUNT_MAX);
    for (int i = 0; now && i < now->level_count; i++) {
        const struct level *old = &now->levels[i];
        int rank = rank_of_heir(next, old);
        assert(old->slot < LEVEL_COUNT_MAX);
        if (rank < 0 && used[old->slot]) {
            *level_name = old->name;
            return false;
        }
        if (rank >= 0) {
            next->levels[rank].slot = old->slot;
            taken[old->slot] = known[rank] = true;
        }
    }
    for (int i = 0; i < next->level_count; i++) {
        struct level *level = &next->levels[i];
        level->heir_of = 0;
        if (known[i])
            continue;
        uint8_t slot = 0;
        while (taken[slot]) /* at most 16 levels, so one is free */
            slot++;
        assert(slot < LEVEL_COUNT_MAX);
        level->slot = slot;
        taken[slot] = true;
    }
    return true;
}
