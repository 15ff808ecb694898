/* SPDX-License-Identifier: GPL-2.0-only */
/* Tests geometry, reports, writes, appends, reads. */
#include "case.h"

#define FILL_MAX MIB(128) /* larger zones are not filled by writing */

static bool power_of_two(uint64_t v)
{
	return v && !(v & (v - 1));
}

static void geometry(void)
{
	const struct zns_geometry *g = &t.d->geo;

	TRUE(g->nr_zones);
	TRUE(power_of_two(g->block_size) && g->block_size >= 512 && g->block_size <= 65536);
	TRUE(g->zone_size && g->zone_size % g->block_size == 0);
	TRUE(g->zone_capacity && g->zone_capacity <= g->zone_size &&
	     g->zone_capacity % g->block_size == 0);
	TRUE(g->max_io_bytes && g->max_io_bytes % g->block_size == 0);
	TRUE(power_of_two(g->mem_align));
	TRUE(!g->max_open || !g->max_active || g->max_open <= g->max_active);
	SAME(g->zone_capacity, t.cap);
	TRUE(!strcmp(t.d->path, t.spec));
}

static void report_all(void)
{
	uint32_t total = t.d->geo.nr_zones;
	cleanup_free struct zns_zone *z = calloc(total, sizeof(*z));

	TRUE(z);
	memset(z, 0xff, total * sizeof(*z));
	OK(zns_dev_report(t.d, 0, total, z, E));
	for (uint32_t i = 0; i < total; i++) {
		SAME(z[i].index, i);
		TRUE((unsigned)z[i].state < ZNS_ZONE_NR_STATES);
		TRUE(z[i].capacity <= t.d->geo.zone_size && z[i].capacity % t.block == 0);
		TRUE(z[i].wp <= z[i].capacity);
	}
	for (uint32_t i = 0; i < t.nr; i++) {
		TRUE(z[t.zone[i]].state == ZNS_ZONE_EMPTY && !z[t.zone[i]].conventional);
		SAME(z[t.zone[i]].wp, 0);
	}
}

static void report_some(void)
{
	uint32_t total = t.d->geo.nr_zones;
	cleanup_free struct zns_zone *all = calloc(total, sizeof(*all));
	struct zns_zone some[3];

	TRUE(all);
	put(t.zone[1], 0, 2 * t.block);
	OK(zns_dev_report(t.d, 0, total, all, E));
	for (uint32_t first = 0; first + 3 <= total; first += zns_max(1u, total / 16)) {
		OK(zns_dev_report(t.d, first, 3, some, E));
		for (int i = 0; i < 3; i++) {
			SAME(some[i].index, first + i);
			SAME(some[i].state, all[first + i].state);
			SAME(some[i].wp, all[first + i].wp);
			SAME(some[i].capacity, all[first + i].capacity);
		}
	}
	OK(zns_dev_report(t.d, total - 1, 1, some, E));
	SAME(some[0].index, total - 1);
	OK(zns_dev_report(t.d, 5 % total, 0, some, E));
	OK(zns_dev_report(t.d, total, 0, some, E));
}

static void report_past_end(void)
{
	uint32_t total = t.d->geo.nr_zones;
	struct zns_zone z[2];

	FAILS(zns_dev_report(t.d, total, 1, z, E), EINVAL, "zones");
	FAILS(zns_dev_report(t.d, total - 1, 2, z, E), EINVAL, "zones");
	FAILS(zns_dev_report(t.d, 0, total + 1, z, E), EINVAL, "zones");
	FAILS(zns_dev_report(t.d, UINT32_MAX, 2, z, E), EINVAL, "zones");
	FAILS(zns_dev_report(t.d, 1, UINT32_MAX, z, E), EINVAL, "zones");
}

static void write_read(void)
{
	uint32_t z = t.zone[0];

	put(z, 0, t.block);
	ZONE(z, ZNS_ZONE_IMP_OPEN, t.block);
	put(z, t.block, 3 * t.block);
	ZONE(z, ZNS_ZONE_IMP_OPEN, 4 * t.block);
	check(z, 0, 4 * t.block);
	check(z, t.block, t.block);
	ZONE(t.zone[1], ZNS_ZONE_EMPTY, 0);
}

