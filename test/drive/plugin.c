/* SPDX-License-Identifier: GPL-2.0-only */
/* The nbdkit plugin: parameters, bytes, and the waiting. See drive.h. */
#define NBDKIT_API_VERSION 2
#include <errno.h>
#include <fcntl.h>
#include <nbdkit-plugin.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "drive.h"
#include "zns/util.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL
#define STATS_MS 500

static struct {
	struct drive_params p;
	bool zoned;
	uint32_t slow; /* factor between the wall clock and the model's clock */
	char *file, *stats;
	FILE *requests; /* a log of each request, if it was asked for */
	uint32_t want_requests;
	int fd;
	struct drive *drive;
	pthread_mutex_t lock; /* protects the model: the order in which requests came */
	struct timespec origin;
	pthread_t writer; /* of statistics */
	pthread_mutex_t end_lock;
	pthread_cond_t end_cond;
	bool writing, end;
} g = { .fd = -1,
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.end_lock = PTHREAD_MUTEX_INITIALIZER,
	.end_cond = PTHREAD_COND_INITIALIZER };

static void drive_load(void)
{
	zns_emu_default_params(&g.p.emu);
	g.p.emu.ways = 1;
	g.p.emu.zone_size = MIB(32);
	g.p.spare_pct = 15;
	g.p.block_pages = 256;
	g.p.buffer_pages = 16;
	g.p.erase_us = 3000;
	g.slow = 1;
}

struct number {
	const char *key;
	uint32_t *out;
	uint32_t min, max;
};

static int set_number(const char *key, const char *value)
{
	struct zns_emu_params *e = &g.p.emu;
	const struct number numbers[] = {
		{ "channels", &e->channels, 1, 1024 },
		{ "ways", &e->ways, 1, 1024 },
		{ "die-write", &e->die_write_mibps, 1, 100000 },
		{ "die-read", &e->die_read_mibps, 1, 100000 },
		{ "channel", &e->channel_mibps, 1, 100000 },
		{ "buffer-units", &e->buffer_units, 1, 4 },
		{ "command-us", &e->command_us, 0, 1000000 },
		{ "reset-us", &e->reset_us, 0, 1000000 },
		{ "controller", &e->controller_mibps, 0, 100000 },
		{ "spare", &g.p.spare_pct, 1, 400 },
		{ "block-pages", &g.p.block_pages, 4, 65536 },
		{ "buffer-pages", &g.p.buffer_pages, 1, 65536 },
		{ "erase-us", &g.p.erase_us, 0, 1000000 },
		{ "idle-blocks", &g.p.idle_blocks, 0, 65536 },
		{ "slow", &g.slow, 1, 10000 },
		{ "requests", &g.want_requests, 0, 1 },
	};
	uint64_t n;

	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		if (strcmp(key, numbers[i].key))
			continue;
		if (zns_parse_number(value, numbers[i].min, numbers[i].max, &n)) {
			nbdkit_error("%s=%s: a number from %u to %u", key, value, numbers[i].min,
				     numbers[i].max);
			return -1;
		}
		*numbers[i].out = (uint32_t)n;
		return 0;
	}
	nbdkit_error("no parameter %s", key);
	return -1;
}

static int set_size(const char *value, uint64_t *out)
{
	if (zns_parse_size(value, out) || !*out || *out % DRIVE_PAGE) {
		nbdkit_error("%s: a size in pages of 4 KiB, as 64M or 2G", value);
		return -1;
	}
	return 0;
}

/* The index of @value in @words, which end with NULL. */
static int set_word(const char *key, const char *value, const char *const *words, int *out)
{
	for (int i = 0; words[i]; i++)
		if (!strcmp(value, words[i])) {
			*out = i;
			return 0;
		}
	nbdkit_error("%s=%s: no such kind", key, value);
	return -1;
}

