/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A restore inside an engine's ordinary create and start. `create` begins the restore of a
 * checkpoint, which waits when the first process has its namespaces (criu/zns-hold.c). Then create
 * returns, the engine sets up the network, and `start` lets the restore go on.
 *
 * Between the two a supervisor stands: the parent of the restore, in a session of its own. It has
 * a socket in the run directory. A packet begins with a letter:
 *
 *	h PID	criu: the restore waits
 *	g HOST	start: go on, with this host name; the answer comes when the restore has ended
 *	x	kill, delete: give up; likewise
 *	s	state: the answer is the PID, the bundle and a descriptor of the restore's process
 */
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
#include "runc.h"
#include "zns/packet.h"

#define SOCKET "hold"
#define PACKET_MAX (PATH_MAX + 64)
#define TALK_S 10 /* for one packet of somebody who has connected */
#define LOOK_MS 2000 /* between two looks whether the container is still there */

struct hold {
	const struct call *c;
	const struct docker_container *k;
	const struct docker_resume *r;
	char socket[PATH_MAX], log[PATH_MAX], work[PATH_MAX]; /* paths in the run directory */
	char bundle[PATH_MAX], host[256];
	int listener, ready, criu, asker;
	int restore; /* a pidfd */
	pid_t init;
};

static int paths(struct hold *h, const char *id, struct zns_err *err)
{
	int ret = docker_run_path(id, SOCKET, h->socket, sizeof(h->socket), err);

	if (!ret)
		ret = docker_run_path(id, SOCKET ".log", h->log, sizeof(h->log), err);
	return ret ? ret : docker_run_path(id, SOCKET ".work", h->work, sizeof(h->work), err);
}

static int64_t since_boot(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return t.tv_sec;
}

static void forget(const struct hold *h)
{
	unlink(h->socket);
	unlink(h->log);
	docker_remove_dir(h->work);
}

static const char *runc_root(const struct hold *h)
{
	return h->c->root ? h->c->root : "/run/runc";
}

static bool runc_has(const struct hold *h)
{
	char path[PATH_MAX];

	return (size_t)snprintf(path, sizeof(path), "%s/%s", runc_root(h), h->c->id) <
		       sizeof(path) &&
	       !access(path, F_OK);
}

/* A runc that was killed in a restore leaves its directory, and each later create would fail. */
static void forget_in_runc(const struct hold *h)
{
	const char *const argv[] = { h->c->argv[0], "--root", runc_root(h), "delete",
				     "--force",     h->c->id, NULL };
	char mount[PATH_MAX];
	pid_t pid;

	if (!runc_has(h))
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

/* ---- the supervisor ---- */

/* If the supervisor is killed criu finds its socket closed and gives up, and runc removes what it
 * made. */
static void __attribute__((noreturn)) restore(const struct hold *h)
{
	const char *const words[] = { "restore",
				      "--detach",
				      "--no-subreaper",
				      "--bundle",
				      h->bundle,
				      "--image-path",
				      h->r->dir,
				      "--work-path",
				      h->work,
				      call_has_flag(h->c, "no-pivot") ? "--no-pivot" : h->c->id,
				      call_has_flag(h->c, "no-pivot") ? h->c->id : NULL,
				      NULL };
	char **argv = call_again(h->c, h->log, words);

	setenv("ZNS_HOLD", h->socket, 1);
	if (argv)
		execv("/proc/self/exe", argv);
	_exit(127);
}

/* From here on its files may change: it must not come back to this memory once more. */
static bool use_up(const struct hold *h)
{
	int ret = docker_resume_used(h->k->root, h->k->id);

	if (ret)
		docker_note(h->k, LOG_ERR, "not resumed, as it could be once more: %s",
			    strerror(-ret));
	return !ret;
}

/* One packet of somebody who has connected. */
static void hear(struct hold *h, bool over, int status)
{
	char buf[PACKET_MAX], answer[PACKET_MAX];
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
	} else if ((*buf == 'g' || *buf == 'x') && h->asker < 0 && h->criu >= 0) {
		h->asker = fd;
		if (*buf == 'g' && use_up(h)) {
			docker_resume_began(h->k, since_boot());
			snprintf(answer, sizeof(answer), "g%s", h->host);
			send(h->criu, answer, strlen(answer), MSG_NOSIGNAL);
		}
		close(zns_take_fd(&h->criu));
		return;
	}
	close(fd);
}

