/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * docker suspend and resume: do once what the labels zns.stop and zns.resume do at every stop and
 * start.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include "docker_cmd.h"

static const char *restart_policy(const struct docker_target *t)
{
	struct json_object *host = zns_json_get(t->json, "HostConfig");
	const char *name = zns_json_str(zns_json_get(host, "RestartPolicy"), "Name");

	return name && *name && strcmp(name, "no") ? name : NULL;
}

static int set_policy(const struct docker_daemon *d, const struct docker_target *t,
		      struct json_object *policy, struct zns_err *err)
{
	struct json_object *body = json_object_new_object();
	char path[256];
	int ret;

	json_object_object_add(body, "RestartPolicy", policy);
	snprintf(path, sizeof(path), "/containers/%s/update", t->c.id);
	ret = docker_api_call(&d->api, "POST", path, body, NULL, err);
	json_object_put(body);
	return ret;
}

/*
 * File in the container's own directory: the restart policy that a suspend has removed. The suspend
 * holds a lock on it until it has restored the policy. If the suspend is killed, the next command
 * restores it.
 */
#define POLICY_FILE "zns-restart"

/* Opens the file and locks it. -EBUSY: a suspend has locked it. */
static int policy_lock(const struct docker_container *c, int flags, char *path, size_t len)
{
	int fd, ret = docker_own_path(c, POLICY_FILE, path, len);
	struct stat st;

	if (ret)
		return ret;
	fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
	if (fd < 0)
		return -errno;
	if (!flock(fd, LOCK_EX | LOCK_NB) && !fstat(fd, &st) && st.st_nlink)
		return fd;
	close(fd);
	return -EBUSY;
}

/* @policy NULL: the container has none, and only the lock is needed. */
static int policy_keep(const struct docker_target *t, struct json_object *policy, int *lock,
		       char *path, size_t len, struct zns_err *err)
{
	const char *text = json_object_to_json_string_ext(policy, JSON_C_TO_STRING_PLAIN);
	int ret;

	*lock = policy_lock(&t->c, policy ? O_CREAT : 0, path, len);
	if (*lock == -EBUSY)
		return zns_fail(err, -EBUSY, "container %s is being suspended by another command",
				t->c.name);
	if (!policy)
		return 0;
	ret = *lock < 0 ? *lock : ftruncate(*lock, 0) ? -errno : 0;
	if (!ret)
		ret = zns_pwrite_all(*lock, text, strlen(text), 0);
	if (!ret)
		ret = fsync(*lock) ? -errno : zns_sync_parent(path);
	return ret ? zns_fail_sys(err, ret, "cannot note the restart policy in %s", path) : 0;
}

static bool is_locked(const struct docker_container *c)
{
	char path[PATH_MAX];
	cleanup_close int fd = docker_checkpoints_path(c, path, sizeof(path)) ?
				       -1 :
				       open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB);
}

/* us; longer than dockerd takes to call the runtime, or to notice the end */
#define AGAIN_US 2000000

/*
 * Does dockerd still dump the container, although the command that requested it was killed? If the
 * restart policy were restored now, dockerd would start the container at the end of that dump.
 * zns-runc holds a lock during the dump, but dockerd needs a moment before and after it.
 */
static bool is_dumped(const struct docker_target *t)
{
	if (is_locked(&t->c))
		return true;
	if (!t->running)
		return false;
	usleep(AGAIN_US);
	return is_locked(&t->c);
}

static int policy_back(const struct docker_daemon *d, const char *id, struct zns_err *err)
{
	struct docker_target t = { 0 };
	cleanup_free uint8_t *text = NULL;
	cleanup_close int lock = -1;
	struct json_object *policy = NULL;
	char path[PATH_MAX];
	size_t len = 0;
	bool later = false;
	int ret = docker_target_open(d, id, &t, err);

	if (!ret)
		lock = policy_lock(&t.c, 0, path, sizeof(path));
	if (lock >= 0) {
		ret = docker_read_own(d->root, id, POLICY_FILE, &text, &len, err);
		/* if the file contains no policy, the suspend was killed before it removed one */
		if (!ret && !restart_policy(&t) &&
		    !zns_json_parse(POLICY_FILE, text, len, &policy, NULL) &&
		    !(later = is_dumped(&t)))
			ret = set_policy(d, &t, policy, err);
		if (later)
			json_object_put(policy);
		else if (!ret)
			unlink(path);
	}
	docker_target_close(&t);
	return ret;
}

void docker_policies_back(const struct docker_daemon *d)
{
	char dir[PATH_MAX + 16], path[PATH_MAX + 300];
	struct zns_err err = ZNS_ERR_INIT;
	struct dirent *e;
	DIR *all;

	snprintf(dir, sizeof(dir), "%s/containers", d->root);
	all = opendir(dir);
	while (all && (e = readdir(all))) {
		snprintf(path, sizeof(path), "%s/%s/" POLICY_FILE, dir, e->d_name);
		if (docker_full_id(e->d_name) && !access(path, F_OK) &&
		    policy_back(d, e->d_name, &err))
			fprintf(stderr,
				"znsctl docker: container %.12s: a suspend was killed, and its restart policy is not set again: %s\n",
				e->d_name, err.msg);
	}
	if (all)
		closedir(all);
}

/*
 * Ends the container by a checkpoint. With a restart policy, dockerd would take this for a crash
 * and restart it, so the policy is removed before and restored afterwards. Ctrl-C is ignored
 * meanwhile.
 */
