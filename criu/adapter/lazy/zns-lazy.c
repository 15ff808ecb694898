/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How the lazy-pages daemon reads from zones. The helper serves many reads at a time, and copies
 * their pages into the tasks. Its answers arrive through the daemon's epoll loop, so the daemon can
 * handle a fault while other pages are being read. Only the daemon reads the tasks' userfaultfd
 * events. The gate (zns-gate.h) keeps the helper from copying to addresses that a task has
 * unmapped, moved or discarded since the read was requested.
 */
#include <errno.h>
#include <linux/userfaultfd.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "cr_options.h"
#include "image.h"
#include "log.h"
#include "page.h"
#include "pagemap.h"
#include "servicefd.h"
#include "util.h"
#include "zns-awake.h"
#include "zns-extend.h"
#include "zns-gate.h"
#include "zns-img.h"
#include "zns-lazy.h"
#include "zns-link.h"
#include "zns-memfd.h"
#include "zns-pages.h"
#include "zns-state.h"
#include "zns-window.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

#define PIECE ((unsigned long)ZW_WINDOW_MOST)
#define LEN (512UL << 10) /* bytes of a background read: a stripe unit of the default size */
/*
 * bytes of a background read while tasks fault; short, since a fault has to wait for the read
 * before it
 */
#define LEN_BUSY (128UL << 10)
/* How many reads may be under way at once: BIG in the background (enough to keep the device and
 * the hashing busy), SMALL for faults, FIRST for pages that are fetched before the tasks run. */
#define BIG 16
#define SMALL 64
#define FIRST 32
/* us; after this long without a fault the background reads at its full rate */
#define QUIET_US 1000
/* Even while first touches are recorded the background reads one piece this often: only a copy
 * that fails shows that a task has ended. */
#define PROBE_MS 500

enum class { BACKGROUND, FAULT, FIRSTS, CLASSES };

static const struct {
	unsigned int from, to; /* reads of this class use these indices of lazy.read */
	unsigned long len;
	enum zw_fetch fetch;
} class[CLASSES] = {
	[BACKGROUND] = { 0, BIG, LEN, ZW_FETCH_BACKGROUND },
	[FAULT] = { BIG, BIG + SMALL, PIECE, ZW_FETCH_FAULT },
	[FIRSTS] = { BIG + SMALL, BIG + SMALL + FIRST, LEN, ZW_FETCH_FIRST },
};
#define READS (BIG + SMALL + FIRST)
_Static_assert(READS == ZW_LAZY_READS, "the gate has a place for each read");

struct read {
	struct page_read *pr; /* NULL: the process has ended, and the answer is ignored */
	/* the first page's address in the image, and the number of pages */
	unsigned long vaddr, nr;
	unsigned long to; /* the address in the task when the read was requested */
	bool used;
};

static struct {
	enum class next;
	bool asked, paced; /* in this round of the loop: a read was requested; a read was delayed */
	/* two pairs of sockets, so that answers to faults do not wait behind other answers */
	int sk[2], fault_sk[2];
	struct zw_gate *gate;
	bool shut;
	int uffd; /* userfaultfd for the next read */
	unsigned long to; /* the address in the task for the next read */
	enum zw_fetched fetched; /* result of the read whose answer is being handled */
	struct read read[READS];
	unsigned int nr[CLASSES]; /* number of reads under way, by class */
	unsigned long faults;
	/* time of the last fault and of the last background read */
	unsigned long long fault_us, asked_us;
	struct zw_windows windows; /* read-ahead windows of faults */
	struct epoll_rfd answers, fault_answers, helper;
} lazy;

static enum class class_of(unsigned int n) {
	return n < class[BACKGROUND].to ? BACKGROUND :
	       n < class[FAULT].to      ? FAULT :
					  FIRSTS;
}

bool zns_lazy_lacks(void)
{
	return lazy.fetched == ZW_FETCH_LACKS;
}

bool zns_lazy_gone(void)
{
	return lazy.fetched == ZW_FETCH_GONE;
}

void zns_lazy_again(int uffd, unsigned long start, unsigned long end)
{
	struct uffdio_range r = { .start = start, .len = end - start };

	/* the threads touch the page again, which makes a new fault */
	ioctl(uffd, UFFDIO_WAKE, &r);
}

void zns_lazy_to(int uffd, unsigned long to)
{
	lazy.uffd = uffd;
	lazy.to = to;
}

/* Handles one answer. If pages could not be copied, io_complete() requests them again. */
static int take(int sk)
{
	struct page_read *pr;
	struct zw_reply r;
	struct read *rd;

	if (zns_recv_reply(sk, &r, NULL)) {
		zns_pr_err("%s\n", r.msg);
		return -1;
	}
	if (r.image >= READS || !lazy.read[r.image].used) {
		pr_err("zns-helper answered what nobody asked\n");
		return -1;
	}
	rd = &lazy.read[r.image];
	rd->used = false;
	lazy.nr[class_of(r.image)]--;
	pr = rd->pr;
	if (!pr)
		return 0;
	lazy.fetched = r.kind;
	/* a pager will take over, and must know the state of every page, so this is an error */
	if (zns_lazy_lacks() && zns_extends()) {
		pr_err("A task has changed its memory before it was restored\n");
		return -1;
	}
	return pr->io_complete(pr, rd->vaddr, rd->nr);
}

