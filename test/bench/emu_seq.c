/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Timing off: how fast is the emulated device beside the disk below it?
 *
 *   emu_seq [--dir DIR] [--mib N] [--runs N] [--zones N] [--threads N] [--prealloc
 * allocated|written] [--fresh]
 *
 * Writes N MiB (2048) in units of 256 KiB, round-robin over 5 zones, in turn: through the emulator
 * with a thread per zone; through the emulator with 8 threads that take units in order and wait for
 * their zone's turn, as a dump does; and plain, with O_DIRECT to a preallocated file, with as many
 * threads as zones and with 8. A zone has one write in flight, so the emulator never has more than
 * --zones of them: the third is its equal. Times are taken when the last write returns and when a
 * final flush (fdatasync) has; medians, of the ratios of runs of one round too. CPU time is what
 * the machine's other work disturbs least. --fresh makes the files anew for every run: then every
 * block is written for the first time. Else the first round is not counted.
 *
 * At the end the other half of the promise: a writer at full speed is killed, then the power is
 * cut; what it had flushed must be there.
 */
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../controls/controls.h"

#define UNIT KIB(256)
#define MAX_ZONES 64
#define MAX_THREADS 64
#define MAX_RUNS 99

static uint64_t mib = 2048;
static unsigned runs = 9, zones = 5, threads = 8;
static enum zns_emu_prealloc prealloc = ZNS_EMU_ALLOCATED;
static bool fresh;

/* Each candidate has a file of its own, since the disk may cache recently written data. */
enum { PER_ZONE, IN_TURN, PLAIN, PLAIN_WIDE, NR_WAYS };
static char path_of[NR_WAYS][200];
static void *data;

struct job {
	struct zns_dev *dev; /* NULL: plain */
	int fd;
	bool per_zone;
	uint64_t units, next, zone_units;
	uint64_t turn[MAX_ZONES]; /* units written of each lane */
	pthread_mutex_t lock;
	pthread_cond_t moved[MAX_ZONES];
};

struct took {
	double written, flushed, cpu; /* seconds */
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void check(int rc, const struct zns_err *err)
{
	if (!rc)
		return;
	fprintf(stderr, "%s\n", err->msg);
	exit(1);
}

/* The nth unit of a lane, which continues in another zone of its own when one is full. */
static void write_lane(struct job *j, unsigned lane, uint64_t nth)
{
	struct zns_err err = ZNS_ERR_INIT;

	check(zns_dev_write(j->dev, lane + nth / j->zone_units * zones, nth % j->zone_units * UNIT,
			    data, UNIT, &err),
	      &err);
}

static void write_in_turn(struct job *j, uint64_t k)
{
	unsigned lane = k % zones;

	pthread_mutex_lock(&j->lock);
	while (j->turn[lane] != k / zones)
		pthread_cond_wait(&j->moved[lane], &j->lock);
	pthread_mutex_unlock(&j->lock);
	write_lane(j, lane, k / zones);
	pthread_mutex_lock(&j->lock);
	j->turn[lane]++;
	pthread_cond_broadcast(&j->moved[lane]);
	pthread_mutex_unlock(&j->lock);
}

static void *work(void *arg)
{
	struct job *j = arg;
	uint64_t k = __atomic_fetch_add(&j->next, 1, __ATOMIC_RELAXED);

	for (; k < j->units;
	     k = j->per_zone ? k + zones : __atomic_fetch_add(&j->next, 1, __ATOMIC_RELAXED)) {
		if (j->per_zone)
			write_lane(j, k % zones, k / zones);
		else if (j->dev)
			write_in_turn(j, k);
		else if (zns_pwrite_all(j->fd, data, UNIT, k * UNIT))
			die("write");
	}
	return NULL;
}

static double cpu_seconds(void)
{
	struct rusage r;

	getrusage(RUSAGE_SELF, &r);
	return r.ru_utime.tv_sec + r.ru_stime.tv_sec +
	       (r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
}

static struct took run(struct job *j, unsigned nr)
{
	uint64_t start, written;
	struct zns_err err = ZNS_ERR_INIT;
	pthread_t t[MAX_THREADS];
	double cpu = cpu_seconds();

	pthread_mutex_init(&j->lock, NULL);
	for (unsigned i = 0; i < zones; i++)
		pthread_cond_init(&j->moved[i], NULL);
	start = zns_mono_ns();
	for (unsigned i = 0; i < nr; i++)
		if (pthread_create(&t[i], NULL, work, j))
			die("thread");
	for (unsigned i = 0; i < nr; i++)
		pthread_join(t[i], NULL);
	written = zns_mono_ns();
	if (j->dev)
		check(zns_dev_flush(j->dev, &err), &err);
	else if (fdatasync(j->fd))
		die("fdatasync");
	return (struct took){ .written = (written - start) / 1e9,
			      .flushed = (zns_mono_ns() - start) / 1e9,
			      .cpu = cpu_seconds() - cpu };
}

static void make_device(const char *path)
{
	struct zns_emu_params p;
	struct zns_err err = ZNS_ERR_INIT;

	zns_emu_default_params(&p);
	p.nr_zones = zns_align_up((MIB(mib) / UNIT + zones - 1) / zones, p.zone_capacity / UNIT) /
		     (p.zone_capacity / UNIT) * zones;
	p.nr_zones = zns_max(p.nr_zones, 4u);
	p.max_open = p.max_active = 0;
	p.prealloc = prealloc;
	check(zns_emu_create(path, &p, true, &err), &err);
}

static void make_plain(const char *path)
{
	uint64_t pos = 0;
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600), rc;

	if (fd < 0)
		die(path);
	rc = posix_fallocate(fd, 0, MIB(mib));
	for (; !rc && prealloc == ZNS_EMU_WRITTEN && pos < MIB(mib); pos += UNIT)
		rc = -zns_pwrite_all(fd, data, UNIT, pos);
	if (rc || fsync(fd)) {
		fprintf(stderr, "cannot make %s: %s\n", path, strerror(rc ? rc : errno));
		exit(1);
	}
	close(fd);
}

static struct took through_emulator(const char *path, bool per_zone)
{
	struct job j = { .fd = -1, .units = MIB(mib) / UNIT, .per_zone = per_zone };
	struct zns_err err = ZNS_ERR_INIT;
	char spec[220];
	struct took t;
	uint32_t *all;

