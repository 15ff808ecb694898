/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRACK_FIXTURE_H
#define TRACK_FIXTURE_H
/* For test_track*.c: child processes, and a verifier that compares every page with what the tracker
 * says. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "zns/track.h"
#include "until.h"
#include "zns/util.h"

#define PAGE 4096UL

/* How often something is repeated. With a sanitizer each process has terabytes of shadow memory to
 * look at. */
#ifdef __SANITIZE_ADDRESS__
#define TIMES(n) ((n) / 10 + 1)
#else
#define TIMES(n) (n)
#endif

static struct zns_track_kernel kernel;

/* ---- a child, and a pipe each way ---- */

struct target {
	pid_t pid;
	int say, hear;
};

struct ends {
	int hear, say;
};

/* In the child: tell the test something; wait for its next word, and end when it is gone. */
static inline void tell(const struct ends *e, char c)
{
	if (write(e->say, &c, 1) != 1)
		_exit(1);
}

static inline char await(const struct ends *e)
{
	char c;
	ssize_t n;

	do {
		n = read(e->hear, &c, 1);
	} while (n < 0 && errno == EINTR);
	if (n != 1)
		_exit(0);
	return c;
}

static inline struct target start(void (*body)(const struct ends *e, void *arg), void *arg)
{
	int down[2], up[2];
	struct target c;

	assert_int_equal(pipe(down), 0);
	assert_int_equal(pipe(up), 0);
	c.pid = fork();
	assert_true(c.pid >= 0);
	if (!c.pid) {
		struct ends e = { down[0], up[1] };

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(down[1]);
		close(up[0]);
		body(&e, arg);
		_exit(0);
	}
	close(down[0]);
	close(up[1]);
	c.say = down[1];
	c.hear = up[0];
	return c;
}

/* In the test. A child that has died is a failure. */
static inline void say(const struct target *c, char what)
{
	assert_int_equal(write(c->say, &what, 1), 1);
}

static inline char heard(const struct target *c)
{
	char what = 0;

	assert_int_equal(read(c->hear, &what, 1), 1);
	return what;
}

static inline void ask(const struct target *c, char what)
{
	say(c, what);
	heard(c);
}

static inline void end(struct target *c)
{
	kill(c->pid, SIGKILL);
	waitpid(c->pid, NULL, 0);
	close(c->say);
	close(c->hear);
}

/* Wait until a task sleeps in a system call (or is in another @state). */
static inline void await_state(pid_t pid, char state)
{
	until(task_state(pid, pid) == state);
}

static inline void freeze(const struct target *c)
{
	int status;

	kill(c->pid, SIGSTOP);
	assert_int_equal(waitpid(c->pid, &status, WUNTRACED), c->pid);
	assert_true(WIFSTOPPED(status));
}

static inline void thaw(const struct target *c)
{
	int status;

	kill(c->pid, SIGCONT);
	assert_int_equal(waitpid(c->pid, &status, WCONTINUED), c->pid);
}

static inline bool smaps_say(pid_t pid, const char *flag)
{
	char path[64], line[4096];
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/smaps", pid);
	f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		found |= !strncmp(line, "VmFlags:", 8) && strstr(line, flag);
	fclose(f);
	return found;
}

static inline bool is_traced(pid_t pid)
{
	char path[64], line[256];
	bool traced = false;
	int tracer;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		traced |= sscanf(line, "TracerPid: %d", &tracer) == 1 && tracer;
	fclose(f);
	return traced;
}

/* ---- copies ---- */

#define SLOTS (1U << 20)

struct image {
	int mem;
	uint64_t *addr; /* a table of SLOTS; 0: empty */
	uint64_t *hash;
	bool *have;
};

static inline void image_open(struct image *im, pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	im->mem = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(im->mem >= 0);
	im->addr = calloc(SLOTS, sizeof(*im->addr));
	im->hash = calloc(SLOTS, sizeof(*im->hash));
	im->have = calloc(SLOTS, sizeof(*im->have));
}

static inline void image_close(struct image *im)
{
	close(im->mem);
	free(im->addr);
	free(im->hash);
	free(im->have);
}

static inline size_t slot(const struct image *im, uint64_t addr)
{
	size_t i = (addr / PAGE * 0x9E3779B97F4A7C15ULL) >> 44;

	while (im->addr[i] && im->addr[i] != addr)
		i = (i + 1) % SLOTS;
	return i;
}

static inline bool image_read(const struct image *im, uint64_t addr, uint64_t *hash)
{
	char page[PAGE];

	if (pread(im->mem, page, PAGE, (off_t)addr) != (ssize_t)PAGE)
		return false;
	*hash = zns_hash(page, PAGE);
	return true;
}

static inline void image_take(struct image *im, const struct zns_spans *l)
{
	for (size_t i = 0; i < l->nr; i++) {
		for (uint64_t a = l->s[i].start; a < l->s[i].end; a += PAGE) {
			size_t s = slot(im, a);

			im->addr[s] = a;
			im->have[s] = image_read(im, a, &im->hash[s]);
		}
	}
}

/* ---- tracker and verifier ---- */

struct tracked {
	struct target c;
	struct zns_track *k;
	struct image im;
	struct zns_spans copy, stale, present, guards, areas;
	struct zns_err err;
	size_t clean, wrong, missing, superfluous; /* pages */
};

#define must(x)                                     \
	do {                                        \
		if (x)                              \
			fail_msg("%s", t->err.msg); \
	} while (0)

/*
 * On a machine that has no processor for the process it does not stop within the tracker's limits
 * of time, which is right, and no verdict here: once more, up to UNTIL_S.
 */
