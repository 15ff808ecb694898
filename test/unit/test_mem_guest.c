/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a pager leaves behind in the processes that it serves, and what it believes of them. They
 * may be hostile.
 */
#include <dirent.h>
#include <linux/io_uring.h>
#include <sys/socket.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "../../zns/memory/engine/mem.h"
#include "until.h"
#include "mem_reach.h"

#define MANY 512U /* pages */

static void sleeper(struct talk *t)
{
	uint8_t *mem = fresh(MANY);

	fill_pages(mem, MANY, 1);
	reach(t, 1);
	check_pages(t, mem, MANY, 1);
	reach(t, 2);
}

/* Counts the entries of /proc/@pid/@dir that have @word in their file or link @what. */
static unsigned int count(pid_t pid, const char *dir, const char *what, const char *word)
{
	char path[64], name[400], text[256];
	unsigned int n = 0;
	struct dirent *d;
	DIR *l;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, dir);
	l = opendir(path);
	assert_non_null(l);
	while ((d = readdir(l))) {
		ssize_t len;

		if (*d->d_name == '.')
			continue;
		snprintf(name, sizeof(name), "%s/%s%s", path, d->d_name, what);
		len = *what ? -1 : readlink(name, text, sizeof(text) - 1);
		if (*what) {
			int fd = open(name, O_RDONLY | O_CLOEXEC);

			len = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
			close(fd);
		}
		text[len > 0 ? len : 0] = '\0';
		n += strstr(text, word) != NULL;
	}
	closedir(l);
	return n;
}

/* An io_uring would be memory that both can write: the test looks for its descriptor here and
 * its thread there. */
static void no_ring(void **state)
{
	static struct play s;

	play_begin(&s, sleeper);
	play_attach(&s);
	await_bytes_out(&s, 0, MANY * PAGE / 2);
	assert_int_equal(count(getpid(), "fd", "", "io_uring"), 0);
	/* during a stop it has a userfaultfd of its own, which is closed again */
	until(!count(s.pid, "fd", "", "anon_inode"));
	assert_int_equal(count(s.pid, "task", "/comm", ""), 1);
	do_step(&s, 2);
	play_end(&s);
}

/* ---- /dev/userfaultfd, which is lent to processes that may not call userfaultfd() ---- */

/* Like a program executed by this user. */
static void lose_rights(struct talk *t)
{
	if (setgid(65534) || setuid(65534) || prctl(PR_SET_DUMPABLE, 1) ||
	    syscall(SYS_userfaultfd, O_CLOEXEC) >= 0)
		t->other = 1;
}

static unsigned int open_fds(void)
{
	unsigned int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void *pauses(void *arg)
{
	for (;;)
		pause();
	return arg;
}

static void poor(struct talk *t)
{
	unsigned int had;
	pthread_t thread;

	lose_rights(t);
	pthread_create(&thread, NULL, pauses, NULL);
	had = open_fds();
	reach(t, 1);
	t->wrong += open_fds() != had || prctl(PR_GET_DUMPABLE) != 1;
	reach(t, 2);
}

/* Another process of its user, which may take descriptors of every process that it may trace. */
static unsigned int thieve(pid_t pid)
{
	int status, pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	pid_t thief = fork();

	if (!thief) {
		int taken = 0;

		if (setgid(65534) || setuid(65534))
			_exit(255);
		for (int fd = 0; fd < 64; fd++)
			taken += syscall(SYS_pidfd_getfd, pidfd, fd, 0) >= 0;
		_exit(taken);
	}
	close(pidfd);
	assert_int_equal(waitpid(thief, &status, 0), thief);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 255);
	return (unsigned int)WEXITSTATUS(status);
}

struct attach {
	struct play *s;
	_Atomic pid_t tid;
	int ret;
};

static void *attaches(void *arg)
{
	struct attach *a = arg;

	a->tid = (pid_t)syscall(SYS_gettid);
	a->ret = zns_mem_attach(a->s->m, a->s->pid, &a->s->err);
	return NULL;
}

/* The child that acts as tracer, once the thread stands still; this thread has no other child. */
static pid_t await_halt(pid_t tid)
{
	char path[64], text[256];

	for (int i = 0; i < WAIT_S * 200; i++, usleep(5000)) {
		pid_t child = 0;
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%d/children", tid);
		f = fopen(path, "r");
		if (f && fscanf(f, "%d", &child) != 1)
			child = 0;
		if (f)
			fclose(f);
		snprintf(path, sizeof(path), "/proc/%d/stat", child);
		f = child ? fopen(path, "r") : NULL;
		if (f && fgets(text, sizeof(text), f) && strstr(text, ") T ")) {
			fclose(f);
			return child;
		}
		if (f)
			fclose(f);
	}
	fail_msg("no tracer stands still");
	return 0;
}

static bool can_be_lent(struct play *s)
{
	return !s->t->other && !access("/dev/userfaultfd", F_OK);
}

static void nobody_takes_it(void **state)
{
	static struct play s;
	struct attach a = { .s = &s };
	pthread_t thread;
	pid_t tracer;

	play_begin(&s, poor);
	if (!can_be_lent(&s)) {
		play_end(&s);
		skip();
	}
	assert_true(thieve(s.pid) > 0);
	assert_int_equal(zns_mem_new("test", MIB(1), &s.store, &s.m, &s.err), 0);
	mem_control("ZNS_MEM_HALT", "32@1");
	pthread_create(&thread, NULL, attaches, &a);
	while (!a.tid)
		usleep(1000);
	tracer = await_halt(a.tid);
	mem_control("ZNS_MEM_HALT", NULL);
	assert_int_equal(count(s.pid, "fd", "", "/dev/userfaultfd"), 1);
	assert_int_equal(count(s.pid, "task", "/stat", ") t "), 2);
	assert_int_equal(thieve(s.pid), 0);
	kill(tracer, SIGCONT);
	pthread_join(thread, NULL);
	assert_int_equal(a.ret, 0);
	assert_true(thieve(s.pid) > 0);
	assert_int_equal(zns_mem_start(s.m, &s.err), 0);
	do_step(&s, 2);
	play_end(&s);
}

/* Another process that shares the program's descriptors but is no thread of it. */
static void generous(struct talk *t)
{
	pid_t child;

	lose_rights(t);
	child = (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, NULL);
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pauses(NULL);
	}
	reach(t, 1);
}

/* Makes a user namespace in which it has all capabilities, as another process of its user could. */
static void sovereign(struct talk *t)
{
	lose_rights(t);
	if (unshare(CLONE_NEWUSER))
		t->other = 1;
	reach(t, 1);
}

static void is_refused(void (*program)(struct talk *t))
{
	static struct play s;

	play_begin(&s, program);
	if (!can_be_lent(&s)) {
		play_end(&s);
		skip();
	}
	assert_int_equal(zns_mem_new("test", MIB(1), &s.store, &s.m, &s.err), 0);
	assert_int_equal(zns_mem_attach(s.m, s.pid, &s.err), -EPERM);
	assert_non_null(strstr(s.err.msg, "is not lent"));
	assert_null(strchr(s.err.msg, '\n'));
	play_end(&s);
}

static void not_to_who_shares(void **state)
{
	is_refused(generous);
}

static void not_to_sovereigns(void **state)
{
	is_refused(sovereign);
}

/* ---- pages that the kernel has pinned and does not count ---- */

