/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The stop of all threads in which pages leave: pages that were swapped out before, pages that
 * differ from their copy and are put back, and pages that cannot be put back.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sys/swap.h>
#include <sys/uio.h>

#include "mem_reach.h"

#define MANY 512U /* pages */
#define UNIT_PAGES 16U
#define SWAP_PAGES 4096U
#define PRESENT (1ULL << 63) /* in pagemap */
#define SWAPPED (1ULL << 62)
#define PROTECTED (1ULL << 57)
#define SCRATCH 33 /* REACHED_ of rules.h */
#define TAKEN 34
#define NOT_BACK "7,8" /* REFUSED_ */
#define NOT_SAME "8"

static unsigned int halts; /* so far, in all of this program */

static void halt_at(int state)
{
	char text[32];

	snprintf(text, sizeof(text), "%d@%u", state, ++halts);
	mem_control("ZNS_MEM_HALT", text);
}

static bool stands_still(pid_t pid)
{
	char path[64], text[256];
	bool still;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "r");
	still = f && fgets(text, sizeof(text), f) && strstr(text, ") T ");
	if (f)
		fclose(f);
	return still;
}

/* A stopped child process of one of our threads; 0: there is none. */
static pid_t halted(void)
{
	DIR *l = opendir("/proc/self/task");
	struct dirent *d;
	pid_t pid, found = 0;

	assert_non_null(l);
	while (!found && (d = readdir(l))) {
		char path[300];
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/children", d->d_name);
		f = fopen(path, "r");
		while (f && !found && fscanf(f, "%d", &pid) == 1)
			found = stands_still(pid) ? pid : 0;
		if (f)
			fclose(f);
	}
	closedir(l);
	return found;
}

/* The tracer of the process that stands still. */
static pid_t await_halt(void)
{
	pid_t tracer = 0;

	for (int i = 0; i < WAIT_S * 100 && !tracer; i++) {
		usleep(10000);
		tracer = halted();
	}
	if (!tracer)
		fail_msg("no tracer stands still");
	return tracer;
}

/* Pages of the program's memory that have one of these bits in pagemap. */
static unsigned int pages_with(struct play *s, uint64_t bits)
{
	char path[64];
	uint64_t entry[MANY];
	unsigned int n = 0;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/pagemap", s->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(zns_pread_all(fd, entry, sizeof(entry),
				       (off_t)(s->t->other / PAGE * sizeof(*entry))),
			 0);
	close(fd);
	for (unsigned int i = 0; i < MANY; i++)
		n += (entry[i] & bits) != 0;
	return n;
}

static void sleeper(struct talk *t)
{
	uint8_t *mem = fresh(MANY);

	fill_pages(mem, MANY, 1);
	t->other = (uintptr_t)mem;
	reach(t, 1);
	check_pages(t, mem, MANY, 1);
	reach(t, 2);
}

/* ---- swap ---- */

static char swap_file[] = "/var/tmp/zns-swap-XXXXXX";

/* A small swap file, since other programs may use it meanwhile. */
static bool swap_on(void)
{
	static uint8_t page[PAGE];
	uint32_t head[2] = { 1, SWAP_PAGES - 1 }; /* version, last page */
	int fd = mkstemp(swap_file);
	bool ok = fd >= 0;

	memcpy(page + 1024, head, sizeof(head));
	memcpy(page + PAGE - 10, "SWAPSPACE2", 10);
	ok = ok && write(fd, page, PAGE) == (ssize_t)PAGE;
	memset(page, 0, PAGE);
	for (unsigned int i = 1; ok && i < SWAP_PAGES; i++) /* no holes */
		ok = write(fd, page, PAGE) == (ssize_t)PAGE;
	ok = ok && !fsync(fd) && !swapon(swap_file, 0);
	close(fd);
	if (!ok)
		unlink(swap_file);
	return ok;
}

static int swap_off(void **state)
{
	swapoff(swap_file);
	unlink(swap_file);
	return 0;
}

/* Swaps out all of its memory while the program is stopped. */
static bool swap_out(struct play *s)
{
	struct iovec all = { (void *)(uintptr_t)s->t->other, MANY * PAGE };
	int pidfd = (int)syscall(SYS_pidfd_open, s->pid, 0);

	for (int i = 0; i < WAIT_S * 100 && pages_with(s, SWAPPED) < MANY; i++) {
		syscall(SYS_process_madvise, pidfd, &all, 1, MADV_PAGEOUT, 0);
		usleep(10000);
	}
	close(pidfd);
	return pages_with(s, SWAPPED) == MANY;
}

/* The kernel does not say whether another process shares these pages. They are moved like others
 * and not dropped like a child's pages, since a process might write to them just before. */