static int drive_config(const char *key, const char *value)
{
	static const char *const kinds[] = { "conventional", "zoned", NULL };
	static const char *const maps[] = { "interleaved", "permuted", "shared", NULL };
	static const char *const fills[] = { "no", "sequential", "random", NULL };
	static const char *const flushes[] = { "medium", "buffer", NULL };
	uint64_t unit;
	int n;

	if (!strcmp(key, "file"))
		return (g.file = nbdkit_absolute_path(value)) ? 0 : -1;
	if (!strcmp(key, "stats"))
		return (g.stats = nbdkit_absolute_path(value)) ? 0 : -1;
	if (!strcmp(key, "size"))
		return set_size(value, &g.p.size);
	if (!strcmp(key, "zone-size"))
		return set_size(value, &g.p.emu.zone_size);
	if (!strcmp(key, "program-unit")) {
		if (set_size(value, &unit) || unit > MIB(16))
			return -1;
		g.p.emu.program_unit = (uint32_t)unit;
		return 0;
	}
	if (!strcmp(key, "map-seed"))
		return zns_parse_number(value, 0, UINT64_MAX, &g.p.emu.map_seed) ? -1 : 0;
	if (!strcmp(key, "kind")) {
		if (set_word(key, value, kinds, &n))
			return -1;
		g.zoned = n;
		return 0;
	}
	if (!strcmp(key, "map")) {
		if (set_word(key, value, maps, &n))
			return -1;
		g.p.emu.map = (enum zns_emu_map)n;
		return 0;
	}
	if (!strcmp(key, "flush")) {
		if (set_word(key, value, flushes, &n))
			return -1;
		g.p.flush_free = n;
		return 0;
	}
	if (!strcmp(key, "filled")) {
		if (set_word(key, value, fills, &n))
			return -1;
		g.p.filled = (enum drive_filled)n;
		return 0;
	}
	return set_number(key, value);
}

static int drive_config_complete(void)
{
	if (!g.file || !g.p.size) {
		nbdkit_error("file= and size= are needed");
		return -1;
	}
	return 0;
}

/* The model's time: the wall clock's, @slow times as slow. */
static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)((t.tv_sec - g.origin.tv_sec) * 1000000000ll + t.tv_nsec -
			  g.origin.tv_nsec) /
	       g.slow;
}

static void wait_until(uint64_t ns)
{
	struct timespec t = g.origin;

	ns *= g.slow;
	t.tv_nsec += (long)(ns % 1000000000u);
	t.tv_sec += (time_t)(ns / 1000000000u) + t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

/* Under the lock. A line: r or w, offset, bytes, when it came, when it is done (ns of the model).
 */
static void note(char op, uint64_t off, uint32_t len, uint64_t came, uint64_t done)
{
	if (g.requests)
		fprintf(g.requests, "%c %llu %u %llu %llu\n", op, (unsigned long long)off, len,
			(unsigned long long)came, (unsigned long long)done);
}

/* Replaces the file as a whole, so that a reader always finds a complete one. */
static void write_stats(void)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s.new", g.p.stats);
	f = fopen(path, "we");
	if (!f)
		return;
	pthread_mutex_lock(&g.lock);
	fprintf(f, "{");
	g.drive->ops->stats(g.drive, f);
	fprintf(f,
		"\"host_written\": %llu, \"host_read\": %llu, \"flushes\": %llu, "
		"\"flush_ns\": %llu, \"answer_ns\": %llu, \"ns\": %llu}\n",
		(unsigned long long)g.drive->host_written, (unsigned long long)g.drive->host_read,
		(unsigned long long)g.drive->flushes, (unsigned long long)g.drive->flush_ns,
		(unsigned long long)g.drive->answer_ns, (unsigned long long)now_ns());
	if (g.requests)
		fflush(g.requests);
	pthread_mutex_unlock(&g.lock);
	if (!fclose(f))
		rename(path, g.p.stats);
}

static void *stats_run(void *arg)
{
	pthread_mutex_lock(&g.end_lock);
	while (!g.end) {
		struct timespec t;

		write_stats();
		clock_gettime(CLOCK_REALTIME, &t);
		t.tv_nsec += STATS_MS * 1000000l;
		t.tv_sec += t.tv_nsec / 1000000000;
		t.tv_nsec %= 1000000000;
		pthread_cond_timedwait(&g.end_cond, &g.end_lock, &t);
	}
	pthread_mutex_unlock(&g.end_lock);
	return arg;
}

static int open_requests(void)
{
	char path[4096];

	if (!g.want_requests)
		return 0;
	snprintf(path, sizeof(path), "%s.requests", g.stats ? g.stats : g.file);
	g.requests = fopen(path, "we");
	if (g.requests)
		return 0;
	nbdkit_error("%s: %m", path);
	return -1;
}