/* With IORING_SETUP_NO_MMAP the ring is in the program's own memory: there is a descriptor but
 * no area. */
static void has_io_uring(struct talk *t)
{
	struct io_uring_params p = { .flags = 0 };

	t->other = syscall(SYS_io_uring_setup, 8, &p) < 0;
	sleeper(t);
}

static void has_xdp(struct talk *t)
{
	t->other = socket(AF_XDP, SOCK_RAW, 0) < 0;
	sleeper(t);
}

/* A thread with a descriptor table of its own opens an AF_XDP socket. */
static void *opens_xdp(void *arg)
{
	struct talk *t = arg;

	t->other = unshare(CLONE_FILES) || socket(AF_XDP, SOCK_RAW, 0) < 0;
	t->pid = (int)getpid();
	return pauses(NULL);
}

static void has_xdp_in_a_thread(struct talk *t)
{
	pthread_t thread;

	pthread_create(&thread, NULL, opens_xdp, t);
	while (!t->pid)
		usleep(1000);
	sleeper(t);
}

static void attach_refused(void (*program)(struct talk *t), const char *what)
{
	static struct play s;

	play_begin(&s, program);
	if (!s.t->other) {
		assert_int_equal(zns_mem_new("test", MIB(1), &s.store, &s.m, &s.err), 0);
		assert_int_equal(zns_mem_attach(s.m, s.pid, &s.err), -EBUSY);
		assert_non_null(strstr(s.err.msg, what));
		assert_null(strchr(s.err.msg, '\n'));
	}
	play_end(&s);
}

/* Has its memory, and is no thread of it. */
static int sharer(void *arg)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pauses(arg) != NULL;
}

static void has_sharer(struct talk *t)
{
	t->other = clone(sharer, fresh(64) + 64 * PAGE, CLONE_VM | SIGCHLD, NULL) < 0;
	sleeper(t);
}

static void shared(void **state)
{
	attach_refused(has_sharer, "shares the memory");
}

static void child_has_sharer(struct talk *t)
{
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		t->other = clone(sharer, fresh(64) + 64 * PAGE, CLONE_VM | SIGCHLD, NULL) < 0;
		t->pid = getpid();
		pauses(NULL);
	}
	while (!t->pid)
		usleep(1000);
	sleeper(t);
}

static bool warns_of_sharer(struct play *s)
{
	ZnsPb__MemoryStatus st;
	bool found;

	status(s->m, &st);
	found = st.warning &&
		strstr(st.warning, "not extended: another process shares the memory") &&
		!strchr(st.warning, '\n');
	zns_mem_status_free(&st);
	return found;
}

/* Of a tree the child that shares its memory is left out, and so is who shares it: when the tree is
 * attached, and at later looks. */
static void shared_below(void **state)
{
	static struct play s;

	play_begin(&s, child_has_sharer);
	assert_int_equal(s.t->other, 0);
	play_attach(&s);
	assert_int_equal(zns_mem_processes(s.m), 1);
	until(warns_of_sharer(&s)); /* a turn of the evictor takes it away until the next look */
	await_bytes_out(&s, 0, MANY * PAGE / 2);
	assert_int_equal(zns_mem_processes(s.m), 1);
	play_end(&s);
}

static void pinned(void **state)
{
	attach_refused(has_io_uring, "io_uring");
	attach_refused(has_xdp, "AF_XDP");
	attach_refused(has_xdp_in_a_thread, "AF_XDP");
}

static void begins_to_pin(struct talk *t)
{
	uint8_t *mem = fresh(MANY);

	fill_pages(mem, MANY, 1);
	reach(t, 1);
	t->other = socket(AF_XDP, SOCK_RAW, 0) < 0;
	reach(t, 2);
	for (uint32_t k = 2; t->step < 3; k++) /* to have something to evict */
		fill_pages(mem, MANY, k);
	reach(t, 3);
}

static bool says_why(struct play *s, const char *word)
{
	ZnsPb__MemoryStatus st;
	bool found = false;

	status(s->m, &st);
	for (size_t i = 0; i < st.n_processes; i++)
		found |= st.processes[i]->why && strstr(st.processes[i]->why, word);
	zns_mem_status_free(&st);
	return found;
}

static void pinned_later(void **state)
{
	static struct play s;
	uint64_t out;

	play_begin(&s, begins_to_pin);
	play_attach(&s);
	await_bytes_out(&s, 0, MANY * PAGE / 2);
	do_step(&s, 2);
	for (int i = 0; i < WAIT_S * 100 && !s.t->other && !says_why(&s, "AF_XDP"); i++)
		usleep(10000);
	assert_true(s.t->other || says_why(&s, "AF_XDP"));
	out = evicted_units(s.m);
	do_step(&s, 3);
	assert_true(s.t->other || evicted_units(s.m) == out);
	play_end(&s);
}

/* ---- descriptors that are handed over ---- */

static void has_a_child(struct talk *t)
{
	uint8_t *mem = fresh(MANY);
	pid_t child;

	fill_pages(mem, MANY, 1);
	child = fork();
	if (!child)
		pauses(NULL);
	t->pid = child;
	reach(t, 1);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	reach(t, 2);
	check_pages(t, mem, MANY, 1);
	reach(t, 3);
}

/* A process ends between the making of the list of descriptors and its arrival at the keeper:
 * none of its descriptors' numbers may be reused meanwhile. */
static void ends_while_handed_over(void **state)
{
	static struct zns_mem_fds f;
	static struct play s;

	play_begin(&s, has_a_child);
	play_attach(&s);
	assert_int_equal(zns_mem_processes(s.m), 2);
	await_bytes_out(&s, s.pid, MANY * PAGE / 2);
	zns_mem_fds(s.m, &f);
	do_step(&s, 2);
	for (int i = 0; i < WAIT_S * 100 && zns_mem_processes(s.m) > 1; i++)
		usleep(10000);
	assert_int_equal(zns_mem_processes(s.m), 1);
	/* the thread that answers faults has freed it by then, if that is allowed */
	do_step(&s, 3);
	for (uint32_t i = 0; i < f.nr; i++)
		assert_true(fcntl(f.fd[i], F_GETFD) >= 0);
	zns_mem_kept(s.m, &f);
	play_end(&s);
}

/* ---- guard pages, which come and go without an event (Linux 6.13) ---- */

#define GUARD_INSTALL 102 /* MADV_ of Linux */
#define GUARD_REMOVE 103
#define GUARD_PAGE (1ULL << 58) /* in pagemap */
#define SOFT_DIRTY (1ULL << 55)
#define GUARDED 4U /* pages of each unit */
#define STACK_SIZE MIB(32)

static void guards(struct talk *t)
{
	uint8_t *mem = fresh(MANY), *u;

	fill_pages(mem, MANY, 1);
	t->other = madvise(fresh(1), PAGE, GUARD_INSTALL) != 0;
	reach(t, 1);
	for (u = mem; u < mem + MANY * PAGE; u += UNIT_PAGES * PAGE)
		madvise(u, GUARDED * PAGE, GUARD_INSTALL);
	reach(t, 2);
	for (uint32_t i = 0; i < MANY; i++) /* all units come back */
		if (i % UNIT_PAGES >= GUARDED)
			t->wrong += !page_is((uint64_t *)(mem + i * PAGE), i, 1);
	madvise(mem, MANY * PAGE, GUARD_REMOVE);
	for (uint32_t i = 0; i < MANY; i++)
		t->wrong += !page_is((uint64_t *)(mem + i * PAGE), i, i % UNIT_PAGES >= GUARDED);
	reach(t, 3);
}

