/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * docker recover: after a crash of the container or the host, starts the container from its newest
 * usable checkpoint
 */
#include <string.h>
#include "docker_cmd.h"

static int recover(const struct docker_daemon *d, const struct docker_target *t, const char *wanted,
		   struct docker_entry *out, struct zns_err *err)
{
	cleanup_free struct docker_entry *list = NULL;
	struct zns_err why = ZNS_ERR_INIT;
	size_t nr, i, tried = 0;
	int ret;

	if (t->running)
		return zns_fail(
			err, -EBUSY,
			"container %s runs: stop it first if it shall go back to a checkpoint",
			t->c.name);
	ret = docker_entries(&t->c, &list, &nr, err);
	if (!ret)
		ret = docker_lost(&t->c, wanted, &list, &nr, err);
	if (ret)
		return ret;
	docker_sort(list, nr);
	for (i = 0; i < nr; i++) {
		if (wanted && !list[i].lost && strcmp(list[i].name, wanted))
			continue;
		tried++;
		ret = docker_entry_check(&list[i], &why);
		if (!ret && list[i].lost)
			ret = docker_put_back(&list[i], &why);
		if (!ret)
			ret = docker_start_from(d, t, t->c.id, list[i].name, &why);
		if (!ret) {
			*out = list[i];
			return 0;
		}
		fprintf(stderr, "znsctl docker recover: %s: %s\n", list[i].name, why.msg);
	}
	if (wanted && !tried)
		return zns_fail(err, -ENOENT, "container %s has no checkpoint %s on zones",
				t->c.name, wanted);
	return tried ? zns_fail(err, -EIO,
				"none of %zu checkpoints of container %s could be started", tried,
				t->c.name) :
		       zns_fail(err, -ENOENT, "container %s has no checkpoint on zones", t->c.name);
}

int docker_recover(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct zns_err err = ZNS_ERR_INIT;
	char when[32];
	struct ctl_args args = { 0 };
	struct docker_daemon d = { 0 };
	struct docker_target t = { 0 };
	struct docker_entry e = { 0 };
	const char *host = NULL;
	int ret;
	const struct ctl_opt opts[] = { CTL_TEXT("host", &host), CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (args.argc < 1 || args.argc > 2)
		return ctl_usage(cmd, "a container is wanted, and a checkpoint's name at most");
	ret = docker_open(&d, host, args.argv[0], &t, &err);
	if (!ret)
		ret = recover(&d, &t, args.argc == 2 ? args.argv[1] : NULL, &e, &err);
	if (!ret && args.json) {
		ctl_print_json(ctl_obj(J("container", t.c.name), J("name", e.name),
				       J("id", ctl_json_uuid(e.id)),
				       J("created", ctl_json_time(e.created_ns)),
				       J("lost_by_docker", e.lost)));
	} else if (!ret) {
		printf("%s runs again from checkpoint %s of %s%s\n", t.c.name, e.name,
		       zns_format_time(e.created_ns, when, sizeof(when)),
		       e.lost ? ", which Docker had lost" : "");
	}
	docker_close(&d, &t);
	return ret ? ctl_fail(cmd, &err) : CTL_OK;
}
