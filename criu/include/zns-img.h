/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_IMG_H__
#define __CR_ZNS_IMG_H__
/*
 * The adapter between CRIU's image layer and the zns helper process: the patch series calls these
 * functions. Like the rest of CRIU they print with pr_err and return 0 or -1 (or -errno where
 * said). No threads, and no state that a forked child could break: see zns-wire.h. Rules: design.md
 * §1, §3, §6.
 */
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include "zns-freeze.h"
#include "zns-netlock.h"

struct cr_img;
struct list_head;
struct page_read;
struct uffd_msg;
struct page_xfer;
struct pstree_item;
struct task_restore_args;
struct vm_area_list;

/* Option codes of config.c's table. One call stores any of them: 0, or -1 (value out of range). */
enum {
	ZNS_OPT_FIRST = 1200,
	ZNS_OPT_DEV = ZNS_OPT_FIRST,
	ZNS_OPT_QOS,
	ZNS_OPT_CONTAINER,
	ZNS_OPT_CHECKPOINT,
	ZNS_OPT_ALLOC,
	ZNS_OPT_ADMISSION,
	ZNS_OPT_STRIPE,
	ZNS_OPT_QOS_MAX,
	ZNS_OPT_PARENT,
	ZNS_OPT_WEIGHT,
	ZNS_OPT_CGROUP,
	ZNS_OPT_LIVE = 1217, /* with or without a value */
	ZNS_OPT_LIVE_SLOW,
	ZNS_OPT_RECORD, /* with or without a value */
	ZNS_OPT_SEPARATE, /* without a value */
	ZNS_OPT_MEMORY,
	ZNS_OPT_LAST = ZNS_OPT_MEMORY,
};
#define ZNS_LONG_OPTS                                                           \
	{ "zns-dev", required_argument, 0, ZNS_OPT_DEV },                       \
		{ "zns-qos", required_argument, 0, ZNS_OPT_QOS },               \
		{ "zns-container", required_argument, 0, ZNS_OPT_CONTAINER },   \
		{ "zns-checkpoint", required_argument, 0, ZNS_OPT_CHECKPOINT }, \
		{ "zns-alloc", required_argument, 0, ZNS_OPT_ALLOC },           \
		{ "zns-admission", required_argument, 0, ZNS_OPT_ADMISSION },   \
		{ "zns-stripe", required_argument, 0, ZNS_OPT_STRIPE },         \
		{ "zns-qos-max", required_argument, 0, ZNS_OPT_QOS_MAX },       \
		{ "zns-parent", required_argument, 0, ZNS_OPT_PARENT },         \
		{ "zns-weight", required_argument, 0, ZNS_OPT_WEIGHT },         \
		{ "zns-cgroup", required_argument, 0, ZNS_OPT_CGROUP },         \
		{ "zns-live", optional_argument, 0, ZNS_OPT_LIVE },             \
		{ "zns-live-slow", required_argument, 0, ZNS_OPT_LIVE_SLOW },   \
		{ "zns-record", optional_argument, 0, ZNS_OPT_RECORD },         \
		{ "zns-memory", required_argument, 0, ZNS_OPT_MEMORY },         \
	{                                                                       \
		"zns-separate-metadata", no_argument, 0, ZNS_OPT_SEPARATE       \
	}
extern int zns_parse_opt(int code, const char *arg);
/* Prints the line of `criu --version` that names this build of ZNS-CRIU. */
extern void zns_print_version(void);
/* --timeout was given (it has a default). It then covers the whole dump, see zns_dump_begin(). */
extern void zns_timeout_given(void);
/* --action-script was given. */
extern void zns_script_given(void);
/* Uses zones as if a zns option had been given. */
extern void zns_use(void);
/* `criu check --feature zns`: 0 if a dump into zones can begin here, else -1 with one line. */
extern int zns_check_feature(void);
/* Would a dump as the options ask for it go into zones, and its helper see which pages are written?
 */