/* Pages that were guarded read as zeroes afterwards, and not as before. */
static void guarded_meanwhile(void **state)
{
	static struct play s;

	play_begin(&s, guards);
	if (s.t->other) {
		play_end(&s);
		skip();
	}
	play_attach(&s);
	await_bytes_out(&s, 0, MANY * PAGE / 2);
	do_step(&s, 2);
	do_step(&s, 3);
	play_end(&s);
}

static void guards_what_is_back(struct talk *t)
{
	uint8_t *mem = fresh(MANY), *u;

	fill_pages(mem, MANY, 1);
	t->other = madvise(fresh(1), PAGE, GUARD_INSTALL) != 0;
	reach(t, 1);
	check_pages(t, mem, MANY, 1);
	for (u = mem; u < mem + MANY * PAGE; u += UNIT_PAGES * PAGE)
		madvise(u, GUARDED * PAGE, GUARD_INSTALL);
	madvise(mem, MANY * PAGE, GUARD_REMOVE);
	for (uint32_t i = 0; i < MANY; i++)
		t->wrong += !page_is((uint64_t *)(mem + i * PAGE), i, i % UNIT_PAGES >= GUARDED);
	reach(t, 2);
}

/* Units that came back and kept their places lose pages without an event. */
static void guarded_afterwards(void **state)
{
	static struct play s;

	play_begin(&s, guards_what_is_back);
	if (s.t->other) {
		play_end(&s);
		skip();
	}
	play_attach(&s);
	await_bytes_out(&s, 0, MANY * PAGE / 2);
	zns_mem_pause(s.m, true);
	do_step(&s, 2);
	zns_mem_pause(s.m, false);
	play_end(&s);
}

/* How many of these pages have one of these bits in pagemap? */
static unsigned int pages_with(pid_t pid, uint64_t at, unsigned int pages, uint64_t bits)
{
	uint64_t entry[4 * MANY];
	unsigned int n = 0;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/pagemap", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (zns_pread_all(fd, entry, pages * sizeof(*entry), (off_t)(at / PAGE * sizeof(*entry))))
		pages = 0;
	close(fd);
	for (unsigned int i = 0; i < pages; i++)
		n += (entry[i] & bits) != 0;
	return n;
}

/* Guards page 1 of each 16 for a moment, while everything is on zones. */
static void guards_unseen(struct talk *t, uint8_t *mem)
{
	for (uint8_t *u = mem + PAGE; u < mem + MANY * PAGE; u += UNIT_PAGES * PAGE) {
		madvise(u, PAGE, GUARD_INSTALL);
		madvise(u, PAGE, GUARD_REMOVE);
	}
	for (uint32_t i = 0; i < MANY; i++) { /* of each second unit, page 1 first */
		uint32_t k = i / UNIT_PAGES % 2 ? i : i ^ 1;

		t->wrong += !page_is((uint64_t *)(mem + k * PAGE), k, k % UNIT_PAGES != 1);
	}
}

static void guards_while_out(struct talk *t)
{
	uint8_t *mem = fresh(MANY);

	fill_pages(mem, MANY, 1);
	t->ask = madvise(fresh(1), PAGE, GUARD_INSTALL) != 0;
	t->other = (uintptr_t)mem;
	reach(t, 1);
	guards_unseen(t, mem);
	reach(t, 2);
}

static void guards_in_a_child(struct talk *t)
{
	uint8_t *mem = fresh(MANY);

	fill_pages(mem, MANY, 1);
	t->ask = madvise(fresh(1), PAGE, GUARD_INSTALL) != 0;
	t->other = (uintptr_t)mem;
	reach(t, 1);
	if (!fork()) {
		guards_unseen(t, mem);
		_exit(0);
	}
	wait(NULL);
	check_pages(t, mem, MANY, 1);
	reach(t, 2);
}

/* Moves to a place where units stay units, then to one where they do not: each page keeps its
 * content. */
static void guards_where_it_moved(struct talk *t)
{
	uint8_t *to = fresh(3 * MANY), *mem = fresh(MANY);

	to += (uintptr_t)(mem - to) % UNIT;
	fill_pages(mem, MANY, 1);
	t->ask = madvise(fresh(1), PAGE, GUARD_INSTALL) != 0;
	t->other = (uintptr_t)mem;
	reach(t, 1);
	mremap(mem, MANY * PAGE, MANY * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	guards_unseen(t, to);
	fill_pages(to, MANY, 1);
	t->other = (uintptr_t)to;
	reach(t, 2);
	mremap(to, MANY * PAGE, MANY * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to + (MANY + 3) * PAGE);
	check_pages(t, to + (MANY + 3) * PAGE, MANY, 1);
	reach(t, 3);
}

static void await_all_out(struct play *s)
{
	for (int i = 0; i < WAIT_S * 100 && pages_with(s->pid, s->t->other, MANY, PRESENT); i++)
		usleep(10000);
	assert_int_equal(pages_with(s->pid, s->t->other, MANY, PRESENT), 0);
}

static void guards_play(void (*program)(struct talk *t), uint32_t steps)
{
	static struct play s;

	play_begin(&s, program);
	if (s.t->ask) {
		play_end(&s);
		skip();
	}
	play_attach(&s);
	for (uint32_t step = 2; step <= steps; step++) {
		await_all_out(&s);
		do_step(&s, step);
	}
	assert_int_equal(lost_units(&s), 0);
	play_end(&s);
}

/* Guard pages are set and removed while all memory is on zones, in an area that has no others. */
static void guarded_unseen(void **state)
{
	guards_play(guards_while_out, 2);
}

static void guarded_in_a_child(void **state)
{
	guards_play(guards_in_a_child, 2);
}

/* A child's guard pages are set and removed before the child is recognised; then it touches the
 * pages. */
static void guards_in_a_late_child(struct talk *t)
{
	uint8_t *mem = fresh(MANY);
	pid_t child;

	for (uint32_t i = 0; i < MANY; i++) /* each fourth one is a hole */
		if (i % 4 != 3)
			page_write((uint64_t *)(mem + i * PAGE), i, 1);
	t->ask = madvise(fresh(1), PAGE, GUARD_INSTALL) != 0;
	t->other = (uintptr_t)mem;
	reach(t, 1);
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (uint8_t *u = mem; u < mem + MANY * PAGE; u += UNIT_PAGES * PAGE) {
			madvise(u, PAGE, GUARD_INSTALL);
			madvise(u, PAGE, GUARD_REMOVE);
		}
		t->done = 2;
		while (t->step < 3)
			usleep(1000);
		for (uint32_t i = 0; i < MANY; i++)
			t->wrong += !page_is((uint64_t *)(mem + i * PAGE), i,
					     i % UNIT_PAGES && i % 4 != 3);
		_exit(0);
	}
	t->pid = child;
	wait(NULL);
	reach(t, 3);
}

static void await_recognised(struct play *s)
{
	for (int i = 0; i < WAIT_S * 100; i++, usleep(10000))
		for (unsigned int k = 0; k < PROCS_MAX; k++)
			if (s->m->proc[k] && s->m->proc[k]->pid == s->t->pid &&
			    s->m->proc[k]->pagemap >= 0)
				return;
	fail_msg("the child is not recognised");
}

