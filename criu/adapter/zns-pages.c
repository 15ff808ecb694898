/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Pages. A dump sends their addresses to the helper, which reads them. A restore gets verified
 * bytes from the helper. See include/zns-img.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/compiler.h"
#include "cr_options.h"
#include "image.h"
#include "log.h"
#include "page-xfer.h"
#include "page.h"
#include "pstree.h"
#include "restorer.h"
#include "rst-malloc.h"
#include "util.h"
#include "xmalloc.h"
#include "zns-img.h"
#include "zns-link.h"
#include "zns-live.h"
#include "zns-memfd.h"
#include "zns-pages.h"
#include "zns-state.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

/* --- dump --- */

/* Addresses that were not sent to the helper yet. Each process writes one image at a time. */
static struct {
	struct zw_iov iov[ZW_MAX_IOV];
	unsigned int nr;
	unsigned long bytes;
	uint32_t image;
	pid_t pid;
} out;
/*
 * bytes; the addresses of so many pages are sent at once, so that the helper reads and writes while
 * criu still looks for pages
 */
#define OUT_BYTES (8UL << 20)
#define STREAM_PIPE (1 << 20) /* bytes; the largest pipe without CAP_SYS_RESOURCE */

/*
 * Reports the pages with rseq areas to the helper. The kernel writes the CPU's number into a
 * thread's rseq area whenever the thread runs, and the parasite still runs on the thread after its
 * pages were read. Without this list, a helper that has to read such a page again would take the
 * difference for an error.
 */
void zns_tell_unsteady(pid_t pid)
{
	struct zns_msg m = ZNS_MSG(ZW_PAGES_UNSTEADY);
	struct pstree_item *item = pstree_item_by_real(pid);
	struct zw_iov v[ZW_MAX_IOV];

	m.h.pid = pid;
	m.payload = v;
	for (int i = 0; item && i < item->nr_threads; i++) {
		RseqEntry *rseq = item->core && item->core[i] && item->core[i]->thread_core ?
					  item->core[i]->thread_core->rseq_entry :
					  NULL;

		if (rseq && rseq->rseq_abi_pointer)
			v[m.h.nr++] = (struct zw_iov){ rseq->rseq_abi_pointer,
						       rseq->rseq_abi_size };
		if (m.h.nr && (m.h.nr == ZW_MAX_IOV || i == item->nr_threads - 1)) {
			m.len = m.h.nr * sizeof(*v);
			zns_send(&m); /* if the helper is gone, the next message shows it */
			m.h.nr = 0;
		}
	}
}

pid_t zns_xfer_pid(struct page_xfer *xfer, pid_t pid)
{
	if (!zns_active())
		return 0;
	if (pid != getpid())
		zns_tell_unsteady(pid);
	return pid;
}

static int flush(void)
{
	struct zns_msg m = ZNS_MSG(ZW_PAGES_MEM);
	int ret;

	if (!out.nr)
		return 0;
	m.h.image = out.image;
	m.h.nr = out.nr;
	m.h.pid = out.pid;
	m.payload = out.iov;
	m.len = out.nr * sizeof(out.iov[0]);
	ret = zns_send(&m);
	out.nr = 0;
	out.bytes = 0;
	if (ret)
		zns_pr_err("%s; nothing was committed, run the dump again\n", zns_helper_gone());
	return ret ? -1 : 0;
}

int zns_write_mem(struct page_xfer *xfer, void *base, unsigned long len)
{
	struct zns_img *zi = xfer->pi->zns;
	struct zw_iov *last;

	if (out.nr && (out.image != zi->id || out.pid != xfer->zns_pid || out.bytes >= OUT_BYTES) &&
	    flush())
		return -1;
	last = out.nr ? &out.iov[out.nr - 1] : NULL;
	out.bytes += len;
	if (last && last->base + last->len == (uintptr_t)base) {
		last->len += len;
		return 0;
	}
	if (out.nr == ZW_MAX_IOV && flush())
		return -1;
	out.image = zi->id;
	out.pid = xfer->zns_pid;
	out.iov[out.nr].base = (uintptr_t)base;
	out.iov[out.nr++].len = len;
	return 0;
}

