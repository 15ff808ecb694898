/* SPDX-License-Identifier: GPL-2.0-only */
/* Commands that are separate programs: znsctl becomes znsctl-NAME, which is installed with it. */
#include <limits.h>
#include <string.h>
#include "ctl.h"

/* Looks beside this program and in its libexec. The environment must not choose a program that
 * root runs. */
static int become(const struct ctl_cmd *cmd, int argc, char **argv)
{
	char name[64], path[PATH_MAX];
	struct zns_err err = ZNS_ERR_INIT;
	int ret;

	snprintf(name, sizeof(name), "znsctl-%s", cmd->name);
	ret = zns_own_program(name, path, sizeof(path));
	if (!ret) {
		execv(path, argv);
		ret = -errno;
	}
	zns_fail_sys(&err, ret, "%s, which is neither beside znsctl nor in ../libexec/zns-criu",
		     name);
	return ctl_fail(cmd, &err);
}

const struct ctl_cmd command_probe = {
	"probe",
	"",
	"find out by measuring which zones share a die or a channel, and how fast a zone is",
	"",
	become,
};

const struct ctl_cmd command_selftest = {
	"selftest", "", "find out whether a drive does what this product needs of it", "", become,
};

const struct ctl_cmd command_docker = { "docker", "", "Docker's checkpoints on zones", "", become };
