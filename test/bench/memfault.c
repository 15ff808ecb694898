/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A process whose memory and mapped file are touched by command, for bench-memory.
 *   memfault MEBIBYTES FILE [bare]
 * Lines on stdin, one answer each on stdout:
 *
 * - touch N SEED: a page of each of N units of 64 KiB that are not in memory, and after each a page
 *   of the file that is not: "touch ANON-NS... / FILE-NS..."
 * - walk N: all pages of N neighbouring units that are not in memory: "walk UNITS NS"
 * - race N THREADS: N units by several threads at once: "race N NS"
 * - alone N SEED GAP: as touch, without the file, GAP microseconds between two
 * - stand RATE SECONDS: a page of each unit is written, in the order of addresses, over and over, so
 *   that RATE MiB a second come back and go, while a thread does nothing but look at the clock:
 *   "stand NS OF-NS LONGEST-NS UNITS": how long that one did not run
 * - check: all of it: "check WRONG"
 *
 * With "bare" nobody needs to attach: a second process answers the faults of its memory from the
 * file by the fewest calls there can be. No pager in user space is faster than that one.
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096u
#define UNIT 65536u
#define THREADS_MAX 16

static uint8_t *mem, *map;
static uint64_t units, seed;
static int pagemap;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t word_at(uint64_t i)
{
	uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	return x ^ (x >> 31);
}

static uint32_t roll(void)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(seed >> 33);
}

static void fill(uint64_t *at)
{
	for (uint64_t i = 0; i < units * UNIT / 8; i++)
		at[i] = word_at(i);
}

/* Is no page of the unit in memory? */
static bool out(uint64_t unit)
{
	uint64_t e[UNIT / PAGE];

	if (pread(pagemap, e, sizeof(e), (off_t)((uintptr_t)(mem + unit * UNIT) / PAGE * 8)) !=
	    sizeof(e))
		exit(1);
	for (unsigned i = 0; i < UNIT / PAGE; i++)
		if (e[i] >> 63)
			return false;
	return true;
}

static uint64_t touch(const uint8_t *base, uint64_t at)
{
	uint64_t start = now_ns(), got = *(const volatile uint64_t *)(base + at);

	start = now_ns() - start;
	if (got != word_at(at / 8)) {
		printf("wrong at %llu\n", (unsigned long long)at);
		exit(1);
	}
	return start;
}

static uint64_t some_unit(void)
{
	for (int i = 0; i < 100000; i++) {
		uint64_t u = roll() % units;

		if (out(u))
			return u;
	}
	printf("nothing is out\n");
	exit(1);
}

static uint64_t some_page(void)
{
	unsigned char in;

	for (int i = 0; i < 100000; i++) {
		uint64_t at = roll() % (units * UNIT / PAGE) * PAGE;

		if (!mincore(map + at, PAGE, &in) && !(in & 1))
			return at;
	}
	printf("all of the file is cached\n");
	exit(1);
}

static void touches(unsigned n, bool file, unsigned gap_us)
{
	uint64_t *a = calloc(n, 8), *f = calloc(n, 8);

	for (unsigned i = 0; i < n; i++) {
		uint64_t u = some_unit();

		a[i] = touch(mem, u * UNIT + roll() % (UNIT / PAGE) * PAGE);
		usleep(gap_us); /* gives what follows a fault some time */
		if (file) {
			f[i] = touch(map, some_page());
			usleep(gap_us);
		}
	}
	printf("touch");
	for (unsigned i = 0; i < n; i++)
		printf(" %llu", (unsigned long long)a[i]);
	printf(" /");
	for (unsigned i = 0; file && i < n; i++)
		printf(" %llu", (unsigned long long)f[i]);
	printf("\n");
	free(a);
	free(f);
}

static void walk(uint64_t n)
{
	uint64_t u = 0, run = 0, start;

	while (u < units && run < n)
		run = out(u++) ? run + 1 : 0;
	u -= run;
	start = now_ns();
	for (uint64_t at = u * UNIT; at < (u + run) * UNIT; at += PAGE)
		touch(mem, at);
	printf("walk %llu %llu\n", (unsigned long long)run, (unsigned long long)(now_ns() - start));
}

struct racer {
	uint64_t *at;
	unsigned n;
};

static void *race_one(void *arg)
{
	const struct racer *r = arg;

	for (unsigned i = 0; i < r->n; i++)
		touch(mem, r->at[i]);
	return NULL;
}

static void race(unsigned n, unsigned threads)
{
	uint64_t *at = calloc(n, 8), start, first = roll() % units;
	struct racer r[THREADS_MAX];
	pthread_t t[THREADS_MAX];
	unsigned got = 0;

	for (uint64_t i = 0; i < units && got < n; i++)
		if (out((first + i * 7) % units))
			at[got++] = (first + i * 7) % units * UNIT + roll() % 16 * PAGE;
	start = now_ns();
	for (unsigned i = 0; i < threads; i++) {
		r[i] = (struct racer){ at + i * (got / threads), got / threads };
		pthread_create(&t[i], NULL, race_one, &r[i]);
	}
	for (unsigned i = 0; i < threads; i++)
		pthread_join(t[i], NULL);
	printf("race %u %llu\n", got / threads * threads, (unsigned long long)(now_ns() - start));
	free(at);
}

/* a thread that only reads the clock counts as interrupted after this long without a reading */
#define GAP_NS 10000

