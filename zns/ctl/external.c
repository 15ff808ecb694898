/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Commands of packages. Each is a program of its own, which znsctl executes in its own place
 * (ctl_become).
 */
#include "lib/ctl.h"

static int become(const struct ctl_cmd *cmd, int argc, char **argv)
{
	char program[64];

	snprintf(program, sizeof(program), "znsctl-%s", cmd->name);
	return ctl_become(cmd, program, argv);
}

static int become_report(const struct ctl_cmd *cmd, int argc, char **argv)
{
	return ctl_become(cmd, "znsctl-report", argv);
}

static int become_oci(const struct ctl_cmd *cmd, int argc, char **argv)
{
	return ctl_become(cmd, "znsctl-oci", argv);
}

static int become_transfer(const struct ctl_cmd *cmd, int argc, char **argv)
{
	return ctl_become(cmd, "znsctl-transfer", argv);
}

#define BECOMES(name, brief, run) \
	const struct ctl_cmd command_##name = { #name, "", brief, "", run }

BECOMES(probe, "measure which zones share a die or a channel, and their rates", become);
BECOMES(selftest, "find out whether a drive does what this product needs of it", become);
BECOMES(docker, "Docker's checkpoints on zones", become);
BECOMES(memory, "running programs whose unused memory is on zones", become);
BECOMES(report, "a page of HTML: zones, containers, groups, wear, rates over time", become);
BECOMES(metrics, "figures of all devices and memory contexts, for Prometheus", become_report);
BECOMES(top, "what dumps, restores and memory contexts do just now, and where", become_report);
BECOMES(export, "a checkpoint as a plain CRIU image directory, archive or OCI image",
	become_transfer);
BECOMES(import, "a checkpoint of a plain CRIU image directory, archive or OCI image",
	become_transfer);
BECOMES(copy, "copy all checkpoints to another device, as they are", become_transfer);
BECOMES(send, "checkpoints as one stream on standard output, as they are", become_transfer);
BECOMES(receive, "the checkpoints of a stream of `znsctl send`, from standard input",
	become_transfer);
BECOMES(push, "send a checkpoint with its parents to a registry, as an OCI image", become_oci);
BECOMES(pull, "fetch a checkpoint with its parents from a registry", become_oci);
