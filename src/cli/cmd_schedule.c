/* The verbs of schedule: messages that a queue gets again and again. */
#include "base/clock.h"
#include "base/cron.h"
#include "base/zoneinfo.h"
#include "cli/client.h"
#include "cli/commands.h"
#include "cli/compose.h"
#include "cli/list.h"
#include "cli/show.h"
#include "cli/simple.h"
#include "cli/transfer.h"
#include "term/args.h"
#include "term/member.h"
#include "term/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SCHEDULE_PATH "/v1/queues/%s/schedules/%s"

struct set_options {
    const char *cron, *time_zone, *missed;
    int64_t every_ms, grace_ms;
    bool paused;
    struct compose message;
};

static bool set_body(const struct set_options *o, const char *payload, struct buf *json)
{
    buf_putc(json, '{');
    if (o->cron)
        member_put_text(json, "cron", o->cron);
    if (o->every_ms != ARG_UNSET)
        member_put_seconds(json, "every_seconds", o->every_ms);
    if (o->time_zone)
        member_put_text(json, "time_zone", o->time_zone);
    if (o->missed)
        member_put_text(json, "missed", o->missed);
    if (o->grace_ms != ARG_UNSET)
        member_put_seconds(json, "grace_seconds", o->grace_ms);
    if (o->paused) {
        member_put(json, "paused");
        buf_puts(json, "true");
    }
    bool fine = compose_put(&o->message, payload, json);
    buf_putc(json, '}');
    return fine;
}

/* Prints the next due times, one a line, so that a wrong cron line is seen at once. */
static void print_next(const struct json_doc *doc)
{
    uint32_t array = json_array(doc, 0, "next");
    for (uint32_t i = array ? json_first(doc, array) : 0; i; i = json_next(doc, array, i))
        printf("  due %.*s\n", (int)doc->tokens[i].len, doc->tokens[i].str);
}

static int put_done(struct client *c, const struct cli *cli, const char *name, int status)
{
    if (status == CLI_DONE && cli->json) {
        text_document(&c->answer);
    } else if (status == CLI_DONE) {
        printf("%s %s\n", c->http == 201 ? "created" : "changed", name);
        print_next(&c->doc);
    }
    return status;
}

static int set(const struct set_options *o, const struct operands *ops, const struct cli *cli)
{
    struct client c;
    int status = CLI_USAGE;
    client_init(&c);
    client_begin(&c, cli);
    c.has_options = true;
    client_path(&c, SCHEDULE_PATH, ops->items[0], ops->items[1]);
    if (set_body(o, ops->count > 2 ? ops->items[2] : NULL, &c.body))
        status = put_done(&c, cli, ops->items[1], client_run(&c, "PUT", TYPE_JSON));
    client_fini(&c);
    return status;
}

static int schedule_set(int argc, char **argv, const struct cli *cli)
{
    struct set_options o = {.every_ms = ARG_UNSET,
                            .grace_ms = ARG_UNSET,
                            .message = {.delay_ms = ARG_UNSET, .ttl_ms = ARG_UNSET}};
    const struct arg_option options[] = {
        {"cron", 0, ARG_TEXT, &o.cron, "LINE", "five fields: '0 3 * * MON-FRI', or @hourly"},
        {"every", 0, ARG_DURATION, &o.every_ms, "30s", "whole seconds, counted from 1970 on"},
        {"time-zone", 0, ARG_TEXT, &o.time_zone, "NAME", "of the cron line; else UTC"},
        {"missed", 0, ARG_TEXT, &o.missed, "HOW", "skip, once (the default) or all"},
        {"grace", 0, ARG_DURATION, &o.grace_ms, "60s", "later than this it was missed"},
        {"paused", 0, ARG_FLAG, &o.paused, NULL, "nothing is due until it is resumed"},
        COMPOSE_OPTIONS(o.message),
        {0},
    };
    const struct arg_spec spec = {
        "schedule set QUEUE NAME [PAYLOAD|-] --cron LINE|--every 30s [options]",
        "The queue gets such a message at every due time. Sets the whole schedule: what is not\n"
        "given has its default. Prints when it will be due. A due time has one message, whatever\n"
        "crashes and however many servers run; what was due while none ran is for --missed.",
        "  triage schedule set mail digest --cron '0 7 * * MON-FRI' --time-zone Europe/Berlin go\n"
        "  triage schedule set jobs sweep --every 30s --missed skip --ttl 30s '{}'\n"
        "  triage schedule set jobs report --cron @daily --dedup report -p 9 < report.json\n",
        options,
        2,
        3};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status == ARGS_GO) {
        if (ops.count > 2 && o.message.file)
            status = args_refuse(&spec, "both a payload and --file");
        else if (o.cron && o.every_ms != ARG_UNSET)
            status = args_refuse(&spec, "--cron and --every exclude each other");
        else if (!o.cron && o.every_ms == ARG_UNSET)
            status = args_refuse(&spec, "one of --cron and --every is needed");
        else if (o.every_ms != ARG_UNSET && (o.every_ms < 1000 || o.every_ms % 1000 != 0))
            status = args_refuse(&spec, "--every: whole seconds, 1s or more");
        else
            status = set(&o, &ops, cli);
    }
    free(o.message.meta.items);
    return status;
}