/* Called after the fork into the background, so that threads can be started. */
static int drive_after_fork(void)
{
	struct zns_err err = ZNS_ERR_INIT;
	int ret;

	g.p.file = g.file;
	g.p.stats = g.stats;
	g.fd = open(g.file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (g.fd < 0 || ftruncate(g.fd, (off_t)g.p.size)) {
		nbdkit_error("%s: %m", g.file);
		return -1;
	}
	ret = g.zoned ? drive_zoned_open(&g.p, &g.drive, &err) :
			drive_ftl_open(&g.p, &g.drive, &err);
	if (ret) {
		nbdkit_error("%s", err.msg);
		return -1;
	}
	if (open_requests())
		return -1;
	clock_gettime(CLOCK_MONOTONIC, &g.origin);
	if (g.stats)
		g.writing = !pthread_create(&g.writer, NULL, stats_run, NULL);
	return 0;
}

static void drive_unload(void)
{
	if (g.writing) {
		pthread_mutex_lock(&g.end_lock);
		g.end = true;
		pthread_cond_signal(&g.end_cond);
		pthread_mutex_unlock(&g.end_lock);
		pthread_join(g.writer, NULL);
		write_stats();
	}
	if (g.requests)
		fclose(g.requests);
	if (g.drive)
		g.drive->ops->close(g.drive);
	if (g.fd >= 0)
		close(g.fd);
	free(g.file);
	free(g.stats);
}

static void *drive_open(int readonly)
{
	return NBDKIT_HANDLE_NOT_NEEDED;
}

static int64_t drive_get_size(void *handle)
{
	return (int64_t)g.p.size;
}

static int can(void *handle)
{
	return 1;
}

static int drive_pread(void *handle, void *buf, uint32_t len, uint64_t off, uint32_t flags)
{
	uint64_t came = now_ns(), done;

	pthread_mutex_lock(&g.lock);
	g.drive->host_read += len;
	done = g.drive->ops->read(g.drive, off, len, came);
	g.drive->answer_ns += done - came;
	note('r', off, len, came, done);
	pthread_mutex_unlock(&g.lock);
	if (zns_pread_all(g.fd, buf, len, (off_t)off)) {
		nbdkit_set_error(EIO);
		return -1;
	}
	wait_until(done);
	return 0;
}

static int drive_pwrite(void *handle, const void *buf, uint32_t len, uint64_t off, uint32_t flags)
{
	uint64_t came = now_ns(), done;

	pthread_mutex_lock(&g.lock);
	g.drive->host_written += len;
	done = g.drive->ops->write(g.drive, off, len, came);
	g.drive->answer_ns += done - came;
	note('w', off, len, came, done);
	pthread_mutex_unlock(&g.lock);
	if (zns_pwrite_all(g.fd, buf, len, (off_t)off)) {
		nbdkit_set_error(EIO);
		return -1;
	}
	wait_until(done);
	return 0;
}

static int drive_flush(void *handle, uint32_t flags)
{
	uint64_t came = now_ns(), done;

	pthread_mutex_lock(&g.lock);
	done = g.p.flush_free ? came : g.drive->ops->flush(g.drive, came);
	g.drive->flushes++;
	g.drive->flush_ns += done - came;
	pthread_mutex_unlock(&g.lock);
	wait_until(done);
	return 0;
}

static int drive_trim(void *handle, uint32_t len, uint64_t off, uint32_t flags)
{
	uint64_t came = now_ns(), done;

	pthread_mutex_lock(&g.lock);
	done = g.drive->ops->discard(g.drive, off, len, came);
	pthread_mutex_unlock(&g.lock);
	if (fallocate(g.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off, len)) {
		nbdkit_set_error(errno);
		return -1;
	}
	wait_until(done);
	return 0;
}

static struct nbdkit_plugin plugin = {
	.name = "zns-drive",
	.longname = "modelled drive with dies and channels",
	.load = drive_load,
	.unload = drive_unload,
	.config = drive_config,
	.config_complete = drive_config_complete,
	.after_fork = drive_after_fork,
	.open = drive_open,
	.get_size = drive_get_size,
	.can_multi_conn = can,
	.can_write = can,
	.can_flush = can,
	.can_trim = can,
	.pread = drive_pread,
	.pwrite = drive_pwrite,
	.flush = drive_flush,
	.trim = drive_trim,
	.zero = drive_trim, /* zeroes may be holes */
};

NBDKIT_REGISTER_PLUGIN(plugin)
