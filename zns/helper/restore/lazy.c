/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reads for a lazy-pages daemon. The tasks run while their pages are read. The helper copies pages
 * straight into the tasks, through the gate (zns-gate.h). A page server gets pages into its own
 * memory instead.
 *
 * A read for a fault has two parts. The page that the task waits for is read, verified and copied
 * first and alone, so that the task can continue. The pages behind it follow.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include "../helper.h"
#include "restore_session.h"
#include "../work_progress.h"
#include "zns-gate.h"
#include "zns/flat.h"
#include "zns/reader.h"

static struct helper *self; /* used in completion callbacks, which run on the reader's threads */
static struct zw_gate *gate;

#define PAGE 4096u

struct lazy_read {
	struct zns_running running;
	int reply, uffd;
	uint32_t number;
	_Atomic uint32_t parts; /* number of parts that are not done yet */
	_Atomic bool failed;
	struct zns_err err; /* the first error; set by the part that set `failed` */
};

int lazy_gate(struct helper *h, struct packet *p, struct zns_err *err)
{
	struct zw_reply r = { 0 };
	struct stat st;
	void *mem = MAP_FAILED;

	if (p->nr_fd != 2 || gate || fstat(p->fd[1], &st) || st.st_size < (off_t)sizeof(*gate))
		return zns_fail(err, -EPROTO, "criu sent no memory for the gate of lazy faults");
	mem = mmap(NULL, sizeof(*gate), PROT_READ | PROT_WRITE, MAP_SHARED, p->fd[1], 0);
	if (mem == MAP_FAILED)
		return zns_fail_sys(err, -errno, "no memory for a lazy restore");
	gate = mem;
	reply_send(p->fd[0], &r, -1);
	return 0;
}

static bool enter(struct zns_running *running)
{
	/* `running` is the first member of struct lazy_read */
	struct lazy_read *l = (struct lazy_read *)running;

	return zw_gate_enter(gate, l->number, self->sk);
}

static void leave(struct zns_running *running)
{
	zw_gate_leave(gate);
}

static void fetch_done(void *arg, const struct zns_err *err)
{
	struct lazy_read *l = arg;
	struct zw_reply r = { .image = l->number };

	if (err->code && !atomic_exchange(&l->failed, true))
		l->err = *err;
	if (atomic_fetch_sub(&l->parts, 1) > 1)
		return;
	err = &l->err;
	r.code = err->code;
	if (atomic_load(&l->running.gone))
		r.kind = ZW_FETCH_GONE;
	else if (atomic_load(&l->running.lacks))
		r.kind = ZW_FETCH_LACKS;
	if (err->code) {
		progress_hush(self);
		snprintf(r.msg, sizeof(r.msg), "%s", err->msg);
	}
	if (l->uffd >= 0)
		close(l->uffd); /* close it before the daemon lets the task continue */
	reply_send(l->reply, &r, -1);
	close(l->reply);
	free(l);
}

/*
 * If more requests wait in the socket, a worker reads for this fault, so that the message loop can
 * take the next one. Else the loop reads by itself.
 */
static enum zns_read_how how_to_fetch(const struct helper *h, const struct packet *p)
{
	struct pollfd more = { .fd = h->sk, .events = POLLIN };

	if (p->h.pad == ZW_FETCH_FIRST)
		return ZNS_READ_EARLY; /* these are small parts of many units */
	if (p->h.pad != ZW_FETCH_FAULT)
		return ZNS_READ_BACKGROUND;
	return poll(&more, 1, 0) > 0 ? ZNS_READ_FAULT : ZNS_READ_FAULT_HERE;
}

static void fetch_part(struct zns_rimage *img, struct zns_flat *flat, uint64_t off,
		       struct zns_task task, struct iovec iov, enum zns_read_how how,
		       struct lazy_read *l)
{
	if (flat)
		zns_flat_read_lazy(flat, zns_rimage_index(img), off, task, &iov, how, fetch_done,
				   l);
	else
		zns_rimage_read_lazy(img, off, task, &iov, how, fetch_done, l);
}

int lazy_fetch(struct helper *h, struct packet *p, struct zns_rimage *img, struct zns_flat *flat,
	       struct zns_err *err)
{
	const struct zw_iov *v = packet_iov(p);
	struct zns_task task = ZNS_TASK(p->sender);
	struct lazy_read *l;
	struct iovec iov;
	bool task_runs = p->nr_fd == 2;
	size_t rest;

	if (!v || p->h.nr != 1 || !p->nr_fd || p->sender <= 0 || p->h.pid < 0 ||
	    (task_runs && (!gate || p->h.pid >= ZW_LAZY_READS)))
		return zns_fail(err, -EPROTO, "criu sent an impossible read");
	self = h;
	l = calloc(1, sizeof(*l));
	if (!l)
		return zns_fail(err, -ENOMEM, "no memory for a read request");
	iov = (struct iovec){ (void *)(uintptr_t)v->base, v->len };
	first_fetch(img, p->h.off, v->len);
	l->running = (struct zns_running){ .enter = enter, .leave = leave };
	l->err = (struct zns_err)ZNS_ERR_INIT;
	l->number = (uint32_t)p->h.pid;
	l->reply = packet_take_fd(p, 0);
	l->uffd = -1;
	if (task_runs) {
		l->uffd = task.uffd = packet_take_fd(p, 1);
		task.running = &l->running;
	}
	rest = task_runs && p->h.pad == ZW_FETCH_FAULT && v->len > PAGE ? v->len - PAGE : 0;
	l->parts = rest ? 2 : 1;
	iov.iov_len -= rest;
	fetch_part(img, flat, p->h.off, task, iov, how_to_fetch(h, p), l);
	iov = (struct iovec){ (char *)iov.iov_base + PAGE, rest };
	if (rest)
		fetch_part(img, flat, p->h.off + PAGE, task, iov, ZNS_READ_FAULT, l);
	return 0;
}
