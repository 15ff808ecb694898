/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * An io_uring that was made in another process, with a kernel thread that takes what is submitted:
 * the thread has that process's memory, so MADV_DONTNEED drops its pages. We write the rings and
 * wait; nothing runs in the process.
 */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "mem.h"

#define WAIT_MS 100
#define PATIENCE_MS 1000 /* longer than any drop takes: then the process is frozen or stopped */
#define END_MS 10000
#define RING_END (1ULL << 32) /* so that no end is 0 */

static _Atomic uint32_t *at(const struct ring *r, uint32_t offset)
{
	return (_Atomic uint32_t *)((char *)r->rings + offset);
}

int ring_map(struct ring *r)
{
	const struct ring_shape *s = &r->shape;
	size_t sq = s->sq.array + s->sq_entries * sizeof(uint32_t);
	size_t cq = s->cq.cqes + s->cq_entries * sizeof(struct io_uring_cqe);
	int prot = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_POPULATE;

	r->rings_len = zns_max(sq, cq);
	r->sqes_len = s->sq_entries * sizeof(struct io_uring_sqe);
	r->rings = mmap(NULL, r->rings_len, prot, flags, r->fd, IORING_OFF_SQ_RING);
	if (r->rings == MAP_FAILED) {
		r->rings = NULL;
		return -errno;
	}
	r->sqes = mmap(NULL, r->sqes_len, prot, flags, r->fd, (off_t)IORING_OFF_SQES);
	if (r->sqes == MAP_FAILED) {
		r->sqes = NULL;
		return -errno;
	}
	return 0;
}

void ring_close(struct ring *r)
{
	/* a mapping holds the ring, and the ring its thread in the process */
	if (!mem_without(RULE_RING)) {
		if (r->rings)
			munmap(r->rings, r->rings_len);
		if (r->sqes)
			munmap(r->sqes, r->sqes_len);
	}
	if (r->fd >= 0)
		close(r->fd);
	*r = (struct ring){ .fd = -1 };
}

static int enter(const struct ring *r, uint32_t flags)
{
	return syscall(SYS_io_uring_enter, r->fd, 0, 0, flags, NULL, 0) < 0 ? -errno : 0;
}

/* The thread sleeps after a while without work. */
static int rouse(const struct ring *r)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (*at(r, r->shape.sq.flags) & IORING_SQ_NEED_WAKEUP)
		return enter(r, IORING_ENTER_SQ_WAKEUP);
	return 0;
}

int ring_finish(struct ring *r, unsigned int limit_ms)
{
	struct io_uring_cqe *cqe = (void *)((char *)r->rings + r->shape.cq.cqes);
	uint32_t mask = *at(r, r->shape.cq.ring_mask);
	uint64_t until_ns = zns_mono_ns() + limit_ms * 1000000ULL;
	int ret;

	for (;;) {
		uint32_t head = *at(r, r->shape.cq.head);
		struct pollfd p[2] = { { .fd = r->fd, .events = POLLIN },
				       { .fd = r->pidfd, .events = POLLIN } };

		while (head != *at(r, r->shape.cq.tail)) {
			int res = cqe[head & mask].res;

			if (res < 0 && !r->error)
				r->error = res;
			*at(r, r->shape.cq.head) = ++head;
		}
		if (head == *at(r, r->shape.sq.tail)) {
			ret = r->error;
			r->error = 0;
			return ret;
		}
		ret = rouse(r);
		if (ret)
			return ret;
		/* a frozen process may drop them a day later */
		if (zns_mono_ns() > until_ns)
			return -EINPROGRESS;
		poll(p, 2, WAIT_MS);
		if (p[1].revents || p[0].revents & (POLLERR | POLLNVAL))
			return -ESRCH;
	}
}

uint64_t ring_end(const struct ring *r, unsigned int nr)
{
	return RING_END | (uint32_t)(*at(r, r->shape.sq.tail) + nr);
}

bool ring_has_done(const struct ring *r, uint64_t end)
{
	return *at(r, r->shape.cq.tail) == (uint32_t)end;
}

int ring_drop(struct ring *r, const struct range *range, unsigned int nr)
{
	uint32_t mask = *at(r, r->shape.sq.ring_mask), tail = *at(r, r->shape.sq.tail);
	uint32_t *array = (uint32_t *)at(r, r->shape.sq.array);
	struct io_uring_sqe *sqes = r->sqes;

	for (unsigned int i = 0; i < nr; i++, tail++) {
		struct io_uring_sqe *e = &sqes[tail & mask];

		memset(e, 0, sizeof(*e));
		e->opcode = IORING_OP_MADVISE;
		e->fd = -1;
		e->addr = range[i].start;
		e->len = (uint32_t)(range[i].end - range[i].start);
		e->fadvise_advice = MADV_DONTNEED;
		array[tail & mask] = tail & mask;
	}
	*at(r, r->shape.sq.tail) = tail;
	return ring_finish(r, PATIENCE_MS);
}

/* Tasks of the kernel's in the process: the ring's thread, and those that do its work. */
static bool has_ring_tasks(pid_t pid)
{
	char path[64];
	struct dirent *d;
	bool found = false;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	while (dir && !found && (d = readdir(dir))) {
		cleanup_free uint8_t *text = NULL;
		char name[300];
		size_t len;

		snprintf(name, sizeof(name), "%s/comm", d->d_name);
		found = d->d_name[0] != '.' && !zns_read_file(dirfd(dir), name, 64, &text, &len) &&
			!strncmp((char *)text, "iou-", 4);
	}
	if (dir)
		closedir(dir);
	return found;
}

/* A program may call its own threads so: then there is an end to it, too. */
int ring_await_end(pid_t pid, int pidfd, uint64_t since_ns)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	while (has_ring_tasks(pid)) {
		if (zns_mono_ns() - since_ns > END_MS * 1000000ULL)
			return -ETIMEDOUT;
		if (poll(&p, 1, 2) > 0)
			return -ESRCH;
	}
	return 0;
}
