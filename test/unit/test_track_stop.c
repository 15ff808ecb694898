/* SPDX-License-Identifier: GPL-2.0-only */
/* zns/track: processes in special states, and the barrier. Calls and running code:
 * test_track_calls.c. */
#include <dirent.h>
#include <elf.h>
#include <linux/aio_abi.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

#include "track_step.h"

/* ---- states of a process ---- */

static void idle(const struct ends *e, void *arg)
{
	tell(e, 'r');
	while (await(e))
		tell(e, 'd');
}

static void stopped_stays_stopped(void **state)
{
	struct target c = start(idle, NULL);
	int status;

	heard(&c);
	freeze(&c);
	for (int i = 0; i < STOPS; i++) {
		disturb(c.pid, 1);
		await_state(c.pid, 'T'); /* on its way back at most */
		say(&c, 'x');
	}
	/* and its parent is not told again */
	assert_int_equal(waitpid(c.pid, &status, WUNTRACED | WNOHANG), 0);
	fcntl(c.hear, F_SETFL, O_NONBLOCK);
	assert_int_equal(read(c.hear, &status, 1), -1);
	fcntl(c.hear, F_SETFL, 0);
	thaw(&c);
	for (int i = 0; i < STOPS; i++)
		heard(&c);
	end(&c);
}

static bool changed(pid_t pid, int how)
{
	int status;

	return waitpid(pid, &status, how | WNOHANG) == pid &&
	       (how == WUNTRACED ? WIFSTOPPED(status) : WIFCONTINUED(status));
}

/* With a sanitizer a tracker looks at terabytes of shadow memory each time. */
#define STRIDE (TIMES(10) < 10 ? 16U : 1U)

/* SIGSTOP and SIGCONT arrive at each system call of its tracers, and none is lost. */
static void stops_beside(void **state)
{
	struct target c = start(idle, NULL);
	unsigned int nr;

	heard(&c);
	nr = tracker_stops(c.pid, true);
	print_message("%u system calls of tracers\n", nr);
	for (unsigned int i = 0; i / 2 * STRIDE < nr; i++) {
		const unsigned int at = 1 + i / 2 * STRIDE;
		struct stepped s = { .tracers = true };

		if (i & 1)
			freeze(&c);
		if (tracker_at(&s, c.pid, at) == at) {
			kill(c.pid, i & 1 ? SIGCONT : SIGSTOP);
			tracker_goes_on(&s);
		} else {
			kill(c.pid, i & 1 ? SIGCONT : SIGSTOP);
		}
		until(changed(c.pid, i & 1 ? WCONTINUED : WUNTRACED));
		if (!(i & 1))
			thaw(&c);
		ask(&c, 'x');
	}
	end(&c);
}

static void refuses(pid_t pid, int code, const char *word)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_track *k;
	int ret;

	PATIENT(ret, zns_track_new(pid, &kernel, &k, &err));
	if (!ret)
		zns_track_free(k);
	if (ret != code || !strstr(err.msg, word))
		fail_msg("%d: %s", ret, ret ? err.msg : "accepted");
}

static void traced_by_another(void **state)
{
	struct target c = start(idle, NULL);

	heard(&c);
	assert_int_equal(ptrace(PTRACE_SEIZE, c.pid, 0, 0), 0);
	refuses(c.pid, -EBUSY, "traced");
	ask(&c, 'x');
	end(&c);
}

static void dead(void **state)
{
	struct target c = start(idle, NULL);

	heard(&c);
	kill(c.pid, SIGKILL);
	await_state(c.pid, 'Z');
	refuses(c.pid, -ESRCH, "");
	end(&c);
	refuses(c.pid, -ESRCH, "");
}

static void *second(void *arg)
{
	idle(arg, NULL);
	return NULL;
}

static void leader_ends(const struct ends *e, void *arg)
{
	pthread_t p;

	pthread_create(&p, NULL, second, (void *)(uintptr_t)e);
	syscall(SYS_exit, 0);
}

/* criu does not dump such a process, either. */
static void leader_has_ended(void **state)
{
	struct target c = start(leader_ends, NULL);

	heard(&c);
	await_state(c.pid, 'Z');
	refuses(c.pid, -ESRCH, "");
	ask(&c, 'x');
	end(&c);
}

/* Allows only read, write and exit; any other call kills the process. */
static void filtered(const struct ends *e, void *arg)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_read, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { ZNS_ARRAY_SIZE(code), code };
	char c;

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	need(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog));
	tell(e, 'r');
	while (read(e->hear, &c, 1) == 1) {
		if (c == 'k')
			syscall(SYS_getpid);
		tell(e, 'd');
	}
}

