/* SPDX-License-Identifier: GPL-2.0-only */
/* Streams of checkpoints: there and back, every cut, every flipped byte, every frame lost, twice or
 * of another stream. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "zns/layout.h"
#include "zns/stream.h"

#define FRAMES_MAX 32

static const struct zns_geometry geo = {
	.nr_zones = 64, .block_size = 4096, .zone_size = MIB(64), .zone_capacity = MIB(48)
};
static const uint8_t device[ZNS_UUID_LEN] = "the very device";

struct bytes {
	uint8_t *p;
	size_t len, at;
	size_t frame[FRAMES_MAX + 1]; /* where each begins */
	uint32_t nr;
};

static int give(void *arg, void *buf, size_t len, struct zns_err *err)
{
	struct bytes *b = arg;

	assert_true(b->nr < FRAMES_MAX);
	b->p = realloc(b->p, b->len + len);
	b->frame[b->nr++] = b->len;
	memcpy(b->p + b->len, buf, len);
	b->len += len;
	b->frame[b->nr] = b->len;
	return 0;
}

static int take(void *arg, void *buf, size_t len, struct zns_err *err)
{
	struct bytes *b = arg;

	if (len > b->len - b->at)
		return -ENODATA;
	memcpy(buf, b->p + b->at, len);
	b->at += len;
	return 0;
}

/* A checkpoint of one image, encrypted if it has a key. */
struct made {
	ZnsPb__Checkpoint c;
	ZnsPb__CheckpointKey key;
	ZnsPb__Manifest m;
	ZnsPb__Image image, *list;
	ZnsPb__ZoneUse use, *uses;
	ZnsPb__ExtentRef place;
	uint64_t csum;
	uint8_t id[ZNS_UUID_LEN], bytes[64];
};

static void make(struct made *x, uint8_t nr, bool encrypted)
{
	memset(x, 0, sizeof(*x));
	memset(x->id, nr, sizeof(x->id));
	zns_pb__checkpoint__init(&x->c);
	zns_pb__checkpoint_key__init(&x->key);
	zns_pb__manifest__init(&x->m);
	zns_pb__image__init(&x->image);
	zns_pb__zone_use__init(&x->use);
	zns_pb__extent_ref__init(&x->place);
	x->c.id = (ProtobufCBinaryData){ ZNS_UUID_LEN, x->id };
	x->c.container = (char *)"web";
	x->c.created_ns = 5;
	x->c.bytes = 1000;
	x->c.nr_images = 1;
	x->c.has_stripe_unit = 1;
	x->c.stripe_unit = 65536;
	x->uses = &x->use;
	x->c.zones = &x->uses;
	x->c.n_zones = 1;
	x->c.manifest = &x->place;
	x->image.name = (char *)"a.img";
	x->image.size = 1000;
	x->image.unit = 65536;
	x->image.csums = &x->csum;
	x->image.n_csums = 1;
	x->list = &x->image;
	x->m.images = &x->list;
	x->m.n_images = 1;
	x->m.checkpoint = &x->c;
	if (!encrypted)
		return;
	x->key.cipher = 1;
	x->key.has_key_id = x->key.has_wrapped = 1;
	x->key.key_id = (ProtobufCBinaryData){ 8, x->bytes };
	x->key.wrapped = (ProtobufCBinaryData){ 60, x->bytes };
	x->c.crypt = &x->key;
	x->image.has_tags = x->m.has_seal = 1;
	x->image.tags = x->m.seal = (ProtobufCBinaryData){ 16, x->bytes };
}

/* Writes two checkpoints; the second one is aborted. */
static void write_stream(struct bytes *b)
{
	struct zns_stream s = { .io = give, .arg = b };
	ZnsPb__Retention rule = ZNS_PB__RETENTION__INIT, *rules = &rule;
	struct made x;

	rule.container = (char *)"web";
	assert_int_equal(zns_stream_start(&s, device, NULL), 0);
	make(&x, 1, true);
	assert_int_equal(zns_stream_put(&s, &x.c, &x.m, true, NULL), 0);
	memset(zns_stream_room(&s), 7, 1000);
	assert_int_equal(zns_stream_data(&s, 1000, NULL), 0);
	assert_int_equal(zns_stream_done(&s, NULL), 0);
	make(&x, 2, false);
	assert_int_equal(zns_stream_put(&s, &x.c, &x.m, false, NULL), 0);
	assert_int_equal(zns_stream_drop(&s, "its unit 0 is damaged", NULL), 0);
	assert_int_equal(zns_stream_finish(&s, &rules, 1, NULL), 0);
	zns_stream_fini(&s);
}

