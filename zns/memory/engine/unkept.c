/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the holder (hold.c) does when pager and keeper are both dead. It has the last copies of the
 * userfaultfds: if it ended too, the kernel would give the processes zeroes for all memory that is
 * on zones. So it stays until a successor ends it. If the keeper dies before there is a successor,
 * the holder kills the processes that have memory on zones, and closes the userfaultfds only when
 * none of these processes can read any more.
 *
 * The pager's threads died in any state, so the holder takes no lock and allocates nothing.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "hold.h"

/* ms; time for a successor that was started before the keeper died: it may have all descriptors. */
#define GRACE_MS 10000U
#define LOOK_MS 10U

/* Returns process number @i, counting first those with a slot, then children that wait for one. */
static struct proc *nth(struct zns_mem *m, unsigned int i)
{
	struct proc *p = i < PROCS_MAX ? m->proc[i] : m->waiting;

	for (unsigned int n = PROCS_MAX; p && n < i; n++)
		p = p->next_waiting;
	return p;
}

#define NR (2 * PROCS_MAX)

static int is_out(struct proc *p, struct unit *u, uint64_t base, void *arg)
{
	return ON_ZONE(u->word);
}

/*
 * Does a process that has memory on zones still exist? @end: kill all of these. A child whose PID
 * is unknown cannot be killed, and waits for ever.
 */
static bool need_us(struct zns_mem *m, bool end)
{
	bool left = false;

	for (unsigned int i = 0; i < NR; i++) {
		struct proc *p = nth(m, i);

		if (!p || mem_uffd_dead(p->uffd) || !table_each(p, is_out, NULL))
			continue;
		left = true;
		if (end)
			syscall(SYS_pidfd_send_signal, p->pidfd, SIGKILL, NULL, 0);
	}
	return left;
}

static void say(const char *text)
{
	if (write(STDERR_FILENO, text, strlen(text)) < 0)
		return; /* nobody reads our output any more */
}

/* Waits until the process ends, or until a successor kills this process. */
static void await_end(int pidfd)
{
	struct pollfd f = { .fd = pidfd, .events = POLLIN };
	long n;

	do { /* the C library's poll() would use thread-local data of a dead thread */
		n = syscall(SYS_ppoll, &f, 1, NULL, NULL, 0);
	} while (n < 0 && errno == EINTR);
}

void unkept_watch(struct zns_mem *m)
{
	if (m->keeper < 0)
		return;
	await_end(m->keeper);
	for (unsigned int ms = 0; need_us(m, ms >= GRACE_MS); ms += LOOK_MS) {
		if (ms == GRACE_MS)
			say("pager and keeper are dead: processes with memory on zones are ended\n");
		syscall(SYS_nanosleep, &(struct timespec){ .tv_nsec = LOOK_MS * 1000000L }, NULL);
	}
}

void zns_mem_keeper(struct zns_mem *m, pid_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0), old;

	if (fd < 0) /* our keeper is dead, and so is the one before */
		return;
	old = atomic_exchange(&m->keeper, fd);
	if (old >= 0)
		close(old);
}
