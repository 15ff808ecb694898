/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reads pages straight into the areas that a task has mapped (hooks.md, "Restore"). criu sends the
 * list of places before it becomes the task. The restorer blob maps the areas and then asks for the
 * pages. Then several workers read and verify the listed pages, and write them into the task's
 * memory.
 */
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include "fill.h"
#include "../helper.h"
#include "../work_progress.h"
#include "zns/flat.h"

#define CHUNK ZW_MAX_IOV /* number of places handled by one batch */
#define UNDER_WAY 64 /* most requests under way; each request has an address list of its own */
#define MAX_PLACES (1u << 26) /* 256 GiB in pages of 4 KiB */

struct fill {
	struct helper *h;
	struct zns_rimage *img;
	struct zns_flat *flat; /* the flat view that has the image; NULL: none */
	int reply, list;
	uint32_t nr;
	struct zns_task task;
	uint64_t room; /* how many more places may be covered by the userfaultfd (zns/task.h) */
	pthread_mutex_t lock;
	pthread_cond_t less;
	uint32_t under_way;
	struct zns_err err; /* the first error */
};

bool fill_covers(struct zns_task task, const struct iovec *iov, uint32_t nr)
{
	bool any = false;

	for (uint32_t n = 0; n < nr && task.uffd >= 0; n++)
		any |= iov[n].iov_len >= ZW_COVER_MIN &&
		       zns_task_cover(task, iov[n].iov_base, iov[n].iov_len);
	return any;
}

static void fill_free(struct fill *f)
{
	if (f->reply >= 0)
		close(f->reply);
	if (f->task.uffd >= 0)
		close(f->task.uffd);
	close(f->list);
	free(f);
}

static void part_done(void *arg, const struct zns_err *err)
{
	struct fill *f = arg;

	pthread_mutex_lock(&f->lock);
	if (err->code && !f->err.code)
		f->err = *err;
	f->under_way--;
	pthread_cond_signal(&f->less);
	pthread_mutex_unlock(&f->lock);
}

/* Waits until at most @max requests are under way. Returns the first error. */
static int wait_below(struct fill *f, uint32_t max)
{
	int ret;

	pthread_mutex_lock(&f->lock);
	while (f->under_way > max)
		pthread_cond_wait(&f->less, &f->lock);
	ret = f->err.code;
	pthread_mutex_unlock(&f->lock);
	return ret;
}

static int ask_for(struct fill *f, struct zns_task task, uint64_t off, const struct iovec *iov,
		   uint32_t nr)
{
	int ret = wait_below(f, UNDER_WAY - 1);

	if (ret)
		return ret;
	pthread_mutex_lock(&f->lock);
	f->under_way++;
	pthread_mutex_unlock(&f->lock);
	if (f->flat)
		zns_flat_read_task(f->flat, zns_rimage_index(f->img), off, task, iov, nr, part_done,
				   f);
	else
		zns_rimage_read_task(f->img, off, task, iov, nr, part_done, f);
	return 0;
}

/*
 * Chooses how to write this place: with UFFDIO_COPY if the userfaultfd can cover it, else with
 * process_vm_writev.
 */
static struct zns_task way_to(struct fill *f, const struct iovec *iov)
{
	if (!f->room || !fill_covers(f->task, iov, 1))
		return ZNS_TASK(f->task.pid);
	f->room--;
	return f->task;
}

/* Requests the pages of @v. Places that are neighbours in the image become one request. */
static int fill_chunk(struct fill *f, const struct zw_place *v, uint32_t nr)
{
	struct zns_task way = f->task;
	struct iovec iov[CHUNK];
	uint64_t end = 0;
	uint32_t first = 0;
	int ret = 0;

	for (uint32_t i = 0; i < nr && !ret; i++) {
		struct zns_task this;

		iov[i] = (struct iovec){ (void *)(uintptr_t)v[i].base, v[i].len };
		this = way_to(f, &iov[i]);
		if (i > first && (v[i].off != end || this.uffd != way.uffd)) {
			ret = ask_for(f, way, v[first].off, iov + first, i - first);
			first = i;
		}
		way = this;
		end = v[i].off + v[i].len;
	}
	return ret ? ret : ask_for(f, way, v[first].off, iov + first, nr - first);
}

