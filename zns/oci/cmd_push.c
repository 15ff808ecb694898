/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * push: sends a checkpoint to a registry. Its layers are read from zones twice: for their digests,
 * which an image must name before its layers, and when skopeo reads them. They are not stored in
 * between (export_serve.h), unless this process may not mount.
 */
#include <string.h>
#include <sys/stat.h>
#include "export_serve.h"
#include "skopeo.h"

#define LAYERS "layers" /* directory beside the layout */

static int send_it(struct export_oci *e, struct skopeo *w, bool silent, struct zns_err *err)
{
	struct export *x = &e->x;
	struct zns_err why = ZNS_ERR_INIT;
	struct export_serve *serve = NULL;
	char dir[PATH_MAX + 16], from[PATH_MAX + 40];
	int ret = export_begin(x, err), served;

	snprintf(dir, sizeof(dir), "%s/" LAYERS, w->dir);
	if (!ret && mkdir(dir, 0700))
		ret = zns_fail_sys(err, -errno, "cannot make %s", dir);
	if (!ret && !export_serve_begin(e, dir, &serve, &why))
		e->elsewhere = "../../../" LAYERS;
	else if (!ret)
		fprintf(stderr, "znsctl push: %s: so the whole image is written to %s first\n",
			why.msg, ctl_text(w->tmp));
	ctl_progress_start(&x->prog, "push: digests", x->prog.total);
	if (!ret)
		ret = export_to_oci(e, err);
	ctl_progress_end(&x->prog);
	snprintf(from, sizeof(from), "oci:%s", w->layout);
	if (!ret)
		ret = skopeo_copy(w, from, (char *)w->registry, silent, err);
	served = export_serve_end(serve, &why);
	if (ret && served) /* the error of the writer is more precise than that of the reader */
		*err = why;
	export_oci_end(e);
	return ret;
}

static int cmd_push(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct export_oci e = EXPORT_OCI_INIT;
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	struct skopeo w = SKOPEO_INIT(600);
	int ret;
	const struct ctl_opt opts[] = { CTL_FLAG("flatten", &e.x.flatten),
					CTL_FLAG("decrypt", &e.x.decrypt),
					CTL_TEXT("tmp", &w.tmp),
					SKOPEO_TIMEOUT(&w),
					CTL_DEV,
					CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	ret = skopeo_take(cmd, &args, 2, &w);
	if (ret)
		return ret;
	ret = ctl_hold_open(&e.x.h, args.dev, args.argv[0], &err);
	if (ret)
		return ctl_fail(cmd, &err);
	ctl_catch_signals();
	ret = skopeo_dir(&w, &err);
	e.x.target = w.layout;
	if (!ret)
		ret = send_it(&e, &w, args.json, &err);
	skopeo_dir_end(&w);
	ctl_hold_close(&e.x.h);
	if (ret)
		return ctl_fail(cmd, &err);
	if (args.json)
		return ctl_print_json(ctl_obj(J("id", args.argv[0]), J("target", w.registry),
					      J("digest", e.digest)));
	printf("pushed %s to %s\n", ctl_text(args.argv[0]), ctl_text(w.registry));
	return CTL_OK;
}

const struct ctl_cmd oci_cmd_push = {
	"push",
	"[DEV] ID|DIRECTORY docker://REGISTRY/NAME:TAG [--flatten] [--decrypt] [-- SKOPEO OPTIONS]",
	"send a checkpoint with its parents to a registry, as an OCI image",
	"  What the registry has already, such as a parent's layer, is not sent again\n"
	"  --flatten       send an incremental checkpoint as if dumped in full\n"
	"  --decrypt       send an encrypted one in clear, for other programs; otherwise\n"
	"                  it stays encrypted\n" SKOPEO_TMP_HELP,
	cmd_push,
};