static int schedule_list(int argc, char **argv, const struct cli *cli)
{
    struct list_options o = {.limit = ARG_UNSET};
    const struct arg_option options[] = {
        {"limit", 0, ARG_INT, &o.limit, "N", "at most so many; without it all"},
        {"after", 0, ARG_TEXT, &o.after, "NAME", "only those behind this one"},
        {0},
    };
    const struct arg_spec spec = {"schedule list QUEUE [--limit N] [--after NAME]",
                                  "Lists the schedules of a queue and when they are due.",
                                  "  triage schedule list mail\n"
                                  "  triage schedule list mail --json | jq '.schedules[].name'\n",
                                  options,
                                  1,
                                  1};
    static const char *const columns[] = {
        "name",        "level", "cron",   "every_seconds", "time_zone", "next_due_at",
        "last_due_at", "count", "paused", "waits_for",     NULL};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status != ARGS_GO)
        return status;
    return list_print(cli, "/v1/queues/%s/schedules", ops.items[0], &o, columns);
}

static int schedule_show(int argc, char **argv, const struct cli *cli)
{
    bool payload = false;
    const struct arg_option options[] = {
        {"payload", 0, ARG_FLAG, &payload, NULL, "only the payload, byte for byte"},
        {0},
    };
    const struct arg_spec spec = {
        "schedule show QUEUE NAME [--payload]",
        "Everything about a schedule, its next due times, and the payload at the end.",
        "  triage schedule show mail digest\n"
        "  triage schedule show mail digest --payload | jq .\n"
        "  triage schedule show mail digest --json | jq .next\n",
        options,
        2,
        2};
    struct operands ops;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status != ARGS_GO)
        return status;
    return show_message(cli, SCHEDULE_PATH, &ops, payload);
}

static int schedule_delete(int argc, char **argv, const struct cli *cli)
{
    const struct arg_spec spec = {"schedule delete QUEUE NAME",
                                  "Deletes a schedule. Messages that it has put stay.",
                                  "  triage schedule delete mail digest\n",
                                  NULL,
                                  2,
                                  2};
    return simple_run(&spec, argc, argv, cli, "DELETE", SCHEDULE_PATH);
}

/* Reads the schedule and sets it again, with another `paused`. */
static int set_paused(const struct arg_spec *spec, int argc, char **argv, const struct cli *cli,
                      bool paused)
{
    struct operands ops;
    struct client c;
    struct buf body = {0};
    int status = args_parse(spec, argc, argv, &ops);
    if (status != ARGS_GO)
        return status;
    client_init(&c);
    client_begin(&c, cli);
    client_path(&c, SCHEDULE_PATH, ops.items[0], ops.items[1]);
    status = client_run(&c, "GET", NULL);
    if (status == CLI_DONE) {
        transfer_schedule(&body, &c.doc, false);
        body.len--; /* without the closing brace */
        buf_puts(&body, paused ? ",\"paused\":true}" : ",\"paused\":false}");
        client_begin(&c, cli);
        client_path(&c, SCHEDULE_PATH, ops.items[0], ops.items[1]);
        buf_put(&c.body, body.data, body.len);
        status = put_done(&c, cli, ops.items[1], client_run(&c, "PUT", TYPE_JSON));
    }
    client_fini(&c);
    buf_fini(&body);
    return status;
}

