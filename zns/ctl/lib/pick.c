/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Selects the checkpoints that a command's arguments name. ls, show, verify and rm share this, so
 * they accept the same arguments.
 */
#include <fnmatch.h>
#include <string.h>
#include "ctl.h"
#include "zns/handle.h"

bool ctl_is_of(const ZnsPb__Checkpoint *c, const char *name)
{
	const ZnsPb__Origin *o = c->origin;

	return !strcmp(name, c->container) ||
	       (o && o->container_name && !strcmp(name, o->container_name)) ||
	       (o && o->container_id && strlen(name) >= CTL_ENGINE_ID_MIN &&
		!strncmp(name, o->container_id, strlen(name)));
}

/*
 * Finds the device. A directory with a handle names it, unless the user gives --dev. An argument
 * that is no such directory may be a container's name.
 */
static int device_of(struct ctl_args *args, struct ctl_pick *p, struct zns_err *err)
{
	int ret;

	p->handle = calloc(args->argc + 1, sizeof(*p->handle));
	if (!p->handle)
		return zns_fail(err, -ENOMEM, "no memory for a list of handles");
	for (int i = 0; i < args->argc; i++) {
		if (!ctl_is_dir(args->argv[i]))
			continue;
		ret = ctl_handle_read(args->argv[i], NULL, &p->handle[i], err);
		if (ret && strchr(args->argv[i], '/'))
			return ret;
		if (ret && !p->not_dir.code)
			p->not_dir = *err;
		if (ret)
			continue;
		if (!args->dev)
			args->dev = zns_uuid_format(p->handle[i]->device.data, p->dev);
	}
	return 0;
}

static int pick_args(const struct ctl_cmd *cmd, struct ctl_args *args, struct ctl_pick *p, int most)
{
	struct zns_err err = ZNS_ERR_INIT;

	ctl_take_dev(args);
	if (args->argc > most || !!args->argc + !!p->container + !!p->pattern + p->all != 1)
		return ctl_usage(
			cmd,
			"%s, a directory with a handle, a container, --container NAME, --pattern GLOB or --all: one of them",
			most > 1 ? "ids" : "an id");
	p->argc = args->argc;
	p->argv = args->argv;
	return device_of(args, p, &err) ? ctl_fail(cmd, &err) : 0;
}

static void add(struct ctl_pick *p, const uint8_t *id)
{
	for (size_t i = 0; i < p->nr; i++)
		if (!memcmp(p->ids[i], id, ZNS_UUID_LEN))
			return;
	memcpy(p->ids[p->nr++], id, ZNS_UUID_LEN);
}

const ZnsPb__Checkpoint *ctl_listed(const ZnsPb__Response *ls, const uint8_t *id)
{
	for (size_t i = 0; i < ls->n_checkpoints; i++)
		if (ls->checkpoints[i]->id.len == ZNS_UUID_LEN &&
		    !memcmp(ls->checkpoints[i]->id.data, id, ZNS_UUID_LEN))
			return ls->checkpoints[i];
	return NULL;
}

static int by_handle(const ZnsPb__Response *ls, const char *dir, const ZnsPb__Handle *h,
		     struct ctl_pick *p, struct zns_err *err)
{
	const ZnsPb__Checkpoint *c = ctl_listed(ls, h->checkpoint.data);
	char id[ZNS_UUID_STR];

	if (!zns_is_store(h->device.data, &p->reg))
		return zns_fail(err, -EXDEV, "%s: its handle is of another device, %s", dir,
				zns_uuid_format(h->device.data, id));
	/*
	 * Users can write handles: a forged handle may have the id of another user's checkpoint. It
	 * is refused if it does not agree with that checkpoint's record.
	 */
	if (c && zns_handle_agrees(h, c, err))
		return zns_wrap(err, "%s", dir);
	add(p, h->checkpoint.data);
	return 0;
}

/* Selects by an id, the beginning of an id, or a container's name. */
static int by_name(const ZnsPb__Response *ls, const char *what, struct ctl_pick *p,
		   struct zns_err *err)
{
	const ZnsPb__Checkpoint *c;
	uint8_t uuid[ZNS_UUID_LEN];
	char id[ZNS_UUID_STR];
	size_t of = 0;
	int ret;