/* Its engine was killed after create, and the container removed: nobody will start or delete it. */
static bool is_removed(const struct hold *h)
{
	char path[PATH_MAX];

	return (size_t)snprintf(path, sizeof(path), "%s/containers/%s", h->k->root, h->k->id) <
		       sizeof(path) &&
	       access(path, F_OK) && errno == ENOENT;
}

static void __attribute__((noreturn)) supervise(struct hold *h)
{
	struct pollfd p[2] = { { h->listener, POLLIN, 0 }, { -1, POLLIN, 0 } };
	pid_t pid = fork();
	int status = 0;
	bool over = false, removed = false;

	if (!pid)
		restore(h);
	/* whoever reads the container's output waits until its last writer is gone */
	call_null_stdio();
	p[1].fd = h->restore = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	if (p[1].fd < 0)
		_exit(1);
	for (;;) {
		if (poll(p, 2, h->criu >= 0 ? LOOK_MS : -1) < 0 && errno != EINTR)
			_exit(1);
		if (h->criu >= 0 && is_removed(h)) {
			removed = true;
			close(zns_take_fd(&h->criu));
		}
		if (p[1].revents && waitpid(pid, &status, 0) == pid) {
			p[1].fd = -1;
			over = true;
			if (removed) {
				forget(h);
				_exit(0);
			}
			if (h->ready >= 0) /* create still waits: it sees the end of the pipe */
				_exit(1);
			if (h->asker >= 0) {
				send(h->asker, status ? "1" : "0", 1, MSG_NOSIGNAL);
				_exit(0);
			}
		}
		if (p[0].revents)
			hear(h, over, status);
		p[0].revents = p[1].revents = 0;
	}
}

/* ---- create ---- */

static int listen_at(struct hold *h, struct zns_err *err)
{
	const char *name = strrchr(h->socket, '/') + 1;
	cleanup_close int dir = zns_run_subdir("docker", err);
	int sk, ret;

	if (dir < 0)
		return dir;
	sk = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	ret = sk < 0 ? -errno : zns_run_bind(sk, dir, name);
	if (!ret && listen(sk, 8))
		ret = -errno;
	if (!ret)
		return sk;
	if (sk >= 0)
		close(sk);
	return zns_fail_sys(err, ret, "%s", h->socket);
}

static int begin(struct hold *h, struct zns_err *err)
{
	cleanup_close int listener = listen_at(h, err), from = -1, to = -1;
	char pid_text[16] = "", why[ZNS_ERR_MAX];
	bool had = runc_has(h);
	int ends[2], ret = 0;
	ssize_t n;
	pid_t pid;

	if (listener < 0)
		return listener;
	if (pipe2(ends, O_CLOEXEC))
		return zns_fail_sys(err, -errno, "pipe");
	from = ends[0];
	to = ends[1];
	unlink(h->log);
	pid = fork();
	if (!pid) {
		close(from);
		setsid();
		h->listener = listener;
		h->ready = to;
		supervise(h);
	}
	if (pid < 0)
		return zns_fail_sys(err, -errno, "fork");
	close(zns_take_fd(&to));
	while ((n = read(from, pid_text, sizeof(pid_text) - 1)) < 0 && errno == EINTR)
		;
	if (n <= 0) {
		waitpid(pid, NULL, 0);
		if (!had)
			forget_in_runc(h);
		ret = zns_fail(err, -EIO, "%s",
			       call_last_error(h->log, why, sizeof(why)) ? why :
									   "the restore ended");
	} else if (h->c->pid_file) {
		ret = zns_replace_file(AT_FDCWD, h->c->pid_file, pid_text, (size_t)n, 0644);
		if (ret) {
			kill(pid, SIGKILL);
			waitpid(pid, NULL, 0);
			zns_fail_sys(err, ret, "%s", h->c->pid_file);
		}
	}
	if (ret)
		forget(h);
	return ret;
}