extern bool zns_check_tracks(void);
#define ZNS_USAGE                                                                            \
	"* Zoned storage (see criu-zns(8)):\n"                                               \
	"  --zns-dev DEV         write images into DEV, see znsctl(8)\n"                     \
	"  --zns-qos MIBPS       bandwidth to reserve, e.g. 500, 500MiB/s or 2GiB/s\n"       \
	"  --zns-qos-max MIBPS   go no faster than this, dump or restore\n"                  \
	"  --zns-weight N        its part of shared groups, 100 (default) to 10000\n"        \
	"  --zns-container ID    whose checkpoint it is; groups go by container\n"           \
	"  --zns-checkpoint ID   restore it; the image directory may be empty\n"             \
	"  --zns-parent ID       parent of this dump, instead of --prev-images-dir\n"        \
	"  --zns-alloc MODE      static (default) or dynamic\n"                              \
	"  --zns-admission MODE  share (default), wait[=SECONDS] or reject\n"                \
	"  --zns-stripe SIZE     stripe unit, 64K to 4M\n"                                   \
	"  --zns-cgroup WHO      who is charged for its I/O: leave (criu's cgroup), own\n"   \
	"                        (the cgroup zns-criu), or container (its io.max holds)\n"   \
	"  --zns-live[=WHEN]     copy memory while the tasks run, freeze them for the\n"     \
	"                        rest: yes, no, auto (if they run on after the dump), or\n"  \
	"                        durable: they run on after the commit, not before it\n"     \
	"  --zns-live-slow MODE  a task that writes faster: freeze it, or fail\n"            \
	"  --zns-record[=S]      lazy-pages: record what is touched in the first S (10)\n"   \
	"                        seconds; the next one brings it first, unless =off\n"       \
	"  --zns-memory SIZE     restore: the tasks begin under a budget of DRAM, like\n"    \
	"                        512M; the rest stays on zones until it is touched\n"        \
	"  --zns-separate-metadata\n"                                                        \
	"                        other images than pages on a die or channel of their own\n" \
	"\n"

/*
 * Call before any task is frozen: starts the helper and waits for admission. Does nothing without
 * zns options. From here on --timeout runs, if it was given. The helper keeps it, or is killed, so
 * that nothing waits for it any longer.
 */
extern int zns_dump_begin(pid_t pid, bool pre_dump);
/*
 * For a page server, before it listens. With zns options its images go to zones, and the committed
 * checkpoint has pages only. With --lazy-pages it reads from images in zones or in a directory.
 */
extern int zns_receive_begin(void);
/* @of_dump: the dump with --lazy-pages becomes this server */
extern int zns_serve_begin(bool of_dump);
/*
 * Call when the sender has sent all: @close closes the server's open images, then everything
 * becomes durable. Returns the answer for the sender, 0 if its pages are safe here.
 */
extern int zns_serve_commit(void (*close)(void));
/* Returns the answer to a sender's PS_IOV_PARENT for image @id if the sender asks whether this
 * server is ours (zns-send.h); else -1. */
extern int zns_serve_word(unsigned long id);
/* Does it serve pages from zones on demand? *@nr_pages: at most so many. NULL: printed. */
extern bool zns_serve_reads(void);
extern void *zns_serve_read(unsigned long pid, unsigned long vaddr, unsigned long *nr_pages);
/*
 * The lazy-pages daemon with zones of its own. Several reads are under way at once; answers come
 * through its epoll loop (zns-lazy.c). begin: call it once the loop exists; @give hands all that is
 * left to a pager (zns-extend.h). on: reads go this way; else the functions below have no meaning.
 */
extern int zns_lazy_begin(int epollfd, int (*give)(bool now));
extern bool zns_lazy_on(void);
/*
 * Reads of pages into tasks. to: sets the task's address and userfaultfd for the next read. read:
 * starts to read @nr pages; the loop calls @pr->io_complete when they have arrived. lacks: did some
 * of them not arrive, so that they must be read again? again: wakes waiting threads, which fault
 * again. gone: has the task's memory ended?
 */
extern void zns_lazy_to(int uffd, unsigned long to);
extern int zns_lazy_read(struct page_read *pr, unsigned long vaddr, unsigned long nr);
extern bool zns_lazy_lacks(void);
extern void zns_lazy_again(int uffd, unsigned long start, unsigned long end);
extern bool zns_lazy_gone(void);
/* As read(): the next event of @pr's task. Until zns_uffd_done() is called nothing is copied into the
 * tasks, except what is read for a fault. */
extern ssize_t zns_uffd_read(int uffd, struct uffd_msg *msg, struct page_read *pr);
extern void zns_uffd_done(void);
/* The pages that are read first. open: the process of @pr has connected. first: gives the next of its
 * ranges that nobody has asked for. first_to: that range is done up to @to. */
