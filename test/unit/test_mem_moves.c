/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Two threads on one processor, where one preempts the other just when that releases the memory's
 * lock: so its next change of the memory may be reported first. Also with a pager in which
 * something is late; there each case is run without the rule that it tests, too, and must show
 * wrong pages.
 */
#include <linux/userfaultfd.h>

#include "mem_life.h"

#define LEN (PAGES * PAGE)
#define SHIFT_MAX 40U /* pages */
#define SCENE_S 20 /* at most */

enum program { PASSING, FORKING };

struct two {
	struct life l[2];
	_Atomic(uint8_t *) left; /* the place that the first thread's memory leaves */
	_Atomic(uint8_t *) next; /* the place to which the second thread's memory will move */
	_Atomic bool forking;
	useconds_t wait_us; /* memory of the second thread, before it moves there */
};
static struct two w;

static void pin(int policy)
{
	struct sched_param param = { .sched_priority = policy == SCHED_FIFO ? 10 : 0 };
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(1, &one);
	if (sched_setaffinity(0, sizeof(one), &one) || sched_setscheduler(0, policy, &param))
		_exit(8);
}

/* Moves to a free place, not a multiple of a unit away. */
static uint8_t *room(struct life *l)
{
	size_t shift = (1 + roll(&l->seed) % SHIFT_MAX) * PAGE, all = LEN + SHIFT_MAX * PAGE;
	uint8_t *at = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		_exit(9);
	munmap(at, shift);
	munmap(at + shift + LEN, all - shift - LEN);
	return at + shift;
}