static void swapped(void **state)
{
	static struct play s;
	unsigned int left;
	pid_t tracer;
	bool out;

	if (!swap_on())
		skip();
	play_begin(&s, sleeper);
	halt_at(SCRATCH);
	play_attach(&s);
	for (tracer = await_halt(); !pages_with(&s, PROTECTED); tracer = await_halt()) {
		halt_at(SCRATCH); /* the stop was for another area: wait for the next one */
		kill(tracer, SIGCONT);
	}
	out = swap_out(&s);
	halt_at(TAKEN);
	kill(tracer, SIGCONT);
	tracer = await_halt();
	left = pages_with(&s, PRESENT | SWAPPED);
	mem_control("ZNS_MEM_HALT", NULL);
	kill(tracer, SIGCONT);
	assert_true(out);
	assert_true(left <= MANY - UNIT_PAGES);
	await_bytes_out(&s, 0, UNIT_PAGES * PAGE);
	do_step(&s, 2);
	play_end(&s);
}

/* ---- pages that differ from their copy ---- */

static void put_back(void **state)
{
	static struct play s;

	mem_control("ZNS_MEM_REFUSED", NOT_SAME);
	play_begin(&s, sleeper);
	play_attach(&s);
	await_out(&s, 2 * MANY / UNIT_PAGES);
	do_step(&s, 2);
	mem_control("ZNS_MEM_REFUSED", NULL);
	play_end(&s);
}

static sigjmp_buf unreadable;

static void on_bus(int sig)
{
	siglongjmp(unreadable, 1);
}

/* Counts the pages that cannot be read; all others must be right. */
static __attribute__((unused)) void looks(struct talk *t)
{
	uint8_t *mem = fresh(MANY);

	fill_pages(mem, MANY, 1);
	t->other = (uintptr_t)mem;
	signal(SIGBUS, on_bus);
	reach(t, 1);
	for (volatile uint32_t i = 0; i < MANY; i++)
		if (sigsetjmp(unreadable, 1))
			t->pid++;
		else
			t->wrong += !page_is((uint64_t *)(mem + i * PAGE), i, 1);
	reach(t, 2);
}

/* The stop still ends, and no older data are read. */
static __attribute__((unused)) void not_put_back(void **state)
{
	static struct play s;

	mem_control("ZNS_MEM_REFUSED", NOT_BACK);
	play_begin(&s, looks);
	play_attach(&s);
	/* a poisoned page has a marker; other areas lose some, too */
	for (int i = 0; i < WAIT_S * 100 && !pages_with(&s, SWAPPED); i++)
		usleep(10000);
	mem_control("ZNS_MEM_REFUSED", NULL);
	do_step(&s, 2);
	assert_true(s.t->pid);
	assert_true(lost_units(&s));
	play_end(&s);
}

/* ---- an event that stays unread for longer than a stop waits ---- */

#define READER_LATE "29@9000000" /* REACHED_READY; us */
#define STACK_SIZE 16384

/* A process that shares the program's memory but is no thread of it, so it runs on during the
 * stop. */
static int sharer(void *arg)
{
	struct talk *t = arg;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (!t->ask)
		syscall(SYS_sched_yield);
	syscall(SYS_madvise, t->other + MANY * PAGE, UNIT_PAGES * PAGE, MADV_DONTNEED);
	t->ask = 0;
	return pause();
}

static void shares(struct talk *t)
{
	uint8_t *mem = fresh(MANY + UNIT_PAGES), *stack = fresh(STACK_SIZE / PAGE);

	fill_pages(mem, MANY, 1);
	t->other = (uintptr_t)mem;
	t->pid = clone(sharer, stack + STACK_SIZE, CLONE_VM | CLONE_PARENT | SIGCHLD, t);
	reach(t, 1);
	check_pages(t, mem, MANY, 1);
	reach(t, 2);
	kill(t->pid, SIGKILL);
}

static bool waits_for_reader(pid_t pid)
{
	char path[64], text[256];
	bool waits;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/wchan", pid);
	f = fopen(path, "r");
	waits = f && fgets(text, sizeof(text), f) && strstr(text, "userfaultfd");
	if (f)
		fclose(f);
	return waits;
}

/* Meanwhile no page can be put back. The program stands still, so it can wait, and is not
 * killed. */
