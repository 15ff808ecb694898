/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A pager that is killed: whoever has its descriptors goes on, and no page is wrong. And what
 * happens without one of the rules: each must show.
 */
#include <poll.h>
#include "../../zns/mem/mem.h"
#include "mem_fixture.h"

#define PATIENCE_S 20 /* a program that stands still for so long hangs */
#define CONTROL_S 1 /* the same, where it is to hang */

static bool forks; /* the next victim does */

/* A child looks at all pages. Its pager may be killed right after the fork: then it may be killed,
 * too, but see nothing wrong. */
static void fork_one(struct report *r, const uint8_t *mem)
{
	int status = -1;
	pid_t pid = fork();

	if (!pid) {
		for (uint32_t i = 0; i < PAGES; i++)
			if (!page_is((const uint64_t *)(mem + i * PAGE), i, r->seq[0][i]))
				_exit(1);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		r->killed++;
	else if (status) {
		fprintf(stderr, "child: status %x\n", status);
		r->wrong++;
	}
}

/* What a pager tells the test, which is its keeper. */
struct desk {
	_Atomic uint32_t gen, detach, detached, left, failed;
	_Atomic uint64_t evicted;
	struct zns_mem_fds f; /* numbers in the pager */
};

struct scene {
	struct shelves shelves;
	struct zns_mem_store store;
	struct report *r;
	struct desk *desk;
	struct zns_mem_fds have; /* ours */
	uint32_t gen;
	pid_t victim, pager;
};

/* Reads and writes its pages; each third one stays a hole until it is written. */
static void *work(void *arg)
{
	struct report *r = arg;
	uint8_t *mem = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);
	uint64_t seed = 5;
	uint32_t seq = 1;

	for (uint32_t i = 0; i < PAGES; i++)
		if (i % 3) {
			page_write((uint64_t *)(mem + i * PAGE), i, 1);
			r->seq[0][i] = 1;
		}
	r->ready = 1;
	for (;;) {
		uint32_t nr = roll(&seed) % PAGES, to = roll(&seed) % PAGES;
		uint32_t other = (nr + PAGES / 2) % PAGES; /* most likely on a zone */

		if (r->stop)
			break;
		if (!page_is((uint64_t *)(mem + nr * PAGE), nr, r->seq[0][nr]))
			r->wrong++;
		seq = seq % 0xffffff + 1;
		page_write((uint64_t *)(mem + to * PAGE), to, seq);
		r->seq[0][to] = seq;
		if (roll(&seed) % 64 == 0) {
			madvise(mem + other * PAGE, PAGE, MADV_DONTNEED);
			r->seq[0][other] = 0;
		}
		if (roll(&seed) % 16 == 0)
			usleep(1000);
		if (r->forking && roll(&seed) % 64 == 0)
			fork_one(r, mem);
		r->rounds++;
	}
	for (uint32_t i = 0; i < PAGES; i++)
		if (!page_is((uint64_t *)(mem + i * PAGE), i, r->seq[0][i]))
			r->wrong++;
	r->done = 1;
	return NULL;
}

/* In a thread that nobody stops to make a ring: a stop would wake it. */
static void victim(struct report *r)
{
	pthread_t t;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pthread_create(&t, NULL, work, r);
	for (;;)
		pause();
}

static void publish(struct zns_mem *m, struct desk *d)
{
	uint64_t n;
	struct pollfd p = { .fd = zns_mem_changes(m), .events = POLLIN };

	if (!poll(&p, 1, 1) || read(p.fd, &n, sizeof(n)) != sizeof(n))
		return;
	zns_mem_fds(m, &d->f);
	d->gen++;
}

static void pager(struct scene *s, bool take, const char *variable, const char *value)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_mem *m = NULL;
	int ret;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (variable)
		mem_control(variable, value);
	if (take) {
		ret = zns_mem_take(&s->have, &s->store, &m, &err);
		if (!ret)
			ret = zns_mem_go_on(m, &err);
		if (!ret) { /* as if handed over: what was kept of children beside it goes */
			zns_mem_fds(m, &s->desk->f);
			zns_mem_kept(m, &s->desk->f);
		}
	} else {
		ret = zns_mem_new("test", MIB(1), &s->store, &m, &err);
		if (!ret)
			ret = zns_mem_attach(m, s->victim, &err);
		if (!ret) {
			publish(m, s->desk); /* before anything is evicted */
			while (!s->desk->left)
				usleep(1000);
			ret = zns_mem_start(m, &err);
		}
	}
	if (ret)
		fprintf(stderr, "pager: %s\n", err.msg);
	s->desk->failed = ret != 0;
	while (!ret) {
		publish(m, s->desk);
		s->desk->evicted = m->sh->evicted_units;
		if (s->desk->detach) {
			ret = zns_mem_detach(m, &err);
			s->desk->failed = ret != 0;
			zns_mem_leave(m);
			s->desk->detached = 1;
			for (;;)
				pause();
		}
		usleep(2000);
	}
	_exit(1);
}

