/* SPDX-License-Identifier: GPL-2.0-only */
/* Frames: round trips, every truncation, every flipped bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <xxhash.h>
#include "zns/frame.h"
#include "zns/util.h"

static size_t make(uint8_t *out, uint32_t len, size_t align, uint16_t version)
{
	uint8_t payload[4096];
	struct zns_frame f = { .type = ZNS_FRAME_CHECKPOINT,
			       .version = version,
			       .generation = 7,
			       .seq = 1234567890123,
			       .payload = payload,
			       .len = len };

	for (uint32_t i = 0; i < len; i++)
		payload[i] = (uint8_t)(i * 31 + 7);
	zns_frame_pack(&f, align, out);
	return zns_frame_size(len, align);
}

static void round_trip(void **state)
{
	static const uint32_t lens[] = { 0, 1, 47, 48, 463, 464, 465, 4047, 4048 };
	static const size_t aligns[] = { 1, 512, 4096 };
	uint8_t buf[8192];

	for (size_t a = 0; a < ZNS_ARRAY_SIZE(aligns); a++)
		for (size_t i = 0; i < ZNS_ARRAY_SIZE(lens); i++) {
			struct zns_frame f;
			size_t n;

			memset(buf, 0xee, sizeof(buf));
			n = make(buf, lens[i], aligns[a], 0);
			assert_int_equal(n % aligns[a], 0);
			assert_true(n >= ZNS_FRAME_HDR + lens[i] &&
				    n < ZNS_FRAME_HDR + lens[i] + aligns[a]);
			for (size_t k = ZNS_FRAME_HDR + lens[i]; k < n; k++)
				assert_int_equal(buf[k], 0);
			if (n < sizeof(buf))
				assert_int_equal(buf[n], 0xee);
			assert_int_equal(zns_frame_parse(buf, n, &f, NULL), 0);
			assert_int_equal(f.type, ZNS_FRAME_CHECKPOINT);
			assert_int_equal(f.version, ZNS_FRAME_VERSION);
			assert_int_equal(f.generation, 7);
			assert_int_equal(f.seq, 1234567890123);
			assert_int_equal(f.len, lens[i]);
			assert_ptr_equal(f.payload, buf + ZNS_FRAME_HDR);
			for (uint32_t k = 0; k < f.len; k++)
				assert_int_equal(f.payload[k], (uint8_t)(k * 31 + 7));
		}
}

static void layout(void **state)
{
	uint8_t buf[512], copy[64];
	uint64_t hash;

	make(buf, 3, 1, 0);
	assert_memory_equal(buf, "ZNSCRIU1", 8);
	assert_int_equal(buf[8], ZNS_FRAME_CHECKPOINT);
	assert_int_equal(buf[10], 1);
	assert_int_equal(buf[12], 3);
	assert_int_equal(buf[16], 7);
	memcpy(&hash, buf + 40, 8);
	memcpy(copy, buf, 51);
	memset(copy + 40, 0, 8);
	assert_true(hash == XXH3_64bits(copy, 51));
	assert_true(hash == zns_hash(copy, 51));
}

static void in_place(void **state)
{
	uint8_t a[512], b[512];
	struct zns_frame f = { .type = 3, .payload = b + ZNS_FRAME_HDR, .len = 100 };

	memset(b, 0x33, sizeof(b));
	zns_frame_pack(&f, 512, b);
	memset(a, 0x33, sizeof(a));
	f.payload = a + 200;
	zns_frame_pack(&f, 512, a);
	assert_memory_equal(a, b, 512);
}

static void truncation(void **state)
{
	uint8_t buf[1024];
	size_t n = make(buf, 300, 1, 0);

	for (size_t len = 0; len < n; len++) {
		/* An exact allocation, so that the sanitizer sees a read past the end. */
		uint8_t *cut = malloc(len ? len : 1);
		struct zns_frame f;

		memcpy(cut, buf, len);
		assert_int_equal(zns_frame_parse(cut, len, &f, NULL),
				 len < 8 ? -ENODATA : -EBADMSG);
		free(cut);
	}
}

static void every_bit(void **state)
{
	uint8_t buf[1024];
	struct zns_frame f;
	size_t n = make(buf, 300, 1, 0);

	for (size_t i = 0; i < n * 8; i++) {
		int rc;

		buf[i / 8] ^= 1 << (i % 8);
		rc = zns_frame_parse(buf, n, &f, NULL);
		assert_int_equal(rc, i < 64 ? -ENODATA : -EBADMSG);
		buf[i / 8] ^= 1 << (i % 8);
	}
	for (size_t i = 0; i < n; i++) {
		buf[i] = ~buf[i];
		assert_int_not_equal(zns_frame_parse(buf, n, &f, NULL), 0);
		buf[i] = ~buf[i];
	}
	assert_int_equal(zns_frame_parse(buf, n, &f, NULL), 0);
}

static void rehash(uint8_t *buf, size_t n)
{
	uint64_t h;

	memset(buf + 40, 0, 8);
	h = zns_hash(buf, n);
	memcpy(buf + 40, &h, 8);
}

static void versions_and_lengths(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_frame f;
	uint8_t buf[512];
	size_t n = make(buf, 64, 1, 2);

	assert_int_equal(zns_frame_parse(buf, n, &f, &err), -EPROTONOSUPPORT);
	assert_non_null(strstr(err.msg, "newer"));
	/* manifests have a version of their own */
	for (uint16_t v = 1; v < 4; v++) {
		struct zns_frame m = { .type = ZNS_FRAME_MANIFEST, .version = v };

		zns_frame_pack(&m, 1, buf);
		assert_int_equal(zns_frame_parse(buf, ZNS_FRAME_HDR, &f, &err),
				 v > ZNS_MANIFEST_VERSION ? -EPROTONOSUPPORT : 0);
		assert_int_equal(f.version, v);
	}
	make(buf, 64, 1, 0);
	buf[10] = 0;
	rehash(buf, n);
	assert_int_equal(zns_frame_parse(buf, n, &f, NULL), -EBADMSG);
	make(buf, 64, 1, 0);
	buf[39] = 1;
	rehash(buf, n);
	assert_int_equal(zns_frame_parse(buf, n, &f, NULL), -EBADMSG);
	make(buf, 64, 1, 0);
	memset(buf + 12, 0xff, 4);
	assert_int_equal(zns_frame_parse(buf, n, &f, NULL), -EBADMSG);
	make(buf, 64, 512, 0);
	/* Padding is not covered by the hash. */
	assert_int_equal(zns_frame_parse(buf, 512, &f, NULL), 0);
	memset(buf, 0, sizeof(buf));
	assert_int_equal(zns_frame_parse(buf, 512, &f, NULL), -ENODATA);
	assert_int_equal(zns_frame_parse(buf, 0, &f, NULL), -ENODATA);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trip), cmocka_unit_test(layout),
		cmocka_unit_test(in_place),   cmocka_unit_test(truncation),
		cmocka_unit_test(every_bit),  cmocka_unit_test(versions_and_lengths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
