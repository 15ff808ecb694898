/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * --zns-cgroup: which cgroup is charged for the I/O of a dump or restore. The helper does all of
 * this I/O, except for the broker's record.
 */
#include <string.h>
#include "../helper.h"

int charge_begin(struct helper *h, const struct packet *p, bool live, struct zns_err *err)
{
	const struct zw_begin *b = packet_begin(p);
	bool own = !strcmp(b->cgroup, "own"), container = !strcmp(b->cgroup, "container");
	int ret = 0;

	if (b->cgroup[0] && !own && !container && strcmp(b->cgroup, "leave"))
		return zns_fail(err, -EINVAL,
				"--zns-cgroup %s is not known: leave, own or container", b->cgroup);
	if (container && p->h.op == ZW_RESTORE_BEGIN)
		/*
		 * the helper runs in criu's cgroup, which may be the container's if a runtime moved
		 * criu there
		 */
		return 0;
	if (container && !b->pid)
		return zns_fail(err, -EINVAL,
				"--zns-cgroup container: the container is on another machine");
	if (container && live)
		return zns_fail(
			err, -EINVAL,
			"--zns-cgroup container does not go with --zns-live, which writes before the container is frozen: "
			"give own or leave");
	if (own || container)
		ret = zns_cgroup_io_find(&h->charged, own ? 0 : b->pid, err);
	if (!ret && own)
		ret = zns_cgroup_io_enter(&h->charged, err);
	h->charge_later = container;
	return ret ? zns_wrap(err, own ? "--zns-cgroup own" : "--zns-cgroup container") : 0;
}

int charge_container(struct helper *h, struct zns_err *err)
{
	if (!h->charge_later)
		return 0;
	h->charge_later = false;
	return zns_cgroup_io_enter(&h->charged, err) ? zns_wrap(err, "--zns-cgroup container") : 0;
}

void charge_end(struct helper *h)
{
	h->charge_later = false;
	zns_cgroup_io_leave(&h->charged);
}