static void strict_filter(void **state)
{
	struct target c = start(filtered, NULL);
	int status;

	heard(&c);
	disturb(c.pid, STOPS);
	ask(&c, 'x');
	/* the filter is in force again */
	say(&c, 'k');
	assert_int_equal(waitpid(c.pid, &status, 0), c.pid);
	assert_true(WIFSIGNALED(status));
	close(c.say);
	close(c.hear);
}

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif

static void dispatching(const struct ends *e, void *arg)
{
	static char allow; /* SYSCALL_DISPATCH_FILTER_ALLOW */

	need(!prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, 0, 0, &allow));
	idle(e, NULL);
}

static void intercepts(void **state)
{
	struct target c;

	if (kernel.tracker != ZNS_TRACKER_UFFD)
		skip();
	c = start(dispatching, NULL);
	heard(&c);
	refuses(c.pid, -ENOTSUP, "intercepts");
	ask(&c, 'x');
	end(&c);
}

static void with_aio(const struct ends *e, void *arg)
{
	aio_context_t ctx = 0;

	tell(e, 'r');
	for (;;) {
		await(e);
		need(!syscall(SYS_io_setup, 4, &ctx));
		tell(e, 'd');
	}
}

/* Before it is tracked, and later. */
static void asynchronous(void **state)
{
	struct target c = start(with_aio, NULL);
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_spans copy = { 0 }, stale = { 0 }, present = { 0 }, guards = { 0 };
	struct zns_span all = { 0, 1UL << 47 };
	struct zns_track *k;
	int ret;

	heard(&c);
	PATIENT(ret, zns_track_new(c.pid, &kernel, &k, &err));
	assert_int_equal(ret, 0);
	assert_int_equal(zns_track_arm(k, &copy, &err), 0);
	ask(&c, 'x');
	PATIENT(ret, zns_track_barrier(k, &err));
	assert_int_equal(ret, -ENOTSUP);
	refuses(c.pid, -ENOTSUP, "asynchronous");
	freeze(&c);
	if (zns_track_final(k, &all, 1, false, &stale, &present, &guards, &err))
		fail_msg("%s", err.msg);
	assert_int_equal(zns_spans_bytes(&stale), all.end);
	assert_true(present.nr > 0);
	zns_track_free(k);
	zns_spans_free(&copy);
	zns_spans_free(&stale);
	zns_spans_free(&present);
	zns_spans_free(&guards);
	end(&c);
}

static void no_descriptor(const struct ends *e, void *arg)
{
	struct rlimit r = { 0, 0 };

	need(!setrlimit(RLIMIT_NOFILE, &r));
	idle(e, NULL);
}

static void descriptors_used_up(void **state)
{
	struct target c;

	if (kernel.tracker != ZNS_TRACKER_UFFD)
		skip();
	c = start(no_descriptor, NULL);
	heard(&c);
	refuses(c.pid, -EMFILE, "descriptor");
	ask(&c, 'x');
	end(&c);
}

static int sharer(void *arg)
{
	const struct ends *e = arg;

	tell(e, 'r');
	await(e);
	_exit(0);
}

static void sharing(const struct ends *e, void *arg)
{
	static char stack[65536];

	clone(sharer, stack + sizeof(stack), CLONE_VM | SIGCHLD, (void *)(uintptr_t)e);
	pause();
}

static void memory_is_shared(void **state)
{
	struct target c = start(sharing, NULL);

	heard(&c);
	refuses(c.pid, -EBUSY, "shares");
	say(&c, 'x'); /* the child ends */
	end(&c);
}

/* 32-bit code: int $0x80 for pause(), for ever. */
static void old_program(const struct ends *e, void *arg)
{
	static const unsigned char code[] = { 0xb8, 29, 0, 0, 0, 0xcd, 0x80, 0xeb, 0xf7 };
	struct {
		Elf32_Ehdr h;
		Elf32_Phdr p;
		unsigned char code[sizeof(code)];
	} f = { .h = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS32, ELFDATA2LSB, EV_CURRENT },
		       .e_type = ET_EXEC,
		       .e_machine = EM_386,
		       .e_version = EV_CURRENT,
		       .e_entry = 0x10000 + offsetof(__typeof__(f), code),
		       .e_phoff = offsetof(__typeof__(f), p),
		       .e_ehsize = sizeof(f.h),
		       .e_phentsize = sizeof(f.p),
		       .e_phnum = 1 },
		.p = { .p_type = PT_LOAD,
		       .p_vaddr = 0x10000,
		       .p_filesz = sizeof(f),
		       .p_memsz = sizeof(f),
		       .p_flags = PF_R | PF_X,
		       .p_align = PAGE } };
	char *const none[] = { NULL };
	int fd = (int)syscall(SYS_memfd_create, "old", 1); /* close on exec */

	memcpy(f.code, code, sizeof(code));
	need(write(fd, &f, sizeof(f)) == sizeof(f));
	fcntl(e->say, F_SETFD, FD_CLOEXEC);
	syscall(SYS_execveat, fd, "", none, none, 0x1000);
	tell(e, 'n');
}

