/* SPDX-License-Identifier: GPL-2.0-only */
/* zns/track: whatever a process was doing when it was stopped continues: waiting calls, signals,
 * running code. */
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <time.h>

#include "track_step.h"

/* ---- system calls that wait ---- */

struct shared {
	int word, pipe[2], pair[2], ep, sem, msg, lock;
	unsigned int ms; /* duration of a call that ends by itself */
	volatile bool ended; /* the call */
	int err;
};

static struct shared *sh;

struct wait {
	const char *name;
	int (*call)(void); /* in the child: 0, or errno */
	void (*wake)(pid_t pid); /* NULL: it ends by itself */
	int want; /* errno */
	bool may_eintr; /* signal(7) says so for stops */
};

static int of(long ret)
{
	return ret < 0 ? errno : 0;
}

static struct timespec span_of(unsigned int ms)
{
	return (struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };
}

static int call_nanosleep(void)
{
	struct timespec t = span_of(sh->ms), from, to;
	int ret;

	clock_gettime(CLOCK_MONOTONIC, &from);
	ret = of(nanosleep(&t, NULL));
	clock_gettime(CLOCK_MONOTONIC, &to);
	/* not a moment too early */
	if ((to.tv_sec - from.tv_sec) * 1000000000 + to.tv_nsec - from.tv_nsec < sh->ms * 1000000L)
		return ERANGE;
	return ret;
}

static int call_abs_sleep(void)
{
	struct timespec t, by = span_of(sh->ms);

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += by.tv_sec;
	t.tv_nsec += by.tv_nsec;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static int call_futex(void)
{
	return of(syscall(SYS_futex, &sh->word, FUTEX_WAIT, 0, NULL, NULL, 0));
}

static int call_futex_timed(void)
{
	struct timespec t = span_of(sh->ms);

	return of(syscall(SYS_futex, &sh->word, FUTEX_WAIT, 0, &t, NULL, 0));
}

static int call_futex_long(void)
{
	struct timespec t = { .tv_sec = 1000 };

	return of(syscall(SYS_futex, &sh->word, FUTEX_WAIT, 0, &t, NULL, 0));
}

static int call_read(void)
{
	char c;

	return of(read(sh->pipe[0], &c, 1));
}

static int call_recv(void)
{
	char c;

	return of(recv(sh->pair[0], &c, 1, 0));
}

static int call_epoll(void)
{
	struct epoll_event e;

	return epoll_wait(sh->ep, &e, 1, -1) == 1 ? 0 : errno;
}

static int call_epoll_timed(void)
{
	struct epoll_event e;

	return epoll_wait(sh->ep, &e, 1, 1000000) == 1 ? 0 : errno;
}

static int call_epoll_pwait(void)
{
	struct epoll_event e;
	sigset_t none;

	sigemptyset(&none);
	return epoll_pwait(sh->ep, &e, 1, -1, &none) == 1 ? 0 : errno;
}

static int call_poll(void)
{
	struct pollfd p = { .fd = sh->pipe[0], .events = POLLIN };

	return poll(&p, 1, 1000000) == 1 ? 0 : errno;
}

static int call_ppoll(void)
{
	struct pollfd p = { .fd = sh->pipe[0], .events = POLLIN };
	struct timespec t = { .tv_sec = 1000 };
	sigset_t none;

	sigemptyset(&none);
	return ppoll(&p, 1, &t, &none) == 1 ? 0 : errno;
}

static int call_select(void)
{
	struct timeval t = { .tv_sec = 1000 };
	fd_set s;

	FD_ZERO(&s);
	FD_SET(sh->pipe[0], &s);
	return select(sh->pipe[0] + 1, &s, NULL, NULL, &t) == 1 ? 0 : errno;
}

static volatile sig_atomic_t handled;

static void on_signal(int sig)
{
	handled++;
}

/* blocked but for the call itself, which a handler ends */
static int call_sigsuspend(void)
{
	sigset_t set;
	int ret;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGUSR1, on_signal);
	sigemptyset(&set);
	sigsuspend(&set);
	ret = errno;
	sigprocmask(SIG_SETMASK, NULL, &set);
	return handled == 1 && sigismember(&set, SIGUSR1) ? ret : ERANGE;
}

static int call_pause(void)
{
	signal(SIGUSR1, on_signal);
	pause();
	return handled == 1 ? errno : ERANGE;
}

