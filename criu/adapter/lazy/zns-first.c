/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The pages that tasks touch first after a lazy restore (--zns-record). A restore that records them
 * fetches nothing in the background, so every first touch is a fault, and the helper writes it
 * down. The next lazy restore fetches these pages before its tasks run: `criu restore` waits for
 * that.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/list.h"
#include "cr_options.h"
#include "image.h"
#include "log.h"
#include "page.h"
#include "pagemap.h"
#include "util.h"
#include "xmalloc.h"
#include "zns-awake.h"
#include "zns-extend.h"
#include "zns-img.h"
#include "zns-lazy.h"
#include "zns-link.h"
#include "zns-opts.h"
#include "zns-pages.h"
#include "zns-state.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

/* The restored tasks run after this time, even if some of their first pages are missing. */
#define WAIT_MS 1000
/* The lazy-pages daemon keeps CPUs awake for this long after the tasks began to run, since each
 * fault wakes three processes. It stops then, because fetching all pages may take hours. */
#define AWAKE_MS 10000

struct range { /* addresses of the image; end > start */
	unsigned long start, end;
};

struct process {
	struct list_head l;
	struct page_read *pr;
	struct range *v;
	unsigned long nr, at; /* at: index of the next range to fetch */
};

static LIST_HEAD(processes);

static struct {
	struct zw_first *v; /* the helper's answer, in a mapped memfd */
	unsigned long nr, pages; /* nr: entries of v; pages: pages in the ranges of all processes */
	/* CLOCK_MONOTONIC, when the restore was ready to start its tasks; 0: not yet */
	unsigned long long since_us;
	int waiter; /* socket of the restore that waits for its first pages, or -1 */
	int asked; /* socket on which the helper answers about the record, or -1 */
	bool recorded;
} first = { .waiter = -1, .asked = -1 };

int zns_first_begin(void)
{
	struct zns_msg m = ZNS_MSG(ZW_FIRST);
	struct zw_reply r;
	int fd = -1;

	if (zns_record_off || zns_opts.record)
		return 0;
	if (zns_ask(&m, &r, &fd)) {
		zns_pr_err("%s\n", r.msg);
		return -1;
	}
	if (r.warn)
		pr_warn("%s\n", r.msg);
	if (fd < 0)
		return 0;
	if (r.size >= sizeof(*first.v)) {
		first.v = mmap(NULL, r.size, PROT_READ, MAP_PRIVATE, fd, 0);
		first.nr = r.size / sizeof(*first.v);
	}
	close(fd);
	if (first.v == MAP_FAILED) {
		pr_perror("No memory for the list of first pages");
		first.v = NULL;
		return -1;
	}
	return 0;
}

/* ---- from offsets in the image to addresses ---- */

unsigned long *zns_entry_offsets(struct page_read *pr)
{
	unsigned long *off = xmalloc((pr->nr_pmes + 1) * sizeof(*off)), at = 0;
	int i;

	for (i = 0; off && i < pr->nr_pmes; i++) {
		off[i] = at;
		at += pagemap_present(pr->pmes[i]) ? pagemap_len(pr->pmes[i]) : 0;
	}
	if (off)
		off[i] = at;
	return off;
}

/* Index of the last entry that is not empty and begins at or before offset @at. */
static int entry_at(const unsigned long *off, int nr, unsigned long at)
{
	int low = 0, high = nr;

	while (high - low > 1) {
		int mid = low + (high - low) / 2;

		if (off[mid] <= at)
			low = mid;
		else
			high = mid;
	}
	return low;
}

static int add_range(struct process *p, unsigned long start, unsigned long len, unsigned long *room)
{
	struct range *v;

	if (p->nr == *room) {
		*room = *room ? 2 * *room : 256;
		v = xrealloc(p->v, *room * sizeof(*v));
		if (!v)
			return -1;
		p->v = v;
	}
	p->v[p->nr++] = (struct range){ start, start + len };
	first.pages += len / PAGE_SIZE;
	return 0;
}

/* Adds the addresses of a part of the image. Several neighbouring entries of the pagemap may
 * share it. */
static int add_part(struct process *p, const unsigned long *off, unsigned long at,
		    unsigned long len, unsigned long *room)
{
	struct page_read *pr = p->pr;
	unsigned long end = min(at + len, off[pr->nr_pmes]), part;
	int i;

	for (; at < end; at += part) {
		i = entry_at(off, pr->nr_pmes, at);
		part = min(end, off[i + 1]) - at;
		if (!part || !pagemap_present(pr->pmes[i]))
			return 0;
		if (add_range(p, pr->pmes[i]->vaddr + (at - off[i]), part, room))
			return -1;
	}
	return 0;
}

int zns_lazy_open(struct page_read *pr)
{
	unsigned long n, room = 0, *off = NULL;
	struct process *p;
	int ret = 0;

	if (!zns_lazy_on() || !first.nr || !pr->pi || !pr->pi->zns)
		return 0;
	p = xzalloc(sizeof(*p));
	off = zns_entry_offsets(pr);
	if (!p || !off) {
		xfree(p);
		xfree(off);
		return -1;
	}
	p->pr = pr;
	for (n = 0; n < first.nr && !ret; n++)
		if (first.v[n].image == pr->pi->zns->id)
			ret = add_part(p, off, first.v[n].off, first.v[n].len, &room);
	xfree(off);
	list_add_tail(&p->l, &processes);
	return ret;
}