static void move_to(struct life *l, uint8_t *to)
{
	if (mremap(l->mem, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to)
		_exit(9);
	l->mem = to;
	l->r->moves++;
}

static void look_around(struct life *l)
{
	for (unsigned int i = 0; i < 40; i++) {
		uint32_t nr = roll(&l->seed) % PAGES;

		check(l, nr);
		if (i % 4)
			continue;
		l->seq = l->seq % 0xffffff + 1;
		page_write(page_of(l, nr), nr, l->seq);
		l->r->seq[l->self][nr] = l->seq;
		if (i % 8 == 0)
			usleep(1000);
	}
}

static bool is_mapped(uint8_t *at)
{
	unsigned char there;

	return !mincore(at, PAGE, &there);
}

static void fork_now(struct life *l)
{
	uint64_t wrong = 0;
	int status = 0;
	pid_t pid;

	w.forking = true; /* from here on nothing is written */
	pid = fork();
	if (!pid) {
		struct life other = w.l[1];

		if (!is_mapped(other.mem))
			other.mem = w.next;
		for (uint32_t i = 0; i < PAGES; i++)
			wrong += !page_is(page_of(&other, i), i, l->r->seq[1][i]);
		if (wrong)
			fprintf(stderr, "child: %lu pages are wrong\n", (unsigned long)wrong);
		l->r->wrong += wrong;
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid || status)
		l->r->wrong++;
	w.forking = false;
	l->r->forks++;
}

static void *first(void *arg)
{
	struct life *l = &w.l[0];
	const enum program *which = arg;

	pin(SCHED_OTHER);
	while (!l->r->stop) {
		look_around(l);
		if (*which == PASSING) {
			uint8_t *to = room(l);

			w.left = l->mem;
			move_to(l, to);
			while (w.left && !l->r->stop)
				usleep(200);
		} else {
			fork_now(l);
		}
		l->r->rounds++;
	}
	check_all(l);
	l->r->done++;
	return NULL;
}

static void *second(void *arg)
{
	struct life *l = &w.l[1];
	const enum program *which = arg;

	pin(SCHED_FIFO);
	while (!l->r->stop) {
		uint8_t *at = w.left;

		usleep(10);
		if (*which == FORKING && w.forking) {
			w.next = room(l);
			move_to(l, w.next);
			usleep(2000);
		} else if (*which == PASSING && at && at == w.left && !is_mapped(at)) {
			if (w.wait_us)
				usleep(w.wait_us);
			move_to(l, at);
			w.left = NULL;
			look_around(l);
		} else if (*which == FORKING) {
			check(l, roll(&l->seed) % PAGES);
		}
	}
	check_all(l);
	l->r->done++;
	return NULL;
}

static void program(struct report *r, enum program which)
{
	pthread_t t[2];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (unsigned int i = 0; i < 2; i++) {
		w.l[i] = (struct life){ .r = r, .self = i, .seed = 77 + i };
		begin_life(&w.l[i]);
	}
	r->ready = 1;
	pthread_create(&t[0], NULL, first, &which);
	pthread_create(&t[1], NULL, second, &which);
	for (unsigned int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	while (r->stop < 2)
		usleep(1000);
	for (unsigned int i = 0; i < 2; i++)
		check_all(&w.l[i]);
	_exit(0);
}

/* What is late in the pager. */
enum late {
	NOBODY,
	EVENTS, /* events are reported in the wrong order whenever possible */
	EVICTOR /* the evictor and the store are slow, so that other threads move pages meanwhile */
};

static _Atomic bool swaps;

ssize_t __real_read(int fd, void *buf, size_t len);
ssize_t __wrap_read(int fd, void *buf, size_t len);

static bool is_uffd(int fd)
{
	char path[32], link[32] = "";

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return readlink(path, link, sizeof(link) - 1) > 0 && strstr(link, "userfaultfd");
}

/* Delivers a move before the move or the fork that happened earlier. */
ssize_t __wrap_read(int fd, void *buf, size_t len)
{
	struct uffd_msg *msg = buf, last;
	size_t room = len / sizeof(*msg), nr = 1;
	ssize_t n = __real_read(fd, buf, len);

	if (!swaps || n != sizeof(*msg) || len % sizeof(*msg) || !is_uffd(fd) ||
	    (msg->event != UFFD_EVENT_REMAP && msg->event != UFFD_EVENT_FORK))
		return n;
	while (nr < room && !usleep(1000) &&
	       __real_read(fd, &msg[nr], sizeof(*msg)) == sizeof(*msg)) {
		last = msg[nr++];
		if (last.event != UFFD_EVENT_REMAP)
			continue;
		if (msg->event == UFFD_EVENT_REMAP && last.arg.remap.from == msg->arg.remap.to)
			break; /* the same memory */
		memmove(msg + 1, msg, (nr - 1) * sizeof(*msg));
		msg[0] = last;
		break;
	}
	return (ssize_t)(nr * sizeof(*msg));
}

/* Waits until @rounds rounds were made or an error was found. With a rule switched off, rounds may
 * be slow or stop. */
static void await_rounds(struct report *r, uint64_t rounds)
{
	for (int i = 0; i < SCENE_S * 100 && r->rounds < rounds && !r->wrong; i++)
		usleep(10000);
}

static void begin(struct scene *s, enum program which, enum late late, const char *without,
		  uint64_t rounds)
{
	*s = (struct scene){ .r = common(sizeof(struct report)) };
	mem_control("ZNS_MEM_WITHOUT", without);
	swaps = late == EVENTS;
	mem_control("ZNS_MEM_LATE", late == EVICTOR ? "2@100" : "0");
	w.wait_us = late == EVICTOR ? 300 : 0;
	shelf_open(&s->shelves, &s->store);
	s->shelves.s->get_us = late == EVICTOR ? 2000 : 0;
	s->shelves.s->put_us = late == EVICTOR ? 3000 : 0;
	s->pid = fork();
	if (!s->pid)
		program(s->r, which);
	while (!s->r->ready)
		usleep(1000);
	assert_int_equal(zns_mem_new("test", MIB(2), &s->store, &s->m, &s->err), 0);
	if (zns_mem_attach(s->m, s->pid, &s->err))
		fail_msg("%s", s->err.msg);
	assert_int_equal(zns_mem_start(s->m, &s->err), 0);
	await_rounds(s->r, rounds);
	mem_control("ZNS_MEM_WITHOUT", NULL);
}

static __attribute__((unused)) void must_show(enum program which, enum late late, const char *rule)
{
	for (int i = 0; i < 20; i++) {
		struct scene s;
		uint64_t wrong, rounds;

		begin(&s, which, late, rule, 1000);
		wrong = s.r->wrong;
		rounds = s.r->rounds;
		scene_kill(&s);
		print_message("without rule %s: %lu wrong after %lu rounds\n", rule,
			      (unsigned long)wrong, (unsigned long)rounds);
		if (wrong)
			return;
	}
	fail_msg("nothing is wrong without rule %s", rule);
}

static void holds(enum program which, enum late late, uint64_t rounds)
{
	struct scene s;

	begin(&s, which, late, "99", rounds);
	finish(&s, 2, false);
}

/* One thread moves its memory to where the other's was. */
static void passing(void **state)
{
	holds(PASSING, NOBODY, 300);
	holds(PASSING, EVENTS, 300);
#ifndef __SANITIZE_ADDRESS__ /* a fault has to occur only once */
	must_show(PASSING, EVENTS, "29");
	must_show(PASSING, EVENTS, "30");
#endif
}

/* Memory arrives where units of other memory were being evicted. */
static void meeting(void **state)
{
	holds(PASSING, EVICTOR, 150);
}

/* An area is registered after it has moved away. Whether that happens depends on where threads
 * are preempted. */
static void registering(void **state)
{
	must_show(FORKING, EVENTS, "35");
}

/* One thread moves memory while the other forks. */
static void moving_in_a_fork(void **state)
{
	holds(FORKING, NOBODY, 60);
	holds(FORKING, EVENTS, 60);
#ifndef __SANITIZE_ADDRESS__
	must_show(FORKING, EVENTS, "31");
#endif
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(passing),
					    cmocka_unit_test(moving_in_a_fork) };
	const struct CMUnitTest slow[] = { cmocka_unit_test(meeting),
					   cmocka_unit_test(registering) };

	if (argc > 1 && !strcmp(argv[1], "meeting")) /* make unit-refused */
		return cmocka_run_group_tests(slow, NULL, NULL);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
