/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Frees space by running `znsctl gc`, since only that program can find out which checkpoints are
 * still needed. */
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "sweep.h"
#include "zns/util.h"

#define LIMIT_MS 30000

/* Waits for the program, and kills it after a time limit, since a client waits for admission. */
static int await(pid_t pid)
{
	struct pollfd p = { .fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN };
	int status, n;

	do
		n = p.fd < 0 ? 1 : poll(&p, 1, LIMIT_MS);
	while (n < 0 && errno == EINTR);
	if (!n)
		kill(pid, SIGKILL);
	if (p.fd >= 0)
		close(p.fd);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -EIO;
}

int zns_sweep(const struct zns_registered *reg)
{
	char prog[PATH_MAX], id[ZNS_UUID_STR];
	char *argv[] = { prog, (char *)"gc", (char *)"--dev", id, NULL };
	posix_spawn_file_actions_t fa;
	int ret = zns_find_znsctl(prog, sizeof(prog));
	pid_t pid;

	if (ret)
		return ret;
	zns_uuid_format(reg->uuid, id);
	if (posix_spawn_file_actions_init(&fa))
		return -ENOMEM;
	posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&fa, 1, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addopen(&fa, 2, "/dev/null", O_WRONLY, 0);
	ret = -posix_spawn(&pid, prog, &fa, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&fa);
	return ret ? ret : await(pid);
}