static int hold(struct call *c, const struct docker_container *k, const struct docker_resume *r,
		struct zns_err *err)
{
	const char *host = zns_json_str(k->spec, "hostname");
	struct hold h = { .c = c, .k = k, .r = r, .criu = -1, .asker = -1 };
	int ret = paths(&h, c->id, err);

	if (ret)
		return ret;
	if (c->console)
		return zns_fail(err, -EOPNOTSUPP, "containers with a terminal are not resumed");
	if (!r->asked && docker_resume_loops(k, since_boot()))
		return zns_fail(err, -ELOOP,
				"it was resumed twice and ended within 10 s each time");
	if (!realpath(c->bundle ? c->bundle : ".", h.bundle))
		return zns_fail_sys(err, -errno, "%s", c->bundle);
	snprintf(h.host, sizeof(h.host), "%s", host ? host : "");
	return begin(&h, err);
}

static bool ended_with_a_checkpoint(const struct docker_container *k)
{
	cleanup_free uint8_t *text = NULL;
	size_t len;

	return !strcmp(k->kind, "docker") &&
	       !docker_read_own(k->root, k->id, DOCKER_ENDED_FILE, &text, &len, NULL);
}

int hold_create(struct call *c, const struct docker_container *k, bool *held, struct zns_err *err)
{
	struct docker_settings s;
	struct docker_resume r;
	int ret = docker_settings_read(k, &s, err);

	*held = false;
	if (ret) { /* a bad rule fails checkpoints, no start */
		docker_note(k, LOG_WARNING,
			    ended_with_a_checkpoint(k) ? "started cold: %s" :
							 "its checkpoints will fail: %s",
			    err->msg);
		return err->code = 0;
	}
	ret = docker_resume_choose(k, &s, &r, err);
	if (!ret && !*r.dir) {
		if (r.lost)
			docker_note_lost(k);
		return 0;
	}
	if (!ret)
		ret = hold(c, k, &r, err);
	*held = !ret;
	if (!ret) {
		docker_note(k, LOG_INFO, "resumed from checkpoint %s%s", r.name,
			    r.asked || !strcmp(s.value[DOCKER_RESUME], "ended") ?
				    "" :
				    ", older than its files may be");
		return 0;
	}
	if (r.asked)
		docker_resume_refused(k);
	if (r.or_cold) {
		docker_note(k, LOG_WARNING, "started cold: %s", err->msg);
		return err->code = 0;
	}
	docker_note(k, LOG_ERR, "not started: %s", err->msg);
	return zns_wrap(err, "container %.60s is not resumed", k->name);
}

/* ---- start, state, kill, delete ---- */

static int dial(const struct hold *h)
{
	const char *name = strrchr(h->socket, '/') + 1;
	char dir[PATH_MAX];
	cleanup_close int at = -1;
	int sk, ret;

	snprintf(dir, sizeof(dir), "%.*s", (int)(name - h->socket), h->socket);
	at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	sk = at < 0 ? -1 : socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (sk < 0)
		return -errno;
	ret = zns_run_connect(sk, at, name);
	if (!ret)
		return sk;
	close(sk);
	return ret;
}

/* False: the supervisor does not answer. */
static bool ask_state(struct hold *h, int sk)
{
	char answer[PACKET_MAX] = "";
	struct iovec iov = { answer, sizeof(answer) - 1 };
	uint32_t nr = 0;

	return send(sk, "s", 1, MSG_NOSIGNAL) == 1 &&
	       zns_packet_recv(sk, &iov, 1, &h->restore, 1, &nr) > 0 && nr == 1 &&
	       sscanf(answer, "%d %4095[^\n]", &h->init, h->bundle) == 2;
}

/* Asks for @letter and waits until the restore has ended. True: it runs. */
static bool ask(const struct hold *h, int sk, const char *letter)
{
	struct pollfd p = { h->restore, POLLIN, 0 };
	struct zns_err err = ZNS_ERR_INIT;
	struct docker_state s;
	char answer = 0;
	ssize_t n = -1;

	if (send(sk, letter, strlen(letter), MSG_NOSIGNAL) > 0)
		while ((n = recv(sk, &answer, 1, 0)) < 0 && errno == EINTR)
			;
	if (n == 1)
		return answer == '0';
	/* The supervisor was killed. criu gives up, or has gone on: then runc knows the
	 * container in the end. */
	while (poll(&p, 1, -1) < 0 && errno == EINTR)
		;
	return !docker_state_read(h->c->root, h->c->id, &s, &err) && s.init_pid == h->init;
}

