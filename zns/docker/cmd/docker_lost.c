/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Checkpoints that Docker has lost: if Docker fails after the dump (for example because of a full
 * disk), it removes the directory, although the container has ended. The catalogue still has the
 * checkpoint. From it we make the parts of the directory that Docker needs.
 */
#include <string.h>
#include <sys/stat.h>
#include "docker_cmd.h"

static bool has(const struct docker_entry *list, size_t nr, const uint8_t *id)
{
	while (nr--)
		if (!memcmp(list[nr].id, id, ZNS_UUID_LEN))
			return true;
	return false;
}

/*
 * With @wanted: has the checkpoint this name? Without: did this checkpoint end the container, and
 * was the container not started since?
 */
static bool is_lost(const ZnsPb__Checkpoint *c, const struct docker_container *k,
		    const char *wanted)
{
	const ZnsPb__Origin *o = c->origin;
	char why[PATH_MAX], id[ZNS_UUID_STR];

	if (!o || !o->container_id || strcmp(o->container_id, k->id) || c->pages_only ||
	    c->pre_dump || c->id.len != ZNS_UUID_LEN)
		return false;
	if (!wanted)
		return o->ended && ctl_docker_life(c, why, sizeof(why)) == DOCKER_NEEDED;
	return !strcmp(wanted, zns_uuid_format(c->id.data, id)) ||
	       (o->checkpoint_name && !strcmp(wanted, o->checkpoint_name));
}

static int add(const ZnsPb__Checkpoint *c, const struct docker_container *k, const uint8_t *device,
	       struct docker_entry **list, size_t *nr)
{
	struct docker_entry *e = realloc(*list, (*nr + 1) * sizeof(*e));
	const char *name = c->origin->checkpoint_name;
	char id[ZNS_UUID_STR];

	if (!e)
		return -ENOMEM;
	*list = e;
	e += (*nr)++;
	memset(e, 0, sizeof(*e));
	/*
	 * without a name in its record, it was made elsewhere, or Docker's name for it is unknown
	 */
	if (name && docker_good_name(name))
		snprintf(e->name, sizeof(e->name), "%s", name);
	else
		snprintf(e->name, sizeof(e->name), "zns-%.8s", zns_uuid_format(c->id.data, id));
	snprintf(e->dir, sizeof(e->dir), "%.*s/containers/%s/checkpoints/%s", PATH_MAX / 2, k->root,
		 k->id, e->name);
	memcpy(e->id, c->id.data, ZNS_UUID_LEN);
	memcpy(e->device, device, ZNS_UUID_LEN);
	e->created_ns = c->created_ns;
	e->bytes = c->bytes;
	e->lost = true;
	return 0;
}

int docker_lost(const struct docker_container *k, const char *wanted, struct docker_entry **list,
		size_t *nr, struct zns_err *err)
{
	cleanup_free struct zns_registered *reg = NULL;
	size_t n = 0;
	int ret = zns_registered_list(&reg, &n, err);

	for (size_t i = 0; !ret && i < n; i++) {
		struct zns_err away = ZNS_ERR_INIT;
		cleanup_answer ZnsPb__Response *r = NULL;
		char dev[ZNS_UUID_STR];

		/* continue: another device may have the checkpoint */
		if (ctl_list(zns_uuid_format(reg[i].uuid, dev), &r, &away)) {
			fprintf(stderr, "znsctl docker recover: %s was not looked at: %s\n",
				reg[i].path, away.msg);
			continue;
		}
		for (size_t c = 0; !ret && c < r->n_checkpoints; c++)
			if (is_lost(r->checkpoints[c], k, wanted) &&
			    !has(*list, *nr, r->checkpoints[c]->id.data))
				ret = add(r->checkpoints[c], k, reg[i].uuid, list, nr);
		if (ret)
			zns_fail_sys(err, ret, "cannot make the list of checkpoints");
	}
	return ret;
}

int docker_put_back(const struct docker_entry *e, struct zns_err *err)
{
	char dev[ZNS_UUID_STR], id[ZNS_UUID_STR], parent[PATH_MAX];
	struct ctl_hold h;
	int ret = ctl_hold_open(&h, zns_uuid_format(e->device, dev), zns_uuid_format(e->id, id),
				err);

	if (ret)
		return ret;
	snprintf(parent, sizeof(parent), "%.*s", (int)(strrchr(e->dir, '/') - e->dir), e->dir);
	ret = mkdir(parent, 0700) && errno != EEXIST ?
		      zns_fail_sys(err, -errno, "cannot make %s", parent) :
		      docker_unpack(&h.s, h.c, h.m, e->dir, err);
	ctl_hold_close(&h);
	return ret;
}
