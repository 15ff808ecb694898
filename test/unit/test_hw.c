/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What block devices and NVMe passthrough have in common (zns/dev/hw*.c), on a drive made of memory
 * that can do what no real one does on request: lag behind, put data elsewhere, fail half-way, wear
 * out, vanish.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "../../zns/dev/backends.h"
#include "../../zns/dev/hw_priv.h"

#define NR 16
#define BLOCK 4096u
#define CAP KIB(96)
#define SIZE KIB(128)
#define MAX_IO KIB(32)

struct fake {
	struct hw hw;
	struct zns_zone z[NR];
	uint8_t data[NR][CAP];
	bool gone;
	/* a zone that was opened and closed without a write stays active, as QEMU has it */
	bool keeps_closed;
	int refuse_writes; /* number of writes that fail without a reason */
	int write_error, manage_error, flush_error;
	uint32_t manage_error_at;
	int racer; /* number of reports after which another process writes to zone 0 */
	bool half; /* of the next write is done */
	atomic_int in_zone[NR];
	unsigned writes, reads, reports, manages, durable, flushes;
	uint32_t last_first, last_nr;
	size_t last_len;
};

static struct fake *f;
static struct zns_dev *d;
static struct zns_err err;

static int fake_report(struct hw *h, uint32_t first, uint32_t nr, struct zns_zone *out,
		       struct zns_err *why)
{
	if (f->gone)
		return zns_fail(why, -EIO, "no such drive");
	f->reports++;
	memcpy(out, f->z + first, nr * sizeof(*out));
	if (f->racer && !--f->racer)
		f->z[0].wp += BLOCK;
	return 0;
}

static int refusal(uint32_t zone, uint64_t off, size_t len, struct zns_err *why)
{
	struct zns_zone *z = &f->z[zone];

	if (f->gone)
		return zns_fail(why, -EIO, "no such drive");
	if (f->refuse_writes) {
		f->refuse_writes--;
		return zns_fail(why, -EIO, "no reason given");
	}
	if (f->write_error)
		return zns_fail(why, f->write_error, "as it was told");
	if (z->state >= ZNS_ZONE_FULL || z->conventional || off != z->wp || off + len > z->capacity)
		return zns_fail(why, -EIO, "not like this");
	return 0;
}

static int fake_write(struct hw *h, uint32_t zone, uint64_t off, const void *buf, size_t len,
		      struct zns_err *why)
{
	struct zns_zone *z = &f->z[zone];
	int rc;

	assert_int_equal(atomic_fetch_add(&f->in_zone[zone], 1), 0);
	assert_true(len && len <= MAX_IO && len % BLOCK == 0);
	assert_int_equal((uintptr_t)buf % d->geo.mem_align, 0);
	f->writes++;
	f->last_len = len;
	if (f->half && !(f->half = false))
		z->wp += len / 2;
	rc = refusal(zone, off, len, why);
	if (!rc) {
		memcpy(f->data[zone] + off, buf, len);
		z->wp += len;
		z->state = z->wp == CAP                  ? ZNS_ZONE_FULL :
			   z->state == ZNS_ZONE_EXP_OPEN ? z->state :
							   ZNS_ZONE_IMP_OPEN;
	}
	atomic_fetch_sub(&f->in_zone[zone], 1);
	return rc;
}

static int fake_append(struct hw *h, uint32_t zone, const void *buf, size_t len, uint64_t *off,
		       struct zns_err *why)
{
	*off = f->z[zone].wp;
	return fake_write(h, zone, *off, buf, len, why);
}

/* Writes at an offset as NVMe's append does: the data may go elsewhere, which is an error. */
static int fake_write_anywhere(struct hw *h, uint32_t zone, uint64_t off, const void *buf,
			       size_t len, struct zns_err *why)
{
	uint64_t at;
	int rc = fake_append(h, zone, buf, len, &at, why);

	return rc || at == off ? rc :
				 zns_fail(why, -ESTALE, "the data went to offset %llu",
					  (unsigned long long)at);
}

