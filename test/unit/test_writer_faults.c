/* SPDX-License-Identifier: GPL-2.0-only */
/* The striping writer when something fails: a clean error everywhere, no hang, and no access to
 * the task afterwards. */
#include <sys/syscall.h>
#include <sys/uio.h>
#include "stripe_fixture.h"

#define THREADS 4
#define EACH 25
#define UNITS 40
#define AREA (UNITS * KIB(64) + 4096)

/* --- watching who reads the task --- */

static atomic_bool hands_off; /* set when the task has been told that it may go on */
static atomic_int reading, begun, reads, late;
/* Reads from number @held on wait until the test's thread releases them, and until there is an
 * error. */
static int held = INT_MAX;
static bool held_for_error;
static struct zns_writer *cancel_writer; /* to be cancelled during this many-th read */
static int cancel_at;

/* Replaces libc's function: it can be held, and counts calls that come too late. */
ssize_t process_vm_readv(pid_t pid, const struct iovec *l, unsigned long ln, const struct iovec *r,
			 unsigned long rn, unsigned long flags)
{
	ssize_t n;

	atomic_fetch_add(&reading, 1);
	if (atomic_fetch_add(&begun, 1) >= held)
		until(is_waiting(getpid()) &&
		      (!held_for_error || zns_writer_error(cancel_writer, NULL)));
	n = syscall(SYS_process_vm_readv, pid, l, ln, r, rn, flags);
	if (atomic_load(&hands_off))
		atomic_fetch_add(&late, 1);
	if (atomic_fetch_add(&reads, 1) == cancel_at && cancel_writer)
		zns_writer_cancel(cancel_writer, -EPIPE, "the broker is gone");
	atomic_fetch_sub(&reading, 1);
	return n;
}

static uint8_t *area;
static struct task task;

static void scribble(char c)
{
	memset(area, c, AREA);
}

static int task_begin(void **state)
{
	area = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	fill(area, 0, AREA, 9);
	task_start(&task, scribble);
	atomic_store(&hands_off, false);
	atomic_store(&reads, 0);
	atomic_store(&late, 0);
	atomic_store(&begun, 0);
	held = INT_MAX;
	held_for_error = false;
	return stripe_begin(state);
}

static int task_finish(void **state)
{
	task_end(&task);
	munmap(area, AREA);
	return emu_end(state);
}

#define TASK(f) cmocka_unit_test_setup_teardown(f, task_begin, task_finish)

static struct zns_wimage *give_area(struct rig *r, int *ret, struct zns_err *e)
{
	struct iovec v = { area, AREA };
	struct zns_wimage *i = NULL;

	*ret = zns_writer_image(r->w, "pages-1.img", true, &i, e);
	if (!*ret)
		*ret = zns_wimage_mem(i, task.pid, &v, 1, e);
	return i;
}

/* When settle returns the task may go on: what it writes later is not in the image. */
static void settle_lets_go(void **state)
{
	struct zns_emu_params ep = roomy(16, MIB(1));
	struct image im = { .name = "pages-1.img", .seed = 9, .len = AREA, .pages = true };
	struct zns_wimage *i;
	struct proxy p;
	struct rig r;
	int ret;

	rig_init(&r, proxy_init(&p, make_dev(&ep)), KIB(64), 2);
	atomic_store(&p.writes.room, UNITS); /* the last one cannot be written */
	held = UNITS;
	r.workers = 3;
	rig_start(&r);
	i = give_area(&r, &ret, &err);
	assert_int_equal(ret, 0);
	assert_ok(zns_wimage_settle(i, &err));
	assert_int_equal(atomic_load(&reading), 0);
	assert_int_equal(atomic_load(&reads), UNITS + 1);
	assert_true(atomic_load(&p.written) < UNITS + 1); /* it does not wait for the device */
	atomic_store(&p.writes.room, OPEN);
	atomic_store(&hands_off, true);
	task_do(&task, 'x');
	assert_ok(zns_wimage_settle(i, &err));
	assert_ok(zns_wimage_seal(i, &err));
	rig_verify(&r, &im, 1);
	assert_int_equal(atomic_load(&late), 0);
	rig_drop(&r);
	zns_dev_close(p.inner);
}

/* From the n-th write on they all fail: more zones than a dump gives up. */
static void all_writes_fail(struct zns_dev *d, int after)
{
	struct zns_emu_rule r = { .kind = ZNS_EMU_FAIL_WRITE,
				  .zone = ZNS_EMU_ANY_ZONE,
				  .after = after,
				  .times = UINT64_MAX };

	assert_ok(zns_emu_add_fault(d, &r, &err));
}

