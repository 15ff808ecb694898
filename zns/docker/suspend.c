/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * zns.stop=checkpoint: when an engine stops such a container, a checkpoint ends it instead of the
 * signal. If the checkpoint fails, the signal is sent, so a stop always stops the container.
 */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <syslog.h>
#include <time.h>
#include "runc.h"
#include "zns/client.h"
#include "zns/config.h"
#include "zns/handle.h"

/*
 * ms; longest wait for another checkpoint that ends the container; that checkpoint may continue
 * after that
 */
#define OTHER_MS 60000
#define OTHER_LOOK_MS 100

void suspend_name(const struct call *c, const struct docker_container *k, char *out, size_t len)
{
	char all[PATH_MAX];
	size_t n;

	if (c->image_path && !docker_checkpoints_path(k, all, sizeof(all)) &&
	    !strncmp(c->image_path, all, n = strlen(all)) && c->image_path[n] == '/' &&
	    !strchr(c->image_path + n + 1, '/'))
		snprintf(out, len, "%s", c->image_path + n + 1);
	else
		docker_pending_checkpoint(k, out, len);
}

bool suspend_is_stop(const struct call *c)
{
	const char *base = c->image_path ? strrchr(c->image_path, '/') : NULL;

	return base && !strncmp(base + 1, DOCKER_STOP_PREFIX, strlen(DOCKER_STOP_PREFIX));
}

/* The signal that stops this container, from its image or from `docker run --stop-signal`. */
int suspend_signal(const struct docker_container *k)
{
	const char *s = *k->bundle ? zns_json_str(k->annotations,
						  "org.opencontainers.image.stopSignal") :
				     zns_json_str(zns_json_get(k->config, "Config"), "StopSignal");

	return s && *s ? call_signal(s) : SIGTERM;
}

int suspend_lock(const struct docker_container *k)
{
	char all[PATH_MAX];
	int fd, ret = docker_checkpoints_path(k, all, sizeof(all));

	if (ret)
		return ret;
	if (mkdir(all, 0700) && errno != EEXIST)
		return -errno;
	fd = open(all, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB))
		return fd;
	ret = -errno;
	if (fd >= 0)
		close(fd);
	return ret;
}

static int make_dir(const struct docker_container *k, char *out, size_t len)
{
	char all[PATH_MAX], when[32];
	struct timespec now;
	struct tm tm;
	int ret = docker_checkpoints_path(k, all, sizeof(all));

	if (ret)
		return ret;
	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	strftime(when, sizeof(when), "%Y%m%dT%H%M%S", &tm);
	if ((size_t)snprintf(out, len, "%s/" DOCKER_STOP_PREFIX "%s.%03ldZ", all, when,
			     now.tv_nsec / 1000000) >= len)
		return -ENAMETOOLONG;
	return mkdir(out, 0700) ? -errno : 0;
}

/*
 * Removes the checkpoint from its device, unless another container has its handle too. If that
 * fails, `znsctl gc` removes it later.
 */
static void free_zones(const struct docker_container *k, const ZnsPb__Handle *h, const char *dir)
{
	const struct docker_made made = { .root = k->root,
					  .container_id = k->id,
					  .checkpoint_name = DOCKER_STOP_PREFIX,
					  .id = h->checkpoint.data };
	ProtobufCBinaryData id = h->checkpoint;
	char root[PATH_MAX];
	enum docker_life life;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Response *answer = NULL;
	ZnsPb__Rm rm = ZNS_PB__RM__INIT;
	struct zns_registered reg;
	struct zns_broker b;
	char dev[ZNS_UUID_STR];

	if (h->device.len != ZNS_UUID_LEN || id.len != ZNS_UUID_LEN)
		return;
	if (!*k->bundle)
		life = docker_checkpoint_life(&made, NULL, 0);
	else if (!podman_root(k->bundle, k->id, dir, root, sizeof(root)))
		life = podman_checkpoint_life(root, k->id, id.data, NULL, 0);
	else
		life = DOCKER_UNKNOWN;
	if (life != DOCKER_GONE ||
	    zns_resolve_device(zns_uuid_format(h->device.data, dev), &reg, NULL) ||
	    zns_broker_connect(&reg, &b, NULL))
		return;
	rm.checkpoints = &id;
	rm.n_checkpoints = 1;
	rm.by = (char *)(uintptr_t) "zns-runc, for a newer stop";
	req.rm = &rm;
	if (!zns_broker_call(&b, &req, &answer, NULL))
		zns_pb__response__free_unpacked(answer, NULL);
	zns_broker_close(&b);
}

/* Removes the container's earlier checkpoints of this kind, which do not fit its files any more. */
static void drop_others(const struct docker_container *k, const char *kept)
{
	char all[PATH_MAX], path[PATH_MAX + 300];
	ZnsPb__Handle *h;
	struct dirent *e;
	DIR *d;
	int fd;

	if (docker_checkpoints_path(k, all, sizeof(all)))
		return;
	d = opendir(all);
	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), "%s/%s", all, e->d_name);
		if (strncmp(e->d_name, DOCKER_STOP_PREFIX, strlen(DOCKER_STOP_PREFIX)) ||
		    !strcmp(path, kept))
			continue;
		fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0 || zns_handle_read(fd, &h, NULL))
			h = NULL;
		if (fd >= 0)
			close(fd);
		docker_remove_dir(path);
		if (!h)
			continue;
		free_zones(k, h, path);
		zns_pb__handle__free_unpacked(h, NULL);
	}
	if (d)
		closedir(d);
}