/* How it ends: 0, or -errno; *items: checkpoints that were whole. */
static int read_stream(struct bytes *b, uint32_t *items)
{
	struct zns_stream s = { .io = take, .arg = b };
	int type;

	b->at = 0;
	*items = 0;
	do {
		type = zns_stream_next(&s, NULL);
		*items += type == ZNS_FRAME_STREAM_DONE;
	} while (type > 0 && type != ZNS_FRAME_STREAM_END);
	zns_stream_fini(&s);
	return type < 0 ? type : 0;
}

static void there_and_back(void **state)
{
	struct bytes b = { 0 };
	struct zns_stream s = { .io = take, .arg = &b };
	ZnsPb__Manifest *m;
	struct zns_err err;

	write_stream(&b);
	assert_int_equal(zns_stream_next(&s, NULL), ZNS_FRAME_STREAM_BEGIN);
	assert_memory_equal(s.begin->device.data, device, ZNS_UUID_LEN);
	assert_int_equal(zns_stream_next(&s, NULL), ZNS_FRAME_STREAM_ITEM);
	assert_int_equal(s.item->record->created_ns, 5);
	assert_int_equal(s.item->record->n_zones, 0);
	assert_null(s.item->record->manifest);
	assert_true(s.item->pinned);
	assert_int_equal(zns_stream_next(&s, NULL), ZNS_FRAME_STREAM_IMAGES);
	assert_int_equal(zns_stream_images(&s, &geo, &m, NULL), 0);
	assert_string_equal(m->images[0]->name, "a.img");
	assert_int_equal(m->checkpoint->crypt->wrapped.len, 60);
	zns_pb__manifest__free_unpacked(m, NULL);
	assert_int_equal(zns_stream_next(&s, NULL), ZNS_FRAME_STREAM_DATA);
	assert_int_equal(s.f.len, 1000);
	assert_int_equal(s.f.payload[999], 7);
	assert_int_equal(zns_stream_next(&s, NULL), ZNS_FRAME_STREAM_DONE);
	assert_int_equal(zns_stream_next(&s, NULL), ZNS_FRAME_STREAM_ITEM);
	assert_int_equal(zns_stream_next(&s, NULL), ZNS_FRAME_STREAM_IMAGES);
	assert_int_equal(zns_stream_images(&s, &geo, &m, NULL), 0);
	assert_null(m->checkpoint->crypt);
	zns_pb__manifest__free_unpacked(m, NULL);
	assert_int_equal(zns_stream_next(&s, NULL), ZNS_FRAME_STREAM_DROP);
	assert_memory_equal(s.f.payload, "its unit 0", 10);
	assert_int_equal(zns_stream_next(&s, NULL), ZNS_FRAME_STREAM_END);
	assert_int_equal(s.end->n_rules, 1);
	zns_fail(&err, 0, "none");
	assert_int_equal(zns_stream_next(&s, &err), -EBADMSG); /* nothing may follow */
	zns_stream_fini(&s);
	free(b.p);
}

static void every_cut(void **state)
{
	struct bytes b = { 0 };
	uint32_t items;
	size_t len;

	write_stream(&b);
	len = b.len;
	for (b.len = 0; b.len < len; b.len++) {
		assert_int_equal(read_stream(&b, &items),
				 b.len < ZNS_FRAME_HDR ? -ENODATA : -EBADMSG);
		assert_true(!items || b.len >= b.frame[5]);
	}
	assert_int_equal(read_stream(&b, &items), 0);
	assert_int_equal(items, 1);
	free(b.p);
}

static void every_byte(void **state)
{
	struct bytes b = { 0 };
	uint32_t items;

	write_stream(&b);
	for (size_t at = 0; at < b.len; at++) {
		b.p[at] ^= 0x10;
		assert_true(read_stream(&b, &items) < 0);
		b.p[at] ^= 0x10;
	}
	free(b.p);
}