/* The thread that recognises the child must not put markers where guard pages took them away. */
static void guarded_before_recognised(void **state)
{
	static struct play s;

	play_begin(&s, guards_in_a_late_child);
	if (s.t->ask) {
		play_end(&s);
		skip();
	}
	play_attach(&s);
	await_all_out(&s);
	do_step(&s, 2);
	await_recognised(&s);
	assert_int_equal(pages_with(s.t->pid, s.t->other, MANY, UINT64_MAX & ~SOFT_DIRTY),
			 MANY / UNIT_PAGES * 11);
	do_step(&s, 3);
	play_end(&s);
}

static void guarded_and_moved(void **state)
{
	guards_play(guards_where_it_moved, 3);
}

static void guards_for_long(struct talk *t)
{
	uint8_t *mem = fresh(MANY), *other = fresh(MANY), *u;

	fill_pages(mem, MANY, 1);
	t->other = (uintptr_t)mem;
	reach(t, 1);
	madvise(mem, PAGE, GUARD_INSTALL);
	for (t->done = 2; t->step < 3; usleep(1000))
		fill_pages(other, MANY, 2); /* to give the evictor something to do */
	for (u = mem; u < mem + MANY * PAGE; u += UNIT_PAGES * PAGE) {
		madvise(u + PAGE, PAGE, GUARD_INSTALL);
		madvise(u + PAGE, PAGE, GUARD_REMOVE);
	}
	for (uint32_t i = 1; i < MANY; i++)
		t->wrong += !page_is((uint64_t *)(mem + i * PAGE), i, i % UNIT_PAGES != 1);
	reach(t, 3);
}

static struct proc *proc_of(struct play *s)
{
	for (unsigned int k = 0; k < PROCS_MAX; k++)
		if (s->m->proc[k] && s->m->proc[k]->pid == s->pid)
			return s->m->proc[k];
	fail_msg("the pager does not have process %d", s->pid);
	return NULL;
}

/* Is every thread of the pager done with the units of these pages? */
static bool is_settled(struct play *s, uint64_t at, uint32_t pages)
{
	struct proc *p = proc_of(s);

	for (uint64_t end = at + pages * PAGE; at < end; at += UNIT) {
		unsigned int state = STATE(unit_at(p, at)->word);

		if (state != U_RES && state != U_CLEAN)
			return false;
	}
	return true;
}

/* In an area with guard pages others may be set and removed unseen: such an area is read back,
 * and stays in memory. */
static void guarded_area(void **state)
{
	static struct play s;
	unsigned int there = 0;

	play_begin(&s, guards_for_long);
	play_attach(&s);
	await_all_out(&s);
	do_step(&s, 2);
	for (int i = 0; i < WAIT_S * 100 && (there < MANY - 1 || !is_settled(&s, s.t->other, MANY));
	     i++) {
		if (!pages_with(s.pid, s.t->other, 1, GUARD_PAGE)) { /* Linux 6.15 */
			play_end(&s);
			skip();
		}
		there = pages_with(s.pid, s.t->other, MANY, PRESENT);
		usleep(10000);
	}
	assert_int_equal(there, MANY - 1);
	do_step(&s, 3);
	play_end(&s);
}

/* Reads page 0, so that its unit comes back; then everything is evicted to make room. */
static void read_only(struct talk *t)
{
	uint8_t *mem = fresh(MANY), *other = fresh(MANY);

	fill_pages(mem, MANY, 1);
	t->other = (uintptr_t)mem;
	reach(t, 1);
	for (t->done = 2; t->step < 3; usleep(1000))
		(void)*(volatile uint8_t *)mem;
	for (t->done = 3; t->step < 4; usleep(1000))
		fill_pages(other, MANY, 2);
	for (uint32_t i = 0; i < MANY; i++)
		t->wrong += !page_is((uint64_t *)(mem + i * PAGE), i, i == 1 ? 9 : 1);
	reach(t, 4);
}

static void await_state(struct unit *u, unsigned int state)
{
	for (int i = 0; i < WAIT_S * 1000 && STATE(u->word) != state; i++)
		usleep(1000);
	assert_int_equal(STATE(u->word), state);
}

/* A unit that kept its place is written while its protection is gone, so no event tells: it must
 * not be evicted to that place, which has the old bytes. */
static void written_unseen(void **state)
{
	static struct play s;
	uint64_t page[PAGE / sizeof(uint64_t)] = { 0 };
	struct iovec here = { page, PAGE }, there;
	struct unit *u;

	play_begin(&s, read_only);
	play_attach(&s);
	await_all_out(&s);
	do_step(&s, 2);
	u = unit_at(proc_of(&s), s.t->other);
	await_state(u, U_CLEAN);
	assert_int_equal(mem_uffd_protect(proc_of(&s)->uffd, s.t->other, s.t->other + UNIT, false),
			 0);
	page_write(page, 1, 9);
	there = (struct iovec){ (void *)(uintptr_t)(s.t->other + PAGE), PAGE };
	assert_int_equal(process_vm_writev(s.pid, &here, 1, &there, 1, 0), PAGE);
	assert_int_equal(STATE(u->word), U_CLEAN);
	do_step(&s, 3);
	await_state(u, U_ZONE);
	do_step(&s, 4);
	play_end(&s);
}

/* Page 0 of a unit that came back and kept its place is replaced by a guard page. */
static void guards_the_first(struct talk *t)
{
	uint8_t *mem = fresh(MANY);

	fill_pages(mem, MANY, 1);
	t->ask = madvise(fresh(1), PAGE, GUARD_INSTALL) != 0;
	t->other = (uintptr_t)mem;
	reach(t, 1);
	t->wrong += !page_is((uint64_t *)(mem + PAGE), 1, 1);
	reach(t, 2);
	madvise(mem, PAGE, GUARD_INSTALL);
	madvise(mem, PAGE, GUARD_REMOVE);
	reach(t, 3);
	t->wrong += !page_is((uint64_t *)mem, 0, 0);
	reach(t, 4);
}

/* A page of a unit in memory is replaced by a marker: reading it gives zeroes. */
static void marked_without_a_page(void **state)
{
	static struct play s;

	play_begin(&s, guards_the_first);
	if (s.t->ask) {
		play_end(&s);
		skip();
	}
	play_attach(&s);
	await_all_out(&s);
	zns_mem_pause(s.m, true);
	do_step(&s, 2);
	await_state(unit_at(proc_of(&s), s.t->other), U_CLEAN);
	do_step(&s, 3);
	assert_int_equal(mem_uffd_protect(proc_of(&s)->uffd, s.t->other, s.t->other + PAGE, true),
			 0);
	do_step(&s, 4);
	zns_mem_pause(s.m, false);
	play_end(&s);
}

#define LOST 1U /* page of each unit that cannot be read */
#define UNGUARDED 5U /* page of each unit that guard pages removed */

/* In the first half of the units the page that cannot be read was also removed by a guard page. */
static void guards_beside_lost(struct talk *t)
{
	uint8_t *mem = fresh(MANY + UNIT_PAGES);

	mem += UNIT - (uintptr_t)mem % UNIT;
	fill_pages(mem, MANY, 1);
	t->ask = madvise(fresh(1), PAGE, GUARD_INSTALL) != 0;
	t->other = (uintptr_t)mem;
	reach(t, 1);
	for (uint32_t i = 0; i < MANY; i++)
		if (i % UNIT_PAGES == UNGUARDED || (i % UNIT_PAGES == LOST && i < MANY / 2)) {
			madvise(mem + i * PAGE, PAGE, GUARD_INSTALL);
			madvise(mem + i * PAGE, PAGE, GUARD_REMOVE);
		}
	for (uint32_t i = 0; i < MANY; i++)
		if (i % UNIT_PAGES != LOST || i < MANY / 2)
			t->wrong += !page_is((uint64_t *)(mem + i * PAGE), i,
					     i % UNIT_PAGES != UNGUARDED && i % UNIT_PAGES != LOST);
	reach(t, 2);
}

