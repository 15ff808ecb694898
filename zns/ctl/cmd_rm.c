/* SPDX-License-Identifier: GPL-2.0-only */
/* rm: removes checkpoints by id, by container, or all of them */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "lib/ctl.h"

struct listed {
	const uint8_t *id;
	size_t at; /* index in the list of checkpoints */
};

struct rm {
	struct ctl_pick p;
	struct listed *by_id; /* all listed checkpoints, sorted by id */
	size_t nr_listed;
	/* by index in the list; goes: it is to be removed; needed: a child needs it */
	bool *goes, *needed;
	ProtobufCBinaryData *ids; /* the ids that are sent to the broker */
	size_t nr;
	/* number of checkpoints skipped because they are pinned and were not named by id */
	size_t pinned;
	size_t parents; /* number of checkpoints skipped because a child that stays needs them */
	bool dry_run, secure, yes;
};

static int cmp_id(const void *a, const void *b)
{
	return memcmp(((const struct listed *)a)->id, ((const struct listed *)b)->id, ZNS_UUID_LEN);
}

static bool *mark_of(const struct rm *m, bool *marks, const uint8_t *id)
{
	const struct listed key = { .id = id },
			    *l = bsearch(&key, m->by_id, m->nr_listed, sizeof(key), cmp_id);

	return l ? &marks[l->at] : NULL;
}

static void index_listed(struct rm *m)
{
	const ZnsPb__Response *ls = m->p.ls;

	for (size_t i = 0; i < ls->n_checkpoints; i++)
		if (ls->checkpoints[i]->id.len == ZNS_UUID_LEN)
			m->by_id[m->nr_listed++] = (struct listed){ ls->checkpoints[i]->id.data,
								    i };
	qsort(m->by_id, m->nr_listed, sizeof(*m->by_id), cmp_id);
}

static void stay(struct rm *m, size_t i)
{
	const ZnsPb__Checkpoint *c = m->p.ls->checkpoints[i];
	bool *parent = NULL;

	m->goes[i] = false;
	if (c->has_parent && c->parent.len == ZNS_UUID_LEN)
		parent = mark_of(m, m->needed, c->parent.data);
	if (parent)
		*parent = true;
}

/*
 * Skips pinned checkpoints, and parents of checkpoints that stay. One pass from the newest to the
 * oldest checkpoint finds them all.
 */
static void keep_some(struct rm *m)
{
	const ZnsPb__Response *ls = m->p.ls;

	for (size_t i = 0; i < ls->n_checkpoints; i++) {
		bool pinned = m->goes[i] && ctl_pinned(ls, ls->checkpoints[i]);

		m->pinned += pinned;
		if (pinned || !m->goes[i])
			stay(m, i);
	}
	for (size_t i = ls->n_checkpoints; i-- > 0;) {
		if (!m->goes[i] || !m->needed[i])
			continue;
		stay(m, i);
		m->parents++;
	}
}

/*
 * Chooses the ids to send. Newest first, so that children are removed before their parents; ids
 * without a checkpoint come last. An id names exactly one checkpoint, so it is an error if that
 * checkpoint cannot be removed.
 */
static int choose(struct rm *m, struct zns_err *err)
{
	const struct ctl_pick *p = &m->p;
	size_t n = p->ls->n_checkpoints, unlisted = 0;

	m->by_id = calloc(n + 1, sizeof(*m->by_id));
	m->goes = calloc(n + 1, sizeof(*m->goes));
	m->needed = calloc(n + 1, sizeof(*m->needed));
	m->ids = calloc(p->nr + 1, sizeof(*m->ids));
	if (!m->by_id || !m->goes || !m->needed || !m->ids)
		return zns_fail(err, -ENOMEM, "no memory for a list of checkpoints");
	index_listed(m);
	for (size_t k = 0; k < p->nr; k++) {
		bool *goes = mark_of(m, m->goes, p->ids[k]);

		if (goes)
			*goes = true;
		else
			memmove(p->ids[unlisted++], p->ids[k], ZNS_UUID_LEN);
	}
	if (!p->by_id)
		keep_some(m);
	for (size_t i = n; i-- > 0;)
		if (m->goes[i])
			m->ids[m->nr++] = p->ls->checkpoints[i]->id;
	for (size_t k = 0; k < unlisted; k++)
		m->ids[m->nr++] = (ProtobufCBinaryData){ ZNS_UUID_LEN, p->ids[k] };
	return 0;
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
					      J("parents", p->parents), J("dry_run", p->dry_run)));
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
	if (p->parents)
		printf("%zu parents of what stays, kept\n", p->parents);
	json_object_put(list);
	return CTL_OK;
}

