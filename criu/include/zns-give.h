/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Included by uffd.c: collects, for zns_extend_give(), the pages that the lazy-pages daemon has not
 * filled yet. It is called when no request is under way, and the daemon's lists have followed every
 * event that it has read.
 */
#include "zns-extend.h"

static int zns_give_one(struct lazy_pages_info *lpi)
{
	struct lazy_iov *iov;
	struct zns_lack *v;
	unsigned long nr = 0;
	int ret;

	list_for_each_entry(iov, &lpi->iovs, l)
		nr++;
	v = xmalloc((nr + 1) * sizeof(*v));
	if (!v)
		return -1;
	nr = 0;
	list_for_each_entry(iov, &lpi->iovs, l)
		if (iov->end > iov->start)
			v[nr++] = (struct zns_lack){ iov->start, iov->img_start,
						     iov->end - iov->start };
	ret = zns_extend_give(lpi->pid, lpi->lpfd.fd, &lpi->pr, v, nr);
	xfree(v);
	return ret;
}

/*
 * The daemon releases processes that wait for no more pages, except those that the pager will take.
 */
static int zns_hold_all(void)
{
	struct lazy_pages_info *lpi;

	list_for_each_entry(lpi, &lpis, l) {
		struct lazy_iov *none = list_empty(&lpi->iovs) ? xzalloc(sizeof(*none)) : NULL;

		if (none)
			list_add(&none->l, &lpi->iovs);
		else if (list_empty(&lpi->iovs))
			return -1;
	}
	return 0;
}

/*
 * @now: true if it is possible at once, else later. Afterwards the daemon has nothing left to do.
 */
static int zns_give_all(bool now)
{
	struct lazy_pages_info *lpi;

	if (!now)
		return zns_hold_all();
	list_for_each_entry(lpi, &lpis, l)
		if (!lpi->exited && (lpi->parent || zns_give_one(lpi)))
			return -1;
	/* What we read from now on, the pager would not hear of: a fault would get zeroes of us. */
	list_for_each_entry(lpi, &lpis, l)
		if (!lpi->exited && epoll_del_rfd(epollfd, &lpi->lpfd))
			return -1;
	if (zns_extend_given())
		return -1;
	zns_holder_given();
	list_for_each_entry(lpi, &lpis, l)
		free_iovs(lpi);
	return 0;
}