/* A lost page does not affect what is known of the other pages. */
static void guarded_beside_lost(void **state)
{
	static struct play s;

	play_begin(&s, guards_beside_lost);
	if (s.t->ask || s.shelves.made) {
		play_end(&s);
		skip();
	}
	play_attach(&s);
	await_all_out(&s);
	zns_mem_pause(s.m, true);
	s.shelves.s->bad_piece = LOST + 1;
	do_step(&s, 2);
	assert_true(lost_units(&s) > 0);
	s.shelves.s->bad_piece = 0;
	play_end(&s);
}

#define LARGE 4096U /* pages */
#define HELD 5U /* what they are filled with */
#define THE_GUARD 32U

/* The store reads whole units of that memory only when the test allows it. */
static struct {
	_Atomic bool closed;
	_Atomic uint32_t waiting;
} gate;

static int gated_get(void *arg, struct zns_pages_ref ref, void *buf, struct zns_err *err)
{
	const uint64_t *last = (uint64_t *)((uint8_t *)buf + (UNIT_PAGES - 1) * PAGE);
	int ret = shelf_get(arg, ref, buf, err);

	if (ret || (*last >> 8 & UINT32_MAX) != HELD)
		return ret;
	for (gate.waiting++; gate.closed;)
		usleep(1000);
	gate.waiting--;
	return 0;
}

static void *touches(void *mem)
{
	return (void *)(uintptr_t)(*(volatile uint8_t *)mem + 1);
}

static void guards_while_read(struct talk *t)
{
	uint8_t *mem = fresh(MANY);
	pthread_t thread;

	fill_pages(mem, MANY, HELD);
	t->ask = madvise(fresh(1), PAGE, GUARD_INSTALL) != 0;
	t->other = (uintptr_t)mem;
	reach(t, 1);
	pthread_create(&thread, NULL, touches, mem);
	reach(t, 2);
	madvise(mem + PAGE, PAGE, GUARD_INSTALL);
	madvise(mem + PAGE, PAGE, GUARD_REMOVE);
	reach(t, 3);
	pthread_join(thread, NULL);
	for (uint32_t i = 0; i < MANY; i++)
		t->wrong += !page_is((uint64_t *)(mem + i * PAGE), i, i == 1 ? 0 : HELD);
	reach(t, 4);
}

/* Guard pages come and go while the unit is being read from its zone. */
static __attribute__((unused)) void guarded_while_read(void **state)
{
	static struct play s;

	gate.closed = true;
	play_begin(&s, guards_while_read);
	s.store.get = gated_get;
	play_attach(&s);
	if (s.t->ask) {
		gate.closed = false;
		play_end(&s);
		skip();
	}
	await_all_out(&s);
	do_step(&s, 2);
	for (int i = 0; i < WAIT_S * 100 && !gate.waiting; i++)
		usleep(10000);
	assert_true(gate.waiting);
	do_step(&s, 3);
	gate.closed = false;
	do_step(&s, 4);
	play_end(&s);
}

/* The second half of a unit is removed, and half of another one is moved there. */
static void guards_beside_a_stray(struct talk *t)
{
	uint8_t *mem = fresh(MANY + UNIT_PAGES), *half;

	mem += UNIT - (uintptr_t)mem % UNIT;
	half = mem + UNIT / 2;
	fill_pages(mem, MANY, HELD);
	t->ask = madvise(fresh(1), PAGE, GUARD_INSTALL) != 0;
	t->other = (uintptr_t)mem;
	reach(t, 1);
	mremap(mem + MIB(1), UNIT / 2, UNIT / 2, MREMAP_MAYMOVE | MREMAP_FIXED, half);
	madvise(half, PAGE, GUARD_INSTALL);
	madvise(mem + PAGE, PAGE, GUARD_INSTALL);
	madvise(mem + PAGE, PAGE, GUARD_REMOVE);
	reach(t, 2);
	t->wrong += !page_is((uint64_t *)(half + PAGE), MIB(1) / PAGE + 1, HELD);
	t->wrong += !page_is((uint64_t *)mem, 0, HELD);
	t->wrong += !page_is((uint64_t *)(mem + PAGE), 1, 0);
	reach(t, 3);
}

/* Memory that comes back does not take markers from its neighbours in the same 64 KiB. */
static __attribute__((unused)) void guarded_beside_a_stray(void **state)
{
	static struct play s;

	play_begin(&s, guards_beside_a_stray);
	s.store.get = gated_get;
	play_attach(&s);
	if (s.t->ask) {
		play_end(&s);
		skip();
	}
	await_all_out(&s);
	zns_mem_pause(s.m, true);
	gate.closed = true;
	do_step(&s, 2);
	gate.closed = false;
	do_step(&s, 3);
	zns_mem_pause(s.m, false);
	play_end(&s);
}

static void guard_in_a_large_one(struct talk *t)
{
	uint8_t *mem = fresh(LARGE), *gap = fresh(MANY), *other = fresh(MANY);

	mprotect(gap, MANY * PAGE, PROT_NONE); /* otherwise all of it would be one area */
	fill_pages(mem, LARGE, HELD);
	t->other = (uintptr_t)(mem + THE_GUARD * PAGE);
	reach(t, 1);
	madvise(mem + THE_GUARD * PAGE, PAGE, GUARD_INSTALL);
	for (t->done = 2; t->step < 3; t->ask++)
		fill_pages(other, MANY, 2); /* more than the budget */
	for (uint32_t i = 0; i < LARGE; i++)
		t->wrong += i != THE_GUARD && !page_is((uint64_t *)(mem + i * PAGE), i, HELD);
	reach(t, 3);
}

static bool tells_guards(struct play *s)
{
	return pages_with(s->pid, s->t->other, 1, GUARD_PAGE) == 1; /* Linux 6.15 */
}

static size_t queued_of(const struct circle *c, uint64_t start, uint64_t len)
{
	size_t n = 0;

	for (size_t i = 0; i < c->nr; i++)
		n += c->f[(c->head + i) % c->max].addr - start < len;
	return n;
}

static size_t queued_in(struct zns_mem *m, uint64_t start, uint64_t len)
{
	size_t n;

	pthread_mutex_lock(&m->queue.lock);
	n = queued_of(&m->queue.faults, start, len) + queued_of(&m->queue.ahead, start, len);
	pthread_mutex_unlock(&m->queue.lock);
	return n;
}

