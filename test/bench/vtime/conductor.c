/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * vtime FILE: makes FILE, the state of one virtual clock (vtime.h), and moves that clock for as
 * long as its standard input is open. Lines in, one line out for each: hold     the clock stands
 * still from now on, so that what shall begin together can be prepared go N NS... once N threads
 * sleep until exactly one of these times: let it run now      its nanoseconds stat     its
 * nanoseconds, how often it was moved, how often the kernel was asked
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "vtime.h"

#define STUCK_NS 200000 /* look again so soon at threads that were running */
#define IDLE_NS 20000000
#define STARTS_MAX 64

static struct vt_shared *vt;
static uint64_t asked;

/* What is kept of a slot's thread between two looks at it. */
static struct {
	uint64_t serial;
	int stat, sched;
} known[VT_SLOTS];

struct look {
	uint32_t slot;
	int32_t pid, tid;
	uint64_t serial;
	unsigned long long slices;
};

static int open_proc(const struct look *l, const char *what)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", l->pid, l->tid, what);
	return open(path, O_RDONLY | O_CLOEXEC);
}

static void forget(uint32_t i)
{
	if (known[i].serial) {
		close(known[i].stat);
		close(known[i].sched);
	}
	known[i].serial = 0;
}

/* 'S': blocked, 'X': gone, anything else: it runs or will. */
static char look_at(struct look *l, unsigned long long *slices)
{
	char buf[512], *p;
	ssize_t n;

	asked++;
	if (known[l->slot].serial != l->serial) {
		forget(l->slot);
		known[l->slot].stat = open_proc(l, "stat");
		known[l->slot].sched = open_proc(l, "schedstat");
		known[l->slot].serial = l->serial;
	}
	n = pread(known[l->slot].stat, buf, sizeof(buf) - 1, 0);
	if (n <= 0)
		return 'X';
	buf[n] = 0;
	p = strrchr(buf, ')');
	if (!p || p[1] != ' ')
		return 'R';
	if (p[2] == 'Z' || p[2] == 'X')
		return 'X';
	if (p[2] != 'S')
		return 'R';
	n = pread(known[l->slot].sched, buf, sizeof(buf) - 1, 0);
	if (n <= 0)
		return 'X';
	buf[n] = 0;
	return sscanf(buf, "%*u %*u %llu", slices) == 1 ? 'S' : 'R';
}

static void release(const struct look *l)
{
	struct vt_slot *s = &vt->slot[l->slot];

	vt_lock(vt);
	if (s->state == VT_AWAKE && s->serial == l->serial) {
		s->state = VT_FREE;
		vt->nr_awake--;
		vt->changes++;
	}
	vt_unlock(vt);
	forget(l->slot);
}

/*
 * Does every thread that is not asleep wait in the kernel? Looked at twice: one that was seen
 * blocked first may have been woken by one that was not yet; then it has run since, or is about to.
 */
static bool all_blocked(struct look *l, uint32_t nr, bool *gone)
{
	for (int pass = 0; pass < 2; pass++) {
		for (uint32_t i = 0; i < nr; i++) {
			unsigned long long slices = 0;
			char c = look_at(&l[i], &slices);

			if (c == 'X') {
				release(&l[i]);
				*gone = true;
				return false;
			}
			if (c != 'S' || (pass && slices != l[i].slices))
				return false;
			l[i].slices = slices;
		}
	}
	return true;
}

/* true: something was done, look again at once. */
static bool step(bool *running)
{
	static struct look l[VT_SLOTS];
	struct vt_slot *s;
	bool moved = false, gone = false;
	uint64_t changes;
	uint32_t nr = 0;

	*running = false;
	vt_lock(vt);
	changes = vt->changes;
	for (uint32_t i = 0; i < vt->high && nr < vt->nr_awake; i++)
		if (vt->slot[i].state == VT_AWAKE)
			l[nr++] = (struct look){ i, vt->slot[i].pid, vt->slot[i].tid,
						 vt->slot[i].serial, 0 };
	s = vt->hold ? NULL : vt_earliest(vt);
	vt_unlock(vt);
	if (!s)
		return false;
	if (!all_blocked(l, nr, &gone)) {
		*running = true;
		return gone;
	}
	vt_lock(vt);
	s = vt->hold ? NULL : vt_earliest(vt);
	if (s && vt->changes == changes) {
		if (s->wake_ns > vt->now_ns)
			__atomic_store_n(&vt->now_ns, s->wake_ns, __ATOMIC_RELEASE);
		vt->advances++;
		vt_wake(vt, s);
		moved = true;
	}
	vt_unlock(vt);
	return moved;
}

