/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * znsctl memory: programs whose unused memory is moved to zones while they run
 * (Documentation/inside/memory.md)
 */
#include <string.h>
#include "memory.h"

static int tell(const struct ctl_cmd *cmd, const char *what, ZnsPb__MemoryRequest *q, char *name,
		size_t len)
{
	struct zns_err err = ZNS_ERR_INIT;

	if (memory_find(what, name, len, &err) || memory_call(name, q, NULL, &err))
		return ctl_fail(cmd, &err);
	return CTL_OK;
}

static int detach(const struct ctl_cmd *cmd, int argc, char **argv)
{
	ZnsPb__MemoryRequest q = ZNS_PB__MEMORY_REQUEST__INIT;
	struct ctl_args args = { 0 };
	const struct ctl_opt opts[] = { CTL_OPTS_END };
	char name[256];
	int code;

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (args.argc != 1)
		return ctl_usage(cmd, "give one context: its name, or a PID");
	q.op = ZNS_PB__MEMORY_OP__MEMORY_DETACH;
	code = tell(cmd, args.argv[0], &q, name, sizeof(name));
	if (code)
		return code;
	if (args.json)
		return ctl_print_list("detached", json_object_new_string(name));
	printf("detached %s: all of its memory is in DRAM\n", ctl_text(name));
	return CTL_OK;
}

static int limit(const struct ctl_cmd *cmd, int argc, char **argv)
{
	ZnsPb__MemoryRequest q = ZNS_PB__MEMORY_REQUEST__INIT;
	const char *dram_text = NULL;
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	const struct ctl_opt opts[] = { CTL_TEXT("dram", &dram_text), CTL_OPTS_END };
	char name[256];
	int code;

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (args.argc != 1 || !dram_text)
		return ctl_usage(cmd, "give one context and --dram SIZE");
	if (memory_parse_dram(dram_text, 0, &q.dram, &err))
		return ctl_fail(cmd, &err);
	q.op = ZNS_PB__MEMORY_OP__MEMORY_LIMIT;
	q.has_dram = 1;
	code = tell(cmd, args.argv[0], &q, name, sizeof(name));
	return code ? code : memory_show(cmd, name, args.json);
}

static struct json_object *kernel_json(const struct memory_kernel *k)
{
	struct json_object *lacks = json_object_new_array();

	for (unsigned i = 0; i < k->nr_lacks; i++)
		json_object_array_add(lacks, ctl_obj(J("what", k->lacks[i].what),
						     J("why", k->lacks[i].why),
						     J("instead", k->lacks[i].instead)));
	return ctl_obj(J("mechanism", k->mechanism), J("lost_units", k->lost),
		       J("missing", *k->missing ? k->missing : (const char *)NULL),
		       J("note", *k->note ? k->note : (const char *)NULL), J("lacks", lacks));
}

static void kernel_print(const struct memory_kernel *k)
{
	if (*k->missing)
		printf("this kernel: nothing can be extended\n");
	else
		printf("this kernel: threads are stopped while pages are dropped; a unit that cannot be read %s\n",
		       !strcmp(k->lost, "poison") ? "is poisoned (SIGBUS)" : "ends its processes");
	for (unsigned i = 0; i < k->nr_lacks; i++)
		printf("  missing: %s; instead: %s\n", k->lacks[i].why,
		       k->lacks[i].instead ? k->lacks[i].instead : "nothing");
}

static int status_all(const struct ctl_cmd *cmd, bool json)
{
	struct json_object *list = json_object_new_array(), *notes = json_object_new_array();
	struct zns_err err = ZNS_ERR_INIT;
	struct memory_kernel k;
	struct ctl_fold fold;
	int code = CTL_OK;
	char **names;
	size_t nr;

	if (memory_names(&names, &nr, &err))
		return ctl_fail(cmd, &err);
	memory_kernel(&k);
	ctl_fold_begin(&fold);
	for (size_t i = 0; i < nr; i++) {
		ZnsPb__MemoryAnswer *r;
		int ret = memory_status(names[i], &r, &err);

		/* the pager has exited before its answer, as it does after a detach */
		if (ret == -EPIPE)
			ret = memory_status(names[i], &r, &err);
		/*
		 * the socket belongs to a dead pager: the keeper is starting the next one, or there
		 * is no keeper
		 */
		if (ret == -ENOENT)
			continue;
		if (ret) {
			code = ctl_fail(cmd, &err);
			continue;
		}
		if (json)
			json_object_array_add(list, memory_json(r->status));
		else
			memory_print(r->status, false);
		zns_pb__memory_answer__free_unpacked(r, NULL);
	}
	memory_names_free(names, nr);
	memory_notes(json ? notes : NULL);
	if (!json)
		kernel_print(&k);
	ctl_fold_end(&fold, 4);
	if (json) {
		ctl_print_json(ctl_obj(J("kernel", kernel_json(&k)), J("contexts", list),
				       J("not_extended", notes)));
	} else {
		json_object_put(list);
		json_object_put(notes);
	}
	return code;
}