/* Copies of what the pager has. */
static void keep(struct scene *s)
{
	int pidfd = (int)syscall(SYS_pidfd_open, s->pager, 0);

	for (uint32_t i = 0; i < s->have.nr; i++)
		close(s->have.fd[i]);
	s->have = s->desk->f;
	for (uint32_t i = 0; i < s->have.nr; i++)
		s->have.fd[i] = (int)syscall(SYS_pidfd_getfd, pidfd, s->desk->f.fd[i], 0);
	s->gen = s->desk->gen;
	close(pidfd);
}

static void begin(struct scene *s, const char *variable, const char *value)
{
	*s = (struct scene){ .r = common(sizeof(struct report)),
			     .desk = common(sizeof(struct desk)) };
	shelf_open(&s->shelves, &s->store);
	s->r->forking = forks;
	s->victim = fork();
	if (!s->victim)
		victim(s->r);
	while (!s->r->ready)
		usleep(1000);
	s->pager = fork();
	if (!s->pager)
		pager(s, false, variable, value);
	while (!s->desk->gen && !s->desk->failed)
		usleep(1000);
	assert_false(s->desk->failed);
	keep(s);
	s->desk->left = 1;
}

static void end(struct scene *s)
{
	kill(s->pager, SIGKILL);
	waitpid(s->pager, NULL, 0);
	kill(s->victim, SIGKILL);
	for (uint32_t i = 0; i < s->have.nr; i++) /* a worker of its ring may wait for a reader */
		close(s->have.fd[i]);
	waitpid(s->victim, NULL, 0);
	munmap(s->r, sizeof(*s->r));
	munmap(s->desk, sizeof(*s->desk));
	shelf_close(&s->shelves);
}

/* Does the program get on? */
static bool moves_within(struct scene *s, uint64_t rounds, int patience_s)
{
	uint64_t last = s->r->rounds, want = last + rounds;
	int still = 0;

	while (s->r->rounds < want && still < patience_s * 100) {
		usleep(10000);
		still = s->r->rounds == last ? still + 1 : 0;
		last = s->r->rounds;
	}
	return s->r->rounds >= want;
}

static bool moves(struct scene *s, uint64_t rounds)
{
	return moves_within(s, rounds, PATIENCE_S);
}

static bool dies(struct scene *s)
{
	for (int i = 0; i < PATIENCE_S * 100; i++) {
		if (waitpid(s->pager, NULL, WNOHANG) == s->pager)
			return true;
		usleep(10000);
	}
	return false;
}

static bool victim_died(const struct scene *s)
{
	siginfo_t info = { 0 };

	waitid(P_PID, (id_t)s->victim, &info, WEXITED | WNOHANG | WNOWAIT);
	return info.si_pid;
}

/* The final look at all pages; with a pager that runs. */
static bool all_done(struct scene *s)
{
	s->r->stop = 1;
	for (int i = 0; i < PATIENCE_S * 100 && !s->r->done && !victim_died(s); i++)
		usleep(10000);
	return s->r->done;
}

/* The store counts anew, as zns/pages.h says. */
static void recount(struct scene *s)
{
	for (uint32_t i = 0; i < SLOTS; i++)
		s->shelves.s->count[i] = 0;
	s->shelves.s->held = 0;
}

static void next_pager(struct scene *s, const char *variable, const char *value)
{
	recount(s);
	s->pager = fork();
	if (!s->pager)
		pager(s, true, variable, value);
}