int docker_suspend_one(const struct docker_daemon *d, const struct docker_target *t,
		       const char *name, const char *admission, struct zns_err *err)
{
	const struct docker_ask ask = { .name = name, .admission = admission, .exit = true };
	struct json_object *policy = zns_json_get(zns_json_get(t->json, "HostConfig"),
						  "RestartPolicy");
	struct zns_err back = ZNS_ERR_INIT;
	bool has = restart_policy(t) != NULL;
	cleanup_close int lock = -1;
	char path[PATH_MAX];
	int ret = 0;

	if (has)
		ctl_catch_signals();
	ret = policy_keep(t, has ? policy : NULL, &lock, path, sizeof(path), err);
	if (!ret && has)
		ret = set_policy(d, t, ctl_obj(J("Name", "no")), err);
	if (ret)
		return ret;
	ret = docker_make_checkpoint(d, t, &ask, err);
	if (has && set_policy(d, t, json_object_get(policy), &back)) {
		if (!ret)
			ret = zns_fail(
				err, back.code,
				"it is suspended, but its restart policy %s is not set again: %.200s",
				restart_policy(t), back.msg);
	} else if (has) {
		unlink(path);
	}
	return ret ? ret : docker_thin_out(d, &t->c, DOCKER_STOP_PREFIX, name, 0, err);
}

/*
 * Will dockerd start the container cold? It does if it starts the container by its restart policy,
 * since `docker suspend` requests no resume for such a start.
 */
static bool starts_cold(const struct docker_target *t)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct docker_settings s;

	return restart_policy(t) && strcmp(restart_policy(t), "on-failure") &&
	       (docker_settings_read(&t->c, &s, &err) || !s.source[DOCKER_RESUME] ||
		!strcmp(s.value[DOCKER_RESUME], "no"));
}

static int resume(const struct docker_daemon *d, const struct docker_target *t, const char *wanted,
		  char *name, size_t len, struct zns_err *err)
{
	char path[256];
	int ret;

	if (t->running)
		return zns_fail(err, -EBUSY, "container %s runs", t->c.name);
	if (!docker_daemon_is_ours(d, t->runtime))
		return zns_fail(err, -EINVAL,
				"container %s has runtime %s, which cannot resume: create it with "
				"--runtime zns",
				t->c.name, t->runtime ? t->runtime : "(unknown)");
	ret = docker_resume_ask(&t->c, wanted, name, len, err);
	if (ret)
		return ret;
	snprintf(path, sizeof(path), "/containers/%s/start", t->c.id);
	ret = docker_api_call(&d->api, "POST", path, NULL, NULL, err);
	if (ret)
		docker_resume_refused(&t->c);
	return ret;
}

#define NO_LIMIT UINT64_MAX

static int both(const struct ctl_cmd *cmd, int argc, char **argv, bool start)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	struct docker_daemon d = { 0 };
	struct docker_target t = { 0 };
	uint64_t within_s = NO_LIMIT;
	const char *host = NULL;
	bool all = false;
	const struct ctl_opt end = CTL_OPTS_END, whole = CTL_FLAG("all", &all);
	char name[256];
	int ret;
	const struct ctl_opt opts[] = { CTL_TEXT("host", &host), start ? end : whole,
					CTL_DURATION("within", &within_s, 0), CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (all || within_s != NO_LIMIT) {
		if (!all || args.argc)
			return ctl_usage(
				cmd, "--within works only with --all, which takes no container");
		ret = docker_daemon_open(&d, host, &err);
		if (!ret) {
			docker_policies_back(&d);
			ret = docker_suspend_all(&d, args.json, within_s != NO_LIMIT, within_s,
						 &err);
		}
		docker_daemon_close(&d);
		return ret ? ctl_fail(cmd, &err) : CTL_OK;
	}
	if (args.argc < 1 || args.argc > 1 + start)
		return ctl_usage(cmd,
				 start ? "a container is wanted, and a checkpoint's name at most" :
					 "a container is wanted, or --all");
	ret = docker_daemon_open(&d, host, &err);
	if (!ret) {
		docker_policies_back(&d);
		ret = docker_target_open(&d, args.argv[0], &t, &err);
	}
	if (!start)
		docker_time_name(DOCKER_STOP_PREFIX, name, sizeof(name));
	if (!ret)
		ret = start ? resume(&d, &t, args.argc == 2 ? args.argv[1] : NULL, name,
				     sizeof(name), &err) :
			      docker_suspend_one(&d, &t, name, NULL, &err);
	if (!ret && args.json)
		ctl_print_json(ctl_obj(J("container", (const char *)t.c.name),
				       J("name", (const char *)name)));
	else if (!ret)
		printf(start ? "%s runs again from checkpoint %s\n" :
			       "%s is suspended, with checkpoint %s\n",
		       t.c.name, name);
	if (!ret && !start && starts_cold(&t))
		fprintf(stderr,
			"%s: with restart policy %s and without zns.resume, dockerd's next start starts it cold: `znsctl docker resume %s` before\n",
			t.c.name, restart_policy(&t), t.c.name);
	docker_close(&d, &t);
	return ret ? ctl_fail(cmd, &err) : CTL_OK;
}

int docker_suspend(const struct ctl_cmd *cmd, int argc, char **argv)
{
	return both(cmd, argc, argv, false);
}

int docker_resume(const struct ctl_cmd *cmd, int argc, char **argv)
{
	return both(cmd, argc, argv, true);
}