/* Settle returns an error, from a write or from outside: the task may go on in that case, too. */
static void settle_lets_go_after_error(void **state)
{
	struct zns_emu_params ep = roomy(40, MIB(1));

	for (int n = 0; n < 24; n++) {
		struct zns_err e = ZNS_ERR_INIT;
		struct zns_wimage *i;
		struct proxy p;
		struct rig r;
		int ret;

		unlink(dev_path);
		rig_init(&r, proxy_init(&p, make_dev(&ep)), KIB(64), 2);
		if (n % 2 == 0)
			all_writes_fail(p.inner, n);
		r.workers = 1 + n % 6;
		rig_start(&r);
		atomic_store(&hands_off, false);
		atomic_store(&reads, 0);
		atomic_store(&begun, 0);
		cancel_at = n;
		cancel_writer = n % 2 ? r.w : NULL;
		/* those that begin behind the one that cancels */
		held = n % 2 ? n + 1 : INT_MAX;
		held_for_error = n % 2;
		i = give_area(&r, &ret, &e);
		ret = i ? zns_wimage_settle(i, &e) : ret;
		atomic_store(&hands_off, true);
		assert_int_equal(atomic_load(&reading), 0);
		if (ret || n % 2) { /* else all was read before too many zones had failed */
			assert_int_equal(ret, n % 2 ? -EPIPE : -EIO);
			assert_int_equal(e.code, ret);
			assert_non_null(strstr(e.msg, n % 2 ? "the broker is gone" : "injected"));
			assert_int_equal(zns_writer_error(r.w, NULL), ret);
		}
		if (i)
			zns_wimage_seal(i, NULL);
		assert_int_equal(finish_raw(&r, &err), n % 2 ? -EPIPE : -EIO);
		cancel_writer = NULL;
		rig_drop(&r);
		assert_int_equal(atomic_load(&late), 0);
		zns_dev_close(p.inner);
	}
}

static void memory_that_cannot_be_read(void **state)
{
	struct zns_emu_params ep = roomy(8, MIB(1));
	struct zns_dev *d = make_dev(&ep);
	struct iovec v[2] = { { area, 8192 }, { NULL, 4096 } }; /* nothing is mapped at 0 */
	struct zns_wimage *i;
	struct rig r;
	pid_t gone;

	rig_init(&r, d, KIB(64), 1);
	rig_start(&r);
	assert_ok(zns_writer_image(r.w, "a", true, &i, &err));
	assert_ok(zns_wimage_mem(i, task.pid, v, 2, &err));
	assert_int_equal(zns_wimage_settle(i, &err), -EIO);
	assert_says("cannot read memory of task");
	rig_drop(&r);

	gone = fork();
	if (!gone)
		_exit(0);
	waitpid(gone, NULL, 0);
	rig_start(&r);
	assert_ok(zns_writer_image(r.w, "a", true, &i, &err));
	assert_ok(zns_wimage_mem(i, gone, v, 1, &err));
	assert_int_equal(zns_wimage_settle(i, &err), -ESRCH);
	assert_int_equal(finish_raw(&r, &err), -ESRCH);
	rig_drop(&r);

	/* more than any task has */
	v[0] = (struct iovec){ (void *)4096, SIZE_MAX / 2 };
	rig_start(&r);
	assert_ok(zns_writer_image(r.w, "a", true, &i, &err));
	zns_wimage_mem(i, task.pid, v, 1, &err);
	assert_int_equal(zns_wimage_settle(i, &err), -EIO);
	rig_drop(&r);
	zns_dev_close(d);
}

/* --- errors while many threads feed --- */

struct feeder {
	struct rig *r;
	uint32_t n;
	struct zns_err e;
	int ret;
};

static void *feeder(void *arg)
{
	struct feeder *f = arg;
	uint64_t rng = 5 + f->n;

	for (uint32_t i = 0; i < EACH && !f->ret; i++) {
		struct image im;

		image_set(&im, i % 5 == 4 ? rnd_of(&rng, KIB(900)) : rnd_of(&rng, KIB(31)), "t-%u",
			  f->n * EACH + i);
		f->ret = feed(f->r->w, &im, 1 + rnd_of(&rng, KIB(40)), &f->e);
	}
	return NULL;
}