static void killed_at(const char *at)
{
	struct scene s;

	begin(&s, "ZNS_MEM_KILL", at);
	assert_true(dies(&s));
	next_pager(&s, NULL, NULL);
	assert_true(moves(&s, 300));
	assert_true(all_done(&s));
	if (s.r->wrong)
		fail_msg("killed at %s: %lu pages are wrong", at, (unsigned long)s.r->wrong);
	s.desk->detach = 1;
	for (int k = 0; k < 1000 && !s.desk->detached; k++)
		usleep(10000);
	assert_true(s.desk->detached && !s.desk->failed);
	assert_int_equal(s.shelves.s->held, 0);
	end(&s);
}

/* Killed where a unit reaches a state, at several moments; the next one, too. */
static void killed_in_state(void **state)
{
	static const char *const at[] = { "1@20", "2@40", "3@30", "4@50", "5@3", "5@90",
					  "6@1",  "6@90", "7@1",  "7@60", "8@1", "8@70" };

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(at); i++)
		killed_at(at[i]);
}

/* Killed when a fork was read, and when the child has its table, and its slot. @lost: children that
 * may be. */
static void killed_in_a_fork_at(const char *at, unsigned int lost)
{
	struct scene s;

	forks = true;
	begin(&s, "ZNS_MEM_KILL", at);
	forks = false;
	assert_true(dies(&s));
	next_pager(&s, NULL, NULL);
	assert_true(moves(&s, 500));
	assert_true(all_done(&s));
	if (s.r->wrong)
		fail_msg("killed at %s: %lu pages are wrong", at, (unsigned long)s.r->wrong);
	assert_true(s.r->killed <= lost);
	end(&s);
}

static void killed_in_a_fork(void **state)
{
	static const char *const read_at[] = { "21@1", "21@5", "21@9", "28@1", "28@5", "28@9" },
				 *const born_at[] = {
					 "26@1", "26@4", "26@9", "22@1", "22@4", "22@8"
				 };

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(read_at); i++)
		killed_in_a_fork_at(read_at[i], 1);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(born_at); i++)
		killed_in_a_fork_at(born_at[i], 0);
}

/*
 * Killed wherever a unit, a fork or an event may be, while children are forked all the time and
 * look at all pages; ZNS_TEST_MEM_KILLS so many times (make memory-kills), in an order that
 * ZNS_TEST_MEM_SEED chooses. Of a child that was being born it may be the end.
 */
static void killed_beside_forks(void **state)
{
	static const struct {
		unsigned int state, most; /* so often it comes within a second or so */
	} at[] = { { 1, 90 },  { 2, 90 },   { 3, 90 },  { 4, 90 },  { 5, 90 },
		   { 6, 90 },  { 7, 90 },   { 8, 70 },  { 21, 12 }, { 22, 12 },
		   { 23, 90 }, { 24, 150 }, { 25, 20 }, { 26, 12 }, { 28, 12 } };
	const char *kills = getenv("ZNS_TEST_MEM_KILLS"), *from = getenv("ZNS_TEST_MEM_SEED");
	uint64_t seed = from ? strtoull(from, NULL, 10) : 1;
	unsigned int nr = kills ? (unsigned int)atoi(kills) : 10;

	for (unsigned int i = 0; i < nr; i++) {
		unsigned int which = roll(&seed) % ZNS_ARRAY_SIZE(at);
		char text[32];

		snprintf(text, sizeof(text), "%u@%u", at[which].state,
			 1 + roll(&seed) % at[which].most);
		killed_in_a_fork_at(text, 1);
	}
	print_message("%u kills\n", nr);
}

/* Removals were read, and not noted, or half of one; whether they are ours or the program's. */
static void killed_in_an_event(void **state)
{
	static const char *const at[] = { "23@1",  "23@9",   "23@40", "23@90", "24@1", "24@30",
					  "24@80", "24@150", "25@1",  "25@8",  "25@20" };

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(at); i++)
		killed_at(at[i]);
}

/* The pager dies while a thread stands still: the process that holds it goes on to its end. */
static void killed_in_a_stop(void **state)
{
	static const char *const at[] = { "20@1", "20@7", "20@20" };

	if (!getenv("ZNS_MEM_REFUSED")) /* test_mem_refused runs it so */
		return;
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(at); i++)
		killed_at(at[i]);
}

/* Units are moved all the time, and the pager is killed when a copy is written or a place changed.
 */
