/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Ends a create or start whose engine or shim was killed. When dockerd dies, its containerd dies
 * too, but the shim stays: without a task, with one that nobody will start, or with one that runs
 * while dockerd believes that it has stopped. Each later start then fails ("task already exists",
 * "id already in use"). When the shim is gone, containerd forgets the task.
 */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <syslog.h>
#include "runc.h"
#include "zns/process.h"
#include "zns/safeopen.h"

#define ARGS_MAX 65536
#define ABOVE_MAX 3 /* most ancestors that are checked */
#define STOP_MS 10000 /* ms; Docker's default for a container */

static int open_process(pid_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	return fd < 0 ? -errno : fd;
}

static bool has_open(int pid, const char *path)
{
	char dir[64], name[300], to[PATH_MAX];
	bool found = false;
	struct dirent *e;
	DIR *d;

	snprintf(dir, sizeof(dir), "/proc/%d/fd", pid);
	d = opendir(dir);
	while (d && !found && (e = readdir(d))) {
		snprintf(name, sizeof(name), "%s/%s", dir, e->d_name);
		found = zns_read_link(AT_FDCWD, name, to, sizeof(to)) > 0 && !strcmp(to, path);
	}
	if (d)
		closedir(d);
	return found;
}

/*
 * Is the lock free? This tries to take it, since a holder in another PID namespace does not appear
 * in /proc/locks here.
 */
static bool nobody_holds(const char *path)
{
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	return fd >= 0 && !flock(fd, LOCK_SH | LOCK_NB);
}

/*
 * Finds the engine: the process that holds a lock on a file below its root as long as it runs.
 * -ESRCH: no process holds it; -errno: unknown.
 */
static int engine_pid(const char *root)
{
	cleanup_file FILE *f = fopen("/proc/locks", "re");
	char path[PATH_MAX], line[256];
	unsigned long ino;
	struct stat st;
	int pid;

	if (!f ||
	    (size_t)snprintf(path, sizeof(path), "%s/volumes/metadata.db", root) >= sizeof(path) ||
	    stat(path, &st))
		return -ENOENT;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%*s FLOCK %*s %*s %d %*x:%*x:%lu", &pid, &ino) == 2 &&
		    ino == st.st_ino && has_open(pid, path))
			return pid;
	return nobody_holds(path) ? -ESRCH : -ENOENT;
}

int orphan_engine(const char *root)
{
	int pid = engine_pid(root);

	return pid < 0 ? pid : open_process(pid);
}

static bool is_shim(pid_t pid, const char *id)
{
	cleanup_free uint8_t *args = NULL;
	bool ours = false;
	const char *base;
	char path[64];
	size_t len;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	if (zns_read_file(AT_FDCWD, path, ARGS_MAX, &args, &len) || !len)
		return false;
	base = strrchr((char *)args, '/');
	base = base ? base + 1 : (char *)args;
	if (strncmp(base, "containerd-shim", strlen("containerd-shim")))
		return false;
	for (char *p = (char *)args, *next; p < (char *)args + len; p = next) {
		next = p + strlen(p) + 1;
		if (next < (char *)args + len && !strcmp(p, "-id"))
			ours = !strcmp(next, id);
	}
	return ours;
}

/*
 * Returns the PID of this container's shim. It may not be our parent, but an ancestor, since Docker
 * calls a runtime with arguments through a script. 0: not found.
 */
static pid_t shim_of(const char *id)
{
	pid_t pid = getppid();

	for (int i = 0; i < ABOVE_MAX && pid > 1;
	     i++, pid = (pid_t)zns_process_stat(pid, ZNS_PROCESS_PARENT))
		if (is_shim(pid, id))
			return pid;
	return 0;
}

static bool has_ended(int process)
{
	struct pollfd p = { process, POLLIN, 0 };

	return poll(&p, 1, 0) == 1;
}

static void run_kill(const struct call *c, const char *signal)
{
	const char *const words[] = { "kill", c->id, signal, NULL };
	char **argv = call_again(c, "/dev/null", words);
	pid_t pid = argv ? fork() : -1;

	if (!pid) {
		execv("/proc/self/exe", argv);
		_exit(127);
	}
	if (pid > 0)
		waitpid(pid, NULL, 0);
	free(argv);
}

/*
 * Stops the container as `docker stop` does: by a checkpoint, if the container's settings say so.
 */
static void stop(const struct call *c)
{
	const struct docker_runtime rt = { c->docker_root, c->root };
	struct zns_err err = ZNS_ERR_INIT;
	struct docker_container k;
	struct docker_state state;
	char signal[16];
	struct pollfd p;

	if (docker_state_read(c->root, c->id, &state, &err) || state.init_pid <= 1)
		return;
	p = (struct pollfd){ open_process(state.init_pid), POLLIN, 0 };
	if (!docker_container_read(&rt, state.bundle, c->id, &k, &err)) {
		docker_note(&k, LOG_WARNING, "stopped: dockerd ended during its start");
		snprintf(signal, sizeof(signal), "%d", suspend_signal(&k));
		run_kill(c, signal);
	}
	docker_container_fini(&k);
	if (p.fd >= 0)
		poll(&p, 1, STOP_MS);
}

/*
 * Watches the runtime call @self until it ends. If its shim dies, the call is killed: when it ended
 * by itself, perhaps much later, it would remove the container of the next start, which has the
 * same id. If its engine dies, the shim is killed. @engine < 0: the engine has ended already.
 */
static void watch(const struct call *c, int self, int engine, int shim)
{
	struct pollfd p[] = { { self, POLLIN, 0 }, { shim, POLLIN, 0 }, { engine, POLLIN, 0 } };

	while (!has_ended(self)) {
		poll(p, ZNS_ARRAY_SIZE(p), -1);
		if (has_ended(shim)) {
			syscall(SYS_pidfd_send_signal, self, SIGKILL, NULL, 0);
			return;
		}
		if (engine >= 0 && has_ended(engine))
			p[2].fd = engine = -1;
	}
	if (engine >= 0 ||
	    /*
	     * the shim ended first: containerd knows that, and another dockerd may create the
	     * container again
	     */
	    has_ended(shim))
		return;
	if (!strcmp(c->command, "start"))
		stop(c);
	syscall(SYS_pidfd_send_signal, shim, SIGKILL, NULL, 0);
}

void orphan_watch(const struct call *c)
{
	const char *root = c->docker_root ? c->docker_root : DOCKER_DEFAULT_ROOT;
	cleanup_close int self = -1, engine = -1, shim = -1;
	char path[PATH_MAX];
	int engine_is;
	pid_t parent, pid;

	if (!docker_full_id(c->id) ||
	    (size_t)snprintf(path, sizeof(path), "%s/containers/%s", root, c->id) >= sizeof(path) ||
	    access(path, F_OK))
		return;
	engine_is = engine_pid(root);
	parent = shim_of(c->id);
	if (!parent || (engine_is < 0 && engine_is != -ESRCH))
		return;
	self = open_process(getpid());
	shim = open_process(parent);
	/* an engine that started after the shim is not the one that made this call */
	engine = engine_is < 0 || zns_process_began(engine_is) > zns_process_began(parent) ?
			 -1 :
			 open_process(engine_is);
	pid = self < 0 || shim < 0 || !is_shim(parent, c->id) ? -1 : fork();
	if (!pid) {
		/*
		 * The second fork makes the watcher a child of the shim, which reaps it, and not of
		 * this call.
		 */
		if (fork())
			_exit(0);
		call_null_stdio();
		watch(c, self, engine, shim);
		_exit(0);
	}
	if (pid > 0)
		waitpid(pid, NULL, 0);
}
