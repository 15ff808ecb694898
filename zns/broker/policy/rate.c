/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Limits of rates. The helper enforces its limit itself (--zns-qos-max). The grant, and each answer
 * to a progress report, several times a second, tell it the limit. So the limit can change while it
 * works, and no data pass through the broker. On a drive where all zones share all dies (one
 * domain), tenants can only be separated by rates. There the broker compares its promises with the
 * drive's rate, and tells each client its limit.
 */
#include "policy.h"

#define RATE_NS 500000000ull /* the present rate is averaged over at least this time */

int rate_check_cap(const ZnsPb__DumpBegin *q, struct zns_err *err)
{
	if (q->qos_max_mibps && q->qos_max_mibps < q->qos_mibps)
		return zns_fail(
			err, -EINVAL,
			"a QoS of %u MiB/s cannot be kept with a cap of %u MiB/s: lower --zns-qos or "
			"raise --zns-qos-max",
			q->qos_mibps, q->qos_max_mibps);
	return 0;
}

int rate_admit(const struct znsd *d, uint32_t qos_mibps, uint32_t *promise, char *why, size_t len)
{
	uint32_t promised = promises_rate(d),
		 left = d->zone_mibps - zns_min(d->zone_mibps, promised);

	*promise = zns_min(qos_mibps, left);
	if (*promise == qos_mibps)
		return 0;
	snprintf(
		why, len,
		on_disk(d) ?
			"the disk writes %u MiB/s, of which %u are promised: about %u MiB/s of %u" :
			"all zones share one domain of %u MiB/s, of which %u are promised: about %u MiB/s of %u",
		d->zone_mibps, promised, left, qos_mibps);
	return -EBUSY;
}

/* The smaller of two limits, where 0 means no limit. */
static uint32_t least_of(uint32_t a, uint32_t b)
{
	return a && b ? zns_min(a, b) : a + b;
}

/* The smaller of the lease's own limit and the administrator's limit; 0: there is neither. */
static uint32_t cap_of(const struct lease *l)
{
	if (!lease_admitted(l))
		return 0;
	return least_of(l->dump.cap_mibps, l->dump.max_rate_mibps);
}

/* Divides the rate that is not promised equally among all leases. What a lease cannot use because
 * of its limit goes to the others. */
static uint32_t spare_share(const struct znsd *d, uint32_t spare)
{
	uint32_t share = 0, before, n;
	uint64_t left;

	do {
		const struct lease *l;

		before = share;
		left = spare;
		n = 0;
		for (l = d->leases; l; l = l->next) {
			uint32_t cap = cap_of(l),
				 room = cap ? cap - zns_min(cap, promise_rate(l)) : UINT32_MAX;

			if (lease_background(l) || l->kind == LEASE_YIELDING)
				/* such leases pause completely while others work, so they get no
				 * share of the rate */
				continue;
			if (room <= before)
				left -= zns_min(left, (uint64_t)room);
			else
				n++;
		}
		share = n ? (uint32_t)(left / n) : spare;
	} while (share > before && n);
	return share;
}

/*
 * Returns the limit of a lease. Without a promise, a restore gets its share of the drive's time,
 * converted to the rate of reads. No lease is stopped completely: each may always use half a per
 * cent of the drive, which is less than the inaccuracy of a promise.
 */
uint32_t rate_limit(struct znsd *d, const struct lease *l)
{
	uint32_t promised = promises_rate(d), cap = cap_of(l), rate,
		 least = zns_max(1u, d->zone_mibps / 200);
	uint32_t ceiling = ceiling_limit(d, l), share = weight_limit(d, l);

	/* if other restores have promises there, this one is limited to its own promise */
	if (l->read_mibps)
		return least_of(cap, promises_meet(d, l) ? l->read_mibps : 0);
	if (ceiling)
		return least_of(least_of(ceiling, share), cap);
	if (share)
		return least_of(share + promise_rate(l), cap);
	if (!rate_one_domain(d) || !promised || (d->leases == l && !l->next))
		return cap;
	rate = spare_share(d, d->zone_mibps - zns_min(d->zone_mibps, promised));
	rate = zns_max(promise_rate(l) + rate, least);
	if (!lease_writes(l))
		rate = (uint32_t)((uint64_t)rate *
				  zns_max(1u, zns_store_profile(d->store)->zone_read_mibps) /
				  d->zone_mibps);
	rate = zns_max(rate, 1u);
	return least_of(rate, cap);
}

void rate_note(struct znsd *d, struct lease *l, uint64_t bytes, uint64_t total)
{
	uint64_t now = zns_mono_ns();

	history_moved(d, l, bytes);
	if (!l->seen_ns) {
		l->seen_ns = now;
	} else if (now - l->seen_ns >= RATE_NS) {
		l->mibps = bytes > l->seen_bytes ?
				   (double)(bytes - l->seen_bytes) / (double)MIB(1) /
					   ((double)(now - l->seen_ns) / 1e9) :
				   0;
		l->seen_ns = now;
		l->seen_bytes = bytes;
	}
	l->bytes = bytes;
	l->total = total;
}
