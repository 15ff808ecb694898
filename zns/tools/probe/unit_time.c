/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Measures reads of whole units: the time of one or two at once, and the read rate of a zone. */
#include <string.h>

#include "probe_priv.h"

int probe_race(struct probe *p, const struct zns_race *r, uint32_t nr, struct zns_err *err)
{
	if (probe_stopped(p))
		return zns_fail(err, -EINTR, "interrupted");
	for (uint32_t i = 0; i < nr; i++) {
		if (r[i].write)
			continue;
		p->map->reads += r[i].count;
		p->map->read_bytes += (uint64_t)r[i].count * r[i].len;
	}
	return zns_dev_race(p->d, r, nr, err);
}

int probe_read_units(struct probe *p, uint32_t a, uint32_t b, uint64_t *ns, struct zns_err *err)
{
	uint64_t done[2] = { 0, 0 };
	struct zns_race r[2] = {
		{ .zone = a,
		  .len = p->readable[a],
		  .count = 1,
		  .buf = p->rbuf,
		  .done_ns = &done[0] },
	};
	int ret;

	if (b != ZNS_PROBE_NONE)
		r[1] = (struct zns_race){ .zone = b,
					  .len = p->readable[b],
					  .count = 1,
					  .buf = p->rbuf + p->unit,
					  .done_ns = &done[1] };
	ret = probe_race(p, r, b == ZNS_PROBE_NONE ? 1 : 2, err);
	*ns = zns_max(done[0], done[1]);
	return ret;
}

/* Four clients read at once, each a quarter of the zone. */
int probe_read_rate(struct probe *p, uint32_t zone, uint32_t units, double *mibps,
		    struct zns_err *err)
{
	uint32_t clients = zns_min(units, 4u), each = units / clients;
	cleanup_free uint64_t *done = calloc(units, sizeof(*done));
	struct zns_race r[4] = { 0 };
	uint64_t end = 1;
	int ret;

	if (!done)
		return zns_fail(err, -ENOMEM, "no memory for %u reads", units);
	for (uint32_t i = 0; i < clients; i++)
		r[i] = (struct zns_race){ .zone = zone,
					  .off = (uint64_t)i * each * p->unit,
					  .len = p->unit,
					  .count = each,
					  .buf = p->rbuf + (size_t)i * p->unit,
					  .done_ns = done + i * each };
	ret = probe_race(p, r, clients, err);
	for (uint32_t i = 0; i < clients * each; i++)
		end = zns_max(end, done[i]);
	*mibps = (double)clients * each * p->unit / MIB(1) / (end / 1e9);
	return ret;
}
