/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Many objects of one kind, for the time that a dump needs for each.
 *   many KIND N DIR
 * makes N of KIND, writes the file DIR/ready and waits. Files that it needs are in DIR. Kinds that
 * need a namespace (mounts, netdevs) make it. Those of the kernel that outlive a process (System V
 * objects) are in a namespace of their own, too.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE_BYTES 4096ul
#define STACK_BYTES (64ul << 10)
#define MIB (1ul << 20)

static const char *dir;
static int listener = -1;
static struct sockaddr_in listens = { .sin_family = AF_INET };

#define CHECK(what)                                                                    \
	do {                                                                           \
		if (!(what)) {                                                         \
			fprintf(stderr, "%s:%d: %s: %m\n", __FILE__, __LINE__, #what); \
			exit(1);                                                       \
		}                                                                      \
	} while (0)

static int new_file(const char *name, int nr)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/%s-%d", dir, name, nr);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	CHECK(fd >= 0);
	return fd;
}

static void *page_of(int prot, int flags, int fd, unsigned long bytes)
{
	void *p = mmap(NULL, bytes, prot, flags, fd, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

static void processes(int nr)
{
	(void)nr;
	switch (fork()) {
	case -1:
		CHECK(!"fork");
		break;
	case 0:
		CHECK(!prctl(PR_SET_PDEATHSIG, SIGKILL));
		for (;;)
			pause();
	}
}

static void *idle(void *unused)
{
	(void)unused;
	for (;;)
		pause();
	return NULL;
}

static void threads(int nr)
{
	pthread_attr_t attr;
	pthread_t id;

	(void)nr;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	CHECK(!pthread_create(&id, &attr, idle, NULL));
}

static void shared_areas(int nr)
{
	*(int *)page_of(PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, PAGE_BYTES) = nr;
}

static void memfds(int nr)
{
	int fd = memfd_create("many", MFD_CLOEXEC);

	CHECK(fd >= 0 && write(fd, &nr, sizeof(nr)) == sizeof(nr));
}

static void areas(int nr)
{
	*(int *)page_of(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, PAGE_BYTES) = nr;
	page_of(PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, PAGE_BYTES);
}

static void deleted(int nr)
{
	char path[256];
	int fd = new_file("deleted", nr);

	CHECK(write(fd, &nr, sizeof(nr)) == sizeof(nr));
	snprintf(path, sizeof(path), "%s/deleted-%d", dir, nr);
	CHECK(!unlink(path));
}

static void files(int nr)
{
	new_file("file", nr);
}

static void epolls(int nr)
{
	static int event = -1;
	struct epoll_event e = { .events = EPOLLIN, .data.fd = nr };
	int fd = epoll_create1(EPOLL_CLOEXEC);

	if (event < 0)
		event = eventfd(0, EFD_CLOEXEC);
	CHECK(fd >= 0 && event >= 0 && !epoll_ctl(fd, EPOLL_CTL_ADD, event, &e));
}

static void eventfds(int nr)
{
	CHECK(eventfd(nr, EFD_CLOEXEC) >= 0);
}

static void pipes(int nr)
{
	int fd[2];

	CHECK(!pipe(fd) && write(fd[1], &nr, sizeof(nr)) == sizeof(nr));
}

static void sockets(int nr)
{
	int fd[2];

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, fd) && send(fd[0], &nr, sizeof(nr), 0) > 0);
}

static void flocks(int nr)
{
	CHECK(!flock(new_file("flock", nr), LOCK_EX));
}

static void set_lock(int nr, int command)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1 };

	CHECK(!fcntl(new_file("lock", nr), command, &lock));
}

static void posix_locks(int nr)
{
	set_lock(nr, F_SETLK);
}

static void ofd_locks(int nr)
{
	set_lock(nr, F_OFD_SETLK);
}

static void leases(int nr)
{
	int fd = new_file("lease", nr);

	CHECK(!fcntl(fd, F_SETLEASE, F_WRLCK));
}

/* Watches are spread over several descriptors, of which a user may have 128. */
static void inotifies(int nr)
{
	static int fd = -1;
	char path[256];

	if (fd < 0)
		fd = inotify_init1(IN_CLOEXEC);
	close(new_file("watched", nr));
	snprintf(path, sizeof(path), "%s/watched-%d", dir, nr);
	CHECK(fd >= 0 && inotify_add_watch(fd, path, IN_MODIFY) >= 0);
}

static void mounts(int nr)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/root/m-%d", dir, nr);
	CHECK(!mkdir(path, 0700) && !mount("many", path, "tmpfs", 0, "size=64k"));
}

static void tmpfs_mib(int nr)
{
	static int fd = -1;
	unsigned char block[4096];

	if (fd < 0) {
		char path[256];

		snprintf(path, sizeof(path), "%s/root/tmp", dir);
		CHECK(!mkdir(path, 0700) && !mount("many", path, "tmpfs", 0, NULL));
		snprintf(path, sizeof(path), "%s/root/tmp/big", dir);
		fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	}
	for (unsigned long done = 0; done < MIB; done += sizeof(block)) {
		for (unsigned int i = 0; i < sizeof(block); i++)
			block[i] = rand();
		CHECK(write(fd, block, sizeof(block)) == sizeof(block));
	}
	(void)nr;
}

static void begin_tcp(void)
{
	socklen_t len = sizeof(listens);

	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	listens.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(listener >= 0 && !bind(listener, (void *)&listens, sizeof(listens)) &&
	      !listen(listener, 4096) && !getsockname(listener, (void *)&listens, &len));
}

static void tcp(int nr)
{
	int fd;

	if (!nr)
		begin_tcp();
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0 && !connect(fd, (void *)&listens, sizeof(listens)) &&
	      accept4(listener, NULL, NULL, SOCK_CLOEXEC) >= 0);
}

