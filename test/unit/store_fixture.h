/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef STORE_FIXTURE_H
#define STORE_FIXTURE_H
/* Small messages for store tests, and a text of all that is in a store, to compare states. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "zns/frame.h"
#include "zns/store.h"

#define OK(call)                                        \
	do {                                            \
		struct zns_err _e = ZNS_ERR_INIT;       \
		int _rc = (call);                       \
		(void)_e;                               \
		if (_rc)                                \
			fail_msg("%s: %d", #call, _rc); \
	} while (0)

static inline void id_of(unsigned n, uint8_t id[ZNS_UUID_LEN])
{
	memset(id, 0x5a, ZNS_UUID_LEN);
	memcpy(id, &n, sizeof(n));
}

static inline ZnsPb__Profile *make_profile(uint32_t nr_zones, uint32_t nr_groups)
{
	ZnsPb__Profile *p = malloc(sizeof(*p));

	zns_pb__profile__init(p);
	p->source = strdup("vendor");
	p->zone_write_mibps = 100;
	p->zone_read_mibps = 400;
	p->confidence = 1;
	p->n_groups = nr_groups;
	p->groups = calloc(nr_groups, sizeof(*p->groups));
	for (uint32_t i = 0; i < nr_groups; i++) {
		p->groups[i] = malloc(sizeof(**p->groups));
		zns_pb__die_group__init(p->groups[i]);
		p->groups[i]->id = i;
	}
	p->n_zone_group = nr_zones;
	p->zone_group = calloc(nr_zones, sizeof(*p->zone_group));
	for (uint32_t i = 0; i < nr_zones; i++)
		p->zone_group[i] = i % nr_groups;
	return p;
}

static inline void profile_free(ZnsPb__Profile *p)
{
	zns_pb__profile__free_unpacked(p, NULL);
}

/* A checkpoint of one or two zone uses; lives on the caller's stack. */
struct ck {
	ZnsPb__Checkpoint c;
	ZnsPb__ZoneUse use[2], *usep[2];
	ZnsPb__ExtentRef ref;
	uint8_t id[ZNS_UUID_LEN];
	uint32_t group;
};

static inline ZnsPb__Checkpoint *ck_init(struct ck *k, unsigned n, const char *container,
					 uint32_t zone, uint64_t start, uint64_t len)
{
	zns_pb__checkpoint__init(&k->c);
	id_of(n, k->id);
	k->c.id.data = k->id;
	k->c.id.len = ZNS_UUID_LEN;
	k->c.container = (char *)container;
	k->c.created_ns = 1000 + n;
	k->c.bytes = len;
	k->c.page_bytes = len / 2;
	k->c.nr_images = 3;
	for (int i = 0; i < 2; i++) {
		zns_pb__zone_use__init(&k->use[i]);
		k->use[i].zone = zone + i;
		k->use[i].start = start;
		k->use[i].len = len;
		k->usep[i] = &k->use[i];
	}
	k->c.zones = k->usep;
	k->c.n_zones = 1;
	k->group = 0;
	k->c.groups = &k->group;
	k->c.n_groups = 1;
	zns_pb__extent_ref__init(&k->ref);
	k->ref.zone = zone;
	k->ref.start = start;
	k->ref.len = zns_min(len, (uint64_t)100);
	k->ref.hash = n;
	k->c.manifest = &k->ref;
	return &k->c;
}

/* Everything except times of removal; without tombstones if those may have been forgotten. */
static inline char *store_text(const struct zns_store *s, uint32_t nr_zones, bool tombstones)
{
	char *out = NULL, str[ZNS_UUID_STR];
	size_t len = 0;
	FILE *f = open_memstream(&out, &len);

	for (size_t i = 0; i < zns_store_nr_checkpoints(s); i++) {
		const ZnsPb__Checkpoint *c = zns_store_checkpoint(s, i);
		size_t n = zns_pb__checkpoint__get_packed_size(c);
		uint8_t *buf = malloc(n);

		zns_pb__checkpoint__pack(c, buf);
		fprintf(f, "ckpt %s %s %016llx\n", zns_uuid_format(c->id.data, str), c->container,
			(unsigned long long)zns_hash(buf, n));
		assert_ptr_equal(zns_store_find(s, c->id.data), c);
		free(buf);
	}
	for (size_t i = 0; i < zns_store_nr_reservations(s); i++) {
		const ZnsPb__Reservation *r = zns_store_reservation(s, i);

		fprintf(f, "resv %s %d groups", r->container, r->explicit_);
		for (size_t g = 0; g < r->n_groups; g++)
			fprintf(f, " %u", r->groups[g]);
		fprintf(f, "\n");
		assert_ptr_equal(zns_store_find_reservation(s, r->container), r);
	}
	for (size_t i = 0; i < zns_store_nr_retentions(s); i++) {
		const ZnsPb__Retention *r = zns_store_retention(s, i);

		fprintf(f, "retain %s %u %llu\n", r->container, r->keep,
			(unsigned long long)r->ttl_s);
		assert_ptr_equal(zns_store_find_retention(s, r->container), r);
	}
	for (size_t i = 0; i < zns_store_nr_marks(s); i++) {
		const ZnsPb__Mark *m = zns_store_mark(s, i);

		fprintf(f, "mark %s %d %lld\n", zns_uuid_format(m->checkpoint.data, str), m->pinned,
			(long long)m->gone_ns);
		assert_ptr_equal(zns_store_find_mark(s, m->checkpoint.data), m);
	}
	for (uint32_t z = 0; z < nr_zones; z++)
		if (zns_store_zone_live(s, z))
			fprintf(f, "zone %u live %llu owner %s\n", z,
				(unsigned long long)zns_store_zone_live(s, z),
				zns_store_zone_owner(s, z));
		else
			assert_null(zns_store_zone_owner(s, z));
	fprintf(f, "profile %s %zu\n", zns_store_profile(s)->source,
		zns_store_profile(s)->n_groups);
	for (unsigned n = 0; tombstones && n < 5000; n++) {
		uint8_t id[ZNS_UUID_LEN];
		const ZnsPb__Tombstone *t;

		id_of(n, id);
		t = zns_store_find_tombstone(s, id);
		if (t)
			fprintf(f, "dead %u by %s of %s %lld\n", n, t->by, t->container,
				(long long)t->created_ns);
	}
	fclose(f);
	return out;
}

#endif
