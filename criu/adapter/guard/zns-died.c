/* SPDX-License-Identifier: GPL-2.0-only */
/* Explains why a restore cannot make a task, or why a task has died. See include/zns-died.h. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <compel/infect.h>

#include "log.h"
#include "pstree.h"
#include "util.h"
#include "zns-died.h"
#include "zns-guards.h"
#include "zns-link.h"
#include "zns-stop.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

#define VMSTAT_BYTES (16 << 10)
#define LOOK_MS 20
#define OOM "\noom_kill "

static long nr_oom = -1; /* the kernel's count of OOM kills before the restore */

/*
 * Reads how many processes the kernel has killed for lack of memory, in the machine or in a cgroup.
 * -1: unknown.
 */
static long oom_kills(void)
{
	char buf[VMSTAT_BYTES];
	const char *at;
	int fd = open("/proc/vmstat", O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? 0 : read(fd, buf, sizeof(buf) - 1);

	close_safe(&fd);
	buf[len > 0 ? len : 0] = '\0';
	at = strstr(buf, OOM);
	return at ? strtol(at + strlen(OOM), NULL, 10) : -1;
}

void zns_died_begin(void)
{
	nr_oom = oom_kills();
}

void zns_killed(pid_t pid, int sig)
{
	if (sig == SIGKILL && nr_oom >= 0 && oom_kills() > nr_oom)
		pr_err("Memory ran out: the kernel killed task %d, for the machine's memory or the memory limit of "
		       "criu's cgroup is too small: raise the limit, or restore with --zns-memory SIZE\n",
		       pid);
}

void zns_not_forked(pid_t pid)
{
	int err = errno;

	if (err == EEXIST) {
		const char *name = zns_guard_name(pid);

		pr_err("PID %d of the checkpoint is taken%s%s: end that process, or restore into a PID namespace of "
		       "its own (unshare --pid --fork --mount-proc criu-zns restore)\n",
		       pid, *name ? " by " : "", name);
	}
	errno = err;
}

void zns_restore_failed(void)
{
	zns_link_tell();
	zns_stop_restore_failed();
}

int zns_wait_stage(futex_t *left)
{
	struct timespec look = { .tv_nsec = LOOK_MS * 1000000 };
	struct pstree_item *item;
	uint32_t nr;

	while ((nr = futex_get(left)) && !(nr & FUTEX_ABORT_FLAG)) {
		if (sys_futex((uint32_t *)&left->raw.counter, FUTEX_WAIT, nr, &look, NULL, 0) !=
		    -ETIMEDOUT)
			continue;
		for_each_pstree_item(item)
		{
			if (!task_alive(item) || !compel_is_exiting(item->pid->real))
				continue;
			pr_err("Task %d was killed while it was restored\n", vpid(item));
			return -1;
		}
	}
	return nr ? -1 : 0;
}
