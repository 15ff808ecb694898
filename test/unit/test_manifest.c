/* SPDX-License-Identifier: GPL-2.0-only */
/* Manifest and footer: packed, written, read back, damaged, and lying with a good hash. */
#include "store_fixture.h"
#include "memdev.h"
#include "zns/frame.h"
#include "zns/layout.h"

#define NZ 8
#define CAP MIB(4)
#define UNIT KIB(64)
#define NEXT 3 /* extents of the first image */

/* A manifest with a striped image of two segments, a packed one and an empty one; all members in
 * one place. */
struct man {
	ZnsPb__Manifest m;
	struct ck k;
	uint8_t dev[ZNS_UUID_LEN];
	ZnsPb__Image img[3], *imgp[3];
	ZnsPb__Segment seg[3], *segp[3];
	ZnsPb__Extent ext[5], *extp[5];
	uint64_t csums[400];
};

static void man_init(struct man *a)
{
	memset(a, 0, sizeof(*a));
	zns_pb__manifest__init(&a->m);
	a->m.device.data = a->dev;
	a->m.device.len = ZNS_UUID_LEN;
	a->m.checkpoint = ck_init(&a->k, 7, "redis", 3, 0, CAP);
	a->k.c.manifest = NULL;
	for (int i = 0; i < (int)ZNS_ARRAY_SIZE(a->csums); i++)
		a->csums[i] = 0x1234567890abcdefull * (i + 1);
	for (int i = 0; i < 5; i++) {
		zns_pb__extent__init(&a->ext[i]);
		a->ext[i].zone = 3 + i % 5;
		a->ext[i].start = 4096 * (uint64_t)i;
		a->extp[i] = &a->ext[i];
	}
	a->ext[1].has_weight = 1;
	a->ext[1].weight = 2;
	for (int i = 0; i < 3; i++) {
		zns_pb__image__init(&a->img[i]);
		zns_pb__segment__init(&a->seg[i]);
		a->imgp[i] = &a->img[i];
		a->segp[i] = &a->seg[i];
		a->img[i].unit = UNIT;
	}
	/* Segment 0: three extents in turns of four; segment 1: one extent, the end is short. */
	a->img[0].name = (char *)"pages-1.img";
	a->img[0].size = 20 * UNIT + 100;
	a->seg[0].len = 16 * UNIT;
	a->seg[0].extents = a->extp;
	a->seg[0].n_extents = NEXT;
	a->seg[1].off = 16 * UNIT;
	a->seg[1].len = 4 * UNIT + 100;
	a->seg[1].extents = a->extp + 3;
	a->seg[1].n_extents = 1;
	a->img[0].segments = a->segp;
	a->img[0].n_segments = 2;
	a->img[0].csums = a->csums;
	a->img[0].n_csums = 21;
	a->img[1].name = (char *)"core-1.img";
	a->img[1].size = 777;
	a->img[1].segments = a->segp + 2;
	a->img[1].n_segments = 1;
	a->img[1].csums = a->csums;
	a->img[1].n_csums = 1;
	a->seg[2].len = 777;
	a->seg[2].extents = a->extp + 4;
	a->seg[2].n_extents = 1;
	a->ext[4].start = 1003 * 8; /* packed: anywhere */
	a->img[2].name = (char *)"seccomp.img";
	a->m.images = a->imgp;
	a->m.n_images = 3;
}

/* Write @a to the device at @start of @zone and make a record for it. */
static void put_manifest(struct memdev *m, struct man *a, uint32_t zone, uint64_t start,
			 struct ck *k, size_t *len_out)
{
	uint8_t *buf;
	size_t len;

	ck_init(k, 7, "redis", zone, 0, CAP);
	OK(zns_manifest_pack(&a->m, m->dev.geo.block_size, zone, start, &buf, &len, &k->ref, NULL));
	assert_int_equal((uintptr_t)buf % 4096, 0);
	assert_int_equal(len % m->dev.geo.block_size, 0);
	assert_int_equal(len,
			 zns_align_up(k->ref.len, m->dev.geo.block_size) + m->dev.geo.block_size);
	assert_int_equal(k->ref.zone, zone);
	assert_int_equal(k->ref.start, start);
	assert_true(k->ref.hash == zns_hash(buf, k->ref.len));
	assert_int_equal(m->z[zone].wp, start);
	OK(zns_dev_write(&m->dev, zone, start, buf, len, NULL));
	free(buf);
	if (len_out)
		*len_out = len;
}

