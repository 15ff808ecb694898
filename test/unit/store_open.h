/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef STORE_OPEN_H
#define STORE_OPEN_H
/* For test_store.c and test_store_format.c: stores on devices in memory. */
#include "store_fixture.h"
#include "memdev.h"

#define NZ 16
#define CAP MIB(1)

static inline struct memdev *formatted(uint32_t nr_zones, uint64_t cap, uint32_t block)
{
	struct memdev *m = memdev_new(nr_zones, cap, block);
	ZnsPb__Profile *p = make_profile(nr_zones, 4);
	uint8_t uuid[ZNS_UUID_LEN], out[ZNS_UUID_LEN];

	memset(uuid, 0x11, sizeof(uuid));
	OK(zns_store_format(&m->dev, uuid, p, false, out, NULL));
	assert_memory_equal(uuid, out, ZNS_UUID_LEN);
	profile_free(p);
	return m;
}

static inline struct zns_store *open_rw(struct memdev *m)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_store *s = NULL;
	int rc = zns_store_open(&m->dev, 0, &s, &err);

	if (rc)
		fail_msg("open: %d %s", rc, err.msg);
	return s;
}

/* Reopening the store, for reading and for writing, must give the state in memory. */
static inline struct zns_store *reopened(struct memdev *m, struct zns_store *s)
{
	uint32_t nz = m->dev.geo.nr_zones;
	char *before = store_text(s, nz, true), *after;
	struct zns_store *r;
	uint64_t gen = zns_store_generation(s);

	OK(zns_store_open(&m->dev, ZNS_STORE_RDONLY, &r, NULL));
	after = store_text(r, nz, true);
	assert_string_equal(before, after);
	free(after);
	zns_store_close(r);
	zns_store_close(s);
	s = open_rw(m);
	after = store_text(s, nz, true);
	assert_string_equal(before, after);
	assert_int_equal(zns_store_generation(s), gen); /* clean: no roll */
	assert_false(zns_store_torn(s));
	free(before);
	free(after);
	return s;
}

static inline int reserve(struct zns_store *s, const char *name, uint32_t group, bool explicit)
{
	ZnsPb__Reservation r = ZNS_PB__RESERVATION__INIT;

	r.container = (char *)name;
	r.groups = &group;
	r.n_groups = 1;
	r.has_explicit_ = r.explicit_ = explicit;
	return zns_store_reserve(s, &r, NULL);
}

#endif
