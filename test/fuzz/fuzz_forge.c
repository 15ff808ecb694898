/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A device that somebody has forged: whatever stands on it has right checksums. The input is a list
 * of pieces (test/fuzz/forge.h); each becomes a frame at the write pointer of its zone, manifests
 * with their footers, and records of the log with the numbers that are due. The mutator changes
 * fields of messages, so that what it makes still decodes.
 *
 * What opens must survive a look at everything, and a dump by the broker, which must commit. Then
 * the catalogue is rebuilt from what is there, with the log or without it, and what comes out must
 * open again.
 */
#include <stdlib.h>
#include <string.h>
#include "../crash/inproc.h"
#include "../unit/memdev.h"
#include "forge_mutate.h"
#include "zns/frame.h"
#include "zns/fsck.h"
#include "zns/reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t group_of[FORGE_ZONES] = { 0, 1, 0, 1, 0, 1, 0, 1 };

struct forged {
	struct memdev *m;
	uint64_t seq; /* next record of generation 1, in zone 0 */
};

static void fill_profile(ZnsPb__Profile *p, ZnsPb__DieGroup *g, ZnsPb__DieGroup **list)
{
	zns_pb__profile__init(p);
	for (uint32_t i = 0; i < 2; i++) {
		zns_pb__die_group__init(&g[i]);
		g[i].id = i;
		list[i] = &g[i];
	}
	p->source = (char *)"vendor";
	p->zone_write_mibps = 100;
	p->zone_read_mibps = 400;
	p->confidence = 1;
	p->groups = list;
	p->n_groups = 2;
	p->zone_group = group_of;
	p->n_zone_group = FORGE_ZONES;
}

/* ---- pieces into zones ---- */

static uint64_t room(const struct memdev *m, uint32_t zone)
{
	return FORGE_CAP - m->z[zone].wp;
}

static bool put_frame(struct memdev *m, uint32_t zone, const struct zns_frame *f)
{
	size_t len = zns_frame_size(f->len, FORGE_BLOCK);

	if (len > room(m, zone))
		return false;
	zns_frame_pack(f, FORGE_BLOCK, m->z[zone].data + m->z[zone].wp);
	m->z[zone].wp += len;
	return true;
}

static void put_record(struct forged *x, uint16_t type, const uint8_t *payload, uint32_t len)
{
	const struct zns_frame f = {
		.type = type, .generation = 1, .seq = x->seq, .payload = payload, .len = len
	};

	x->seq += put_frame(x->m, 0, &f);
}

/* The record that a commit would have written for it: the manifest's copy, the manifest's place,
 * its bytes. */
static void put_checkpoint(struct forged *x, const ZnsPb__Manifest *man,
			   const ZnsPb__ExtentRef *ref, uint64_t end)
{
	ZnsPb__Checkpoint c = *man->checkpoint;
	cleanup_free ZnsPb__ZoneUse **v = calloc(c.n_zones + 1, sizeof(*v));
	cleanup_free uint8_t *buf = NULL;
	ZnsPb__ZoneUse own = ZNS_PB__ZONE_USE__INIT;
	ZnsPb__ExtentRef place = *ref;

	for (size_t i = 0; i < c.n_zones; i++)
		v[i] = c.zones[i];
	own.zone = ref->zone;
	own.start = ref->start;
	own.len = end - ref->start;
	v[c.n_zones++] = &own;
	c.zones = v;
	c.manifest = &place;
	buf = malloc(zns_pb__checkpoint__get_packed_size(&c) + 1);
	put_record(x, ZNS_FRAME_CHECKPOINT, buf, (uint32_t)zns_pb__checkpoint__pack(&c, buf));
}

static void put_manifest(struct forged *x, uint32_t zone, const uint8_t *payload, uint32_t len,
			 bool record)
{
	ZnsPb__Manifest *man = zns_pb__manifest__unpack(NULL, len, payload);
	ZnsPb__ExtentRef ref;
	struct memzone *z = &x->m->z[zone];
	uint8_t *buf = NULL;
	size_t n;

	if (!man)
		return;
	if (!zns_manifest_pack(man, FORGE_BLOCK, zone, z->wp, &buf, &n, &ref, NULL) &&
	    n <= room(x->m, zone)) {
		memcpy(z->data + z->wp, buf, n);
		z->wp += n;
		if (record)
			put_checkpoint(x, man, &ref, z->wp);
	}
	free(buf);
	zns_pb__manifest__free_unpacked(man, NULL);
}