static int fake_write_durable(struct hw *h, uint32_t zone, uint64_t off, const void *buf,
			      size_t len, struct zns_err *why)
{
	f->durable++;
	return fake_write_anywhere(h, zone, off, buf, len, why);
}

static int fake_read(struct hw *h, uint32_t zone, uint64_t off, void *buf, size_t len,
		     struct zns_err *why)
{
	assert_true(len && len <= MAX_IO && len % BLOCK == 0);
	assert_int_equal((uintptr_t)buf % d->geo.mem_align, 0);
	f->reads++;
	if (f->gone || f->z[zone].state == ZNS_ZONE_OFFLINE)
		return zns_fail(why, -EIO, "unreadable");
	memcpy(buf, f->data[zone] + off, len);
	return 0;
}

static int fake_manage(struct hw *h, enum hw_action what, uint32_t first, uint32_t nr,
		       struct zns_err *why)
{
	f->manages++;
	f->last_first = first;
	f->last_nr = nr;
	for (uint32_t i = first; i < first + nr; i++) {
		struct zns_zone *z = &f->z[i];

		if (f->manage_error && i >= f->manage_error_at)
			return zns_fail(why, f->manage_error, "as it was told");
		if (z->conventional || z->state >= ZNS_ZONE_READ_ONLY)
			return zns_fail(why, -EIO, "never");
		switch (what) {
		case HW_RESET:
			z->state = ZNS_ZONE_EMPTY;
			z->wp = 0;
			break;
		case HW_FINISH:
			z->state = ZNS_ZONE_FULL;
			z->wp = CAP;
			break;
		case HW_OPEN:
			if (z->state == ZNS_ZONE_FULL)
				return zns_fail(why, -EIO, "full");
			z->state = ZNS_ZONE_EXP_OPEN;
			break;
		case HW_CLOSE:
			if (!zns_zone_is_active(z->state))
				return zns_fail(why, -EIO, "not open");
			z->state = z->wp || f->keeps_closed ? ZNS_ZONE_CLOSED : ZNS_ZONE_EMPTY;
			break;
		}
	}
	return 0;
}

static int fake_flush(struct hw *h, struct zns_err *why)
{
	f->flushes++;
	if (f->flush_error)
		return zns_fail(why, f->flush_error, "as it was told");
	return f->gone ? zns_fail(why, -EIO, "no such drive") : 0;
}

static void fake_close(struct zns_dev *dev)
{
	hw_fini(hw_of(dev));
	free(dev);
}

static const struct zns_dev_ops fake_ops = {
	.name = "fake",
	.report = hw_report,
	.write = hw_write,
	.append = hw_append,
	.read = hw_read,
	.reset = hw_reset,
	.open_zone = hw_open_zone,
	.close_zone = hw_close_zone,
	.finish = hw_finish,
	.flush = hw_flush,
	.close = fake_close,
	.write_durable = hw_write_durable,
};
static const struct hw_raw block_like = { .report = fake_report,
					  .write = fake_write,
					  .read = fake_read,
					  .manage = fake_manage,
					  .flush = fake_flush };
static const struct hw_raw nvme_like = { .report = fake_report,
					 .write = fake_write_anywhere,
					 .write_durable = fake_write_durable,
					 .append = fake_append,
					 .read = fake_read,
					 .manage = fake_manage,
					 .flush = fake_flush };

static void make(const struct hw_raw *raw, unsigned flags)
{
	f = calloc(1, sizeof(*f));
	d = &f->hw.dev;
	d->ops = &fake_ops;
	strcpy(d->path, "/dev/fake");
	d->geo = (struct zns_geometry){
		.nr_zones = NR,
		.block_size = BLOCK,
		.zone_size = SIZE,
		.zone_capacity = CAP,
		.max_open = 3,
		.max_active = 4,
		.max_io_bytes = MAX_IO,
		.mem_align = BLOCK,
	};
	for (uint32_t i = 0; i < NR; i++)
		f->z[i] = (struct zns_zone){ .index = i, .capacity = CAP };
	assert_int_equal(hw_init(&f->hw, raw, flags, &err), 0);
}