/*
 * Copies pages from criu's pipe to another pipe, which the helper reads. In read mode the pages in
 * the pipe are criu's own buffer, which criu fills again after this call. So the bytes must be
 * copied and cannot be moved.
 */
int zns_pass_on(int from, int to, unsigned long len)
{
	static char buf[1 << 16];

	while (len) {
		ssize_t n, done, put;

		if (opts.pre_dump_mode != PRE_DUMP_READ) {
			n = splice(from, NULL, to, NULL, len, SPLICE_F_MOVE);
		} else {
			n = read(from, buf, min_t(unsigned long, len, sizeof(buf)));
			for (done = 0; done < n; done += put) {
				put = write(to, buf + done, n - done);
				if (put <= 0) {
					n = -1;
					break;
				}
			}
		}
		if (n <= 0)
			return -1;
		len -= n;
	}
	return 0;
}

int zns_receive_pages(struct cr_img *img, int sk, unsigned long len)
{
	while (len) {
		ssize_t n = splice(sk, NULL, img_raw_fd(img), NULL, len, SPLICE_F_MOVE);

		if (n < 0 && errno == EINTR)
			continue;
		/* the helper has stopped reading; the commit will report why */
		if (n < 0 && errno == EPIPE)
			return -1;
		if (n < 0) {
			pr_perror("Can't take pages from the socket");
			return -1;
		}
		if (!n) {
			pr_err("The sender's socket was closed in the middle of its pages\n");
			return -1;
		}
		len -= n;
	}
	return 0;
}

int zns_write_pages(struct page_xfer *xfer, int p, unsigned long len)
{
	struct zns_img *zi = xfer->pi->zns;
	struct zns_msg m = ZNS_MSG(ZW_PAGES_STREAM);
	int sk[2];

	if (!zi->pages) /* in a page server, the image's descriptor is itself a pipe */
		return zns_pass_on(p, img_raw_fd(xfer->pi), len);
	if (zi->fd < 0) {
		if (pipe2(sk, O_CLOEXEC)) {
			pr_perror("Can't make a pipe for %s", zi->name);
			return -1;
		}
		fcntl(sk[1], F_SETPIPE_SZ, STREAM_PIPE); /* a smaller pipe works, but is slower */
		m.h.image = zi->id;
		m.fd[0] = sk[0];
		m.nr_fd = 1;
		if (zns_send(&m)) {
			zns_pr_err("%s; nothing was committed, run the dump again\n",
				   zns_helper_gone());
			close(sk[0]);
			close(sk[1]);
			return -1;
		}
		close(sk[0]);
		zi->fd = sk[1];
	}
	if (zns_pass_on(p, zi->fd, len)) {
		pr_perror("Can't hand pages of %s to zns-helper", zi->name);
		return -1;
	}
	return 0;
}

/*
 * Waits until the helper has read all memory whose addresses were sent. Only then may the task's
 * mappings change.
 */
int zns_pages_seal(struct zns_img *zi)
{
	struct zns_msg m = ZNS_MSG(ZW_PAGES_SEAL);
	struct zw_reply r;

	if (flush())
		return -1;
	close_safe(&zi->fd); /* closing the pipe ends the image */
	if (zns_live_names_pages())
		return 0;
	m.h.image = zi->id;
	if (zns_ask(&m, &r, NULL)) {
		zns_pr_err("%s\n", r.msg);
		return -1;
	}
	return 0;
}

/* --- restore --- */

#define BATCH_MAX 64
/* a request for memory that is filled several times */
#define BATCH_AGAIN                         \
	{                                   \
		{ -1, -1 }, 0, false, -1, 0 \
	}
/*
 * bytes; a task whose pages image has at least this size is filled after the restorer blob has
 * mapped its areas, and with a userfaultfd (fault_fd()). So the tasks of a tree are filled in
 * parallel, and not one after the other, each before it forks its children. Smaller tasks are
 * filled before that, except as zns_fill_in_pie() says.
 */
#define PIE_BYTES (4UL << 20)
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

/*
 * Makes a userfaultfd of this process, with which the helper fills pages without a page fault for
 * each (zns/task.h). -1: not worth it, or the kernel refuses; the helper then fills pages without
 * it. All processes that have the descriptor close it before the pages are touched.
 */
