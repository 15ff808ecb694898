/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A restore that is split between an engine's create and start. `create` begins the restore of a
 * checkpoint, which waits when the first process has its namespaces
 * (criu/adapter/guard/zns-hold.c). Then create returns, the engine sets up the network, and `start`
 * lets the restore continue.
 *
 * A supervisor is the parent of the restore, in a session of its own. It has a socket in the run
 * directory. A packet on that socket begins with a letter:
 *
 * 	h PID	from criu: the restore waits
 * 	g HOST	from start: continue, with this host name; answered when the restore has ended
 * 	x	from kill and delete: give up; answered when the restore has ended
 * 	s	from state: answered with the PID, the bundle and a descriptor of the restore's process
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <syslog.h>
#include "hold.h"
#include "zns/config.h"
#include "zns/packet.h"

#define SOCKET "hold"
#define LOOK_MS 1000 /* ms between two checks by create whether criu's log has grown */
/*
 * If criu's log does not grow for this multiple of the deadline in zns.conf, the restore is given
 * up.
 */
#define DEADLINES 6

static int paths(struct hold *h, const char *id, struct zns_err *err)
{
	int ret = docker_run_path(id, SOCKET, h->socket, sizeof(h->socket), err);

	if (!ret)
		ret = docker_run_path(id, SOCKET ".log", h->log, sizeof(h->log), err);
	if (!ret)
		ret = docker_run_path(id, SOCKET ".tty", h->tty, sizeof(h->tty), err);
	if (!ret)
		ret = docker_run_path(id, DOCKER_FROM_DIR, h->from, sizeof(h->from), err);
	return ret ? ret : docker_run_path(id, SOCKET ".work", h->work, sizeof(h->work), err);
}

/* ---- create ---- */

static int listen_at(const char *path, int type, struct zns_err *err)
{
	const char *name = strrchr(path, '/') + 1;
	cleanup_close int dir = zns_run_subdir("docker", err);
	int sk, ret;

	if (dir < 0)
		return dir;
	sk = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	ret = sk < 0 ? -errno : zns_run_bind(sk, dir, name);
	if (!ret && listen(sk, 8))
		ret = -errno;
	if (!ret)
		return sk;
	if (sk >= 0)
		close(sk);
	return zns_fail_sys(err, ret, "cannot listen on %s", path);
}

/* Prepares the terminal. Its descriptors are closed when this process exits or executes runc. */
static int prepare_terminal(struct hold *h, struct zns_err *err)
{
	int ret = terminal_make(h, err);

	if (ret)
		return ret;
	h->console = listen_at(h->tty, SOCK_STREAM, err);
	return h->console < 0 ? h->console : 0;
}

/*
 * Waits until the supervisor writes the PID of the container's first process, and returns the
 * length of that text. 0: the restore has ended. -ETIMEDOUT: criu's log has not grown for too long.
 */
static ssize_t await_pid(const struct hold *h, int from, char *pid_text, size_t len)
{
	struct pollfd p = { from, POLLIN, 0 };
	uint32_t deadline_s = ZNS_DEADLINE_S, still = 0;
	struct zns_err err = ZNS_ERR_INIT;
	char log[PATH_MAX + 16];
	struct stat st;
	off_t size = 0;
	ssize_t n = -1;

	zns_config_deadline(&deadline_s, &err);
	snprintf(log, sizeof(log), "%s/restore.log", h->work);
	while (n < 0) {
		if (poll(&p, 1, LOOK_MS) > 0) {
			n = read(from, pid_text, len - 1);
			if (n < 0 && errno != EINTR)
				return -errno;
			continue;
		}
		still = stat(log, &st) || st.st_size == size ? still + 1 : 0;
		size = still ? size : st.st_size;
		if (deadline_s && still * LOOK_MS / 1000 >= deadline_s * DEADLINES)
			return -ETIMEDOUT;
	}
	return n;
}

static int write_pid(const struct hold *h, const char *pid_text, size_t len, struct zns_err *err)
{
	const char *path = h->c->pid_file;
	int ret = path ? zns_replace_file(AT_FDCWD, path, pid_text, len, 0644) : 0;

	if (ret)
		return zns_fail_sys(err, ret, "cannot write %s", path);
	/*
	 * Set the PID file's time to 1970, which marks this create as one that has not run the
	 * container yet: resume.c takes a PID file that is newer than the checkpoint as a sign of a
	 * cold create.
	 */
	if (path)
		utimensat(AT_FDCWD, path, (struct timespec[2]){ 0 }, 0);
	return 0;
}

