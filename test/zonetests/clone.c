/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * clone NAME ADDRESS DIR OWN COMMAND…: one of many restores of one checkpoint, in namespaces of its
 * own (pid, mount, network, uts), so that the same PIDs can be there as often as wanted. NAME is
 * its host name, ADDRESS (IPv4) that of its lo. OWN is seen in place of DIR.
 *
 * Runs COMMAND and is init for what it leaves. Appends to OWN/outcome: "ended STATUS NS" (when the
 * command ended, monotonic), then, when its helper has ended too, "read BYTES NAME ADDRESS": what
 * all of them read from disks, and what the restored processes see. SIGUSR1 goes on to all of them.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void note(const char *own, const char *line)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/outcome", own);
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, line, strlen(line)) != (ssize_t)strlen(line))
		err(1, "%s", path);
	close(fd);
}

static void forward(int sig)
{
	kill(-1, sig);
}

/* Its second address; 127.0.0.1 stays, since criu tests TCP there. */
static void lo_alias(struct ifreq *r, const char *address)
{
	struct sockaddr_in *in = (struct sockaddr_in *)&r->ifr_addr;

	memset(r, 0, sizeof(*r));
	strcpy(r->ifr_name, "lo:1");
	in->sin_family = AF_INET;
	if (address && inet_pton(AF_INET, address, &in->sin_addr) != 1)
		errx(2, "%s is no address", address);
}

static void settle(const char *name, const char *address, const char *dir, const char *own)
{
	int sk = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq r;

	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("proc", "/proc", "proc", MS_NOSUID, NULL) || mount(own, dir, NULL, MS_BIND, NULL))
		err(1, "mounts");
	if (sethostname(name, strlen(name)))
		err(1, "host name");
	memset(&r, 0, sizeof(r));
	strcpy(r.ifr_name, "lo");
	r.ifr_flags = IFF_UP | IFF_RUNNING;
	if (sk < 0 || ioctl(sk, SIOCSIFFLAGS, &r))
		err(1, "lo");
	lo_alias(&r, address);
	if (ioctl(sk, SIOCSIFADDR, &r))
		err(1, "address");
	close(sk);
}

/* Does criu's or a helper's work go on there? */
static int is_criu(const char *pid)
{
	char path[300], comm[32] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%s/comm", pid);
	f = fopen(path, "r");
	if (!f)
		return 0;
	if (!fgets(comm, sizeof(comm), f))
		comm[0] = 0;
	fclose(f);
	return !strncmp(comm, "zns-", 4) || !strncmp(comm, "criu", 4);
}

/* What a process has read from disks. */
static unsigned long long read_by(const char *pid)
{
	unsigned long long n = 0;
	char path[300], line[100];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%s/io", pid);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "read_bytes: %llu", &n);
	if (f)
		fclose(f);
	return n;
}

/* How many of criu's processes live, and what the others but us have read: stock's tasks read their
 * pages themselves. */
static int helpers_left(unsigned long long *bytes)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	int n = 0;

	*bytes = 0;
	while (d && (e = readdir(d))) {
		if (e->d_name[0] < '1' || e->d_name[0] > '9' || atoi(e->d_name) == 1)
			continue;
		n += is_criu(e->d_name);
		*bytes += read_by(e->d_name);
	}
	if (d)
		closedir(d);
	return n;
}

static void report(const char *own, unsigned long long bytes)
{
	int sk = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	char host[65] = "", address[32] = "", line[200];
	struct rusage use;
	struct ifreq r;

	gethostname(host, sizeof(host) - 1);
	lo_alias(&r, NULL);
	if (sk >= 0 && !ioctl(sk, SIOCGIFADDR, &r))
		inet_ntop(AF_INET, &((struct sockaddr_in *)&r.ifr_addr)->sin_addr, address,
			  sizeof(address));
	close(sk);
	getrusage(RUSAGE_CHILDREN, &use);
	snprintf(line, sizeof(line), "read %llu %s %s\n", bytes + use.ru_inblock * 512ull, host,
		 address);
	note(own, line);
}

static int be_init(char **argv)
{
	struct timespec now;
	unsigned long long bytes;
	char line[100];
	int status;
	pid_t pid;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	settle(argv[1], argv[2], argv[3], argv[4]);
	pid = fork();
	if (!pid) {
		execvp(argv[5], argv + 5);
		_exit(127);
	}
	while (waitpid(-1, &status, 0) != pid)
		;
	clock_gettime(CLOCK_MONOTONIC, &now);
	snprintf(line, sizeof(line), "ended %d %lld\n",
		 WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
		 now.tv_sec * 1000000000ll + now.tv_nsec);
	note(argv[4], line);
	while (helpers_left(&bytes)) {
		waitpid(-1, NULL, WNOHANG);
		usleep(2000);
	}
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	report(argv[4], bytes);
	signal(SIGUSR1, forward);
	while (wait(NULL) > 0 || errno == EINTR)
		;
	return 0;
}

int main(int argc, char **argv)
{
	int status;
	pid_t pid;

	if (argc < 6)
		errx(2, "usage: clone NAME ADDRESS DIR OWN COMMAND…");
	if (unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWUTS))
		err(1, "unshare");
	pid = fork();
	if (pid < 0)
		err(1, "fork");
	if (!pid)
		return be_init(argv);
	while (waitpid(pid, &status, 0) != pid)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