	snprintf(spec, sizeof(spec), "emu:%s", path);
	check(zns_dev_open(spec, 0, &j.dev, &err), &err);
	j.zone_units = j.dev->geo.zone_capacity / UNIT;
	all = malloc(j.dev->geo.nr_zones * sizeof(*all));
	if (!all)
		die("memory");
	for (uint32_t z = 0; z < j.dev->geo.nr_zones; z++)
		all[z] = z;
	check(zns_dev_reset(j.dev, all, j.dev->geo.nr_zones, &err), &err);
	t = run(&j, per_zone ? zones : threads);
	free(all);
	zns_dev_close(j.dev);
	return t;
}

static struct took plain(const char *path, unsigned depth)
{
	struct job j = { .units = MIB(mib) / UNIT };
	struct took t;

	j.fd = open(path, O_RDWR | O_DIRECT);
	if (j.fd < 0)
		die(path);
	t = run(&j, depth);
	close(j.fd);
	return t;
}

static void make(unsigned way)
{
	unlink(path_of[way]);
	if (way == PER_ZONE || way == IN_TURN)
		make_device(path_of[way]);
	else
		make_plain(path_of[way]);
}

static struct took measure(unsigned way)
{
	if (fresh)
		make(way);
	if (way == PER_ZONE || way == IN_TURN)
		return through_emulator(path_of[way], way == PER_ZONE);
	return plain(path_of[way], way == PLAIN ? zones : threads);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v, unsigned nr)
{
	qsort(v, nr, sizeof(*v), by_value);
	return nr % 2 ? v[nr / 2] : (v[nr / 2 - 1] + v[nr / 2]) / 2;
}

/* The order changes, so that no candidate always follows the same one. */
static void compare(void)
{
	static const char *const title[NR_WAYS] = { "emulator, a thread per zone",
						    "emulator, in turn", "plain", "plain" };
	static double t[NR_WAYS][2][MAX_RUNS], cpu[NR_WAYS][MAX_RUNS];

	for (unsigned i = 0; i <= runs; i++) {
		for (unsigned n = 0; n < NR_WAYS; n++) {
			unsigned way = (n + i) % NR_WAYS;
			struct took k = measure(way);

			if (!i) /* the first round is not counted */
				continue;
			t[way][0][i - 1] = k.written;
			t[way][1][i - 1] = k.flushed;
			cpu[way][i - 1] = k.cpu;
		}
	}
	printf("%llu MiB in units of 256 KiB over %u zones, %s%s, medians of %u runs\n\n",
	       (unsigned long long)mib, zones,
	       prealloc == ZNS_EMU_WRITTEN ? "written once before" : "allocated",
	       fresh ? ", made anew for each run" : "", runs);
	printf("| | threads | MiB/s | of plain, %u threads | with the final flush | of plain | CPU s |\n"
	       "| --- | --- | --- | --- | --- | --- | --- |\n",
	       zones);
	for (unsigned way = 0; way < NR_WAYS; way++) {
		printf("| %s | %u ", title[way], way == PER_ZONE || way == PLAIN ? zones : threads);
		for (int flush = 0; flush < 2; flush++) {
			double ratio[MAX_RUNS], rate[MAX_RUNS];

			for (unsigned i = 0; i < runs; i++) {
				rate[i] = mib / t[way][flush][i];
				ratio[i] = t[PLAIN][flush][i] / t[way][flush][i];
			}
			printf("| %.0f | %.2f ", median(rate, runs), median(ratio, runs));
		}
		printf("| %.3f |\n", median(cpu[way], runs));
	}
}

/* ---- killed, then cut
 * ------------------------------------------------------------------------------ */

/* Each unit's content encodes its number. Flushes now and then, and writes into @flushed how
 * many units of each lane were flushed. */
static void write_until_killed(const char *spec, uint64_t *flushed)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_dev *d = NULL;
	uint64_t max = MIB(mib) / UNIT / zones, per_zone;