static int call_sigwait(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return sigwaitinfo(&set, NULL) == SIGUSR1 ? 0 : errno;
}

static int call_semop(void)
{
	struct sembuf b = { .sem_op = -1 };

	return of(semop(sh->sem, &b, 1));
}

static int call_msgrcv(void)
{
	long m[2];

	return of(msgrcv(sh->msg, m, sizeof(long), 0, 0));
}

static int call_flock(void)
{
	int fd = open("/proc/self/exe", O_RDONLY);

	return of(flock(fd, LOCK_EX));
}

/* The last stop has ended before the call waits again, so the test must not wake it before that. */
static void wake_futex(pid_t pid)
{
	until(syscall(SYS_futex, &sh->word, FUTEX_WAKE, 1, NULL, NULL, 0) == 1);
}

static void wake_pipe(pid_t pid)
{
	assert_int_equal(write(sh->pipe[1], "x", 1), 1);
	assert_int_equal(write(sh->pair[1], "x", 1), 1);
}

/* The handler must not run before pause() waits again. */
static void wake_signal(pid_t pid)
{
	await_state(pid, 'S');
	kill(pid, SIGUSR1);
}

static void wake_sem(pid_t pid)
{
	struct sembuf b = { .sem_op = 1 };

	assert_int_equal(semop(sh->sem, &b, 1), 0);
}

static void wake_msg(pid_t pid)
{
	long m[2] = { 1, 2 };

	assert_int_equal(msgsnd(sh->msg, m, sizeof(long), 0), 0);
}

static void wake_lock(pid_t pid)
{
	flock(sh->lock, LOCK_UN);
}

static const struct wait waits[] = {
	{ "nanosleep", call_nanosleep, NULL, 0, false },
	{ "clock_nanosleep until", call_abs_sleep, NULL, 0, false },
	{ "futex", call_futex, wake_futex, 0, false },
	{ "futex that times out", call_futex_timed, NULL, ETIMEDOUT, false },
	{ "futex with a time", call_futex_long, wake_futex, 0, false },
	{ "read", call_read, wake_pipe, 0, false },
	{ "recv", call_recv, wake_pipe, 0, false },
	{ "epoll_wait", call_epoll, wake_pipe, 0, false },
	{ "epoll_wait with a time", call_epoll_timed, wake_pipe, 0, true },
	{ "epoll_pwait", call_epoll_pwait, wake_pipe, 0, false },
	{ "poll", call_poll, wake_pipe, 0, false },
	{ "ppoll", call_ppoll, wake_pipe, 0, false },
	{ "select", call_select, wake_pipe, 0, false },
	{ "sigsuspend", call_sigsuspend, wake_signal, EINTR, false },
	{ "pause", call_pause, wake_signal, EINTR, false },
	{ "sigwaitinfo", call_sigwait, wake_signal, 0, false },
	{ "semop", call_semop, wake_sem, 0, false },
	{ "msgrcv", call_msgrcv, wake_msg, 0, false },
	{ "flock", call_flock, wake_lock, 0, false },
};

static void waiter(const struct ends *e, void *arg)
{
	const struct wait *w = arg;

	tell(e, 'r');
	sh->err = w->call();
	sh->ended = true;
	tell(e, 'd');
	await(e);
}

static void make_shared(void)
{
	struct epoll_event ev = { .events = EPOLLIN };

	sh = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_int_equal(pipe(sh->pipe), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sh->pair), 0);
	sh->ep = epoll_create1(0);
	assert_int_equal(epoll_ctl(sh->ep, EPOLL_CTL_ADD, sh->pipe[0], &ev), 0);
	sh->sem = semget(IPC_PRIVATE, 1, 0600);
	sh->msg = msgget(IPC_PRIVATE, 0600);
	sh->lock = open("/proc/self/exe", O_RDONLY);
	assert_int_equal(flock(sh->lock, LOCK_EX), 0);
}

static void drop_shared(void)
{
	const int fd[] = { sh->pipe[0], sh->pipe[1], sh->pair[0], sh->pair[1], sh->ep, sh->lock };

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(fd); i++)
		close(fd[i]);
	semctl(sh->sem, 0, IPC_RMID);
	msgctl(sh->msg, IPC_RMID, NULL);
	munmap(sh, PAGE);
}