static int fill_all(struct fill *f, struct zns_err *err)
{
	cleanup_free struct zw_place *v = malloc(CHUNK * sizeof(*v));
	int ret = v ? 0 : zns_fail(err, -ENOMEM, "no memory for a list of pages");

	for (uint32_t done = 0, n; done < f->nr && !ret; done += n) {
		n = zns_min(f->nr - done, (uint32_t)CHUNK);
		ret = zns_pread_all(f->list, v, n * sizeof(*v), (off_t)done * (off_t)sizeof(*v));
		if (ret)
			zns_fail_sys(err, ret, "cannot read criu's list of pages");
		else
			ret = fill_chunk(f, v, n);
	}
	wait_below(f, 0);
	/*
	 * No other process has this userfaultfd, so closing it unregisters all places, and the task
	 * may continue.
	 */
	if (f->task.uffd >= 0)
		close(f->task.uffd);
	f->task.uffd = -1;
	if (f->err.code)
		*err = f->err;
	return f->err.code ? f->err.code : ret;
}

/*
 * The thread of one task: waits for the restorer blob's request, fills its pages and answers. If
 * the blob has died, only frees @arg.
 */
static void *fill_run(void *arg)
{
	struct fill *f = arg;
	struct zns_err err = ZNS_ERR_INIT;
	struct zw_reply r = { 0 };
	ssize_t n;
	char go;

	do {
		n = recv(f->reply, &go, sizeof(go), 0);
	} while (n < 0 && errno == EINTR);
	if (n == sizeof(go)) { /* otherwise the blob has died */
		if (fill_all(f, &err)) {
			progress_hush(f->h);
			reply_error(f->reply, &err);
		} else {
			reply_send(f->reply, &r, -1);
		}
	}
	fill_free(f);
	return NULL;
}

/* The list names addresses only, and these count in the memory of its sender. */
static int check_list(int fd, uint32_t nr, struct zns_err *err)
{
	struct stat st;

	if (nr && nr <= MAX_PLACES && fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) &&
	    st.st_size == (off_t)(nr * sizeof(struct zw_place)))
		return 0;
	return zns_fail(err, -EPROTO, "criu sent an impossible list of pages");
}

int fill_start(struct helper *h, struct packet *p, struct zns_rimage *img, struct zns_flat *flat,
	       struct zns_err *err)
{
	struct epoll_event ev = { .events = EPOLLIN };
	struct fill *f;
	int ret = p->nr_fd >= 2 && p->nr_fd <= 3 && p->sender > 0 ?
			  check_list(p->fd[1], p->h.nr, err) :
			  zns_fail(err, -EPROTO, "criu sent an impossible list of pages");

	if (ret)
		return ret;
	f = calloc(1, sizeof(*f));
	if (!f)
		return zns_fail(err, -ENOMEM, "no memory for a list of pages");
	*f = (struct fill){ .h = h,
			    .img = img,
			    .flat = flat,
			    .nr = p->h.nr,
			    .task = ZNS_TASK(p->sender),
			    .room = p->h.off,
			    .lock = PTHREAD_MUTEX_INITIALIZER,
			    .less = PTHREAD_COND_INITIALIZER,
			    .err = ZNS_ERR_INIT,
			    .reply = packet_take_fd(p, 0),
			    .list = packet_take_fd(p, 1) };
	if (p->nr_fd == 3 && !zns_task_huge_pages())
		f->task.uffd = packet_take_fd(p, 2);
	ev.data.ptr = f;
	if (h->fills < 0)
		h->fills = epoll_create1(EPOLL_CLOEXEC);
	if (h->fills >= 0 && !epoll_ctl(h->fills, EPOLL_CTL_ADD, f->reply, &ev))
		return 0;
	ret = -errno;
	p->fd[0] = f->reply; /* the task still waits at this socket */
	f->reply = -1;
	fill_free(f);
	return zns_fail_sys(err, ret, "cannot wait for a task");
}

void fill_ready(struct helper *h)
{
	struct epoll_event ev[16];
	int nr = epoll_wait(h->fills, ev, (int)ZNS_ARRAY_SIZE(ev), 0);

	for (int i = 0; i < nr; i++) {
		struct fill *f = ev[i].data.ptr;
		struct zns_err err;
		pthread_t t;
		int ret;

		epoll_ctl(h->fills, EPOLL_CTL_DEL, f->reply, NULL);
		ret = -pthread_create(&t, NULL, fill_run, f);
		if (!ret) {
			pthread_detach(t);
			continue;
		}
		zns_fail_sys(&err, ret, "cannot start a thread");
		reply_error(f->reply, &err);
		fill_free(f);
	}
}