static int begin(struct hold *h, struct zns_err *err)
{
	cleanup_close int listener = listen_at(h->socket, SOCK_SEQPACKET, err), from = -1, to = -1;
	char pid_text[16] = "", why[ZNS_ERR_MAX];
	bool had = hold_runc_has(h);
	int ends[2], ret = 0, status = 0;
	ssize_t n;
	pid_t pid;

	if (listener < 0)
		return listener;
	if (h->c->console)
		ret = prepare_terminal(h, err);
	if (!ret && pipe2(ends, O_CLOEXEC))
		ret = zns_fail_sys(err, -errno, "cannot make a pipe");
	if (ret) {
		hold_forget(h);
		return ret;
	}
	from = ends[0];
	to = ends[1];
	unlink(h->log);
	/* makes the restore our child if its supervisor is killed */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	pid = fork();
	if (!pid) {
		close(from);
		setsid();
		h->listener = listener;
		h->ready = to;
		supervise(h);
	}
	if (pid < 0)
		return zns_fail_sys(err, -errno, "cannot fork");
	close(zns_take_fd(&to));
	n = await_pid(h, from, pid_text, sizeof(pid_text));
	if (n > 0)
		ret = write_pid(h, pid_text, (size_t)n, err);
	if (n > 0 && !ret && h->c->console)
		/*
		 * do this last: the engine accepts only one terminal, and a cold start would send
		 * another one
		 */
		ret = terminal_give(h, err);
	if (n < 0 || ret)
		hold_kill_all(pid);
	if (n <= 0 || ret) {
		waitpid(pid, &status, 0);
		/*
		 * Kill processes that a killed supervisor left behind. If they ended later, they
		 * would remove the container with this id, which may be the next, cold one.
		 */
		hold_kill_session(pid);
		if (!had)
			hold_forget_in_runc(h);
	}
	if (n == 0 && WIFEXITED(status) && WEXITSTATUS(status) == HOLD_DELETED)
		ret = zns_fail(err, -ECANCELED, "it was deleted meanwhile");
	else if (n == 0 && call_last_error(h->log, why, sizeof(why)))
		ret = zns_fail(err, -EIO, "%s", why);
	else if (n <= 0)
		ret = zns_fail(err, -EIO, "the restore %s", n ? "stands still" : "ended");
	prctl(PR_SET_CHILD_SUBREAPER, 0);
	if (ret)
		hold_forget(h);
	return ret;
}

static int hold(struct call *c, const struct docker_container *k, const struct docker_resume *r,
		struct zns_err *err)
{
	/* of a CRI's container the sandbox has it, whose namespace it joins */
	const char *host = zns_json_str(k->spec, "hostname");
	struct hold h = { .c = c,
			  .k = k,
			  .r = r,
			  .criu = -1,
			  .asker = -1,
			  .killer = -1,
			  .master = -1,
			  .slave = -1,
			  .console = -1 };
	int ret = paths(&h, c->id, err);

