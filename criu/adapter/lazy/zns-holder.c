/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Keeps the userfaultfds of the lazy-pages daemon open when the daemon dies. Otherwise, when the
 * last descriptor of a userfaultfd is closed, the kernel gives its task zeroes for all pages that
 * have not been fetched. So a second process, the holder, shares the daemon's table of descriptors
 * (CLONE_FILES). Any userfaultfd that the daemon has received, even just before a kill -9, the
 * holder has as well. It sleeps until the daemon has ended, in whatever way. If a task's
 * userfaultfd is still open then, the task lacks pages: the holder kills the task, and closes its
 * userfaultfd only when the task's memory is gone.
 *
 * A child that such a task has forked has a userfaultfd of its own, but the holder does not know
 * the child's PID. It answers the child's faults with UFFDIO_POISON (Linux 6.6), which sends
 * SIGBUS. On older kernels the child waits for ever.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clone-noasan.h"
#include "image.h"
#include "log.h"
#include "page.h"
#include "restorer.h"
#include "servicefd.h"
#include "util.h"
#include "xmalloc.h"
#include "zns-guard.h"
#include "zns-img.h"
#include "zns-lazy.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

#define LOOK_MS 100 /* ms between two checks whether a process has ended */

/* struct uffdio_poison of Linux 6.6, which is missing in older headers */
struct poison_arg {
	struct uffdio_range range;
	__u64 mode;
	__s64 updated;
};
#define POISON_IOCTL _IOWR(UFFDIO, 0x08, struct poison_arg)

/* The daemon writes this and may die during a write, so the holder may read it in any state. */
struct held {
	/*
	 * the userfaultfds were given to a pager, which has a holder of its own: this holder does
	 * nothing
	 */
	bool given;
	unsigned int nr;
	struct {
		int uffd, pidfd; /* the daemon sets uffd last; -1: the entry is not used */
	} task[];
};

static struct held *held;
static int daemon_pidfd = -1, held_epollfd = -1;
static struct epoll_rfd watch = { .fd = -1 };

/* ---- in the holder, after the daemon's end ---- */

static struct {
	struct pollfd *v; /* the userfaultfds that are still open */
	unsigned int nr, max;
	bool said;
} open_uffds;

static int add(int uffd)
{
	unsigned int max = open_uffds.max ? 2 * open_uffds.max : 64;
	struct pollfd *v;

	if (open_uffds.nr == open_uffds.max) {
		v = xrealloc(open_uffds.v, max * sizeof(*v));
		if (!v)
			return -1;
		open_uffds.v = v;
		open_uffds.max = max;
	}
	open_uffds.v[open_uffds.nr++] = (struct pollfd){ .fd = uffd, .events = POLLIN };
	return 0;
}

/*
 * Does the memory behind @uffd still exist? The function tries a copy from an unreadable address:
 * it changes nothing, and fails with ESRCH only if the memory is gone.
 */
static bool lives(int uffd)
{
	static void *unreadable;
	struct uffdio_copy c = { .dst = 1 << 20, .len = PAGE_SIZE };

	if (!unreadable)
		unreadable = mmap(NULL, PAGE_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	c.src = (unsigned long)unreadable;
	return !ioctl(uffd, UFFDIO_COPY, &c) || errno != ESRCH;
}

static bool is_uffd(int dir, const char *name)
{
	char link[sizeof(UFFD_LINK)];
	ssize_t len = readlinkat(dir, name, link, sizeof(link));

	return len == (ssize_t)strlen(UFFD_LINK) && !memcmp(link, UFFD_LINK, len);
}

/*
 * Goes through the table of descriptors. @close_others false: adds all userfaultfds to the list.
 * True: closes all other descriptors, except the log.
 */
static int each_fd(bool close_others)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *e;
	int ret = dir ? 0 : -1;

	while (dir && !ret && (e = readdir(dir))) {
		int fd = atoi(e->d_name);

		if (e->d_name[0] == '.' || fd == dirfd(dir))
			continue;
		if (is_uffd(dirfd(dir), e->d_name))
			ret = close_others ? 0 : add(fd);
		else if (close_others && fd != get_service_fd(LOG_FD_OFF))
			close(fd);
	}
	if (dir)
		closedir(dir);
	return ret;
}