static uint8_t *buf;

static int begin(void **state)
{
	buf = aligned_alloc(BLOCK, CAP + 2 * BLOCK);
	for (size_t i = 0; i < CAP; i++)
		buf[i] = i / 7 ^ i;
	make(&block_like, 0);
	return 0;
}

static int begin_nvme(void **state)
{
	begin(state);
	zns_dev_close(d);
	make(&nvme_like, 0);
	return 0;
}

static int end(void **state)
{
	zns_dev_close(d);
	free(buf);
	return 0;
}

#define assert_ok(call)                                             \
	do {                                                        \
		int rc_ = (call);                                   \
		if (rc_)                                            \
			fail_msg("%s: %d %s", #call, rc_, err.msg); \
	} while (0)

#define assert_fails(call, want, text)                                                             \
	do {                                                                                       \
		err = (struct zns_err)ZNS_ERR_INIT;                                                \
		int rc_ = (call);                                                                  \
		if (rc_ != (want) || err.code != (want) || !strstr(err.msg, text))                 \
			fail_msg("%s: %d \"%s\", not %d \"%s\"", #call, rc_, err.msg, (int)(want), \
				 text);                                                            \
	} while (0)

static void limits(void **state)
{
	assert_int_equal(hw_transfer_limit(KIB(508)), KIB(256));
	assert_int_equal(hw_transfer_limit(KIB(512)), KIB(512));
	assert_int_equal(hw_transfer_limit(UINT64_MAX), HW_MAX_IO);
	assert_int_equal(hw_transfer_limit(100), 512);
}

static void in_pieces(void **state)
{
	uint8_t *back = aligned_alloc(BLOCK, CAP);

	assert_ok(zns_dev_write(d, 1, 0, buf, 2 * MAX_IO + BLOCK, &err));
	assert_int_equal(f->writes, 3);
	assert_int_equal(f->last_len, BLOCK);
	assert_int_equal(f->reports, 1); /* the first write looks, the others know */
	assert_ok(zns_dev_write(d, 1, 2 * MAX_IO + BLOCK, buf + 2 * MAX_IO + BLOCK,
				CAP - 2 * MAX_IO - BLOCK, &err));
	assert_int_equal(f->reports, 1);
	assert_ok(zns_dev_read(d, 1, 0, back, CAP, &err));
	assert_memory_equal(back, buf, CAP);
	assert_int_equal(f->reads, 3);
	assert_fails(zns_dev_write(d, 1, CAP - BLOCK, buf, BLOCK, &err), -ENOSPC, "full");
	/* the offset that means "append" inside is nothing that a caller may read at */
	assert_fails(zns_dev_read(d, 1, UINT64_MAX, buf, BLOCK, &err), -EINVAL, "read of zone 1");
	assert_fails(zns_dev_write(d, 1, UINT64_MAX, buf, BLOCK, &err), -EINVAL, "write of zone 1");
	assert_int_equal(f->reads, 3);
	assert_int_equal(f->writes, 4);
	free(back);
}

static void unaligned_buffers(void **state)
{
	uint8_t *odd = malloc(CAP + BLOCK), *back = odd + 5;

	assert_ok(zns_dev_write(d, 1, 0, buf, BLOCK, &err));
	memcpy(odd + 3, buf + BLOCK, CAP - BLOCK);
	assert_ok(zns_dev_write(d, 1, BLOCK, odd + 3, CAP - BLOCK, &err));
	memset(odd, 0xaa, CAP + BLOCK);
	assert_ok(zns_dev_read(d, 1, 0, back, CAP, &err));
	assert_memory_equal(back, buf, CAP);
	assert_int_equal(odd[4], 0xaa);
	assert_int_equal(back[CAP], 0xaa);
	free(odd);
}

/* Another process has written, reset or finished what we think we know. */
static void cache_is_old(void **state)
{
	assert_ok(zns_dev_write(d, 2, 0, buf, BLOCK, &err));
	f->z[2].wp = 3 * BLOCK;
	assert_fails(zns_dev_write(d, 2, BLOCK, buf, BLOCK, &err), -EIO,
		     "not at its write pointer 12288");
	assert_ok(zns_dev_read(d, 2, 2 * BLOCK, buf, BLOCK, &err));
	assert_ok(zns_dev_write(d, 2, 3 * BLOCK, buf, BLOCK, &err));
	f->z[2] = (struct zns_zone){ .index = 2, .capacity = CAP };
	assert_ok(zns_dev_write(d, 2, 0, buf, BLOCK, &err));
	f->z[2].state = ZNS_ZONE_FULL;
	f->z[2].wp = CAP;
	assert_fails(zns_dev_write(d, 2, BLOCK, buf, BLOCK, &err), -ENOSPC, "zone 2 is full");
	assert_ok(zns_dev_read(d, 2, CAP - BLOCK, buf, BLOCK, &err));
}

/* The kernel's write plugging had an old idea: a report mends it, so one more try is due, and one
 * only. */
static void second_try(void **state)
{
	f->refuse_writes = 1;
	assert_ok(zns_dev_write(d, 3, 0, buf, 2 * MAX_IO, &err));
	assert_int_equal(f->writes, 3);
	f->refuse_writes = 2;
	assert_fails(zns_dev_write(d, 3, 2 * MAX_IO, buf, BLOCK, &err), -EIO, "no reason given");
	assert_int_equal(f->writes, 5);
	assert_int_equal(f->z[3].wp, 2 * MAX_IO);
	assert_ok(zns_dev_write(d, 3, 2 * MAX_IO, buf, BLOCK, &err));
	f->half = true;
	assert_fails(zns_dev_write(d, 3, 2 * MAX_IO + BLOCK, buf, 2 * BLOCK, &err), -EIO,
		     "the write pointer is at 73728 now");
}

static void goes_bad(void **state)
{
	assert_ok(zns_dev_write(d, 4, 0, buf, 2 * BLOCK, &err));
	f->z[4].state = ZNS_ZONE_READ_ONLY;
	f->z[4].wp = CAP;
	assert_fails(zns_dev_write(d, 4, 2 * BLOCK, buf, BLOCK, &err), -EROFS, "read-only");
	assert_ok(zns_dev_read(d, 4, 0, buf, 2 * BLOCK, &err));
	assert_fails(zns_dev_finish(d, 4, &err), -EROFS, "read-only");
	assert_fails(zns_dev_open_zone(d, 4, &err), -EROFS, "read-only");
	f->z[4].state = ZNS_ZONE_OFFLINE;
	f->z[4].wp = 0;
	assert_fails(zns_dev_read(d, 4, 0, buf, BLOCK, &err), -ENXIO, "offline");
	assert_fails(zns_dev_write(d, 4, 2 * BLOCK, buf, BLOCK, &err), -ENXIO, "offline");
	assert_fails(zns_dev_reset(d, &(uint32_t){ 4 }, 1, &err), -ENXIO, "offline");
	assert_fails(zns_dev_close_zone(d, 4, &err), -ENXIO, "offline");
}

static void limits_reached(void **state)
{
	f->write_error = -ETOOMANYREFS;
	assert_fails(zns_dev_write(d, 0, 0, buf, BLOCK, &err), -ETOOMANYREFS,
		     "limit of 3 open zones");
	f->write_error = -EOVERFLOW;
	assert_fails(zns_dev_write(d, 0, 0, buf, BLOCK, &err), -EOVERFLOW,
		     "limit of 4 active zones");
	f->manage_error = -EOVERFLOW;
	assert_fails(zns_dev_open_zone(d, 0, &err), -EOVERFLOW, "limit of 4 active zones");
	f->manage_error = -ETOOMANYREFS;
	assert_fails(zns_dev_finish(d, 0, &err), -ETOOMANYREFS, "limit of 3 open zones");
	f->write_error = -ENOMEM;
	assert_fails(zns_dev_write(d, 0, 0, buf, BLOCK, &err), -ENOMEM, "as it was told");
}

/* No zone is at fault, so none is looked at, and the advice is another one. */
static void reserved_by_another(void **state)
{
	unsigned reports;

	assert_ok(zns_dev_write(d, 0, 0, buf, BLOCK, &err));
	reports = f->reports;
	f->write_error = f->manage_error = f->flush_error = -EBADE;
	assert_fails(zns_dev_write(d, 0, BLOCK, buf, BLOCK, &err), -EBADE,
		     "zone 0: another host has reserved /dev/fake");
	assert_int_equal(f->reports, reports);
	assert_fails(zns_dev_append(d, 0, buf, BLOCK, &(uint64_t){ 0 }, &err), -EBADE,
		     "register --take-over /dev/fake");
	assert_fails(zns_dev_write_durable(d, 0, BLOCK, buf, BLOCK, &err), -EBADE, "another host");
	assert_fails(zns_dev_reset(d, &(uint32_t){ 0 }, 1, &err), -EBADE, "zone 0: another host");
	assert_fails(zns_dev_finish(d, 0, &err), -EBADE, "another host");
	assert_fails(zns_dev_open_zone(d, 1, &err), -EBADE, "another host");
	assert_fails(zns_dev_flush(d, &err), -EBADE, "flush: another host");
	f->write_error = f->manage_error = f->flush_error = 0;
	assert_ok(zns_dev_write(d, 0, BLOCK, buf, BLOCK, &err));
}

static void vanishes(void **state)
{
	assert_ok(zns_dev_write(d, 0, 0, buf, BLOCK, &err));
	f->gone = true;
	assert_fails(zns_dev_write(d, 0, BLOCK, buf, BLOCK, &err), -EIO,
		     "is /dev/fake still there?");
	assert_fails(zns_dev_read(d, 0, 0, buf, BLOCK, &err), -EIO, "is /dev/fake still there?");
	assert_fails(zns_dev_report(d, 0, 1, &(struct zns_zone){ 0 }, &err), -EIO,
		     "cannot be reported");
	assert_fails(zns_dev_flush(d, &err), -EIO, "may be lost");
}

static void reset_by_runs(void **state)
{
	uint32_t list[] = { 9, 3, 2, 4, 3, 7, 10 };

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(list); i++)
		f->z[list[i]].state = ZNS_ZONE_CLOSED, f->z[list[i]].wp = BLOCK;
	assert_ok(zns_dev_reset(d, list, ZNS_ARRAY_SIZE(list), &err));
	assert_int_equal(f->manages, 3); /* 2-4, 7, 9-10 */
	assert_int_equal(f->last_first, 9);
	assert_int_equal(f->last_nr, 2);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(list); i++)
		assert_int_equal(f->z[list[i]].state, ZNS_ZONE_EMPTY);
	assert_ok(zns_dev_reset(d, list, ZNS_ARRAY_SIZE(list), &err));
	assert_int_equal(f->manages, 3); /* empty zones need no reset */
	/* One that cannot be reset: none is. */
	f->z[2].state = f->z[4].state = ZNS_ZONE_FULL;
	f->z[3].state = ZNS_ZONE_READ_ONLY;
	assert_fails(zns_dev_reset(d, list, ZNS_ARRAY_SIZE(list), &err), -EROFS, "zone 3");
	assert_int_equal(f->manages, 3);
	f->z[3].state = ZNS_ZONE_FULL;
	f->manage_error = -EIO;
	f->manage_error_at = 3;
	assert_fails(zns_dev_reset(d, list, ZNS_ARRAY_SIZE(list), &err), -EIO,
		     "zone 3 (full): as it was told");
}

