/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Keeps the userfaultfds of new children open if the pager dies. A child runs as soon as the event
 * of its fork is read. Until birth.c has put its userfaultfd into a socket, it is only in our table
 * of descriptors: if we died at that point, the kernel would give the child zeroes. So a second
 * process, the holder, shares our table (CLONE_FILES) and sleeps until we are dead. Then it puts
 * the userfaultfds that we had read into the socket, and stays until a successor has a holder of
 * its own (unkept.c).
 *
 * The holder shares our memory as well, which costs nothing. It makes no call before our last
 * thread has ended, so it can use the thread-local data of the thread that created it.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../policy/birth.h"
#include "hold.h"

#define STACK (64U << 10) /* bytes */
#define END_MS 10000
#define LOOK_MS 1

static void put_unborn(struct zns_mem *m)
{
	struct inbox *in = &m->sh->inbox;
	uint64_t nr = in->forks;

	for (unsigned int i = 0; i < MESSAGES; i++) {
		if (in->msg[i].event != UFFD_EVENT_FORK)
			continue;
		nr++;
		if (in->born & 1U << i)
			continue;
		birth_put(m, nr, (int)in->msg[i].arg.fork.ufd);
		if (m->sh->forks < nr)
			m->sh->forks = nr;
	}
}

/*
 * The holder is killed while it sleeps: the sanitizer's red zones in its frame would stay behind on
 * its stack.
 */
__attribute__((no_sanitize_address)) static int holder(void *arg)
{
	struct zns_mem *m = arg;
	struct pollfd f = { .fd = m->self, .events = POLLIN };
	long n;

	do { /* the C library's poll() would use thread-local data of a thread that lives */
		n = syscall(SYS_ppoll, &f, 1, NULL, NULL, 0);
	} while (!n || (n < 0 && errno == EINTR));
	if (n == 1)
		put_unborn(m);
	if (n == 1 && m->sh->holder == (int32_t)syscall(SYS_getpid)) {
		m->sh->held = 1;
		unkept_watch(m);
	}
	return 0;
}

int hold_start(struct zns_mem *m)
{
	sigset_t all, old;
	int ret;

	if (mem_without(RULE_HOLD))
		return 0;
	m->self = (int)syscall(SYS_pidfd_open, getpid(), 0);
	if (m->self < 0)
		return -errno;
	m->hold_stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	if (m->hold_stack == MAP_FAILED)
		return -errno;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	/* no exit signal, so that no waitpid(-1) of another thread reaps it */
	m->holder = clone(holder, (char *)m->hold_stack + STACK, CLONE_VM | CLONE_FILES, m);
	ret = m->holder < 0 ? -errno : 0;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return ret;
}

void hold_end(struct zns_mem *m)
{
	if (m->holder > 0) {
		kill(m->holder, SIGKILL);
		while (waitpid(m->holder, NULL, __WCLONE) < 0 && errno == EINTR)
			;
		m->sh->holder = 0;
	}
	if (m->hold_stack && m->hold_stack != MAP_FAILED)
		munmap(m->hold_stack, STACK);
	if (m->self >= 0)
		close(m->self);
}

void hold_await(struct zns_mem *m)
{
	pid_t pid = m->sh->holder;
	struct pollfd f = { .fd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1,
			    .events = POLLIN };
	uint64_t end = zns_mono_ns() + END_MS * 1000000ULL;

	m->relieved = f.fd;
	while (f.fd >= 0 && !m->sh->held && !poll(&f, 1, LOOK_MS))
		if (zns_mono_ns() > end) {
			mem_warn(
				m,
				"the process that holds the dead pager's descriptors does not end");
			break;
		}
}

/*
 * Ends the old holder before ours becomes active: otherwise each would kill the processes that the
 * other one serves.
 */
void hold_relieve(struct zns_mem *m)
{
	struct pollfd f = { .fd = m->relieved, .events = POLLIN };

	if (f.fd >= 0) {
		syscall(SYS_pidfd_send_signal, f.fd, SIGKILL, NULL, 0);
		poll(&f, 1, END_MS);
		close(f.fd);
	}
	m->relieved = -1;
	m->sh->held = 0;
	m->sh->holder = m->holder;
}
