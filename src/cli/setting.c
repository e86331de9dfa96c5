#include "cli/setting.h"

#include "base/file.h"
#include "cli/jsontree.h"
#include "term/cli.h"

#include <errno.h>

#define CONFIG_TOKENS_MAX 10000
#define LEVEL_PREFIX      "level."

static bool read_file(struct jsontree *config, struct json_doc *doc, const char *path)
{
    struct buf text = {0};
    bool fine = file_read(strcmp(path, "-") == 0 ? NULL : path, &text);
    if (!fine) {
        cli_complain("%s: %s", path, strerror(errno));
    } else if (!json_parse(doc, text.data, text.len, CONFIG_TOKENS_MAX)) {
        cli_complain("%s: %s", path, doc->error);
        fine = false;
    } else if (doc->tokens[0].type != JSON_OBJECT) {
        cli_complain("%s: not a JSON object", path);
        fine = false;
    }
    if (fine)
        jsontree_merge(config, doc, 0);
    buf_fini(&text);
    return fine;
}

/* level.NAME.FIELD, where the name may have dots of its own. NULL after a complaint. */
static struct jsontree *level_of(struct jsontree *levels, const char *key, const char **field)
{
    const char *name = key + strlen(LEVEL_PREFIX), *dot = strrchr(name, '.');
    if (!dot || dot == name || dot[1] == '\0') {
        cli_complain("%s: expected level.NAME.FIELD=value, such as level.LOW.weight=2", key);
        return NULL;
    }
    *field = dot + 1;
    return jsontree_member(levels, name, (size_t)(dot - name));
}

/* What parses as JSON is JSON, anything else is a string. */
static bool value_put(struct buf *out, struct json_doc *doc, const char *key, const char *value)
{
    if (json_parse(doc, value, strlen(value), CONFIG_TOKENS_MAX)) {
        buf_puts(out, value);
        return true;
    }
    if (!utf8_valid(value, strlen(value))) {
        cli_complain("%s: not valid UTF-8", key);
        return false;
    }
    json_put_cstr(out, value);
    return true;
}

static bool take(struct jsontree *config, struct jsontree *levels, struct json_doc *doc,
                 char *setting)
{
    char *equals = strchr(setting, '=');
    if (equals == NULL || equals == setting) {
        cli_complain("%s: expected key=value", setting);
        return false;
    }
    *equals = '\0';
    const char *field = setting;
    bool of_level = strncmp(setting, LEVEL_PREFIX, strlen(LEVEL_PREFIX)) == 0;
    struct jsontree *node = of_level ? level_of(levels, setting, &field) : config;
    struct buf text = {0};
    bool fine = node && value_put(&text, doc, setting, equals + 1);
    if (fine)
        jsontree_set(node, field, text.data, text.len);
    buf_fini(&text);
    return fine;
}

static bool take_all(struct jsontree *config, struct jsontree *levels, const char *file,
                     const struct operands *ops)
{
    struct json_doc doc;
    json_init(&doc);
    bool fine = file == NULL || read_file(config, &doc, file);
    for (int i = 1; fine && i < ops->count; i++)
        fine = take(config, levels, &doc, ops->items[i]);
    json_fini(&doc);
    if (fine && levels->child && jsontree_has(config, "levels")) {
        cli_complain("`levels` names all levels, level.NAME.FIELD changes one of them: give one or "
                     "the other");
        return false;
    }
    return fine;
}

const char *setting_body(const char *file, const struct operands *ops, struct buf *out)
{
    struct jsontree config = {0}, levels = {0};
    const char *method = NULL;
    if (take_all(&config, &levels, file, ops)) {
        method = levels.child && !jsontree_has(&config, "profile") ? "PATCH" : "PUT";
        if (levels.child) {
            struct buf text = {0};
            jsontree_put(&levels, &text);
            jsontree_set(&config, "levels", text.data, text.len);
            buf_fini(&text);
        }
        jsontree_put(&config, out);
    }
    jsontree_fini(&config);
    jsontree_fini(&levels);
    return method;
}