static int checkpoint(const struct call *c, const char *id, const char *dir, const char *work,
		      const char *log)
{
	const char *const words[] = { "checkpoint", "--image-path", dir, "--work-path", work, id,
				      NULL };
	char **argv = call_again(c, log, words);
	pid_t pid = argv ? fork() : -1;
	int status = 1;

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		call_null_stdio();
		execv("/proc/self/exe", argv);
		_exit(127);
	}
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	free(argv);
	return pid > 0 && !status ? 0 : -EIO;
}

/* Did the dump note that the checkpoint @name ended the container? */
static bool ended_with(const struct docker_container *k, const char *name)
{
	cleanup_free uint8_t *text = NULL;
	size_t len, n = strlen(name);

	return !docker_read_kept(k, DOCKER_ENDED_FILE, &text, &len, NULL) &&
	       !strncmp((char *)text, name, n) && text[n] == ' ';
}

static bool make(const struct call *c, const struct docker_container *k)
{
	char dir[PATH_MAX], work[PATH_MAX], log[PATH_MAX], why[ZNS_ERR_MAX] = "no reason is known";
	struct zns_err err = ZNS_ERR_INIT;
	const char *name;
	int ret = docker_run_path(k->id, "stop.work", work, sizeof(work), &err);
	bool done;

	if (!ret)
		ret = docker_run_path(k->id, "stop.log", log, sizeof(log), &err);
	if (!ret && (ret = make_dir(k, dir, sizeof(dir))))
		zns_fail_sys(&err, ret, "cannot make its directory of checkpoints");
	if (ret) {
		docker_note(k, LOG_WARNING, "stopped without a checkpoint: %s", err.msg);
		return false;
	}
	name = strrchr(dir, '/') + 1;
	mkdir(work, 0700);
	unlink(log);
	ret = checkpoint(c, k->id, dir, work, log);
	if (ret)
		call_last_error(log, why, sizeof(why));
	done = !ret || ended_with(k, name);
	if (!ret && !ended_with(k, name)) {
		/* ended.c has reported why the next start will not resume, and what to do */
	} else if (done) {
		if (!ret)
			docker_note(k, LOG_INFO, "stopped with checkpoint %s", name);
		else
			docker_note(k, LOG_WARNING,
				    "stopped with checkpoint %s, then runc failed: %s", name, why);
		drop_others(k, dir);
	} else {
		docker_note(k, LOG_WARNING, "stopped without a checkpoint: %s", why);
		/* if the checkpoint was committed, somebody may still need its memory */
		if (!call_has_handle(dir))
			docker_remove_dir(dir);
	}
	unlink(log);
	docker_remove_dir(work);
	return done;
}

/*
 * Waits for another checkpoint in progress that ends the container, instead of sending a signal. A
 * signal would become pending in the frozen tasks and be saved with them, so that they would die as
 * soon as they are resumed. False: that checkpoint failed, and the container continues to run.
 */
static bool ended_by_other(const struct docker_container *k, pid_t init)
{
	cleanup_close int process = (int)syscall(SYS_pidfd_open, init, 0);
	struct pollfd p = { process, POLLIN, 0 };
	int lock;

	for (int ms = 0; ms < OTHER_MS; ms += OTHER_LOOK_MS) {
		if (poll(&p, 1, OTHER_LOOK_MS) == 1)
			return true;
		lock = suspend_lock(k);
		if (lock == -EWOULDBLOCK)
			continue;
		if (lock >= 0)
			close(lock);
		return process < 0 || poll(&p, 1, 0) == 1;
	}
	return true;
}

static bool by_checkpoint(const struct call *c, const struct docker_container *k,
			  const struct docker_state *state)
{
	int fd = suspend_lock(k);
	bool done;

	if (fd == -EWOULDBLOCK)
		return ended_by_other(k, state->init_pid);
	done = !state->frozen && make(c, k);
	if (fd >= 0)
		close(fd);
	return done;
}

static bool loses_files(const struct docker_container *k)
{
	const char *to = *k->bundle ? docker_podman_drops(k->spec) : NULL;
	char what[200];

	if (!to)
		return false;
	docker_note(k, LOG_WARNING,
		    "stopped without a checkpoint: Podman does not keep the files in %s",
		    zns_escape(to, what, sizeof(what)));
	return true;
}

/* Was it skipped by `znsctl docker suspend --all` because there was no time for it? */
static bool left_out(const struct docker_container *k)
{
	if (!docker_stops_by_signal(k))
		return false;
	docker_note(
		k, LOG_WARNING,
		"stopped without a checkpoint: znsctl docker suspend --all had no time for it, or "
		"failed");
	return true;
}

bool suspend_kill(const struct call *c)
{
	const struct docker_runtime rt = { c->docker_root, c->root };
	struct zns_err err = ZNS_ERR_INIT;
	struct docker_settings s;
	struct docker_container k;
	struct docker_state state;
	bool done = false;
	int sig = 0;
	const char *id = call_killed(c, &sig);

	if (!id || sig == SIGKILL || !docker_good_id(id) || call_has_flag(c, "all") ||
	    call_has_flag(c, "a") || docker_state_read(c->root, id, &state, &err) ||
	    state.init_pid <= 1)
		return false;
	if (!docker_container_read(&rt, state.bundle, id, &k, &err) &&
	    (*k.bundle || !strcmp(k.kind, "docker")) && sig == suspend_signal(&k) &&
	    !docker_settings_read(&k, &s, &err) && s.source[DOCKER_STOP] &&
	    !strcmp(s.value[DOCKER_STOP], "checkpoint") && !loses_files(&k) && !left_out(&k)) {
		docker_container_podman(&k, state.init_pid);
		done = by_checkpoint(c, &k, &state);
	}
	docker_container_fini(&k);
	return done;
}