/* Only a manifest that an older program must refuse has the newer version. */
static void version(void **state)
{
	for (uint8_t v = 1; v <= ZNS_MANIFEST_VERSION; v++) {
		ZnsPb__ExtentRef ref;
		struct man a;
		uint8_t *buf;
		size_t len;

		man_init(&a);
		a.img[2].has_piece = v == ZNS_MANIFEST_VERSION;
		a.img[2].piece = ZNS_PIECE;
		OK(zns_manifest_pack(&a.m, 4096, 4, 0, &buf, &len, &ref, NULL));
		assert_int_equal(buf[10], v);
		assert_int_equal(buf[len - 4096 + 10], ZNS_FRAME_VERSION); /* the footer */
		free(buf);
	}
}

static void round_trip(void **state)
{
	static const uint32_t blocks[] = { 512, 4096 };

	for (size_t b = 0; b < 2; b++) {
		struct memdev *m = memdev_new(NZ, CAP, blocks[b]);
		ZnsPb__Manifest *r;
		ZnsPb__Footer *f;
		struct man a;
		struct ck k;
		size_t len, len2;

		man_init(&a);
		put_manifest(m, &a, 4, 0, &k, &len);
		OK(zns_manifest_read(&m->dev, &k.c, &r, NULL));
		assert_int_equal(r->n_images, 3);
		assert_string_equal(r->images[0]->name, "pages-1.img");
		assert_int_equal(r->images[0]->segments[0]->extents[1]->weight, 2);
		assert_int_equal(r->images[0]->segments[0]->extents[0]->weight, 1);
		assert_int_equal(r->images[0]->n_csums, 21);
		assert_true(r->images[0]->csums[20] == a.csums[20]);
		assert_memory_equal(r->checkpoint->id.data, k.id, ZNS_UUID_LEN);
		zns_pb__manifest__free_unpacked(r, NULL);

		OK(zns_footer_read(&m->dev, 4, len - blocks[b], &f, NULL));
		assert_memory_equal(f->checkpoint.data, k.id, ZNS_UUID_LEN);
		assert_int_equal(f->zone, 4);
		assert_int_equal(f->manifest_start, 0);
		assert_int_equal(f->manifest_len, k.ref.len);
		assert_true(f->manifest_hash == k.ref.hash);
		zns_pb__footer__free_unpacked(f, NULL);

		/* a second one behind it */
		put_manifest(m, &a, 4, len, &k, &len2);
		OK(zns_manifest_read(&m->dev, &k.c, &r, NULL));
		zns_pb__manifest__free_unpacked(r, NULL);
		OK(zns_footer_read(&m->dev, 4, len + len2 - blocks[b], &f, NULL));
		assert_int_equal(f->manifest_start, len);
		zns_pb__footer__free_unpacked(f, NULL);
		/* the manifest */
		assert_int_equal(zns_footer_read(&m->dev, 4, 0, &f, NULL), -ENODATA);
		assert_int_equal(zns_footer_read(&m->dev, 4, len + len2, &f, NULL), -ENODATA);
		assert_int_equal(zns_footer_read(&m->dev, 4, 100, &f, NULL), -EINVAL);
		assert_int_equal(zns_footer_read(&m->dev, NZ, 0, &f, NULL), -EINVAL);
		assert_int_equal(zns_footer_read(&m->dev, 4, CAP, &f, NULL), -EINVAL);
		m->z[4].data[len + len2 - blocks[b] + 50] ^= 1;
		assert_int_equal(zns_footer_read(&m->dev, 4, len + len2 - blocks[b], &f, NULL),
				 -EBADMSG);
		memdev_close(&m->dev);
	}
}

static void every_byte(void **state)
{
	struct memdev *m = memdev_new(NZ, CAP, 4096);
	struct zns_err err = ZNS_ERR_INIT;
	ZnsPb__Manifest *r;
	struct man a;
	struct ck k;

	man_init(&a);
	put_manifest(m, &a, 4, 0, &k, NULL);
	for (uint64_t i = 0; i < k.ref.len; i++) {
		uint8_t *cut = malloc(i ? i : 1);

		m->z[4].data[i] ^= 1 << (i % 8);
		assert_int_equal(zns_manifest_read(&m->dev, &k.c, &r, &err), -EBADMSG);
		m->z[4].data[i] ^= 1 << (i % 8);
		memcpy(cut, m->z[4].data, i);
		assert_int_equal(zns_manifest_parse(cut, i, &m->dev.geo, &r, NULL), -EBADMSG);
		free(cut);
	}
	OK(zns_manifest_read(&m->dev, &k.c, &r, NULL));
	zns_pb__manifest__free_unpacked(r, NULL);
	memdev_close(&m->dev);
}