static void of_32_bits(void **state)
{
	struct target c = start(old_program, NULL);
	char no;

	if (kernel.tracker != ZNS_TRACKER_UFFD || read(c.hear, &no, 1) == 1) {
		end(&c);
		skip();
	}
	await_state(c.pid, 'S');
	refuses(c.pid, -ENOTSUP, "32-bit");
	assert_int_equal(waitpid(c.pid, NULL, WNOHANG), 0);
	end(&c);
}

/* ---- the barrier ---- */

static void *spin(void *arg)
{
	volatile uint64_t *n = arg;

	for (;;)
		++*n;
	return NULL;
}

static void *short_life(void *arg)
{
	return NULL;
}

static void *come_and_go(void *arg)
{
	pthread_t p;

	for (;;)
		if (!pthread_create(&p, NULL, short_life, NULL))
			pthread_join(p, NULL);
	return NULL;
}

static void *rest(void *arg)
{
	for (;;)
		pause();
	return NULL;
}

/* More than the tracker asks before it waits for one. */
static void many_threads(const struct ends *e, void *arg)
{
	pthread_t p;

	for (int i = 0; i < 24; i++)
		need(!pthread_create(&p, NULL,
				     i == 5     ? spin :
				     i % 8 == 3 ? come_and_go :
						  rest,
				     arg));
	idle(e, NULL);
}

static void threads_come_and_go(void **state)
{
	uint64_t *n = shared_words();
	struct target c = start(many_threads, n);

	heard(&c);
	disturb(c.pid, TIMES(10));
	ask(&c, 'x');
	end(&c);
	munmap(n, PAGE);
}

/*
 * A read from a disk still writes to pages that it pinned before they were protected, and nothing
 * shows that. So the barrier waits for the threads. Here a vfork stands in for a slow disk: it has
 * the same uninterruptible sleep.
 */
static void *in_vfork(void *arg)
{
	const struct ends *e = arg;
	pid_t p = vfork();

	if (!p) {
		char c;

		while (read(e->hear, &c, 1) != 1)
			;
		syscall(SYS_exit, 0);
	}
	return NULL;
}

static void vforking(const struct ends *e, void *arg)
{
	pthread_t p;

	tell(e, 'r');
	await(e);
	need(!pthread_create(&p, NULL, in_vfork, (void *)(uintptr_t)e));
	tell(e, 'd');
	pause();
}

struct word {
	const struct target *c;
	pid_t tid;
	volatile bool said; /* from here on the barrier may return */
};

/* When the barrier has asked the thread to stop. */
static void *word_later(void *arg)
{
	struct word *w = arg;

	until(is_traced(w->tid));
	w->said = true;
	say(w->c, 'x');
	return NULL;
}

/* A thread of @pid that is in uninterruptible sleep; 0: none. */
static pid_t in_uninterruptible_sleep(pid_t pid)
{
	char path[64];
	struct dirent *d;
	pid_t found = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	assert_non_null(dir);
	while (!found && (d = readdir(dir)))
		if (task_state(pid, atoi(d->d_name)) == 'D')
			found = atoi(d->d_name);
	closedir(dir);
	return found;
}

static void barrier_waits(void **state)
{
	struct target c = start(vforking, NULL);
	struct word word = { .c = &c };
	int ret;
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_spans copy = { 0 };
	struct zns_track *k;
	pthread_t p;

	heard(&c);
	PATIENT(ret, zns_track_new(c.pid, &kernel, &k, &err));
	assert_int_equal(ret, 0);
	ask(&c, 'x');
	until((word.tid = in_uninterruptible_sleep(c.pid)));
	assert_int_equal(zns_track_arm(k, &copy, &err), 0);
	assert_int_equal(pthread_create(&p, NULL, word_later, &word), 0);
	PATIENT(ret, zns_track_barrier(k, &err));
	if (ret)
		fail_msg("%s", err.msg);
	assert_true(word.said);
	pthread_join(p, NULL);
	zns_track_free(k);
	zns_spans_free(&copy);
	end(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stopped_stays_stopped),
		cmocka_unit_test(stops_beside),
		cmocka_unit_test(traced_by_another),
		cmocka_unit_test(dead),
		cmocka_unit_test(leader_has_ended),
		cmocka_unit_test(strict_filter),
		cmocka_unit_test(intercepts),
		cmocka_unit_test(asynchronous),
		cmocka_unit_test(descriptors_used_up),
		cmocka_unit_test(memory_is_shared),
		cmocka_unit_test(of_32_bits),
		cmocka_unit_test(threads_come_and_go),
		cmocka_unit_test(barrier_waits),
	};

	return look_at_kernel() ? cmocka_run_group_tests(tests, NULL, NULL) : 0;
}