static int schedule_pause(int argc, char **argv, const struct cli *cli)
{
    const struct arg_spec spec = {"schedule pause QUEUE NAME",
                                  "Nothing is due until it is resumed, and nothing is missed.",
                                  "  triage schedule pause mail digest\n",
                                  NULL,
                                  2,
                                  2};
    return set_paused(&spec, argc, argv, cli, true);
}

static int schedule_resume(int argc, char **argv, const struct cli *cli)
{
    const struct arg_spec spec = {"schedule resume QUEUE NAME",
                                  "Ends a pause: it is due again from now on.",
                                  "  triage schedule resume mail digest\n",
                                  NULL,
                                  2,
                                  2};
    return set_paused(&spec, argc, argv, cli, false);
}

/* schedule next: the due times of a cron line in a zone, without a server. */

static void print_local(int64_t at_s, const struct zone *zone)
{
    int64_t year, local = at_s + zone_span(zone, at_s).offset;
    int32_t offset = zone_span(zone, at_s).offset;
    int month, day;
    char utc[TIME_TEXT_MAX];
    static const char *const weekdays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    int64_t days = floor_div(local, 86400), second = local - days * 86400;
    calendar_date(days, &year, &month, &day);
    time_format_ms(at_s * 1000, utc);
    printf("%s %04" PRId64 "-%02d-%02d %02d:%02d %c%02d:%02d  %s\n",
           weekdays[calendar_weekday(days)], year, month, day, (int)(second / 3600),
           (int)(second / 60 % 60), offset < 0 ? '-' : '+', abs(offset) / 3600,
           abs(offset) / 60 % 60, utc);
}

static int schedule_next_times(int argc, char **argv, const struct cli *cli)
{
    const char *zone_name = "UTC", *after = NULL;
    int64_t count = 5, after_ms = clock_now().wall_ms;
    const struct arg_option options[] = {
        {"time-zone", 0, ARG_TEXT, &zone_name, "NAME", "whose clocks it goes by; else UTC"},
        {"count", 'n', ARG_INT, &count, "N", "so many; else 5"},
        {"after", 0, ARG_TIME, &after, "TIME", "those behind this time; else now"},
        {0},
    };
    const struct arg_spec spec = {
        "schedule next LINE [--time-zone NAME] [-n N] [--after TIME]",
        "Prints the next due times of a cron line, by the clocks of the zone and in UTC, without\n"
        "asking a server: the zones are those of this machine (package tzdata).",
        "  triage schedule next '0 3 * * MON-FRI' --time-zone Europe/Berlin\n"
        "  triage schedule next '30 2 * * *' --time-zone Europe/Berlin --after "
        "2027-03-27T00:00:00Z\n",
        options,
        1,
        1};
    struct operands ops;
    const struct zone *zone;
    struct cron cron;
    char why[CRON_WHY_MAX];
    (void)cli;
    int status = args_parse(&spec, argc, argv, &ops);
    if (status != ARGS_GO)
        return status;
    if (!cron_parse(ops.items[0], strlen(ops.items[0]), &cron, why))
        return args_refuse(&spec, "\"%s\" %s", ops.items[0], why);
    if (!zone_find(zone_name, &zone))
        return args_refuse(&spec, "no time zone \"%s\" is known here", zone_name);
    if (count < 1 || count > 1000)
        return args_refuse(&spec, "-n goes from 1 to 1000");
    if (after)
        time_parse_ms(after, strlen(after), &after_ms);
    int64_t at_s = floor_div(after_ms, 1000);
    for (int64_t i = 0; i < count && (at_s = cron_next(&cron, zone, at_s)) != INT64_MAX; i++)
        print_local(at_s, zone);
    return CLI_DONE;
}

static const struct cli_verb schedule_verbs[] = {
    {"set", "create one or change it", schedule_set},
    {"list", "those of a queue, and when they are due", schedule_list},
    {"show", "one, with its next due times", schedule_show},
    {"delete", "delete it", schedule_delete},
    {"pause", "nothing is due until resumed", schedule_pause},
    {"resume", "end a pause", schedule_resume},
    {"next", "the next due times of a cron line, without a server", schedule_next_times},
    {NULL, NULL, NULL},
};

int cmd_schedule(int argc, char **argv, const struct cli *cli)
{
    return cli_run_verb(schedule_verbs, argc, argv, cli);
}
