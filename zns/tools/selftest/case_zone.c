/* SPDX-License-Identifier: GPL-2.0-only */
/* Tests open, close, finish, reset: every transition, and the limits on them. */
#include "case.h"

#define LIMIT_MAX 512 /* a higher limit is not tried out */
#define EACH_MAX 1024u /* most zones that are tried; on a larger device, zones from all over it */
#define BATCH 256u
#define ODD_MAX 4u /* number of zones with another capacity that are filled */
#define ODD_FILL_MAX GIB(4)

static void open_close(void)
{
	uint32_t z = t.zone[0], b = t.block;

	OK(zns_dev_open_zone(t.d, z, E));
	ZONE(z, ZNS_ZONE_EXP_OPEN, 0);
	OK(zns_dev_open_zone(t.d, z, E));
	put(z, 0, b);
	ZONE(z, ZNS_ZONE_EXP_OPEN, b);
	OK(zns_dev_close_zone(t.d, z, E));
	ZONE(z, ZNS_ZONE_CLOSED, b);
	OK(zns_dev_close_zone(t.d, z, E));
	ZONE(z, ZNS_ZONE_CLOSED, b);
	put(z, b, b);
	ZONE(z, ZNS_ZONE_IMP_OPEN, 2 * b);
	OK(zns_dev_open_zone(t.d, z, E));
	ZONE(z, ZNS_ZONE_EXP_OPEN, 2 * b);
	OK(zns_dev_close_zone(t.d, z, E));
	OK(zns_dev_open_zone(t.d, z, E));
	ZONE(z, ZNS_ZONE_EXP_OPEN, 2 * b);
	OK(zns_dev_close_zone(t.d, z, E));
	check(z, 0, 2 * b);
}

static void close_unwritten(void)
{
	uint32_t z = t.zone[0];

	FAILS(zns_dev_close_zone(t.d, z, E), EIO, "empty");
	OK(zns_dev_open_zone(t.d, z, E));
	OK(zns_dev_close_zone(t.d, z, E));
	ZONE(z, ZNS_ZONE_EMPTY, 0);
	put(z, 0, t.block);
	check(z, 0, t.block);
}

static void finish(void)
{
	uint32_t b = t.block;

	OK(zns_dev_finish(t.d, t.zone[0], E)); /* finish an empty zone */
	put(t.zone[1], 0, b);
	OK(zns_dev_finish(t.d, t.zone[1], E)); /* finish an implicitly open zone */
	OK(zns_dev_open_zone(t.d, t.zone[2], E));
	OK(zns_dev_finish(t.d, t.zone[2], E)); /* finish an explicitly open zone */
	put(t.zone[3], 0, 2 * b);
	OK(zns_dev_close_zone(t.d, t.zone[3], E));
	OK(zns_dev_finish(t.d, t.zone[3], E)); /* finish a closed zone */
	for (int i = 0; i < 4; i++) {
		ZONE(t.zone[i], ZNS_ZONE_FULL, t.cap);
		OK(zns_dev_finish(t.d, t.zone[i], E)); /* finish a full zone */
	}
	check(t.zone[1], 0, b);
	check(t.zone[3], 0, 2 * b);
}

static void full(void)
{
	uint32_t z = t.zone[0], b = t.block;
	uint64_t at;

	put(z, 0, b);
	OK(zns_dev_finish(t.d, z, E));
	FAILS(zns_dev_write(t.d, z, b, t.buf, b, E), ENOSPC, "full");
	FAILS(zns_dev_write(t.d, z, 0, t.buf, b, E), ENOSPC, "full");
	FAILS(zns_dev_append(t.d, z, t.buf, b, &at, E), ENOSPC, "full");
	FAILS(zns_dev_open_zone(t.d, z, E), ENOSPC, "full");
	FAILS(zns_dev_close_zone(t.d, z, E), ENOSPC, "full");
	ZONE(z, ZNS_ZONE_FULL, t.cap);
	check(z, 0, b);
	OK(zns_dev_reset(t.d, &z, 1, E));
	put(z, 0, b);
}

static void reset(void)
{
	uint32_t b = t.block, list[8];

	put(t.zone[0], 0, b); /* make it implicitly open */
	/* make it explicitly open, with nothing written */
	OK(zns_dev_open_zone(t.d, t.zone[1], E));
	put(t.zone[2], 0, b);
	OK(zns_dev_close_zone(t.d, t.zone[2], E)); /* make it closed */
	put(t.zone[3], 0, b);
	OK(zns_dev_finish(t.d, t.zone[3], E)); /* make it full */
	put(t.zone[5], 0, b); /* this one is not in the list */
	for (int i = 0; i < 5; i++) /* zone[4] stays empty */
		list[i] = t.zone[4 - i];
	list[5] = list[0];
	list[6] = list[3];
	OK(zns_dev_reset(t.d, list, 7, E));
	for (int i = 0; i < 5; i++) {
		ZONE(t.zone[i], ZNS_ZONE_EMPTY, 0);
		FAILS(zns_dev_read(t.d, t.zone[i], 0, t.buf, b, E), ENODATA, "write pointer");
	}
	ZONE(t.zone[5], ZNS_ZONE_IMP_OPEN, b);
	check(t.zone[5], 0, b);
	put(t.zone[2], 0, 2 * b);
	check(t.zone[2], 0, 2 * b);
}

