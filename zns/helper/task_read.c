/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* See task_read.h. */
#include <fcntl.h>
#include <string.h>
#include "helper.h"
#include "task_read.h"

#define LIMIT_MS 5000 /* ms; a page that does not arrive within this time is left to the freeze */
#define WINDOW MIB(1) /* most bytes read by one request to the child process */

struct question {
	pid_t pid;
	uint32_t nr;
	struct iovec v[TASK_READ_IOVS];
	ssize_t got;
	uint8_t data[WINDOW];
};

/* reads through /proc/PID/mem, which also reads areas without read permission */
static ssize_t by_file(pid_t pid, const struct iovec *v, uint8_t *buf)
{
	cleanup_close int fd = -1;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? 0 : pread(fd, buf, v->iov_len, (off_t)(uintptr_t)v->iov_base);
}

ssize_t task_read(pid_t pid, const struct iovec *v, uint32_t nr, uint8_t *buf)
{
	struct iovec local = { .iov_base = buf };
	ssize_t got;

	for (uint32_t n = 0; n < nr; n++)
		local.iov_len += v[n].iov_len;
	got = process_vm_readv(pid, &local, 1, v, nr, 0);
	if (got < 0 && errno != EFAULT)
		return -errno;
	if (got <= 0)
		got = by_file(pid, v, buf);
	return got > 0 ? (ssize_t)zns_align_down((size_t)got, (size_t)getpagesize()) : 0;
}

static int answer(int fd, void *arg, void *out)
{
	struct question *q = out;

	q->got = task_read(q->pid, q->v, q->nr, q->data);
	return 0;
}

/* Copies as many ranges into the request as fit. */
static void put(struct question *q, pid_t pid, const struct iovec *v, uint32_t nr)
{
	size_t sum = 0;

	q->pid = pid;
	q->nr = 0;
	for (uint32_t n = 0; n < nr && sum < WINDOW; n++) {
		q->v[n] = v[n];
		q->v[n].iov_len = zns_min(v[n].iov_len, WINDOW - sum);
		sum += q->v[n].iov_len;
		q->nr++;
	}
}

ssize_t task_read_apart(struct task_reader *r, pid_t pid, const struct iovec *v, uint32_t nr,
			uint8_t *buf)
{
	struct question *q;
	int ret = 0;

	if (!r->begun)
		ret = zns_apart_begin(&r->p, answer, -1, NULL, sizeof(*q));
	if (ret)
		return ret;
	r->begun = true;
	q = r->p.shared;
	put(q, pid, v, nr);
	ret = zns_apart_ask(&r->p, LIMIT_MS);
	if (ret) {
		task_reader_end(r); /* the child process hangs: the next read starts a new one */
		return ret;
	}
	if (q->got > 0)
		memcpy(buf, q->data, (size_t)q->got);
	return q->got;
}

void task_reader_end(struct task_reader *r)
{
	if (r->begun)
		zns_apart_end(&r->p);
	r->begun = false;
}
