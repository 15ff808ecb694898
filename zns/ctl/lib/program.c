/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Commands that are programs of their own: how znsctl executes such a program, and its main
 * function.
 */
#include <limits.h>
#include <string.h>
#include "ctl.h"

/*
 * Looks for the program beside this one and in its libexec directory. The environment is ignored,
 * since it must not choose a program that root runs.
 */
int ctl_become(const struct ctl_cmd *cmd, const char *program, char **argv)
{
	struct zns_err err = ZNS_ERR_INIT;
	char path[PATH_MAX];
	int ret = zns_own_program(program, path, sizeof(path));

	if (!ret) {
		execv(path, argv);
		ret = -errno;
	}
	if (ret == -ENOENT)
		zns_fail(
			&err, ret,
			"%s is not installed: it is neither beside znsctl nor in ../libexec/zns-criu%s",
			program,
			strcmp(cmd->name, "docker") ?
				"" :
				" (Debian's package of it is zns-criu-docker)");
	else
		zns_fail_sys(&err, ret, "cannot start %s", program);
	return ctl_fail(cmd, &err);
}

int ctl_program(const struct ctl_cmd *const *commands, size_t nr, int argc, char **argv)
{
	const size_t prefix = strlen("znsctl ");
	char title[64];

	if (ctl_begin())
		return CTL_FAILED;
	/*
	 * znsctl starts the program as "znsctl NAME". A user who starts it directly gives NAME as
	 * the first argument.
	 */
	if (strncmp(argv[0], "znsctl ", prefix) != 0) {
		if (argc > 1) {
			argc--;
			argv++;
		}
		snprintf(title, sizeof(title), "znsctl %s", argv[0]);
		argv[0] = title;
	}
	for (size_t i = 0; i < nr; i++)
		if (!strcmp(argv[0] + prefix, commands[i]->name))
			return ctl_end(argv[0], commands[i]->run(commands[i], argc, argv));
	fprintf(stderr, "%s: no such command of this program\n", ctl_text(argv[0]));
	return CTL_USAGE;
}