	/* keep a complete id that is not listed: the broker knows when and why it was removed */
	if (!zns_uuid_parse(what, uuid)) {
		add(p, uuid);
		p->by_id = true;
		return 0;
	}
	for (size_t i = 0; i < ls->n_checkpoints; i++)
		of += ls->checkpoints[i]->id.len == ZNS_UUID_LEN &&
		      ctl_is_of(ls->checkpoints[i], what);
	ret = zns_find_checkpoint(ls, what, &c, err);
	if (of && !ret)
		return zns_fail(
			err, -ENOTUNIQ,
			"%s is a container, and checkpoint %s begins with it: give --container %s, or more "
			"of the id",
			what, zns_uuid_format(c->id.data, id), what);
	for (size_t i = 0; of && i < ls->n_checkpoints; i++)
		if (ls->checkpoints[i]->id.len == ZNS_UUID_LEN &&
		    ctl_is_of(ls->checkpoints[i], what))
			add(p, ls->checkpoints[i]->id.data);
	if (of) {
		err->code = 0;
		return 0;
	}
	if (!ret) {
		add(p, c->id.data);
		p->by_id = true;
	} else if (ret == -ENOENT && p->not_dir.code && ctl_is_dir(what)) {
		*err = p->not_dir;
		ret = err->code;
	} else if (ret == -ENOENT && !strstr(err->msg, "too short")) {
		ret = zns_fail(err, ret,
			       "there is no checkpoint and no container %s: `znsctl ls` lists both",
			       what);
	}
	return ret;
}

static int pick(struct ctl_pick *p, struct zns_err *err)
{
	const ZnsPb__Response *ls = p->ls;
	int ret = 0;

	p->ids = calloc(ls->n_checkpoints + p->argc + 1, ZNS_UUID_LEN);
	if (!p->ids)
		return zns_fail(err, -ENOMEM, "no memory for a list of checkpoints");
	for (int a = 0; a < p->argc && !ret; a++) {
		if (!p->handle[a]) {
			ret = by_name(ls, p->argv[a], p, err);
			continue;
		}
		p->by_id = true;
		ret = by_handle(ls, p->argv[a], p->handle[a], p, err);
	}
	for (size_t i = 0; i < ls->n_checkpoints && !ret; i++) {
		const ZnsPb__Checkpoint *c = ls->checkpoints[i];

		if (c->id.len == ZNS_UUID_LEN &&
		    (p->all || (p->container && ctl_is_of(c, p->container)) ||
		     (p->pattern && !fnmatch(p->pattern, c->container, 0))))
			/* without arguments nothing can be selected twice */
			memcpy(p->ids[p->nr++], c->id.data, ZNS_UUID_LEN);
	}
	if (!ret && p->container && !p->nr)
		ret = zns_fail(err, -ENOENT,
			       "container %s has no checkpoint: `znsctl ls` lists them all",
			       p->container);
	return ret;
}

/*
 * Are all arguments complete ids, so that no list is needed? For several ids it is needed: the
 * order of the list tells which must be removed first.
 */
static bool only_ids(const struct ctl_pick *p)
{
	uint8_t uuid[ZNS_UUID_LEN];

	for (int a = 0; a < p->argc; a++)
		if (p->handle[a] || zns_uuid_parse(p->argv[a], uuid))
			return false;
	return p->argc > 0 && p->argc <= CTL_RM_BATCH;
}

static int list_checkpoints(struct ctl_pick *p, struct zns_err *err)
{
	if (!p->ids_suffice || !only_ids(p))
		return ctl_ls(&p->broker, &p->ls, err);
	p->ls = malloc(sizeof(*p->ls));
	if (!p->ls)
		return zns_fail(err, -ENOMEM, "no memory for a list of checkpoints");
	zns_pb__response__init(p->ls);
	return 0;
}

int ctl_pick_open(const struct ctl_cmd *cmd, struct ctl_args *args, struct ctl_pick *p, int most)
{
	struct zns_err err = ZNS_ERR_INIT;
	int ret;

	p->broker.fd = -1;
	ret = pick_args(cmd, args, p, most);
	if (ret)
		return ret;
	ret = ctl_connect(args->dev, &p->reg, &p->broker, &err);
	if (!ret)
		ret = list_checkpoints(p, &err);
	if (!ret)
		ret = pick(p, &err);
	return ret ? ctl_fail(cmd, &err) : 0;
}

void ctl_pick_end(struct ctl_pick *p)
{
	for (int i = 0; p->handle && i < p->argc; i++)
		if (p->handle[i])
			zns_pb__handle__free_unpacked(p->handle[i], NULL);
	if (p->ls)
		zns_pb__response__free_unpacked(p->ls, NULL);
	zns_broker_close(&p->broker);
	free(p->handle);
	free(p->ids);
	p->ls = NULL;
	p->handle = NULL;
	p->ids = NULL;
}