static void *conduct(void *arg)
{
	for (;;) {
		uint32_t kick = __atomic_load_n(&vt->kick, __ATOMIC_ACQUIRE);
		bool running;

		if (!step(&running))
			vt_futex_wait(&vt->kick, kick, running ? STUCK_NS : IDLE_NS);
	}
	return arg;
}

static bool is_one_of(uint64_t ns, const uint64_t *at, unsigned nr)
{
	while (nr && at[nr - 1] != ns)
		nr--;
	return nr;
}

static uint32_t sleepers(const uint64_t *at, unsigned nr)
{
	uint32_t n = 0;

	vt_lock(vt);
	for (uint32_t i = 0; i < vt->high; i++) {
		const struct vt_slot *s = &vt->slot[i];

		n += s->state == VT_ASLEEP && is_one_of(s->wake_ns, at, nr);
	}
	vt_unlock(vt);
	return n;
}

/* Removes threads whose process has ended while they slept. */
static void bury(void)
{
	char path[64];

	vt_lock(vt);
	for (uint32_t i = 0; i < vt->high; i++) {
		struct vt_slot *s = &vt->slot[i];

		snprintf(path, sizeof(path), "/proc/%d/task/%d", s->pid, s->tid);
		if (s->state == VT_ASLEEP && access(path, F_OK)) {
			s->state = VT_FREE;
			vt->changes++;
		}
	}
	while (vt->high && vt->slot[vt->high - 1].state == VT_FREE)
		vt->high--;
	vt_unlock(vt);
}

/* Parses the numbers after "go N". */
static unsigned starts(const char *text, uint64_t *at, unsigned max)
{
	unsigned n = 0;
	char *end;

	for (; n < max; n++, text = end) {
		at[n] = strtoull(text, &end, 10);
		if (end == text)
			break;
	}
	return n;
}

static void answer(char *line)
{
	uint64_t at[STARTS_MAX];
	unsigned n, nr;
	int used = 0;

	if (!strcmp(line, "hold\n")) {
		bury();
		vt_lock(vt);
		vt->hold = 1;
		vt_unlock(vt);
		puts("ok");
	} else if (sscanf(line, "go %u%n", &n, &used) == 1) {
		nr = starts(line + used, at, STARTS_MAX);
		while (sleepers(at, nr) < n)
			usleep(1000);
		vt_lock(vt);
		vt->hold = 0;
		vt_unlock(vt);
		vt_kick(vt);
		puts("ok");
	} else if (!strcmp(line, "now\n")) {
		printf("%llu\n",
		       (unsigned long long)__atomic_load_n(&vt->now_ns, __ATOMIC_ACQUIRE));
	} else if (!strcmp(line, "stat\n")) {
		printf("%llu %llu %llu\n", (unsigned long long)vt->now_ns,
		       (unsigned long long)vt->advances, (unsigned long long)asked);
	} else {
		puts("what?");
	}
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct timespec ts;
	char line[2048];
	pthread_t t;
	int fd;

	if (argc != 2) {
		fprintf(stderr, "usage: vtime FILE\n");
		return 2;
	}
	fd = open(argv[1], O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, sizeof(*vt))) {
		perror(argv[1]);
		return 1;
	}
	vt = mmap(NULL, sizeof(*vt), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (vt == MAP_FAILED) {
		perror(argv[1]);
		return 1;
	}
	/* not before the origin of any device opened this boot */
	clock_gettime(CLOCK_MONOTONIC, &ts);
	vt_init(vt, (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec);
	errno = pthread_create(&t, NULL, conduct, NULL);
	if (errno) {
		perror("vtime");
		return 1;
	}
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		answer(line);
	return 0;
}
