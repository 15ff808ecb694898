/* SPDX-License-Identifier: GPL-2.0-only */
/* znsctl-defrag, which `znsctl compact` becomes with --defrag, and `show` with --layout. */
#include "../ctl/show.h"
#include "defrag.h"

static int cmd_compact(const struct ctl_cmd *cmd, int argc, char **argv)
{
	return compact_command(cmd, argc, argv, defrag_all);
}

static int cmd_show(const struct ctl_cmd *cmd, int argc, char **argv)
{
	return show_command(cmd, argc, argv, show_layouts);
}

int main(int argc, char **argv)
{
	struct ctl_cmd compact = command_compact, show = command_show;
	const struct ctl_cmd *const commands[] = { &compact, &show };

	compact.run = cmd_compact;
	show.run = cmd_show;
	return ctl_program(commands, ZNS_ARRAY_SIZE(commands), argc, argv);
}