/*
 * The broker completes one request before it serves others, so small batches keep running dumps
 * from waiting long. A dry run sends all ids at once: it removes no children, so a later request
 * would find that their parents are still needed.
 */

static int remove_picked(struct rm *m, struct json_object *list, struct zns_err *err)
{
	struct ctl_pick *p = &m->p;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Rm rm = ZNS_PB__RM__INIT;
	ZnsPb__Response *r;
	size_t i, k;
	int ret = 0;

	rm.by = m->secure ? "znsctl rm --secure" : "znsctl rm";
	rm.has_secure = rm.secure = m->secure;
	if (m->dry_run)
		req.rm_check = &rm;
	else
		req.rm = &rm;
	for (i = 0; i < m->nr && !ret; i += rm.n_checkpoints) {
		rm.checkpoints = m->ids + i;
		rm.n_checkpoints = m->dry_run ? m->nr : zns_min(m->nr - i, (size_t)CTL_RM_BATCH);
		ret = zns_broker_call(&p->broker, &req, &r, err);
		if (ret)
			break;
		for (k = 0; k < r->n_removed; k++)
			json_object_array_add(list, line_json(r->removed[k]->id.data,
							      r->removed[k]->container));
		zns_pb__response__free_unpacked(r, NULL);
	}
	return ret && i && !m->dry_run ? zns_wrap(err, "%zu of %zu are removed", i, m->nr) : ret;
}

/* Asks before --all removes, if the user sits at a terminal. A script is not asked. */
static bool agreed(const struct rm *m)
{
	char answer[16];

	if (m->yes || m->dry_run || !m->p.all || !m->nr || !isatty(STDIN_FILENO) ||
	    !isatty(STDERR_FILENO))
		return true;
	fprintf(stderr, "Remove %zu checkpoints, all that %s has%s? [y/N] ", m->nr,
		ctl_text(m->p.reg.path),
		m->pinned || m->parents ? " but pinned ones and their parents" : "");
	return fgets(answer, sizeof(answer), stdin) && (*answer == 'y' || *answer == 'Y');
}

static void rm_end(struct rm *m)
{
	ctl_pick_end(&m->p);
	free(m->by_id);
	free(m->goes);
	free(m->needed);
	free(m->ids);
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
	m.p.ids_suffice = true;
	ret = ctl_pick_open(cmd, &args, &m.p, INT_MAX);
	if (!ret && choose(&m, &err))
		ret = ctl_fail(cmd, &err);
	if (!ret && !agreed(&m)) {
		fprintf(stderr, "znsctl rm: nothing was removed\n");
		ret = CTL_FAILED;
	}
	list = json_object_new_array();
	if (!ret && remove_picked(&m, list, &err))
		ret = ctl_fail(cmd, &err);
	rm_end(&m);
	if (!ret)
		return print(&args, &m, list);
	json_object_put(list);
	return ret;
}

const struct ctl_cmd command_rm = {
	"rm",
	"[DEV] ID...|DIRECTORY|CONTAINER|--container NAME|--pattern GLOB|--all",
	"remove checkpoints; to remove a whole id twice is no error",
	CTL_PICK_HELP "  --secure        also erase every copy of their keys on the device; for\n"
		      "                  encrypted checkpoints only\n"
		      "  --yes           do not ask, which --all does on a terminal\n"
		      "  --dry-run       only say what would be removed\n" CTL_DEV_HELP,
	cmd_rm,
};