/* Faults are served while a large area with a guard page is read back, a few units per turn. */
static __attribute__((unused)) void guarded_large_area(void **state)
{
	static struct play s;
	uint32_t rounds;
	size_t queued;

	gate.closed = true;
	play_begin(&s, guard_in_a_large_one);
	s.store.get = gated_get;
	play_attach(&s);
	await_bytes_out(&s, 0, LARGE * PAGE / 8 * 7);
	do_step(&s, 2);
	if (!tells_guards(&s)) {
		gate.closed = false;
		play_end(&s);
		skip();
	}
	for (int i = 0; i < WAIT_S * 100 && gate.waiting < 2; i++)
		usleep(10000);
	rounds = s.t->ask;
	for (int i = 0; i < WAIT_S * 100 && s.t->ask < rounds + 3; i++)
		usleep(10000);
	assert_true(s.t->ask >= rounds + 3);
	assert_int_equal(gate.waiting, 2);
	queued = queued_in(s.m, s.t->other - THE_GUARD * PAGE, LARGE * PAGE);
	assert_true(queued > 0 && queued <= 16);
	gate.closed = false;
	do_step(&s, 3);
	play_end(&s);
}

/* Of three areas side by side the one in the middle has a userfaultfd of its own. */
static void is_restored(struct talk *t)
{
	uint8_t *mem = fresh(3 * MANY + UNIT_PAGES);
	int fd[2];

	mem += UNIT - (uintptr_t)mem % UNIT;
	t->ask = madvise(fresh(1), PAGE, GUARD_INSTALL) != 0;
	for (unsigned int i = 0; i < 2; i++) {
		fd[i] = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
		t->wrong += mem_uffd_begin(fd[i]) != 0;
	}
	for (unsigned int i = 0; i < 3; i++) {
		struct uffdio_register r = { .range = { (uintptr_t)mem + i * MANY * PAGE,
							MANY * PAGE },
					     .mode = UFFDIO_REGISTER_MODE_MISSING };

		t->wrong += ioctl(fd[i % 2], UFFDIO_REGISTER, &r) != 0;
	}
	t->other = (uintptr_t)mem;
	t->pid = fd[0];
	reach(t, 1);
}

/* An area of a restored process that cannot be marked takes the marks from no other. */
static void adopted_in_parts(void **state)
{
	struct zns_mem_given g[3 * MANY / UNIT_PAGES];
	static struct play s;
	int pidfd, uffd;

	play_begin(&s, is_restored);
	if (s.t->ask) {
		play_end(&s);
		skip();
	}
	pidfd = (int)syscall(SYS_pidfd_open, s.pid, 0);
	uffd = (int)syscall(SYS_pidfd_getfd, pidfd, s.t->pid, 0);
	close(pidfd);
	for (unsigned int i = 0; i < ZNS_ARRAY_SIZE(g); i++)
		g[i] = (struct zns_mem_given){ .addr = s.t->other + i * UNIT,
					       .place = i + 1,
					       .pages = 0xffff };
	assert_int_equal(zns_mem_new("test", MIB(1), &s.store, &s.m, &s.err), 0);
	if (zns_mem_adopt(s.m, s.pid, uffd, g, ZNS_ARRAY_SIZE(g), &s.err))
		fail_msg("%s", s.err.msg);
	for (unsigned int i = 0; i < ZNS_ARRAY_SIZE(g); i++)
		assert_int_equal(unit_is_marked(proc_of(&s), unit_at(proc_of(&s), g[i].addr)),
				 i / (MANY / UNIT_PAGES) != 1);
	zns_mem_leave(s.m);
	s.m = NULL;
	play_end(&s);
}

/* ---- three mremap() calls at one place, none of which has returned ---- */

#define APART (2 * MANY * PAGE) /* distance between two of these places */

static _Atomic uint32_t turn;

/* Thread @nr moves what is at a place to another. */
static void *moves_one(void *arg)
{
	static const unsigned int way[3][2] = { { 0, 2 }, { 1, 0 }, { 0, 3 } };
	uint32_t nr = (uint32_t)(uintptr_t)arg % UNIT;
	uint8_t *at = (uint8_t *)((uintptr_t)arg - nr);

	while (turn <= nr)
		usleep(1000);
	mremap(at + way[nr][0] * APART, MANY * PAGE, MANY * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
	       at + way[nr][1] * APART);
	return NULL;
}

static bool is_mapped(uint8_t *at)
{
	unsigned char vec;

	return !mincore(at, PAGE, &vec);
}

/* What else to do, in talk.ask. */
enum { PARTLY = 1, WITH_A_FORK = 2, IN_A_CHILD = 4, LATE = 8 };

static _Atomic pid_t forker;

/* Either call may have happened first. */
static void check_places(struct talk *t, const uint8_t *at)
{
	for (uint32_t i = 0, seq = page_is((const uint64_t *)at, 0, 1) ? 1 : 2; i < MANY; i++) {
		t->wrong += !page_is((const uint64_t *)(at + i * PAGE), i, seq);
		t->wrong += !page_is((const uint64_t *)(at + APART + i * PAGE), i, 3 - seq);
	}
}

static struct talk *talk;

/* A plain system call: the C library would look at its heap. */
static void *forks_last(void *all)
{
	forker = gettid();
	while (turn <= 3)
		usleep(1000);
	if (!syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)) {
		talk->pid = getpid();
		check_places(talk, (uint8_t *)all + 2 * APART);
		talk->done = 6;
		for (;;)
			pause();
	}
	return NULL;
}

/* Waits until it waits for the reader of its event. If the kernel does not show that, waits for
 * some time. */
static void await_event(pid_t tid)
{
	char path[64], text[64] = "";
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/wchan", tid);
	for (int i = 0; i < 1000 && !strstr(text, "userfaultfd"); i++) {
		usleep(1000);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (read(fd, text, sizeof(text) - 1) < 0)
			_exit(9);
		close(fd);
	}
}

/* Called in the parent, whose child does the step. */
static void await_child(struct talk *t, pid_t child)
{
	int status;

	if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status))
		t->wrong++;
	reach(t, 5);
}

