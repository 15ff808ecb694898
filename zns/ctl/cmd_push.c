/* SPDX-License-Identifier: GPL-2.0-only */
/* push: a checkpoint to a registry. */
#include "oci.h"
#include "skopeo.h"

static int cmd_push(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	struct skopeo w = { .tmp = NULL };
	bool flatten = false, decrypt = false;
	char to[PATH_MAX + 40];
	int ret;
	const struct ctl_opt opts[] = { CTL_FLAG("flatten", &flatten),
					CTL_FLAG("decrypt", &decrypt), CTL_TEXT("tmp", &w.tmp),
					CTL_DEV, CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	ret = skopeo_take(cmd, &args, 2, &w);
	if (ret)
		return ret;
	ctl_catch_signals();
	ret = skopeo_dir(&w, &err);
	if (!ret) {
		char *export[10] = { "znsctl", "export", "--oci", args.argv[0], w.layout };
		int n = 5;

		if (flatten)
			export[n++] = "--flatten";
		if (decrypt)
			export[n++] = "--decrypt";
		if (args.dev) {
			export[n++] = "--dev";
			export[n] = (char *)args.dev;
		}
		ret = skopeo_self(&w, export, true, &err);
	}
	snprintf(to, sizeof(to), "oci:%s", w.layout);
	if (!ret)
		ret = skopeo_copy(&w, to, (char *)w.registry, args.json, &err);
	skopeo_dir_end(&w);
	if (ret)
		return skopeo_failed(cmd, &w, &err);
	if (args.json)
		return ctl_print_json(ctl_obj(J("id", args.argv[0]), J("target", w.registry)));
	printf("pushed %s to %s\n", ctl_text(args.argv[0]), ctl_text(w.registry));
	return CTL_OK;
}

const struct ctl_cmd command_push = {
	"push",
	"[DEV] ID|DIRECTORY docker://REGISTRY/NAME:TAG [--flatten] [--decrypt] [-- SKOPEO OPTIONS]",
	"send a checkpoint with its parents to a registry, as an OCI image",
	"  What the registry has already, such as a parent's layer, is not sent again\n"
	"  --flatten       send an incremental checkpoint as if it had been dumped in full\n"
	"  --decrypt       send an encrypted one in clear, for other programs; otherwise it stays encrypted\n" SKOPEO_TMP_HELP,
	cmd_push,
};
