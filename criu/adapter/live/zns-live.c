/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Live dumps: the helper copies memory while the tasks run, and only the rest during the freeze.
 * See include/zns-img.h and Documentation/inside/live.md.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cr_options.h"
#include "image.h"
#include "kerndat.h"
#include "log.h"
#include "mem.h"
#include "mman.h"
#include "page-xfer.h"
#include "page.h"
#include "pagemap-cache.h"
#include "pstree.h"
#include "shmem.h"
#include "stats.h"
#include "util.h"
#include "vma.h"
#include "zns-guard.h"
#include "zns-img.h"
#include "zns-link.h"
#include "zns-live.h"
#include "zns-memfd.h"
#include "zns-opts.h"
#include "zns-pages.h"
#include "zns-proc.h"
#include "zns-send.h"
#include "zns-state.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

static bool tracks; /* the helper tracks written pages, which it also does without --zns-live */
static bool reads_smaps; /* the helper has read lines and flags of smaps, so criu need not */
static pid_t guards_due; /* the task for which guard pages still have to be looked for; 0: none */
/* the images that are being written belong to a task whose pages the helper has */
static bool names_pages;

/*
 * Requests to the helper whose answers are awaited later: the helper works on them while criu does
 * other things for the same task or the one before it. PID 0: no request is under way.
 */
struct ahead {
	pid_t pid;
	int sk; /* -1: the request failed, and @r has the error */
	struct zw_reply r;
};
static struct ahead smaps_ahead, final_ahead;

static bool is_live(void)
{
	return (zns_opts.live & ZW_LIVE_ON || tracks || zns_mem_begun()) &&
	       zns_session.state == ZNS_DUMP && !zns_session.receiving;
}

bool zns_tracks_memory(void)
{
	return (zns_opts_given || opts.use_page_server) && !opts.lazy_pages;
}

bool zns_live_names_pages(void)
{
	return names_pages;
}

int zns_live_check(bool pre_dump)
{
	const char *with = pre_dump ? "pre-dump" : opts.lazy_pages ? "--lazy-pages" : NULL;

	if (!(zns_opts.live & ZW_LIVE_ON) || !with)
		return 0;
	pr_err("--zns-live does not work with %s: leave out one of them\n", with);
	return -1;
}

void zns_live_offer(bool pre_dump)
{
	zns_opts.live &= ZW_LIVE_SAID | ZW_LIVE_ON | ZW_LIVE_AUTO | ZW_LIVE_SLOW_FAILS;
	if (pre_dump || opts.lazy_pages)
		return;
	zns_opts.live |= ZW_LIVE_CAN;
	if (opts.final_state == TASK_ALIVE)
		zns_opts.live |= ZW_LIVE_RUNS_ON;
}

void zns_live_decided(const struct zw_reply *r)
{
	bool live = r->kind == ZW_KIND_LIVE || r->kind == ZW_KIND_DURABLE;

	/*
	 * a script that runs after the dump must find a checkpoint, unless the user has chosen
	 * otherwise
	 */
	if (live && !(zns_opts.live & ZW_LIVE_ON))
		zns_live_durable = r->kind == ZW_KIND_DURABLE || (zns_scripts && !zns_over_rpc);
	zns_opts.live &= ~ZW_LIVE_ON;
	if (live)
		zns_opts.live |= ZW_LIVE_ON;
}

int zns_live_rounds(bool pre_dump)
{
	struct zns_msg m = ZNS_MSG(ZW_LIVE_ROUNDS);
	bool track = opts.track_mem && zns_session.state == ZNS_DUMP && !opts.lazy_pages;
	struct zw_reply r;

	if (!is_live() && !track)
		return 0;
	m.h.nr |= zns_opts.live & ZW_LIVE_ON || pre_dump ? ZW_ROUNDS_COPY : 0;
	m.h.nr |= zns_live_commits_late() || pre_dump ? ZW_ROUNDS_SMAPS : 0;
	m.h.nr |= track ? ZW_ROUNDS_TRACK : 0;
	m.h.nr |= track && (pre_dump || opts.final_state != TASK_DEAD) ? ZW_ROUNDS_KEEP : 0;
	if (zns_ask(&m, &r, NULL)) {
		zns_pr_err("%s\n", r.msg);
		return -1;
	}
	tracks = track && r.kind == ZW_KIND_PAGES;
	reads_smaps = m.h.nr & ZW_ROUNDS_SMAPS && r.kind == ZW_KIND_PAGES;
	if (track && !tracks && kdat.has_dirty_track && !(zns_opts.live & ZW_LIVE_ON))
		return 0; /* return 0: criu itself refuses this later */
	if (pre_dump && !tracks && !kdat.has_dirty_track) {
		pr_err("pre-dump needs a kernel that tracks changed memory, and this one does not: make a full dump (criu dump); "
		       "%s\n",
		       r.msg);
		return -1;
	}
	if (r.warn)
		pr_warn("%s\n", r.msg);
	else
		pr_info("%s\n", r.msg);
	return 0;
}