static void killed_moving(void **state)
{
	static const char *const at[] = { "60@2", "60@30", "61@1", "61@150" };

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(at); i++) {
		struct scene s;

		begin(&s, "ZNS_MEM_KILL", at[i]);
		s.shelves.s->clean = SLOTS;
		assert_true(dies(&s));
		next_pager(&s, NULL, NULL);
		assert_true(moves(&s, 2000));
		/* an emulated machine may not have cleaned by then */
		for (int k = 0; s.shelves.s->cleaned <= 2 && k < 100; k++)
			assert_true(moves(&s, 1000));
		assert_true(s.shelves.s->cleaned > 2);
		assert_true(all_done(&s));
		if (s.r->wrong)
			fail_msg("killed at %s: %lu pages are wrong", at[i],
				 (unsigned long)s.r->wrong);
		s.desk->detach = 1;
		for (int k = 0; k < 1000 && !s.desk->detached; k++)
			usleep(10000);
		assert_true(s.desk->detached && !s.desk->failed);
		assert_int_equal(s.shelves.s->held, 0);
		end(&s);
	}
}

/* As if the keeper had not heard yet that slots have other processes by now. */
static void keep_stale(struct scene *s)
{
	struct {
		uint64_t serial;
		uint32_t slot, named;
	} k;
	struct zns_mem_fds *f = &s->have;
	bool has[6] = { false };

	for (uint32_t at = 0; at < f->len; at += sizeof(k)) {
		memcpy(&k, f->meta + at, sizeof(k));
		if (k.slot < ZNS_ARRAY_SIZE(has))
			has[k.slot] = true;
	}
	for (uint32_t slot = 0; slot < ZNS_ARRAY_SIZE(has); slot++) {
		if (has[slot])
			continue;
		memcpy(&k, f->meta, sizeof(k));
		k.slot = slot;
		k.serial = UINT64_MAX;
		memcpy(f->meta + f->len, &k, sizeof(k));
		f->len += sizeof(k);
		for (uint32_t i = 0; i < 3; i++) /* shared memory and two sockets come first */
			f->fd[f->nr++] = dup(f->fd[3 + i]);
	}
}

static void killed_with_stale(void **state)
{
	static const char *const at[] = { "22@2", "22@6" };

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(at); i++) {
		struct scene s;

		forks = true;
		begin(&s, "ZNS_MEM_KILL", at[i]);
		forks = false;
		keep_stale(&s);
		assert_true(dies(&s));
		next_pager(&s, NULL, NULL);
		assert_true(moves(&s, 500));
		assert_true(all_done(&s));
		assert_int_equal(s.r->wrong, 0);
		assert_int_equal(s.r->killed, 0);
		end(&s);
	}
}

#ifndef __SANITIZE_ADDRESS__
/* Nobody has the descriptors: the kernel lets the program read zeroes. The control of the above. */
static void nobody_keeps(void **state)
{
	struct scene s;

	begin(&s, "ZNS_MEM_KILL", "6@200");
	for (uint32_t i = 0; i < s.have.nr; i++)
		close(s.have.fd[i]);
	s.have.nr = 0;
	assert_true(dies(&s));
	/* a sanitizer's own memory is gone, too */
	assert_true(!all_done(&s) || s.r->wrong);
	end(&s);
}

/* What a rule keeps away needs two threads at the same place: on a busy machine not every scene has
 * it. */
#define SCENES 60

static bool shows_without(const char *rule, bool hangs, bool wrong)
{
	struct scene s;
	bool hung, shown;
	int times = 0;

	begin(&s, "ZNS_MEM_WITHOUT", rule);
	s.shelves.s->put_us = 3000; /* of a device: there is time for everything to go wrong */
	s.shelves.s->clean = strcmp(rule, "14") ? 0 : SLOTS;
	do {
		hung = !moves_within(&s, 2000, hangs ? CONTROL_S : PATIENCE_S);
	} while (!hung && !s.r->wrong && times++ < 30);
	hung = hung || !all_done(&s);
	print_message("without rule %s: %s, %lu wrong, %lu units out\n", rule,
		      hung ? "hangs" : "runs", (unsigned long)s.r->wrong,
		      (unsigned long)s.desk->evicted);
	shown = (hangs && hung) || (wrong && s.r->wrong);
	end(&s);
	return shown;
}

static void without(const char *rule, bool hangs, bool wrong)
{
	int k = 0;

	while (k < SCENES && !shows_without(rule, hangs, wrong))
		k++;
	assert_true(k < SCENES);
}

