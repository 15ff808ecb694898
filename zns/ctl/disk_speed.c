/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Measures the disk below a store for about a second: writes and reads with as many streams as a
 * dump, until the data are durable.
 */
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include "lib/ctl.h"

#define STREAMS 4
#define LONG_ENOUGH_NS 500000000ull
#define MOST GIB(1)

struct run {
	struct zns_dev *dev;
	const uint32_t *zones; /* to write: empty zones; to read: written zones */
	uint32_t nr;
	uint64_t end_ns;
	void *buf[STREAMS];
	uint32_t next; /* next index into @zones; atomic */
	bool write;
};

struct stream {
	struct run *r;
	pthread_t thread;
	uint32_t nr;
	int ret;
	struct zns_err err;
};

static void *work(void *arg)
{
	struct stream *s = arg;
	struct run *r = s->r;
	uint64_t len = r->dev->geo.zone_capacity, step = zns_min(len, MIB(1));

	/* fill each zone to its end, so that the reads find whole zones */
	while (!s->ret && (!r->write || zns_mono_ns() < r->end_ns)) {
		uint32_t i = __atomic_fetch_add(&r->next, 1, __ATOMIC_RELAXED);

		if (i >= r->nr)
			break;
		for (uint64_t off = 0; off < len && !s->ret; off += step)
			s->ret = r->write ? zns_dev_write(r->dev, r->zones[i], off, r->buf[s->nr],
							  step, &s->err) :
					    zns_dev_read(r->dev, r->zones[i], off, r->buf[s->nr],
							 step, &s->err);
	}
	return NULL;
}

/* Runs all streams. *@mibps: the rate; *@done: the number of zones. */
static int run(struct run *r, uint32_t *done, uint32_t *mibps, struct zns_err *err)
{
	struct stream s[STREAMS] = { 0 };
	uint64_t from = zns_mono_ns();
	uint32_t started = 0;
	double v;
	int ret = 0;

	r->end_ns = from + LONG_ENOUGH_NS;
	r->next = 0;
	for (; started < STREAMS && !ret; started++) {
		s[started].r = r;
		s[started].nr = started;
		ret = -pthread_create(&s[started].thread, NULL, work, &s[started]);
		if (ret)
			break;
	}
	for (uint32_t i = 0; i < started; i++) {
		pthread_join(s[i].thread, NULL);
		if (s[i].ret && !ret) {
			ret = s[i].ret;
			*err = s[i].err;
		}
	}
	if (!ret && r->write)
		ret = zns_dev_flush(r->dev, err);
	*done = zns_min(r->next, r->nr);
	v = (double)*done * (double)r->dev->geo.zone_capacity / (double)MIB(1) /
	    ((double)zns_max(zns_mono_ns() - from, UINT64_C(1)) / 1e9);
	*mibps = (uint32_t)zns_max(zns_min(v, 1e6), 1.0);
	return ret;
}

bool ctl_is_limited(const char *spec, uint64_t size, uint64_t *room)
{
	const char *path = zns_spec_path(spec);
	struct statvfs fs;
	struct stat st;

	*room = UINT64_MAX;
	if (stat(path, &st) || !S_ISREG(st.st_mode) || statvfs(path, &fs))
		return false;
	*room = (uint64_t)fs.f_bavail * fs.f_frsize;
	return *room + (uint64_t)st.st_blocks * 512 < (size ? size : (uint64_t)st.st_size);
}

/*
 * Returns the number of zones that the measurement may write: a part of the free space of the
 * store, and of the file system below it.
 */
static uint32_t sample(const struct zns_dev *dev)
{
	uint64_t bytes = zns_min(MOST, dev->geo.nr_zones * dev->geo.zone_capacity / 4), room;

	ctl_is_limited(dev->path, 0, &room);
	return (uint32_t)zns_max(zns_min(bytes, room / 4) / dev->geo.zone_capacity, UINT64_C(1));
}

static int empty_zones(struct zns_dev *dev, uint32_t **out, uint32_t *nr, struct zns_err *err)
{
	uint32_t n = dev->geo.nr_zones, most;
	cleanup_free struct zns_zone *z = calloc(n, sizeof(*z));
	cleanup_free uint32_t *list = calloc(n, sizeof(*list));
	int ret;

	if (!z || !list)
		return zns_fail(err, -ENOMEM, "no memory for a list of zones");
	ret = zns_dev_report(dev, 0, n, z, err);
	most = sample(dev);
	*nr = 0;
	for (uint32_t i = dev->geo.log_zones; !ret && i < n && *nr < most; i++)
		if (z[i].state == ZNS_ZONE_EMPTY)
			list[(*nr)++] = i;
	if (!ret && !*nr)
		return zns_fail(err, -ENODATA,
				"%s has no empty space to measure the disk: say --rate MIBPS",
				dev->path);
	*out = list;
	list = NULL;
	return ret;
}

int ctl_measure_disk(struct zns_dev *dev, uint32_t *write_mibps, uint32_t *read_mibps,
		     struct zns_err *err)
{
	struct run r = { .dev = dev, .write = true };
	cleanup_free uint32_t *zones = NULL;
	struct zns_err left = ZNS_ERR_INIT;
	cleanup_free uint8_t *buf = NULL;
	size_t step = zns_min(dev->geo.zone_capacity, MIB(1));
	uint32_t done = 0, again;
	uint64_t x = 0x9e3779b97f4a7c15;
	int ret = empty_zones(dev, &zones, &r.nr, err), undone;

	if (ret)
		return ret;
	if (posix_memalign((void **)&buf, 4096, STREAMS * step)) {
		buf = NULL;
		return zns_fail(err, -ENOMEM, "no memory to measure %s", dev->path);
	}
	/* random data: with other data a disk or file system that compresses would look too fast */
	for (size_t i = 0; i < STREAMS * step; i += sizeof(x)) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(buf + i, &x, sizeof(x));
	}
	for (uint32_t i = 0; i < STREAMS; i++)
		r.buf[i] = buf + i * step;
	r.zones = zones;
	ret = run(&r, &done, write_mibps, err);
	if (!ret) {
		r.write = false;
		r.nr = done;
		ret = run(&r, &again, read_mibps, err);
	}
	undone = zns_dev_reset(dev, zones, done, &left);
	if (undone && !ret) {
		*err = left;
		ret = undone;
	}
	if (ret)
		zns_wrap(err, "measuring the disk (--rate makes it unnecessary)");
	return ret;
}
