/* SPDX-License-Identifier: GPL-2.0-only */
/* Read-only handles, worn-out zones, conventional zones, and what cannot be opened at all. */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state.h"

static void read_only_handle(void)
{
	uint32_t z = t.zone[0], b = t.block;
	struct zns_dev *rw = t.d, *ro;
	uint64_t at;

	put(z, 0, b);
	OK(zns_dev_open(t.spec, ZNS_DEV_RDONLY, &ro, E));
	t.d = ro;
	check(z, 0, b);
	ZONE(z, ZNS_ZONE_IMP_OPEN, b);
	FAILS(zns_dev_write(ro, z, b, t.buf, b, E), EBADF, "reading only");
	FAILS(zns_dev_append(ro, z, t.buf, b, &at, E), EBADF, "reading only");
	FAILS(zns_dev_reset(ro, &z, 1, E), EBADF, "reading only");
	FAILS(zns_dev_open_zone(ro, z, E), EBADF, "reading only");
	FAILS(zns_dev_close_zone(ro, z, E), EBADF, "reading only");
	FAILS(zns_dev_finish(ro, z, E), EBADF, "reading only");
	FAILS(zns_dev_flush(ro, E), EBADF, "reading only");
	t.d = rw;
	put(z, b, b);
	t.d = ro;
	check(z, 0, 2 * b);
	ZONE(z, ZNS_ZONE_IMP_OPEN, 2 * b);
	zns_dev_close(ro);
	t.d = rw;
}

static bool emulated(void)
{
	return !zns_emu_info(t.d, NULL, NULL);
}

/* Only reads work. @want: the errno of all other calls. */
static void refuses_writers(uint32_t z, uint64_t wp, int want, const char *text)
{
	uint64_t at;

	FAILS(zns_dev_write(t.d, z, wp, t.buf, t.block, E), want, text);
	FAILS(zns_dev_append(t.d, z, t.buf, t.block, &at, E), want, text);
	FAILS(zns_dev_open_zone(t.d, z, E), want, text);
	FAILS(zns_dev_close_zone(t.d, z, E), want, text);
	FAILS(zns_dev_finish(t.d, z, E), want, text);
	FAILS(zns_dev_reset(t.d, &z, 1, E), want, text);
}

static void read_only_zone(void)
{
	uint32_t z = t.zone[0], list[2], b = t.block;

	if (emulated()) {
		put(z, 0, 2 * b);
		OK(zns_emu_set_zone_state(t.d, z, ZNS_ZONE_READ_ONLY, E));
	} else if (t.read_only != NONE) {
		z = t.read_only;
	} else {
		conform_skip("no zone of the device is read-only, and it cannot be asked for");
	}
	TRUE(zone_of(z).state == ZNS_ZONE_READ_ONLY);
	refuses_writers(z, 2 * b, EROFS, "read-only");
	put(t.zone[1], 0, b);
	list[0] = t.zone[1];
	list[1] = z;
	FAILS(zns_dev_reset(t.d, list, 2, E), EROFS, "read-only");
	SAME(zone_of(t.zone[1]).wp, b);
	/* The data stay. Where nothing was written, a read may fail or not. */
	if (emulated()) {
		check(z, 0, 2 * b);
		OK(zns_emu_set_zone_state(t.d, z, ZNS_ZONE_EMPTY, E));
		ZONE(z, ZNS_ZONE_CLOSED, 2 * b);
	} else {
		OK(zns_dev_read(t.d, z, 0, t.buf, b, E));
	}
}

static void offline_zone(void)
{
	uint32_t z = t.zone[0], list[2], b = t.block;

	if (emulated()) {
		put(z, 0, 2 * b);
		OK(zns_emu_set_zone_state(t.d, z, ZNS_ZONE_OFFLINE, E));
	} else if (t.offline != NONE) {
		z = t.offline;
	} else {
		conform_skip("no zone of the device is offline, and it cannot be asked for");
	}
	TRUE(zone_of(z).state == ZNS_ZONE_OFFLINE);
	refuses_writers(z, 2 * b, ENXIO, "offline");
	FAILS(zns_dev_read(t.d, z, 0, t.buf, b, E), ENXIO, "offline");
	put(t.zone[1], 0, b);
	list[0] = z;
	list[1] = t.zone[1];
	FAILS(zns_dev_reset(t.d, list, 2, E), ENXIO, "offline");
	SAME(zone_of(t.zone[1]).wp, b);
	if (emulated())
		OK(zns_emu_set_zone_state(t.d, z, ZNS_ZONE_EMPTY, E));
}

/* null_blk spoils a zone by its first sector; the same word once more makes the zone empty again.
 */
static void wear(uint32_t zone, const char *file)
{
	char path[512], sector[32];
	int fd, n;

	TRUE(snprintf(path, sizeof(path), "%s/%s", conform_wear, file) < (int)sizeof(path));
	n = snprintf(sector, sizeof(sector), "%llu",
		     (unsigned long long)(zone * t.d->geo.zone_size / 512));
	fd = open(path, O_WRONLY | O_CLOEXEC);
	TRUE(fd >= 0 && write(fd, sector, n) == n);
	close(fd);
}