static int fault_fd(const struct cr_img *img)
{
	/*
	 * If a thread nevertheless touches a missing page, it gets a signal instead of waiting for
	 * ever.
	 */
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_SIGBUS };
	int fd;

	if (img->zns->size < PIE_BYTES)
		return -1;
	fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	if (fd < 0 && errno == EINVAL) /* kernels before Linux 5.11 do not know this flag */
		fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0 && ioctl(fd, UFFDIO_API, &api))
		close_safe(&fd);
	return fd;
}

/*
 * Number of areas that a process has beside the restored ones: criu's own, and those of the
 * restorer blob.
 */
#define OTHER_AREAS 2048

/*
 * Returns how many places may be registered with the userfaultfd. Each splits an area into three
 * until all is filled. If the kernel refuses the second split because the process has too many
 * areas, the first one stays.
 */
static unsigned long cover_room(void)
{
	unsigned long max = 0, has = rsti(current)->vmas.nr + OTHER_AREAS;
	char text[32] = "";
	int fd = open_proc(PROC_GEN, "sys/vm/max_map_count");

	if (fd >= 0 && read(fd, text, sizeof(text) - 1) > 0)
		max = strtoul(text, NULL, 10);
	close_safe(&fd);
	return max > has ? (max - has) / 2 : 0;
}

/* May these areas also be registered with the userfaultfd, within the number of cover_room()? */
static bool batch_covers(struct zns_batch *b, const struct iovec *iov, int nr)
{
	unsigned long wanted = 0;

	for (int i = 0; i < nr && b->uffd >= 0; i++)
		wanted += iov[i].iov_len >= ZW_COVER_MIN;
	if (!wanted || wanted > b->room)
		return false;
	b->room -= wanted;
	return true;
}

static int batch_take(struct zns_batch *b)
{
	struct zw_reply r;

	b->nr--;
	if (zns_recv_reply(b->sk[0], &r, NULL)) {
		zns_pr_err("%s\n", r.msg);
		b->failed = true;
	}
	return r.code;
}

int zns_batch_add(struct zns_batch *b, struct cr_img *img, struct iovec *iov, int nr, off_t off)
{
	struct zns_msg m = ZNS_MSG(ZW_READ);
	struct zw_iov v[ZW_MAX_IOV];
	int i;

	if (b->sk[0] < 0 && zns_answer_socket(b->sk)) {
		pr_perror("Can't make a socket for zns-helper's answers");
		return -1;
	}
	if (b->uffd == -2) {
		b->uffd = fault_fd(img);
		b->room = b->uffd < 0 ? 0 : cover_room();
	}
	/* The helper serves one userfaultfd and one list of addresses per request. */
	if (b->nr == BATCH_MAX && batch_take(b) == -EPIPE)
		return -1;
	for (i = 0; i < nr && i < ZW_MAX_IOV; i++) {
		v[i].base = (uintptr_t)iov[i].iov_base;
		v[i].len = iov[i].iov_len;
	}
	m.h.image = img->zns->id;
	m.h.nr = nr;
	m.h.off = off;
	m.payload = v;
	m.len = nr * sizeof(v[0]);
	m.fd[0] = b->sk[1];
	m.fd[1] = b->uffd;
	m.nr_fd = batch_covers(b, iov, nr) ? 2 : 1;
	if (nr > ZW_MAX_IOV || zns_send(&m)) {
		zns_pr_err("%s; start the restore again\n", zns_helper_gone());
		return -1;
	}
	b->nr++;
	return 0;
}

int zns_batch_wait(struct zns_batch *b)
{
	int ret;

	if (b->sk[0] < 0)
		return 0;
	/*
	 * close our copy: if the helper is gone, it was the last one, and the wait for the answer
	 * ends
	 */
	close(b->sk[1]);
	while (b->nr && batch_take(b) != -EPIPE)
		;
	close(b->sk[0]);
	close_safe(&b->uffd);
	ret = b->failed ? -1 : 0;
	*b = (struct zns_batch)BATCH_AGAIN;
	return ret;
}

static int read_now(struct cr_img *img, void *buf, unsigned long len, off_t off)
{
	struct zns_batch b = BATCH_AGAIN;
	struct iovec iov = { buf, len };
	int ret = zns_batch_add(&b, img, &iov, 1, off);

	return zns_batch_wait(&b) ? -1 : ret;
}

