/* SPDX-License-Identifier: GPL-2.0-only */
/* rm: removes checkpoints by id, by container, or all */
#include <limits.h>
#include <string.h>
#include "ctl.h"

struct rm {
	struct ctl_pick p;
	size_t pinned; /* skipped: pinned and not named by id */
	size_t needed; /* skipped: a child that stays needs them */
	bool dry_run, secure, yes;
};

static void pass_over(struct rm *m, const uint8_t *id)
{
	size_t k = 0;

	while (memcmp(m->p.ids[k], id, ZNS_UUID_LEN))
		k++;
	memmove(m->p.ids[k], m->p.ids[k + 1], (--m->p.nr - k) * ZNS_UUID_LEN);
}

/* Keeps the parents of those that stay. Newest first, so one pass finds them all. */
static void keep_parents(struct rm *m)
{
	const ZnsPb__Response *ls = m->p.ls;

	for (size_t i = ls->n_checkpoints; i-- > 0;) {
		const ZnsPb__Checkpoint *c = ls->checkpoints[i], *child;
		size_t at = 0;

		if (c->id.len != ZNS_UUID_LEN || !ctl_picked(&m->p, c->id.data))
			continue;
		do {
			child = ctl_next_child(ls, c, &at);
		} while (child && ctl_picked(&m->p, child->id.data));
		if (!child)
			continue;
		pass_over(m, c->id.data);
		m->needed++;
	}
}

/* An id names exactly one checkpoint: it is an error if that one cannot go. */
static void choose(struct rm *m)
{
	const ZnsPb__Response *ls = m->p.ls;

	if (m->p.by_id)
		return;
	for (size_t i = 0; i < ls->n_checkpoints; i++) {
		const ZnsPb__Checkpoint *c = ls->checkpoints[i];

		if (c->id.len != ZNS_UUID_LEN || !ctl_picked(&m->p, c->id.data) ||
		    !ctl_pinned(ls, c))
			continue;
		pass_over(m, c->id.data);
		m->pinned++;
	}
	keep_parents(m);
}

static struct json_object *line_json(const uint8_t *id, const char *container)
{
	return ctl_obj(J("id", ctl_json_uuid(id)), J("container", container));
}