/* Records that point to the wrong place. */
static void wrong_reference(void **state)
{
	struct memdev *m = memdev_new(NZ, CAP, 4096);
	struct zns_err err = ZNS_ERR_INIT;
	ZnsPb__Manifest *r;
	struct man a;
	struct ck k, good;

	man_init(&a);
	put_manifest(m, &a, 4, 0, &good, NULL);
	for (int what = 0; what < 14; what++) {
		k = good;
		k.c.manifest = &k.ref;
		k.c.id.data = k.id;
		switch (what) {
		case 0:
			k.c.manifest = NULL;
			break;
		case 1:
			k.ref.zone = 2;
			break;
		case 2:
			k.ref.zone = NZ;
			break;
		case 3:
			k.ref.zone = UINT32_MAX;
			break;
		case 4:
			k.ref.len = CAP + 1;
			break;
		case 5:
			k.ref.len = UINT64_MAX;
			break;
		case 6:
			k.ref.start = UINT64_MAX - 4095;
			break;
		case 7:
			k.ref.start = 512;
			break;
		case 8:
			k.ref.len = 48;
			break;
		case 9:
			k.ref.len--;
			break;
		case 10:
			k.ref.hash++;
			break;
		case 11:
			k.ref.zone = 5;
			break; /* an empty zone in the record: it could be reset */
		case 12:
			k.id[3] ^= 1;
			break; /* the manifest of another checkpoint */
		case 13:
			k.c.id.len = 3;
			break;
		}
		assert_int_equal(zns_manifest_read(&m->dev, &k.c, &r, &err), -EBADMSG);
	}
	m->z[4].forced = ZNS_ZONE_OFFLINE;
	assert_int_equal(zns_manifest_read(&m->dev, &good.c, &r, &err), -ENXIO);
	memdev_close(&m->dev);
}

static void check(struct man *a, int expect, int what)
{
	struct zns_geometry geo = {
		.nr_zones = NZ, .block_size = 4096, .zone_size = CAP, .zone_capacity = CAP
	};
	struct zns_err err = ZNS_ERR_INIT;
	int rc = zns_manifest_check(&a->m, &geo, &err);

	if (rc != expect)
		fail_msg("case %d: %d %s", what, rc, err.msg);
}

/* What stands before the log on a drive with conventional zones is no place for data. */
static void check_conventional(void **state)
{
	struct zns_geometry geo = {
		.nr_zones = NZ, .block_size = 4096, .zone_size = CAP, .zone_capacity = CAP
	};
	struct zns_err err = ZNS_ERR_INIT;
	uint32_t first = NZ;
	struct man a;

	man_init(&a);
	for (size_t i = 0; i < a.m.n_images; i++)
		for (size_t s = 0; s < a.m.images[i]->n_segments; s++)
			for (size_t e = 0; e < a.m.images[i]->segments[s]->n_extents; e++)
				first = zns_min(first,
						a.m.images[i]->segments[s]->extents[e]->zone);
	for (size_t i = 0; i < a.m.checkpoint->n_zones; i++)
		first = zns_min(first, a.m.checkpoint->zones[i]->zone);
	geo.nr_conventional = first - zns_store_meta_zones(&geo);
	assert_int_equal(zns_manifest_check(&a.m, &geo, &err), 0);
	geo.nr_conventional++;
	assert_int_equal(zns_manifest_check(&a.m, &geo, &err), -EBADMSG);
}

#define PIECES_V1 ((20 * UNIT + 100 + ZNS_PIECE_V1 - 1) / ZNS_PIECE_V1)
#define PIECES ((20 * UNIT + 100 + ZNS_PIECE - 1) / ZNS_PIECE)

static void pieces(struct man *a, uint32_t piece, size_t sum_bytes)
{
	a->img[0].has_piece = a->img[0].has_piece_sums = 1;
	a->img[0].piece = piece;
	a->img[0].piece_sums = (ProtobufCBinaryData){ sum_bytes, (uint8_t *)a->csums };
}

