/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A program that does to itself what an attacker inside would do, while its units are evicted all
 * the time: twelve threads change, remove, unmap and move memory, fork, vfork and execute, have
 * processes that share memory and descriptors, close and duplicate descriptors of any number, are
 * traced by their children, and take any name. Each page must have what its thread wrote last.
 *
 *   soak_mem_hostile [UNITS [SEED]]    until this many units were evicted
 */
#include <errno.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>

#include "mem_fixture.h"

#define THREADS 12U
#define ARENA 512U /* pages of each thread */
#define LEN (ARENA * PAGE)
#define SHIFT_MAX 40U /* pages */
#define FDS 96 /* numbers that are closed and duplicated */
#define SHARER_STACK KIB(64)
#define DEFAULT_UNITS 1000U
#define WAIT_S 120 /* seconds without an evicted unit, after which it is given up */

enum act {
	WRITE,
	REMOVE,
	MAP,
	MOVE,
	PROTECT,
	FORK,
	EXECUTE,
	SHARE,
	DESCRIPTORS,
	TRACE,
	NAME,
	ACTS
};
static const char *const act_name[ACTS] = {
	"writes",     "removals",      "maps",      "moves",  "protections", "forks",
	"executions", "memory shared", "close/dup", "traced", "names",
};
/* How often each action is chosen, in per mille. */
static const unsigned int often[ACTS] = { 700, 60, 40, 10, 20, 10, 5, 20, 80, 5, 50 };

struct tale { /* shared memory with the program's reports */
	_Atomic uint32_t seq[THREADS][ARENA];
	_Atomic uint64_t did[ACTS], wrong;
	_Atomic uint32_t ready, stop, done;
};

struct self {
	struct tale *t;
	unsigned int nr;
	uint8_t *mem;
	uint64_t seed;
	uint32_t seq;
	uint32_t then[ARENA]; /* contents at the fork */
	uint8_t *stack;
};

static void die(int code)
{
	fprintf(stderr, "exit %d: %s\n", code, strerror(errno));
	_exit(code);
}

static uint64_t *page_of(struct self *s, uint32_t i)
{
	return (uint64_t *)(s->mem + i * PAGE);
}

static void check(struct self *s, uint32_t i)
{
	if (page_is(page_of(s, i), i, s->t->seq[s->nr][i]))
		return;
	if (!s->t->wrong++)
		fprintf(stderr, "thread %u, page %u, written as %u, begins with %lx\n", s->nr, i,
			s->t->seq[s->nr][i], (unsigned long)*page_of(s, i));
}

static void check_all(struct self *s)
{
	for (uint32_t i = 0; i < ARENA; i++)
		check(s, i);
}

static void write_one(struct self *s)
{
	uint32_t i = roll(&s->seed) % ARENA;

	check(s, i);
	s->seq = s->seq % 0xffffff + 1;
	page_write(page_of(s, i), i, s->seq);
	s->t->seq[s->nr][i] = s->seq;
}

/* Discards a run of pages, which are zeroes from here on. */
static void *emptied(struct self *s, size_t *len)
{
	uint32_t i = roll(&s->seed) % (ARENA - 32), n = 1 + roll(&s->seed) % 32;

	for (uint32_t k = i; k < i + n; k++)
		s->t->seq[s->nr][k] = 0;
	*len = n * PAGE;
	return page_of(s, i);
}

static void remove_some(struct self *s)
{
	size_t len;
	void *at = emptied(s, &len);

	if (madvise(at, len, MADV_DONTNEED))
		die(10);
}

static void map_again(struct self *s)
{
	size_t len;
	void *at = emptied(s, &len);

	if (mmap(at, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
	    at)
		die(11);
}

/* Moves memory to an address that is no multiple of a unit away. */
static void move(struct self *s)
{
	size_t shift = (1 + roll(&s->seed) % SHIFT_MAX) * PAGE, all = LEN + SHIFT_MAX * PAGE;
	uint8_t *at = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *to;

	if (at == MAP_FAILED)
		die(12);
	to = mremap(s->mem, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED, at + shift);
	if (to == MAP_FAILED)
		die(15);
	munmap(at, shift);
	munmap(at + shift + LEN, all - shift - LEN);
	s->mem = to;
}

static void protect(struct self *s)
{
	uint32_t i = roll(&s->seed) % (ARENA - 32);

	if (mprotect(page_of(s, i), 16 * PAGE, PROT_READ) ||
	    mprotect(page_of(s, i), 16 * PAGE, PROT_READ | PROT_WRITE))
		die(13);
}

static void reap(struct self *s, pid_t pid)
{
	int status;

	while (waitpid(pid, &status, __WALL) < 0 && errno == EINTR)
		;
	if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		fprintf(stderr, "thread %u: a child ended with %x\n", s->nr, (unsigned int)status);
		s->t->wrong++;
	}
}