/* Starts all feeders at once. Each must end with 0 or with @want; so must the writer. */
static void run_feeders(struct rig *r, int want, const char *text, bool must)
{
	struct feeder f[THREADS];
	pthread_t t[THREADS];
	int ret;

	memset(f, 0, sizeof(f));
	for (uint32_t n = 0; n < THREADS; n++) {
		f[n].r = r;
		f[n].n = n;
		assert_int_equal(pthread_create(&t[n], NULL, feeder, &f[n]), 0);
	}
	for (uint32_t n = 0; n < THREADS; n++)
		pthread_join(t[n], NULL);
	err.msg[0] = 0;
	ret = finish_raw(r, &err);
	if (ret || must) {
		assert_int_equal(ret, want);
		assert_says(text);
	}
	for (uint32_t n = 0; n < THREADS; n++) {
		if (!f[n].ret)
			continue;
		assert_int_equal(f[n].ret, want);
		assert_int_equal(f[n].e.code, want);
		assert_non_null(strstr(f[n].e.msg, text));
	}
	if (ret) /* otherwise a late cancel may still come */
		assert_int_equal(zns_writer_error(r->w, NULL), ret);
	if (r->complaint)
		fail_msg("%s", r->complaint);
}

static void no_zone_left(void **state)
{
	for (uint32_t n = 0; n < 9; n++) {
		struct zns_emu_params ep = roomy(16, KIB(320));
		struct rig r;

		unlink(dev_path);
		rig_init(&r, make_dev(&ep), KIB(64), 3);
		r.last = r.next + n;
		r.workers = 1 + n % 4;
		rig_start(&r);
		run_feeders(&r, -ENOSPC, "the device is full", true);
		rig_drop(&r);
		zns_dev_close(r.d);
	}
}

/* The n-th write and all later ones fail, for every n up to the last. A single failure:
 * test_writer_repair.c. */
static void every_write_fails(void **state)
{
	struct zns_emu_params ep = roomy(80, KIB(960));
	bool failed = true;

	for (int n = 0; failed; n += 1 + n / 12) {
		struct rig r;

		unlink(dev_path);
		rig_init(&r, make_dev(&ep), KIB(64), 1 + n % 4);
		r.workers = n % 5;
		all_writes_fail(r.d, n);
		rig_start(&r);
		run_feeders(&r, -EIO, "17 zones failed during this dump", false);
		assert_true(r.nr_given < r.width + 40);
		failed = zns_writer_error(r.w, NULL);
		assert_true(failed || n > 50);
		if (failed)
			assert_int_equal(finish_raw(&r, &err), -EIO); /* and it stays so */
		rig_drop(&r);
		zns_dev_close(r.d);
	}
}

/* One thread only, so that the last write is known: it is the manifest's. */
static void manifest_write_fails(void **state)
{
	struct zns_emu_params ep = roomy(40, MIB(1));
	struct image im;

	for (int n = 0; n < 3; n++) {
		struct rig r;

		unlink(dev_path);
		rig_init(&r, make_dev(&ep), KIB(64), 1);
		all_writes_fail(r.d, n);
		rig_start(&r);
		image_set(&im, KIB(64), "i-%u", 1);
		if (feed(r.w, &im, 4096, &err))
			assert_int_equal(n, 0); /* the worker was faster */
		if (n < 2) {
			assert_int_equal(finish_raw(&r, &err), -EIO);
			assert_int_equal(zns_writer_error(r.w, NULL), -EIO);
		} else {
			assert_int_equal(finish_raw(&r, &err), 0);
		}
		rig_drop(&r);
		zns_dev_close(r.d);
	}
}

struct canceller {
	struct zns_writer *w;
	struct proxy p;
};

static void *canceller(void *arg)
{
	struct canceller *c = arg;

	until(atomic_load(&c->p.writes.waiting));
	zns_writer_cancel(c->w, -ECANCELED, "somebody pressed a key");
	atomic_store(&c->p.writes.room, OPEN);
	return NULL;
}

static void cancel_while_busy(void **state)
{
	for (unsigned n = 0; n < 20; n++) {
		struct zns_emu_params ep = roomy(64, KIB(960));
		struct canceller c;
		pthread_t t;
		struct rig r;

		unlink(dev_path);
		rig_init(&r, proxy_init(&c.p, make_dev(&ep)), KIB(64), 1 + n % 4);
		atomic_store(&c.p.writes.room, (int)n * 6);
		if (n % 3 == 0)
			r.limit = r.width;
		r.finish_done = r.limit;
		rig_start(&r);
		c.w = r.w;
		assert_int_equal(pthread_create(&t, NULL, canceller, &c), 0);
		run_feeders(&r, -ECANCELED, "pressed a key", true);
		pthread_join(t, NULL);
		assert_int_equal(zns_writer_error(r.w, &err), -ECANCELED);
		rig_drop(&r);
		zns_dev_close(c.p.inner);
	}
}