static void reset_refused(void)
{
	uint32_t list[3] = { t.zone[0], t.d->geo.nr_zones, t.zone[1] };

	put(t.zone[0], 0, t.block);
	FAILS(zns_dev_reset(t.d, list, 3, E), EINVAL, "zones 0 to");
	SAME(zone_of(t.zone[0]).wp, t.block);
	OK(zns_dev_reset(t.d, list, 0, E));
	SAME(zone_of(t.zone[0]).wp, t.block);
}

static void reset_many(void)
{
	uint32_t nr = zns_min(t.nr, 300u);

	/* Finish every second zone, so that there are as many runs as possible. */
	for (uint32_t i = 0; i < nr; i += 2)
		OK(zns_dev_finish(t.d, t.zone[i], E));
	OK(zns_dev_reset(t.d, t.zone, t.nr, E));
	for (uint32_t i = 0; i < nr; i++)
		ZONE(t.zone[i], ZNS_ZONE_EMPTY, 0);
}

/* Other cases use the first zones. This one uses every zone, as many at a time as may be open. */
static void each_zone(void)
{
	const struct zns_geometry *g = &t.d->geo;
	uint32_t step = (t.nr - 1) / EACH_MAX + 1, b = t.block, list[BATCH], n = 0, batch = BATCH;

	if (g->max_open)
		batch = zns_min(batch, g->max_open);
	if (g->max_active)
		batch = zns_min(batch, g->max_active);
	for (uint32_t i = 0; i < t.nr; i += step) {
		list[n++] = t.zone[i];
		put(t.zone[i], 0, b);
		ZONE(t.zone[i], ZNS_ZONE_IMP_OPEN, b);
		if (n < batch && i + step < t.nr)
			continue;
		for (uint32_t k = 0; k < n; k++) {
			ZONE(list[k], ZNS_ZONE_IMP_OPEN, b);
			check(list[k], 0, b);
		}
		OK(zns_dev_reset(t.d, list, n, E));
		for (uint32_t k = 0; k < n; k++)
			ZONE(list[k], ZNS_ZONE_EMPTY, 0);
		n = 0;
	}
}

/* A zone that reports an unusual capacity must hold exactly that many bytes. */
static void odd_capacity(void)
{
	uint32_t total = t.d->geo.nr_zones, odd = 0, tried = 0;
	cleanup_free struct zns_zone *z = calloc(total, sizeof(*z));

	TRUE(z);
	OK(zns_dev_report(t.d, 0, total, z, E));
	for (uint32_t i = 0; i < total; i++) {
		if (z[i].conventional || z[i].state != ZNS_ZONE_EMPTY || z[i].capacity == t.cap)
			continue;
		odd++;
		if (tried == ODD_MAX || z[i].capacity > ODD_FILL_MAX)
			continue;
		tried++;
		put(i, 0, z[i].capacity);
		ZONE(i, ZNS_ZONE_FULL, z[i].capacity);
		check(i, 0, z[i].capacity);
	}
	if (odd)
		conform_note("%u zones have another one than zone %u; %u of them were filled", odd,
			     t.zone[0], tried);
}

/*
 * The error when the open limit is exceeded by explicitly open zones: the active limit is reached
 * first if it is not larger.
 */
static int open_excess(void)
{
	const struct zns_geometry *g = &t.d->geo;

	return g->max_active && g->max_active <= g->max_open ? EOVERFLOW : ETOOMANYREFS;
}

static void excess(uint32_t zone, int want)
{
	uint64_t at;

	if (want == EOVERFLOW) {
		FAILS(zns_dev_open_zone(t.d, zone, E), EOVERFLOW, "active");
		FAILS(zns_dev_write(t.d, zone, 0, t.buf, t.block, E), EOVERFLOW, "active");
		FAILS(zns_dev_append(t.d, zone, t.buf, t.block, &at, E), EOVERFLOW, "active");
	} else {
		FAILS(zns_dev_open_zone(t.d, zone, E), ETOOMANYREFS, "open");
		FAILS(zns_dev_write(t.d, zone, 0, t.buf, t.block, E), ETOOMANYREFS, "open");
		FAILS(zns_dev_append(t.d, zone, t.buf, t.block, &at, E), ETOOMANYREFS, "open");
	}
	ZONE(zone, ZNS_ZONE_EMPTY, 0);
}

