/* SPDX-License-Identifier: GPL-2.0-only */
/* The striping reader: parts of images into the memory of a task, and requests that are
 * impossible. */
#include <linux/userfaultfd.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include "reader_fixture.h"

#define AREA MIB(2)
static uint8_t *area;

/* In the child: computes a digest of its memory, where the parent can see it. */
static uint64_t *shared;

static void tell_hash(char c)
{
	shared[0] = zns_hash(area, AREA);
}

static void into_a_task(void **state)
{
	cleanup_free uint8_t *mirror = malloc(AREA);
	struct zns_reader *rd;
	struct task t;

	area = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	memset(area, 0x11, AREA);
	memset(mirror, 0x11, AREA);
	make_checkpoint(KIB(64), 4, true);
	task_start(&t, tell_hash);
	rd = rig_reader(&rig, 4, 6);
	for (int n = 0; n < 200; n++) {
		const struct image *i = &im[rnd(NR_IMAGES)];
		uint64_t off = rnd(i->len + 1), len = zns_min(i->len - off, AREA / 2), at = 0,
			 sum = 0;
		struct iovec v[400];
		uint32_t nr = 0;

		/* pieces in ascending places with gaps, some empty */
		while (sum < len && nr < ZNS_ARRAY_SIZE(v)) {
			uint64_t piece = rnd(8) ? 1 + rnd(n % 2 ? 9000 : 60) : 0;

			at += rnd(300);
			piece = zns_min(piece, len - sum);
			if (at + piece > AREA)
				break;
			v[nr++] = (struct iovec){ area + at, piece };
			fill(mirror + at, off + sum, piece, i->seed);
			at += piece;
			sum += piece;
		}
		zns_rimage_read_task(zns_reader_find(rd, i->name), off, ZNS_TASK(t.pid), v, nr,
				     on_done, done_new());
		if (done_wait(&done_sync, 1))
			fail_msg("%s", done_sync.msg);
		if (n % 20 == 19) {
			task_do(&t, 'h');
			assert_true(shared[0] == zns_hash(mirror, AREA));
		}
	}
	assert_int_equal(area[5], 0x11); /* our own copy is unchanged */
	zns_reader_free(rd);
	task_end(&t);
	drop_checkpoint();
	munmap(area, AREA);
	munmap(shared, 4096);
}

/* Parts of an image in ascending order, some adjacent, for places in @at[] (of AREA bytes) in
 * reverse order. */
static size_t some_parts(const struct image *i, uint32_t unit, uint8_t *at, uint8_t *mirror,
			 struct zns_part **out)
{
	struct zns_part *v = calloc(600, sizeof(*v));
	uint64_t off = 0, place = 0;
	size_t nr = 0;

	*out = v;
	while (nr < 600) {
		uint64_t len = 1 + rnd(rnd(6) ? 9000 : 2 * unit);

		off += rnd(3) ? rnd(rnd(4) ? 500 : 3 * unit) : 0;
		place += rnd(3) ? rnd(100) : 0;
		if (off >= i->len || place >= AREA)
			break;
		len = zns_min(zns_min(len, i->len - off), AREA - place);
		v[nr++] = (struct zns_part){ off, len, at + place };
		fill(mirror + place, off, len, i->seed);
		off += len;
		place += len;
	}
	return nr;
}

static void parts_to_their_places(void **state)
{
	cleanup_free uint8_t *mirror = malloc(AREA), *own = malloc(AREA);
	struct zns_reader *rd;
	struct task t;

	area = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	make_checkpoint(KIB(64), 4, true);
	for (int way = 0; way < 2; way++) { /* a task's memory, then ours */
		memset(area, 0x11, AREA);
		memset(own, 0x11, AREA);
		memset(mirror, 0x11, AREA);
		task_start(&t, tell_hash);
		rd = rig_reader(&rig, 3, 4);
		for (int n = 0; n < 60; n++) {
			const struct image *i = &im[rnd(NR_IMAGES)];
			struct zns_part *v;
			size_t nr = some_parts(i, KIB(64), way ? own : area, mirror, &v);

			zns_rimage_read_parts(zns_reader_find(rd, i->name),
					      ZNS_TASK(way ? 0 : t.pid), v, nr, on_done,
					      done_new());
			if (done_wait(&done_sync, 1))
				fail_msg("%s", done_sync.msg);
		}
		task_do(&t, 'h');
		assert_true(way ? !memcmp(own, mirror, AREA) : shared[0] == zns_hash(mirror, AREA));
		zns_reader_free(rd);
		task_end(&t);
	}
	drop_checkpoint();
	munmap(area, AREA);
	munmap(shared, 4096);
}