static int answer_event(struct epoll_rfd *rfd)
{
	return take(rfd->fd) ? -1 : 1; /* 1: the epoll loop will request the next read */
}

/*
 * Called when the socket becomes readable. The helper never sends on it, so this means that the
 * helper has ended.
 */
static int helper_event(struct epoll_rfd *rfd)
{
	zns_pr_err("%s; the restored tasks lack pages\n", zns_helper_gone());
	return -1;
}

static int make_gate(void)
{
	struct zns_msg m = ZNS_MSG(ZW_GATE);
	struct zw_reply r;
	void *mem = MAP_FAILED;
	int fd = zns_memfd("zns-gate"), ret;

	if (fd >= 0 && !ftruncate(fd, sizeof(*lazy.gate)))
		mem = mmap(NULL, sizeof(*lazy.gate), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mem == MAP_FAILED) {
		pr_perror("No memory for lazy reads");
		close_safe(&fd);
		return -1;
	}
	lazy.gate = mem;
	m.fd[0] = fd;
	m.nr_fd = 1;
	ret = zns_ask(&m, &r, NULL);
	close(fd);
	if (ret)
		zns_pr_err("%s\n", r.msg);
	return ret ? -1 : 0;
}

int zns_lazy_begin(int epollfd, int (*give)(bool now))
{
	if (zns_holder_begin(epollfd))
		return -1;
	if (!zns_active() || opts.use_page_server)
		return 0;
	if (make_gate())
		return -1;
	if (zns_answer_socket(lazy.sk) || zns_answer_socket(lazy.fault_sk)) {
		pr_perror("Can't make a socket for zns-helper's answers");
		return -1;
	}
	lazy.answers = (struct epoll_rfd){ .fd = lazy.sk[0], .read_event = answer_event };
	lazy.fault_answers = (struct epoll_rfd){ .fd = lazy.fault_sk[0],
						 .read_event = answer_event };
	lazy.helper = (struct epoll_rfd){ .fd = get_service_fd(ZNS_SK_OFF),
					  .read_event = helper_event,
					  .hangup_event = helper_event };
	if (epoll_add_rfd(epollfd, &lazy.fault_answers) || epoll_add_rfd(epollfd, &lazy.answers) ||
	    epoll_add_rfd(epollfd, &lazy.helper))
		return -1;
	zns_session.lazy = true;
	return zns_first_begin() || (zns_extends() && zns_extend_start(give)) ? -1 : 0;
}

static int free_read(enum class c)
{
	unsigned int n = class[c].from;

	while (n < class[c].to && lazy.read[n].used)
		n++;
	return n < class[c].to ? (int)n : -1;
}

int zns_lazy_read(struct page_read *pr, unsigned long vaddr, unsigned long nr)
{
	struct zns_msg m = ZNS_MSG(ZW_FETCH);
	enum class c = lazy.next;
	int *sk = c == FAULT ? lazy.fault_sk : lazy.sk;
	struct zw_iov v;
	int n;

	lazy.next = BACKGROUND;
	while ((n = free_read(c)) < 0)
		if (take(sk[0]))
			return -1;
	v.base = lazy.to;
	v.len = nr * PAGE_SIZE;
	if (v.len > class[c].len) {
		pr_err("A read of %lu pages is more than was allowed\n", nr);
		return -1;
	}
	m.h.image = pr->pi->zns->id;
	m.h.off = pr->pi_off;
	m.h.nr = 1;
	m.h.pid = n;
	m.h.pad = class[c].fetch;
	m.payload = &v;
	m.len = sizeof(v);
	m.fd[0] = sk[1];
	m.fd[1] = lazy.uffd;
	m.nr_fd = 2;
	__atomic_store_n(&lazy.gate->stale[n], 0, __ATOMIC_SEQ_CST);
	if (zns_send(&m)) {
		zns_pr_err("%s; the restored tasks lack pages\n", zns_helper_gone());
		return -1;
	}
	lazy.read[n] = (struct read){ pr, vaddr, nr, lazy.to, true };
	lazy.nr[c]++;
	return 0;
}

void zns_lazy_forget(struct page_read *pr)
{
	unsigned int n;

	for (n = 0; n < READS; n++)
		if (lazy.read[n].pr == pr)
			lazy.read[n].pr = NULL;
	zns_first_forget(pr);
}

/* ---- events ---- */

/*
 * Marks reads into [start, start + len) as stale: the task has changed its memory there, or is
 * about to.
 */
