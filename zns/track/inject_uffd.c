/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* See inject.h. */
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "inject.h"
#include "uffd.h"
#include "zns/inject.h"

struct job {
	int pidfd, uffd;
	const char *what; /* which step failed; NULL: stopping the threads did */
};

static int in_guest(struct zns_guest *g, void *arg)
{
	struct job *j = arg;
	long fd, unused;
	int ret = zns_guest_call(g, SYS_userfaultfd, (uint64_t[6]){ UFFD_FLAGS }, &fd);

	if (ret)
		return ret;
	if (fd < 0) {
		j->what = "userfaultfd";
		return (int)fd;
	}
	j->uffd = zns_fetch_fd(j->pidfd, fd, "anon_inode:[userfaultfd]");
	if (j->uffd < 0) {
		j->what = "taking over its userfaultfd";
		ret = j->uffd;
	}
	zns_guest_call(g, SYS_close, (uint64_t[6]){ (uint64_t)fd }, &unused);
	return ret;
}

int inject_userfaultfd(struct tracer *t, int pidfd, int maps, int *uffd, struct zns_err *err)
{
	struct job j = { .pidfd = pidfd, .uffd = -1 };
	int ret = zns_inject(t->pid, maps, 1000, in_guest, &j, &t->stop_ns, err);

	if (!ret) {
		*uffd = j.uffd;
		return 0;
	}
	if (j.uffd >= 0)
		close(j.uffd);
	if (!j.what)
		return err && err->code ? ret : tracer_fail(ret, t->pid, err);
	if (ret == -EMFILE || ret == -ENFILE)
		return zns_fail(
			err, -EMFILE,
			"process %d has no descriptor left: raise its limit (prlimit --nofile)",
			t->pid);
	if (ret == -EPERM || ret == -EACCES)
		return zns_fail(err, -EACCES, "process %d may not use userfaultfd", t->pid);
	return zns_fail_sys(err, ret, "process %d: %s failed", t->pid, j.what);
}
