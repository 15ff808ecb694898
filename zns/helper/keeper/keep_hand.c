/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Hands the trackers of a committed dump to a keeper: see live_keep.h. */
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include "keep.h"
#include "../live/live.h"
#include "zns-memfd.h"
#include "zns/process.h"

/*
 * Runs in the child after fork(). The parent has threads, so only async-signal-safe calls are
 * allowed here.
 */
static void __attribute__((noreturn)) child(int sk, int null, char *const env[])
{
	char *const argv[] = { "zns-helper", KEEP_ARGUMENT, NULL };
	pid_t pid;

	setsid();
	pid = fork();
	if (pid)
		_exit(pid < 0);
	/*
	 * sk or null may have a number from 0 to 3 itself: move both above these before they are
	 * overwritten
	 */
	sk = fcntl(sk, F_DUPFD, 16);
	null = fcntl(null, F_DUPFD, 16);
	if (sk < 0 || null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0 ||
	    dup2(sk, KEEP_FD) < 0 || chdir("/"))
		_exit(1);
	zns_close_from(KEEP_FD + 1);
	execve("/proc/self/exe", argv, env);
	_exit(127);
}

/* Starts the keeper before the commit. It waits for the commit, and exits if the dump fails. */
static int start_keeper(int *out)
{
	cleanup_close int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	char run[4096], config[4096], *const env[] = { run, config, NULL };
	int sk[2];
	pid_t pid;

	if ((size_t)snprintf(run, sizeof(run), "ZNS_RUN=%s", zns_run_dir()) >= sizeof(run) ||
	    (size_t)snprintf(config, sizeof(config), "ZNS_CONFIG=%s", zns_config_dir()) >=
		    sizeof(config))
		return -ENAMETOOLONG;
	if (null < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sk))
		return -errno;
	pid = fork();
	if (!pid)
		child(sk[1], null, env);
	close(sk[1]);
	if (pid < 0) {
		close(sk[0]);
		return -EAGAIN;
	}
	waitpid(pid, NULL, 0);
	keep_timeouts(sk[0]);
	*out = sk[0];
	return 0;
}

void live_keep_begin(struct live *l, bool keep)
{
	struct zns_err err = ZNS_ERR_INIT;

	keep_take(l);
	if (keep && !zns_config_keep_tracking(&l->keep.limit_s, &err) && l->keep.limit_s &&
	    !start_keeper(&l->keep.next))
		l->again = true;
}

/* Merges two lists, which are both sorted. */
static int list_pages(const struct live_task *t, struct zns_spans *out)
{
	int ret = 0;

	for (size_t n = 0; n < t->places.nr && !ret; n++)
		ret = zns_spans_add(out, t->places.p[n].vaddr,
				    t->places.p[n].vaddr + t->places.p[n].len);
	return ret ? ret : zns_spans_join(out, &t->parent);
}

static int write_pages(const struct live_task *t)
{
	cleanup_close int fd = zns_memfd("zns-kept");
	struct keep_pages h = { 0 };
	struct zns_spans all = { 0 };
	int ret = fd < 0 ? -errno : list_pages(t, &all);

	h.nr = all.nr;
	h.nr_areas = t->areas.nr;
	snprintf(h.pagemap, sizeof(h.pagemap), "%s", t->pagemap);
	if (!ret)
		ret = zns_pwrite_all(fd, &h, sizeof(h), 0);
	if (!ret)
		ret = zns_pwrite_all(fd, all.s, all.nr * sizeof(*all.s), sizeof(h));
	if (!ret)
		ret = zns_pwrite_all(fd, t->areas.s, t->areas.nr * sizeof(*t->areas.s),
				     (off_t)(sizeof(h) + all.nr * sizeof(*all.s)));
	zns_spans_free(&all);
	return ret ? ret : zns_take_fd(&fd);
}

static bool can_be_kept(const struct live_task *t, int fd[ZNS_TRACK_FDS])
{
	return t->final && t->track && !zns_track_fds(t->track, fd);
}

static int send_task(struct live *l, const struct live_task *t)
{
	struct keep_packet p = { .op = KEEP_TASK, .nr_fd = KEEP_FDS };
	cleanup_close int pages = -1;

	if (!can_be_kept(t, p.fd))
		return 0;
	pages = write_pages(t);
	p.fd[KEEP_PAGES] = pages;
	return pages < 0 ? pages : keep_send(l->keep.next, &p);
}

static int hand_over(struct live *l)
{
	struct keep_packet set = { .op = KEEP_SET, .limit_s = l->keep.limit_s }, ready;
	int fd[ZNS_TRACK_FDS], ret;

	for (size_t n = 0; n < l->nr_tasks; n++)
		set.nr += can_be_kept(&l->task[n], fd);
	if (!set.nr || set.nr > KEEP_TASKS_MAX)
		return -ENOENT;
	memcpy(set.id, l->keep.id, ZNS_UUID_LEN);
	ret = keep_send(l->keep.next, &set);
	for (size_t n = 0; n < l->nr_tasks && !ret; n++)
		ret = send_task(l, &l->task[n]);
	if (!ret)
		ret = keep_recv(l->keep.next, &ready) == 1 && ready.op == KEEP_READY ? 0 : -EPIPE;
	return ret;
}

void live_keep_commit(struct live *l)
{
	struct keep_packet taken = { .op = KEEP_TAKEN };

	if (!l->again || l->keep.next < 0 || hand_over(l))
		return;
	for (size_t n = 0; n < l->nr_tasks; n++) {
		struct live_task *t = &l->task[n];
		int fd[ZNS_TRACK_FDS];

		if (!can_be_kept(t, fd))
			continue;
		zns_track_leave(t->track);
		t->track = NULL;
	}
	if (l->keep.parent >= 0)
		keep_send(l->keep.parent, &taken);
}