#define PATIENT(ret, call)                                             \
	do {                                                           \
		const time_t patient_ = until_now() + UNTIL_S;         \
                                                                       \
		do                                                     \
			(ret) = (call);                                \
		while ((ret) == -ETIMEDOUT && until_now() < patient_); \
	} while (0)

static inline void track(struct tracked *t, struct target c)
{
	int ret;

	*t = (struct tracked){ .c = c };
	PATIENT(ret, zns_track_new(c.pid, &kernel, &t->k, &t->err));
	must(ret);
	image_open(&t->im, c.pid);
}

static inline void round_of(struct tracked *t)
{
	int ret;

	must(zns_track_arm(t->k, &t->copy, &t->err));
	PATIENT(ret, zns_track_barrier(t->k, &t->err));
	must(ret);
	image_take(&t->im, &t->copy);
}

static inline void untrack(struct tracked *t)
{
	if (t->k)
		zns_track_free(t->k);
	image_close(&t->im);
	zns_spans_free(&t->copy);
	zns_spans_free(&t->stale);
	zns_spans_free(&t->present);
	zns_spans_free(&t->guards);
	zns_spans_free(&t->areas);
	end(&t->c);
}

/* What criu would ask for. */
static inline void private_areas(pid_t pid, struct zns_spans *l)
{
	char path[64], line[4096], perms[8], name[4096];
	unsigned long a, b;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	f = fopen(path, "r");
	assert_non_null(f);
	zns_spans_clear(l);
	while (fgets(line, sizeof(line), f)) {
		name[0] = 0;
		assert_true(sscanf(line, "%lx-%lx %7s %*s %*s %*s %4000s", &a, &b, perms, name) >=
			    3);
		if (perms[3] == 'p' && strncmp(name, "[v", 2))
			assert_int_equal(zns_spans_add(l, a, b), 0);
	}
	fclose(f);
}

static inline void judge(struct tracked *t, uint64_t a, uint64_t e)
{
	bool stale = zns_spans_has(&t->stale, a), present = zns_spans_has(&t->present, a);
	uint64_t hash = 0, zero = 0;
	static const char none[PAGE];
	size_t s;

	if (!(e >> 62)) { /* neither present nor swapped */
		if (!stale || present)
			t->wrong++;
		return;
	}
	if (present && stale)
		return; /* copied now */
	if (!image_read(&t->im, a, &hash)) {
		t->wrong += !stale;
		return;
	}
	if (stale) {
		zero = zns_hash(none, PAGE);
		if (hash != zero && !(e >> 61 & 1))
			t->missing++;
		return;
	}
	s = slot(&t->im, a);
	t->clean++;
	if (t->im.addr[s] != a || !t->im.have[s])
		t->missing++;
	else if (t->im.hash[s] != hash)
		t->wrong++;
}

/* The process is stopped: each page of it against its copy. */
static inline void verify(struct tracked *t, bool again)
{
	char path[64];
	int pagemap;

	private_areas(t->c.pid, &t->areas);
	must(zns_track_final(t->k, t->areas.s, t->areas.nr, again, &t->stale, &t->present,
			     &t->guards, &t->err));
	snprintf(path, sizeof(path), "/proc/%d/pagemap", t->c.pid);
	pagemap = open(path, O_RDONLY);
	assert_true(pagemap >= 0);
	t->clean = t->wrong = t->missing = 0;
	for (size_t i = 0; i < t->areas.nr; i++) {
		if (t->areas.s[i].end - t->areas.s[i].start > GIB(64))
			continue; /* a sanitizer's shadow */
		for (uint64_t a = t->areas.s[i].start; a < t->areas.s[i].end;) {
			uint64_t e[512];
			size_t want = zns_min((t->areas.s[i].end - a) / PAGE, 512);

			assert_int_equal(pread(pagemap, e, want * 8, (off_t)(a / PAGE * 8)),
					 want * 8);
			for (size_t j = 0; j < want; j++, a += PAGE)
				judge(t, a, e[j]);
		}
	}
	close(pagemap);
	if (again)
		image_take(&t->im, &t->present);
	if (t->wrong || t->missing)
		fail_msg("%zu pages are wrong, %zu have no copy, %zu are right", t->wrong,
			 t->missing, t->clean);
}

/* A kernel without a tracker has nothing to test: everything is copied in the freeze there. */
static inline bool look_at_kernel(void)
{
	struct zns_err err = ZNS_ERR_INIT;

	if (zns_track_kernel(&kernel, &err)) {
		print_error("%s\n", err.msg);
		exit(1);
	}
	print_message("tracker %s, holes %d, guards %d %s\n", zns_tracker_name(kernel.tracker),
		      kernel.holes, kernel.guards, kernel.why);
	return kernel.tracker != ZNS_TRACKER_NONE;
}

/* ---- a process that must not notice ---- */

#define STOPS TIMES(12) /* of a process that is to notice none of them */

static inline void need(bool ok)
{
	if (!ok)
		_exit(3);
}

/* Stop it again and again: registers are exchanged by zns_track_new(), all threads stopped by the
 * barrier. */
static inline void disturb(pid_t pid, int times)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_spans copy = { 0 };

	for (int i = 0; i < times; i++) {
		struct zns_track *k;
		int ret;

		PATIENT(ret, zns_track_new(pid, &kernel, &k, &err));
		if (!ret)
			ret = zns_track_arm(k, &copy, &err);
		if (!ret)
			PATIENT(ret, zns_track_barrier(k, &err));
		if (ret)
			fail_msg("%s", err.msg);
		zns_track_free(k);
	}
	zns_spans_free(&copy);
}

static inline uint64_t *shared_words(void)
{
	uint64_t *m = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(m, MAP_FAILED);
	return m;
}

#endif
