/* SPDX-License-Identifier: GPL-2.0-only */
/* znsctl: the administrator's tool. */
#include <string.h>
#include "lib/ctl.h"
#include "lib/print.h"
#include "zns/emu.h"
#include "zns/frame.h"
#include "zns/store.h"
#include "zns-version.h"

#define GROUP(title)
#define COMMAND(name) extern const struct ctl_cmd command_##name;
#include "commands.h"
#undef GROUP
#undef COMMAND

#define GROUP(title) { title, NULL },
#define COMMAND(name) { NULL, &command_##name },
static const struct {
	const char *group; /* title of the group of commands that begins here; NULL: no new group */
	const struct ctl_cmd *cmd;
} commands[] = {
#include "commands.h"
};

static void usage(FILE *f)
{
	size_t i;

	fprintf(f,
		"usage: znsctl COMMAND [DEV] [OPTIONS]\n"
		"The checkpoint store. DEV is file:PATH, /dev/..., zonefs:DIR or emu:PATH, or a\n"
		"registered device's UUID; it may be left out where $ZNS_DEV or the configuration\n"
		"names it. Every command takes --help (-h) and --json. A checkpoint's ID may be\n"
		"cut down to its first digits, %d at least, as long as they name only one.\n",
		ZNS_ID_MIN);
	for (i = 0; i < ZNS_ARRAY_SIZE(commands); i++)
		if (commands[i].group)
			fprintf(f, "\n%s:\n", commands[i].group);
		else
			fprintf(f, "  %-12s%s\n", commands[i].cmd->name, commands[i].cmd->brief);
	fprintf(f,
		"\n`znsctl help COMMAND` explains one, `znsctl --version` says which build this is,\n"
		"and which formats it knows. Exit codes: 0 done, 1 failed, 2 wrong usage.\n");
}

/* versions of each format: the one that is written, and the oldest that can be read */
static const struct {
	const char *key, *name;
	int oldest, writes;
} formats[] = {
	{ "store", "store", 1, ZNS_STORE_FORMAT },
	{ "frame", "frames", 1, ZNS_FRAME_VERSION },
	{ "manifest", "manifests", 1, ZNS_MANIFEST_VERSION },
	{ "emulator", "emulator's file", ZNS_EMU_FORMAT, ZNS_EMU_FORMAT },
};

static int version(bool json)
{
	struct json_object *all, *reads;
	size_t i;
	int n;

	if (!json) {
		printf("znsctl: ZNS-CRIU %s\nWrites on devices:", ZNS_VERSION);
		for (i = 0; i < ZNS_ARRAY_SIZE(formats); i++)
			printf("%s %s %d", i ? "," : "", formats[i].name, formats[i].writes);
		printf("\nReads:");
		for (i = 0; i < ZNS_ARRAY_SIZE(formats); i++)
			for (n = formats[i].oldest; n <= formats[i].writes; n++)
				printf("%s %s %d", i || n > formats[i].oldest ? "," : "",
				       formats[i].name, n);
		putchar('\n');
		return CTL_OK;
	}
	all = json_object_new_object();
	for (i = 0; i < ZNS_ARRAY_SIZE(formats); i++) {
		reads = json_object_new_array();
		for (n = formats[i].oldest; n <= formats[i].writes; n++)
			json_object_array_add(reads, json_object_new_int(n));
		json_object_object_add(all, formats[i].key,
				       ctl_obj(J("writes", formats[i].writes), J("reads", reads)));
	}
	return ctl_print_json(ctl_obj(J("version", ZNS_VERSION), J("formats", all)));
}

int main(int argc, char **argv)
{
	char name[64], help[] = "--help";
	size_t i;

	if (ctl_begin())
		return CTL_FAILED;
	if (argc < 2) {
		usage(stderr);
		return CTL_USAGE;
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		if (argc > 3 || (argc == 3 && strcmp(argv[2], "--json") != 0)) {
			fprintf(stderr, "usage: znsctl %s [--json]\n", argv[1]);
			return CTL_USAGE;
		}
		return ctl_end("znsctl", version(argc == 3));
	}
	/* treat `help CMD …` as `CMD … --help` */
	if (!strcmp(argv[1], "help") && argc > 2 && argv[2][0] != '-') {
		memmove(argv + 1, argv + 2, (argc - 2) * sizeof(*argv));
		argv[argc - 1] = help;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		usage(stdout);
		return ctl_end("znsctl", CTL_OK);
	}
	for (i = 0; i < ZNS_ARRAY_SIZE(commands); i++) {
		if (!commands[i].cmd || strcmp(argv[1], commands[i].cmd->name))
			continue;
		/* getopt_long() names this in its own messages */
		snprintf(name, sizeof(name), "znsctl %s", argv[1]);
		argv[1] = name;
		return ctl_end(name, commands[i].cmd->run(commands[i].cmd, argc - 1, argv + 1));
	}
	fprintf(stderr, "znsctl: no command \"%.40s\"; see znsctl --help\n", ctl_text(argv[1]));
	return CTL_USAGE;
}
