/* SPDX-License-Identifier: GPL-2.0-only */
/* Restores into a memory context. See include/zns-extend.h. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cr_options.h"
#include "image.h"
#include "kerndat.h"
#include "log.h"
#include "page.h"
#include "pagemap.h"
#include "pstree.h"
#include "servicefd.h"
#include "uffd.h"
#include "util.h"
#include "xmalloc.h"
#include "zns-alone.h"
#include "zns-extend.h"
#include "zns-img.h"
#include "zns-link.h"
#include "zns-lazy.h"
#include "zns-opts.h"
#include "zns-pages.h"
#include "zns-state.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

#define LOG_NAME "zns-memory.log" /* log of the lazy-pages daemon, in the work directory */
#define GUARD_INSTALL 102 /* MADV_GUARD_INSTALL, since Linux 6.13 */
#define WP_UNPOPULATED (1UL << 13) /* UFFD_FEATURE_WP_UNPOPULATED, since Linux 6.4 */
#define GO 1 /* the message that means success; any other message is the reason of a failure */

struct pids {
	int32_t virt, real;
};

static struct {
	int pager, restore; /* sockets to the pager and to criu restore */
	bool ready; /* the pager has reported that it is ready */
	int (*give)(bool now); /* the function that hands over the userfaultfds; see zns-give.h */
	struct pids *v;
	uint32_t nr;
	char why[512]; /* why the daemon failed */
} ext = { .pager = -1, .restore = -1 };

static int fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(ext.why, sizeof(ext.why), fmt, ap);
	va_end(ap);
	pr_err("%s\n", ext.why);
	return -1;
}

/* Sends or receives all @len bytes. Returns 0 or -1. */
static int move(int sk, void *buf, size_t len, bool in)
{
	ssize_t n;

	for (; len; buf += n, len -= n) {
		do {
			n = in ? recv(sk, buf, len, MSG_WAITALL) : send(sk, buf, len, MSG_NOSIGNAL);
		} while (n < 0 && errno == EINTR);
		if (n <= 0)
			return -1;
	}
	return 0;
}

/*
 * Enables write protection markers for missing pages. A guard page removes such a marker without an
 * event. Kernels that lack the feature have no guard pages.
 */
unsigned long zns_uffd_features(unsigned long stock)
{
	bool has_guards = zns_extends() && !madvise(NULL, 0, GUARD_INSTALL);

	return has_guards ? stock | WP_UNPOPULATED : stock;
}

/* ---- starting a program of ours ---- */

/* Runs in the grandchild. @fd: its descriptors from ZNS_ALONE_FD on; -1 ends the list. */
static void run(const char *path, char *const argv[], char *const env[], const int *fd)
{
	int nr = 0;

	while (fd[nr] >= 0)
		nr++;
	if (!zns_alone(fd, nr, false))
		execve(path, argv, env);
	_exit(127);
}

/*
 * Forks twice, so that the program is no child of criu: in a restore criu takes the exit of any
 * child for the death of a task.
 */
static int start(const char *path, char *const argv[], char *const env[], const int *fd)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		pid = fork();
		if (!pid)
			run(path, argv, env, fd);
		_exit(pid < 0);
	}
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return pid > 0 && WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -1;
}

static void uuid_text(const uint8_t *id, char *out)
{
	int i;

	for (i = 0; i < ZW_ID; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*out++ = '-';
		out += sprintf(out, "%02x", id[i]);
	}
}

/* Copies the environment variables that locate files and programs. No others are passed on. */
static char **plain_env(void)
{
	static const char *const name[] = { "ZNS_CONFIG", "ZNS_RUN", "ZNSD_IDLE_S", "ZNS_LIBEXEC",
					    "PATH" };
	static char *env[ARRAY_SIZE(name) + 1];
	int i, nr = 0;

	for (i = 0; i < ARRAY_SIZE(name); i++) {
		const char *value = secure_getenv(name[i]);

		if (value && asprintf(&env[nr], "%s=%s", name[i], value) > 0)
			nr++;
	}
	env[nr] = NULL;
	return env;
}

/* ---- in criu restore ---- */

/*
 * Waits until the daemon listens, which it reports by a zero byte (--status-fd). If it does not,
 * its log has the reason.
 */
static int await_daemon(int fd)
{
	char c;
	ssize_t n;

	do {
		n = read(fd, &c, 1);
	} while (n < 0 && errno == EINTR);
	return n == 1 ? 0 :
			fail("The lazy-pages daemon for --zns-memory did not start: see " LOG_NAME
			     " in the work directory");
}

/*
 * Makes the daemon's log. The work directory may belong to another user. So an old log, which that
 * user may still have open, is replaced, and a link is not followed.
 */