static struct still {
	_Atomic bool end;
	uint64_t away_ns, of_ns, longest_ns;
} still;

/* On a busy machine other processes would interrupt it most of the time. */
static void first_of_all(void)
{
	setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), -20);
}

static void *look_at_clock(void *arg)
{
	uint64_t begin, last;

	first_of_all();
	begin = last = now_ns();
	while (!still.end) {
		uint64_t now = now_ns(), gap = now - last;

		if (gap > GAP_NS) {
			still.away_ns += gap;
			still.longest_ns = gap > still.longest_ns ? gap : still.longest_ns;
		}
		last = now;
	}
	still.of_ns = last - begin;
	return arg;
}

/* Writes the same content again: the kernel does not know that nothing changed. */
static void write_unit(uint64_t u)
{
	volatile uint64_t *at = (volatile uint64_t *)(mem + u * UNIT);

	if (*at != word_at(u * UNIT / 8))
		exit(1);
	*at = word_at(u * UNIT / 8);
}

static void stand(unsigned rate, unsigned seconds)
{
	uint64_t begin = now_ns(), n = 0, end = begin + seconds * 1000000000ull;
	pthread_t t;

	still = (struct still){ 0 };
	pthread_create(&t, NULL, look_at_clock, NULL);
	while (now_ns() < end) {
		if (!rate || n * 1000000000u / 16 / rate > now_ns() - begin)
			usleep(200);
		else
			write_unit(n++ % units);
	}
	still.end = true;
	pthread_join(t, NULL);
	printf("stand %llu %llu %llu %llu\n", (unsigned long long)still.away_ns,
	       (unsigned long long)still.of_ns, (unsigned long long)still.longest_ns,
	       (unsigned long long)n);
}

/* Waits for a fault, reads the page, puts it in: the least that any pager must do. */
static void answer(int uffd, int fd, uint8_t *page)
{
	struct uffd_msg msg;

	while (read(uffd, &msg, sizeof(msg)) == sizeof(msg)) {
		uint64_t to = msg.arg.pagefault.address & -(uint64_t)PAGE;
		struct uffdio_copy c = { .dst = to, .src = (uintptr_t)page, .len = PAGE };

		if (pread(fd, page, PAGE, (off_t)(to - (uintptr_t)mem)) != PAGE ||
		    ioctl(uffd, UFFDIO_COPY, &c))
			break;
	}
	perror("bare: a fault is not answered");
	kill(getppid(), SIGKILL);
	exit(1);
}

static int bare(const char *file)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .range = { (uintptr_t)mem, units * UNIT },
				       .mode = UFFDIO_REGISTER_MODE_MISSING };
	int uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	int fd = open(file, O_RDONLY | O_DIRECT | O_CLOEXEC);
	void *page;

	if (uffd < 0 || fd < 0 || ioctl(uffd, UFFDIO_API, &api) ||
	    posix_memalign(&page, PAGE, PAGE))
		return -1;
	memset(page, 0, PAGE);
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		answer(uffd, fd, page);
	}
	if (madvise(mem, units * UNIT, MADV_DONTNEED) || ioctl(uffd, UFFDIO_REGISTER, &reg))
		return -1;
	return 0;
}

int main(int argc, char **argv)
{
	bool is_bare = argc == 4 && !strcmp(argv[3], "bare");
	char line[128];
	unsigned n, m;
	int fd;

	if (argc != 3 && !is_bare)
		return 2;
	units = strtoull(argv[1], NULL, 10) << 4;
	seed = 1;
	mem = mmap(NULL, units * UNIT + UNIT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		   -1, 0);
	mem += -(uintptr_t)mem % UNIT;
	fd = open(argv[2], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	if (fd < 0 || pagemap < 0 || ftruncate(fd, (off_t)(units * UNIT)))
		return 1;
	madvise(mem, units * UNIT, MADV_NOHUGEPAGE);
	fill((uint64_t *)mem);
	for (uint64_t at = 0; at < units * UNIT; at += UNIT)
		if (pwrite(fd, mem + at, UNIT, (off_t)at) != UNIT)
			return 1;
	if (fsync(fd) || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))
		return 1;
	map = mmap(NULL, units * UNIT, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED || madvise(map, units * UNIT, MADV_RANDOM))
		return 1;
	if (is_bare && bare(argv[2]))
		return 1;
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("ready\n");
	while (fgets(line, sizeof(line), stdin)) {
		unsigned long long s;

		if (sscanf(line, "touch %u %llu", &n, &s) == 2) {
			seed = s;
			posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
			if (is_bare)
				madvise(mem, units * UNIT, MADV_DONTNEED);
			touches(n, true, 300);
		} else if (sscanf(line, "alone %u %llu %u", &n, &s, &m) == 3) {
			seed = s;
			touches(n, false, m);
		} else if (sscanf(line, "walk %u", &n) == 1) {
			walk(n);
		} else if (sscanf(line, "race %u %u", &n, &m) == 2 && m && m <= THREADS_MAX) {
			race(n, m);
		} else if (sscanf(line, "stand %u %u", &n, &m) == 2) {
			stand(n, m);
		} else if (!strcmp(line, "check\n")) {
			for (uint64_t at = 0; at < units * UNIT; at += PAGE)
				touch(mem, at);
			printf("check 0\n");
		} else {
			return 2;
		}
	}
	return 0;
}