/* ---- which pages come next ---- */

static struct process *find(struct page_read *pr)
{
	struct process *p;

	list_for_each_entry(p, &processes, l)
		if (p->pr == pr)
			return p;
	return NULL;
}

bool zns_first_left(struct page_read *pr)
{
	struct process *p = find(pr);

	return p && p->at < p->nr;
}

bool zns_first_any(void)
{
	struct process *p;

	list_for_each_entry(p, &processes, l)
		if (p->at < p->nr)
			return true;
	return false;
}

bool zns_lazy_first(struct page_read *pr, unsigned long *start, unsigned long *end)
{
	struct process *p = find(pr);

	if (!p || p->at == p->nr)
		return false;
	*start = p->v[p->at].start;
	*end = p->v[p->at].end;
	return true;
}

void zns_lazy_first_to(struct page_read *pr, unsigned long to)
{
	struct process *p = find(pr);

	p->v[p->at].start = to;
	if (p->v[p->at].start >= p->v[p->at].end)
		p->at++;
}

void zns_first_forget(struct page_read *pr)
{
	struct process *p = find(pr);

	if (!p)
		return;
	list_del(&p->l);
	xfree(p->v);
	xfree(p);
}

/* ---- the restore that waits for its first pages ---- */

static void tell(void)
{
	char byte = 0;

	if (send(first.waiter, &byte, sizeof(byte), MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
	    errno != EPIPE)
		pr_pwarn("Can't tell the restore how far its pages are");
}

static void let_run(void)
{
	tell();
	close_safe(&first.waiter);
}

/* Ends the daemon. The restore sees its socket closed, and fails together with its tasks. */
static void give_up(void)
{
	zns_extend_tell(false);
	exit(1);
}

void zns_lazy_finished(int sk)
{
	first.since_us = zns_now_us();
	first.waiter = dup(sk);
	if (zns_active() && !zns_extends())
		zns_cpus_awake(AWAKE_MS);
	if (!zns_extends())
		tell(); /* the holder (zns-holder.c) has all userfaultfds */
	else if (zns_extend_listen(sk))
		give_up();
	if (!zns_lazy_on()) /* the pages come from a page server */
		let_run();
}

void zns_first_check(unsigned int under_way)
{
	if (first.waiter < 0 || under_way || zns_first_any())
		return;
	if (first.nr)
		pr_info("%lu first pages in place after %llu us\n", first.pages,
			zns_now_us() - first.since_us);
	if (!zns_extends()) {
		let_run();
	} else if (zns_extend_hand()) {
		give_up();
	} else {
		close_safe(&first.waiter);
		zns_extend_tell(true);
	}
}

static int hear(int sk)
{
	char byte;
	ssize_t n;

	do {
		n = recv(sk, &byte, sizeof(byte), 0);
	} while (n < 0 && errno == EINTR);
	if (n == 1)
		return 0;
	pr_err("The lazy-pages daemon died; its log may say why\n");
	return -1;
}

int zns_lazy_wait(int sk)
{
	struct pollfd p = { .fd = sk, .events = POLLIN };
	char go;

	if (zns_extends())
		return zns_extend_wait(sk);

	/* If the daemon died before it received a task's userfaultfd, nothing would keep the
	 * kernel from giving that task zeroes. So the tasks run only after the daemon has said
	 * that it has all of them. */
	pr_debug("Waiting for the lazy-pages daemon\n");
	if (hear(sk))
		return -1;
	if (zns_active() && !poll(&p, 1, WAIT_MS))
		pr_info("The tasks run before all of their first pages are there\n");
	else if (zns_active() && hear(sk))
		return -1;
	/* The daemon would see ECONNRESET if this socket were closed with unread bytes in it. */
	shutdown(sk, SHUT_RD);
	while (recv(sk, &go, sizeof(go), MSG_DONTWAIT) > 0)
		;
	return 0;
}

/* ---- recording ---- */

static void record(void)
{
	struct zns_msg m = ZNS_MSG(ZW_FIRST);
	struct zw_reply r;

	first.recorded = true;
	first.asked = zns_ask_begin(&m, &r);
	if (first.asked < 0)
		pr_warn("%s\n", r.msg);
}

int zns_first_recording_ms(void)
{
	unsigned long long now, end;

	if (!zns_opts.record || first.recorded)
		return 0;
	if (!first.since_us)
		return zns_record_s * 1000;
	now = zns_now_us();
	end = first.since_us + zns_record_s * 1000000ull;
	if (now < end)
		return (end - now) / 1000 + 1;
	record();
	return 0;
}

void zns_first_end(void)
{
	struct zw_reply r;

	if (zns_opts.record && !first.recorded && first.since_us)
		record();
	if (first.asked < 0)
		return;
	if (zns_recv_reply(first.asked, &r, NULL))
		pr_warn("%s\n", r.msg);
	else
		pr_info("%s\n", r.msg);
	close_safe(&first.asked);
}
