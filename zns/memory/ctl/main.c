/* SPDX-License-Identifier: GPL-2.0-only */
/* znsctl-memory, the program that `znsctl memory` executes */
#include "memory.h"

int main(int argc, char **argv)
{
	static const struct ctl_cmd *const commands[] = { &memory_cmd_memory };

	return ctl_program(commands, ZNS_ARRAY_SIZE(commands), argc, argv);
}