static unsigned int kill_tasks(void)
{
	unsigned int i, nr = 0;

	for (i = 0; i < held->nr; i++)
		if (held->task[i].uffd >= 0 && held->task[i].pidfd >= 0 &&
		    !syscall(SYS_pidfd_send_signal, held->task[i].pidfd, SIGKILL, NULL, 0))
			nr++;
	return nr;
}

static void wake(int uffd, unsigned long start, unsigned long len)
{
	struct uffdio_range r = { .start = start, .len = len };

	ioctl(uffd, UFFDIO_WAKE, &r);
}

/*
 * Wakes all threads that wait for pages, so that they fault again: the daemon may have read a fault
 * and died before it answered. The range is made smaller until the ioctl accepts it, since a
 * process may have an address space of less than 47 bits.
 */
static void wake_all(int uffd)
{
	struct uffdio_range r = { .start = 1 << 20 };
	int bits, ret = -1;

	for (bits = 52; ret && bits > 30; bits--) {
		r.len = (1ULL << bits) - (2 << 20);
		ret = ioctl(uffd, UFFDIO_WAKE, &r);
	}
}

static bool is_task(int uffd)
{
	unsigned int i;

	for (i = 0; i < held->nr; i++)
		if (held->task[i].uffd == uffd)
			return true;
	return false;
}

static void poison(int uffd, unsigned long address)
{
	struct poison_arg a = { .range = { .start = address & PAGE_MASK, .len = PAGE_SIZE } };

	if (!ioctl(uffd, POISON_IOCTL, &a)) {
		if (is_task(uffd)) /* that task was killed already */
			return;
		if (!open_uffds.said)
			pr_err("A child of a restored task gets SIGBUS, for a page that is lost\n");
		open_uffds.said = true;
	} else if (errno == EEXIST || errno == EAGAIN || errno == ENOENT) {
		/* wake the thread: it touches the page again, and gets the answer */
		wake(uffd, a.range.start, PAGE_SIZE);
	}
}

static void answer(int uffd)
{
	struct uffd_msg msg;

	while (read(uffd, &msg, sizeof(msg)) == sizeof(msg)) {
		if (msg.event == UFFD_EVENT_PAGEFAULT)
			poison(uffd, msg.arg.pagefault.address);
		else if (msg.event == UFFD_EVENT_FORK)
			add(msg.arg.fork.ufd);
	}
}

/*
 * Kills the tasks that lack pages, then answers faults of their children until none of them is
 * left.
 */
static void take_over(void)
{
	unsigned int i, killed;

	if (held->given)
		return;
	/*
	 * Close nothing as long as the list of userfaultfds cannot be allocated. Meanwhile the
	 * tasks that were not killed wait in their faults.
	 */
	while (each_fd(false)) {
		kill_tasks();
		open_uffds.nr = 0;
		poll(NULL, 0, LOOK_MS);
	}
	if (!open_uffds.nr)
		return;
	killed = kill_tasks();
	pr_err("The lazy-pages daemon ended before all pages were in place: %u restored tasks were killed\n",
	       killed);
	each_fd(true);
	for (i = 0; i < open_uffds.nr; i++)
		wake_all(open_uffds.v[i].fd);
	while (open_uffds.nr) {
		for (i = open_uffds.nr; i-- > 0;) {
			answer(open_uffds.v[i].fd);
			if (lives(open_uffds.v[i].fd))
				continue;
			close(open_uffds.v[i].fd);
			open_uffds.v[i] = open_uffds.v[--open_uffds.nr];
		}
		poll(open_uffds.v, open_uffds.nr, LOOK_MS);
	}
}

/*
 * Leaves the daemon's process group, session and work directory, so that a signal to that group
 * does not end the holder.
 */
static void detach(void)
{
	sigset_t all;
	int fd;

	setsid();
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	prctl(PR_SET_NAME, ZNS_HOLDER_NAME);
	if (chdir("/"))
		pr_pwarn("The holder keeps its directory");
	fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	if (fd >= 0 && write(fd, "-1000", 5) < 0)
		pr_debug("The holder may be killed when memory is short\n");
	close_safe(&fd);
}

static int hold(void *arg)
{
	struct pollfd p = { .fd = daemon_pidfd, .events = POLLIN };

	detach();
	while (poll(&p, 1, -1) != 1)
		;
	take_over();
	return 0;
}

