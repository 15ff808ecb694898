/* SPDX-License-Identifier: GPL-2.0-only */
/* znsctl-transfer, which `znsctl export`, `import`, `copy`, `send` and `receive` become. */
#include "as_is.h"
#include "images/export.h"
#include "images/import.h"

int main(int argc, char **argv)
{
	static const struct ctl_cmd *const commands[] = { &transfer_export, &transfer_import,
							  &transfer_copy, &transfer_send,
							  &transfer_receive };

	return ctl_program(commands, ZNS_ARRAY_SIZE(commands), argc, argv);
}