static int new_log(void)
{
	int fd = -1;

	if (!unlink(LOG_NAME) || errno == ENOENT)
		fd = open(LOG_NAME, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	return fd >= 0 ? fd : fail("Can't make " LOG_NAME " anew: %s", strerror(errno));
}

static int start_daemon(const char *exe)
{
	char checkpoint[40], device[40], dram[32], verbose[16];
	char *argv[32] = { "criu",
			   "lazy-pages",
			   "--no-default-config",
			   "--images-dir",
			   "/proc/self/fd/4",
			   "--work-dir",
			   ".",
			   "--log-file",
			   "/proc/self/fd/6",
			   verbose,
			   "--status-fd",
			   "3",
			   "--zns-dev",
			   device,
			   "--zns-checkpoint",
			   checkpoint,
			   "--zns-memory",
			   dram }; /* the array has room for seven more, and NULL */
	int p[2], ret, sk, log, nr = 18, img = get_service_fd(IMG_FD_OFF);

	uuid_text(zns_session.ids.id, checkpoint);
	uuid_text(zns_session.ids.parent, device);
	snprintf(dram, sizeof(dram), "%llu" ZNS_MEMORY_DAEMON, zns_memory);
	snprintf(verbose, sizeof(verbose), "-v%u", opts.log_level);
	if (zns_opts.container[0]) {
		argv[nr++] = "--zns-container";
		argv[nr++] = zns_opts.container;
	}
	if (zns_opts.qos_max[0]) {
		argv[nr++] = "--zns-qos-max";
		argv[nr++] = zns_opts.qos_max;
	}
	if (zns_opts.weight[0]) {
		argv[nr++] = "--zns-weight";
		argv[nr++] = zns_opts.weight;
	}
	if (zns_opts.cgroup[0]) {
		argv[nr++] = "--zns-cgroup";
		argv[nr++] = zns_opts.cgroup;
	}
	if (zns_record_off)
		argv[nr++] = "--zns-record=off";
	log = new_log();
	if (log < 0)
		return -1;
	sk = zns_lazy_pair();
	if (sk < 0 || pipe2(p, O_CLOEXEC)) {
		close_safe(&sk);
		close(log);
		return fail("No socket or pipe to the lazy-pages daemon");
	}
	/*
	 * the third descriptor becomes ZNS_DAEMON_SK, the fourth ZNS_ALONE_FD + 3, which argv names
	 */
	ret = start(exe, argv, plain_env(), (int[]){ p[1], img, sk, log, -1 });
	close(p[1]);
	close(sk);
	close(log);
	ret = ret ? fail("The lazy-pages daemon for --zns-memory cannot be started") :
		    await_daemon(p[0]);
	close(p[0]);
	return ret;
}

int zns_extend_begin(void)
{
	if (!zns_active())
		return fail("--zns-memory is for a checkpoint on zones, and this one is in files");
	if (opts.lazy_pages || opts.use_page_server)
		return fail("--zns-memory restores lazily by itself: leave out --lazy-pages and "
			    "--page-server");
	if (!kdat.has_uffd || !uffd_noncooperative())
		return fail(
			"--zns-memory needs userfaultfd with events, which this kernel lacks or "
			"forbids");
	if (start_daemon("/proc/self/exe"))
		return -1;
	opts.lazy_pages = true;
	return 0;
}

static int send_pids(int sk)
{
	struct pstree_item *item;
	uint32_t nr = 0;

	for_each_pstree_item(item) nr += task_alive(item);
	if (move(sk, &nr, sizeof(nr), false))
		return -1;
	for_each_pstree_item(item)
	{
		struct pids p = { vpid(item), item->pid->real };

		if (task_alive(item) && move(sk, &p, sizeof(p), false))
			return -1;
	}
	return 0;
}

int zns_extend_wait(int sk)
{
	char line[sizeof(ext.why)] = "the lazy-pages daemon died; see " LOG_NAME;
	ssize_t n;

	if (!send_pids(sk)) {
		do {
			n = recv(sk, line, sizeof(line) - 1, 0);
		} while (n < 0 && errno == EINTR);
		if (n > 0)
			line[n] = '\0';
	}
	if (line[0] == GO)
		return 0;
	return fail("Not restored into a memory context: %s", line);
}

/* ---- in the lazy-pages daemon ---- */

int zns_extend_start(int (*give)(bool now))
{
	char checkpoint[40], device[40], dram[32], path[PATH_MAX];
	char *argv[] = { "zns-mem",
			 "--restore-fd",
			 "3",
			 "--dev",
			 device,
			 "--checkpoint",
			 checkpoint,
			 "--dram",
			 dram,
			 zns_opts.container[0] ? "--name" : NULL,
			 zns_opts.container,
			 NULL };
	int sk[2], ret;

	if (zns_program_path("zns-mem", path, sizeof(path)))
		return fail("zns-mem is not beside zns-helper");
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sk))
		return fail("No socket to zns-mem");
	uuid_text(zns_session.ids.id, checkpoint);
	uuid_text(zns_session.ids.parent, device);
	snprintf(dram, sizeof(dram), "%llu", zns_memory);
	ret = start(path, argv, plain_env(), (int[]){ sk[1], -1 });
	close(sk[1]);
	ext.pager = sk[0];
	ext.give = give;
	return ret ? fail("zns-mem cannot be started") : 0;
}

