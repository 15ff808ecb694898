/* SPDX-License-Identifier: GPL-2.0-only */
/* zns/track: which pages of a running process were written. With real processes, on this
 * machine's kernel. */
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

#include "track_fixture.h"

#define BASE ((char *)0x200000000000UL)
#define OTHER ((char *)0x210000000000UL)
#define NR 64 /* pages at BASE that are filled */
#define HUGE (2 * 1024 * 1024UL)

static char *map_at(char *at, size_t len)
{
	char *m = mmap(at, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		       0);

	if (m == MAP_FAILED)
		_exit(2);
	madvise(m, len, MADV_NOHUGEPAGE);
	return m;
}

static void fill(char *at, size_t nr, char first)
{
	for (size_t i = 0; i < nr; i++)
		memset(at + i * PAGE, (char)(first + i), PAGE);
}

/*
 * What happens to a process between a copy and the final scan. @changed: pages at BASE (one bit
 * each) whose copy must not count; @kept: pages whose copy must; @guards: guard pages.
 */
struct event {
	void (*prepare)(void);
	void (*act)(void);
	uint64_t changed, kept, guards;
};

static void process(const struct ends *e, void *arg)
{
	const struct event *ev = arg;

	map_at(BASE, NR * PAGE);
	fill(BASE, NR, 1);
	if (ev->prepare)
		ev->prepare();
	tell(e, 'r');
	while (await(e)) {
		ev->act();
		tell(e, 'd');
	}
}

enum flow { AT_ONCE, ROUND_BETWEEN, AGAIN, FLOWS };

static void expect(struct tracked *t, const struct event *ev)
{
	for (size_t i = 0; i < NR; i++) {
		bool stale = zns_spans_has(&t->stale, (uintptr_t)BASE + i * PAGE);

		if (ev->changed >> i & 1 && !stale)
			fail_msg("the copy of page %zu counts", i);
		if (ev->kept >> i & 1 && stale)
			fail_msg("the copy of page %zu does not count", i);
		if (kernel.guards &&
		    zns_spans_has(&t->guards, (uintptr_t)BASE + i * PAGE) != (ev->guards >> i & 1))
			fail_msg("page %zu: whether it is a guard was not seen", i);
	}
}

static void happens_in(const struct event *ev, int flow)
{
	struct target c = start(process, (void *)(uintptr_t)ev);
	struct tracked tracked, *t = &tracked;

	heard(&c);
	track(t, c);
	round_of(t);
	if (flow == AGAIN) {
		freeze(&t->c);
		verify(t, true);
		thaw(&t->c);
	}
	ask(&t->c, 'a');
	if (flow == ROUND_BETWEEN)
		round_of(t);
	freeze(&t->c);
	verify(t, false);
	if (flow != ROUND_BETWEEN)
		expect(t, ev);
	zns_track_free(t->k);
	t->k = NULL;
	assert_false(smaps_say(t->c.pid, " uw"));
	untrack(t);
}

/* With a sanitizer only one of the ways is tried for each event, since each scan looks at
 * terabytes of shadow memory. */
static void happens(const struct event *ev)
{
	static int turn;
	const int first = TIMES(10) < 10 ? turn++ % FLOWS : 0,
		  end = TIMES(10) < 10 ? first + 1 : FLOWS;

	for (int flow = first; flow < end; flow++)
		happens_in(ev, flow);
}

static void write_one(void)
{
	BASE[3 * PAGE] = 77;
}

static void written(void **state)
{
	happens(&(struct event){
		.act = write_one, .changed = 1 << 3, .kept = ~0ULL & ~(1ULL << 3) });
}

static void map_again(void)
{
	need(!munmap(BASE + 4 * PAGE, 4 * PAGE));
	map_at(BASE + 4 * PAGE, 4 * PAGE);
	fill(BASE + 4 * PAGE, 2, 50);
}

static void mapped_anew(void **state)
{
	/* soft-dirty: the kernel joins the areas, and all of them counts as new */
	uint64_t kept = kernel.tracker == ZNS_TRACKER_UFFD ? 0xf0f : 0;

	happens(&(struct event){ .act = map_again, .changed = 0xf0, .kept = kept });
}