static void without_own_removals(void **state)
{
	without("1", false, true);
}

static void without_free_reader(void **state)
{
	without("2", true, false);
}

static void without_holes(void **state)
{
	without("3", false, true);
}

/* Somebody waits for the unit, unless it was being read ahead of a program that is slow. */
static bool shows_without_wake(void)
{
	struct scene s;
	bool hung;

	begin(&s, "ZNS_MEM_KILL", "7@20");
	assert_true(dies(&s));
	next_pager(&s, "ZNS_MEM_WITHOUT", "5");
	hung = !moves_within(&s, 300, CONTROL_S);
	end(&s);
	return hung;
}

static void without_wake(void **state)
{
	int k = 0;

	while (k < SCENES && !shows_without_wake())
		k++;
	assert_true(k < SCENES);
}

/* A pager that is killed when it has read of a part of what is dropped. */
static bool wrong_without_told(unsigned int nr)
{
	struct scene s;
	char at[16];
	bool wrong;

	snprintf(at, sizeof(at), "23@%u", nr);
	begin(&s, "ZNS_MEM_KILL", at);
	assert_true(dies(&s));
	next_pager(&s, "ZNS_MEM_WITHOUT", "28");
	moves_within(&s, 300, CONTROL_S);
	all_done(&s);
	wrong = s.r->wrong;
	end(&s);
	return wrong;
}

static void without_told(void **state)
{
	unsigned int k = 0;

	if (getenv("ZNS_MEM_REFUSED")) /* in a stop the dropping goes on to its end */
		return;
	while (k < SCENES && !wrong_without_told(1 + 10 * k))
		k++;
	assert_true(k < SCENES);
}

/* A pager that is killed when a child has its table, and its successor: is a page wrong? */
static bool wrong_after_birth(const char *first, const char *next, bool stale)
{
	struct scene s;
	bool wrong;

	forks = true;
	if (first)
		mem_control("ZNS_MEM_WITHOUT", first);
	begin(&s, "ZNS_MEM_KILL", "22@6");
	mem_control("ZNS_MEM_WITHOUT", NULL);
	forks = false;
	if (stale)
		keep_stale(&s);
	assert_true(dies(&s));
	next_pager(&s, next ? "ZNS_MEM_WITHOUT" : NULL, next);
	moves_within(&s, 300, CONTROL_S);
	wrong = s.r->wrong;
	end(&s);
	return wrong;
}

/* Nobody has a copy of a child's descriptors: it sees zeroes. */
static void without_births(void **state)
{
	int k = 0;

	while (k < SCENES && !wrong_after_birth("15", NULL, false))
		k++;
	assert_true(k < SCENES);
}

/* The child's own descriptors are thrown away. */
static void without_serials(void **state)
{
	int k = 0;

	while (k < SCENES && !wrong_after_birth(NULL, "17", true))
		k++;
	assert_true(k < SCENES);
}

/* A child's userfaultfd was read, and nobody else has it. */
static bool wrong_without_hold(unsigned int nr)
{
	struct scene s;
	char at[16];
	bool wrong;

	snprintf(at, sizeof(at), "28@%u", nr);
	forks = true;
	mem_control("ZNS_MEM_WITHOUT", "21");
	begin(&s, "ZNS_MEM_KILL", at);
	mem_control("ZNS_MEM_WITHOUT", NULL);
	forks = false;
	assert_true(dies(&s));
	next_pager(&s, NULL, NULL);
	moves_within(&s, 300, CONTROL_S);
	wrong = s.r->wrong;
	end(&s);
	return wrong;
}

static void without_hold(void **state)
{
	unsigned int k = 0;

	while (k < SCENES && !wrong_without_hold(3 + k % 6))
		k++;
	assert_true(k < SCENES);
}

static bool wrong_without_owner(const char *rules, int times)
{
	struct scene s;
	bool wrong;

	forks = true;
	begin(&s, "ZNS_MEM_WITHOUT", rules);
	forks = false;
	for (int k = 0; k < times && !s.r->wrong; k++)
		assert_true(moves(&s, 1000));
	wrong = s.r->wrong;
	end(&s);
	return wrong;
}