static void check_limits(void **state)
{
	struct man a;

	man_init(&a);
	check(&a, 0, -1);
	for (int what = 0; what < 60; what++) {
		int expect = -EBADMSG;

		man_init(&a);
		switch (what) {
		case 0:
			a.m.device.len = 1;
			break;
		case 1:
			a.k.c.id.len = 1;
			break;
		case 2:
			a.img[0].name = (char *)"";
			break;
		case 3:
			a.img[0].name = (char *)"a/b";
			break;
		case 4:
			a.img[0].name = (char *)"..";
			break;
		case 5:
			a.img[0].name = (char *)".";
			break;
		case 6:
			a.img[1].name = a.img[0].name;
			break;
		case 7:
			a.img[0].unit = 0;
			break;
		case 8:
			a.img[0].unit = UNIT + 512;
			break;
		case 9:
			a.img[0].unit = 2 * ZNS_STRIPE_UNIT_MAX;
			break;
		case 10:
			a.img[0].unit = KIB(4);
			a.img[0].n_csums = 321;
			break;
		case 11:
			a.img[1].unit = 4096;
			expect = 0;
			break; /* packed */
		case 12:
			a.img[0].n_csums = 20;
			break;
		case 13:
			a.img[0].n_csums = 22;
			break;
		case 14:
			a.img[2].n_csums = 1;
			a.img[2].csums = a.csums;
			break;
		case 15:
			a.img[2].segments = a.segp;
			a.img[2].n_segments = 1;
			break;
		case 16:
			a.img[0].n_segments = 1;
			break; /* does not cover */
		case 17:
			a.img[0].n_segments = 0;
			break;
		case 18:
			a.seg[0].off = UNIT;
			break;
		case 19:
			a.seg[1].off += UNIT;
			break; /* gap */
		case 20:
			a.seg[1].off -= UNIT;
			break; /* overlap */
		case 21:
			a.seg[0].len = 0;
			break;
		case 22:
			a.seg[0].len = UINT64_MAX;
			break;
		case 23:
			a.seg[1].len++;
			break;
		case 24:
			a.seg[1].len--;
			break;
		case 25:
			a.seg[0].len -= 4096;
			a.seg[1].off -= 4096;
			a.seg[1].len += 4096;
			break; /* off grid */
		case 26:
			a.seg[0].n_extents = 0;
			break;
		case 27:
			a.ext[0].zone = 2;
			break;
		case 28:
			a.ext[0].zone = NZ;
			break;
		case 29:
			a.ext[0].weight = 0;
			break;
		case 30:
			a.ext[0].weight = 17;
			break;
		case 31:
			a.ext[0].start = 100;
			break;
		case 32:
			a.ext[0].start = UINT64_MAX - 4095;
			break;
		/* Extent 0 takes 4 of 16 units, extent 1 takes 8, extent 3 four and 100 bytes. */
		case 33:
			a.ext[0].start = CAP - 4 * UNIT;
			expect = 0;
			break;
		case 34:
			a.ext[0].start = CAP - 4 * UNIT + 4096;
			break;
		case 35:
			a.ext[1].start = CAP - 8 * UNIT;
			expect = 0;
			break;
		case 36:
			a.ext[1].start = CAP - 8 * UNIT + 4096;
			break;
		case 37:
			a.ext[3].start = CAP - 4 * UNIT - 4096;
			expect = 0;
			break;
		case 38:
			a.ext[3].start = CAP - 4 * UNIT;
			break;
		case 39:
			a.ext[4].start = CAP - 777;
			expect = 0;
			break;
		case 40:
			a.ext[4].start = CAP - 776;
			break;
		case 41:
			a.img[0].size = UINT64_MAX;
			break;
		case 42:
			a.m.n_images = 0;
			expect = 0;
			break;
		/* checksums of pieces: of some, of all, of one too many; of units that are not made
		 * of pieces */
		case 43:
			a.img[0].piece_csums = a.csums;
			a.img[0].n_piece_csums = 7;
			expect = 0;
			break;
		case 44:
			a.img[0].piece_csums = a.csums;
			a.img[0].n_piece_csums = PIECES_V1;
			expect = 0;
			break;
		case 45:
			a.img[0].piece_csums = a.csums;
			a.img[0].n_piece_csums = PIECES_V1 + 1;
			break;
		case 46:
			a.img[1].unit = 4096;
			a.img[1].piece_csums = a.csums;
			a.img[1].n_piece_csums = 1;
			break;
		/* version 2: checksums of pieces, for none of them, some, all, and one too many */
		case 47:
			pieces(&a, ZNS_PIECE, 0);
			expect = 0;
			break;
		case 48:
			pieces(&a, ZNS_PIECE, 7 * ZNS_SUM_BYTES);
			expect = 0;
			break;
		case 49:
			pieces(&a, ZNS_PIECE, PIECES * ZNS_SUM_BYTES);
			expect = 0;
			break;
		case 50:
			pieces(&a, ZNS_PIECE, (PIECES + 1) * ZNS_SUM_BYTES);
			break;
		case 51:
			pieces(&a, ZNS_PIECE, 7 * ZNS_SUM_BYTES + 1);
			break;
		/* pieces of other sizes, up to those of a unit */
		case 52:
			pieces(&a, UNIT, 21 * ZNS_SUM_BYTES);
			expect = 0;
			break;
		case 53:
			pieces(&a, 2 * UNIT, 11 * ZNS_SUM_BYTES);
			break;
		case 54:
			pieces(&a, 0, 0);
			break;
		case 55:
			pieces(&a, ZNS_PIECE / 2, 0);
			break;
		case 56:
			pieces(&a, 3 * ZNS_PIECE, 0);
			break;
		case 57:
			pieces(&a, 1u << 31, 0);
			break;
		/* of both versions, or of none */
		case 58:
			pieces(&a, ZNS_PIECE, 0);
			a.img[0].piece_csums = a.csums;
			a.img[0].n_piece_csums = 1;
			break;
		case 59:
			pieces(&a, ZNS_PIECE, 4);
			a.img[0].has_piece = 0;
			break;
		}
		check(&a, expect, what);
	}
}