static void put_piece(struct forged *x, const struct forge_piece *p)
{
	uint32_t zone = p->zone % FORGE_ZONES, data = 3 + p->zone % (FORGE_ZONES - 3);
	const struct zns_frame f = { .type = p->type,
				     .generation = p->generation,
				     .seq = p->seq,
				     .payload = p->payload,
				     .len = p->len };

	switch (p->kind % FORGE_KINDS) {
	case FORGE_RECORD:
		put_record(x, p->type, p->payload, p->len);
		break;
	case FORGE_MANIFEST:
		put_manifest(x, data, p->payload, p->len, false);
		break;
	case FORGE_COMMITTED:
		put_manifest(x, data, p->payload, p->len, true);
		break;
	case FORGE_FRAME:
		put_frame(x->m, zone, &f);
		break;
	default: /* bytes that are no frame */
		if (room(x->m, zone) >= FORGE_BLOCK * (1u + p->type % 4)) {
			memset(x->m->z[zone].data + x->m->z[zone].wp, 0x5a,
			       FORGE_BLOCK * (1u + p->type % 4));
			x->m->z[zone].wp += FORGE_BLOCK * (1u + p->type % 4);
		}
	}
}

/* ---- what must hold ---- */

static void look(struct zns_store *s, struct memdev *m)
{
	struct zns_reader_params rp = { .dev = &m->dev, .workers = 1, .cache_units = 1 };

	for (size_t i = 0; i < zns_store_nr_checkpoints(s); i++) {
		const ZnsPb__Checkpoint *c = zns_store_checkpoint(s, i), *up = c;
		ZnsPb__Manifest *man;
		struct zns_reader *r;
		size_t n;

		if (zns_store_find(s, c->id.data) != c)
			abort();
		/* a walk to the parents must end */
		for (n = 0; up && n <= zns_store_nr_checkpoints(s); n++)
			up = up->has_parent ? zns_store_find(s, up->parent.data) : NULL;
		if (up)
			abort();
		for (size_t z = 0; z < c->n_zones; z++)
			if (c->zones[z]->zone >= FORGE_ZONES || c->zones[z]->start % FORGE_BLOCK ||
			    c->zones[z]->len % FORGE_BLOCK ||
			    !zns_store_zone_live(s, c->zones[z]->zone))
				abort();
		zns_footer_check(&m->dev, c, NULL);
		if (zns_manifest_read(&m->dev, c, &man, NULL))
			continue;
		if (!zns_manifest_agrees(man, c, NULL) && !man->checkpoint->crypt &&
		    !zns_reader_new(&rp, man, &r, NULL))
			zns_reader_free(r);
		zns_pb__manifest__free_unpacked(man, NULL);
	}
	for (uint32_t z = 0; z < FORGE_ZONES; z++)
		if (zns_store_zone_live(s, z) > FORGE_CAP)
			abort();
}

static ZnsPb__Request *request(void)
{
	ZnsPb__Request *r = calloc(1, sizeof(*r));

	zns_pb__request__init(r);
	r->version = ZNS_BROKER_VERSION;
	return r;
}

/* 0 or why not; @zone, if there is one, gets the zone that was granted. */
static int ask(struct znsd *d, struct conn *c, ZnsPb__Request *req, struct zns_zone *zone)
{
	struct reply rep;
	int rc;

	memset(&rep, 0, sizeof(rep));
	zns_pb__response__init(&rep.r);
	rc = dispatch(d, c, req, &rep);
	if (!rc && zone && (!rep.r.zone || zns_dev_report(d->dev, rep.r.zone->zone, 1, zone, NULL)))
		abort();
	if (!rep.later)
		zns_pb__request__free_unpacked(req, NULL);
	reply_free(&rep);
	return rc;
}

