/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * znsctl-oci, the program that znsctl executes for push and pull, and for export and import with
 * --oci.
 */
#include "export_oci.h"
#include "import_oci.h"

static int cmd_export(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct export_oci e = EXPORT_OCI_INIT;
	int code = export_command(cmd, argc, argv, &e.x);

	free(e.layers);
	return code;
}

static int cmd_import(const struct ctl_cmd *cmd, int argc, char **argv)
{
	return import_command(cmd, argc, argv, &import_oci_source);
}

int main(int argc, char **argv)
{
	struct ctl_cmd to = transfer_export, from = transfer_import;
	const struct ctl_cmd *const commands[] = { &to, &from, &oci_cmd_push, &oci_cmd_pull };

	to.run = cmd_export;
	from.run = cmd_import;
	return ctl_program(commands, ZNS_ARRAY_SIZE(commands), argc, argv);
}
