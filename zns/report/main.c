/* SPDX-License-Identifier: GPL-2.0-only */
/* znsctl-report, the program that znsctl executes for top, metrics and report. */
#include "metrics.h"

int main(int argc, char **argv)
{
	static const struct ctl_cmd *const commands[] = { &report_cmd_top, &report_cmd_metrics,
							  &report_cmd_report };

	return ctl_program(commands, ZNS_ARRAY_SIZE(commands), argc, argv);
}
