/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The cache that restores share (zns/hot.h): which restores get it, and which zones are hot. A zone
 * is hot while two restores read it, and for some seconds afterwards. So a restore that is alone
 * does not spend time on the cache.
 */
#include "policy.h"
#include "zns/hot.h"
#include "zns/layout.h"

/* another restore of the same zones within this time makes them hot */
#define HOT_NS 5000000000ull
#define BAD_CONF_NS 10000000000ull

struct hot_use {
	uint32_t readers; /* number of restores that use the cache */
	uint64_t last_ns; /* when a restore last began or ended to read the zone; 0: never */
	uint32_t resets; /* number of resets of the zone at that time */
};

struct hot_policy {
	struct hot_use *zone;
	uint32_t leases, owner;
	uint64_t last_ns;
	/* when the cache could last not be created (no memory, or an error in the configuration);
	 * the next attempt is delayed */
	uint64_t refused_ns;
};

static int make(struct znsd *d, const ZnsPb__Checkpoint *k, struct zns_err *err)
{
	struct zns_hot_shape s = { .nr_zones = d->nr_zones };
	uint64_t bytes;
	int ret = zns_config_restore_cache(&bytes, err);

	if (ret)
		return ret;
	s.slot_bytes = zns_max(k->has_stripe_unit ? k->stripe_unit : 0,
			       zns_stripe_unit(&d->dev->geo));
	s.slot_bytes = (uint32_t)zns_align_up(zns_min(s.slot_bytes, ZNS_STRIPE_UNIT_MAX), 4096);
	s.nr_slots = zns_hot_slots(bytes, s.slot_bytes);
	if (!s.nr_slots)
		return -ENOENT; /* the configuration disables the cache */
	ret = zns_hot_new(&s, &d->hot, err);
	if (ret)
		return ret;
	d->hot_shape = s;
	d->policy->hot->zone = znsd_alloc(d->nr_zones * sizeof(struct hot_use));
	return 0;
}

static void drop(struct znsd *d)
{
	struct zns_hot_figures f;

	zns_hot_figures(d->hot, &f);
	if (f.filled)
		znsd_log(
			"memory shared by restores: %llu units read once were handed out %llu times; %llu were wrong, %llu late",
			(unsigned long long)f.filled, (unsigned long long)f.had,
			(unsigned long long)f.wrong, (unsigned long long)f.late);
	zns_hot_free(d->hot);
	d->hot = NULL;
	free(d->policy->hot->zone);
	d->policy->hot->zone = NULL;
}

/* Records a use of the zone. False: the previous one was long ago, or read data that were reset
 * since. */
static bool use_now(const struct znsd *d, uint32_t zone, uint64_t now)
{
	struct hot_use *z = &d->policy->hot->zone[zone];
	bool recent = z->last_ns && now - z->last_ns < HOT_NS && z->resets == d->zones[zone].resets;

	z->last_ns = now;
	z->resets = d->zones[zone].resets;
	return recent;
}

bool hot_begin(struct znsd *d, struct lease *l, const ZnsPb__Checkpoint *k, bool counts)
{
	struct hot_policy *p = d->policy->hot;
	struct zns_err err = ZNS_ERR_INIT;
	uint64_t now = zns_mono_ns();
	int ret = 0;

	if (!p)
		p = d->policy->hot = znsd_alloc(sizeof(*p));
	if (p->refused_ns && now < p->refused_ns + BAD_CONF_NS)
		return false;
	if (!d->hot)
		ret = make(d, k, &err);
	if (ret) {
		p->refused_ns = now;
		if (ret != -ENOENT)
			znsd_log("restores share no memory: %s", err.msg);
		return false;
	}
	p->refused_ns = 0;
	l->hot = ++p->owner ? p->owner : ++p->owner;
	p->leases++;
	p->last_ns = now;
	l->hot_counts = counts;
	for (uint32_t i = 0; counts && i < l->nr_zones; i++) {
		uint32_t zone = l->zones[i].zone;
		bool recent;

		/* the store has grown since the cache was created */
		if (zone >= d->hot_shape.nr_zones)
			continue;
		recent = use_now(d, zone, now);
		if (p->zone[zone].readers++ || recent)
			zns_hot_keep(d->hot, zone, UINT64_MAX);
	}
	return true;
}

void hot_end(struct znsd *d, struct lease *l)
{
	struct hot_policy *p = d->policy->hot;
	uint64_t now = zns_mono_ns();

	if (!l->hot)
		return;
	zns_hot_forget_owner(d->hot, l->hot);
	for (uint32_t i = 0; l->hot_counts && i < l->nr_zones; i++) {
		uint32_t zone = l->zones[i].zone;

		if (zone >= d->hot_shape.nr_zones)
			continue;
		use_now(d, zone, now);
		if (--p->zone[zone].readers < 2)
			zns_hot_keep(d->hot, zone, now + HOT_NS);
	}
	l->hot = 0;
	p->leases--;
	p->last_ns = now;
}

int hot_idle(struct znsd *d)
{
	uint64_t now = zns_mono_ns(), until;

	if (!d->hot || d->policy->hot->leases)
		return -1;
	until = d->policy->hot->last_ns + HOT_NS;
	if (now < until)
		return (int)((until - now) / 1000000) + 1;
	drop(d);
	return -1;
}

void hot_fini(struct znsd *d)
{
	if (d->hot)
		drop(d);
	free(d->policy->hot);
	d->policy->hot = NULL;
}