static void move_pages_here(void)
{
	need(mremap(BASE + 8 * PAGE, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, OTHER) ==
	     OTHER);
	/* and others to where they were */
	need(mremap(BASE + 16 * PAGE, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
		    BASE + 8 * PAGE) == BASE + 8 * PAGE);
}

static void moved(void **state)
{
	happens(&(struct event){ .act = move_pages_here, .changed = 0xf00, .kept = 0xff });
}

static void move_apart(void)
{
	need(mremap(BASE + 8 * PAGE, 8 * PAGE, 8 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, OTHER) ==
	     OTHER);
}

/* The kernel joins both areas, registers them with no userfaultfd, and leaves the pages' marks. */
static void join_and_write(void)
{
	need(mremap(OTHER, 8 * PAGE, 8 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, BASE + 8 * PAGE) ==
	     BASE + 8 * PAGE);
	BASE[2 * PAGE] = BASE[10 * PAGE] = 77;
}

static void joined(void **state)
{
	const struct event ev = { .prepare = move_apart,
				  .act = join_and_write,
				  .changed = 1 << 2 | 1 << 10 };

	/* a round that registers the area again must not take these pages for clean */
	happens_in(&ev, ROUND_BETWEEN);
	happens_in(&ev, AT_ONCE);
}

static void discard(void)
{
	need(!madvise(BASE + 8 * PAGE, 8 * PAGE, MADV_DONTNEED));
	BASE[9 * PAGE] = 5;
	need(!*(volatile char *)(BASE + 10 * PAGE)); /* the zero page */
}

static void discarded(void **state)
{
	happens(&(struct event){ .act = discard, .changed = 0xff00, .kept = 0xff });
}

