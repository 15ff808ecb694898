/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The parent of a restore that waits for start. It reports to create when the restore waits,
 * receives the requests of start, kill and delete, and gives up when no process can send a request
 * any more. hold.c describes the packets.
 */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <syslog.h>
#include <time.h>
#include "hold.h"
#include "zns/packet.h"

#define TALK_S 10 /* s; a client that has connected must send its packet within this time */
#define LOOK_MS 2000 /* ms between two checks whether the container was removed */

int64_t hold_since_boot(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return t.tv_sec;
}

/* Unmounts the cgroup hierarchies that a killed criu has left mounted in its work directory. */
static void undo_mounts(const char *dir)
{
	char path[PATH_MAX + 300];
	struct dirent *e;
	DIR *d = opendir(dir);

	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		if (strncmp(e->d_name, ".criu.", 6))
			continue;
		umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW);
		rmdir(path);
	}
	if (d)
		closedir(d);
}

void hold_forget(const struct hold *h)
{
	undo_mounts(h->work);
	unlink(h->socket);
	unlink(h->log);
	unlink(h->tty);
	docker_remove_dir(h->work);
	docker_remove_dir(h->from);
}

static const char *runc_root(const struct hold *h)
{
	return h->c->root ? h->c->root : "/run/runc";
}

bool hold_runc_has(const struct hold *h)
{
	char path[PATH_MAX];

	return (size_t)snprintf(path, sizeof(path), "%s/%s", runc_root(h), h->c->id) <
		       sizeof(path) &&
	       !access(path, F_OK);
}

/*
 * Removes the container's directory that a runc leaves behind if it is killed in a restore.
 * Otherwise each later create would fail.
 */
void hold_forget_in_runc(const struct hold *h)
{
	const char *const argv[] = { h->c->argv[0], "--root", runc_root(h), "delete",
				     "--force",     h->c->id, NULL };
	char mount[PATH_MAX];
	pid_t pid;

	if (!hold_runc_has(h))
		return;
	if ((size_t)snprintf(mount, sizeof(mount), "%s/%s/criu-root", runc_root(h), h->c->id) <
	    sizeof(mount))
		umount2(mount, MNT_DETACH | UMOUNT_NOFOLLOW);
	pid = fork();
	if (!pid) {
		call_null_stdio();
		execv(argv[0], (char **)(uintptr_t)argv);
		_exit(127);
	}
	if (pid > 0)
		waitpid(pid, NULL, 0);
}

#define KILL_MAX 4096
/* a process that waits for the answer of a file server dies only when the answer arrives */
#define KILL_WAIT_MS 10000
#define KILL_LOOK_MS 10

/*
 * Lists the children of all threads of a process: the kernel lists children by the thread that
 * started them, and runc has many threads.
 */
static size_t children_of(pid_t pid, pid_t *out, size_t max)
{
	char dir[64], path[350];
	struct dirent *e;
	size_t nr = 0;
	DIR *d;
	FILE *f;

	snprintf(dir, sizeof(dir), "/proc/%d/task", (int)pid);
	d = opendir(dir);
	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), "%s/%s/children", dir, e->d_name);
		f = *e->d_name == '.' ? NULL : fopen(path, "re");
		while (f && nr < max && fscanf(f, "%d", &out[nr]) == 1)
			nr++;
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
	return nr;
}

/* Each process is stopped before its children are listed, so that it makes no more. */
void hold_kill_all(pid_t pid)
{
	pid_t all[KILL_MAX] = { pid };
	size_t nr = 1;

	for (size_t i = 0; i < nr; i++) {
		kill(all[i], SIGSTOP);
		nr += children_of(all[i], all + nr, KILL_MAX - nr);
	}
	while (nr)
		kill(all[--nr], SIGKILL);
}