/*
 * Reads for a fault. A task on another host waits for this page, so as little around it is read as
 * can be verified.
 */
static int read_fault(struct cr_img *img, void *buf, unsigned long len, off_t off)
{
	struct zns_msg m = ZNS_MSG(ZW_FETCH);
	struct zw_iov v = { (uintptr_t)buf, len };
	struct zw_reply r;

	m.h.image = img->zns->id;
	m.h.nr = 1;
	m.h.off = off;
	m.h.pad = ZW_FETCH_FAULT;
	m.payload = &v;
	m.len = sizeof(v);
	if (!zns_ask(&m, &r, NULL))
		return 0;
	zns_pr_err("%s\n", r.msg);
	return -1;
}

/*
 * For a forked child criu reads pages one by one and compares them with its parent's (hooks.md,
 * "Restore"). Two windows save a request for each page: while criu takes pages from one window, the
 * helper fills the other with the next pages.
 */
#define WINDOW (1UL << 20)
struct window {
	void *mem;
	off_t off;
	unsigned long len; /* bytes; 0: the window is empty */
	/* the request that fills the window; it has a socket while the helper works on it */
	struct zns_batch coming;
};

struct zns_windows {
	struct window w[2];
	int at; /* index of the window from which criu takes pages */
};

static int window_wait(struct window *w)
{
	int ret = zns_batch_wait(&w->coming);

	if (ret)
		w->len = 0;
	return ret;
}

/* Requests the bytes of a window from @off on, up to the image's end at most. */
static int window_ask(struct window *w, struct cr_img *img, off_t off)
{
	struct iovec iov;

	w->off = off;
	w->len = min_t(unsigned long, WINDOW, img->zns->size - off);
	iov = (struct iovec){ w->mem, w->len };
	if (!zns_batch_add(&w->coming, img, &iov, 1, off))
		return 0;
	window_wait(w);
	w->len = 0;
	return -1;
}

static bool window_has(const struct window *w, off_t off, unsigned long len)
{
	return off >= w->off && off + len <= w->off + w->len;
}

void zns_pages_drop_windows(struct zns_img *zi)
{
	struct zns_windows *ws = zi->windows;

	if (!ws)
		return;
	/* wait: the helper must not write to memory that is freed */
	window_wait(&ws->w[0]);
	window_wait(&ws->w[1]);
	munmap(ws->w[0].mem, 2 * WINDOW);
	xfree(ws);
	zi->windows = NULL;
}

static struct zns_windows *windows_of(struct zns_img *zi)
{
	struct zns_windows *ws = zi->windows;
	void *mem;

	if (ws)
		return ws;
	ws = xzalloc(sizeof(*ws));
	if (!ws)
		return NULL;
	mem = mmap(NULL, 2 * WINDOW, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mem == MAP_FAILED) {
		pr_perror("No memory for pages on their way");
		xfree(ws);
		return NULL;
	}
	ws->w[0] = (struct window){ .mem = mem, .coming = BATCH_AGAIN };
	ws->w[1] = (struct window){ .mem = mem + WINDOW, .coming = BATCH_AGAIN };
	return zi->windows = ws;
}

/* Makes the other window, which must contain @off, the current one. */
static int windows_turn(struct zns_windows *ws, struct cr_img *img, off_t off, unsigned long len)
{
	struct window *old = &ws->w[ws->at], *new = &ws->w[!ws->at];

	if (window_wait(new))
		return -1;
	if (!window_has(new, off, len) && (window_ask(new, img, off) || window_wait(new)))
		return -1;
	ws->at = !ws->at;
	if (new->off + new->len < img->zns->size)
		return window_ask(old, img, new->off + new->len);
	return 0;
}