static int status(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	const struct ctl_opt opts[] = { CTL_OPTS_END };
	char name[256];

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (args.argc > 1)
		return ctl_usage(cmd, "give one context at most");
	if (!args.argc)
		return status_all(cmd, args.json);
	if (memory_find(args.argv[0], name, sizeof(name), &err))
		return ctl_fail(cmd, &err);
	return memory_show(cmd, name, args.json);
}

static const struct ctl_cmd subs[] = {
	{ "memory attach", "PID|CONTAINER --dram SIZE|SHARE% [--idle TIME]",
	  "keep on zones what a program does not use; experimental, see memory.md",
	  "Memory on zones can be lost: if pager, keeper and holder are killed at once the\n"
	  "program reads zeroes; what cannot be read back ends it; what the kernel or a\n"
	  "device writes past its page tables may be older bytes afterwards. For programs\n"
	  "that can be started anew.\n"
	  "  --dram SIZE     so much of its memory stays in DRAM: 512M; or 30% of it\n"
	  "  --idle TIME     hibernate after so long without activity: 10m\n"
	  "  --dram auto     its part of memory-dram in zns.conf, divided among all such\n"
	  "  --min SIZE      with auto: never less than that; else 16M\n"
	  "  --qos RATE      write no faster than that, in MiB/s\n"
	  "  --no-predict    read nothing before it is asked for\n"
	  "  --encrypt       what goes to zones, also where checkpoints are not encrypted\n"
	  "  --name NAME     of the context; else the container's, or pid-PID\n" CTL_DEV_HELP,
	  memory_cmd_attach },
	{ "memory hibernate", "NAME|PID|CONTAINER [--dram SIZE|SHARE%]",
	  "all that can go goes to zones; a touch brings back what it touches",
	  "  --dram SIZE     if it is not attached yet: its DRAM later; else as now\n"
	  "  --no-wait       return at once\n" CTL_DEV_HELP,
	  memory_cmd_hibernate },
	{ "memory wake", "NAME|PID", "read ahead what it touched the last time it was awake", "",
	  memory_cmd_wake },
	{ "memory detach", "NAME|PID", "read all of it back, and end the context", "", detach },
	{ "memory limit", "NAME|PID --dram SIZE", "give it more or less DRAM",
	  "  --dram SIZE     so much of its memory stays in DRAM\n", limit },
	{ "memory status", "[NAME|PID]",
	  "the contexts here, or all of one; what this kernel allows", "", status },
};

static int cmd_memory(const struct ctl_cmd *cmd, int argc, char **argv)
{
	size_t len = strlen("memory ");

	for (size_t i = 0; argc > 1 && i < ZNS_ARRAY_SIZE(subs); i++) {
		char title[64];

		if (strcmp(argv[1], subs[i].name + len))
			continue;
		snprintf(title, sizeof(title), "znsctl %s", subs[i].name);
		argv[1] = title; /* getopt_long() names this in its own messages */
		return subs[i].run(&subs[i], argc - 1, argv + 1);
	}
	if (argc > 1 && strcmp(argv[1], "--help") && strcmp(argv[1], "-h"))
		return ctl_usage(
			cmd,
			"attach, detach, hibernate, wake, limit or status is wanted, not \"%.40s\"",
			ctl_text(argv[1]));
	if (argc < 2)
		return ctl_usage(cmd, "attach, detach, hibernate, wake, limit or status is wanted");
	printf("usage: znsctl memory COMMAND ...\n%s\n\n", cmd->brief);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(subs); i++)
		printf("  %s %s\n      %s\n%s", subs[i].name + len, subs[i].args, subs[i].brief,
		       subs[i].help);
	return CTL_OK;
}

const struct ctl_cmd memory_cmd_memory = {
	"memory",
	"attach|detach|hibernate|wake|limit|status ...",
	"running programs whose unused memory is on zones",
	"",
	cmd_memory,
};