/*
 * Does the commit follow the thaw? Not if the tasks are killed after the dump: then the checkpoint
 * must be durable first.
 */
bool zns_live_commits_late(void)
{
	return zns_opts.live & ZW_LIVE_ON && is_live() && !zns_live_durable &&
	       opts.final_state == TASK_ALIVE;
}

static void ask_ahead(struct ahead *a, struct zns_msg *m)
{
	a->pid = m->h.pid;
	a->sk = zns_ask_begin(m, &a->r);
}

static int take_ahead(struct ahead *a, int *fd)
{
	*fd = -1;
	if (a->sk >= 0)
		zns_recv_reply(a->sk, &a->r, fd);
	close_safe(&a->sk);
	a->pid = 0;
	return a->r.code;
}

static void ask_smaps(pid_t pid)
{
	struct zns_msg m = ZNS_MSG(ZW_LIVE_SMAPS);

	m.h.pid = pid;
	ask_ahead(&smaps_ahead, &m);
}

/*
 * Requests the areas of the next task in advance: all tasks are frozen, so they do not change while
 * criu works on this task.
 */
static void ask_next_smaps(pid_t pid)
{
	struct pstree_item *item = pstree_item_by_real(pid);

	do
		item = item ? pstree_item_next(item) : NULL;
	while (item && item->pid->state == TASK_DEAD);
	if (item)
		ask_smaps(item->pid->real);
}

int zns_open_smaps(pid_t pid)
{
	int fd = -1;

	if (reads_smaps) {
		if (smaps_ahead.pid && smaps_ahead.pid != pid) {
			take_ahead(&smaps_ahead, &fd);
			close_safe(&fd);
		}
		if (!smaps_ahead.pid)
			ask_smaps(pid);
		if (take_ahead(&smaps_ahead, &fd)) {
			zns_pr_err("%s\n", smaps_ahead.r.msg);
			return -1;
		}
		ask_next_smaps(pid);
	}
	return fd >= 0 ? fd : zns_read_smaps(pid);
}

bool zns_guards_later(pid_t pid)
{
	if ((!is_live() && !zns_sends()) || guards_due == pid)
		return false;
	guards_due = pid;
	return true;
}

/*
 * Adds guard pages to the task's areas. @fd: a list that the helper has made; -1: none, look for
 * them.
 */
static int list_guards(pid_t pid, struct vm_area_list *vmas, int fd)
{
	struct zw_iov v;
	int ret = 0;

	if (guards_due != pid) /* in a pre-dump nobody needs them */
		return 0;
	if (fd < 0)
		ret = collect_madv_guards(pid, vmas);
	for (off_t off = 0; fd >= 0 && !ret && pread(fd, &v, sizeof(v), off) == sizeof(v);
	     off += sizeof(v)) {
		struct vma_area *vma = alloc_vma_area();

		if (!vma)
			return -1;
		vma->e->start = v.base;
		vma->e->end = v.base + v.len;
		vma->e->status = VMA_AREA_GUARD;
		list_add_tail(&vma->list, &vmas->h);
		vmas->nr++;
	}
	guards_due = 0;
	return ret;
}