	check(zns_dev_open(spec, 0, &d, &err), &err);
	per_zone = d->geo.zone_capacity / UNIT;
	for (uint64_t n = 0; n < max; n++) {
		for (unsigned lane = 0; lane < zones; lane++) {
			*(uint64_t *)data = n * zones + lane;
			check(zns_dev_write(d, lane + n / per_zone * zones, n % per_zone * UNIT,
					    data, UNIT, &err),
			      &err);
		}
		if (n % 7)
			continue;
		check(zns_dev_flush(d, &err), &err);
		__atomic_store_n(flushed, n + 1, __ATOMIC_RELEASE);
	}
	pause();
}

static uint64_t lost_units(const char *spec, uint64_t flushed)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_dev *d = NULL;
	uint64_t lost = 0, per_zone;

	check(zns_dev_open(spec, 0, &d, &err), &err);
	check(zns_emu_power_cut(d, &err), &err);
	per_zone = d->geo.zone_capacity / UNIT;
	for (uint64_t n = 0; n < flushed; n++)
		for (unsigned lane = 0; lane < zones; lane++)
			lost += zns_dev_read(d, lane + n / per_zone * zones, n % per_zone * UNIT,
					     data, UNIT, &err) ||
				*(uint64_t *)data != n * zones + lane;
	zns_dev_close(d);
	return lost;
}

static int kill_and_cut(void)
{
	uint64_t *flushed = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
				 0),
		 lost = 0, kept = 0;
	char spec[220];

	if (flushed == MAP_FAILED)
		die("memory");
	snprintf(spec, sizeof(spec), "emu:%s", path_of[PER_ZONE]);
	for (unsigned i = 0; i < runs; i++) {
		pid_t pid;

		make_device(path_of[PER_ZONE]);
		*flushed = 0;
		pid = fork();
		if (!pid) {
			write_until_killed(spec, flushed);
			_exit(1);
		}
		usleep(20000 + 23000 * i);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		lost += lost_units(spec, *flushed);
		kept += *flushed * zones;
	}
	printf("\nkilled and cut %u times: %llu flushed units of 256 KiB, %llu of them lost\n",
	       runs, (unsigned long long)kept, (unsigned long long)lost);
	return lost || !kept;
}

static unsigned long number(const char *s, unsigned long max)
{
	char *end;
	unsigned long v = strtoul(s, &end, 10);

	if (!v || *end || v > max) {
		fprintf(stderr, "\"%s\": must be 1 to %lu\n", s, max);
		exit(2);
	}
	return v;
}

int main(int argc, char **argv)
{
	static const struct option opts[] = {
		{ "dir", required_argument, NULL, 'd' },
		{ "mib", required_argument, NULL, 'm' },
		{ "runs", required_argument, NULL, 'r' },
		{ "zones", required_argument, NULL, 'z' },
		{ "threads", required_argument, NULL, 't' },
		{ "prealloc", required_argument, NULL, 'p' },
		{ "fresh", no_argument, NULL, 'f' },
		{ NULL, 0, NULL, 0 },
	};
	const char *dir = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
	int c;

	while ((c = getopt_long(argc, argv, "", opts, NULL)) != -1) {
		switch (c) {
		case 'd':
			dir = optarg;
			break;
		case 'm':
			mib = number(optarg, 1 << 20);
			break;
		case 'r':
			runs = number(optarg, MAX_RUNS);
			break;
		case 'z':
			zones = number(optarg, MAX_ZONES);
			break;
		case 't':
			threads = number(optarg, MAX_THREADS);
			break;
		case 'p':
			if (strcmp(optarg, "written") && strcmp(optarg, "allocated"))
				return 2;
			prealloc = *optarg == 'w' ? ZNS_EMU_WRITTEN : ZNS_EMU_ALLOCATED;
			break;
		case 'f':
			fresh = true;
			break;
		default:
			return 2;
		}
	}
	if (posix_memalign(&data, 4096, UNIT))
		die("memory");
	for (size_t i = 0; i < UNIT / 8; i++)
		((uint64_t *)data)[i] = i * UINT64_C(0x9e3779b97f4a7c15);
	for (unsigned way = 0; way < NR_WAYS; way++) {
		snprintf(path_of[way], sizeof(path_of[way]), "%s/emu-seq-%d.%u", dir, getpid(),
			 way);
		if (!fresh)
			make(way);
	}
	compare();
	c = kill_and_cut();
	for (unsigned way = 0; way < NR_WAYS; way++)
		unlink(path_of[way]);
	return c;
}