	if (ret)
		return ret;
	if (!r->asked && docker_resume_loops(k, hold_since_boot()))
		return zns_fail(err, -ELOOP,
				"it was resumed twice and ended within 10 s each time");
	if (!realpath(c->bundle ? c->bundle : ".", h.bundle))
		return zns_fail_sys(err, -errno, "cannot find bundle %s",
				    c->bundle ? c->bundle : ".");
	snprintf(h.host, sizeof(h.host), "%s", host ? host : "");
	return begin(&h, err);
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

/* Asks the supervisor for PID, bundle and the restore's process. False: no answer. */
static bool ask_state(struct hold *h, int sk)
{
	char answer[HOLD_PACKET_MAX] = "";
	struct iovec iov = { answer, sizeof(answer) - 1 };
	uint32_t nr = 0;

	return send(sk, "s", 1, MSG_NOSIGNAL) == 1 &&
	       zns_packet_recv(sk, &iov, 1, &h->restore, 1, &nr) > 0 && nr == 1 &&
	       sscanf(answer, "%d %4095[^\n]", &h->init, h->bundle) == 2;
}

/* Sends @letter and waits until the restore has ended. True: the container runs. */
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
	/*
	 * The supervisor was killed. criu has either given up or continued the restore: in the
	 * latter case runc knows the container when the restore has ended.
	 */
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
 * Decides what `start` returns after a failed restore. The engine has the PID of a process that has
 * ended. With a restart policy it takes this as the end of the container, and creates it again,
 * cold. Without one, start must fail.
 */
static int failed(const struct hold *h, struct zns_err *err)
{
	const struct docker_runtime rt = { h->c->docker_root, h->c->root };
	char why[ZNS_ERR_MAX] = "the restore ended";
	struct docker_container k;
	struct docker_settings s;
	struct docker_resume r;
	bool again = false, cold = false;
	int ret;

	call_last_error(h->log, why, sizeof(why));
	ret = docker_container_read(&rt, h->bundle, h->c->id, &k, err);
	if (!ret && !strcmp(k.kind, "cri")) {
		/* a CRI never starts the same container again */
		docker_note(&k, LOG_WARNING, "not resumed: %s", why);
	} else if (!ret && !docker_settings_read(&k, &s, err)) {
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
		hold_forget_in_runc(h);
		ret = failed(h, err);
	}
	hold_forget(h);
	return ret;
}

static int give_up(const struct hold *h, int sk)
{
	ask(h, sk, "x");
	hold_forget_in_runc(h);
	hold_forget(h);
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

/*
 * Is any argument after the command the id of a container whose restore waits? Commands have the id
 * at different positions.
 */
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

	if (!is_held(c, &h)) {
		/* a create that was killed before it had a socket has left the checkpoint's directory */
		if (!strcmp(c->command, "delete") && docker_good_id(c->id))
			docker_from_forget(c->id);
		return -ENOENT;
	}
	sk = dial(&h);
	if (sk < 0) { /* the supervisor was killed, so its restore gives up by itself */
		hold_forget(&h);
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

/* ---- create once more ---- */

/*
 * Ends an old restore of this container. Its engine or shim was killed and believes that the
 * container is gone, so nobody else ends that restore, and the new one would fail because the id is
 * in use.
 */
static void end_old(const struct call *c)
{
	struct hold h = { .c = c, .restore = -1 };
	cleanup_close int sk = -1;

	if (!docker_good_id(c->id) || paths(&h, c->id, NULL) || access(h.socket, F_OK))
		return;
	sk = dial(&h);
	if (sk >= 0 && ask_state(&h, sk)) {
		close(sk);
		sk = dial(&h);
		give_up(&h, sk);
	} else {
		hold_forget(&h);
	}
}

static bool ended_with_a_checkpoint(const struct docker_container *k)
{
	cleanup_free uint8_t *text = NULL;
	size_t len;

	return !docker_read_kept(k, DOCKER_ENDED_FILE, &text, &len, NULL);
}

int hold_create(struct call *c, const struct docker_container *k, bool *held, struct zns_err *err)
{
	struct docker_settings s;
	struct docker_resume r;
	int ret = docker_settings_read(k, &s, err);

	*held = false;
	end_old(c);
	if (ret && docker_resume_must(k, &s)) {
		docker_note(k, LOG_ERR, "not started: %s", err->msg);
		return zns_wrap(err, "container %.60s is not resumed", k->name);
	}
	if (ret) { /* an error in the rules makes checkpoints fail, but never a start */
		docker_note(k, LOG_WARNING,
			    ended_with_a_checkpoint(k) ? "started cold: %s" :
							 "its checkpoints will fail: %s",
			    err->msg);
		return err->code = 0;
	}
	ret = docker_resume_choose(k, &s, &r, err);
	if (docker_resume_in_vain(k, &s))
		docker_note(
			k, LOG_WARNING,
			"zns.suspend, zns.stop and zns.resume are for containers of Docker, and of Podman without a user namespace, alone");
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
			    !*r.from && (r.asked || !strcmp(s.value[DOCKER_RESUME], "ended")) ?
				    "" :
				    ", older than its files may be");
		return 0;
	}
	docker_from_forget(k->id);
	if (r.asked)
		docker_resume_refused(k);
	if (r.or_cold && ret != -ECANCELED) {
		docker_note(k, LOG_WARNING, "started cold: %s", err->msg);
		return err->code = 0;
	}
	docker_note(k, LOG_ERR, "not started: %s", err->msg);
	return zns_wrap(err, "container %.60s is not resumed", k->name);
}