static void udp(int nr)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(9 + nr % 1000) };

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(fd >= 0 && !connect(fd, (void *)&to, sizeof(to)));
}

static void sysv(int nr)
{
	struct {
		long type;
		char text[8];
	} m = { 1, "many" };
	int shm = shmget(IPC_PRIVATE, PAGE_BYTES, IPC_CREAT | 0600);
	int queue = msgget(IPC_PRIVATE, IPC_CREAT | 0600);

	(void)nr;
	CHECK(shm >= 0 && semget(IPC_PRIVATE, 1, IPC_CREAT | 0600) >= 0 && queue >= 0 &&
	      !msgsnd(queue, &m, sizeof(m.text), 0));
}

static void tuns(int nr)
{
	struct ifreq r = { .ifr_flags = IFF_TUN | IFF_NO_PI };
	int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);

	snprintf(r.ifr_name, sizeof(r.ifr_name), "many%d", nr);
	CHECK(fd >= 0 && !ioctl(fd, TUNSETIFF, &r) && !ioctl(fd, TUNSETPERSIST, 1));
	close(fd);
}

/* A process in each of the groups DIR/cgroup-N, which the caller has made in cgroup v2 or v1. */
static void cgroups(int nr)
{
	char path[256];
	pid_t pid = fork();
	int fd;

	CHECK(pid >= 0);
	if (!pid) {
		CHECK(!prctl(PR_SET_PDEATHSIG, SIGKILL));
		for (;;)
			pause();
	}
	snprintf(path, sizeof(path), "%s/many-%d", getenv("MANY_CGROUP"), nr);
	CHECK(!mkdir(path, 0700) || errno == EEXIST);
	snprintf(path, sizeof(path), "%s/many-%d/cgroup.procs", getenv("MANY_CGROUP"), nr);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	CHECK(fd >= 0 && dprintf(fd, "%d", pid) > 0);
	close(fd);
}

/* Makes a root directory with this program in it. */
static void own_mounts(void)
{
	char root[256], copy[300], command[400];

	snprintf(root, sizeof(root), "%s/root", dir);
	snprintf(copy, sizeof(copy), "%s/many", root);
	snprintf(command, sizeof(command), "cp /proc/%d/exe %s", getpid(), copy);
	CHECK(!mkdir(root, 0700) && !unshare(CLONE_NEWNS) &&
	      !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
	      !mount("many", root, "tmpfs", 0, NULL) && !system(command));
}

/* Executes `many wait FD`, which keeps nothing of the old root except the directory @fd. */
static void leave_mounts(int fd)
{
	char root[256], number[16];
	int out;

	snprintf(root, sizeof(root), "%s/root", dir);
	snprintf(number, sizeof(number), "%d", fd);
	CHECK(!chdir(root) && !mkdir("proc", 0700) && !mount("proc", "proc", "proc", 0, NULL) &&
	      !syscall(SYS_pivot_root, ".", ".") && !umount2(".", MNT_DETACH) && !chdir("/") &&
	      !fcntl(fd, F_SETFD, 0));
	out = open("/out", O_RDWR | O_CREAT, 0600);
	for (int i = 0; i < 3; i++)
		CHECK(dup2(out, i) == i);
	close(out);
	execl("/many", "many", "wait", number, NULL);
	CHECK(!"exec");
}

static void wait_here(int fd)
{
	close(openat(fd, "ready", O_CREAT | O_WRONLY, 0600));
	close(fd);
	for (;;)
		pause();
}

static const struct kind {
	const char *name;
	void (*make)(int nr);
	int unshared;
} kinds[] = {
	{ "processes", processes, 0 },
	{ "threads", threads, 0 },
	{ "shared-areas", shared_areas, 0 },
	{ "memfds", memfds, 0 },
	{ "areas", areas, 0 },
	{ "deleted", deleted, 0 },
	{ "files", files, 0 },
	{ "epolls", epolls, 0 },
	{ "eventfds", eventfds, 0 },
	{ "pipes", pipes, 0 },
	{ "sockets", sockets, 0 },
	{ "flocks", flocks, 0 },
	{ "posix-locks", posix_locks, 0 },
	{ "ofd-locks", ofd_locks, 0 },
	{ "leases", leases, 0 },
	{ "inotifies", inotifies, 0 },
	{ "tcp", tcp, 0 },
	{ "udp", udp, 0 },
	{ "mounts", mounts, CLONE_NEWNS },
	{ "tmpfs-mib", tmpfs_mib, CLONE_NEWNS },
	{ "sysv", sysv, CLONE_NEWIPC },
	{ "tuns", tuns, CLONE_NEWNET },
	{ "cgroups", cgroups, 0 },
};

int main(int argc, char **argv)
{
	struct rlimit limit = { 1 << 20, 1 << 20 };
	const struct kind *kind = kinds;
	char ready[256];
	int fd;

	if (argc == 3 && !strcmp(argv[1], "wait"))
		wait_here(atoi(argv[2]));
	CHECK(argc == 4);
	dir = argv[3];
	while (strcmp(kind->name, argv[1]))
		CHECK(++kind < kinds + sizeof(kinds) / sizeof(kinds[0]));
	if (setrlimit(RLIMIT_NOFILE, &limit)) {
		getrlimit(RLIMIT_NOFILE, &limit);
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	snprintf(ready, sizeof(ready), "%s/ready", dir);
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(fd >= 0);
	if (kind->unshared & CLONE_NEWNS)
		own_mounts();
	else if (kind->unshared)
		CHECK(!unshare(kind->unshared));
	for (int i = 0; i < atoi(argv[2]); i++)
		kind->make(i);
	if (kind->unshared & CLONE_NEWNS)
		leave_mounts(fd);
	wait_here(fd);
}