/* @b without its frame @n, and with the frame @n of @other in its place (NULL: with none). */
static void replace(struct bytes *b, uint32_t n, const struct bytes *other, uint32_t times)
{
	size_t len = other ? other->frame[n + 1] - other->frame[n] : 0;
	uint8_t *p = malloc(b->len + times * len);
	size_t at = b->frame[n];

	memcpy(p, b->p, at);
	for (uint32_t i = 0; other && i < times; i++, at += len)
		memcpy(p + at, other->p + other->frame[n], len);
	memcpy(p + at, b->p + b->frame[n + 1], b->len - b->frame[n + 1]);
	at += b->len - b->frame[n + 1];
	free(b->p);
	b->p = p;
	b->len = at;
}

static void every_frame(void **state)
{
	struct bytes other = { 0 };
	uint32_t items;

	write_stream(&other);
	for (uint32_t n = 0; n < other.nr; n++)
		for (int what = 0; what < 3; what++) {
			struct bytes b = { 0 };

			write_stream(&b);
			if (what)
				replace(&b, n, what == 1 ? &b : &other, what == 1 ? 2 : 1);
			else
				replace(&b, n, NULL, 0);
			/* behind the end nothing is read */
			if (what == 1 && n == b.nr - 1)
				assert_int_equal(read_stream(&b, &items), 0);
			else
				assert_true(read_stream(&b, &items) < 0);
			/* it is found when it comes: the first checkpoint is whole with frame 4 */
			assert_int_equal(items, n > 4 || (what == 1 && n == 4));
			free(b.p);
		}
	free(other.p);
}

/* The stream's end has a wrong hash, or a wrong number of checkpoints. */
static void the_end(void **state)
{
	for (int what = 0; what < 3; what++) {
		struct bytes b = { 0 };
		struct zns_stream s = { .io = give, .arg = &b };
		uint32_t items;

		assert_int_equal(zns_stream_start(&s, device, NULL), 0);
		s.hash += what == 1;
		s.items += what == 2;
		assert_int_equal(zns_stream_finish(&s, NULL, 0, NULL), 0);
		assert_int_equal(read_stream(&b, &items), what ? -EBADMSG : 0);
		zns_stream_fini(&s);
		free(b.p);
	}
}

/* One field of a frame is another: the frame bears the right checksums. */
static int forged(void (*forge)(struct made *x), bool encrypted)
{
	struct bytes b = { 0 };
	struct zns_stream w = { .io = give, .arg = &b }, r = { .io = take, .arg = &b };
	struct made x, y;
	ZnsPb__Manifest *m;
	int ret;

	make(&x, 1, encrypted);
	make(&y, 1, encrypted);
	forge(&y);
	assert_int_equal(zns_stream_start(&w, device, NULL), 0);
	assert_int_equal(zns_stream_put(&w, &y.c, &x.m, false, NULL), 0);
	zns_stream_fini(&w);
	assert_int_equal(zns_stream_next(&r, NULL), ZNS_FRAME_STREAM_BEGIN);
	ret = zns_stream_next(&r, NULL);
	if (ret > 0)
		ret = zns_stream_next(&r, NULL);
	if (ret > 0)
		ret = zns_stream_images(&r, &geo, &m, NULL);
	assert_true(ret < 0);
	zns_stream_fini(&r);
	free(b.p);
	return ret;
}

static void other_id(struct made *x)
{
	x->id[3] ^= 1;
}

static void other_size(struct made *x)
{
	x->c.bytes++;
}

static void no_key(struct made *x)
{
	x->c.crypt = NULL;
}

static void odd_key(struct made *x)
{
	x->key.wrapped.len = 59;
}

static void no_name(struct made *x)
{
	x->c.container = (char *)"";
}

static void short_id(struct made *x)
{
	x->c.id.len = 15;
}

static void a_parent(struct made *x)
{
	x->c.has_parent = 1;
	x->c.parent = x->c.id;
}

static void records(void **state)
{
	static void (*const forge[])(struct made *) = { other_id, other_size, no_key,  odd_key,
							no_name,  short_id,   a_parent };

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(forge); i++) {
		int ret = forged(forge[i], true);

		assert_true(ret == -EBADMSG || ret == -ENOKEY);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(there_and_back), cmocka_unit_test(every_cut),
		cmocka_unit_test(every_byte),     cmocka_unit_test(every_frame),
		cmocka_unit_test(the_end),        cmocka_unit_test(records),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