static int print(const struct ctl_args *args, const struct rm *p, struct json_object *list)
{
	struct json_object *o;
	size_t i, n = json_object_array_length(list);

	if (args->json)
		return ctl_print_json(ctl_obj(J("removed", list), J("pinned", p->pinned),
					      J("parents", p->needed), J("dry_run", p->dry_run)));
	for (i = 0; i < n; i++) {
		char quoted[CTL_NAME];
		const char *name;

		o = json_object_array_get_idx(list, i);
		name = json_object_get_string(json_object_object_get(o, "container"));
		printf("%s %s%s%s\n", p->dry_run ? "would remove" : "removed",
		       json_object_get_string(json_object_object_get(o, "id")), name ? " of " : "",
		       name ? ctl_name(name, quoted, sizeof(quoted)) : "");
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

/* Newest first, so that children go before their parents. Ids that are not there any more come
 * last. */
static void in_order(const struct ctl_pick *p, ProtobufCBinaryData *ids)
{
	const ZnsPb__Response *ls = p->ls;
	cleanup_free bool *listed = calloc(p->nr + 1, sizeof(*listed));
	size_t n = 0, i, k;

	for (i = listed ? ls->n_checkpoints : 0; i-- > 0;)
		for (k = 0; k < p->nr; k++)
			if (!listed[k] &&
			    !memcmp(ls->checkpoints[i]->id.data, p->ids[k], ZNS_UUID_LEN)) {
				listed[k] = true;
				ids[n++] = (ProtobufCBinaryData){ ZNS_UUID_LEN, p->ids[k] };
				break;
			}
	for (k = 0; k < p->nr; k++)
		if (!listed || !listed[k])
			ids[n++] = (ProtobufCBinaryData){ ZNS_UUID_LEN, p->ids[k] };
}

/*
 * The broker completes one request before it serves others. A small batch keeps running dumps from
 * waiting long. A dry run asks for all at once: no child goes before its parent.
 */
#define BATCH 256

static int remove_picked(struct rm *m, struct json_object *list, struct zns_err *err)
{
	struct ctl_pick *p = &m->p;
	cleanup_free ProtobufCBinaryData *ids = calloc(p->nr + 1, sizeof(*ids));
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Rm rm = ZNS_PB__RM__INIT;
	ZnsPb__Response *r;
	size_t i, k;
	int ret = 0;

	if (!ids)
		return zns_fail_sys(err, -ENOMEM, "list of checkpoints");
	in_order(p, ids);
	rm.by = m->secure ? "znsctl rm --secure" : "znsctl rm";
	rm.has_secure = rm.secure = m->secure;
	if (m->dry_run)
		req.rm_check = &rm;
	else
		req.rm = &rm;
	for (i = 0; i < p->nr && !ret; i += rm.n_checkpoints) {
		rm.checkpoints = ids + i;
		rm.n_checkpoints = m->dry_run ? p->nr : zns_min(p->nr - i, (size_t)BATCH);
		ret = zns_broker_call(&p->broker, &req, &r, err);
		if (ret)
			break;
		for (k = 0; k < r->n_removed; k++)
			json_object_array_add(list, line_json(r->removed[k]->id.data,
							      r->removed[k]->container));
		zns_pb__response__free_unpacked(r, NULL);
	}
	return ret && i && !m->dry_run ? zns_wrap(err, "%zu of %zu are removed", i, p->nr) : ret;
}

/* Who types --all on a terminal is asked; a script knows what it does. */
static bool agreed(const struct rm *m)
{
	char answer[16];

	if (m->yes || m->dry_run || !m->p.all || !m->p.nr || !isatty(STDIN_FILENO) ||
	    !isatty(STDERR_FILENO))
		return true;
	fprintf(stderr, "Remove %zu checkpoints, all that %s has%s? [y/N] ", m->p.nr,
		ctl_text(m->p.reg.path),
		m->pinned || m->needed ? " but pinned ones and their parents" : "");
	return fgets(answer, sizeof(answer), stdin) && (*answer == 'y' || *answer == 'Y');
}

static int cmd_rm(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	struct rm m = { .pinned = 0 };
	struct json_object *list;
	int ret;
	const struct ctl_opt opts[] = { CTL_PICKS(&m.p),
					CTL_FLAG("dry-run", &m.dry_run),
					CTL_FLAG("secure", &m.secure),
					CTL_FLAG("yes", &m.yes),
					CTL_DEV,
					CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	ret = ctl_pick_open(cmd, &args, &m.p, INT_MAX);
	if (ret) {
		ctl_pick_end(&m.p);
		return ret;
	}
	choose(&m);
	if (!agreed(&m)) {
		ctl_pick_end(&m.p);
		fprintf(stderr, "znsctl rm: nothing was removed\n");
		return CTL_FAILED;
	}
	list = json_object_new_array();
	ret = remove_picked(&m, list, &err);
	ctl_pick_end(&m.p);
	if (ret) {
		json_object_put(list);
		return ctl_fail(cmd, &err);
	}
	return print(&args, &m, list);
}

const struct ctl_cmd command_rm = {
	"rm",
	"[DEV] ID...|DIRECTORY|CONTAINER|--container NAME|--pattern GLOB|--all",
	"remove checkpoints; removing one twice, by its whole id, is no error",
	CTL_PICK_HELP
	"  --secure        also erase every copy of their keys on the device; for encrypted checkpoints only\n"
	"  --yes           do not ask, which --all does on a terminal\n"
	"  --dry-run       only say what would be removed\n" CTL_DEV_HELP,
	cmd_rm,
};