static void stale(struct page_read *pr, unsigned long start, unsigned long len)
{
	unsigned int n;

	for (n = 0; n < READS; n++) {
		const struct read *r = &lazy.read[n];

		if (r->used && r->pr == pr && r->to < start + len &&
		    start < r->to + r->nr * PAGE_SIZE)
			__atomic_store_n(&lazy.gate->stale[n], 1, __ATOMIC_SEQ_CST);
	}
}

ssize_t zns_uffd_read(int uffd, struct uffd_msg *msg, struct page_read *pr)
{
	ssize_t n;
	int saved;

	if (!zns_session.lazy)
		return read(uffd, msg, sizeof(*msg));
	lazy.shut = true;
	if (!zw_gate_shut(lazy.gate, get_service_fd(ZNS_SK_OFF))) {
		zns_pr_err("%s; the restored tasks lack pages\n", zns_helper_gone());
		errno = EPIPE;
		return -1;
	}
	n = read(uffd, msg, sizeof(*msg));
	saved = errno;
	if (n == sizeof(*msg) &&
	    (msg->event == UFFD_EVENT_REMOVE || msg->event == UFFD_EVENT_UNMAP)) {
		stale(pr, msg->arg.remove.start, msg->arg.remove.end - msg->arg.remove.start);
	} else if (n == sizeof(*msg) && msg->event == UFFD_EVENT_REMAP) {
		stale(pr, msg->arg.remap.from, msg->arg.remap.len);
		stale(pr, msg->arg.remap.to, msg->arg.remap.len);
	} else if (n != sizeof(*msg) || msg->event == UFFD_EVENT_PAGEFAULT) {
		/*
		 * No address has changed, so open the gate. A read of this loop may wait for
		 * another one, which needs an open gate.
		 */
		zns_uffd_done();
	}
	errno = saved;
	return n;
}

void zns_uffd_done(void)
{
	if (!lazy.shut)
		return;
	lazy.shut = false;
	zw_gate_open(lazy.gate);
}

/* ---- when to read ---- */

static bool quiet(unsigned long long now)
{
	return now - lazy.fault_us >= QUIET_US;
}

unsigned long zns_lazy_fault(off_t off)
{
	lazy.next = FAULT;
	lazy.faults++;
	lazy.fault_us = zns_now_us();
	/* recording: one piece per fault, so that the record names each one */
	return zns_first_recording_ms() ? PIECE - off % PIECE : zw_window(&lazy.windows, off);
}

unsigned long zns_lazy_len(off_t off)
{
	unsigned long len = zns_first_recording_ms() ? PIECE : quiet(zns_now_us()) ? LEN : LEN_BUSY;

	return len - off % len;
}

static unsigned int under_way(void)
{
	return lazy.nr[BACKGROUND] + lazy.nr[FAULT] + lazy.nr[FIRSTS];
}

/* May the background read now? Faults have the device first: between them the background gets
 * one piece now and then. First pages, for which the restore waits, are read without such a
 * pause. */
bool zns_lazy_turn(struct page_read *pr, bool stock)
{
	unsigned long long now;

	if (!zns_session.lazy)
		return lazy.asked = stock;
	now = zns_now_us();
	if (zns_first_recording_ms()) {
		if (under_way() || now - lazy.asked_us < PROBE_MS * 1000)
			return false;
		lazy.asked_us = now;
		return lazy.asked = true;
	}
	if (zns_first_any()) {
		if (!zns_first_left(pr) || lazy.nr[FIRSTS] == FIRST)
			return false;
		lazy.next = FIRSTS;
		return lazy.asked = true;
	}
	if (zns_extends()) /* the pager fetches the other pages */
		return false;
	if (quiet(now) ? lazy.nr[BACKGROUND] == BIG :
			 under_way() || now - lazy.asked_us < QUIET_US) {
		lazy.paced = true;
		return false;
	}
	lazy.asked_us = now;
	return lazy.asked = true;
}

static int timeout(int stock)
{
	bool asked = lazy.asked, paced = lazy.paced;
	int recording;

	lazy.asked = lazy.paced = false;
	if (zns_session.lazy)
		zns_first_check(zns_extends() ? under_way() : lazy.nr[FIRSTS]);
	if (stock || asked)
		return stock;
	/* the page server has all requests, so only its answers matter now */
	if (!zns_session.lazy)
		return opts.use_page_server ? -1 : stock;
	recording = zns_first_recording_ms();
	if (recording)
		return min(recording, PROBE_MS);
	if (paced && lazy.nr[BACKGROUND] < BIG)
		return 1; /* ms */
	return under_way() ? -1 : stock;
}

int zns_lazy_timeout(int stock)
{
	return zns_cpus_timeout(timeout(stock));
}

void zns_lazy_end(int ret)
{
	if (!zns_session.lazy)
		return;
	if (!ret) /* the restore waits for this message even if there are no first pages */
		zns_first_check(0);
	zns_first_end();
	pr_info("%lu reads for faults\n", lazy.faults);
}