/* A child, which has all memory of this thread, writes to some of it. */
static void fork_one(struct self *s)
{
	pid_t pid;

	for (uint32_t i = 0; i < ARENA; i++)
		s->then[i] = s->t->seq[s->nr][i];
	pid = fork();
	if (pid < 0)
		return;
	if (!pid) {
		for (int round = 0; round < 2; round++)
			for (uint32_t i = 0; i < ARENA; i++) {
				if (!page_is(page_of(s, i), i, s->then[i]))
					_exit(20);
				if (i % 5)
					continue;
				s->then[i] = 0x800000 + i;
				page_write(page_of(s, i), i, s->then[i]);
			}
		_exit(0);
	}
	reap(s, pid);
}

static void execute(struct self *s)
{
	static char *const args[] = { "true", NULL };
	pid_t pid = vfork();

	if (!pid) {
		execv("/bin/true", args);
		_exit(21);
	}
	if (pid > 0)
		reap(s, pid);
}

/* Closes random descriptors, except those that may be ours: another thread may have got that
 * number. */
static void play_with(uint64_t *seed)
{
	int fd = 3 + (int)(roll(seed) % FDS), other = 3 + (int)(roll(seed) % FDS);
	struct uffdio_range all = { .start = MIB(1), .len = (1ULL << 46) };

	switch (roll(seed) % 4) {
	case 0:
		close(fd);
		break;
	case 1:
		dup2(fd, other);
		break;
	case 2:
		ioctl(fd, UFFDIO_UNREGISTER, &all);
		break;
	default:
		ioctl(fd, UFFDIO_WAKE, &all);
	}
}

/* Starts another process with our memory and descriptors, which does not stand still with us. */
static int sharer(void *arg)
{
	struct self *s = arg;
	uint64_t seed = s->seed;

	for (int i = 0; i < 8; i++) {
		write_one(s);
		play_with(&seed);
	}
	remove_some(s);
	return 0;
}

static void share(struct self *s)
{
	pid_t pid = clone(sharer, s->stack + SHARER_STACK, CLONE_VM | CLONE_FILES | SIGCHLD, s);

	if (pid > 0)
		reap(s, pid);
}

/* Lets a child trace us, which makes us stand still for a moment. */
static void trace(struct self *s)
{
	pid_t tid = (pid_t)syscall(SYS_gettid), pid = fork();

	if (!pid) {
		int status;

		if (!ptrace(PTRACE_SEIZE, tid, NULL, NULL) &&
		    !ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) &&
		    waitpid(tid, &status, __WALL) == tid) {
			usleep(2000);
			ptrace(PTRACE_DETACH, tid, NULL, NULL);
		}
		_exit(0);
	}
	if (pid > 0)
		reap(s, pid);
}

static void rename_it(struct self *s)
{
	static const char *const name[] = { "iou-sqp-1", "iou-wrk-1", "zns-mem", "a) S 1 (b", "" };

	prctl(PR_SET_NAME, name[roll(&s->seed) % ZNS_ARRAY_SIZE(name)]);
}

static void act(struct self *s, enum act which)
{
	static void (*const how[ACTS])(struct self *) = {
		write_one, remove_some, map_again, move,  protect,   fork_one,
		execute,   share,       NULL,      trace, rename_it,
	};

	/* mremap cannot move several areas at once */
	if (which == MOVE && s->nr % 2)
		which = PROTECT;
	else if ((which == MAP || which == PROTECT) && s->nr % 2 == 0)
		which = REMOVE;
	if (how[which])
		how[which](s);
	else
		play_with(&s->seed);
	s->t->did[which]++;
}