static void want_limit(uint32_t max, const char *what)
{
	if (!max)
		conform_skip("the device has no limit of %s zones", what);
	if (max > LIMIT_MAX || max + 2 > t.nr)
		conform_skip("a limit of %u %s zones takes too many", max, what);
}

static void too_many_open(void)
{
	uint32_t max = t.d->geo.max_open;

	want_limit(max, "open");
	for (uint32_t i = 0; i < max; i++)
		OK(zns_dev_open_zone(t.d, t.zone[i], E));
	excess(t.zone[max], open_excess());
	/* An open zone must stay usable, and a zone that was closed must be usable again. */
	put(t.zone[max - 1], 0, t.block);
	OK(zns_dev_close_zone(t.d, t.zone[0], E));
	put(t.zone[max], 0, t.block);
	OK(zns_dev_open_zone(t.d, t.zone[max], E));
	excess(t.zone[max + 1], open_excess());
	OK(zns_dev_finish(t.d, t.zone[1], E));
	OK(zns_dev_open_zone(t.d, t.zone[max + 1], E));
	put(t.zone[max + 1], 0, t.block);
	check(t.zone[max + 1], 0, t.block);
}

/*
 * If too many zones were opened by writes, a device may close one by itself to make room, or fail:
 * both are right.
 */
static void too_many_written(void)
{
	uint32_t max = t.d->geo.max_open, open = 0;
	int rc = 0;

	want_limit(max, "open");
	if (open_excess() == EOVERFLOW)
		conform_skip("as many open as active zones: the active limit comes first");
	for (uint32_t i = 0; i < max; i++)
		put(t.zone[i], 0, t.block);
	rc = zns_dev_write(t.d, t.zone[max], 0, t.buf, t.block, E);
	if (rc)
		TRUE(rc == -ETOOMANYREFS && strstr(conform_err.msg, "open"));
	for (uint32_t i = 0; i <= max; i++)
		open += zns_zone_is_open(zone_of(t.zone[i]).state);
	SAME(open, max);
	conform_note("%s", rc ? "refused" : "the device closes another one by itself");
	/* In both cases, writing must continue where there is room. */
	OK(zns_dev_close_zone(t.d, t.zone[max - 1], E));
	put(t.zone[max], rc ? 0 : t.block, t.block);
}

static void too_many_active(void)
{
	uint32_t max = t.d->geo.max_active;

	want_limit(max, "active");
	for (uint32_t i = 0; i < max; i++) {
		put(t.zone[i], 0, t.block);
		OK(zns_dev_close_zone(t.d, t.zone[i], E));
	}
	excess(t.zone[max], EOVERFLOW);
	put(t.zone[0], t.block, t.block);
	OK(zns_dev_close_zone(t.d, t.zone[0], E));
	OK(zns_dev_finish(t.d, t.zone[1], E));
	put(t.zone[max], 0, t.block);
	excess(t.zone[max + 1], EOVERFLOW);
	OK(zns_dev_reset(t.d, &t.zone[2], 1, E));
	put(t.zone[max + 1], 0, t.block);
	for (uint32_t i = 3; i < max; i++)
		check(t.zone[i], 0, t.block);
}

/* An empty zone that was opened without being written must not count for ever. */
static void unwritten_is_given_back(void)
{
	uint32_t max = t.d->geo.max_active;

	want_limit(max, "active");
	for (uint32_t i = 0; i < max + 1; i++) {
		OK(zns_dev_open_zone(t.d, t.zone[i], E));
		OK(zns_dev_close_zone(t.d, t.zone[i], E));
	}
	put(t.zone[0], 0, t.block);
}

const struct conform_case zone_cases[] = {
	{ "open and close", open_close, 1 },
	{ "close: a zone never written", close_unwritten, 1 },
	{ "finish: from every state", finish, 4 },
	{ "full zone: what it refuses", full, 1 },
	{ "reset: from every state, in one call", reset, 6 },
	{ "reset: a wrong zone among right ones", reset_refused, 2 },
	{ "reset: many zones", reset_many, 8 },
	{ "each zone: written and reset", each_zone, 1 },
	{ "capacity: zones that differ", odd_capacity, 1 },
	{ 0 },
};

const struct conform_case limit_cases[] = {
	{ "limit: too many open zones", too_many_open, 3 },
	{ "limit: too many zones opened by writes", too_many_written, 3 },
	{ "limit: too many active zones", too_many_active, 5 },
	{ "limit: zones opened and never written", unwritten_is_given_back, 3 },
	{ 0 },
};
