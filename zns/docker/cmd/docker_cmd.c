/* SPDX-License-Identifier: GPL-2.0-only */
/* znsctl-docker, the program that `znsctl docker` executes: its table of sub-commands */
#include <string.h>
#include "docker_cmd.h"

#define HOST_HELP \
	"  --host unix:///PATH   the daemon, if not $DOCKER_HOST or /var/run/docker.sock\n"
#define CONFIG_HELP                                                                      \
	"  --config FILE   the daemon's configuration, if not /etc/docker/daemon.json\n" \
	"  --name NAME     of the runtime, if not zns\n"

static const struct ctl_cmd commands[] = {
	{ "docker install", "[OPTIONS]", "register the runtime in Docker's daemon.json",
	  CONFIG_HELP
	  "  --runc PATH     the runc to use, if not the first one in the daemon's PATH\n"
	  "  --data-root DIR Docker's data root, if neither the daemon nor its\n"
	  "                  configuration says so\n" HOST_HELP
	  "  --dry-run       only print what the file would be\n",
	  docker_install },
	{ "docker uninstall", "[OPTIONS]", "take it out again",
	  CONFIG_HELP "  --dry-run       only print what the file would be\n", docker_uninstall },
	{ "docker status", "[OPTIONS]",
	  "is it registered, does the daemon know it, what cannot work", CONFIG_HELP HOST_HELP,
	  docker_status },
	{ "docker checkpoint", "CONTAINER [NAME]",
	  "wait for admission with the container running, then call Docker",
	  "  --leave-running the container goes on\n"
	  "  --admission M   share, wait[=SECONDS] or reject, if the container says nothing\n"
	  "  --keep N        keep N of the checkpoints that have no NAME of their own,\n"
	  "                  and the container running\n" HOST_HELP,
	  docker_checkpoint },
	{ "docker recover", "CONTAINER [NAME]",
	  "start a stopped container from its newest good checkpoint", HOST_HELP, docker_recover },
	{ "docker suspend", "CONTAINER|--all",
	  "end a container with a checkpoint, which its next resume uses",
	  "  --all           all that run with zns.stop=checkpoint, before a shutdown\n"
	  "  --within TIME   as many as that time allows; the others end by their signal\n" HOST_HELP,
	  docker_suspend },
	{ "docker resume", "CONTAINER [NAME]",
	  "start a container from the checkpoint it ended with, or from NAME", HOST_HELP,
	  docker_resume },
	{ "docker clone", "CONTAINER NAME NEW",
	  "start a new container from a checkpoint of another one",
	  "  --image IMAGE   its image; if not given, the container's, with its changed\n"
	  "                  files if it has any\n" HOST_HELP,
	  docker_clone },
	{ "docker schedule", "CONTAINER --every TIME [--keep N]",
	  "checkpoint a container again and again",
	  "  --every TIME    30s, 5m, 2h\n  --keep N        keep the newest N (5)\n"
	  "  --loop          stay and do it, instead of a systemd timer\n  --count N       with --loop: so many "
	  "times\n" HOST_HELP,
	  docker_schedule },
	{ "docker unschedule", "CONTAINER", "end that; what was made stays", "",
	  docker_unschedule },
	{ "docker logs", "[--restore] [--dev DEV] ID|CONTAINER",
	  "criu's log of a checkpoint, or of a container's last one",
	  "  --restore       of the container's last restore\n" HOST_HELP, docker_logs },
	{ "docker live", "[--dev DEV] ID", "does a container still need this checkpoint, and why",
	  "", docker_live },
	{ "docker stats", "[CONTAINER]",
	  "last checkpoint and restore of each container: size, rate, frozen", HOST_HELP,
	  docker_stats },
};

static void usage(FILE *f)
{
	size_t i;

	fprintf(f,
		"usage: znsctl docker COMMAND [OPTIONS]\nDocker's checkpoints on zones. Every command takes --help and "
		"--json.\n\n");
	for (i = 0; i < ZNS_ARRAY_SIZE(commands); i++)
		fprintf(f, "  %-12s%s\n", commands[i].name + 7, commands[i].brief);
}

static int run(int argc, char **argv)
{
	static const struct ctl_cmd docker = { .name = "docker" };
	static char name[64];
	size_t i;

	if (argc < 2) {
		usage(stderr);
		return CTL_USAGE;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		usage(stdout);
		return CTL_OK;
	}
	for (i = 0; i < ZNS_ARRAY_SIZE(commands); i++) {
		if (strcmp(argv[1], commands[i].name + 7))
			continue;
		snprintf(name, sizeof(name), "znsctl docker %s", argv[1]);
		argv[1] = name;
		return commands[i].run(&commands[i], argc - 1, argv + 1);
	}
	return ctl_usage(&docker, "no sub-command \"%.40s\"", argv[1]);
}

int main(int argc, char **argv)
{
	if (ctl_begin())
		return CTL_FAILED;
	if (argc > 1 && !strcmp(argv[1], "life"))
		return ctl_end("znsctl docker", docker_life(argc, argv));
	return ctl_end("znsctl docker", run(argc, argv));
}
