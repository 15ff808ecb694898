/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Paths and locks in the runtime directory, which clients, brokers and `znsctl format` share. */
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include "zns/broker.h"
#include "zns/config.h"

#define RETRY_MS 10
#define SHARED_TRIES 400
#define SHARED_PAUSE_MS 5

int zns_broker_path(const uint8_t uuid[ZNS_UUID_LEN], const char *suffix, char *out, size_t len)
{
	char id[ZNS_UUID_STR];
	int n = snprintf(out, len, "%s/%s%s%s", zns_run_dir(), zns_uuid_format(uuid, id),
			 *suffix == '.' ? "" : ".", suffix);

	return n < 0 || (size_t)n >= len ? -ENAMETOOLONG : 0;
}

int zns_broker_run_dir(struct zns_err *err)
{
	const char *dir = zns_run_dir();
	struct stat st;

	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		return zns_fail_sys(err, -errno, "cannot make the runtime directory %s", dir);
	if (stat(dir, &st) < 0)
		return zns_fail_sys(err, -errno,
				    "cannot read the attributes of runtime directory %s", dir);
	if (!S_ISDIR(st.st_mode))
		return zns_fail(
			err, -ENOTDIR,
			"runtime directory %s is no directory: remove it, or set ZNS_RUN to another one",
			dir);
	/* Another user who can create a socket in this directory would learn where our data are. */
	if ((st.st_uid && st.st_uid != geteuid()) || (st.st_mode & 022))
		return zns_fail(
			err, -EPERM,
			"runtime directory %s: others may write to it (chmod 0700, owner root)",
			dir);
	return 0;
}

int zns_flock_wait(int fd, unsigned wait_ms)
{
	uint64_t end = zns_mono_ns() + wait_ms * 1000000ull;

	for (;;) {
		struct timespec ts = { .tv_nsec = RETRY_MS * 1000000 };

		if (!flock(fd, LOCK_EX | LOCK_NB))
			return 0;
		if (errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
		if (zns_mono_ns() >= end)
			return -EBUSY;
		nanosleep(&ts, NULL);
	}
}

int zns_broker_lock_shared(const uint8_t uuid[ZNS_UUID_LEN], const char *suffix, int *fd_out,
			   struct zns_err *err)
{
	struct timespec pause = { .tv_nsec = SHARED_PAUSE_MS * 1000000 };
	char path[4096];
	int fd, ret = zns_broker_path(uuid, suffix, path, sizeof(path));

	if (ret)
		return zns_fail_sys(err, ret, "cannot name a lock file in %s", zns_run_dir());
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return zns_fail_sys(err, -errno, "cannot lock %s", path);
	for (int tries = 0; flock(fd, LOCK_SH | LOCK_NB) < 0; tries++) {
		if (errno != EWOULDBLOCK || tries == SHARED_TRIES) {
			ret = zns_fail_sys(err, -errno, "cannot lock %s", path);
			close(fd);
			return ret;
		}
		nanosleep(&pause, NULL);
	}
	*fd_out = fd;
	return 0;
}

int zns_flock_holder(int fd)
{
	cleanup_file FILE *f = fopen("/proc/locks", "re");
	struct stat st;
	char line[256];

	if (!f || fstat(fd, &st) < 0)
		return 0;
	while (fgets(line, sizeof(line), f)) {
		unsigned long long ino;
		int pid;

		/* A line is "1: FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF". For a process that
		 *                      waits for a lock, "->" follows the first number, so that
		 *                      line does not match. */
		if (sscanf(line, "%*d: FLOCK %*s %*s %d %*x:%*x:%llu ", &pid, &ino) == 2 &&
		    ino == (unsigned long long)st.st_ino && pid != getpid())
			return pid;
	}
	return 0;
}

int zns_broker_lock_device(const char *dev_path, unsigned wait_ms, int *fd_out, struct zns_err *err)
{
	cleanup_close int fd = open(zns_spec_path(dev_path), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	int ret;

	if (fd < 0)
		return zns_fail_sys(err, -errno, "cannot open %s", dev_path);
	ret = zns_flock_wait(fd, wait_ms);
	if (ret == -EBUSY) {
		int pid = zns_flock_holder(fd);

		if (pid)
			return zns_fail(
				err, -EBUSY,
				"%s is in use by another broker, a format or a probe (PID %d)",
				dev_path, pid);
		return zns_fail(err, -EBUSY, "%s is in use by another broker, a format or a probe",
				dev_path);
	}
	if (ret)
		return zns_fail_sys(err, ret, "cannot lock %s", dev_path);
	*fd_out = zns_take_fd(&fd);
	return 0;
}