static void closed_unwritten(void **state)
{
	f->keeps_closed = true;
	assert_ok(zns_dev_open_zone(d, 5, &err));
	assert_ok(zns_dev_close_zone(d, 5, &err));
	assert_int_equal(f->z[5].state, ZNS_ZONE_EMPTY);
	assert_fails(zns_dev_close_zone(d, 5, &err), -EIO, "only an open zone can be closed");
	assert_ok(zns_dev_write(d, 5, 0, buf, BLOCK, &err));
	assert_ok(zns_dev_close_zone(d, 5, &err));
	assert_int_equal(f->z[5].state, ZNS_ZONE_CLOSED);
	assert_ok(zns_dev_finish(d, 5, &err));
	assert_ok(zns_dev_finish(d, 5, &err));
	assert_fails(zns_dev_close_zone(d, 5, &err), -ENOSPC, "full");
	assert_fails(zns_dev_open_zone(d, 5, &err), -ENOSPC, "full");
}

static void conventional(void **state)
{
	uint64_t at;

	f->z[0].conventional = f->z[1].conventional = true;
	f->z[2].state = ZNS_ZONE_OFFLINE;
	f->z[3].capacity = CAP - BLOCK;
	assert_ok(hw_typical_capacity(&f->hw, &err));
	assert_int_equal(d->geo.zone_capacity, CAP - BLOCK);
	assert_int_equal(d->geo.nr_conventional, 2);
	assert_fails(zns_dev_write(d, 1, 0, buf, BLOCK, &err), -EINVAL, "conventional");
	assert_fails(zns_dev_append(d, 1, buf, BLOCK, &at, &err), -EINVAL, "conventional");
	assert_fails(zns_dev_read(d, 1, 0, buf, BLOCK, &err), -EINVAL, "conventional");
	assert_fails(zns_dev_reset(d, &(uint32_t){ 1 }, 1, &err), -EINVAL, "conventional");
	assert_fails(zns_dev_finish(d, 1, &err), -EINVAL, "conventional");
	assert_fails(zns_dev_open_zone(d, 1, &err), -EINVAL, "conventional");
	assert_int_equal(f->writes + f->reads, 0);
	for (uint32_t i = 0; i < NR; i++) /* no zone has a capacity: as large as a zone */
		f->z[i].state = ZNS_ZONE_OFFLINE;
	f->reports = 0;
	assert_ok(hw_typical_capacity(&f->hw, &err));
	assert_int_equal(d->geo.zone_capacity, SIZE);
	assert_int_equal(f->reports, 2);
}

