/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Children that the keeper does not know yet. A child runs as soon as the event of its fork is
 * read, and from then on our copy of its userfaultfd is the only one: if we died, the kernel would
 * give it zeroes for all that is on zones. So the reader puts copies into a socket before it does
 * anything else. Both ends of it are among the descriptors that the keeper holds. Whatever nobody
 * takes out of it lives as long as the keeper, and waits for the successor there.
 *
 * First comes the userfaultfd alone. When the child has its table, both come. A child of which the
 * successor finds the first alone has lost its units: it waits, and is killed when its PID is
 * known.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "birth.h"

#define NO_SLOT UINT32_MAX
#define FDS 2U /* userfaultfd, table */

struct note {
	uint64_t nr; /* of the birth, counted over all pagers */
	uint32_t slot;
	uint32_t zero;
};

int birth_open(struct zns_mem *m)
{
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, m->birth) ?
		       -errno :
		       0;
}

/* A full socket is no error: the next hand-over has the child. */
static void put(struct zns_mem *m, const struct note *n, const int *fds, unsigned int nr)
{
	union {
		struct cmsghdr h;
		char space[CMSG_SPACE(FDS * sizeof(int))];
	} c = { 0 };
	struct iovec iov = { (void *)n, sizeof(*n) };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = &c,
			      .msg_controllen = CMSG_SPACE(nr * sizeof(int)) };
	struct cmsghdr *h = CMSG_FIRSTHDR(&msg);

	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(nr * sizeof(int));
	memcpy(CMSG_DATA(h), fds, nr * sizeof(int));
	if (!mem_without(RULE_BIRTH))
		sendmsg(m->birth[0], &msg, MSG_NOSIGNAL);
}

/* 0: there is none. Absent descriptors are -1. */
static int take(int sk, int flags, struct note *n, int fds[FDS])
{
	union {
		struct cmsghdr h;
		char space[CMSG_SPACE(FDS * sizeof(int))];
	} c;
	struct iovec iov = { n, sizeof(*n) };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = flags & MSG_PEEK ? NULL : &c,
			      .msg_controllen = flags & MSG_PEEK ? 0 : sizeof(c) };
	struct cmsghdr *h;

	for (unsigned int i = 0; i < FDS; i++)
		fds[i] = -1;
	if (recvmsg(sk, &msg, flags | MSG_CMSG_CLOEXEC | MSG_DONTWAIT) != sizeof(*n))
		return 0;
	h = flags & MSG_PEEK ? NULL : CMSG_FIRSTHDR(&msg);
	if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS)
		memcpy(fds, CMSG_DATA(h), zns_min(h->cmsg_len - CMSG_LEN(0), FDS * sizeof(int)));
	return 1;
}

static void close_all(const int fds[FDS])
{
	for (unsigned int i = 0; i < FDS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

uint64_t birth_begin(struct zns_mem *m, int uffd)
{
	struct note n = { .nr = ++m->sh->forks, .slot = NO_SLOT };

	put(m, &n, &uffd, 1);
	return n.nr;
}

void birth_done(struct proc *child)
{
	struct note n = { .nr = child->sh->birth,
			  .slot = (uint32_t)(child->sh - child->m->sh->proc) };

	put(child->m, &n, (int[]){ child->uffd, child->table }, 2);
}

void birth_kept(struct zns_mem *m, uint64_t last)
{
	struct note n;
	int fds[FDS];

	while (take(m->birth[1], MSG_PEEK, &n, fds) && n.nr <= last &&
	       take(m->birth[1], 0, &n, fds))
		close_all(fds);
}

/* It has lost its memory, and must not go on. */
static void doom(struct zns_mem *m, int uffd)
{
	struct proc *p = proc_new(m, 0, NULL);

	if (!p)
		return; /* its userfaultfd stays open, so it waits */
	p->uffd = uffd;
	if (proc_add(m, p))
		return;
	p->sh->doomed = 1;
	m->sh->lost_units++;
	proc_why(p, "a child that is lost: its pager died while it was forked");
	mem_warn(m, "a child is lost, since the pager died while it was forked");
}

struct orphan {
	uint64_t nr;
	int uffd;
};

void birth_take(struct zns_mem *m, birth_take_fn *give, void *arg)
{
	struct orphan orphan[PROCS_MAX];
	unsigned int nr = 0;
	struct note n;
	int fds[FDS];

	while (take(m->birth[1], 0, &n, fds)) {
		bool first = n.slot == NO_SLOT;

		for (unsigned int i = 0; i < nr && !first; i++)
			if (orphan[i].nr == n.nr) {
				close(orphan[i].uffd);
				orphan[i] = orphan[--nr];
				break;
			}
		if (first && fds[0] >= 0 && nr < PROCS_MAX) {
			orphan[nr++] = (struct orphan){ n.nr, fds[0] };
			continue;
		}
		if (first || n.slot >= PROCS_MAX || fds[1] < 0 || m->proc[n.slot] ||
		    !m->sh->proc[n.slot].used || m->sh->proc[n.slot].birth != n.nr ||
		    !give(arg, n.slot, fds[1], fds[0]))
			close_all(fds);
	}
	for (unsigned int i = 0; i < nr; i++) {
		unsigned int k = 0;

		/* the keeper may have it: then its slot says so */
		while (k < PROCS_MAX &&
		       !(m->sh->proc[k].used && m->sh->proc[k].birth == orphan[i].nr))
			k++;
		if (k < PROCS_MAX || mem_uffd_dead(orphan[i].uffd))
			close(orphan[i].uffd);
		else
			doom(m, orphan[i].uffd);
	}
}