static int commit(struct znsd *d, struct conn *c, const struct zns_zone *z)
{
	ZnsPb__Request *r = request();
	ZnsPb__Checkpoint *k = r->commit = calloc(1, sizeof(*k));
	struct lease *l = lease_of(d, c);

	zns_pb__checkpoint__init(k);
	k->id = (ProtobufCBinaryData){ ZNS_UUID_LEN, malloc(ZNS_UUID_LEN) };
	memcpy(k->id.data, l->id, ZNS_UUID_LEN);
	k->container = strdup(l->container);
	k->created_ns = zns_now_ns();
	k->zones = calloc(1, sizeof(*k->zones));
	k->zones[k->n_zones++] = calloc(1, sizeof(**k->zones));
	zns_pb__zone_use__init(k->zones[0]);
	k->zones[0]->zone = z->index;
	k->zones[0]->start = z->wp;
	k->zones[0]->len = FORGE_BLOCK;
	k->manifest = calloc(1, sizeof(*k->manifest));
	zns_pb__extent_ref__init(k->manifest);
	k->manifest->zone = z->index;
	k->manifest->start = z->wp;
	k->manifest->len = 100;
	return ask(d, c, r, NULL);
}

/* A dump that is given a zone can commit what it wrote there. */
static void must_commit(struct znsd *d)
{
	static uint8_t buf[FORGE_BLOCK] __attribute__((aligned(4096)));
	ZnsPb__Request *req = request();
	struct conn c = { 0 };
	struct zns_zone z;
	struct lease *l;
	int rc;

	req->dump_begin = calloc(1, sizeof(*req->dump_begin));
	zns_pb__dump_begin__init(req->dump_begin);
	req->dump_begin->container = strdup("web");
	req->dump_begin->admission = strdup("reject");
	/* the device is full, or all of it is claimed */
	if (ask(d, &c, req, NULL) || !(l = lease_of(d, &c)))
		return;
	req = request();
	req->zone_get = calloc(1, sizeof(*req->zone_get));
	zns_pb__zone_get__init(req->zone_get);
	req->zone_get->group = l->groups[0];
	if (!ask(d, &c, req, &z)) {
		rc = zns_dev_write(d->dev, z.index, z.wp, buf, sizeof(buf), NULL);
		if (!rc)
			rc = commit(d, &c, &z);
		if (rc && rc != -ENOSPC && rc != -EOVERFLOW)
			abort();
	}
	leases_of_conn_lost(d, &c, &(int){ -1 });
}

static void use_it(struct memdev *m)
{
	struct zns_store *s;
	struct znsd d;

	if (zns_store_open(&m->dev, 0, &s, NULL))
		return;
	look(s, m);
	zns_store_close(s);
	if (!broker_open(&m->dev, &d, NULL))
		must_commit(&d);
	broker_close(&d);
}

static void wipe_log(struct memdev *m)
{
	for (uint32_t i = 0; i < 3; i++) {
		memset(m->z[i].data, 0, FORGE_CAP);
		m->z[i].wp = 0;
	}
}

static void rebuild(struct memdev *m, const ZnsPb__Profile *p)
{
	static const uint8_t uuid[ZNS_UUID_LEN] = "forged device 1";
	struct zns_rebuild_params rp = { .uuid = uuid, .profile = p };
	struct zns_rebuild_result r;
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_store *s;

	if (zns_rebuild(&m->dev, &rp, &r, &err))
		return;
	zns_scan_free(&r.scan);
	if (zns_store_open(&m->dev, 0, &s, &err)) {
		fprintf(stderr, "what fsck wrote does not open: %s\n", err.msg);
		abort();
	}
	look(s, m);
	zns_store_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	ZnsPb__DieGroup g[2], *list[2];
	ZnsPb__Profile p;
	struct forged x = { .seq = 3 }; /* superblock, profile, end of the snapshot */
	struct forge_piece piece;
	bool wipe;

	if (!size)
		return 0;
	wipe = *data & 1;
	x.m = memdev_new(FORGE_ZONES, FORGE_CAP, FORGE_BLOCK);
	fill_profile(&p, g, list);
	if (zns_store_format(&x.m->dev, NULL, &p, false, NULL, NULL))
		abort();
	for (data++, size--; forge_next(&data, &size, &piece);)
		put_piece(&x, &piece);
	use_it(x.m);
	if (wipe)
		wipe_log(x.m);
	rebuild(x.m, &p);
	memdev_close(&x.m->dev);
	return 0;
}
