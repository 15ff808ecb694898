/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reading a composed image beside the same bytes in a plain one.
 *
 *   composed [--mib N] [--runs N] [--again N]
 *
 * N MiB (1024) of pages, of which --runs/2 (25000) pages were copied again in a second round. They
 * stand there in order, in blocks of 64 that are out of order, or each anywhere. Read in pieces of
 * 16 MiB as export does, and in requests of 2 MiB, 32 under way, as a restore does. Medians of
 * --again (5) rounds; CPU time of all threads is what the machine's other work disturbs least.
 */
#include <getopt.h>
#include <sys/resource.h>
#include "../unit/stripe_fixture.h"

#define PAGE ZNS_MAP_PAGE
#define UNIT KIB(512)
#define RUNS_MAX 99
#define REQUEST MIB(2)
#define UNDER_WAY 32
#define BLOCK 64 /* pages */

enum { PLAIN, ORDERED, BLOCKS, ANYWHERE, NR_KINDS };
static const char *const names[NR_KINDS] = { "plain", "in order", "blocks", "anywhere" };

static uint64_t mib = 1024, nr_runs = 50000;
static unsigned again = 5;
static struct rig rig;
static uint64_t *dirty; /* pages of the second round, ascending */
static size_t nr_dirty;

static void must(int ret)
{
	if (!ret)
		return;
	fprintf(stderr, "composed: %s\n", err.msg);
	exit(1);
}

static int cmp_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static int cmp_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void append(struct zns_wimage *i, uint64_t off, uint64_t len, uint64_t seed)
{
	while (len) {
		uint8_t *buf;
		size_t n;

		must(zns_wimage_room(i, &buf, &n, &err));
		n = zns_min((uint64_t)n, len);
		fill(buf, off, n, seed);
		must(zns_wimage_filled(i, n, &err));
		off += n;
		len -= n;
	}
}

static void shuffle(uint64_t *v, size_t nr)
{
	for (size_t n = 0; n < nr; n++) {
		size_t k = rnd(nr);
		uint64_t x = v[n];

		v[n] = v[k];
		v[k] = x;
	}
}

/* Writes the second round in the order of @kind, and makes the image composed of both. */
static void second(struct zns_wimage *first, int kind)
{
	size_t step = kind == BLOCKS ? BLOCK : 1, nr = (nr_dirty + step - 1) / step, runs = 0,
	       at = 0;
	uint64_t *order = calloc(nr, sizeof(*order)), *place = calloc(nr_dirty, sizeof(*place));
	struct zns_image_run *run = calloc(2 * nr_dirty + 1, sizeof(*run));
	struct zns_wimage *from[2] = { first };
	uint64_t page = 0;
	char name[32];

	for (size_t n = 0; n < nr; n++)
		order[n] = n * step;
	if (kind != ORDERED)
		shuffle(order, nr);
	snprintf(name, sizeof(name), "live-%d.img", kind);
	must(zns_writer_image(rig.w, name, true, &from[1], &err));
	for (size_t n = 0; n < nr; n++)
		for (size_t d = order[n]; d < zns_min(nr_dirty, order[n] + step); d++, at += PAGE) {
			place[d] = at;
			append(from[1], dirty[d] * PAGE, PAGE, 1);
		}
	zns_wimage_set_part(from[1]);
	must(zns_wimage_seal(from[1], &err));
	for (size_t d = 0; d <= nr_dirty; d++) {
		uint64_t to = d < nr_dirty ? dirty[d] : mib * MIB(1) / PAGE;

		if (to > page)
			run[runs++] = (struct zns_image_run){ (to - page) * PAGE, 0, page * PAGE };
		if (d < nr_dirty)
			run[runs++] = (struct zns_image_run){ PAGE, 1, place[d] };
		page = to + 1;
	}
	snprintf(name, sizeof(name), "pages-%d.img", kind);
	must(zns_writer_compose(rig.w, name, from, 2, run, runs, &err));
	printf("%-9s %zu runs\n", names[kind], runs);
	free(order);
	free(place);
	free(run);
}