static atomic_bool freeing;

static void *opener(void *arg)
{
	struct proxy *p = arg;

	until(atomic_load(&freeing) && is_waiting(getpid()));
	atomic_store(&p->writes.room, OPEN);
	return NULL;
}

/* Frees the writer without finish, with everything in flight. */
static void free_while_busy(void **state)
{
	for (unsigned n = 0; n < 8; n++) {
		struct zns_emu_params ep = roomy(16, MIB(1));
		struct zns_wimage *i;
		struct proxy p;
		struct rig r;
		pthread_t t;
		int ret;

		unlink(dev_path);
		rig_init(&r, proxy_init(&p, make_dev(&ep)), KIB(64), 2);
		/* as many as must be written so that all can be queued */
		atomic_store(&p.writes.room, n % 2 ? UNITS : 0);
		atomic_store(&freeing, false);
		assert_int_equal(pthread_create(&t, NULL, opener, &p), 0);
		r.workers = 1 + n;
		rig_start(&r);
		if (n % 2) {
			i = give_area(&r, &ret, &err);
			assert_non_null(i);
		}
		for (unsigned k = 0; k < 20; k++) {
			struct image im;

			image_set(&im, k * 3000, "f-%u", k);
			assert_ok(feed(r.w, &im, 4096, &err));
		}
		atomic_store(&freeing, true);
		rig_drop(&r);
		pthread_join(t, NULL);
		zns_dev_close(p.inner);
	}
}

/* --- a broker or a source that misbehaves --- */

static struct zns_zone_slot bogus;
static int bogus_ret;

static int bogus_zone_get(void *arg, const struct zns_zone_wish *wish, struct zns_zone_slot *out,
			  struct zns_err *e)
{
	*out = bogus;
	return bogus_ret;
}

static void impossible_zones(void **state)
{
	struct zns_emu_params ep = roomy(8, KIB(960));
	struct zns_dev *d = make_dev(&ep);
	const struct zns_zone_slot slots[] = {
		{ .zone = 8, .capacity = KIB(960) },
		{ .zone = UINT32_MAX, .capacity = KIB(960) },
		{ .zone = 3, .start = KIB(960) + 4096, .capacity = KIB(960) },
		{ .zone = 3, .start = UINT64_MAX, .capacity = KIB(960) },
		{ .zone = 3, .start = 1, .capacity = KIB(960) },
		{ .zone = 3, .capacity = KIB(960) + 1 },
		{ .zone = 3, .capacity = MIB(2) },
		{ .zone = 3, .capacity = UINT64_MAX },
	};
	struct image im;
	struct rig r;

	image_set(&im, KIB(256), "i-%u", 1);
	rig_init(&r, d, KIB(64), 2);
	r.zone_get = bogus_zone_get;
	for (size_t n = 0; n < ZNS_ARRAY_SIZE(slots); n++) {
		bogus = slots[n];
		bogus_ret = 0;
		rig_start(&r);
		assert_int_equal(feed(r.w, &im, 4096, &err), -EPROTO);
		assert_says("no such place");
		rig_drop(&r);
	}
	/* an error without a text */
	bogus_ret = -ENXIO;
	rig_start(&r);
	assert_int_equal(feed(r.w, &im, 4096, &err), -ENXIO);
	assert_says("no zone of group");
	rig_drop(&r);
	/* it never gives a zone with room: the writer stops asking */
	bogus = (struct zns_zone_slot){ .zone = 3, .start = KIB(960), .capacity = KIB(960) };
	bogus_ret = 0;
	rig_start(&r);
	assert_int_equal(feed(r.w, &im, 4096, &err), -EFBIG);
	rig_drop(&r);
	/* limits that never ease are an error, not a wait */
	bogus_ret = -EBUSY;
	rig_start(&r);
	assert_int_equal(feed(r.w, &im, 4096, &err), -EBUSY);
	rig_drop(&r);
	zns_dev_close(d);
}

static void unit_larger_than_a_zone(void **state)
{
	struct zns_emu_params ep = roomy(8, KIB(960));
	struct image im;
	struct rig r;

	rig_init(&r, make_dev(&ep), MIB(1), 2);
	rig_start(&r);
	image_set(&im, MIB(3), "i-%u", 1);
	assert_int_equal(feed(r.w, &im, 4096, &err), -EFBIG);
	assert_says("smaller --zns-stripe");
	assert_int_equal(r.nr_given, 1); /* it does not go through the whole device first */
	rig_drop(&r);
	zns_dev_close(r.d);
}