/* A child that has a userfaultfd by its fork is extended anew. That alone evicts nothing of it. */
static void without_owner(void **state)
{
	int k = 0;

	assert_false(wrong_without_owner("19", 3));
	while (k < SCENES && !wrong_without_owner("18,19", 10))
		k++;
	assert_true(k < SCENES);
}

static void without_exchange(void **state)
{
	without("14", true, true);
}

static void without_protection(void **state)
{
	without("7", false, true);
}

static void without_protected_copies(void **state)
{
	without("9", false, true);
}

/* The ring's thread stays in the process. */
static void without_unmapping(void **state)
{
	for (int taken = 0; taken < 2; taken++) {
		struct scene s;
		char path[64], text[4096];
		unsigned int threads = 0;
		int fd;

		begin(&s, "ZNS_MEM_WITHOUT", taken ? "6" : "99");
		assert_true(moves(&s, 300));
		for (uint32_t i = 0; i < s.have.nr; i++)
			close(s.have.fd[i]);
		s.have.nr = 0;
		assert_true(all_done(&s));
		s.desk->detach = 1;
		for (int k = 0; k < 1000 && !s.desk->detached; k++)
			usleep(10000);
		assert_true(s.desk->detached && !s.desk->failed);
		for (int k = 0; k < 100 && threads != 1; k++) { /* its worker has ended */
			snprintf(path, sizeof(path), "/proc/%d/status", s.victim);
			fd = open(path, O_RDONLY);
			assert_true(read(fd, text, sizeof(text) - 1) > 0);
			close(fd);
			threads = (unsigned int)atoi(strstr(text, "Threads:") + 8);
			usleep(10000);
		}
		assert_int_equal(threads > 1, taken);
		assert_int_equal(s.r->wrong, 0);
		end(&s);
	}
}

#endif

/* No room, and writes that fail: the program runs, its memory stays. */
static void no_room(void **state)
{
	struct scene s;

	begin(&s, NULL, NULL);
	assert_true(moves(&s, 300));
	s.shelves.s->put_error = -ENOSPC;
	assert_true(moves(&s, 1000));
	s.shelves.s->put_error = -EIO;
	assert_true(moves(&s, 1000));
	s.shelves.s->put_error = 0;
	assert_true(moves(&s, 300));
	assert_true(all_done(&s));
	assert_int_equal(s.r->wrong, 0);
	end(&s);
}

/* What cannot be read is a SIGBUS or a SIGKILL, never zeroes; a detach refuses. */
static void unreadable(void **state)
{
	for (int taken = 0; taken < 2; taken++) {
		struct scene s;
		int code;

		begin(&s, "ZNS_MEM_WITHOUT", taken ? "8" : "99");
		assert_true(moves(&s, 2000));
		s.shelves.s->get_error = -EIO;
		if (taken) {
			for (int k = 0; k < 30 && !s.r->wrong; k++)
				assert_true(moves(&s, 1000));
			assert_true(s.r->wrong > 0);
		} else {
			assert_int_equal(waitpid(s.victim, &code, 0), s.victim);
			assert_true(WIFSIGNALED(code) &&
				    (WTERMSIG(code) == SIGBUS || WTERMSIG(code) == SIGKILL));
			assert_int_equal(s.r->wrong, 0);
		}
		end(&s);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(killed_in_state),
		cmocka_unit_test(killed_moving),
		cmocka_unit_test(killed_in_a_stop),
		cmocka_unit_test(killed_in_a_fork),
		cmocka_unit_test(killed_beside_forks),
		cmocka_unit_test(killed_with_stale),
		cmocka_unit_test(killed_in_an_event),
#ifndef __SANITIZE_ADDRESS__ /* once is enough for what must go wrong */
		cmocka_unit_test(nobody_keeps),
		cmocka_unit_test(without_own_removals),
		cmocka_unit_test(without_free_reader),
		cmocka_unit_test(without_holes),
		cmocka_unit_test(without_wake),
		cmocka_unit_test(without_unmapping),
		cmocka_unit_test(without_protection),
		cmocka_unit_test(without_exchange),
		cmocka_unit_test(without_births),
		cmocka_unit_test(without_serials),
		cmocka_unit_test(without_told),
		cmocka_unit_test(without_hold),
		cmocka_unit_test(without_owner),
		cmocka_unit_test(without_protected_copies),
#endif
		cmocka_unit_test(no_room),
		cmocka_unit_test(unreadable),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