/* Requests these parts: each must end in @want. */
static void try_parts(struct zns_rimage *i, const struct zns_part *v, size_t nr, int want)
{
	struct zns_part *copy = malloc(nr * sizeof(*v));

	memcpy(copy, v, nr * sizeof(*v));
	zns_rimage_read_parts(i, ZNS_TASK(0), copy, nr, on_done, done_new());
	assert_int_equal(done_wait(&done_sync, 1), want);
}

static void impossible_parts(void **state)
{
	cleanup_free uint8_t *buf = malloc(MIB(2));
	struct zns_reader *rd;
	struct zns_rimage *i;
	uint64_t end;

	make_checkpoint(KIB(64), 2, false);
	rd = rig_reader(&rig, 2, 0);
	i = zns_reader_image(rd, 9);
	end = im[9].len;
	/* they overlap */
	try_parts(i, (struct zns_part[]){ { 0, 5, buf }, { 4, 5, buf } }, 2, -EINVAL);
	try_parts(i, (struct zns_part[]){ { 100, 5, buf }, { 4, 5, buf } }, 2, -EINVAL);
	try_parts(i, (struct zns_part[]){ { 0, 5, buf }, { 5, 0, buf } }, 2, -EINVAL);
	try_parts(i, (struct zns_part[]){ { 5, UINT64_MAX - 1, buf } }, 1, -EINVAL);
	try_parts(i, (struct zns_part[]){ { 0, 5, buf }, { end - 4, 5, buf } }, 2, -ENODATA);
	try_parts(i, (struct zns_part[]){ { end, 1, buf } }, 1, -ENODATA);
	try_parts(i, (struct zns_part[]){ { end - 1, 1, buf } }, 1, 0);
	zns_rimage_read_parts(i, ZNS_TASK(0), NULL, 0, on_done, done_new()); /* nothing is fine */
	assert_int_equal(done_wait(&done_sync, 1), 0);
	zns_reader_free(rd);
	drop_checkpoint();
}

static void task_errors(void **state)
{
	struct zns_rimage *i;
	struct zns_reader *rd;
	struct iovec v[3];
	struct task t;

	area = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(area + KIB(128), 4096, PROT_READ);
	make_checkpoint(KIB(64), 2, false);
	task_start(&t, NULL);
	rd = rig_reader(&rig, 2, 0);
	i = zns_reader_image(rd, 9);
	v[0] = (struct iovec){ area, KIB(256) }; /* a read-only page in the middle */
	zns_rimage_read_task(i, 0, ZNS_TASK(t.pid), v, 1, on_done, done_new());
	assert_int_equal(done_wait(&done_sync, 1), -EFAULT);
	assert_non_null(strstr(done_sync.msg, "cannot write the memory of task"));
	v[0] = (struct iovec){ NULL, 4096 };
	zns_rimage_read_task(i, 0, ZNS_TASK(t.pid), v, 1, on_done, done_new());
	assert_int_equal(done_wait(&done_sync, 1), -EFAULT);
	/* beyond the end, also by sums that wrap */
	v[0] = (struct iovec){ area, KIB(64) };
	zns_rimage_read_task(i, im[9].len - KIB(64) + 1, ZNS_TASK(t.pid), v, 1, on_done,
			     done_new());
	assert_int_equal(done_wait(&done_sync, 1), -ENODATA);
	v[0].iov_len = v[1].iov_len = 1ull << 63;
	v[1].iov_base = area;
	zns_rimage_read_task(i, 0, ZNS_TASK(t.pid), v, 2, on_done, done_new());
	assert_int_equal(done_wait(&done_sync, 1), -ENODATA);
	zns_rimage_read_task(i, 0, ZNS_TASK(t.pid), v, 0, on_done, done_new()); /* nothing is fine
										 */
	assert_int_equal(done_wait(&done_sync, 1), 0);
	task_end(&t);
	v[0].iov_len = KIB(64);
	zns_rimage_read_task(i, 0, ZNS_TASK(t.pid), v, 1, on_done, done_new());
	assert_int_equal(done_wait(&done_sync, 1), -ESRCH);
	zns_reader_free(rd);
	drop_checkpoint();
	munmap(area, AREA);
}

