/* SPDX-License-Identifier: GPL-2.0-only */
/* Resizes a store on a disk while dumps and restores run. Zones that will be cut off are no longer
 * granted; leases that have such zones keep them until they end. Then the store, its file and the
 * tables are changed in one step. */
#include "policy.h"

static void mark(struct znsd *d, uint32_t end)
{
	for (uint32_t i = 0; i < d->nr_zones; i++)
		d->zones[i].going = i >= end;
}

/* A lease that uses a zone from @first on; NULL: there is none. */
static const struct lease *user(const struct znsd *d, uint32_t first)
{
	for (const struct lease *l = d->leases; l; l = l->next)
		for (uint32_t i = 0; i < l->nr_zones; i++)
			if (l->zones[i].zone >= first)
				return l;
	return NULL;
}

static int refuse_user(const struct znsd *d, const struct lease *l, struct zns_err *err)
{
	if (l->kind == LEASE_YIELDING)
		return zns_fail(err, -EBUSY, "%s holds %s (%s): `%s` first", d->reg.path,
				l->yields.ops->what, l->container, l->yields.ops->command);
	return zns_fail(err, -EBUSY, "%s of %s (PID %u) %s behind the new end of %s",
			lease_background(l) || l->kind == LEASE_COMPACT ? "a move" :
			lease_writes(l)                                 ? "a dump" :
									  "a restore",
			l->container, l->pid, lease_writes(l) ? "writes" : "reads", d->reg.path);
}

/* Refuses a resize while there are memory contexts, since these keep a list of all zones, or while
 * leases use the zones that will be cut off. */
static int check_users(struct znsd *d, uint32_t nr, struct zns_err *err)
{
	const struct lease *l;

	for (l = d->leases; l; l = l->next)
		if (l->kind == LEASE_YIELDING)
			return refuse_user(d, l, err);
	l = user(d, nr);
	if (l)
		return refuse_user(d, l, err);
	readers_check(d);
	for (uint32_t i = nr; i < d->nr_zones; i++) {
		if (d->zones[i].finishing)
			return zns_fail(err, -EBUSY, "zone %u is being finished", i);
		if (d->zones[i].old && !d->readers_clear)
			return zns_fail(
				err, -EBUSY,
				"%s: a restore that an earlier broker let in may read behind the new end",
				d->reg.path);
	}
	return 0;
}

static int check_data(const struct znsd *d, uint32_t nr, struct zns_err *err)
{
	uint64_t live = 0;
	char text[32];

	for (uint32_t i = nr; i < d->nr_zones; i++)
		live += zone_live(d, i);
	return live ? zns_fail(err, -ENOTEMPTY, "%s: %s of checkpoints are behind the new end",
			       d->reg.path, zns_format_size(live, text, sizeof(text))) :
		      0;
}

static int change(struct znsd *d, uint32_t nr, struct zns_err *err)
{
	uint32_t had = d->nr_zones;
	int ret = zns_store_fit(d->store, nr, err);

	if (!ret)
		ret = zns_file_resize(d->dev, nr, err);
	/* an error after the size has changed is not returned */
	if (d->dev->geo.nr_zones == had)
		return ret;
	for (uint32_t i = nr; d->hot && i < had; i++)
		zns_hot_forget_zone(d->hot, i);
	ret = zns_store_follow(d->store, err);
	if (!ret)
		ret = tables_follow(d, err);
	if (ret) {
		znsd_warn("%s: leaving, the next broker goes on: %s", d->reg.path, err->msg);
		d->quit = true;
		return ret;
	}
	znsd_log("%s has %u zones now, %u before", d->reg.path, d->nr_zones, had);
	d->freed = d->sweep = true;
	return 0;
}

int resize_step(struct znsd *d, const struct conn *who, uint32_t nr, struct zns_err *err)
{
	int ret;

	if (!on_disk(d))
		return zns_fail(
			err, -EMEDIUMTYPE,
			"%s is no store on a disk (file:PATH): a drive has the size that it has",
			d->reg.path);
	if (nr <= d->dev->geo.log_zones)
		return zns_fail(err, -EINVAL, "%s cannot have %u zones", d->reg.path, nr);
	if (d->policy->resizer && d->policy->resizer != who)
		return zns_fail(err, -EBUSY, "%s is being resized by another command", d->reg.path);
	if (!zns_file_resizes_in_place(d->dev, nr))
		return zns_fail(
			err, -EXDEV,
			"%s: that size moves its zone tables, which is not possible while it is in use",
			d->reg.path);
	d->policy->resizer = who;
	mark(d, nr);
	ret = check_users(d, nr, err);
	if (!ret)
		ret = check_data(d, nr, err);
	if (!ret)
		ret = change(d, nr, err);
	if (!ret)
		resize_end(d, who);
	return ret;
}

void resize_end(struct znsd *d, const struct conn *who)
{
	if (!who || d->policy->resizer != who)
		return;
	d->policy->resizer = NULL;
	mark(d, UINT32_MAX);
	d->freed = true;
}