static void make_huge(void)
{
	char *m = mmap(OTHER, 4 * HUGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

	need(m == OTHER);
	madvise(m, 4 * HUGE, MADV_HUGEPAGE);
	fill(m, 4 * HUGE / PAGE, 1);
}

static void discard_huge(void)
{
	need(!madvise(OTHER + HUGE, HUGE, MADV_DONTNEED)); /* all of one */
	need(!madvise(OTHER + 2 * HUGE + 5 * PAGE, 5 * PAGE, MADV_DONTNEED)); /* a part */
	OTHER[77 * PAGE] = 1; /* the first is split */
	memset(OTHER + HUGE + 3 * PAGE, 3, PAGE);
}

static void huge_pages(void **state)
{
	happens(&(struct event){ .prepare = make_huge, .act = discard_huge, .kept = 0xff });
}

static void forks(void)
{
	pid_t p = fork();
	int status;

	if (!p) {
		fill(BASE, NR, 100);
		_exit(0);
	}
	BASE[5 * PAGE] = 6;
	need(waitpid(p, &status, 0) == p);
	BASE[6 * PAGE] = 6;
}

static void forked(void **state)
{
	happens(&(struct event){ .act = forks, .changed = 0x60, .kept = ~0x60ULL });
}

static void hide(void)
{
	need(!mprotect(BASE, 8 * PAGE, PROT_NONE));
	need(!mprotect(BASE + 8 * PAGE, 8 * PAGE, PROT_READ));
}

static void unhide(void)
{
	need(!mprotect(BASE, 16 * PAGE, PROT_READ | PROT_WRITE));
	BASE[2 * PAGE] = BASE[9 * PAGE] = 11;
	hide();
}

static void not_accessible(void **state)
{
	happens(&(struct event){
		.prepare = hide, .act = unhide, .changed = 0x204, .kept = 0xf0fb });
}

/* 16 pages of a file over BASE; the even ones have been written. */
static void map_file(void)
{
	int fd = (int)syscall(SYS_memfd_create, "zns-track", 0);

	need(fd >= 0 && !ftruncate(fd, 16 * PAGE));
	for (int i = 0; i < 16; i++)
		need(pwrite(fd, "file", 4, i * (off_t)PAGE) == 4);
	need(mmap(BASE, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0) == BASE);
	for (int i = 0; i < 16; i += 2)
		BASE[i * (off_t)PAGE + 100] = (char)i;
	for (int i = 0; i < 16; i++)
		need(*(volatile char *)(BASE + i * (off_t)PAGE) == 'f');
}

static void discard_file(void)
{
	BASE[0] = 1;
	BASE[1 * PAGE] = 1;
	need(!madvise(BASE + 4 * PAGE, 4 * PAGE, MADV_DONTNEED)); /* own pages 4 and 6 */
	need(*(volatile char *)(BASE + 4 * PAGE) == 'f'); /* the file's again; 6 stays away */
}

static void private_file(void **state)
{
	happens(&(struct event){ .prepare = map_file,
				 .act = discard_file,
				 .changed = 0xfb | 0xaaaa,
				 .kept = 0x5504 });
}

static int deeper(int n)
{
	volatile char room[PAGE];

	memset((char *)room, n, sizeof(room));
	return n ? deeper(n - 1) + room[5] : 0;
}

static void grow_stack(void)
{
	static char *was;

	deeper(300);
	if (was)
		need(!brk(was));
	was = sbrk(0);
	need(sbrk(100 * PAGE) == was);
	memset(was, 9, 60 * PAGE);
}

static void stack_and_heap(void **state)
{
	happens(&(struct event){ .act = grow_stack, .kept = ~0ULL });
}

static void *on_thread(void *arg)
{
	BASE[(uintptr_t)arg * PAGE] = 99;
	return NULL;
}

static void threads(void)
{
	for (uintptr_t i = 0; i < 4; i++) {
		pthread_t p;

		need(!pthread_create(&p, NULL, on_thread, (void *)i));
		need(!pthread_join(p, NULL));
	}
}

static void new_threads(void **state)
{
	happens(&(struct event){ .act = threads, .changed = 0xf, .kept = ~0xfULL });
}

static void map_wide(void)
{
	need(mmap(OTHER, 1UL << 40, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == OTHER);
	madvise(OTHER, 1UL << 40, MADV_NOHUGEPAGE);
	OTHER[0] = OTHER[1UL << 39] = 1;
}

/* A terabyte of holes takes neither page tables nor time. */
static void reserved(void **state)
{
	struct event ev = { .prepare = map_wide, .act = write_one };
	struct target c = start(process, &ev);
	struct tracked tracked, *t = &tracked;
	struct zns_span wide = { (uintptr_t)OTHER, (uintptr_t)OTHER + (1UL << 40) };

	heard(&c);
	track(t, c);
	round_of(t);
	assert_true(zns_spans_has(&t->copy, wide.start + (1UL << 39)));
	must(zns_track_final(t->k, &wide, 1, true, &t->stale, &t->present, &t->guards, &t->err));
	assert_int_equal(zns_spans_bytes(&t->stale), (1UL << 40) - 2 * PAGE);
	assert_int_equal(t->present.nr, 0);
	untrack(t);
}

static void own_uffd(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register r = { .range = { (uintptr_t)BASE, 8 * PAGE },
				     .mode = UFFDIO_REGISTER_MODE_MISSING };
	int fd = (int)syscall(SYS_userfaultfd, 1);

	need(fd >= 0 && !ioctl(fd, UFFDIO_API, &api) && !ioctl(fd, UFFDIO_REGISTER, &r));
}

static void nothing(void)
{
}

/* An area with a userfaultfd of the process's own is copied in the freeze. */
static void other_uffd(void **state)
{
	if (kernel.tracker != ZNS_TRACKER_UFFD)
		skip();
	happens(&(struct event){
		.prepare = own_uffd, .act = nothing, .changed = 0xff, .kept = 0xff00 });
}

#define GUARD_INSTALL 102 /* MADV_GUARD_INSTALL, Linux 6.13 */
#define GUARD_REMOVE 103

static void guard(void)
{
	need(!madvise(BASE, 4 * PAGE, GUARD_INSTALL) || errno == EINVAL);
	BASE[5 * PAGE] = 1;
}

static void no_guard(void)
{
	need(!madvise(BASE, 4 * PAGE, GUARD_REMOVE) || errno == EINVAL);
}

static void guards(void **state)
{
	if (!kernel.guards)
		skip();
	happens(&(struct event){
		.prepare = guard, .act = guard, .changed = 0x2f, .kept = 0xff00, .guards = 0xf });
	happens(&(struct event){ .act = guard, .changed = 0x2f, .kept = 0xff00, .guards = 0xf });
	happens(&(struct event){
		.prepare = guard, .act = no_guard, .changed = 0xf, .kept = 0xfff0 });
}

static void shared_guard(void)
{
	char *m = mmap(OTHER, 4 * PAGE, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	need(m == OTHER && (!madvise(m + PAGE, PAGE, GUARD_INSTALL) || errno == EINVAL));
}

/* Guard pages in an area that no tracker examines. */
static void guards_elsewhere(void **state)
{
	struct event ev = { .prepare = shared_guard, .act = nothing };
	struct target c = start(process, &ev);
	struct tracked tracked, *t = &tracked;
	struct zns_span base = { (uintptr_t)BASE, (uintptr_t)BASE + 2 * PAGE };

	if (!kernel.guards)
		skip();
	heard(&c);
	track(t, c);
	round_of(t);
	freeze(&t->c);
	must(zns_track_final(t->k, &base, 1, false, &t->stale, &t->present, &t->guards, &t->err));
	assert_true(zns_spans_has(&t->guards, (uintptr_t)OTHER + PAGE));
	assert_int_equal(zns_spans_bytes(&t->guards), PAGE);
	untrack(t);
}

/* If a kernel does not report all holes, another kind of scan is used. It must give the same
 * result. */
static void slow_scan(void **state)
{
	bool holes = kernel.holes;

	kernel.holes = false;
	written(state);
	mapped_anew(state);
	discarded(state);
	huge_pages(state);
	forked(state);
	guards(state);
	kernel.holes = holes;
}

static void from_outside(void **state)
{
	struct event ev = { .act = nothing };
	struct target c = start(process, &ev);
	struct tracked tracked, *t = &tracked;
	char path[64];
	int mem;

	heard(&c);
	track(t, c);
	round_of(t);
	snprintf(path, sizeof(path), "/proc/%d/mem", c.pid);
	mem = open(path, O_RDWR);
	assert_int_equal(pwrite(mem, "x", 1, (off_t)(uintptr_t)(BASE + 7 * PAGE)), 1);
	close(mem);
	freeze(&t->c);
	verify(t, false);
	ev.changed = 1 << 7;
	ev.kept = 0xff7f;
	expect(t, &ev);
	untrack(t);
}

static void exec_true(void)
{
	execl("/bin/sleep", "sleep", "1000", NULL);
	need(false);
}

static int stays(void *arg)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		pause();
	return 0;
}

/* The old memory lives on with another process. A process that just reads /proc/PID/environ holds
 * it for a moment, too. */
static void exec_beside(void)
{
	static char stack[65536] __attribute__((aligned(16)));

	need(clone(stays, stack + sizeof(stack), CLONE_VM, NULL) > 0);
	exec_true();
}

static bool is_named(const char *comm, const char *want)
{
	int fd = open(comm, O_RDONLY);
	char name[32];
	ssize_t n = read(fd, name, sizeof(name) - 1);

	close(fd);
	name[n > 0 ? n : 0] = 0;
	return !strcmp(name, want);
}

/* After an exec everything is stale, and the pages are those that are present now. */
static void after_exec(void (*act)(void), bool beside)
{
	struct event ev = { .act = act };
	struct target c = start(process, &ev);
	struct tracked tracked, *t = &tracked;
	char path[64];
	int ret;

	heard(&c);
	track(t, c);
	round_of(t);
	say(&t->c, 'a');
	snprintf(path, sizeof(path), "/proc/%d/comm", c.pid);
	until(is_named(path, "sleep\n"));
	await_state(c.pid, 'S');
	ret = zns_track_arm(t->k, &t->copy, &t->err);
	if (beside)
		assert_int_equal(ret, 0);
	else if (ret) /* else somebody looks at the old memory at this moment */
		assert_int_equal(ret, -ESRCH);
	freeze(&t->c);
	image_close(&t->im); /* it reads the old memory */
	image_open(&t->im, c.pid);
	verify(t, true);
	assert_int_equal(t->clean, 0);
	assert_true(zns_spans_bytes(&t->present) >= 8 * PAGE);
	untrack(t);
}

static void executed(void **state)
{
	after_exec(exec_true, false);
}

static void executed_beside(void **state)
{
	after_exec(exec_beside, true);
}

/* A tracker that ended without unregistering, whose descriptor another process still has. */
static void taken_over(void **state)
{
	struct event ev = { .act = write_one, .changed = 1 << 3, .kept = ~0ULL & ~(1ULL << 3) };
	struct target c = start(process, &ev);
	struct tracked tracked, *t = &tracked;
	int fd[ZNS_TRACK_FDS];

	if (kernel.tracker != ZNS_TRACKER_UFFD) {
		end(&c);
		skip();
	}
	heard(&c);
	track(t, c);
	round_of(t);
	assert_int_equal(zns_track_fds(t->k, fd), 0);
	for (int i = 0; i < ZNS_TRACK_FDS; i++)
		fd[i] = dup(fd[i]);
	zns_track_leave(t->k);
	ask(&t->c, 'a');
	must(zns_track_adopt(c.pid, &kernel, fd, &t->k, &t->err));
	freeze(&t->c);
	verify(t, false);
	expect(t, &ev);
	untrack(t);
}

static void span(struct zns_spans *l, uint64_t a, uint64_t b)
{
	assert_int_equal(zns_spans_add(l, a * PAGE, b * PAGE), 0);
}

#define SPAN_PAGES 512

/* Compares with a plain array of flags. */
static void spans(void **state)
{
	struct zns_spans a = { 0 }, b = { 0 }, both = { 0 }, without = { 0 };
	unsigned int seed = 1;

	for (int turn = 0; turn < 300; turn++) {
		bool in[2][SPAN_PAGES] = { 0 };
		size_t nr = 0;

		zns_spans_clear(&a);
		zns_spans_clear(&b);
		for (int i = 0; i < turn % 160; i++) {
			uint64_t from = (uint64_t)rand_r(&seed) % (SPAN_PAGES - 8),
				 to = from + (uint64_t)rand_r(&seed) % 8;
			bool second = rand_r(&seed) & 1;

			span(second ? &b : &a, from, to);
			for (uint64_t p = from; p < to; p++)
				in[second][p] = true;
		}
		assert_int_equal(zns_spans_both(&a, &b, &both), 0);
		assert_int_equal(zns_spans_without(&a, &b, &without), 0);
		for (uint64_t p = 0; p < SPAN_PAGES; p++) {
			assert_int_equal(zns_spans_has(&a, p * PAGE), in[0][p]);
			assert_int_equal(zns_spans_has(&b, p * PAGE + 5), in[1][p]);
			assert_int_equal(zns_spans_has(&both, p * PAGE), in[0][p] && in[1][p]);
			assert_int_equal(zns_spans_has(&without, p * PAGE), in[0][p] && !in[1][p]);
			nr += in[0][p];
		}
		assert_int_equal(zns_spans_bytes(&a), nr * PAGE);
		for (size_t i = 1; i < a.nr; i++)
			assert_true(a.s[i].start > a.s[i - 1].end);
		assert_int_equal(zns_spans_join(&a, &b), 0);
		for (uint64_t p = 0; p < SPAN_PAGES; p++)
			assert_int_equal(zns_spans_has(&a, p * PAGE), in[0][p] || in[1][p]);
		for (size_t i = 1; i < a.nr; i++)
			assert_true(a.s[i].start > a.s[i - 1].end);
	}
	zns_spans_free(&a);
	zns_spans_free(&b);
	zns_spans_free(&both);
	zns_spans_free(&without);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(spans),           cmocka_unit_test(written),
		cmocka_unit_test(mapped_anew),     cmocka_unit_test(moved),
		cmocka_unit_test(joined),          cmocka_unit_test(discarded),
		cmocka_unit_test(huge_pages),      cmocka_unit_test(forked),
		cmocka_unit_test(not_accessible),  cmocka_unit_test(private_file),
		cmocka_unit_test(stack_and_heap),  cmocka_unit_test(new_threads),
		cmocka_unit_test(reserved),        cmocka_unit_test(other_uffd),
		cmocka_unit_test(guards),          cmocka_unit_test(guards_elsewhere),
		cmocka_unit_test(slow_scan),       cmocka_unit_test(from_outside),
		cmocka_unit_test(executed),        cmocka_unit_test(taken_over),
		cmocka_unit_test(executed_beside),
	};

	return look_at_kernel() ? cmocka_run_group_tests(tests, NULL, NULL) : 0;
}