/*
 * With a userfaultfd that covers the place: process_vm_writev alone would fail on each missing
 * page. Pages that are present are overwritten.
 */
static void into_covered_memory(void **state)
{
	const struct image *i = &im[9];
	cleanup_free uint8_t *mirror = NULL;
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_SIGBUS };
	struct zns_task task = { .pid = getpid() };
	struct zns_reader *rd;
	struct iovec v[2];
	struct zns_part *parts;
	uint8_t *file;
	size_t half;
	int fd;

	task.uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1 /* from user mode */);
	if (task.uffd < 0 || ioctl(task.uffd, UFFDIO_API, &api))
		skip();
	make_checkpoint(KIB(64), 2, false);
	mirror = malloc(i->len);
	fill(mirror, 0, i->len, i->seed);
	half = zns_align_down(i->len / 2, 4096);
	for (int way = 0; way < 2; way++) { /* one range, then parts */
		area = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		area[KIB(64) * 3 + 4096] = area[half + KIB(64) * 5] = 1;
		/* two areas side by side */
		assert_return_code(mprotect(area, KIB(96), PROT_READ | PROT_WRITE | PROT_EXEC),
				   errno);
		assert_true(zns_task_cover(task, area, AREA));
		rd = rig_reader(&rig, 3, 4);
		v[0] = (struct iovec){ area, half };
		v[1] = (struct iovec){ area + MIB(1), i->len - half };
		parts = malloc(2 * sizeof(*parts));
		parts[0] = (struct zns_part){ 0, half, v[0].iov_base };
		parts[1] = (struct zns_part){ half, i->len - half, v[1].iov_base };
		if (way)
			zns_rimage_read_parts(zns_reader_image(rd, 9), task, parts, 2, on_done,
					      done_new());
		else
			zns_rimage_read_task(zns_reader_image(rd, 9), 0, task, v, 2, on_done,
					     done_new());
		if (done_wait(&done_sync, 1))
			fail_msg("%s", done_sync.msg);
		assert_memory_equal(v[0].iov_base, mirror, half);
		assert_memory_equal(v[1].iov_base, mirror + half, i->len - half);
		if (!way)
			free(parts);
		v[0] = (struct iovec){ area + AREA - 8192, 4096 };
		zns_rimage_read_task(zns_reader_image(rd, 9), 0, ZNS_TASK(getpid()), v, 1, on_done,
				     done_new());
		assert_int_equal(done_wait(&done_sync, 1), -EFAULT); /* it was covered indeed */
		zns_reader_free(rd);
		munmap(area, AREA);
	}
	fd = open(dev_path, O_RDONLY);
	file = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	close(fd);
	assert_true(file != MAP_FAILED);
	assert_false(zns_task_cover(task, file, 4096));
	munmap(file, 4096);
	close(task.uffd);
	drop_checkpoint();
}

/* The areas in @area of /proc/self/maps. */
static int areas_in(const void *from, size_t len)
{
	uintptr_t lo = (uintptr_t)from, hi = lo + len;
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned long start, end;
	char line[512];
	int nr = 0;

	while (f && fgets(line, sizeof(line), f))
		nr += sscanf(line, "%lx-%lx", &start, &end) == 2 && start < hi && end > lo;
	fclose(f);
	return nr;
}

