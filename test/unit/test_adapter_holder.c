/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The holder of the lazy-pages daemon's userfaultfds (criu/adapter/lazy/zns-holder.c): real
 * processes, whose daemon is killed, at moments that no restore meets at will.
 */
#include <linux/userfaultfd.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "adapter.h"
#include "until.h"

#define PAGE 4096UL
#define TASKS 3 /* that the daemon has room for; one comes */
#define COPIES 70 /* of a descriptor: more than the holder's first list has room for */
#define LIST 64

/* What processes of a test say to each other. */
static struct {
	int ready; /* the daemon has all that it is to have */
	int born; /* the child runs; a fork may still fail after its event was sent */
	int go; /* the child may fork */
	int no_memory; /* how often the holder's list cannot grow */
	int status; /* of the child's child, when it has ended; -1: not yet */
} * shared;

/* ---- criu ---- */

static struct task_entries entries = { .nr_tasks = TASKS };
struct task_entries *task_entries = &entries;

void print_on_level(unsigned int level, const char *format, ...)
{
}

int get_service_fd(enum sfd_type type)
{
	return -1;
}

int epoll_add_rfd(int epfd, struct epoll_rfd *rfd)
{
	return 0;
}

int close_safe(int *fd)
{
	int ret = *fd < 0 ? 0 : close(*fd);

	*fd = -1;
	return ret;
}

int clone_noasan(int (*fn)(void *), int flags, void *arg)
{
	int pid = (int)syscall(SYS_clone, flags, 0, 0, 0, 0);

	if (!pid)
		_exit(fn(arg));
	return pid;
}

void *__real_realloc(void *p, size_t len);
void *__wrap_realloc(void *p, size_t len);
void *__wrap_realloc(void *p, size_t len)
{
	if (len > LIST * sizeof(struct pollfd) && shared->no_memory) {
		shared->no_memory--;
		return NULL;
	}
	return __real_realloc(p, len);
}

/* Shared memory ends where a page ends that may not be touched: so does the list of tasks. */
void *__real_mmap64(void *addr, size_t len, int prot, int flags, int fd, off_t off);
void *__wrap_mmap64(void *addr, size_t len, int prot, int flags, int fd, off_t off);
void *__wrap_mmap64(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	size_t whole = (len + PAGE - 1) & ~(PAGE - 1);
	char *mem;

	if (!(flags & MAP_SHARED))
		return __real_mmap64(addr, len, prot, flags, fd, off);
	mem = __real_mmap64(addr, whole + PAGE, prot, flags, fd, off);
	if (mem == MAP_FAILED || mprotect(mem + whole, PAGE, PROT_NONE))
		return MAP_FAILED;
	return mem + whole - len;
}

/* ---- a task, and the daemon ---- */

static void need(bool ok)
{
	if (!ok)
		_exit(2);
}

static void wait_for(const int *word)
{
	while (!__atomic_load_n(word, __ATOMIC_SEQ_CST))
		poll(NULL, 0, 1);
}

static void send_fd(int sk, int fd)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} u = { 0 };
	struct iovec iov = { "u", 1 };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = u.buf,
			    .msg_controllen = sizeof(u.buf) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	*c = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)),
			       .cmsg_level = SOL_SOCKET,
			       .cmsg_type = SCM_RIGHTS };
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	need(sendmsg(sk, &m, 0) == 1);
}

/* Has a page that nobody has brought, and a userfaultfd that the daemon has. */
static char *lacking(int sk)
{
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_EVENT_FORK };
	char *mem = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct uffdio_register r = { .range = { (uintptr_t)mem, PAGE },
				     .mode = UFFDIO_REGISTER_MODE_MISSING };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	need(mem != MAP_FAILED && fd >= 0 && !ioctl(fd, UFFDIO_API, &api) &&
	     !ioctl(fd, UFFDIO_REGISTER, &r));
	send_fd(sk, fd);
	close(fd);
	return mem;
}

static void sleeps(int sk)
{
	lacking(sk);
	for (;;)
		pause();
}

/* The task's child forks when the daemon is dead, and that child touches what lacks. */
static void forks(int sk)
{
	volatile char *mem = lacking(sk);
	pid_t pid = fork();
	int status;

	need(pid >= 0);
	while (pid)
		pause();
	__atomic_store_n(&shared->born, 1, __ATOMIC_SEQ_CST);
	wait_for(&shared->go);
	pid = fork();
	if (!pid) {
		signal(SIGBUS, SIG_DFL); /* not to be noted by cmocka */
		_exit(*mem);
	}
	need(waitpid(pid, &status, 0) == pid);
	__atomic_store_n(&shared->status, status, __ATOMIC_SEQ_CST);
	_exit(0);
}

/* Runs a daemon with the userfaultfd that the task sends and @more copies of it. It reads @nr_forks
 * events. @given: a pager has taken over all of it. */