static void write_large(void)
{
	uint32_t z = t.zone[0];
	uint64_t len = zns_min(zns_min(3 * (uint64_t)t.max_io + t.block, CONFORM_BUF / 2), t.cap);
	uint8_t *back = t.buf + CONFORM_BUF / 2;

	pattern(t.buf, z, 0, len, 0);
	OK(zns_dev_write(t.d, z, 0, t.buf, len, E));
	SAME(zone_of(z).wp, len);
	memset(back, 0, len);
	OK(zns_dev_read(t.d, z, 0, back, len, E));
	TRUE(is_pattern(back, z, 0, len, 0));
}

static void write_elsewhere(void)
{
	uint32_t z = t.zone[0], b = t.block;

	FAILS(zns_dev_write(t.d, z, b, t.buf, b, E), EIO, "write pointer 0");
	ZONE(z, ZNS_ZONE_EMPTY, 0);
	put(z, 0, 4 * b);
	FAILS(zns_dev_write(t.d, z, 0, t.buf, b, E), EIO, "not at its write pointer");
	FAILS(zns_dev_write(t.d, z, 3 * b, t.buf, 2 * b, E), EIO, "not at its write pointer");
	FAILS(zns_dev_write(t.d, z, 5 * b, t.buf, b, E), EIO, "not at its write pointer");
	SAME(zone_of(z).wp, 4 * b);
	check(z, 0, 4 * b);
	put(z, 4 * b, b);
	check(z, 0, 5 * b);
}

static void unaligned(void)
{
	uint32_t z = t.zone[0], b = t.block;
	uint64_t at;

	put(z, 0, 2 * b);
	FAILS(zns_dev_write(t.d, z, 2 * b, t.buf, b - 1, E), EINVAL, "block size");
	FAILS(zns_dev_write(t.d, z, 2 * b, t.buf, b + 8, E), EINVAL, "block size");
	FAILS(zns_dev_write(t.d, z, 2 * b + 1, t.buf, b, E), EINVAL, "block size");
	FAILS(zns_dev_write(t.d, z, b / 2, t.buf, b, E), EINVAL, "block size");
	FAILS(zns_dev_append(t.d, z, t.buf, b / 2, &at, E), EINVAL, "block size");
	FAILS(zns_dev_read(t.d, z, 1, t.buf, b, E), EINVAL, "block size");
	FAILS(zns_dev_read(t.d, z, 0, t.buf, 1, E), EINVAL, "block size");
	FAILS(zns_dev_write(t.d, z, UINT64_MAX, t.buf, b, E), EINVAL, "");
	FAILS(zns_dev_read(t.d, z, UINT64_MAX, t.buf, b, E), EINVAL, "");
	SAME(zone_of(z).wp, 2 * b);
}

/* An unaligned buffer may be slow, but must work. */
static void unaligned_buffer(void)
{
	static const unsigned shifts[] = { 1, 2, 4, 64, 512, 513, 4095 };
	uint64_t len = zns_min(zns_align_down(t.cap / ZNS_ARRAY_SIZE(shifts), t.block),
			       2 * (uint64_t)t.max_io + t.block),
		 off = 0;
	uint8_t *back = t.buf + CONFORM_BUF / 2;
	uint32_t z = t.zone[0];

	len = zns_min(len, CONFORM_BUF / 2 - 8192);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(shifts); i++, off += len) {
		pattern(t.buf + shifts[i], z, off, len, 0);
		OK(zns_dev_write(t.d, z, off, t.buf + shifts[i], len, E));
		memset(back, 0, len + 8192);
		OK(zns_dev_read(t.d, z, off, back + shifts[i], len, E));
		TRUE(is_pattern(back + shifts[i], z, off, len, 0));
		SAME(back[shifts[i] + len], 0);
		SAME(back[shifts[i] - 1], 0);
	}
	check(z, 0, off);
}

static void out_of_range(void)
{
	uint32_t total = t.d->geo.nr_zones, z = t.zone[0];
	uint64_t size = t.d->geo.zone_size, at;

	FAILS(zns_dev_write(t.d, total, 0, t.buf, t.block, E), EINVAL, "zones 0 to");
	FAILS(zns_dev_append(t.d, total, t.buf, t.block, &at, E), EINVAL, "zones 0 to");
	FAILS(zns_dev_read(t.d, UINT32_MAX, 0, t.buf, t.block, E), EINVAL, "zones 0 to");
	FAILS(zns_dev_open_zone(t.d, total, E), EINVAL, "zones 0 to");
	FAILS(zns_dev_close_zone(t.d, total, E), EINVAL, "zones 0 to");
	FAILS(zns_dev_finish(t.d, total, E), EINVAL, "zones 0 to");
	FAILS(zns_dev_write(t.d, z, size, t.buf, t.block, E), EINVAL, "leaves the zone");
	FAILS(zns_dev_write(t.d, z, size - t.block, t.buf, 2 * t.block, E), EINVAL,
	      "leaves the zone");
	FAILS(zns_dev_read(t.d, z, size, t.buf, t.block, E), EINVAL, "leaves the zone");
	FAILS(zns_dev_read(t.d, z, size - t.block, t.buf, 2 * t.block, E), EINVAL,
	      "leaves the zone");
}