static void covered_runs_leave_one_area(void **state)
{
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_SIGBUS };
	struct zns_task task = { .pid = getpid() };
	cleanup_free uint8_t *from = malloc(AREA);
	struct iovec local = { from, KIB(64) }, remote = { NULL, KIB(64) };
	uint8_t *p = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	task.uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1 /* from user mode */);
	if (task.uffd < 0 || ioctl(task.uffd, UFFDIO_API, &api))
		skip();
	fill(from, 0, AREA, 7);
	for (size_t at = 0; at < AREA; at += KIB(128)) {
		assert_true(zns_task_cover(task, p + at, KIB(64)));
		local.iov_base = from + at;
		remote.iov_base = p + at;
		assert_int_equal(zns_task_write(task, &local, 1, &remote, 1, local.iov_len, NULL),
				 0);
	}
	assert_true(areas_in(p, AREA) > 1); /* the runs were covered indeed */
	close(task.uffd);
	assert_int_equal(areas_in(p, AREA), 1);
	for (size_t at = 0; at < AREA; at += KIB(128))
		assert_memory_equal(p + at, from + at, KIB(64));
	munmap(p, AREA);
}

/* The kernel writes the first page only, and says so by a short count. */
static void half_written(void **state)
{
	struct zns_task task = ZNS_TASK(getpid());
	uint8_t *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t from[8192] = { 1 };
	struct iovec local = { from, sizeof(from) }, remote = { p, sizeof(from) };
	struct zns_err e = ZNS_ERR_INIT;

	assert_int_equal(munmap(p + 4096, 4096), 0);
	assert_int_equal(process_vm_writev(getpid(), &local, 1, &remote, 1, 0), 4096);
	assert_int_equal(zns_task_write(task, &local, 1, &remote, 1, sizeof(from), &e), -EFAULT);
	munmap(p, 4096);
}

static void nothing_damaged_reaches_a_task(void **state)
{
	struct iovec v = { NULL, KIB(64) };
	struct zns_reader *rd;
	struct task t;
	off_t pos;

	area = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	make_checkpoint(KIB(64), 3, false);
	task_start(&t, tell_hash);
	rd = rig_reader(&rig, 2, 0);
	pos = file_pos(NULL, rig.m->images[9], KIB(64) * 5 + 77);
	flip(pos);
	v.iov_base = area;
	zns_rimage_read_task(zns_reader_image(rd, 9), KIB(64) * 5, ZNS_TASK(t.pid), &v, 1, on_done,
			     done_new());
	assert_int_equal(done_wait(&done_sync, 1), -EBADMSG);
	task_do(&t, 'h');
	assert_true(shared[0] == zns_hash(area, AREA));
	zns_reader_free(rd);
	task_end(&t);
	drop_checkpoint();
	munmap(area, AREA);
	munmap(shared, 4096);
}

/* ---- a task that runs while its pages come ---- */

struct runner {
	struct zns_running r; /* first */
	int copies, most; /* copies: number of copies begun; most: none begins beyond this number */
	atomic_int inside;
};

static bool enter(struct zns_running *r)
{
	struct runner *u = (struct runner *)r;

	if (u->copies == u->most)
		return false;
	u->copies++;
	assert_int_equal(atomic_fetch_add(&u->inside, 1), 0);
	return true;
}

static void leave(struct zns_running *r)
{
	assert_int_equal(atomic_fetch_sub(&((struct runner *)r)->inside, 1), 1);
}

#define PAGES 64
#define FROM 0x5a

/* Pages of FROM to @area[0 … PAGES). */
static int copy_pages(struct zns_task task, struct runner *u, int most)
{
	static uint8_t from[PAGES * 4096];
	struct iovec local = { from, sizeof(from) }, remote = { area, sizeof(from) };
	struct zns_err why = ZNS_ERR_INIT;

	memset(from, FROM, sizeof(from));
	*u = (struct runner){ .r = { .enter = enter, .leave = leave }, .most = most };
	task.running = &u->r;
	return zns_task_write(task, &local, 1, &remote, 1, sizeof(from), &why);
}

/* How many of the pages have the image's bytes; @missing: how many are not present. */
static int pages_there(int *missing)
{
	uint8_t seen[PAGES];
	int there = 0;

	*missing = 0;
	assert_return_code(mincore(area, PAGES * 4096, seen), errno);
	for (int n = 0; n < PAGES; n++)
		if (!(seen[n] & 1))
			++*missing;
		else
			there += area[n * 4096] == FROM && area[n * 4096 + 4095] == FROM;
	return there;
}