static int by_address(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/*
 * Makes a bitmap of the pages that contain threads' stacks: a lazy restore fetches them before it
 * lets the threads run.
 */
static uint64_t *stack_pages(struct pstree_item *item)
{
	uint64_t *page = xmalloc((item->nr_threads + 1) * sizeof(*page));
	int i;

	for (i = 0; page && i < item->nr_threads; i++)
		page[i] = dmpi(item)->thread_sp[i] & PAGE_MASK;
	if (page) {
		page[i] = UINT64_MAX;
		qsort(page, item->nr_threads, sizeof(*page), by_address);
	}
	return page;
}

/*
 * Lists an area that may be restored lazily, without its stack pages. @stack: the next stack page
 * that is not below the last area.
 */
static uint32_t list_lazy(struct zw_area *a, uint64_t start, uint64_t end, const uint64_t **stack)
{
	uint32_t nr = 0;

	for (; **stack < end; (*stack)++) {
		if (**stack < start)
			continue;
		if (**stack > start)
			a[nr++] = (struct zw_area){ start, **stack, ZW_AREA_LAZY };
		start = **stack + PAGE_SIZE;
		a[nr++] = (struct zw_area){ **stack, start, 0 };
	}
	if (start < end)
		a[nr++] = (struct zw_area){ start, end, ZW_AREA_LAZY };
	return nr;
}

/* Lists a private area, and marks as lazy what generate_iovs() (mem.c) would. */
static uint32_t list_private(struct zw_area *a, VmaEntry *e, const uint64_t **stack)
{
	if (vma_entry_can_be_lazy(e))
		return list_lazy(a, e->start, e->end, stack);
	*a = (struct zw_area){ e->start, e->end,
			       vma_entry_is(e, VMA_AREA_VDSO) ? ZW_AREA_WHOLE : 0 };
	return 1;
}

/*
 * Lists the areas that generate_vma_iovs() (mem.c) would dump. Shared areas go into criu's own
 * table.
 */
static int list_areas(struct pstree_item *item, struct vm_area_list *vmas, uint32_t *nr)
{
	uint64_t *stacks = stack_pages(item);
	const uint64_t *stack = stacks;
	struct vma_area *vma;
	pmc_t pmc = PMC_INIT;
	struct zw_area *a;
	size_t len = (vmas->nr + 2 * item->nr_threads + 1) * sizeof(*a);
	int fd, ret = 0;

	*nr = 0;
	fd = zns_memfd("zns-areas");
	if (!stacks || fd < 0 || ftruncate(fd, len)) {
		pr_perror("No memory for a list of %u areas", vmas->nr);
		close_safe(&fd);
		xfree(stacks);
		return -1;
	}
	a = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (a == MAP_FAILED) {
		pr_perror("No memory for a list of %u areas", vmas->nr);
		close(fd);
		xfree(stacks);
		return -1;
	}
	if (pmc_init(&pmc, item->pid->real, &vmas->h, vmas->nr_shared_pages_longest * PAGE_SIZE))
		ret = -1;
	list_for_each_entry(vma, &vmas->h, list) {
		if (ret)
			break;
		if (vma_area_is(vma, VMA_AREA_GUARD) || vma_entry_is(vma->e, VMA_AREA_VVAR) ||
		    vma->e->flags & MAP_DROPPABLE)
			continue;
		if (vma_area_is_private(vma, kdat.task_size))
			*nr += list_private(a + *nr, vma->e, &stack);
		else if (vma_area_is(vma, VMA_ANON_SHARED))
			ret = pmc_get_map(&pmc, vma) ||
			      add_shmem_area(item->pid->real, vma->e, &pmc);
	}
	pmc_fini(&pmc);
	munmap(a, len);
	xfree(stacks);
	if (!ret)
		return fd;
	close(fd);
	return -1;
}

/* Makes the images of the task's pages without the pages: the helper has these, and adds them. */
static int open_and_close_images(struct pstree_item *item)
{
	struct zns_msg m = ZNS_MSG(ZW_LIVE_IMAGE);
	struct page_xfer xfer = {};
	int ret;

	/*
	 * set names_pages: do not open the pagemaps of the whole chain, and do not seal the image
	 */
	names_pages = true;
	ret = open_page_xfer(&xfer, CR_FD_PAGEMAP, vpid(item));
	if (ret < 0) {
		names_pages = false;
		return -1;
	}
	m.h.pid = item->pid->real;
	m.h.image = xfer.pi->zns->id;
	ret = zns_send(&m);
	if (ret)
		zns_pr_err("%s; nothing was committed, run the dump again\n", zns_helper_gone());
	xfer.close(&xfer);
	names_pages = false;
	return ret ? -1 : 0;
}

static int ask_final(struct pstree_item *item, struct vm_area_list *vmas)
{
	struct zns_msg m = ZNS_MSG(ZW_LIVE_FINAL);
	char name[ZW_NAME];
	int fd = list_areas(item, vmas, &m.h.nr);

	if (fd < 0)
		return -1;
	snprintf(name, sizeof(name), "pagemap-%u.img", vpid(item));
	m.h.pid = item->pid->real;
	m.payload = name;
	m.len = strlen(name) + 1;
	m.fd[0] = fd;
	m.nr_fd = 1;
	zns_tell_unsteady(item->pid->real);
	ask_ahead(&final_ahead, &m);
	close(fd);
	return 0;
}

int zns_live_ahead(struct pstree_item *item, struct vm_area_list *vmas)
{
	return is_live() && !zns_sends() && !zns_mem_begun() ? ask_final(item, vmas) : 0;
}

int zns_live_final(struct pstree_item *item, struct vm_area_list *vmas, struct zw_reply *r)
{
	int guards, ret;

	if (final_ahead.pid != item->pid->real && ask_final(item, vmas))
		return -1;
	ret = take_ahead(&final_ahead, &guards);
	*r = final_ahead.r;
	if (ret) {
		zns_pr_err("%s\n", r->msg);
		return -1;
	}
	ret = list_guards(item->pid->real, vmas, guards);
	close_safe(&guards);
	if (r->kind == ZW_KIND_NONE)
		pr_info("%s\n", r->msg);
	else
		pr_debug("%s\n", r->msg);
	return ret;
}

void zns_live_has_smaps(void)
{
	reads_smaps = true;
}

bool zns_live_task(struct pstree_item *item, struct vm_area_list *vmas, int *ret)
{
	struct zw_reply r;

	if (zns_sends())
		return zns_send_task(item, vmas, ret);
	*ret = -1;
	if (!is_live())
		return list_guards(item->pid->real, vmas, -1);
	*ret = zns_live_final(item, vmas, &r);
	if (*ret)
		return true;
	if (r.kind == ZW_KIND_NONE)
		return false;
	cnt_add(CNT_PAGES_WRITTEN, r.size / PAGE_SIZE);
	*ret = open_and_close_images(item);
	return true;
}
