/* SPDX-License-Identifier: GPL-2.0-only */
/* What happens when leases end. */
#include <poll.h>
#include <string.h>
#include "policy.h"

/* for how long the process of a closed connection is expected to live at most */
#define WRITER_GONE_MS 3000

#define REAP_MS 50
#define YIELDING_MS 500 /* interval of the check whether a process still holds a yielding lease */

static void let_go(struct znsd *d, struct lease *l)
{
	struct zns_err err = ZNS_ERR_INIT;
	uint64_t end, turn;
	uint32_t i;

	for (i = 0; i < l->nr_zones; i++) {
		uint32_t zone = l->zones[i].zone;
		struct zn_zone *z = &d->zones[zone];

		if (!lease_writes(l)) {
			z->readers--;
			continue;
		}
		/* makes the token invalid, so that a late write to the zone fails */
		if (l->zones[i].turn)
			zns_dev_offer(d->dev, zone, &end, &turn, NULL);
		z->writer = NULL;
		z->ours = true;
		if (zones_refresh(d, zone, 1, &err))
			znsd_warn("zone %u: %s", zone, err.msg);
		zone_settle(d, zone);
	}
	if (lease_writes(l))
		ahead_let_go(d, l);
	d->sweep = true;
}

void lease_give_back(struct znsd *d, struct lease *l)
{
	let_go(d, l);
	l->nr_zones = 0;
	l->dump.claimed = ZNSD_NONE;
}

/* Counts a restore that has ended. A reader that never reported progress does not count as one. */
static void count_end(struct znsd *d, const struct lease *l)
{
	ZnsPb__LoadCounts *c = &d->history.all;

	if (l->kind == LEASE_DUMP || l->kind == LEASE_IMPORT)
		*(l->ended_well ? &c->dumps : &c->dumps_failed) += 1;
	else if (l->kind == LEASE_RESTORE && (l->ended_well || l->seen_ns))
		*(l->ended_well ? &c->restores : &c->restores_unfinished) += 1;
}

void lease_end(struct znsd *d, struct lease *l)
{
	count_end(d, l);
	lease_unlink(d, l);
	if (l->kind == LEASE_YIELDING)
		l->yields.ops->ended(d, l);
	hot_end(d, l);
	let_go(d, l);
	d->policy->compact_yield &= leases_yielding(d) > 0;
	if (lease_writes(l))
		reservation_settle(d, l->container);
	lease_free(l);
	d->freed = true;
}

static bool writer_gone(struct lease *l)
{
	struct pollfd p = { .fd = l->pidfd, .events = POLLIN };

	return l->pidfd < 0 || poll(&p, 1, 0) == 1;
}

/*
 * To be called when a connection was closed without commit or abort. Its process may be dying with
 * writes still under way. So the zones stay with the lease until the process has ended, or for
 * WRITER_GONE_MS.
 */
void leases_of_conn_lost(struct znsd *d, const struct conn *c, int *pidfd)
{
	struct lease *l, *next;

	for (l = d->leases; l; l = next) {
		next = l->next;
		if (l->conn != c)
			continue;
		l->conn = NULL;
		if (l->kind == LEASE_YIELDING) {
			l->yields.ops->unheld(l);
			continue;
		}
		if (lease_writes(l) && l->nr_zones) {
			l->pidfd = *pidfd;
			*pidfd = -1;
			l->dying_until = zns_mono_ns() + WRITER_GONE_MS * 1000000ull;
			znsd_say(LOG_WARNING, l, "dump of %s (PID %u) ended without a commit",
				 l->container, l->pid);
		} else {
			lease_end(d, l);
		}
	}
	leases_reap(d);
}

int leases_reap(struct znsd *d)
{
	uint64_t now = zns_mono_ns();
	struct lease *l;
	int ms = -1;

again:
	for (l = d->leases; l; l = l->next) {
		if (l->kind == LEASE_YIELDING && !l->conn) {
			if (l->yields.ops->over(l)) {
				znsd_say(LOG_INFO, l, "%s has ended", l->container);
				lease_end(d, l);
				goto again;
			}
			ms = ms < 0 ? YIELDING_MS : ms;
		}
		if (!l->dying_until)
			continue;
		if (writer_gone(l) || now >= l->dying_until) {
			lease_end(d, l);
			goto again;
		}
		ms = REAP_MS;
	}
	return ms;
}