/* On a device without append: a report, a write, and again if another process was faster. */
static void append_by_write(void **state)
{
	uint64_t at = 77;

	assert_ok(zns_dev_append(d, 0, buf, BLOCK, &at, &err));
	assert_int_equal(at, 0);
	f->racer = 1;
	assert_ok(zns_dev_append(d, 0, buf, 2 * BLOCK, &at, &err));
	assert_int_equal(at, 2 * BLOCK);
	f->refuse_writes = 2;
	assert_fails(zns_dev_append(d, 0, buf, BLOCK, &at, &err), -EIO, "no reason given");
	assert_fails(zns_dev_append(d, 0, buf, CAP, &at, &err), -ENOSPC, "capacity");
	f->z[0].state = ZNS_ZONE_FULL;
	assert_fails(zns_dev_append(d, 0, buf, BLOCK, &at, &err), -ENOSPC, "full");
}

static void foreign_writer(void **state)
{
	uint64_t at;

	assert_ok(zns_dev_write(d, 0, 0, buf, BLOCK, &err));
	f->z[0].wp += BLOCK;
	assert_fails(zns_dev_write(d, 0, BLOCK, buf, BLOCK, &err), -EIO,
		     "another program writes to this zone");
	assert_int_equal(f->writes, 2);
	assert_fails(zns_dev_write(d, 0, 2 * BLOCK, buf, BLOCK, &err), -EIO,
		     "not at its write pointer");
	assert_ok(zns_dev_write(d, 0, 3 * BLOCK, buf, BLOCK, &err));
	assert_ok(zns_dev_append(d, 0, buf, 2 * MAX_IO, &at, &err));
	assert_int_equal(at, 4 * BLOCK);
	assert_int_equal(f->z[0].wp, 4 * BLOCK + 2 * MAX_IO);
	f->z[0].wp = f->racer = 0;
	f->z[0].state = ZNS_ZONE_EMPTY;
	f->racer = 1; /* between the look and the append: a place is a place */
	assert_ok(zns_dev_append(d, 0, buf, 2 * BLOCK, &at, &err));
	assert_int_equal(at, BLOCK);
}