static void manifest_larger_than_a_zone(void **state)
{
	struct zns_emu_params ep = roomy(16, KIB(96));
	struct image im;
	struct rig r;

	rig_init(&r, make_dev(&ep), KIB(64), 2);
	rig_start(&r);
	for (unsigned n = 0; n < 3000; n++) {
		image_set(&im, 1, "a-name-of-some-length-%u", n);
		assert_ok(feed(r.w, &im, 4096, &err));
	}
	assert_int_equal(finish_raw(&r, &err), -EFBIG);
	assert_says("larger --zns-stripe");
	rig_drop(&r);
	zns_dev_close(r.d);
}

static void sources_that_fail(void **state)
{
	struct zns_emu_params ep = roomy(8, MIB(1));
	struct zns_dev *d = make_dev(&ep);
	struct zns_wimage *i;
	struct rig r;
	int fd;

	rig_init(&r, d, KIB(64), 2);
	fd = open(test_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	rig_start(&r);
	assert_ok(zns_writer_image(r.w, "dir", false, &i, &err));
	assert_fails(zns_wimage_from_fd(i, fd, &err), -EISDIR, "image dir");
	assert_int_equal(zns_wimage_seal(i, NULL), -EISDIR);
	assert_int_equal(finish_raw(&r, &err), -EISDIR);
	rig_drop(&r);
	close(fd);
	rig_start(&r);
	assert_ok(zns_writer_image(r.w, "none", false, &i, &err));
	assert_fails(zns_wimage_from_fd(i, -1, &err), -EBADF, "image none");
	assert_int_equal(zns_writer_image(r.w, "next", false, &i, &err), -EBADF);
	rig_drop(&r);
	zns_dev_close(d);
}

/* --- memory --- */

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static atomic_long most_rss;

static void note_rss(void)
{
	char buf[128] = "";
	int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	long size, rss = 0, old = atomic_load(&most_rss);

	if (read(fd, buf, sizeof(buf) - 1) > 0 && sscanf(buf, "%ld %ld", &size, &rss) == 2)
		while (rss > old && !atomic_compare_exchange_weak(&most_rss, &old, rss))
			;
	close(fd);
}

static _Atomic pid_t large_tid;

/* The zone fails as late as possible: when both feeders wait for room, or have fed all. */
static void full(struct proxy *p, uint32_t zone, uint64_t end)
{
	until(is_waiting(getpid()) && atomic_load(&large_tid) &&
	      is_waiting(atomic_load(&large_tid)));
	note_rss();
}

static void *feed_large(void *arg)
{
	struct image im;

	atomic_store(&large_tid, own_tid());

	image_set(&im, MIB(64), "large-%u", 1);
	return feed(arg, &im, KIB(64), NULL) ? arg : NULL;
}

/* A device that cannot keep up must not fill the helper's memory with what waits for it (design.md
 * §3: 32 MiB). */
static void memory_is_bounded(void **state)
{
	const uint32_t units[] = { KIB(64), KIB(256), MIB(1), MIB(4) };

	for (size_t n = 0; n < ZNS_ARRAY_SIZE(units); n++) {
		struct image im;
		struct proxy p;
		pthread_t t;
		struct rig r;
		long before;
		void *bad;
		int ret;

		rig_init(&r, proxy_init(&p, NULL), units[n], RIG_WIDTH);
		p.at_write = full;
		atomic_store(&large_tid, 0);
		atomic_store(&most_rss, 0);
		note_rss();
		before = atomic_load(&most_rss);
		rig_start(&r);
		assert_int_equal(pthread_create(&t, NULL, feed_large, r.w), 0);
		assert_non_null(give_area(&r, &ret, &err));
		for (unsigned k = 0; k < 4000; k++) {
			image_set(&im, 3000 + k, "small-%u", k);
			assert_ok(feed(r.w, &im, 4096, &err));
		}
		pthread_join(t, &bad);
		assert_null(bad);
		if ((atomic_load(&most_rss) - before) * 4096 > (long)MIB(31))
			fail_msg("unit %u: %ld KiB", units[n],
				 (atomic_load(&most_rss) - before) * 4);
		rig_drop(&r);
	}
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		TASK(settle_lets_go),
		TASK(settle_lets_go_after_error),
		TASK(memory_that_cannot_be_read),
		T(no_zone_left),
		T(every_write_fails),
		T(manifest_write_fails),
		T(cancel_while_busy),
		TASK(free_while_busy),
		T(impossible_zones),
		T(unit_larger_than_a_zone),
		T(manifest_larger_than_a_zone),
		T(sources_that_fail),
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
		TASK(memory_is_bounded),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
