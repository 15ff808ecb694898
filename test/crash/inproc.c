/* SPDX-License-Identifier: GPL-2.0-only */
/* What the broker's code calls in place of the poll loop: see inproc.h. */
#include <stdlib.h>
#include <string.h>
#include "inproc.h"

void conn_answer(struct znsd *d, struct conn *c, struct reply *rep, int code)
{
	reply_free(rep); /* a waiter's answer; this load never waits */
}

struct holder conn_holder(struct conn *c)
{
	return (struct holder){ .conn = c, .pid = (uint32_t)getpid() };
}

bool conn_ours(const struct conn *c)
{
	return true;
}

void conn_set_waiter(struct conn *c, struct waiter *w)
{
	c->waiter = w;
}

int broker_open(struct zns_dev *dev, struct znsd *d, struct zns_err *err)
{
	int ret;

	memset(d, 0, sizeof(*d));
	d->dev = dev;
	strcpy(d->reg.path, dev->path);
	d->readers_fd = -1;
	d->server = znsd_alloc(sizeof(*d->server));
	policy_init(d);
	ret = zns_store_open(dev, 0, &d->store, err);
	if (ret)
		return ret;
	memcpy(d->reg.uuid, zns_store_uuid(d->store), ZNS_UUID_LEN);
	ret = tables_init(d, err);
	d->readers_clear = d->sweep = d->park_check = true;
	for (size_t i = 0; !ret && i < zns_store_nr_reservations(d->store);) {
		size_t n = zns_store_nr_reservations(d->store);
		char *name = strdup(zns_store_reservation(d->store, i)->container);

		reservation_settle(d, name);
		free(name);
		i += zns_store_nr_reservations(d->store) == n;
	}
	return ret;
}

void broker_close(struct znsd *d)
{
	leases_forget(d);
	tables_fini(d);
	policy_fini(d);
	free(d->server);
	if (d->store)
		zns_store_close(d->store);
	d->store = NULL;
}

void broker_idle(struct znsd *d)
{
	/* No time passes between two finishes, so none is put off until later. */
	for (int i = 0; i < 1000; i++) {
		int ms;

		d->policy->finish_ns = 0;
		ms = reclaim_step(d);
		if (ms < 0 || ms >= 100)
			break;
	}
}

void conn_committed(struct conn *c, const char *container)
{
	/* Rules are applied when a connection ends; the load has none. */
}

bool conn_left(const struct conn *c)
{
	return false; /* in this build no client disconnects while its request is served */
}
