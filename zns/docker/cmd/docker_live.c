/* SPDX-License-Identifier: GPL-2.0-only */
/* Which checkpoints of Docker containers are still needed? For `znsctl gc` and `docker live`. */
#include <string.h>
#include "docker_cmd.h"

enum docker_life ctl_docker_life(const ZnsPb__Checkpoint *c, char *why, size_t len)
{
	const ZnsPb__Origin *o = c->origin;
	struct docker_made m;
	char host[64] = "";

	if (!o || !o->kind || strcmp(o->kind, "docker") || c->id.len != ZNS_UUID_LEN) {
		snprintf(why, len, "it was not made under Docker");
		return DOCKER_UNKNOWN;
	}
	gethostname(host, sizeof(host) - 1);
	if (o->host && strcmp(o->host, host)) { /* the checkpoint was made on another host */
		snprintf(why, len, "it was made on host %.40s, this is %.40s", o->host, host);
		return DOCKER_UNKNOWN;
	}
	m = docker_made_of(c);
	return docker_checkpoint_life(&m, why, len);
}

static const char *const word[] = {
	[DOCKER_NEEDED] = "needed", [DOCKER_GONE] = "gone", [DOCKER_UNKNOWN] = "unknown"
};

/*
 * Arguments: KIND ROOT CONTAINER_ID NAME ID ENDED CREATED_NS, from a checkpoint's record; "": not
 * set.
 */
int docker_life(int argc, char **argv)
{
	uint8_t id[ZNS_UUID_LEN];
	char why[PATH_MAX + 256] = "";
	enum docker_life life;

	if (argc != 9 || zns_uuid_parse(argv[6], id)) {
		fprintf(stderr, "znsctl-docker life is for `znsctl gc`\n");
		return CTL_USAGE;
	}
	if (!strcmp(argv[2], "podman")) {
		life = podman_checkpoint_life(argv[3], argv[4], id, why, sizeof(why));
	} else {
		const struct docker_made m = { .root = argv[3],
					       .container_id = argv[4],
					       .checkpoint_name = argv[5],
					       .id = id,
					       .ended = *argv[7] == '1',
					       .created_ns = strtoll(argv[8], NULL, 10) };

		life = docker_checkpoint_life(&m, why, sizeof(why));
	}
	printf("%s %s\n", word[life], why);
	return CTL_OK;
}

int docker_live(const struct ctl_cmd *cmd, int argc, char **argv)
{
	const ZnsPb__Checkpoint *c = NULL;
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	cleanup_answer ZnsPb__Response *r = NULL;
	enum docker_life life;
	char why[PATH_MAX];
	int ret;
	const struct ctl_opt opts[] = { CTL_DEV, CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (args.argc != 1)
		return ctl_usage(cmd, "one checkpoint's id is wanted");
	ret = ctl_list(args.dev, &r, &err);
	if (!ret)
		ret = zns_find_checkpoint(r, args.argv[0], &c, &err);
	if (!ret) {
		life = ctl_docker_life(c, why, sizeof(why));
		if (args.json)
			ctl_print_json(ctl_obj(J("id", ctl_json_uuid(c->id.data)),
					       J("life", word[life]), J("why", why)));
		else
			printf("%s: %s\n", word[life], why);
	}
	return ret ? ctl_fail(cmd, &err) : CTL_OK;
}