static void make(void)
{
	struct zns_emu_params p = roomy(256, MIB(64));
	struct zns_wimage *plain, *first;
	uint64_t pages = mib * MIB(1) / PAGE;

	rig_init(&rig, make_dev(&p), UNIT, 8);
	rig_start(&rig);
	must(zns_writer_image(rig.w, "pages-0.img", true, &plain, &err));
	append(plain, 0, mib * MIB(1), 1);
	must(zns_wimage_seal(plain, &err));
	nr_dirty = nr_runs / 2;
	dirty = calloc(nr_dirty, sizeof(*dirty));
	for (size_t n = 0; n < nr_dirty; n++)
		dirty[n] = n * (pages / nr_dirty) + rnd(pages / nr_dirty - 1);
	qsort(dirty, nr_dirty, sizeof(*dirty), cmp_u64);
	must(zns_writer_image(rig.w, "live-0.img", true, &first, &err));
	for (uint64_t n = 0, d = 0; n < pages; n++) { /* each overwritten page gets new content */
		bool old = d < nr_dirty && dirty[d] == n;

		append(first, n * PAGE, PAGE, old ? 2 : 1);
		d += old;
	}
	zns_wimage_set_part(first);
	must(zns_wimage_seal(first, &err));
	for (int kind = ORDERED; kind < NR_KINDS; kind++)
		second(first, kind);
	rig_finish(&rig);
}

/* --- reading --- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t less = PTHREAD_COND_INITIALIZER;
static unsigned under_way;

static void on_done(void *arg, const struct zns_err *e)
{
	pthread_mutex_lock(&lock);
	err = *e;
	must(e->code);
	under_way--;
	pthread_cond_signal(&less);
	pthread_mutex_unlock(&lock);
}

static void wait_below(unsigned max)
{
	pthread_mutex_lock(&lock);
	while (under_way > max)
		pthread_cond_wait(&less, &lock);
	pthread_mutex_unlock(&lock);
}

static void read_all(struct zns_rimage *i, bool requests, uint8_t *mem)
{
	uint64_t size = zns_rimage_size(i);

	for (uint64_t off = 0; off < size && !requests; off += MIB(16))
		must(zns_rimage_read(i, off, mem + off, zns_min(MIB(16), size - off), &err));
	for (uint64_t off = 0; off < size && requests; off += REQUEST) {
		struct iovec v = { mem + off, zns_min(REQUEST, size - off) };

		wait_below(UNDER_WAY - 1);
		pthread_mutex_lock(&lock);
		under_way++;
		pthread_mutex_unlock(&lock);
		zns_rimage_read_task(i, off, ZNS_TASK(getpid()), &v, 1, on_done, NULL);
	}
	wait_below(0);
}

static double cpu(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static double median(double *v)
{
	qsort(v, again, sizeof(*v), cmp_double);
	return v[again / 2];
}

int main(int argc, char **argv)
{
	static const struct option longs[] = { { "mib", required_argument, NULL, 'm' },
					       { "runs", required_argument, NULL, 'r' },
					       { "again", required_argument, NULL, 'a' },
					       { 0 } };
	static double wall[2][NR_KINDS][RUNS_MAX], used[2][NR_KINDS][RUNS_MAX];
	uint8_t *mem;
	uint64_t want;
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 'm')
			mib = strtoull(optarg, NULL, 10);
		else if (c == 'r')
			nr_runs = strtoull(optarg, NULL, 10);
		else if (c == 'a')
			again = (unsigned)strtoul(optarg, NULL, 10);
		else
			return 2;
	}
	if (!mib || nr_runs < 2 || nr_runs > mib * 256 || !again || again > RUNS_MAX)
		return 2;
	emu_begin(NULL);
	make();
	mem = malloc(mib * MIB(1));
	fill(mem, 0, mib * MIB(1), 1);
	want = zns_hash(mem, mib * MIB(1));
	for (unsigned n = 0; n < again; n++)
		for (int way = 0; way < 2; way++)
			for (int kind = 0; kind < NR_KINDS; kind++) {
				struct zns_reader *rd = rig_reader(&rig, 0, 0);
				uint64_t begin = zns_mono_ns();
				double was = cpu();
				char name[32];

				snprintf(name, sizeof(name), "pages-%d.img", kind);
				read_all(zns_reader_find(rd, name), way, mem);
				wall[way][kind][n] = (double)(zns_mono_ns() - begin) / 1e9;
				used[way][kind][n] = cpu() - was;
				zns_reader_free(rd);
				if (zns_hash(mem, mib * MIB(1)) != want) {
					fprintf(stderr, "composed: wrong bytes\n");
					return 1;
				}
			}
	for (int way = 0; way < 2; way++)
		for (int kind = 0; kind < NR_KINDS; kind++)
			printf("%s %-9s wall %.3f s, CPU %.3f s\n", way ? "requests" : "pieces  ",
			       names[kind], median(wall[way][kind]), median(used[way][kind]));
	emu_end(NULL);
	return 0;
}
