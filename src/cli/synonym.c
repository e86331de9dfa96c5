#include "cli/synonym.h"

#include <stddef.h>
#include <string.h>

static const struct synonym {
    const char *family, *asked, *meant;
} synonyms[] = {
    {"", "list", "triage queues"},
    {"", "ls", "triage queues"},
    {"", "peek", "triage show QUEUE ID, or triage export QUEUE for all of them"},
    {"", "get", "triage claim, or triage show QUEUE ID"},
    {"", "put", "triage enqueue"},
    {"", "push", "triage enqueue"},
    {"", "send", "triage enqueue"},
    {"", "add", "triage enqueue"},
    {"", "publish", "triage enqueue"},
    {"", "pop", "triage claim"},
    {"", "receive", "triage claim"},
    {"", "reserve", "triage claim"},
    {"", "dequeue", "triage claim"},
    {"", "done", "triage ack"},
    {"", "delete", "triage ack, triage cancel or triage queue delete"},
    {"", "touch", "triage extend"},
    {"", "explain", "triage position"},
    {"", "run", "triage work"},
    {"", "worker", "triage work"},
    {"", "create", "triage queue create"},
    {"", "config", "triage queue get"},
    {"", "purge", "triage queue purge"},
    {"", "pause", "triage queue pause"},
    {"", "resume", "triage queue resume"},
    {"", "redrive", "triage dead redrive"},
    {"", "retry", "triage nack, or triage dead redrive"},
    {"", "consume", "triage work, or triage claim"},
    {"", "subscribe", "triage work"},
    {"", "cron", "triage schedule"},
    {"", "schedules", "triage schedule list"},
    {"", "dlq", "triage dead"},
    {"queue", "ls", "triage queue list"},
    {"queue", "show", "triage queue get"},
    {"queue", "config", "triage queue get"},
    {"queue", "describe", "triage queue get"},
    {"queue", "stats", "triage stats"},
    {"queue", "new", "triage queue create"},
    {"queue", "add", "triage queue create"},
    {"queue", "rm", "triage queue delete"},
    {"queue", "remove", "triage queue delete"},
    {"queue", "drop", "triage queue delete"},
    {"queue", "clear", "triage queue purge"},
    {"queue", "peek", "triage show QUEUE ID, or triage export QUEUE for all of them"},
    {"queue", "empty", "triage queue purge"},
    {"schedule", "ls", "triage schedule list"},
    {"schedule", "add", "triage schedule set"},
    {"schedule", "create", "triage schedule set"},
    {"schedule", "new", "triage schedule set"},
    {"schedule", "get", "triage schedule show"},
    {"schedule", "rm", "triage schedule delete"},
    {"schedule", "remove", "triage schedule delete"},
    {"schedule", "drop", "triage schedule delete"},
    {"dead", "ls", "triage dead list"},
    {"dead", "get", "triage dead show"},
    {"dead", "peek", "triage dead show"},
    {"dead", "retry", "triage dead redrive"},
    {"dead", "replay", "triage dead redrive"},
    {"dead", "rm", "triage dead purge"},
    {"dead", "drop", "triage dead purge"},
    {"dead", "delete", "triage dead purge"},
};

const char *synonym_find(const char *family, const char *asked)
{
    for (size_t i = 0; i < sizeof(synonyms) / sizeof(synonyms[0]); i++)
        if (strcmp(synonyms[i].family, family) == 0 && strcmp(synonyms[i].asked, asked) == 0)
            return synonyms[i].meant;
    return NULL;
}
