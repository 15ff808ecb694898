/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Promises to restores (Documentation/inside/sharing.md). A restore reads from the groups where its
 * checkpoint's bytes are. To promise it a rate, the broker keeps a part of the time of each of
 * these groups free: it limits the rates of all other leases there accordingly (weights.c). On a
 * drive where all zones share all dies (one domain), a restore, like a dump, is promised a part of
 * the drive's rate.
 */
#include <string.h>
#include "policy.h"

/*
 * the largest part of a group's time that is promised, since a drive that is always busy has long
 * queues
 */
#define MOST 0.95

uint32_t promise_rate(const struct lease *l)
{
	return lease_admitted(l) ? l->dump.promised_mibps : 0;
}

uint32_t promises_rate(const struct znsd *d)
{
	const struct lease *l;
	uint32_t sum = 0;

	for (l = d->leases; l; l = l->next)
		sum += promise_rate(l);
	return sum;
}

void promises_take(const struct znsd *d, double *room)
{
	const struct lease *l;
	uint32_t i;

	if (rate_one_domain(d))
		room[0] -= (double)promises_rate(d) / d->zone_mibps;
	for (l = d->leases; l; l = l->next) {
		for (i = 0; lease_promised(l) && i < l->nr_groups; i++)
			room[l->groups[i]] -= (double)l->dump.qos_mibps / l->nr_groups /
					      d->groups[l->groups[i]].mibps;
		for (i = 0; l->read_mibps && i < l->weigh.nr_parts; i++)
			room[l->weigh.part[i].group] -= l->read_mibps * l->weigh.part[i].part /
							group_read_mibps(d, l->weigh.part[i].group);
	}
}

bool promise_on(const struct znsd *d, uint32_t group)
{
	for (const struct lease *l = d->leases; l; l = l->next)
		for (uint32_t i = 0; l->read_mibps && i < l->weigh.nr_parts; i++)
			if (l->weigh.part[i].group == group)
				return true;
	return false;
}

bool promises_meet(const struct znsd *d, const struct lease *l)
{
	for (const struct lease *o = d->leases; o; o = o->next)
		if (o != l && (o->read_mibps || lease_promised(o) ||
			       (lease_admitted(o) && o->dump.promised_mibps)))
			return true;
	return false;
}

/*
 * The rate at which @l can read if its groups have the part @room of their time for it. *tight: the
 * group that limits the rate.
 */
static uint32_t rate_with(const struct znsd *d, const struct lease *l, const double *room,
			  uint32_t *tight)
{
	double least = UINT32_MAX;

	for (uint32_t i = 0; i < l->weigh.nr_parts; i++) {
		const struct lease_part *p = &l->weigh.part[i];
		double rate = zns_max(room[p->group], 0.0) * group_read_mibps(d, p->group) /
			      p->part;

		if (rate < least) {
			least = rate;
			*tight = p->group;
		}
	}
	return (uint32_t)(least + 1e-6);
}

/*
 * Lowers *qos to the limit of the container's tenant, and says so in @note. A restore is not
 * refused because of its rate, since that would mean that the container does not come back. It is
 * only refused if it asks for that.
 */
static int keep_ceiling(const struct lease *l, bool share, uint32_t *qos, char *note, size_t len,
			struct zns_err *err)
{
	struct zns_err e = ZNS_ERR_INIT;
	struct zns_tenant t;
	int ret = zns_tenant_find(l->container, -1, &t, &e);

	if (ret && !share)
		return zns_fail(err, ret, "%s", e.msg);
	if (ret) {
		snprintf(note, len, "it is promised nothing: %.150s", e.msg);
		*qos = 0;
		return 0;
	}
	if (!t.max_qos_mibps || *qos <= t.max_qos_mibps)
		return 0;
	if (!share)
		return zns_fail(
			err, -EDQUOT,
			"QoS of %u MiB/s exceeds the ceiling of %u MiB/s that `%.100s` has (%s/tenants.conf:%u)",
			*qos, t.max_qos_mibps, t.who, zns_config_dir(), t.line);
	snprintf(note, len, "it is promised %u MiB/s of %u: the ceiling of `%.100s`",
		 t.max_qos_mibps, *qos, t.who);
	*qos = t.max_qos_mibps;
	return 0;
}

int promise_admit(struct znsd *d, struct lease *l, const ZnsPb__RestoreBegin *q, char *note,
		  size_t len, struct zns_err *err)
{
	cleanup_free double *room = znsd_alloc((d->nr_groups + 1) * sizeof(*room));
	bool share = !q->admission || !strcmp(q->admission, "share");
	uint32_t qos = q->qos_mibps, tight = 0, most, left, wanted;
	int ret;

	note[0] = 0;
	if (!share && strcmp(q->admission, "reject"))
		return zns_fail(err, -EINVAL, "admission \"%.40s\" of a restore is not known",
				q->admission);
	ret = qos ? keep_ceiling(l, share, &qos, note, len, err) : 0;
	if (ret || !qos || !l->weigh.nr_parts)
		return ret;
	for (uint32_t g = 0; g < d->nr_groups; g++)
		room[g] = MOST;
	most = rate_with(d, l, room, &tight);
	promises_take(d, room);
	left = rate_with(d, l, room, &tight);
	/* a checkpoint on few groups cannot be read faster, but it must still be restored */
	wanted = zns_min(qos, most);
	if (wanted > left && !share)
		return zns_fail(
			err, -EBUSY,
			"group %u, where this checkpoint lies, has promised its time to others: %u MiB/s of %u are left",
			tight, left, wanted);
	if (qos > left)
		snprintf(note, len, "it is promised %u MiB/s of %u: %s", left, qos,
			 left < wanted ? "others are promised the rest of where it lies" :
					 "where it lies reads no faster");
	l->read_mibps = zns_min(qos, left);
	return 0;
}