int zns_pread(struct cr_img *img, void *buf, unsigned long len, off_t off)
{
	struct zns_windows *ws;

	if (zns_session.serves && len == PAGE_SIZE)
		return read_fault(img, buf, len, off);
	/*
	 * no windows for memory that is filled on demand: its pages are requested in any order, and
	 * the helper's own cache has their neighbours
	 */
	if (len > WINDOW / 16 || off >= img->zns->size || opts.mode == CR_LAZY_PAGES ||
	    zns_session.serves)
		return read_now(img, buf, len, off);
	if (off + len > img->zns->size) {
		pr_err("%s ends before the pages it should hold\n", img->zns->name);
		return -1;
	}
	ws = windows_of(img->zns);
	if (!ws || (!window_has(&ws->w[ws->at], off, len) && windows_turn(ws, img, off, len)))
		return -1;
	memcpy(buf, ws->w[ws->at].mem + (off - ws->w[ws->at].off), len);
	return 0;
}

bool zns_vma_is_empty(struct page_read *pr, unsigned long start, unsigned long end)
{
	int lo = 0, hi = pr->nr_pmes;

	if (!pr->pi || !pr->pi->zns)
		return false;
	/*
	 * Finds the first entry that ends behind @start. The entries are sorted and do not overlap.
	 */
	while (lo < hi) {
		int mid = lo + (hi - lo) / 2;

		if (pr->pmes[mid]->vaddr + pagemap_len(pr->pmes[mid]) <= start)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo == pr->nr_pmes || pr->pmes[lo]->vaddr >= end;
}

/*
 * bytes; mapping an area, filling it and moving it costs more than filling a few pages. So if an
 * image has more than 64 pagemap entries, with fewer bytes than this on average, the blob maps all
 * areas in place, and the helper then writes the pages there.
 */
#define PIE_ENTRY (64UL << 10)

bool zns_fill_in_pie(struct page_read *pr)
{
	if (!pr->pi->zns || pr->pi->zns->size >= PIE_BYTES)
		return true;
	return pr->nr_pmes > 64 && pr->pi->zns->size / pr->nr_pmes < PIE_ENTRY;
}

/*
 * Lists the places that the helper is to fill for the blob. Returns a memfd, or -1 after an error
 * message.
 */
static int list_places(struct task_restore_args *ta, uint32_t *nr)
{
	struct restore_vma_io *rio = rst_mem_remap_ptr((unsigned long)ta->vma_ios, RM_PRIVATE),
			      *r = rio;
	struct zw_place *v, *at;
	size_t max = 0;
	int fd, i, j;

	for (i = 0; i < ta->vma_ios_n; i++, r = (void *)r + RIO_SIZE(r->nr_iovs))
		max += r->nr_iovs;
	fd = zns_memfd("zns-places");
	if (fd < 0 || ftruncate(fd, max * sizeof(*v))) {
		pr_perror("No memory for a list of %zu areas", max);
		close_safe(&fd);
		return -1;
	}
	v = at = mmap(NULL, max * sizeof(*v), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (v == MAP_FAILED) {
		pr_perror("No memory for a list of %zu areas", max);
		close(fd);
		return -1;
	}
	for (i = 0, r = rio; i < ta->vma_ios_n; i++, r = (void *)r + RIO_SIZE(r->nr_iovs)) {
		unsigned long off = r->off;

		for (j = 0; j < r->nr_iovs; off += r->iovs[j++].iov_len)
			*at++ = (struct zw_place){ off, (uintptr_t)r->iovs[j].iov_base,
						   r->iovs[j].iov_len };
	}
	munmap(v, max * sizeof(*v));
	*nr = max;
	return fd;
}

int zns_fill_begin(struct cr_img *img, struct task_restore_args *ta)
{
	struct zns_msg m = ZNS_MSG(ZW_FILL);
	struct zw_reply r;
	int fd = list_places(ta, &m.h.nr), uffd;

	if (fd < 0)
		return -1;
	uffd = fault_fd(img);
	m.h.image = img->zns->id;
	m.h.off = uffd < 0 ? 0 : cover_room();
	m.fd[0] = fd;
	m.fd[1] = uffd;
	m.nr_fd = uffd < 0 ? 1 : 2;
	ta->zns_fill = zns_ask_begin(&m, &r);
	close(fd);
	close_safe(&uffd);
	if (ta->zns_fill < 0)
		zns_pr_err("%s\n", r.msg);
	ta->vma_ios_n = 0;
	ta->vma_ios_fd = -1;
	return ta->zns_fill < 0 ? -1 : 0;
}
