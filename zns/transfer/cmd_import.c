/* SPDX-License-Identifier: GPL-2.0-only */
/* import: makes a checkpoint from a plain CRIU image directory, an archive or an OCI image */
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include "../ctl/lib/ctl.h"
#include "images/archive.h"
#include "images/import.h"

/* Names the container after the directory: the last component of its real path. */
static void default_container(struct import *x)
{
	char path[PATH_MAX];
	const char *base;

	if (x->container[0] || !realpath(x->path, path))
		return;
	if (!ctl_is_dir(path))
		path[ctl_archive_stem(path)] = 0;
	base = strrchr(path, '/');
	snprintf(x->container, sizeof(x->container), "%.*s", (int)sizeof(x->container) - 1,
		 base ? base + 1 : path);
}

int import_command(const struct ctl_cmd *cmd, int argc, char **argv,
		   const struct import_source *source)
{
	struct import x = IMPORT_INIT(x);
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	const char *handle = NULL, *container = "";
	const struct import *newest = &x;
	void *found = NULL;
	bool oci = false;
	double seconds;
	int ret;
	const struct ctl_opt opts[] = { CTL_TEXT("container", &container),
					CTL_TEXT("as", &container),
					CTL_RATE("qos", &x.qos_mibps),
					CTL_TEXT("admission", &x.admission),
					CTL_TEXT("handle", &handle),
					CTL_FLAG("join", &x.join),
					CTL_FLAG("oci", &oci),
					CTL_TEXT("parent", &x.parent_id),
					CTL_DEV,
					CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (oci && !source)
		return ctl_become(cmd, "znsctl-oci", argv);
	ret = import_name(cmd, &x, container);
	if (ret)
		return ret;
	if (args.argc > 1)
		ctl_take_dev(&args);
	if (args.argc != 1 || !*args.argv[0])
		return ctl_usage(
			cmd,
			"one image directory, an archive of one (.tar, .tgz), or --oci DIR[:TAG] is wanted");
	if (x.join && (handle || x.container[0]))
		return ctl_usage(
			cmd,
			"--join adds to the checkpoint that the directory's handle names: leave out --handle and --container");
	x.path = args.argv[0];
	if (oci && (x.join || x.parent_id))
		return ctl_usage(
			cmd,
			"an OCI image contains its parents: leave out --join and --parent, or --oci");
	if (x.join && ctl_archive_name(x.path) && !ctl_is_dir(x.path))
		return ctl_usage(cmd,
				 "--join takes the directory that has the handle, not an archive");
	if (!x.join && !oci)
		default_container(&x);
	ctl_progress_start(&x.prog, "import", 0);
	ret = oci ? source->run(&x, args.dev, handle, &found, &err) :
		    import_run(&x, args.dev, handle, &err);
	if (oci && !ret)
		newest = source->newest(found);
	seconds = ctl_progress_end(&x.prog);
	ret = ret ? ctl_fail(cmd, &err) : import_print(newest, handle, args.json, seconds);
	if (oci)
		source->end(found);
	import_end(&x);
	return ret;
}

static int cmd_import(const struct ctl_cmd *cmd, int argc, char **argv)
{
	return import_command(cmd, argc, argv, NULL);
}

const struct ctl_cmd transfer_import = {
	"import",
	"[DEV] DIR|FILE.tar|FILE.tgz|--oci DIR[:TAG] [OPTIONS]",
	"a checkpoint of a plain CRIU image directory, archive or OCI image",
	"  --as NAME         whose checkpoint it is (or --container NAME); otherwise the\n"
	"                    directory's, the archive's or the image's name, and no\n"
	"                    retention counts it\n"
	"  --qos MIBPS       bandwidth to write with, as --zns-qos of criu\n"
	"  --admission share|wait[=S]|reject   as --zns-admission of criu\n"
	"  --handle NEWDIR   write a handle there, to restore from\n"
	"  --parent ID       of an incremental dump: the checkpoint that its parent was\n"
	"                    imported as\n"
	"  --oci             the image of a tag in an OCI layout, as export --oci or\n"
	"                    skopeo copy writes it, with its parents\n"
	"  --join            DIR is a page server's, with the sender's other images\n"
	"                    copied into it: add these images to the checkpoint that has\n"
	"                    the pages\n" CTL_DEV_HELP,
	cmd_import,
};
