// SPDX-License-Identifier: GPL-2.0-only
/* rm: checkpoints by id, by container, or all */
#include <fnmatch.h>
#include <string.h>
#include "ctl.h"

enum { OPT_CONTAINER = OPT_OWN, OPT_PATTERN, OPT_ALL, OPT_DRY_RUN, OPT_SECURE };

struct pick {
	const char *container, *pattern;
	size_t pinned;		/* passed over: not named by id */
	size_t needed;		/* likewise, since something that stays is built on them */
	bool all, dry_run, secure;
	uint8_t (*ids)[ZNS_UUID_LEN];
	size_t nr;
};

static void add(struct pick *p, const uint8_t *id)
{
	size_t i;

	for (i = 0; i < p->nr; i++)
		if (!memcmp(p->ids[i], id, ZNS_UUID_LEN))
			return;
	memcpy(p->ids[p->nr++], id, ZNS_UUID_LEN);
}

static bool picked(const struct pick *p, const uint8_t *id)
{
	for (size_t i = 0; i < p->nr; i++)
		if (!memcmp(p->ids[i], id, ZNS_UUID_LEN))
			return true;
	return false;
}

/* Parents of what stays; newest first, so that one pass finds them all. */
static void keep_parents(const ZnsPb__Response *ls, struct pick *p)
{
	for (size_t i = ls->n_checkpoints; i-- > 0;) {
		const ZnsPb__Checkpoint *c = ls->checkpoints[i], *child;
		size_t at = 0, k = 0;

		if (!picked(p, c->id.data))
			continue;
		do {
			child = ctl_next_child(ls, c, &at);
		} while (child && picked(p, child->id.data));
		if (!child)
			continue;
		while (memcmp(p->ids[k], c->id.data, ZNS_UUID_LEN))
			k++;
		memcpy(p->ids[k], p->ids[--p->nr], ZNS_UUID_LEN);
		p->needed++;
	}
}

static int choose(const ZnsPb__Response *ls, int argc, char **argv, struct pick *p, struct zns_err *err)
{
	uint8_t uuid[ZNS_UUID_LEN];
	const ZnsPb__Checkpoint *c;
	size_t i;
	int a, ret;

	p->ids = calloc(ls->n_checkpoints + argc + 1, ZNS_UUID_LEN);
	if (!p->ids)
		return zns_fail_sys(err, -ENOMEM, "list of checkpoints");
	for (a = 0; a < argc; a++) {
		/* A whole id may be one that is gone: the broker knows. The beginning of one must be there. */
		if (!zns_uuid_parse(argv[a], uuid)) {
			add(p, uuid);
			continue;
		}
		ret = zns_find_checkpoint(ls, argv[a], &c, err);
		if (ret)
			return ret;
		add(p, c->id.data);
	}
	for (i = 0; i < ls->n_checkpoints; i++) {
		c = ls->checkpoints[i];
		if (c->id.len != ZNS_UUID_LEN || !(p->all || (p->container && !strcmp(p->container, c->container)) ||
						   (p->pattern && !fnmatch(p->pattern, c->container, 0))))
			continue;
		if (ctl_pinned(ls, c))
			p->pinned++;
		else
			add(p, c->id.data);
	}
	if (!argc)
		keep_parents(ls, p);
	return 0;
}

static struct json_object *line_json(const ProtobufCBinaryData *id, const char *container)
{
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, "id", ctl_json_uuid(id));
	json_object_object_add(o, "container", container ? json_object_new_string(container) : NULL);
	return o;
}

static int print(const struct ctl_args *args, const struct pick *p, struct json_object *list)
{
	struct json_object *j, *o;
	size_t i, n = json_object_array_length(list);

	if (args->json) {
		j = json_object_new_object();
		json_object_object_add(j, "removed", list);
		json_object_object_add(j, "pinned", json_object_new_int64(p->pinned));
		json_object_object_add(j, "parents", json_object_new_int64(p->needed));
		json_object_object_add(j, "dry_run", json_object_new_boolean(p->dry_run));
		return ctl_print_json(j);
	}
	for (i = 0; i < n; i++) {
		const char *name;

		o = json_object_array_get_idx(list, i);
		name = json_object_get_string(json_object_object_get(o, "container"));
		printf("%s %s%s%s\n", p->dry_run ? "would remove" : "removed",
		       json_object_get_string(json_object_object_get(o, "id")), name ? " of " : "", name ? name : "");
	}
	if (!n)
		printf("nothing to remove\n");
	if (p->pinned)
		printf("%zu pinned, kept\n", p->pinned);
	if (p->needed)
		printf("%zu parents of what stays, kept\n", p->needed);
	json_object_put(list);
	return CTL_OK;
}