static void nothing_to_write(void)
{
	uint32_t z = t.zone[0];
	uint64_t at = 77;

	OK(zns_dev_write(t.d, z, 0, t.buf, 0, E));
	OK(zns_dev_append(t.d, z, t.buf, 0, &at, E));
	SAME(at, 0);
	OK(zns_dev_read(t.d, z, 0, t.buf, 0, E));
	ZONE(z, ZNS_ZONE_EMPTY, 0);
}

static void fill(void)
{
	uint32_t z = t.zone[0], b = t.block;

	if (t.cap > FILL_MAX)
		conform_skip("zones of %llu MiB take too long", (unsigned long long)t.cap >> 20);
	put(z, 0, t.cap - b);
	if (t.cap < t.d->geo.zone_size)
		FAILS(zns_dev_write(t.d, z, t.cap - b, t.buf, 2 * b, E), ENOSPC, "capacity");
	else
		FAILS(zns_dev_write(t.d, z, t.cap - b, t.buf, 2 * b, E), EINVAL, "leaves the zone");
	SAME(zone_of(z).wp, t.cap - b);
	TRUE(zns_zone_is_open(zone_of(z).state));
	put(z, t.cap - b, b);
	ZONE(z, ZNS_ZONE_FULL, t.cap);
	FAILS(zns_dev_write(t.d, z, t.cap - b, t.buf, b, E), ENOSPC, "full");
	check(z, 0, t.cap);
	ZONE(t.zone[1], ZNS_ZONE_EMPTY, 0);
}

static void beyond_capacity(void)
{
	uint32_t z = t.zone[0], b = t.block;
	uint64_t at;

	if (t.cap < t.d->geo.zone_size) {
		FAILS(zns_dev_write(t.d, z, t.cap, t.buf, b, E), ENOSPC, "capacity");
		FAILS(zns_dev_read(t.d, z, t.cap, t.buf, b, E), ENODATA, "write pointer");
	}
	ZONE(z, ZNS_ZONE_EMPTY, 0);
	OK(zns_dev_finish(t.d, z, E));
	FAILS(zns_dev_append(t.d, z, t.buf, b, &at, E), ENOSPC, "full");
	if (t.cap < t.d->geo.zone_size)
		FAILS(zns_dev_read(t.d, z, t.cap - b, t.buf, 2 * b, E), ENODATA, "write pointer");
	if (t.cap > FILL_MAX)
		return;
	z = t.zone[1];
	put(z, 0, t.cap - 2 * b);
	FAILS(zns_dev_append(t.d, z, t.buf, 3 * b, &at, E), ENOSPC, "capacity");
	SAME(zone_of(z).wp, t.cap - 2 * b);
	OK(zns_dev_append(t.d, z, t.buf, 2 * b, &at, E));
	SAME(at, t.cap - 2 * b);
	ZONE(z, ZNS_ZONE_FULL, t.cap);
}

static void append(void)
{
	uint64_t len = zns_min(2 * (uint64_t)t.max_io + t.block, CONFORM_BUF), at = 77;
	uint32_t z = t.zone[0], b = t.block;

	pattern(t.buf, z, 0, 2 * b, 0);
	OK(zns_dev_append(t.d, z, t.buf, 2 * b, &at, E));
	SAME(at, 0);
	ZONE(z, ZNS_ZONE_IMP_OPEN, 2 * b);
	pattern(t.buf, z, 2 * b, b, 0);
	OK(zns_dev_append(t.d, z, t.buf, b, &at, E));
	SAME(at, 2 * b);
	put(z, 3 * b, b);
	pattern(t.buf, z, 4 * b, b, 0);
	OK(zns_dev_append(t.d, z, t.buf, b, &at, E));
	SAME(at, 4 * b);
	if (5 * b + len <= t.cap) {
		pattern(t.buf, z, 5 * b, len, 0);
		OK(zns_dev_append(t.d, z, t.buf, len, &at, E));
		SAME(at, 5 * b);
		check(z, 5 * b, len);
	}
	check(z, 0, 5 * b);
}

