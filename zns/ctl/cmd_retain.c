/* SPDX-License-Identifier: GPL-2.0-only */
/* retain, pin, unpin */
#include <string.h>
#include "lib/ctl.h"

/* Formats a rule. Only limits that the rule has are shown: a missing limit does not mean 0. */
char *ctl_rule(const ZnsPb__Retention *r, char *buf, size_t len)
{
	char ttl[24];
	size_t n = 0;

	if (r->keep)
		n = (size_t)snprintf(buf, len, "the newest %u", r->keep);
	if (r->ttl_s)
		snprintf(buf + n, len - n, "%syounger than %s", n ? ", of these those " : "those ",
			 zns_format_duration(r->ttl_s, ttl, sizeof(ttl)));
	else if (!n)
		snprintf(buf, len, "all");
	return buf;
}

static int print_rules(const ZnsPb__Response *ls, bool json)
{
	char name[CTL_NAME], text[CTL_RULE];
	struct ctl_fold fold = { 0 };

	if (json)
		return ctl_print_list("retentions",
				      ctl_json_all((void **)ls->retentions, ls->n_retentions,
						   "container keep:pos ttl_s:pos set=set_ns:time"));
	ctl_fold_begin(&fold);
	for (size_t i = 0; i < ls->n_retentions; i++)
		printf("%-20s  %s\n", ctl_name(ls->retentions[i]->container, name, sizeof(name)),
		       ctl_rule(ls->retentions[i], text, sizeof(text)));
	ctl_fold_end(&fold, 4);
	if (!ls->n_retentions)
		printf("no rules\n");
	return CTL_OK;
}

/* Reads the existing rule: options that are not given keep their value. */
static int merge(struct zns_broker *b, ZnsPb__Retention *rule, struct zns_err *err)
{
	cleanup_answer ZnsPb__Response *ls = NULL;
	int ret = ctl_ls(b, &ls, err);

	if (ret)
		return ret;
	for (size_t i = 0; i < ls->n_retentions; i++) {
		const ZnsPb__Retention *old = ls->retentions[i];

		if (strcmp(old->container, rule->container))
			continue;
		if (!rule->has_keep)
			rule->keep = old->keep;
		if (!rule->has_ttl_s)
			rule->ttl_s = old->ttl_s;
	}
	rule->has_keep = rule->keep > 0;
	rule->has_ttl_s = rule->ttl_s > 0;
	return 0;
}

static int set_rule(ZnsPb__Retention *rule, bool off, const char *dev, struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	struct zns_broker b = { .fd = -1 };
	struct zns_registered reg;
	int ret = ctl_connect(dev, &reg, &b, err);

	if (!ret && !off)
		ret = merge(&b, rule, err);
	req.retain = rule;
	if (!ret)
		ret = ctl_tell(&b, &req, err);
	zns_broker_close(&b);
	return ret;
}

static int cmd_retain(const struct ctl_cmd *cmd, int argc, char **argv)
{
	ZnsPb__Retention rule = ZNS_PB__RETENTION__INIT;
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	cleanup_answer ZnsPb__Response *r = NULL;
	bool off = false;
	char ttl[24];
	uint64_t keep = 0;
	const struct ctl_opt opts[] = {
		CTL_NUMBER("keep", &keep, 1, UINT32_MAX,
			   "--keep takes a number of checkpoints, at least 1"),
		CTL_DURATION("ttl", &rule.ttl_s, 1), CTL_FLAG("off", &off), CTL_DEV, CTL_OPTS_END
	};

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	rule.has_keep = keep > 0;
	rule.keep = (uint32_t)keep;
	rule.has_ttl_s = rule.ttl_s > 0;
	ctl_take_dev(&args);
	if (!args.argc && !off && !rule.has_keep && !rule.has_ttl_s) {
		if (ctl_list(args.dev, &r, &err))
			return ctl_fail(cmd, &err);
		return print_rules(r, args.json);
	}
	if (args.argc != 1 || off == (rule.has_keep || rule.has_ttl_s))
		return ctl_usage(cmd, "a container, and --keep N, --ttl TIME or both, or --off");
	rule.container = args.argv[0];
	if (set_rule(&rule, off, args.dev, &err))
		return ctl_fail(cmd, &err);
	if (args.json)
		return ctl_print_json(ctl_json(&rule, "container keep:pos ttl_s:pos"));
	if (off) {
		printf("%s: no rule any more\n", ctl_text(rule.container));
		return CTL_OK;
	}
	printf("%s:", ctl_text(rule.container));
	if (rule.keep)
		printf(" keep %u", rule.keep);
	if (rule.ttl_s)
		printf("%s ttl %s", rule.keep ? "," : "",
		       zns_format_duration(rule.ttl_s, ttl, sizeof(ttl)));
	printf("; the rule applies after its next dump, and at `znsctl gc`\n");
	return CTL_OK;
}

const struct ctl_cmd command_retain = {
	"retain",
	"[DEV] [CONTAINER --keep N|--ttl TIME|--off]",
	"how many checkpoints of a container stay; alone: list the rules",
	"  --keep N        keep the newest N\n  --ttl TIME      keep those that are younger than this (90, 30m, 12h, 7d)\n"
	"  --off           end the rule\n" CTL_DEV_HELP,
	cmd_retain,
};

static int mark_one(struct zns_session *s, const char *what, bool pinned, uint8_t *id,
		    struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Mark m = ZNS_PB__MARK__INIT;
	int ret = zns_broker_resolve_id(&s->broker, what, id, err);

	if (ret)
		return ret;
	m.checkpoint = (ProtobufCBinaryData){ ZNS_UUID_LEN, id };
	m.has_pinned = 1;
	m.pinned = pinned;
	req.mark = &m;
	return ctl_tell(&s->broker, &req, err);
}

static int do_pin(const struct ctl_cmd *cmd, int argc, char **argv, bool pinned)
{
	struct zns_session s = ZNS_SESSION_INIT;
	struct json_object *list;
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	char text[ZNS_UUID_STR];
	uint8_t id[ZNS_UUID_LEN];
	int ret;
	const struct ctl_opt opts[] = { CTL_DEV, CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	ctl_take_dev(&args);
	if (!args.argc)
		return ctl_usage(cmd, "give the ids of checkpoints");
	list = json_object_new_array();
	ret = ctl_connect(args.dev, &s.reg, &s.broker, &err);
	for (int i = 0; i < args.argc && !ret; i++) {
		ret = mark_one(&s, args.argv[i], pinned, id, &err);
		if (ret)
			break;
		json_object_array_add(list, json_object_new_string(zns_uuid_format(id, text)));
		if (!args.json)
			printf("%s %s\n", pinned ? "pinned" : "unpinned", text);
	}
	zns_session_close(&s);
	if (args.json && !ret)
		return ctl_print_list(pinned ? "pinned" : "unpinned", list);
	json_object_put(list);
	return ret ? ctl_fail(cmd, &err) : CTL_OK;
}

static int cmd_pin(const struct ctl_cmd *cmd, int argc, char **argv)
{
	return do_pin(cmd, argc, argv, true);
}

const struct ctl_cmd command_pin = {
	"pin",        "[DEV] ID...", "protect checkpoints: rm, gc and retention leave them alone",
	CTL_DEV_HELP, cmd_pin,
};

static int cmd_unpin(const struct ctl_cmd *cmd, int argc, char **argv)
{
	return do_pin(cmd, argc, argv, false);
}

const struct ctl_cmd command_unpin = {
	"unpin", "[DEV] ID...", "undo pin", CTL_DEV_HELP, cmd_unpin,
};