static void unread(void **state)
{
	static struct play s;
	pid_t tracer;

	mem_control("ZNS_MEM_REFUSED", NOT_SAME);
	play_begin(&s, shares);
	halt_at(TAKEN);
	play_attach(&s);
	for (tracer = await_halt(); pages_with(&s, PRESENT) == MANY; tracer = await_halt()) {
		halt_at(TAKEN); /* the stop was for another area: wait for the next one */
		kill(tracer, SIGCONT);
	}
	mem_control("ZNS_MEM_LATE", READER_LATE);
	mem_control("ZNS_MEM_HALT", NULL);
	s.t->ask = 1;
	for (int i = 0; i < WAIT_S * 100 && !waits_for_reader(s.t->pid); i++)
		usleep(10000);
	assert_true(waits_for_reader(s.t->pid));
	kill(tracer, SIGCONT);
	for (int i = 0; i < WAIT_S * 100 && s.t->ask && !program_ended(&s); i++)
		usleep(10000);
	mem_control("ZNS_MEM_LATE", NULL);
	mem_control("ZNS_MEM_REFUSED", NULL);
	do_step(&s, 2);
	assert_int_equal(lost_units(&s), 0);
	play_end(&s);
}

/* ---- before the stop: the store refuses a write ---- */

static void writer(struct talk *t)
{
	uint8_t *mem = fresh(MANY);

	t->other = (uintptr_t)mem;
	fill_pages(mem, MANY, 1);
	for (uint32_t seq = 1; seq < 4; seq++) {
		reach(t, seq);
		check_pages(t, mem, MANY, seq);
		fill_pages(mem, MANY, seq + 1);
	}
	reach(t, 4);
	check_pages(t, mem, MANY, 4);
	reach(t, 5);
}

static bool stands_still_for(struct play *s, const char *word)
{
	ZnsPb__MemoryStatus st;
	bool found;

	status(s->m, &st);
	found = st.warning && strstr(st.warning, word);
	zns_mem_status_free(&st);
	return found;
}

static void await_gone(struct play *s)
{
	for (int i = 0; i < WAIT_S * 100 && pages_with(s, PRESENT); i++)
		usleep(10000);
	assert_int_equal(pages_with(s, PRESENT), 0);
}

/* Memory that could not be written is unchanged: it is writable, and is evicted later. */
static void refused_by_the_store(void **state)
{
	static struct play s;

	play_begin(&s, writer);
	s.shelves.s->put_error = -EIO;
	play_attach(&s);
	for (int i = 0; i < WAIT_S * 100 && !stands_still_for(&s, "the test says so"); i++)
		usleep(10000);
	assert_true(stands_still_for(&s, "the test says so"));
	assert_int_equal(pages_with(&s, PRESENT), MANY);
	do_step(&s, 2);
	s.shelves.s->put_error = 0;
	await_gone(&s);
	do_step(&s, 3);
	await_gone(&s);
	do_step(&s, 4);
	await_gone(&s);
	do_step(&s, 5);
	assert_int_equal(lost_units(&s), 0);
	play_end(&s);
}

/* ---- what the program removes while its memory is on zones ---- */

static bool is_removed(uint32_t page)
{
	return page % 7 == 3 || page / UNIT_PAGES == 5;
}

static void remover(struct talk *t)
{
	uint8_t *mem = fresh(MANY);

	t->other = (uintptr_t)mem;
	fill_pages(mem, MANY, 1);
	reach(t, 1);
	for (uint32_t i = 0; i < MANY; i++)
		if (is_removed(i))
			madvise(mem + i * PAGE, PAGE, MADV_DONTNEED);
	for (uint32_t i = 0; i < MANY; i++)
		t->wrong += !page_is((uint64_t *)(mem + i * PAGE), i, !is_removed(i));
	reach(t, 2);
}

static void removed(void **state)
{
	static struct play s;

	play_begin(&s, remover);
	play_attach(&s);
	await_gone(&s);
	do_step(&s, 2);
	play_end(&s);
}

/* ---- threads that do not stop at once ---- */

#define AWAY_US 400000

/* Its only thread cannot stop before its child has exited. */
static void waits_for_a_child(struct talk *t)
{
	t->done = 1;
	if (!vfork()) {
		usleep(AWAY_US);
		_exit(0);
	}
	reach(t, 1);
}

static void attached_later(void **state)
{
	static struct play s;

	play_begin(&s, waits_for_a_child);
	play_attach(&s);
	play_end(&s);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refused_by_the_store), cmocka_unit_test(removed),
		cmocka_unit_test(attached_later),       cmocka_unit_test(put_back),
#ifndef __SANITIZE_ADDRESS__ /* whose own memory may not be poisoned */
		cmocka_unit_test(not_put_back),
#endif
	};
	/* These run only on request: the swap file is used by the whole machine, and the other
	 * test takes nine seconds. */
	const struct CMUnitTest asked[] = { cmocka_unit_test_teardown(swapped, swap_off),
					    cmocka_unit_test(unread) };

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	if (argc > 1 && (!strcmp(argv[1], "swapped") || !strcmp(argv[1], "unread")))
		return cmocka_run_group_tests(asked, NULL, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