static void two_leave_one_place(struct talk *t)
{
	uint8_t *all = mmap(NULL, 5 * APART, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_t thread[4];
	pid_t child;

	/* align it, since otherwise it looks like a stack above its guard page */
	all += 4 * UNIT - (uintptr_t)all % UNIT;
	talk = t;
	for (unsigned int i = 0; i < 2; i++) {
		mprotect(all + i * APART, MANY * PAGE, PROT_READ | PROT_WRITE);
		fill_pages(all + i * APART, MANY, 1 + i);
	}
	t->other = (uintptr_t)all;
	reach(t, 1);
	for (unsigned int i = 0; i < 2 && t->ask & PARTLY; i++) /* a part of both comes back */
		check_pages(t, all + i * APART, MANY / 2, 1 + i);
	child = t->ask & IN_A_CHILD ? fork() : 0;
	if (child)
		await_child(t, child);
	if (t->ask & IN_A_CHILD)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (uint32_t nr = 0; nr < 3; nr++)
		pthread_create(&thread[nr], NULL, moves_one, all + nr);
	if (t->ask & WITH_A_FORK)
		pthread_create(&thread[3], NULL, forks_last, all);
	while (t->ask & WITH_A_FORK && !forker)
		usleep(1000);
	reach(t, 2);
	for (uint32_t nr = 0; nr < 3; nr++) {
		turn = nr + 1;
		while (is_mapped(all + (nr == 1 ? APART : 0)))
			usleep(1000);
	}
	if (t->ask & WITH_A_FORK) {
		turn = 4;
		await_event(forker);
	}
	reach(t, 3);
	for (uint32_t nr = 0; nr < 3; nr++)
		pthread_join(thread[nr], NULL);
	check_places(t, all + 2 * APART);
	reach(t, 4);
}

/* Thread 0 moves the second half away; thread 1's first half grows into that place, and moves as
 * well. */
static void *grows(void *arg)
{
	uint32_t nr = (uint32_t)(uintptr_t)arg % UNIT;
	uint8_t *at = (uint8_t *)((uintptr_t)arg - nr);

	while (turn <= nr)
		usleep(1000);
	if (!nr) {
		mremap(at + MANY * PAGE, MANY * PAGE, MANY * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
		       at + 2 * APART);
		return NULL;
	}
	mremap(at, MANY * PAGE, APART, 0);
	mremap(at, APART, APART, MREMAP_MAYMOVE | MREMAP_FIXED, at + 3 * APART);
	return NULL;
}

static void one_grows(struct talk *t)
{
	uint8_t *all = mmap(NULL, 5 * APART, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_t thread[2];

	/* otherwise it looks like a stack above its guard */
	all += 4 * UNIT - (uintptr_t)all % UNIT;
	mprotect(all, APART, PROT_READ | PROT_WRITE);
	fill_pages(all, 2 * MANY, 1);
	for (uint32_t nr = 0; nr < 2; nr++)
		pthread_create(&thread[nr], NULL, grows, all + nr);
	t->other = (uintptr_t)all;
	reach(t, 1);
	if (t->ask & PARTLY)
		check_pages(t, all, MANY / 2, 1);
	for (uint32_t i = MANY; i < 3 * MANY / 2 && t->ask & PARTLY; i++)
		t->wrong += !page_is((uint64_t *)(all + i * PAGE), i, 1);
	reach(t, 2);
	for (uint32_t nr = 0; nr < 2; nr++) {
		turn = nr + 1;
		while (is_mapped(all + (nr ? 0 : MANY * PAGE)))
			usleep(1000);
	}
	reach(t, 3);
	for (uint32_t nr = 0; nr < 2; nr++)
		pthread_join(thread[nr], NULL);
	for (uint32_t i = 0; i < 2 * MANY; i++) {
		uint8_t *at = all + 3 * APART + i * PAGE;

		t->wrong += !page_is((uint64_t *)at, i, i < MANY);
		if (i >= MANY)
			t->wrong += !page_is((uint64_t *)(at - APART - MANY * PAGE), i, 1);
	}
	reach(t, 4);
}

/* The reader hears of the second of two messages first, and of the other one at its next read: that
 * one's thread had lost its processor. */
static struct {
	_Atomic int fd;
	bool is_held;
	struct uffd_msg held;
} late = { .fd = -1 };

ssize_t __real_read(int fd, void *buf, size_t len);
ssize_t __wrap_read(int fd, void *buf, size_t len);

ssize_t __wrap_read(int fd, void *buf, size_t len)
{
	if (fd < 0 || fd != late.fd)
		return __real_read(fd, buf, len);
	if (!late.is_held) {
		assert_int_equal(__real_read(fd, &late.held, sizeof(late.held)), sizeof(late.held));
		late.is_held = true;
		return __real_read(fd, buf, sizeof(late.held));
	}
	late.fd = -1;
	late.is_held = false;
	memcpy(buf, &late.held, sizeof(late.held));
	return sizeof(late.held);
}

/* Waits until the turn that is under way has ended, too. */
static void pause_evictor(struct zns_mem *m)
{
	zns_mem_pause(m, true);
	until(!m->evicting || m->evict_idle);
}

/* From here on each event of @program, or of a child that is not recognised yet, is delivered at
 * once. */
static void moves_at_once(struct play *s, void (*program)(struct talk *t), uint32_t ask)
{
	struct proc *p = NULL;

	turn = 0;
	play_begin(s, program);
	s->t->ask = ask;
	play_attach(s);
	for (int i = 0; i < WAIT_S * 100 && pages_with(s->pid, s->t->other, 4 * MANY, PRESENT); i++)
		usleep(10000);
	assert_int_equal(pages_with(s->pid, s->t->other, 4 * MANY, PRESENT), 0);
	pause_evictor(s->m);
	do_step(s, 2);
	for (unsigned int k = 0; k < PROCS_MAX && !p; k++)
		if (s->m->proc[k] && s->m->proc[k]->pid == (ask & IN_A_CHILD ? 0 : s->pid))
			p = s->m->proc[k];
	assert_non_null(p);
	pthread_rwlock_rdlock(&p->ev);
	do_step(s, 3);
	late.fd = ask & LATE ? p->uffd : -1;
	pthread_rwlock_unlock(&p->ev);
}

/* ---- memory that the program is removing ---- */

#define GOING_MS 10000U /* as in evict.c */

static uintptr_t whole_unit(uintptr_t at)
{
	return (at + UNIT - 1) / UNIT * UNIT;
}

/* The first half stays although its removal is announced: that is what MADV_FREE does, and what
 * happens to any removal until the kernel goes on. It is written again, so the kernel keeps it. In
 * the second half a page is removed, and one more that is written again. */
static void frees(struct talk *t)
{
	uint8_t *mem = fresh(MANY), *removed;

	fill_pages(mem, MANY, 1);
	t->other = (uintptr_t)mem;
	removed = (uint8_t *)whole_unit(t->other + MANY / 2 * PAGE);
	reach(t, 1);
	fill_pages(mem, MANY, 2);
	reach(t, 2);
	madvise(mem, MANY / 2 * PAGE, MADV_FREE);
	fill_pages(mem, MANY / 2, 3);
	madvise(removed, PAGE, MADV_DONTNEED);
	madvise(removed + UNIT, PAGE, MADV_DONTNEED);
	page_write((uint64_t *)(removed + UNIT), 1, 4);
	reach(t, 3);
	for (uint32_t i = 0; i < MANY; i++) {
		uint64_t *page = (uint64_t *)(mem + i * PAGE);

		if ((uint8_t *)page == removed)
			t->wrong += !page_is(page, i, 0);
		else if ((uint8_t *)page == removed + UNIT)
			t->wrong += !page_is(page, 1, 4);
		else
			t->wrong += !page_is(page, i, i < MANY / 2 ? 3 : 2);
	}
	reach(t, 4);
}

/* Evicts one unit as the evictor does, which is paused. Returns how many units left. */
static unsigned int evict_one(struct play *s, uintptr_t base)
{
	struct proc *p = proc_of(s);
	const struct place area = { s->t->other, s->t->other + MANY * PAGE };
	struct victim v = {
		.u = unit_at(p, base), .base = base, .start = base, .end = base + UNIT
	};
	unsigned int out = 0;

	evict(p, &v, 1, &area, &out, &s->err);
	return out;
}

/* On a busy machine the program does not always stop in time. */
static void evict_at_last(struct play *s, uintptr_t base)
{
	const struct unit *u = unit_at(proc_of(s), base);

	for (int i = 0; i < WAIT_S && STATE(u->word) != U_ZONE; i++)
		if (!evict_rest(proc_of(s), 1000))
			evict_one(s, base);
	assert_int_equal(STATE(u->word), U_ZONE);
}

static void begin_to_remove(struct play *s)
{
	play_begin(s, frees);
	play_attach(s);
	await_all_out(s);
	pause_evictor(s->m);
	do_step(s, 2);
	do_step(s, 3);
}

/* Pages that the program is removing are not copied while they are still there, or they would come
 * back. For pages that stay there is a limit. */
static void being_removed(void **state)
{
	uintptr_t first, removed;
	static struct play s;
	struct unit *u;

	begin_to_remove(&s);
	first = whole_unit(s.t->other);
	removed = whole_unit(s.t->other + MANY / 2 * PAGE);
	u = unit_at(proc_of(&s), first);
	until(u->pages >> 16 == 0xffff);
	until(unit_at(proc_of(&s), removed)->pages >> 16 == 1);
	u->stamp = now_ms();
	assert_int_equal(evict_one(&s, first), 0);
	assert_int_equal(STATE(u->word), U_RES);
	assert_int_equal(u->pages >> 16, 0xffff);
	u->stamp = now_ms() - GOING_MS;
	evict_at_last(&s, first);
	assert_int_equal(u->pages, 0xffff);
	/* what is gone, or has come again, is not waited for */
	until(!(unit_at(proc_of(&s), removed + UNIT)->pages >> 16));
	evict_at_last(&s, removed);
	assert_int_equal(unit_at(proc_of(&s), removed)->pages, 0xfffe);
	evict_at_last(&s, removed + UNIT);
	do_step(&s, 4);
	play_end(&s);
}

/* The control: without the rule the pages leave at once. */
static void being_removed_without(void **state)
{
	static struct play s;

	mem_control("ZNS_MEM_WITHOUT", "22"); /* RULE_GOING */
	begin_to_remove(&s);
	evict_at_last(&s, whole_unit(s.t->other));
	mem_control("ZNS_MEM_WITHOUT", NULL);
	do_step(&s, 4);
	play_end(&s);
}

static void three_moves_of_all(void **state)
{
	static struct play s;

	moves_at_once(&s, two_leave_one_place, 0);
	do_step(&s, 4);
	zns_mem_pause(s.m, false);
	play_end(&s);
}

/* It cannot be known to which move the rest belongs: the program is killed, and reads no wrong
 * byte. */
static void three_moves_of_parts(void **state)
{
	static struct play s;

	moves_at_once(&s, two_leave_one_place, PARTLY);
	tell(&s, 4);
	for (int i = 0; i < WAIT_S * 100 && !program_ended(&s) && s.t->done < 4; i++)
		usleep(10000);
	assert_true(program_ended(&s));
	assert_int_equal(s.t->wrong, 0);
	zns_mem_pause(s.m, false);
	play_end(&s);
}

static bool any_doomed(const struct zns_mem *m)
{
	for (unsigned int i = 0; i < PROCS_MAX; i++)
		if (m->sh->proc[i].used && m->sh->proc[i].doomed)
			return true;
	return false;
}

/* The same for a child that it forks at that moment. False: the kernel ended it before it had a
 * child. */
static bool ends_with_its_child(void)
{
	static struct play s;
	int status = 0;
	pid_t ended = 0;

	moves_at_once(&s, two_leave_one_place, PARTLY | WITH_A_FORK);
	tell(&s, 4);
	zns_mem_pause(s.m, false);
	for (int i = 0; i < WAIT_S * 100 && s.t->done < 6 && !ended; i++) {
		usleep(10000);
		if (!program_ended(&s) || any_doomed(s.m))
			continue;
		if (!s.t->pid)
			break;
		ended = zns_max(waitpid(s.t->pid, &status, WNOHANG), 0);
	}
	if (!ended && s.t->pid)
		kill(s.t->pid, SIGKILL);
	assert_int_equal(s.t->done, 3);
	assert_true(!s.t->pid || (ended && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
	play_end(&s);
	return ended;
}

static void three_moves_and_a_fork(void **state)
{
	bool has_ended = false;

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	for (int k = 0; k < 20 && !has_ended; k++)
		has_ended = ends_with_its_child();
	prctl(PR_SET_CHILD_SUBREAPER, 0);
	assert_true(has_ended); /* otherwise the child was never born */
}

/* And for a child that is not recognised yet. */
static void three_moves_of_a_child(void **state)
{
	static struct play s;

	moves_at_once(&s, two_leave_one_place, PARTLY | IN_A_CHILD);
	tell(&s, 4);
	zns_mem_pause(s.m, false);
	for (int i = 0; i < WAIT_S * 100 && s.t->done == 3; i++)
		usleep(10000);
	assert_int_equal(s.t->done, 5);
	play_end(&s);
}

static void neighbours(uint32_t ask)
{
	static struct play s;

	moves_at_once(&s, one_grows, ask);
	do_step(&s, 4);
	assert_int_equal(late.fd, -1);
	zns_mem_pause(s.m, false);
	play_end(&s);
}

/* Two neighbours that grow: no other memory has arrived where the first one was. */
static void a_neighbour_grows(void **state)
{
	neighbours(0);
	neighbours(PARTLY);
}

/* The reader hears of the one that has grown, and not yet of the one that left before. */
static void a_neighbour_grows_alone(void **state)
{
	neighbours(LATE);
	neighbours(LATE | PARTLY);
}

static void has_a_stack(struct talk *t)
{
	uint8_t *stack = fresh(STACK_SIZE / PAGE);

	t->other = madvise(stack, PAGE, GUARD_INSTALL) != 0;
	reach(t, 1);
}

static uint64_t special(struct play *s)
{
	ZnsPb__MemoryStatus st;
	uint64_t bytes;

	status(s->m, &st);
	bytes = st.skipped->special;
	zns_mem_status_free(&st);
	return bytes;
}

/* A thread's stack, as glibc makes it since 2.42: the kernel itself writes to it. */
static void guarded_stack(void **state)
{
	static struct play s;

	play_begin(&s, has_a_stack);
	if (s.t->other) {
		play_end(&s);
		skip();
	}
	play_attach(&s);
	for (int i = 0; i < WAIT_S * 100 && special(&s) < STACK_SIZE; i++)
		usleep(10000);
	assert_true(special(&s) >= STACK_SIZE);
	play_end(&s);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_ring),
		cmocka_unit_test(nobody_takes_it),
		cmocka_unit_test(not_to_who_shares),
		cmocka_unit_test(not_to_sovereigns),
		cmocka_unit_test(shared),
		cmocka_unit_test(shared_below),
		cmocka_unit_test(pinned),
		cmocka_unit_test(pinned_later),
		cmocka_unit_test(ends_while_handed_over),
		cmocka_unit_test(guarded_meanwhile),
		cmocka_unit_test(written_unseen),
		cmocka_unit_test(guarded_afterwards),
		cmocka_unit_test(guarded_unseen),
		cmocka_unit_test(guarded_in_a_child),
		cmocka_unit_test(guarded_before_recognised),
		cmocka_unit_test(marked_without_a_page),
		cmocka_unit_test(guarded_beside_lost),
		cmocka_unit_test(guarded_and_moved),
		cmocka_unit_test(guarded_area),
/* the sanitizer's shadow memory would be evicted instead of the test's */
#ifndef __SANITIZE_ADDRESS__
		cmocka_unit_test(guarded_large_area),
		cmocka_unit_test(guarded_while_read),
		cmocka_unit_test(guarded_beside_a_stray),
#endif
		cmocka_unit_test(guarded_stack),
		cmocka_unit_test(adopted_in_parts),
		cmocka_unit_test(being_removed),
		cmocka_unit_test(being_removed_without),
		cmocka_unit_test(three_moves_of_all),
		cmocka_unit_test(three_moves_of_parts),
		cmocka_unit_test(three_moves_and_a_fork),
		cmocka_unit_test(three_moves_of_a_child),
		cmocka_unit_test(a_neighbour_grows),
		cmocka_unit_test(a_neighbour_grows_alone),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