static bool has_restart_policy(const struct docker_container *k)
{
	cleanup_free uint8_t *text = NULL;
	struct json_object *o = NULL;
	const char *name = NULL;
	bool has;
	size_t len;

	if (!docker_read_own(k->root, k->id, "hostconfig.json", &text, &len, NULL) &&
	    !zns_json_parse("hostconfig.json", text, len, &o, NULL))
		name = zns_json_str(zns_json_get(o, "RestartPolicy"), "Name");
	has = name && *name && strcmp(name, "no");
	json_object_put(o);
	return has;
}

/*
 * The engine knows the PID of a process that has ended. With a restart policy it takes that for
 * the container's end and makes a new create, a cold one. Else its start must fail.
 */
static int failed(const struct hold *h, struct zns_err *err)
{
	const struct docker_runtime rt = { h->c->docker_root, h->c->root };
	char why[ZNS_ERR_MAX] = "the restore ended";
	struct docker_container k;
	struct docker_settings s;
	struct docker_resume r;
	bool again = false, cold = false;

	call_last_error(h->log, why, sizeof(why));
	if (!docker_container_read(&rt, h->bundle, h->c->id, &k, err) &&
	    !docker_settings_read(&k, &s, err)) {
		cold = !docker_resume_choose(&k, &s, &r, err) && !*r.dir;
		again = r.or_cold && has_restart_policy(&k);
		docker_note(&k, LOG_WARNING, "not resumed: %s", why);
	}
	docker_container_fini(&k);
	err->code = 0;
	return again ? 0 :
		       zns_fail(err, -EIO, "%s%s", why,
				cold ? "; the next start is a cold one" : "");
}

static int start(struct hold *h, int sk, struct zns_err *err)
{
	int ret = 0;

	if (!ask(h, sk, "g")) {
		forget_in_runc(h);
		ret = failed(h, err);
	}
	forget(h);
	return ret;
}

static int give_up(const struct hold *h, int sk)
{
	ask(h, sk, "x");
	forget_in_runc(h);
	forget(h);
	return 0;
}

static int state(const struct hold *h)
{
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, "ociVersion", json_object_new_string("1.0.2"));
	json_object_object_add(o, "id", json_object_new_string(h->c->id));
	json_object_object_add(o, "pid", json_object_new_int(h->init));
	json_object_object_add(o, "status", json_object_new_string("created"));
	json_object_object_add(o, "bundle", json_object_new_string(h->bundle));
	puts(json_object_to_json_string(o));
	json_object_put(o);
	return fflush(stdout) ? 1 : 0;
}

/* Is one of the words behind the command the id of a container that is held? Commands differ in
 * where they have it. */
static bool is_held(const struct call *c, struct hold *h)
{
	int at = 1;

	while (at < c->argc && c->argv[at] != c->command)
		at++;
	for (at++; at < c->argc; at++)
		if (docker_good_id(c->argv[at]) && !paths(h, c->argv[at], NULL) &&
		    !access(h->socket, F_OK))
			return true;
	return false;
}

int hold_call(const struct call *c, struct zns_err *err)
{
	struct hold h = { .c = c, .restore = -1 };
	cleanup_close int sk = -1;
	int sig = 0;

	if (!is_held(c, &h))
		return -ENOENT;
	sk = dial(&h);
	if (sk < 0) { /* the supervisor was killed, and the restore gives up */
		forget(&h);
		return -ENOENT;
	}
	if (!ask_state(&h, sk))
		return zns_fail(err, -EIO, "the restore of this container does not answer");
	close(sk);
	sk = dial(&h);
	if (!strcmp(c->command, "state"))
		return state(&h);
	if (!strcmp(c->command, "start"))
		return start(&h, sk, err);
	if (call_killed(c, &sig))
		return sig == SIGKILL || sig == SIGTERM ? give_up(&h, sk) : 0;
	if (!strcmp(c->command, "delete"))
		return give_up(&h, sk);
	return zns_fail(err, -EBUSY, "%.20s is not possible before the container is started",
			c->command);
}