static void spoil(struct zns_dev *d, uint32_t zone, enum zns_zone_state state)
{
	if (!conform_wear)
		OK(zns_emu_set_zone_state(d, zone, state, E));
	else
		wear(zone, state == ZNS_ZONE_READ_ONLY ? "zone_readonly" : "zone_offline");
}

/* A handle that knows the zone from before it failed. */
static void goes_bad_in_use(void)
{
	uint32_t z = t.zone[0], b = t.block;
	struct zns_dev *other;

	if (!emulated() && !conform_wear)
		conform_skip("zones of this device do not go bad on request");
	put(z, 0, b);
	OK(zns_dev_open(t.spec, 0, &other, E));
	spoil(other, z, ZNS_ZONE_READ_ONLY);
	FAILS(zns_dev_write(t.d, z, b, t.buf, b, E), EROFS, "read-only");
	check(z, 0, b);
	spoil(other, z, ZNS_ZONE_OFFLINE);
	FAILS(zns_dev_write(t.d, z, b, t.buf, b, E), ENXIO, "offline");
	FAILS(zns_dev_read(t.d, z, 0, t.buf, b, E), ENXIO, "offline");
	if (conform_wear)
		wear(z, "zone_offline"); /* empty again */
	else
		OK(zns_emu_set_zone_state(other, z, ZNS_ZONE_EMPTY, E));
	zns_dev_close(other);
	put(z, conform_wear ? 0 : b, b);
}

static void conventional_zone(void)
{
	uint32_t z = t.conventional;
	uint64_t at;

	if (z == NONE)
		conform_skip("the device has no conventional zones");
	TRUE(zone_of(z).conventional);
	SAME(zone_of(z).wp, 0);
	TRUE(!zns_zone_is_active(zone_of(z).state));
	FAILS(zns_dev_write(t.d, z, 0, t.buf, t.block, E), EINVAL, "conventional");
	FAILS(zns_dev_append(t.d, z, t.buf, t.block, &at, E), EINVAL, "conventional");
	FAILS(zns_dev_read(t.d, z, 0, t.buf, t.block, E), EINVAL, "conventional");
	FAILS(zns_dev_open_zone(t.d, z, E), EINVAL, "conventional");
	FAILS(zns_dev_close_zone(t.d, z, E), EINVAL, "conventional");
	FAILS(zns_dev_finish(t.d, z, E), EINVAL, "conventional");
	FAILS(zns_dev_reset(t.d, &z, 1, E), EINVAL, "conventional");
}

static void not_openable(void)
{
	char file[] = "/tmp/dev-conform-XXXXXX", emu[64];
	struct zns_dev *d = (void *)1;
	int fd;

	FAILS(zns_dev_open("/dev/zns-conform-none", 0, &d, E), ENOENT, "/dev/zns-conform-none");
	TRUE(!d);
	FAILS(zns_dev_open("/dev/null", 0, &d, E), EMEDIUMTYPE, "not a zoned device");
	FAILS(zns_dev_open("/", 0, &d, E), EMEDIUMTYPE, "not a zoned device");
	fd = mkstemp(file);
	TRUE(fd >= 0 && !ftruncate(fd, MIB(4)));
	close(fd);
	conform_err.code = 0;
	TRUE(zns_dev_open(file, 0, &d, E) == -EMEDIUMTYPE && strstr(conform_err.msg, "file:"));
	snprintf(emu, sizeof(emu), "emu:%s", file);
	TRUE(zns_dev_open(emu, 0, &d, E) == -EMEDIUMTYPE);
	unlink(file);
	TRUE(!d);
}

/* A library that was built for 1024 descriptors: refused with a message, and nothing is written
 * behind its table's end. */
static void high_descriptors(void)
{
	struct rlimit old, lim;
	struct zns_dev *d = NULL;
	int fd[1100], nr = 0, rc;

	if (strcmp(t.d->ops->name, "block"))
		conform_skip("only the block backend minds");
	getrlimit(RLIMIT_NOFILE, &old);
	lim = (struct rlimit){ .rlim_cur = 4096, .rlim_max = zns_max(old.rlim_max, (rlim_t)4096) };
	if (setrlimit(RLIMIT_NOFILE, &lim))
		conform_skip("not allowed to open 1100 files");
	while (nr < 1100 && (fd[nr] = open("/", O_PATH | O_CLOEXEC)) >= 0)
		nr++;
	conform_err.code = 0;
	rc = zns_dev_open(t.spec, 0, &d, E);
	while (nr)
		close(fd[--nr]);
	setrlimit(RLIMIT_NOFILE, &old);
	TRUE(rc == -EMFILE && strstr(conform_err.msg, "descriptor") && !d);
	OK(zns_dev_open(t.spec, 0, &d, E));
	zns_dev_close(d);
}

const struct conform_case state_cases[] = {
	{ "read-only handle", read_only_handle, 1 },
	{ "read-only zone", read_only_zone, 2 },
	{ "offline zone", offline_zone, 2 },
	{ "a zone that goes bad in use", goes_bad_in_use, 1 },
	{ "conventional zone", conventional_zone, 1 },
	{ "what cannot be opened", not_openable, 1 },
	{ "no low descriptors left", high_descriptors, 1 },
	{ 0 },
};
