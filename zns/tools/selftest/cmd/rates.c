/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Measures how fast one zone is, and whether a flush takes the time that it must: after a small
 * write, it cannot return before the flash has the data, at the sustained rate of the zone. If it
 * does, either the drive's cache survives a power cut, or the flush lies. Only a power cut shows
 * which.
 */
#include <stdlib.h>
#include <string.h>

#include "selftest.h"
#include "zns/emu.h"

#define PIECE KIB(128) /* bytes; fits into any drive's buffer */
#define TRIES 9

/*
 * The shortest time of a write of PIECE and its flush, in the device's own time: a busy machine
 * only adds to it.
 */
static int write_and_flush(struct zns_dev *d, uint32_t zone, uint64_t piece, uint64_t *out_ns,
			   struct zns_err *err)
{
	cleanup_free uint8_t *buf = aligned_alloc(65536, PIECE);
	uint64_t x = 88172645463325252u;
	int ret = buf ? 0 : zns_fail(err, -ENOMEM, "no memory for a buffer");

	/* random data, which a drive cannot compress */
	for (size_t i = 0; !ret && i + 8 <= PIECE; i += 8) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(buf + i, &x, 8);
	}
	for (unsigned int i = 0; i < TRIES && !ret; i++) {
		uint64_t begin, at = i * piece, end = at + piece;

		ret = zns_dev_flush(d, err);
		begin = zns_dev_now_ns(d);
		while (!ret && at < end) {
			size_t n = zns_min(end - at, (uint64_t)d->geo.max_io_bytes);

			ret = zns_dev_write(d, zone, at, buf, n, err);
			at += n;
		}
		if (!ret)
			ret = zns_dev_flush(d, err);
		*out_ns = zns_min(*out_ns, zns_dev_now_ns(d) - begin);
	}
	return ret;
}

static void check_flush(struct selftest *s, struct zns_dev *d, uint32_t zone)
{
	uint64_t piece = zns_min((uint64_t)PIECE, d->geo.zone_capacity / TRIES) /
			 d->geo.block_size * d->geo.block_size;
	double needs_ms, took_ms;
	struct zns_err err = ZNS_ERR_INIT;
	uint64_t ns = UINT64_MAX;
	int ret = piece ? write_and_flush(d, zone, piece, &ns, &err) :
			  zns_fail(&err, -EINVAL, "its zones are too small to measure their rates");

	zns_dev_reset(d, &zone, 1, NULL);
	if (ret) {
		st_say(s, ST_FAILED, "flush", "%s", err.msg);
		return;
	}
	took_ms = (double)ns / 1e6;
	needs_ms = (double)piece / MIB(1) / s->zone_write_mibps * 1e3;
	if (took_ms >= needs_ms / 2)
		st_say(s, ST_OK, "flush",
		       "%llu KiB are written and flushed in %.2f ms; the flash needs %.2f",
		       (unsigned long long)piece >> 10, took_ms, needs_ms);
	else
		st_say(s, ST_DOUBT, "flush",
		       "%llu KiB are written and flushed in %.2f ms, though the flash needs %.2f: right where the cache survives a power cut, and else a flush that lies. Only a power cut tells",
		       (unsigned long long)piece >> 10, took_ms, needs_ms);
}

void st_rates(struct selftest *s, struct zns_dev *d)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_emu_params p;
	uint32_t zone;
	int ret;

	if (!zns_emu_info(d, &p, NULL)) {
		if (!p.timing) {
			st_say(s, ST_NOT_RUN, "rates", "this emulator has no timing model");
			st_say(s, ST_NOT_RUN, "flush", "this emulator has no timing model");
			return;
		}
		zns_emu_set_clock(d, ZNS_EMU_CLOCK_THREAD, &err);
	}
	ret = ctl_measure_zone(d, &zone, &s->zone_write_mibps, &s->zone_read_mibps, &err);
	if (ret || !s->zone_write_mibps) {
		st_say(s, ST_FAILED, "rates", "%s", ret ? err.msg : "a zone takes for ever");
		return;
	}
	st_say(s, ST_OK, "rates", "one zone alone: %u MiB/s written, %u MiB/s read",
	       s->zone_write_mibps, s->zone_read_mibps);
	check_flush(s, d, zone);
}