/* Where the drive names a reason, that is the reason, even if the zone looks well. */
static void drives_words(void **state)
{
	f->write_error = -ENOSPC;
	assert_fails(zns_dev_write(d, 0, 0, buf, BLOCK, &err), -ENOSPC, "as it was told");
	f->write_error = -EROFS;
	assert_fails(zns_dev_write(d, 0, 0, buf, BLOCK, &err), -EROFS, "as it was told");
	f->write_error = -ENXIO;
	assert_fails(zns_dev_write(d, 0, 0, buf, BLOCK, &err), -ENXIO, "as it was told");
	f->write_error = -ENODEV;
	assert_fails(zns_dev_write(d, 0, 0, buf, BLOCK, &err), -EIO, "as it was told");
}

static void read_only(void **state)
{
	uint64_t at;

	zns_dev_close(d);
	make(&block_like, ZNS_DEV_RDONLY);
	f->z[0].wp = BLOCK;
	f->z[0].state = ZNS_ZONE_CLOSED;
	assert_ok(zns_dev_read(d, 0, 0, buf, BLOCK, &err));
	assert_fails(zns_dev_write(d, 0, BLOCK, buf, BLOCK, &err), -EBADF, "reading only");
	assert_fails(zns_dev_append(d, 0, buf, BLOCK, &at, &err), -EBADF, "reading only");
	assert_fails(zns_dev_reset(d, &(uint32_t){ 0 }, 1, &err), -EBADF, "reading only");
	assert_fails(zns_dev_flush(d, &err), -EBADF, "reading only");
	assert_int_equal(f->writes + f->manages, 0);
}

