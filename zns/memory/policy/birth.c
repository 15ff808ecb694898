/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Stores the userfaultfds of new children until the keeper has them. A child runs as soon as the
 * event of its fork is read, and from then on we have the only copy of its userfaultfd: if we died,
 * the kernel would give the child zeroes for all memory that is on zones. So the reader of events
 * first puts a copy into a socket of which the keeper has both ends. What is in the socket lives as
 * long as the keeper, and waits there for the successor.
 *
 * First the userfaultfd is put there alone. When the child has its table, userfaultfd and table are
 * put there together, before the child gets a slot. If a successor finds only the userfaultfd, the
 * child has lost its units: it waits, and is killed when its PID is known. The successor removes
 * nothing from the socket before the keeper has copies, since the successor may die too.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "birth.h"

#define FDS 2U /* userfaultfd, table */
/* Two messages for each child, each of the size that the kernel charges for it. */
#define ROOM (2 * (int)PROCS_MAX * 2048)

struct note {
	uint64_t nr; /* number of the fork, counted over all pagers of the context */
	uint64_t table; /* 1: the message also contains the child's table */
};

int birth_open(struct zns_mem *m)
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, m->birth))
		return -errno;
	/*
	 * room for as many forks as a context has slots, in case the keeper gets none of them in
	 * between
	 */
	if (setsockopt(m->birth[0], SOL_SOCKET, SO_SNDBUFFORCE, &(int){ ROOM }, sizeof(int)))
		setsockopt(m->birth[0], SOL_SOCKET, SO_SNDBUF, &(int){ ROOM }, sizeof(int));
	return 0;
}

/*
 * Puts a message into the socket. A full socket is no error: the next hand-over to the keeper sends
 * this child's descriptors.
 */
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

/* Reads a message from the socket. 0: there is none. Descriptors that it does not have are -1. */
static int take(int sk, int flags, struct note *n, int fds[FDS])
{
	union {
		struct cmsghdr h;
		char space[CMSG_SPACE(FDS * sizeof(int))];
	} c;
	struct iovec iov = { n, sizeof(*n) };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof(c)
	};
	struct cmsghdr *h;

	for (unsigned int i = 0; i < FDS; i++)
		fds[i] = -1;
	if (recvmsg(sk, &msg, flags | MSG_CMSG_CLOEXEC | MSG_DONTWAIT) != sizeof(*n))
		return 0;
	h = CMSG_FIRSTHDR(&msg);
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

void birth_put(struct zns_mem *m, uint64_t nr, int uffd)
{
	put(m, &(struct note){ .nr = nr }, &uffd, 1);
}

uint64_t birth_begin(struct zns_mem *m, int uffd)
{
	uint64_t nr = ++m->sh->forks;

	birth_put(m, nr, uffd);
	return nr;
}

void birth_table(struct proc *child)
{
	struct note n = { .nr = child->fork_nr, .table = 1 };

	put(child->m, &n, (int[]){ child->uffd, child->table }, 2);
}

void birth_kept(struct zns_mem *m, uint64_t last)
{
	struct note n;
	int fds[FDS];

	while (take(m->birth[1], MSG_PEEK, &n, fds)) {
		close_all(fds);
		if (n.nr > last || !take(m->birth[1], 0, &n, fds))
			return;
		close_all(fds);
	}
}

void birth_doom(struct zns_mem *m, uint64_t nr, int uffd)
{
	struct proc *p = proc_new(m, 0, NULL);

	if (!p)
		return; /* keep its userfaultfd open, so that the child waits */
	p->uffd = uffd;
	p->fork_nr = nr;
	if (proc_add(m, p)) {
		p->leaves = true; /* allow the slots for leaving children as well */
		if (proc_add(m, p))
			return;
	}
	p->sh->doomed = 1;
	birth_table(p);
	m->sh->lost_units++;
	proc_why(p, "a child that is lost: where its memory is on zones is not known");
	mem_warn(
		m,
		"a child is lost and will be killed: a pager died before it had stored where the child's memory is");
}

/* Returns the slot of the child of fork @nr; -1: none. */
static int slot_of(const struct zns_mem *m, uint64_t nr)
{
	for (unsigned int i = 0; i < PROCS_MAX; i++)
		if (m->sh->proc[i].used && m->sh->proc[i].birth == nr)
			return (int)i;
	return -1;
}

/*
 * A child whose userfaultfd is in the socket without its table. It may be there twice: put there by
 * the pager, and by the holder, which could not know that the pager had done so (hold.c).
 */
struct orphan {
	uint64_t nr;
	int uffd;
};

static void no_orphan(struct orphan *o, unsigned int *nr, uint64_t birth)
{
	for (unsigned int i = 0; i < *nr; i++)
		if (o[i].nr == birth) {
			close(o[i].uffd);
			o[i] = o[--*nr];
			return;
		}
}

/*
 * Sets the message at which take() with MSG_PEEK begins, and makes it advance; -1: it always
 * returns the first message.
 */
static void look_from(struct zns_mem *m, int at)
{
	setsockopt(m->birth[1], SOL_SOCKET, SO_PEEK_OFF, &at, sizeof(at));
}

void birth_take(struct zns_mem *m, birth_take_fn *give, void *arg)
{
	struct orphan orphan[PROCS_MAX];
	unsigned int nr = 0;
	struct note n;
	int fds[FDS];

	look_from(m, 0);
	while (take(m->birth[1], MSG_PEEK, &n, fds)) {
		int slot = slot_of(m, n.nr);

		if (fds[0] < 0 || mem_uffd_dead(fds[0])) {
			close_all(fds);
		} else if (!n.table && nr < PROCS_MAX) {
			no_orphan(orphan, &nr, n.nr);
			orphan[nr++] = (struct orphan){ n.nr, fds[0] };
		} else {
			no_orphan(orphan, &nr, n.nr);
			/* the keeper has handed over this child already */
			if (fds[1] < 0 || (slot >= 0 && m->proc[slot]) ||
			    !give(arg, n.nr, slot, fds[1], fds[0]))
				close_all(fds);
		}
	}
	look_from(m, -1);
	for (unsigned int i = 0; i < nr; i++) {
		int slot = slot_of(m, orphan[i].nr);

		if (slot >= 0 && m->proc[slot]) {
			close(orphan[i].uffd);
			continue;
		}
		/* the child had a slot, but its table was not in the socket, so nobody has it */
		if (slot >= 0)
			m->sh->proc[slot].used = 0;
		birth_doom(m, orphan[i].nr, orphan[i].uffd);
	}
}