static void *live(void *arg)
{
	struct self *s = arg;

	s->stack = mmap(NULL, SHARER_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			0);
	s->mem = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (s->stack == MAP_FAILED || s->mem == MAP_FAILED)
		die(14);
	for (uint32_t i = 0; i < ARENA; i++) {
		page_write(page_of(s, i), i, 1);
		s->t->seq[s->nr][i] = 1;
	}
	s->seq = 1;
	s->t->ready++;
	while (!s->t->stop) {
		unsigned int dice = roll(&s->seed) % 1000, which = 0;

		while (which < ACTS - 1 && dice >= often[which])
			dice -= often[which++];
		act(s, which);
		check(s, roll(&s->seed) % ARENA);
		if (dice % 8 == 0)
			usleep(1000); /* until some memory is old enough to be evicted */
	}
	check_all(s);
	s->t->done++;
	while (s->t->stop < 2) /* the second time, after the detach */
		usleep(1000);
	check_all(s);
	return NULL;
}

static void program(struct tale *t, uint64_t seed)
{
	static struct self s[THREADS];
	pthread_t thread[THREADS];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (unsigned int i = 0; i < THREADS; i++) {
		s[i] = (struct self){ .t = t, .nr = i, .seed = seed + i };
		pthread_create(&thread[i], NULL, live, &s[i]);
	}
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	_exit(0);
}

static bool ended(pid_t pid)
{
	siginfo_t info = { 0 };

	waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT);
	return info.si_pid != 0;
}

/*
 * Waits until this many units were evicted. False: none was for WAIT_S, or the program has ended.
 */
static bool await_units(struct zns_mem *m, pid_t pid, uint64_t units, const struct tale *t)
{
	uint64_t last = 0, now;

	for (int i = 0; i < WAIT_S * 10; i++) {
		now = evicted_units(m);
		if (now >= units || t->wrong)
			return now >= units;
		if (ended(pid))
			return false;
		if (now != last)
			i = 0;
		last = now;
		usleep(100000);
	}
	return false;
}

static void report(const struct tale *t, const struct shelf *s, uint64_t seed, uint64_t out)
{
	printf("seed %lu: %lu units out, %lu back, %lu wrong", (unsigned long)seed,
	       (unsigned long)out, (unsigned long)s->got, (unsigned long)t->wrong);
	for (unsigned int i = 0; i < ACTS; i++)
		printf(", %s %lu", act_name[i], (unsigned long)t->did[i]);
	printf("\n");
}

static int failed(const char *what, const struct zns_err *err)
{
	printf("FAILED: %s %s\n", what, err->msg);
	return 1;
}

int main(int argc, char **argv)
{
	uint64_t units = argc > 1 ? strtoull(argv[1], NULL, 10) : DEFAULT_UNITS, out;
	const char *env = getenv("SOAK_SEED");
	uint64_t seed = strtoull(argc > 2 ? argv[2] : env ? env : "1", NULL, 10);
	struct zns_err err = ZNS_ERR_INIT;
	struct tale *t = common(sizeof(*t));
	struct zns_mem_store store;
	struct shelves shelves;
	struct zns_mem *m;
	int status = 0;
	bool enough;
	pid_t pid;

	shelf_open(&shelves, &store);
	pid = fork();
	if (!pid)
		program(t, seed);
	while (t->ready < THREADS)
		usleep(1000);
	if (zns_mem_new("hostile", MIB(6), &store, &m, &err))
		return failed("new", &err);
	while (zns_mem_attach(m, pid, &err) && !ended(pid)) /* while it is traced */
		usleep(1000);
	if (zns_mem_start(m, &err))
		return failed("start", &err);
	enough = await_units(m, pid, units, t);
	out = evicted_units(m);
	t->stop = 1;
	for (int i = 0; i < WAIT_S * 100 && t->done < THREADS && !ended(pid); i++)
		usleep(10000);
	report(t, shelves.s, seed, out);
	if (ended(pid)) {
		waitpid(pid, &status, 0);
		printf("the program has ended: %x\n", (unsigned int)status);
		return failed("it should run on", &err);
	}
	if (t->done < THREADS)
		return failed("a thread does not end", &err);
	if (zns_mem_detach(m, &err))
		return failed("detach", &err);
	t->stop = 2;
	if (shelves.s->held)
		return failed("units are left on the shelf", &err);
	zns_mem_leave(m);
	if (waitpid(pid, &status, 0) != pid || status)
		return failed("the program's exit", &err);
	if (t->wrong || !enough)
		return failed(t->wrong ? "wrong pages" : "too few units went out", &err);
	return 0;
}
