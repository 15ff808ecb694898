/* SPDX-License-Identifier: GPL-2.0-only */
/* docker suspend and resume: do once what the labels zns.stop and zns.resume do at every stop
 * and start. */
#include <string.h>
#include "docker_cmd.h"

static const char *restart_policy(const struct docker_target *t)
{
	struct json_object *host = zns_json_get(t->json, "HostConfig");
	const char *name = zns_json_str(zns_json_get(host, "RestartPolicy"), "Name");

	return name && *name && strcmp(name, "no") ? name : NULL;
}

/* @policy NULL: no restart policy. */
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

/* Ends the container by a checkpoint. A restart policy would take that end for a crash, so it is
 * removed before and set again after. No other program would set it again, so Ctrl-C is ignored
 * in between. */
int docker_suspend_one(const struct docker_daemon *d, const struct docker_target *t,
		       const char *name, const char *admission, struct zns_err *err)
{
	const struct docker_ask ask = { .name = name, .admission = admission, .exit = true };
	struct json_object *policy = zns_json_get(zns_json_get(t->json, "HostConfig"),
						  "RestartPolicy");
	struct zns_err back = ZNS_ERR_INIT;
	bool has = restart_policy(t) != NULL;
	int ret = 0;

	if (has) {
		ctl_catch_signals();
		ret = set_policy(d, t, ctl_obj(J("Name", "no")), err);
	}
	if (ret)
		return ret;
	ret = docker_make_checkpoint(d, t, &ask, err);
	if (has && set_policy(d, t, json_object_get(policy), &back) && !ret)
		ret = zns_fail(
			err, back.code,
			"it is suspended, but its restart policy %s is not set again: %.200s",
			restart_policy(t), back.msg);
	return ret ? ret : docker_thin_out(d, &t->c, DOCKER_STOP_PREFIX, name, 0, err);
}

/* Will dockerd start the container cold? dockerd itself starts it by its restart policy, and
 * `docker suspend` requests no resume for such a start. */
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
		ret = docker_daemon_open(&d, host, &err) ?:
			      docker_suspend_all(&d, args.json, within_s != NO_LIMIT, within_s,
						 &err);
		docker_daemon_close(&d);
		return ret ? ctl_fail(cmd, &err) : CTL_OK;
	}
	if (args.argc < 1 || args.argc > 1 + start)
		return ctl_usage(cmd,
				 start ? "a container is wanted, and a checkpoint's name at most" :
					 "a container is wanted, or --all");
	ret = docker_open(&d, host, args.argv[0], &t, &err);
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