static int hear(void)
{
	struct zw_reply r;
	ssize_t n;

	do {
		n = recv(ext.pager, &r, sizeof(r), 0);
	} while (n < 0 && errno == EINTR);
	if (n != sizeof(r))
		return fail("zns-mem, the pager, died");
	r.msg[sizeof(r.msg) - 1] = '\0';
	return r.code ? fail("%s", r.msg) : 0;
}

int zns_extend_listen(int sk)
{
	uint32_t nr = 0;

	ext.restore = dup(sk);
	if (move(sk, &nr, sizeof(nr), true) || nr > 1u << 20)
		return fail("The restore has ended");
	ext.v = xmalloc((nr + 1) * sizeof(*ext.v));
	if (!ext.v || move(sk, ext.v, nr * sizeof(*ext.v), true))
		return fail("The restore has ended");
	ext.nr = nr;
	return ext.give(false);
}

int zns_extend_hand(void)
{
	return ext.give(true);
}

static int real_pid(int virt)
{
	uint32_t i;

	for (i = 0; i < ext.nr; i++)
		if (ext.v[i].virt == virt)
			return ext.v[i].real;
	return -1;
}

/*
 * Finds the offset of the page at @addr in the image. Entries with pages follow each other there
 * without gaps.
 */
static int offset_of(struct page_read *pr, const unsigned long *off, unsigned long addr,
		     unsigned long len, uint64_t *out)
{
	int low = 0, high = pr->nr_pmes;
	PagemapEntry *e;

	while (high - low > 1) {
		int mid = low + (high - low) / 2;

		if (pr->pmes[mid]->vaddr <= addr)
			low = mid;
		else
			high = mid;
	}
	e = high ? pr->pmes[low] : NULL;
	if (!e || !pagemap_present(e) || addr < e->vaddr || addr + len > e->vaddr + pagemap_len(e))
		return -1;
	*out = off[low] + (addr - e->vaddr);
	return 0;
}

static int by_start(const void *a, const void *b)
{
	const struct zw_place *x = a, *y = b;

	return x->base < y->base ? -1 : x->base > y->base;
}

static int places_of(struct page_read *pr, const struct zns_lack *v, unsigned long nr,
		     struct zw_place *out)
{
	unsigned long *off = zns_entry_offsets(pr), i;
	int ret = off ? 0 : -1;

	for (i = 0; i < nr && !ret; i++) {
		out[i] = (struct zw_place){ .base = v[i].start, .len = v[i].len };
		ret = offset_of(pr, off, v[i].img_start, v[i].len, &out[i].off);
	}
	xfree(off);
	qsort(out, nr, sizeof(*out), by_start);
	return ret;
}

static int send_given(struct zw_given *g, const int *fd, int nr_fd)
{
	union {
		char buf[CMSG_SPACE(sizeof(int) * 2)];
		struct cmsghdr align;
	} u = {};
	struct iovec iov = { g, sizeof(*g) };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c;

	if (nr_fd) {
		mh.msg_control = u.buf;
		mh.msg_controllen = CMSG_SPACE(sizeof(int) * nr_fd);
		c = CMSG_FIRSTHDR(&mh);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * nr_fd);
		memcpy(CMSG_DATA(c), fd, sizeof(int) * nr_fd);
	}
	while (sendmsg(ext.pager, &mh, MSG_NOSIGNAL) < 0)
		if (errno != EINTR)
			/* hear() prints the reason that the pager sends */
			return hear() ? -1 : fail("zns-mem, the pager, died");
	return 0;
}

int zns_extend_give(int pid, int uffd, struct page_read *pr, const struct zns_lack *v,
		    unsigned long nr)
{
	struct zw_given g = { .pid = real_pid(pid), .nr = nr };
	size_t len = nr * sizeof(struct zw_place);
	int fd = memfd_create("zns-places", MFD_CLOEXEC), ret = -1;
	struct zw_place *out = NULL;

	if (!ext.ready && hear())
		goto out;
	ext.ready = true;
	out = fd < 0 || ftruncate(fd, len) ? NULL : xmalloc(len + 1);
	if (!out)
		fail("No memory for the pages of process %d that are to come", pid);
	else if (g.pid <= 0 || (nr && (!pr->pi || !pr->pi->zns)) || places_of(pr, v, nr, out))
		fail("Process %d has pages to come that its pagemap does not name", pid);
	else
		ret = pwrite(fd, out, len, 0) == len ? 0 : fail("No memory for a list of pages");
	xfree(out);
	if (ret)
		goto out;
	g.image = nr ? pr->pi->zns->id : 0;
	ret = send_given(&g, (int[]){ uffd, fd }, 2);
out:
	close_safe(&fd);
	return ret;
}

int zns_extend_given(void)
{
	struct zw_given all = {};

	if (send_given(&all, NULL, 0) || hear())
		return -1;
	return 0;
}

void zns_extend_tell(bool ok)
{
	const char go = GO;

	if (ok)
		send(ext.restore, &go, sizeof(go), MSG_NOSIGNAL);
	else
		send(ext.restore, ext.why, strlen(ext.why), MSG_NOSIGNAL);
	close_safe(&ext.restore);
}