/* The fake asserts that no zone has two writes at once. */
static void *appender(void *arg)
{
	uint64_t at;

	for (int i = 0; i < 12; i++)
		if (zns_dev_append(d, i % 2, buf, BLOCK, &at, NULL))
			return d;
	return NULL;
}

static void one_write_per_zone(void **state)
{
	pthread_t t[4];
	void *bad;

	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, appender, NULL), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(t[i], &bad);
		assert_null(bad);
	}
	assert_int_equal(f->z[0].wp, CAP);
	assert_int_equal(f->z[1].wp, CAP);
}

/* Each command is durable, or a flush follows; and a flush of zones is one flush of the device. */
static void durable_writes(void **state)
{
	const uint32_t zones[] = { 1, 2 };

	assert_ok(zns_dev_write_durable(d, 1, 0, buf, 2 * MAX_IO, &err));
	assert_int_equal(f->durable, 2);
	assert_int_equal(f->flushes, 0);
	assert_ok(zns_dev_write(d, 1, 2 * MAX_IO, buf, BLOCK, &err));
	assert_int_equal(f->durable, 2);
	assert_fails(zns_dev_write_durable(d, 1, 0, buf, BLOCK, &err), -EIO, "write pointer");
	assert_ok(zns_dev_flush_zones(d, zones, 2, &err));
	assert_int_equal(f->flushes, 1);
	assert_memory_equal(f->data[1], buf, 2 * MAX_IO);
	zns_dev_close(d);
	make(&block_like, 0);
	assert_ok(zns_dev_write_durable(d, 1, 0, buf, BLOCK, &err));
	assert_int_equal(f->flushes, 1);
	f->gone = true;
	assert_fails(zns_dev_write_durable(d, 1, BLOCK, buf, BLOCK, &err), -EIO, "");
	assert_int_equal(f->flushes, 1);
}

