/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef MEM_DEATH_H
#define MEM_DEATH_H
/* For test_mem_death.c and test_mem_rules.c: a program, a pager that dies, and the test in the
 * keeper's role. */
#include <poll.h>
#include "../../zns/memory/engine/mem.h"
#include "mem_fixture.h"

#define PATIENCE_S 20 /* a program that makes no progress for this long hangs */
#define CONTROL_S 1 /* the same, where a hang is what must come */

static bool forks; /* the next victim repeats this step */

/* What a pager tells the test, which plays its keeper. */
struct desk {
	_Atomic uint32_t gen, detach, detached, left, failed;
	_Atomic uint64_t evicted;
	struct zns_mem_fds f; /* descriptor numbers in the pager */
};

struct scene {
	struct shelves shelves;
	struct zns_mem_store store;
	struct report *r;
	struct desk *desk;
	struct zns_mem_fds have; /* our copies of them */
	uint32_t gen;
	pid_t victim, pager;
};

/* A child checks all pages. If its pager is killed right after the fork the child may be killed,
 * too, but must not see a wrong page. */
static inline void fork_one(struct report *r, const uint8_t *mem)
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

/* Reads and writes the program's pages. Each third one stays a hole until it is written. */
static inline void *work(void *arg)
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

static inline void victim(struct report *r)
{
	pthread_t t;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pthread_create(&t, NULL, work, r);
	for (;;)
		pause();
}

static inline void publish(struct zns_mem *m, struct desk *d)
{
	uint64_t n;
	struct pollfd p = { .fd = zns_mem_changes(m), .events = POLLIN };

	if (!poll(&p, 1, 1) || read(p.fd, &n, sizeof(n)) != sizeof(n))
		return;
	zns_mem_fds(m, &d->f);
	d->gen++;
}

static inline void pager(struct scene *s, bool take, const char *variable, const char *value)
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
		/* as after a handover: descriptors that were kept open for the keeper are closed */
		if (!ret) {
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

/* Takes copies of the pager's descriptors. */
static inline void keep(struct scene *s)
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

static inline void begin(struct scene *s, const char *variable, const char *value)
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

static inline void end(struct scene *s)
{
	kill(s->pager, SIGKILL);
	waitpid(s->pager, NULL, 0);
	kill(s->victim, SIGKILL);
	for (uint32_t i = 0; i < s->have.nr; i++)
		close(s->have.fd[i]);
	waitpid(s->victim, NULL, 0);
	munmap(s->r, sizeof(*s->r));
	munmap(s->desk, sizeof(*s->desk));
	shelf_close(&s->shelves);
}

/* Does the program make progress? */
static inline bool moves_within(struct scene *s, uint64_t rounds, int patience_s)
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

static inline bool moves(struct scene *s, uint64_t rounds)
{
	return moves_within(s, rounds, PATIENCE_S);
}

static inline bool dies(struct scene *s)
{
	for (int i = 0; i < PATIENCE_S * 100; i++) {
		if (waitpid(s->pager, NULL, WNOHANG) == s->pager)
			return true;
		usleep(10000);
	}
	return false;
}

static inline bool victim_died(const struct scene *s)
{
	siginfo_t info = { 0 };

	waitid(P_PID, (id_t)s->victim, &info, WEXITED | WNOHANG | WNOWAIT);
	return info.si_pid;
}

/* At the end: checks all pages, while a pager runs. */
static inline bool all_done(struct scene *s)
{
	s->r->stop = 1;
	for (int i = 0; i < PATIENCE_S * 100 && !s->r->done && !victim_died(s); i++)
		usleep(10000);
	return s->r->done;
}

/* Resets the store's counts as a successor does (zns/pages.h). */
static inline void recount(struct scene *s)
{
	for (uint32_t i = 0; i < SLOTS; i++)
		s->shelves.s->count[i] = 0;
	s->shelves.s->held = 0;
}

static inline void next_pager(struct scene *s, const char *variable, const char *value)
{
	recount(s);
	s->pager = fork();
	if (!s->pager)
		pager(s, true, variable, value);
}

/* As if the keeper had not heard that slots have other processes by now. */
static inline void keep_stale(struct scene *s)
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
		/* the first descriptors are shared memory and two sockets */
		for (uint32_t i = 0; i < 3; i++)
			f->fd[f->nr++] = dup(f->fd[3 + i]);
	}
}

#endif
