/* SPDX-License-Identifier: GPL-2.0-only */
/* znsctl-report, which `znsctl top`, `metrics` and `report` become. */
#include "metrics.h"

int main(int argc, char **argv)
{
	static const struct ctl_cmd *const commands[] = { &report_cmd_top, &report_cmd_metrics,
							  &report_cmd_report };

	return ctl_program(commands, ZNS_ARRAY_SIZE(commands), argc, argv);
}