/* Was it still waiting when it had been stopped for the last time? */
static bool goes_on(const struct wait *w, unsigned int ms)
{
	struct target c;
	bool within;

	make_shared();
	sh->ms = ms;
	c = start(waiter, (void *)(uintptr_t)w);
	heard(&c);
	await_state(c.pid, 'S');
	disturb(c.pid, STOPS);
	within = !sh->ended;
	if (w->wake)
		w->wake(c.pid);
	heard(&c);
	if (sh->err != w->want && !(w->may_eintr && sh->err == EINTR))
		fail_msg("%s: %s", w->name, strerror(sh->err));
	end(&c);
	drop_shared();
	return within;
}

/* On a busy machine a call that ends by itself gets more time, so that the stops fall into it. */
static void system_calls_go_on(void **state)
{
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(waits); i++) {
		const struct wait *w = &waits[i];
		unsigned int ms = 50;

		while (!goes_on(w, ms) && !w->wake) {
			ms *= 2;
			assert_true(ms < UNTIL_S * 1000);
		}
	}
}

/* ---- signals ---- */

#define SIGNALS \
	1000 /* after each 16 the sender lets others run, which is long on a busy machine \
	      */

static volatile int next_value, bad_value;

static void on_queued(int sig, siginfo_t *si, void *ctx)
{
	if (si->si_value.sival_int != next_value++)
		bad_value = 1;
}

static void counting(const struct ends *e, void *arg)
{
	struct sigaction sa = { .sa_sigaction = on_queued, .sa_flags = SA_SIGINFO | SA_RESTART };

	sigaction(SIGRTMIN, &sa, NULL);
	tell(e, 'r');
	await(e);
	tell(e, next_value % 100 == 0 && !bad_value ? 'y' : 'n');
	tell(e, (char)(next_value / 100));
	await(e);
}

static void sender(const struct ends *e, void *arg)
{
	pid_t to = (pid_t)(intptr_t)arg;

	tell(e, 'r');
	for (int i = 0; i < SIGNALS; i++) {
		while (sigqueue(to, SIGRTMIN, (union sigval){ .sival_int = i }))
			sched_yield();
		if (i % 16 == 0)
			sched_yield();
	}
	tell(e, 'd');
	await(e);
}

/* Each signal arrives once and in order, and the read() beside them is restarted each time. */
static void signals_arrive(void **state)
{
	struct target c = start(counting, NULL), s;
	char done = 0;

	heard(&c);
	s = start(sender, (void *)(intptr_t)c.pid);
	heard(&s);
	fcntl(s.hear, F_SETFL, O_NONBLOCK);
	while (read(s.hear, &done, 1) != 1)
		disturb(c.pid, 1);
	disturb(c.pid, 3);
	say(&c, 'x');
	assert_int_equal(heard(&c), 'y');
	assert_int_equal(heard(&c), SIGNALS / 100);
	end(&s);
	end(&c);
}

/* ---- running code ---- */

/* All values in registers, including those of SSE. */
static void computing(const struct ends *e, void *arg)
{
	volatile uint64_t *turns = arg;

	tell(e, 'r');
	for (;;) {
		uint64_t h = 1, k = 2, l = 3, m = 5;
		double d = 1, f = 2;

		for (int i = 0; i < 100000; i++) {
			h = h * 0x9E3779B97F4A7C15ULL + k;
			k ^= h >> 7;
			l += k ^ m;
			m = m * 5 + l;
			d = d * 0.999 + f;
			f = f * 0.5 + (double)i;
		}
		if (!turns[1]) {
			turns[1] = h ^ k ^ l ^ m;
			memcpy((void *)(uintptr_t)&turns[2], &d, sizeof(d));
		}
		if (turns[1] != (h ^ k ^ l ^ m) ||
		    memcmp((void *)(uintptr_t)&turns[2], &d, sizeof(d)))
			_exit(4);
		turns[0]++;
	}
}

static bool lives(pid_t pid)
{
	assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
	return true;
}

/* It continues, and computes the same result each time. */
static void turned(const struct target *c, volatile uint64_t *turns, uint64_t nr)
{
	const uint64_t before = turns[0];

	until(lives(c->pid) && turns[0] >= before + nr);
}

static void registers_stay(void **state)
{
	uint64_t *turns = shared_words();
	struct target c = start(computing, turns);

	heard(&c);
	turned(&c, turns, 1);
	disturb(c.pid, TIMES(300));
	turned(&c, turns, 3);
	end(&c);
	munmap(turns, PAGE);
}