static struct zns_task covered(void)
{
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_SIGBUS };
	struct zns_task task = { .pid = getpid() };
	struct uffdio_register r = { .mode = UFFDIO_REGISTER_MODE_MISSING };

	task.uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1 /* from user mode */);
	if (task.uffd < 0 || ioctl(task.uffd, UFFDIO_API, &api))
		skip();
	area = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	area[7 * 4096] = 1; /* a page that the task has written itself */
	r.range = (struct uffdio_range){ (uintptr_t)area, PAGES * 4096 };
	assert_return_code(ioctl(task.uffd, UFFDIO_REGISTER, &r), errno);
	return task;
}

static void uncovered(struct zns_task task)
{
	munmap(area, AREA);
	close(task.uffd);
}

/* All pages arrive except the one that the task has written itself, though there are two areas. */
static void into_a_running_task(void **state)
{
	struct zns_task task = covered();
	struct runner u;
	int missing;

	assert_return_code(mprotect(area, 20 * 4096, PROT_READ | PROT_WRITE | PROT_EXEC), errno);
	assert_int_equal(copy_pages(task, &u, 1), 0);
	assert_true(u.r.lacks);
	assert_int_equal(pages_there(&missing), 7);
	assert_int_equal(missing, PAGES - 8);
	assert_int_equal(copy_pages(task, &u, -1), 0);
	assert_false(u.r.lacks || u.r.gone);
	assert_int_equal(pages_there(&missing), PAGES - 1);
	assert_int_equal(missing, 0);
	assert_int_equal(area[7 * 4096], 1);
	uncovered(task);
}

/*
 * Pages that the task has discarded, and addresses that are not covered any more, stay unchanged.
 */
static void into_changed_memory(void **state)
{
	struct zns_task task = covered();
	struct uffdio_range gone = { (uintptr_t)area + 10 * 4096, 4096 };
	struct runner u;
	int missing;

	assert_return_code(ioctl(task.uffd, UFFDIO_UNREGISTER, &gone), errno);
	assert_int_equal(copy_pages(task, &u, -1), 0);
	assert_true(u.r.lacks);
	assert_false(u.r.gone);
	assert_int_equal(pages_there(&missing), PAGES - 2);
	assert_int_equal(missing, 1);
	assert_int_equal(area[10 * 4096], 0);
	assert_int_equal(copy_pages(task, &u, 0), 0); /* other memory is at these places */
	assert_true(u.r.lacks);
	uncovered(task);
}

/* The task has exited, and its memory is gone. */
static void into_an_ended_task(void **state)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct zns_task task = { .pid = getpid() };
	int sk[2], status, missing;
	struct runner u;
	pid_t pid;

	area = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_return_code(socketpair(AF_UNIX, SOCK_STREAM, 0, sk), errno);
	pid = fork();
	if (!pid) {
		int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1);

		if (fd >= 0 && ioctl(fd, UFFDIO_API, &api))
			close(fd);
		dup2(fd, 100);
		if (write(sk[1], "x", 1) != 1 || read(sk[1], &status, 1) != 1)
			_exit(1);
		_exit(0);
	}
	assert_int_equal(read(sk[0], &status, 1), 1);
	{
		int p = (int)syscall(SYS_pidfd_open, pid, 0);

		task.uffd = (int)syscall(SYS_pidfd_getfd, p, 100, 0);
		close(p);
	}
	assert_int_equal(write(sk[0], "x", 1), 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	close(sk[0]);
	close(sk[1]);
	if (task.uffd < 0) {
		munmap(area, AREA);
		skip();
	}
	assert_int_equal(copy_pages(task, &u, -1), 0);
	assert_true(u.r.gone);
	assert_int_equal(pages_there(&missing), 0);
	uncovered(task);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(into_a_task),         T(parts_to_their_places),
		T(impossible_parts),    T(task_errors),
		T(into_covered_memory), T(covered_runs_leave_one_area),
		T(half_written),        T(nothing_damaged_reaches_a_task),
		T(into_a_running_task), T(into_changed_memory),
		T(into_an_ended_task),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
