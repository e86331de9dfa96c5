#include "base/status.h"

#include <assert.h>

static const struct {
    const char *name;
    const char *title;
    int http;
} table[STATUS_COUNT] = {
#define X(symbol, name, http, title) [STATUS_##symbol] = {name, title, http},
    STATUS_TABLE(X)
#undef X
};

const char *status_name(enum status s)
{
    assert(s < STATUS_COUNT);
    return table[s].name;
}

const char *status_title(enum status s)
{
    assert(s < STATUS_COUNT);
    return table[s].title;
}

int status_http(enum status s)
{
    assert(s < STATUS_COUNT);
    return table[s].http;
}