extern int zns_lazy_open(struct page_read *pr);
extern bool zns_lazy_first(struct page_read *pr, unsigned long *start, unsigned long *end);
extern void zns_lazy_first_to(struct page_read *pr, unsigned long to);
/* finished: the restore at the other end of @sk waits until its tasks may run. wait: it does, until
 * the daemon has all userfaultfds, and a while for the first pages. */
extern void zns_lazy_finished(int sk);
extern int zns_lazy_wait(int sk); /* -1: they may not */
/* Call when all pages are there, or the daemon gives up. */
extern void zns_lazy_end(int ret);
/* @pr is freed by its owner; cancels its reads that are under way */
extern void zns_lazy_forget(struct page_read *pr);
/*
 * How many bytes to ask for at offset @off of the image: zns_lazy_fault for a fault, zns_lazy_len
 * for the background.
 */
extern unsigned long zns_lazy_fault(off_t off);
extern unsigned long zns_lazy_len(off_t off);
/*
 * turn: may the background ask for more of @pr now? timeout: the loop's time-out in ms; @stock is
 * what stock criu would take. A daemon that waits for a page server sleeps, with or without zones,
 * while stock criu's polls without a pause.
 */
extern bool zns_lazy_turn(struct page_read *pr, bool stock);
extern int zns_lazy_timeout(int stock);
/*
 * The holder of the daemon's userfaultfds (zns-holder.c): one that is closed while pages lack is
 * zeroes for its task. listen: the restore's tasks will say who they are on this socket; 0 or -1.
 * recv: a task's userfaultfd, or -1. lives: there is still memory behind it (printed). close: it
 * lacks nothing, or nothing is behind it. given: a pager has them all.
 */
extern int zns_holder_listen(int sk);
extern int zns_holder_recv(int sk);
extern bool zns_holder_lives(int uffd);
extern void zns_holder_close(int uffd);
/* zns-lazysock.c, in place of the calls of these names. With zones, a peer of another user's is
 * refused. Between them: the socket of a daemon that its restore has started. */
extern int zns_lazy_connect(int sk, const struct sockaddr *to, socklen_t len);
extern int zns_lazy_inherited(void);
extern int zns_lazy_accept(int sk, struct sockaddr *from, socklen_t *len);
/* Features to ask for of a task's userfaultfd: @stock, and what a pager needs as well
 * (zns-extend.h). */
extern unsigned long zns_uffd_features(unsigned long stock);
extern void zns_holder_given(void);
/*
 * Call freeze before the tasks are frozen, thaw if they run before the commit (pre-dump). A live
 * dump copies memory in the first; -1: printed, and no task was frozen.
 */
extern int zns_dump_freeze(void);
extern void zns_dump_thaw(void);
/* The parent's inventory has no time stamp: then no page can be left to that parent. Stock CRIU
 * fails. */
extern bool zns_parent_untracked(void);
/*
 * Call after the last image is flushed, before the post-dump script: durable and visible, or an
 * error. @failed: the dump has failed already; prints the cause that the helper knows, and returns
 * @failed.
 */
extern int zns_dump_commit(int failed);
/* Call after the tasks were thawed: the commit of a live dump. As zns_dump_commit. */
extern int zns_live_commit(int failed);
/* Areas of a task and their flags, as lines of /proc/PID/smaps. -1: printed. */
extern int zns_open_smaps(pid_t pid);
/* Can --track-mem be requested although the kernel has no soft-dirty bits? True if images go to
 * zones, or pages to a page server. */
extern bool zns_tracks_memory(void);
/*
 * The areas of a frozen task are known: the helper of a live dump begins with its memory, while
 * criu goes on with the rest of the task. 0, or -1: printed.
 */
extern int zns_live_ahead(struct pstree_item *item, struct vm_area_list *vmas);
/*
 * Dump the memory of a frozen task of a live dump. False: criu shall dump it as usual. True: it is
 * done, with *@ret 0 or -1.
 */
extern bool zns_live_task(struct pstree_item *item, struct vm_area_list *vmas, int *ret);
/* The task's guard pages are listed later, together with its memory. */
extern bool zns_guards_later(pid_t pid);
/*
 * After the thaw of a pre-dump to a page server: sends a task's pages, if the helper tracks them. 0
 * or -1.
 */
