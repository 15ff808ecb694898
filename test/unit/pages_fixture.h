/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef PAGES_FIXTURE_H
#define PAGES_FIXTURE_H
/* A page store on the broker's fixture, and batches of units whose content says which they are. */
#include "broker_fixture.h"
#include "until.h"
#include "zns/pages.h"

#define U ZNS_PAGES_UNIT
#define PER_ZONE (CAP / U)

/* Content that encodes the unit's number. */
static inline void paint(uint8_t *at, uint32_t what)
{
	uint64_t x = what * 0x9e3779b97f4a7c15ull + 1;

	for (size_t i = 0; i < U / 8; i++) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		memcpy(at + i * 8, &x, 8);
	}
}

struct batch {
	uint8_t *mem;
	const void *units[ZNS_PAGES_PUT_MAX];
	struct zns_pages_ref refs[ZNS_PAGES_PUT_MAX];
	uint32_t n, from;
};

static inline struct batch *batch(uint32_t from, uint32_t n)
{
	struct batch *b = calloc(1, sizeof(*b));

	assert_non_null(b);
	b->mem = aligned_alloc(4096, (size_t)n * U);
	assert_non_null(b->mem);
	b->n = n;
	b->from = from;
	for (uint32_t i = 0; i < n; i++) {
		/* in reverse order: units with adjacent places are not adjacent in memory */
		b->units[i] = b->mem + (size_t)(n - 1 - i) * U;
		paint(b->mem + (size_t)(n - 1 - i) * U, from + i);
	}
	return b;
}

static inline void batch_free(struct batch *b)
{
	free(b->mem);
	free(b);
}

static inline struct zns_pages *opened(struct fx *f, const char *name, const int *fds)
{
	struct zns_pages_params p = { .dev = f->reg.path, .container = name, .width = 3 };
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_pages *ps;

	p.fds = fds;
	p.nr_fds = fds ? ZNS_PAGES_FDS : 0;
	if (zns_pages_open(&p, &ps, &err))
		fail_msg("%s", err.msg);
	return ps;
}

static inline void put(struct zns_pages *ps, struct batch *b)
{
	struct zns_err err = ZNS_ERR_INIT;

	if (zns_pages_put(ps, b->units, b->n, b->refs, &err))
		fail_msg("%s", err.msg);
}

static inline void check(struct zns_pages *ps, const struct batch *b)
{
	uint8_t *got = aligned_alloc(4096, U), *want = aligned_alloc(4096, U);
	struct zns_err err = ZNS_ERR_INIT;

	for (uint32_t i = 0; i < b->n; i++) {
		paint(want, b->from + i);
		assert_true(b->refs[i].place && b->refs[i].place >> 48 == 0);
		if (zns_pages_get(ps, b->refs[i], got, &err))
			fail_msg("unit %u: %s", i, err.msg);
		assert_memory_equal(got, want, U);
	}
	free(got);
	free(want);
}

static inline void drop_all(struct zns_pages *ps, const struct batch *b)
{
	for (uint32_t i = 0; i < b->n; i++)
		assert_int_equal(zns_pages_drop(ps, b->refs[i]), 0);
}

static inline uint32_t zones_of(struct zns_pages *ps)
{
	struct zns_pages_stat st;

	zns_pages_stat(ps, &st);
	return st.zones;
}

static inline bool zones_become(struct zns_pages *ps, uint32_t n)
{
	until(zones_of(ps) == n);
	return true;
}

/* After -EAGAIN a caller tries again. */
static inline int try_put(struct zns_pages *ps, struct batch *b)
{
	struct zns_err err = ZNS_ERR_INIT;
	int ret = zns_pages_put(ps, b->units, b->n, b->refs, &err);

	if (ret && ret != -EAGAIN)
		fail_msg("%s", err.msg);
	return ret;
}

static inline void put_later(struct zns_pages *ps, struct batch *b)
{
	until(!try_put(ps, b));
}

static inline uint32_t empty_zones(struct fx *f)
{
	uint32_t n = 0;

	for (uint32_t i = META; i < ZONES; i++)
		n += state_of(f, i) == ZNS_ZONE_EMPTY;
	return n;
}

static inline bool all_empty(struct fx *f)
{
	until(empty_zones(f) == ZONES - META);
	return true;
}

/* Ends a context whose zone becomes garbage. Once that zone is reset, a broker has looked at all
 * other zones too. */
struct canary {
	struct zns_pages *ps;
	uint32_t zone;
};

static inline struct canary canary(struct fx *f, const char *name)
{
	struct canary c = { opened(f, name, NULL), 0 };
	struct batch *b = batch(9000, 1);

	put_later(c.ps, b);
	c.zone = (uint32_t)(b->refs[0].place >> 24) - 1;
	assert_int_not_equal(state_of(f, c.zone), ZNS_ZONE_EMPTY);
	batch_free(b);
	return c;
}

#endif