/* A loop device below a file of 1 MiB; -1 where there can be none. It is detached at its last close. */
static int loop_device(char *node, size_t len)
{
	cleanup_close int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC),
			  file = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	const struct loop_info64 info = { .lo_flags = LO_FLAGS_AUTOCLEAR };
	int n, fd;

	if (control < 0)
		return -1;
	assert_true(file >= 0);
	assert_int_equal(ftruncate(file, MIB(1)), 0);
	for (;;) {
		n = ioctl(control, LOOP_CTL_GET_FREE);
		assert_true(n >= 0);
		snprintf(node, len, "/dev/loop%d", n);
		fd = open(node, O_RDWR | O_CLOEXEC);
		assert_true(fd >= 0);
		if (!ioctl(fd, LOOP_SET_FD, file))
			break;
		assert_int_equal(errno, EBUSY); /* another program has taken it meanwhile */
		close(fd);
	}
	assert_int_equal(ioctl(fd, LOOP_SET_STATUS64, &info), 0);
	return fd;
}

/* Could mkfs have it? */
static bool is_free(const char *node)
{
	int fd = open(node, O_RDWR | O_EXCL | O_CLOEXEC);

	if (fd >= 0)
		close(fd);
	else
		assert_int_equal(errno, EBUSY);
	return fd >= 0;
}

/* What a broker has, no mkfs gets, and no writer that does not ask the broker. */
static void claimed(void **state)
{
	struct hw broker = { 0 }, client = { 0 }, reader = { 0 }, format = { 0 };
	char node[32];
	cleanup_close int fd = loop_device(node, sizeof(node));

	if (fd < 0) {
		print_message("no loop devices here\n");
		skip();
	}
	assert_ok(hw_claim(&format, node, node, 0, &err));
	assert_true(is_free(node));
	assert_ok(hw_claim(&broker, node, node, ZNS_DEV_CLAIM, &err));
	assert_false(is_free(node));
	assert_fails(hw_claim(&format, node, node, 0, &err), -EBUSY, "served by a broker");
	assert_ok(hw_claim(&client, node, node, ZNS_DEV_SERVED, &err));
	assert_ok(hw_claim(&reader, node, node, ZNS_DEV_RDONLY, &err));
	hw_unclaim(&broker);
	assert_true(is_free(node));
}

/* No kernel has this device, so nothing can say what it is. */
static void unknown_device(void **state)
{
	struct zns_dev *out;

	assert_fails(nvme_open_ns("/dev/ng9n9", makedev(4095, 1048575), 0, &out, &err), -ENODEV,
		     "its kind is not known");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, begin, end)
	const struct CMUnitTest tests[] = {
		T(limits),
		T(in_pieces),
		T(unaligned_buffers),
		T(cache_is_old),
		T(second_try),
		T(goes_bad),
		T(limits_reached),
		T(reserved_by_another),
		T(vanishes),
		T(reset_by_runs),
		T(closed_unwritten),
		T(conventional),
		T(append_by_write),
		T(drives_words),
		T(read_only),
		T(one_write_per_zone),
		cmocka_unit_test_setup_teardown(foreign_writer, begin_nvme, end),
		cmocka_unit_test_setup_teardown(durable_writes, begin_nvme, end),
		cmocka_unit_test(claimed),
		cmocka_unit_test(unknown_device),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