extern int zns_send_pages(struct pstree_item *item);
/* Sets limits, so that a page server whose host has vanished is given up. Returns 0. */
extern int zns_limit_silence(int sk);
/* Notes that a dump has failed, if @ret is not 0. True if one has: its page server shall not keep
 * the pages. */
extern bool zns_send_failed(int ret);
/* Commands that cannot work on zones yet: -1 with one line if zns options are given. */
extern int zns_refuse(const char *what);
/*
 * Call as soon as the options are known, long before the first image. Helper and broker start, and
 * the helper begins, while criu examines the kernel.
 */
extern void zns_begin_early(void);
/* Call before the first image is read. Uses zones if there is a handle, or an id was given. */
extern int zns_restore_begin(void);
/* Call when every task is restored: the figures go into the log. */
extern void zns_restore_done(void);
/* Call with the image directory's close, in every process that has it open. */
extern void zns_close(void);
extern bool zns_active(void);

/*
 * Parents. On zones a parent's directory is a descriptor that only these functions understand: no
 * path is needed. zns_open_parent: true if images are on zones. Then *pfd is the parent of @dfd, -1
 * if it has none, and *ret 0 or -1.
 */
extern bool zns_open_parent(int dfd, int *pfd, int *ret);
/* Has the parent @pfd this image? 1, 0, or -1 with the reason printed; -2: ask the file system. */
extern int zns_parent_has(int pfd, const char *path);
/* Checks --prev-images-dir when the image directory is opened: -1 if plain images would follow
 * images on zones. */
extern int zns_check_parent_dir(int dfd, const char *parent);

/* Called by do_open_image. -ENOENT: no such image; other negative errno: an error was printed. */
extern bool zns_img_wanted(int dfd, unsigned long oflags);
extern int zns_img_open(struct cr_img *img, int dfd, int type, const char *path,
			unsigned long oflags);
/* Opens the file of an image that is not on zones. Beside images on zones it is never made through
 * a link. */
extern int zns_open_local(int dfd, const char *path, int flags);
/* Called by close_image after the buffered layer has flushed and closed its descriptor. */
extern void zns_img_close(struct cr_img *img);

/* @pid if a page transfer gives the task's memory to the helper; 0 without zones. */
extern pid_t zns_xfer_pid(struct page_xfer *xfer, pid_t pid);
extern int zns_write_mem(struct page_xfer *xfer, void *base, unsigned long len);
/* page_xfer's write_pages, for pages in a pipe (of a pre-dump, whose tasks run on). */
extern int zns_write_pages(struct page_xfer *xfer, int p, unsigned long len);
/* A page server's @len bytes of pages, from its socket into the image: without the pipe that stock
 * has in between. */
extern int zns_receive_pages(struct cr_img *img, int sk, unsigned long len);
/* Passes pages from a pipe to a pipe or socket. Copies them if criu will reuse their buffer (read
 * mode). 0, or -1 and errno. */
extern int zns_pass_on(int from, int to, unsigned long len);

/* Exact reads from a pages image: everything or -1. */
extern int zns_pread(struct cr_img *img, void *buf, unsigned long len, off_t off);
struct zns_batch {
	int sk[2];
	unsigned int nr; /* number of answers that are still to come */
	bool failed;
	/* covers the memory until the wait ends; -2: to be made if it is worth it, -1: none */
	int uffd;
	unsigned long room; /* how many more places may be covered */
};
#define ZNS_BATCH_INIT                      \
	{                                   \
		{ -1, -1 }, 0, false, -2, 0 \
	}
extern int zns_batch_add(struct zns_batch *b, struct cr_img *img, struct iovec *iov, int nr,
			 off_t off);
extern int zns_batch_wait(struct zns_batch *b);
/*
 * True: the checkpoint has no page in @start … @end. Such a VMA need not be mapped writable to be
 * filled. The kernel would refuse that for the terabytes that some programs only reserve.
 */
extern bool zns_vma_is_empty(struct page_read *pr, unsigned long start, unsigned long end);
/* May the restorer blob fill this process's areas itself? True without zones. */
extern bool zns_fill_in_pie(struct page_read *pr);
/* The helper fills the areas that prepare_vma_ios queued, once the restorer blob calls zns_fill()
 * (zns-pie.h). 0 or -1. */
extern int zns_fill_begin(struct cr_img *img, struct task_restore_args *ta);

#endif