/* Newest first, so that no parent goes before its children; then what is not there any more. */
static void in_order(const struct pick *p, const ZnsPb__Response *ls, ProtobufCBinaryData *ids)
{
	cleanup_free bool *listed = calloc(p->nr + 1, sizeof(*listed));
	size_t n = 0, i, k;

	for (i = listed ? ls->n_checkpoints : 0; i-- > 0;)
		for (k = 0; k < p->nr; k++)
			if (!listed[k] && !memcmp(ls->checkpoints[i]->id.data, p->ids[k], ZNS_UUID_LEN)) {
				listed[k] = true;
				ids[n++] = (ProtobufCBinaryData){ ZNS_UUID_LEN, p->ids[k] };
				break;
			}
	for (k = 0; k < p->nr; k++)
		if (!listed || !listed[k])
			ids[n++] = (ProtobufCBinaryData){ ZNS_UUID_LEN, p->ids[k] };
}

/* The broker removes what one request names before it looks at anybody else: dumps that run must not wait for long. */
#define BATCH 256

static int remove_picked(struct zns_broker *b, struct pick *p, const ZnsPb__Response *ls, struct json_object *list,
			 struct zns_err *err)
{
	cleanup_free ProtobufCBinaryData *ids = calloc(p->nr + 1, sizeof(*ids));
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Rm rm = ZNS_PB__RM__INIT;
	ZnsPb__Response *r;
	size_t i, k;
	int ret = 0;

	if (!ids)
		return zns_fail_sys(err, -ENOMEM, "list of checkpoints");
	in_order(p, ls, ids);
	for (i = 0; p->dry_run && i < p->nr; i++)
		for (k = 0; k < ls->n_checkpoints; k++)
			if (!memcmp(ls->checkpoints[k]->id.data, ids[i].data, ZNS_UUID_LEN))
				json_object_array_add(list, line_json(&ids[i], ls->checkpoints[k]->container));
	if (p->dry_run)
		return 0;
	rm.by = p->secure ? "znsctl rm --secure" : "znsctl rm";
	rm.has_secure = rm.secure = p->secure;
	req.rm = &rm;
	for (i = 0; i < p->nr && !ret; i += rm.n_checkpoints) {
		rm.checkpoints = ids + i;
		rm.n_checkpoints = zns_min(p->nr - i, (size_t)BATCH);
		ret = zns_broker_call(b, &req, &r, err);
		if (ret)
			break;
		for (k = 0; k < r->n_removed; k++)
			json_object_array_add(list, line_json(&r->removed[k]->id, r->removed[k]->container));
		zns_pb__response__free_unpacked(r, NULL);
	}
	return ret && i ? zns_wrap(err, "%zu of %zu are removed", i, p->nr) : ret;
}

int cmd_rm(const struct ctl_cmd *cmd, int argc, char **argv)
{
	static const struct option opts[] = {
		{ "container", required_argument, NULL, OPT_CONTAINER },
		{ "pattern", required_argument, NULL, OPT_PATTERN },
		{ "all", no_argument, NULL, OPT_ALL },
		{ "dry-run", no_argument, NULL, OPT_DRY_RUN },
		{ "secure", no_argument, NULL, OPT_SECURE },
		CTL_DEV_OPTION, CTL_COMMON_OPTIONS, CTL_END_OPTIONS,
	};
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	struct zns_broker b = { .fd = -1 };
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	struct pick p = { 0 };
	struct json_object *list;
	ZnsPb__Response *ls = NULL;
	struct zns_registered reg;
	int c, ret;

	while ((c = ctl_getopt(cmd, argc, argv, opts, &args)) >= 0) {
		if (c == OPT_CONTAINER)
			p.container = optarg;
		if (c == OPT_PATTERN)
			p.pattern = optarg;
		p.all |= c == OPT_ALL;
		p.dry_run |= c == OPT_DRY_RUN;
		p.secure |= c == OPT_SECURE;
	}
	if (c == -2)
		return args.code;
	ctl_take_dev(&args);
	if (!!args.argc + !!p.container + !!p.pattern + p.all != 1)
		return ctl_usage(cmd, "ids, --container NAME, --pattern GLOB or --all: one of them");
	list = json_object_new_array();
	req.has_ls = req.ls = 1;
	ret = ctl_connect(args.dev, &reg, &b, &err);
	if (!ret)
		ret = zns_broker_call(&b, &req, &ls, &err);
	if (!ret)
		ret = choose(ls, args.argc, args.argv, &p, &err);
	if (!ret)
		ret = remove_picked(&b, &p, ls, list, &err);
	if (ls)
		zns_pb__response__free_unpacked(ls, NULL);
	zns_broker_close(&b);
	free(p.ids);
	if (ret) {
		json_object_put(list);
		return ctl_fail(cmd, &err);
	}
	return print(&args, &p, list);
}