static void the_daemon(int sk, int more, int nr_forks, bool given)
{
	int uffd, i;

	need(!zns_holder_begin(-1));
	uffd = zns_holder_recv(sk);
	need(uffd >= 0);
	for (i = 0; i < more; i++)
		need(dup(uffd) >= 0);
	for (i = 0; i < nr_forks; i++) {
		struct pollfd p = { .fd = uffd, .events = POLLIN };
		struct uffd_msg m;

		need(poll(&p, 1, -1) == 1 && read(uffd, &m, sizeof(m)) == sizeof(m) &&
		     m.event == UFFD_EVENT_FORK);
	}
	if (given)
		zns_holder_given();
	__atomic_store_n(&shared->ready, 1, __ATOMIC_SEQ_CST);
	for (;;)
		pause();
}

struct pair {
	pid_t task, daemon;
};

static struct pair begin(void (*task)(int sk), int more, int nr_forks, bool given)
{
	struct pair p;
	int sk[2];

	memset(shared, 0, sizeof(*shared));
	shared->status = -1;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sk), 0);
	assert_int_equal(zns_holder_listen(sk[0]), 0);
	p.task = fork();
	if (!p.task)
		task(sk[1]);
	p.daemon = fork();
	if (!p.daemon)
		the_daemon(sk[0], more, nr_forks, given);
	close(sk[0]);
	close(sk[1]);
	until(__atomic_load_n(&shared->ready, __ATOMIC_SEQ_CST));
	return p;
}

/* The holder kills the task whose userfaultfd it has, and no other process does. */
static void is_killed(pid_t pid)
{
	int status = 0;

	until(waitpid(pid, &status, WNOHANG) == pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* Orphans are ours: the holder, and children of tasks. Nobody but the daemon is killed. */
static void nobody_left(void)
{
	pid_t pid;

	do {
		int status = 0;

		until((pid = waitpid(-1, &status, WNOHANG | __WALL)));
		assert_true(pid < 0 || WIFEXITED(status) || WTERMSIG(status) == SIGKILL);
	} while (pid >= 0);
}

/* A case that has failed leaves processes that wait, or never end. */
static int end_all(void **state)
{
	char text[1024], *s, *end;

	while (waitpid(-1, NULL, WNOHANG | __WALL) >= 0) {
		int fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
		ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
		long pid;

		close(fd);
		text[n < 0 ? 0 : n] = '\0';
		for (s = text; (pid = strtol(s, &end, 10)) > 0; s = end)
			kill((pid_t)pid, SIGKILL);
		poll(NULL, 0, 1);
	}
	return 0;
}

/* ---- cases ---- */

static void task_that_lacks_pages(void **state)
{
	struct pair p = begin(sleeps, 0, 0, false);

	kill(p.daemon, SIGKILL);
	is_killed(p.task);
	nobody_left();
}

/* The holder lists the userfaultfds once more, from the first one on. */
static void no_memory_for_the_list(void **state)
{
	struct pair p = begin(sleeps, COPIES, 0, false);

	shared->no_memory = 3;
	kill(p.daemon, SIGKILL);
	is_killed(p.task);
	nobody_left();
	assert_int_equal(shared->no_memory, 0);
}

/* A child's child is not of the restore either: what it lacks is a SIGBUS, never zeroes. */
static void child_forked_without_daemon(void **state)
{
	struct utsname u;
	int major, minor;
	struct pair p;

	uname(&u);
	assert_int_equal(sscanf(u.release, "%d.%d", &major, &minor), 2);
	if (major < 6 || (major == 6 && minor < 6)) {
		print_message("no UFFDIO_POISON before Linux 6.6\n");
		skip();
	}
	p = begin(forks, 0, 1, false);
	until(__atomic_load_n(&shared->born, __ATOMIC_SEQ_CST));
	kill(p.daemon, SIGKILL);
	is_killed(p.task);
	__atomic_store_n(&shared->go, 1, __ATOMIC_SEQ_CST);
	until(__atomic_load_n(&shared->status, __ATOMIC_SEQ_CST) != -1);
	assert_true(WIFSIGNALED(shared->status) && WTERMSIG(shared->status) == SIGBUS);
	nobody_left();
}

/* Daemon and holder end, and nobody kills the task. */
static void task_of_a_pager(void **state)
{
	struct pair p = begin(sleeps, 0, 0, true);

	kill(p.daemon, SIGKILL);
	for (int ended = 0; ended < 2; ended++) {
		pid_t pid;

		until((pid = waitpid(-1, NULL, WNOHANG | __WALL)));
		assert_true(pid > 0 && pid != p.task);
	}
	assert_int_equal(waitpid(p.task, NULL, WNOHANG), 0);
	kill(p.task, SIGKILL);
	nobody_left();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(task_that_lacks_pages, end_all),
		cmocka_unit_test_teardown(no_memory_for_the_list, end_all),
		cmocka_unit_test_teardown(child_forked_without_daemon, end_all),
		cmocka_unit_test_teardown(task_of_a_pager, end_all),
	};

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED || prctl(PR_SET_CHILD_SUBREAPER, 1))
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