static void too_many_extents(void **state)
{
	ZnsPb__Extent *many[ZNS_STRIPE_MAX_WIDTH + 1];
	struct man a;

	man_init(&a);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(many); i++)
		many[i] = &a.ext[0];
	a.seg[0].extents = many;
	a.seg[0].n_extents = ZNS_STRIPE_MAX_WIDTH;
	check(&a, 0, 0);
	a.seg[0].n_extents = ZNS_STRIPE_MAX_WIDTH + 1;
	check(&a, -EBADMSG, 1);
}

static void pack_refusals(void **state)
{
	ZnsPb__ExtentRef ref;
	uint8_t *buf;
	size_t len;
	struct man a;

	man_init(&a);
	assert_int_equal(zns_manifest_pack(&a.m, 0, 4, 0, &buf, &len, &ref, NULL), -EINVAL);
	assert_int_equal(zns_manifest_pack(&a.m, 64, 4, 0, &buf, &len, &ref, NULL), -EINVAL);
	a.k.c.id.len = 4;
	assert_int_equal(zns_manifest_pack(&a.m, 4096, 4, 0, &buf, &len, &ref, NULL), -EINVAL);
}

/* Together with the store: what the catalogue returns leads to the manifest. */
static void through_the_store(void **state)
{
	struct memdev *m = memdev_new(NZ, CAP, 4096);
	ZnsPb__Profile *p = make_profile(NZ, 2);
	struct zns_store *s;
	ZnsPb__Manifest *r;
	struct man a;
	struct ck k;

	OK(zns_store_format(&m->dev, NULL, p, false, NULL, NULL));
	man_init(&a);
	put_manifest(m, &a, 6, 0, &k, NULL);
	OK(zns_store_open(&m->dev, 0, &s, NULL));
	OK(zns_store_commit(s, &k.c, NULL));
	zns_store_close(s);
	OK(zns_store_open(&m->dev, ZNS_STORE_RDONLY, &s, NULL));
	OK(zns_manifest_read(&m->dev, zns_store_checkpoint(s, 0), &r, NULL));
	assert_int_equal(r->n_images, 3);
	zns_pb__manifest__free_unpacked(r, NULL);
	zns_store_close(s);
	profile_free(p);
	memdev_close(&m->dev);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trip),        cmocka_unit_test(version),
		cmocka_unit_test(every_byte),        cmocka_unit_test(wrong_reference),
		cmocka_unit_test(check_limits),      cmocka_unit_test(check_conventional),
		cmocka_unit_test(too_many_extents),  cmocka_unit_test(pack_refusals),
		cmocka_unit_test(through_the_store),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