static void read_beyond(void)
{
	uint32_t z = t.zone[0], b = t.block;

	FAILS(zns_dev_read(t.d, z, 0, t.buf, b, E), ENODATA, "write pointer 0");
	put(z, 0, 2 * b);
	check(z, 0, 2 * b);
	FAILS(zns_dev_read(t.d, z, 2 * b, t.buf, b, E), ENODATA, "write pointer");
	FAILS(zns_dev_read(t.d, z, b, t.buf, 2 * b, E), ENODATA, "write pointer");
	OK(zns_dev_close_zone(t.d, z, E));
	FAILS(zns_dev_read(t.d, z, b, t.buf, 2 * b, E), ENODATA, "write pointer");
	OK(zns_dev_reset(t.d, &z, 1, E));
	FAILS(zns_dev_read(t.d, z, 0, t.buf, b, E), ENODATA, "write pointer 0");
}

static void read_finished(void)
{
	uint32_t z = t.zone[0], b = t.block;

	put(z, 0, 2 * b);
	OK(zns_dev_finish(t.d, z, E));
	check(z, 0, 2 * b);
	/* A part of a finished zone that was never written must be readable, with any content. */
	OK(zns_dev_read(t.d, z, 2 * b, t.buf, b, E));
	OK(zns_dev_read(t.d, z, t.cap - b, t.buf, b, E));
}

static void flush(void)
{
	OK(zns_dev_flush(t.d, E));
	put(t.zone[0], 0, zns_min((uint64_t)t.max_io, t.cap));
	OK(zns_dev_flush(t.d, E));
	OK(zns_dev_finish(t.d, t.zone[0], E));
	OK(zns_dev_flush(t.d, E));
	OK(zns_dev_reset(t.d, t.zone, 1, E));
	OK(zns_dev_flush(t.d, E));
	OK(zns_dev_flush(t.d, E));
	ZONE(t.zone[0], ZNS_ZONE_EMPTY, 0);
}

/* Other tests cut the power. This one only checks that durable writes work like any other write. */
static void durable(void)
{
	uint32_t z = t.zone[0], b = t.block, two[] = { t.zone[0], t.zone[1] };

	put(z, 0, b);
	pattern(t.buf, z, b, 2 * b, 0);
	OK(zns_dev_write_durable(t.d, z, b, t.buf, 2 * b, E));
	FAILS(zns_dev_write_durable(t.d, z, b, t.buf, b, E), EIO, "write pointer");
	put(z, 3 * b, b);
	put(two[1], 0, b);
	OK(zns_dev_flush_zones(t.d, two, 2, E));
	OK(zns_dev_flush_zones(t.d, two, 0, E));
	check(z, 0, 4 * b);
}

static void no_error_object(void)
{
	TRUE(zns_dev_write(t.d, t.zone[0], t.block, t.buf, t.block, NULL) == -EIO);
	TRUE(zns_dev_read(t.d, t.zone[0], 0, t.buf, t.block, NULL) == -ENODATA);
	TRUE(zns_dev_close_zone(t.d, t.zone[0], NULL) == -EIO);
	TRUE(zns_dev_reset(t.d, &(uint32_t){ UINT32_MAX }, 1, NULL) == -EINVAL);
}

const struct conform_case data_cases[] = {
	{ "geometry", geometry, 1 },
	{ "report: all zones", report_all, 1 },
	{ "report: some zones", report_some, 2 },
	{ "report: past the end", report_past_end, 1 },
	{ "write: at the write pointer, and read back", write_read, 2 },
	{ "write: more than one transfer", write_large, 1 },
	{ "write: not at the write pointer", write_elsewhere, 1 },
	{ "write: nothing", nothing_to_write, 1 },
	{ "write: up to the capacity", fill, 2 },
	{ "write: beyond the capacity", beyond_capacity, 2 },
	{ "unaligned length and offset", unaligned, 1 },
	{ "unaligned buffer", unaligned_buffer, 1 },
	{ "zones and offsets out of range", out_of_range, 1 },
	{ "append: tells the place", append, 1 },
	{ "read: beyond the write pointer", read_beyond, 1 },
	{ "read: a finished zone", read_finished, 1 },
	{ "flush", flush, 1 },
	{ "durable writes, flush of zones", durable, 2 },
	{ "errors without an error object", no_error_object, 1 },
	{ 0 },
};