/* Kills the processes of session @sid among our descendants. Returns how many still run. */
static size_t kill_session(pid_t sid)
{
	pid_t child[KILL_MAX];
	size_t nr = children_of(getpid(), child, KILL_MAX), left = 0;

	for (size_t i = 0; i < nr; i++) {
		if (getsid(child[i]) != sid || waitpid(child[i], NULL, WNOHANG) == child[i])
			continue;
		hold_kill_all(child[i]);
		left++;
	}
	return left;
}

void hold_kill_session(pid_t sid)
{
	for (int i = 0; i < KILL_WAIT_MS / KILL_LOOK_MS && kill_session(sid); i++)
		usleep(KILL_LOOK_MS * 1000);
}

/*
 * Executes runc's restore. If the supervisor is killed, criu notices that the socket is closed and
 * gives up, and runc removes what it has made.
 */
static void __attribute__((noreturn)) restore(const struct hold *h)
{
	const char *words[16] = { "restore",  "--detach",    "--no-subreaper",
				  "--bundle", h->bundle,     "--image-path",
				  h->r->dir,  "--work-path", h->work };
	char **argv, console[PATH_MAX];
	int n = 9, dir;

	if (call_has_flag(h->c, "no-pivot"))
		words[n++] = "--no-pivot";
	if (h->c->console) {
		/*
		 * Use a path through /proc/self/fd, since the whole path may be too long for a
		 * socket's address. runc inherits the descriptor.
		 */
		dir = zns_run_subdir("docker", NULL);
		fcntl(dir, F_SETFD, 0);
		snprintf(console, sizeof(console), "/proc/self/fd/%d%s", dir, strrchr(h->tty, '/'));
		words[n++] = "--console-socket";
		words[n++] = console;
		call_null_stdio(); /* containerd waits until the pipes of create are closed */
	}
	words[n] = h->c->id;
	argv = call_again(h->c, h->log, words);
	setenv("ZNS_HOLD", h->socket, 1);
	/*
	 * For a checkpoint of another container: the helper restores it only into a container for
	 * which root has allowed it.
	 */
	if (*h->r->from)
		setenv(ZNS_RESTORE_ALLOW, h->r->from, 1);
	else
		unsetenv(ZNS_RESTORE_ALLOW);
	if (argv)
		execv("/proc/self/exe", argv);
	_exit(127);
}

/*
 * Notes that this checkpoint was used: from now on the container's files may change, so it must not
 * be restored again.
 */
static bool use_up(const struct hold *h)
{
	int ret = docker_resume_used_by(h->k);

	if (ret)
		docker_note(h->k, LOG_ERR, "not resumed, as it could be once more: %s",
			    strerror(-ret));
	return !ret;
}