/* ---- in the daemon ---- */

/*
 * Starts the holder with a copy of the daemon's memory. They do not share memory, since the OOM
 * killer ends all processes that share the memory of its victim.
 */
static int start(void)
{
	pid_t pid = clone_noasan(hold, CLONE_FILES, NULL);

	watch.fd = pid < 0 ? -1 : syscall(SYS_pidfd_open, pid, 0);
	if (watch.fd < 0)
		pr_perror("Can't start a holder of the userfaultfds");
	return watch.fd < 0 ? -1 : 0;
}

/*
 * Called when the holder has died. It was started without an exit signal, so reaping it takes
 * __WALL.
 */
static int holder_ended(struct epoll_rfd *rfd)
{
	pr_warn("The holder of the userfaultfds died, another one is started\n");
	epoll_del_rfd(held_epollfd, rfd);
	waitid(P_PIDFD, rfd->fd, NULL, WEXITED | __WALL);
	close_safe(&rfd->fd);
	if (!start() && !epoll_add_rfd(held_epollfd, rfd))
		return 0;
	take_over(); /* the holder is dead, so the daemon does its work itself */
	return -1;
}

int zns_holder_begin(int epollfd)
{
	unsigned int nr = task_entries->nr_tasks, i;

	held_epollfd = epollfd;
	held = mmap(NULL, sizeof(*held) + nr * sizeof(held->task[0]), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	daemon_pidfd = syscall(SYS_pidfd_open, getpid(), 0);
	if (held == MAP_FAILED || daemon_pidfd < 0) {
		pr_perror("Can't make a holder of the userfaultfds");
		return -1;
	}
	held->nr = nr;
	for (i = 0; i < nr; i++)
		held->task[i].uffd = -1;
	watch.read_event = holder_ended;
	return start() || epoll_add_rfd(epollfd, &watch) ? -1 : 0;
}

int zns_holder_listen(int sk)
{
	const int on = 1;

	return setsockopt(sk, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
}

/*
 * Notes the task of a userfaultfd. @pid is valid: the task sends its userfaultfd itself, and cannot
 * exit before its restore has ended.
 */
static void remember(int uffd, pid_t pid)
{
	unsigned int i;

	for (i = 0; i < held->nr; i++)
		if (held->task[i].uffd < 0)
			break;
	if (i == held->nr || pid <= 0) {
		pr_warn("The holder cannot tell to which task userfaultfd %d belongs: it will not kill that task\n",
			uffd);
		return;
	}
	held->task[i].pidfd = syscall(SYS_pidfd_open, pid, 0);
	held->task[i].uffd = uffd;
}

int zns_holder_recv(int sk)
{
	union {
		char buf[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
		struct cmsghdr align;
	} u;
	char byte;
	struct iovec iov = { &byte, sizeof(byte) };
	struct msghdr mh = { .msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = u.buf,
			     .msg_controllen = sizeof(u.buf) };
	struct ucred cred = {};
	struct cmsghdr *c;
	int uffd = -1;

	if (recvmsg(sk, &mh, MSG_CMSG_CLOEXEC) <= 0)
		return -1;
	for (c = CMSG_FIRSTHDR(&mh); c; c = CMSG_NXTHDR(&mh, c)) {
		if (c->cmsg_level != SOL_SOCKET)
			continue;
		if (c->cmsg_type == SCM_RIGHTS)
			memcpy(&uffd, CMSG_DATA(c), sizeof(uffd));
		else if (c->cmsg_type == SCM_CREDENTIALS)
			memcpy(&cred, CMSG_DATA(c), sizeof(cred));
	}
	if (uffd >= 0)
		remember(uffd, cred.pid);
	return uffd;
}

bool zns_holder_lives(int uffd)
{
	if (!lives(uffd))
		return false;
	pr_err("A task lives whose userfaultfd looks like that of one that has ended\n");
	return true;
}

void zns_holder_close(int uffd)
{
	unsigned int i;

	for (i = 0; i < held->nr; i++)
		if (held->task[i].uffd == uffd) {
			held->task[i].uffd = -1;
			if (held->task[i].pidfd >= 0)
				close(held->task[i].pidfd);
		}
	close(uffd);
}

void zns_holder_given(void)
{
	held->given = true;
}