#ifdef __x86_64__
/* glibc has registered it; its place is relative to the thread pointer */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

/*
 * Add 1 to a counter by a load, a delay and a store. It is right only if the kernel aborts it
 * whenever another thread of the same processor may have come between.
 */
static void add_slowly(volatile uint64_t *counter, char *rseq)
{
	uint64_t tmp, n;

	__asm__ volatile("	.pushsection .data.rseq_cs, \"aw\"\n"
			 "	.balign 32\n"
			 "3:	.long 0, 0\n"
			 "	.quad 1f, 2f - 1f, 4f\n"
			 "	.popsection\n"
			 "	jmp 5f\n"
			 "	.long 0x53053053\n" /* the signature before an abort handler */
			 "4:	nop\n"
			 "5:	lea 3b(%%rip), %[tmp]\n"
			 "	mov %[tmp], 8(%[rseq])\n"
			 "1:	mov (%[counter]), %[tmp]\n"
			 "	mov $3000, %[n]\n"
			 "6:	dec %[n]\n"
			 "	jnz 6b\n"
			 "	inc %[tmp]\n"
			 "	mov %[tmp], (%[counter])\n"
			 "2:	movq $0, 8(%[rseq])\n"
			 : [tmp] "=&r"(tmp), [n] "=&r"(n)
			 : [counter] "r"(counter), [rseq] "r"(rseq)
			 : "memory", "cc");
}

#define ADDS TIMES(20000)

static void *adder(void *arg)
{
	char *rseq = (char *)__builtin_thread_pointer() + __rseq_offset;

	for (int i = 0; i < ADDS; i++) {
		add_slowly(arg, rseq);
		for (volatile int j = 0; j < 3000; j++)
			;
	}
	return NULL;
}

static void adding(const struct ends *e, void *arg)
{
	volatile uint64_t *words = arg;
	cpu_set_t one;
	pthread_t p;

	CPU_ZERO(&one);
	CPU_SET(0, &one);
	sched_setaffinity(0, sizeof(one), &one);
	tell(e, 'r');
	need(!pthread_create(&p, NULL, adder, arg));
	adder(arg);
	need(!pthread_join(p, NULL));
	words[1] = 1;
	tell(e, 'd');
	await(e);
}

static void sequences_are_aborted(void **state)
{
	uint64_t *words = shared_words();
	struct target c;

	if (!&__rseq_size || !__rseq_size)
		skip();
	c = start(adding, words);
	heard(&c);
	while (!*(volatile uint64_t *)&words[1])
		disturb(c.pid, 1);
	heard(&c);
	assert_int_equal(words[0], 2 * ADDS);
	end(&c);
	munmap(words, PAGE);
}
#endif

/* ---- a tracker that is killed ---- */

/* Killed at any of its system calls: its tracer still completes what it has begun. */
static void killed_tracker(void **state)
{
	uint64_t *turns = shared_words();
	struct target c = start(computing, turns);
	unsigned int nr[2], in_tracer = 0;

	heard(&c);
	turned(&c, turns, 1);
	nr[0] = tracker_stops(c.pid, false);
	nr[1] = tracker_stops(c.pid, true);
	for (unsigned int i = 0; i < TIMES(2 * POINTS); i++) {
		struct stepped s = { .tracers = i & 1 };
		const unsigned int at = 1 + nr[i & 1] * i / TIMES(2 * POINTS);

		if (tracker_at(&s, c.pid, at) == at) {
			in_tracer += s.at != s.pid;
			tracker_is_killed(&s);
		}
		until(!is_traced(c.pid) && !smaps_say(c.pid, " uw"));
		turned(&c, turns, 1);
	}
	print_message("%u system calls; killed %u times in its tracer\n", nr[0], in_tracer);
	assert_true(in_tracer);
	/* it can be tracked */
	disturb(c.pid, 1);
	end(&c);
	munmap(turns, PAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(system_calls_go_on),    cmocka_unit_test(signals_arrive),
		cmocka_unit_test(registers_stay),
#ifdef __x86_64__
		cmocka_unit_test(sequences_are_aborted),
#endif
		cmocka_unit_test(killed_tracker),
	};

	return look_at_kernel() ? cmocka_run_group_tests(tests, NULL, NULL) : 0;
}