/* Reads one packet of a connected client and handles it. */
static void hear(struct hold *h, pid_t pid, bool over, int status)
{
	char buf[HOLD_PACKET_MAX], answer[HOLD_PACKET_MAX];
	int fd = accept4(h->listener, NULL, NULL, SOCK_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return;
	zns_packet_timeouts(fd, TALK_S);
	n = recv(fd, buf, sizeof(buf) - 1, 0);
	buf[n > 0 ? n : 0] = 0;
	if (*buf == 'h' && h->criu < 0) {
		h->criu = fd;
		h->init = atoi(buf + 1);
		if (write(h->ready, buf + 1, strlen(buf + 1)) < 0)
			close(zns_take_fd(&h->criu));
		close(zns_take_fd(&h->ready));
		return;
	}
	if (*buf == 's') {
		snprintf(answer, sizeof(answer), "%d %s", (int)h->init, h->bundle);
		zns_packet_send(fd, &(struct iovec){ answer, strlen(answer) }, 1, &h->restore, 1);
	} else if (over && *buf) {
		send(fd, status ? "1" : "0", 1, MSG_NOSIGNAL);
		close(fd);
		_exit(0);
	} else if (*buf == 'x' && (h->asker >= 0 || h->ready >= 0) && h->killer < 0) {
		/* a create or start is in progress, and may never end by itself */
		h->killer = fd;
		hold_kill_all(pid);
		return;
	} else if ((*buf == 'g' || *buf == 'x') && h->asker < 0 && h->criu >= 0) {
		h->asker = fd;
		if (*buf == 'g' && use_up(h)) {
			docker_resume_began(h->k, hold_since_boot());
			snprintf(answer, sizeof(answer), "g%s", h->host);
			send(h->criu, answer, strlen(answer), MSG_NOSIGNAL);
		}
		close(zns_take_fd(&h->criu));
		return;
	}
	close(fd);
}

/*
 * Is the container gone? If its engine was killed after create and somebody removed the container,
 * neither start nor delete will be called.
 */
static bool is_removed(const struct hold *h)
{
	char path[PATH_MAX];

	/*
	 * an engine that keeps no directory for a container keeps its bundle until the container is
	 * removed
	 */
	if (docker_own_path(h->k, "", path, sizeof(path)))
		snprintf(path, sizeof(path), "%s", h->bundle);
	return access(path, F_OK) && errno == ENOENT;
}

static void answer_all(const struct hold *h, int status)
{
	if (h->asker >= 0)
		send(h->asker, status ? "1" : "0", 1, MSG_NOSIGNAL);
	if (h->killer >= 0)
		send(h->killer, "1", 1, MSG_NOSIGNAL);
}

void supervise(struct hold *h)
{
	enum { TALK, RESTORE, ENGINE };
	struct pollfd p[] = { [TALK] = { h->listener, POLLIN, 0 },
			      [RESTORE] = { -1, POLLIN, 0 },
			      [ENGINE] = { orphan_engine(h->k->root), POLLIN, 0 } };
	pid_t pid = fork();
	int status = 0;
	bool over = false, unwanted = false, alone = false, ended;

	if (!pid)
		restore(h);
	/* create may have been killed, which closes its end of the pipe */
	signal(SIGPIPE, SIG_IGN);
	/*
	 * Programs that read the container's output wait until its last writer has closed it, so
	 * this process must not keep it open.
	 */
	call_null_stdio();
	p[RESTORE].fd = h->restore = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	if (p[RESTORE].fd < 0)
		_exit(1);
	if (h->c->console) {
		if (!terminal_relay(h)) {
			hold_kill_all(pid);
			_exit(1);
		}
		close(zns_take_fd(&h->master));
		close(zns_take_fd(&h->slave));
		close(zns_take_fd(&h->console));
	}
	for (;;) {
		if (poll(p, ZNS_ARRAY_SIZE(p), h->criu >= 0 ? LOOK_MS : -1) < 0 && errno != EINTR)
			_exit(1);
		if (p[ENGINE].revents || p[ENGINE].fd == -ESRCH) {
			alone = true;
			p[ENGINE].fd = -1;
		}
		if (h->criu >= 0 && (alone || is_removed(h))) {
			unwanted = true;
			if (alone)
				docker_note(h->k, LOG_WARNING,
					    "not resumed: dockerd ended before it called start");
			close(zns_take_fd(&h->criu));
		}
		ended = p[RESTORE].revents && waitpid(pid, &status, 0) == pid;
		if (ended) {
			p[RESTORE].fd = -1;
			over = true;
		}
		if (over && unwanted) {
			hold_forget_in_runc(h);
			hold_forget(h);
			_exit(0);
		}
		if (ended) {
			/* create has not returned yet: it will see that its pipe is closed */
			if (h->ready >= 0) {
				answer_all(h, status);
				_exit(h->killer >= 0 ? HOLD_DELETED : 1);
			}
			if (h->asker >= 0) {
				answer_all(h, status);
				_exit(0);
			}
		}
		if (p[TALK].revents)
			hear(h, pid, over, status);
		for (size_t i = 0; i < ZNS_ARRAY_SIZE(p); i++)
			p[i].revents = 0;
	}
}
