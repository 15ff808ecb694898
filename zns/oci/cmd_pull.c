/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * pull: fetches a checkpoint from a registry. Layers that we have made are written directly from
 * skopeo to zones (proxy.h), and become durable when their digests are right. An image of another
 * program, in which the checkpoint has to be searched first, is copied to a layout before; the same
 * if skopeo has no proxy.
 */
#include <string.h>
#include "export_oci.h"
#include "import_oci.h"
#include "proxy.h"
#include "skopeo.h"

/* Takes NAME from docker://REGISTRY/PATH/NAME:TAG as the container's name. */
static void name_it(struct import *x, const char *registry)
{
	const char *slash = strrchr(registry, '/'), *name = slash ? slash + 1 : registry;

	if (!x->container[0])
		snprintf(x->container, sizeof(x->container), "%.*s", (int)strcspn(name, ":@"),
			 name);
}

static int through_layout(struct skopeo *w, struct import *x, const char *spec, const char *handle,
			  struct import_levels **levels, struct zns_err *err)
{
	char from[PATH_MAX + 40];
	int ret;

	ctl_catch_signals();
	ret = skopeo_dir(w, err);
	snprintf(from, sizeof(from), "oci:%s", w->layout);
	x->path = w->layout;
	if (!ret)
		ret = skopeo_copy(w, (char *)w->registry, from, true, err);
	if (!ret)
		ret = import_oci(x, spec, handle, levels, err);
	skopeo_dir_end(w);
	return ret;
}

/*
 * Imports the layers directly. -ENODATA: none of the layers was made by us; -ENOTSUP: this skopeo
 * has no proxy. In both cases nothing was changed.
 */
static int straight(struct skopeo *w, struct import *x, const char *spec, const char *handle,
		    struct import_levels **levels, struct zns_err *err)
{
	struct ctl_oci_image i = CTL_OCI_IMAGE_INIT;
	struct ctl_oci_source from;
	struct ctl_proxy *p = NULL;
	int ret = ctl_proxy_open(w->registry, w->options, w->nr_options, &w->patience, &p, err);

	if (!ret)
		ret = ctl_proxy_image(p, &i, err);
	if (!ret) {
		from = ctl_proxy_source(p);
		if (!*i.name)
			name_it(x, w->registry);
		ret = import_oci_from(x, &i, &from, spec, handle, levels, err);
	}
	ctl_oci_image_close(&i);
	ctl_proxy_close(p);
	return ret;
}

static int pull(struct skopeo *w, struct import *x, const char *spec, const char *handle,
		struct import_levels **levels, struct zns_err *err)
{
	int ret = straight(w, x, spec, handle, levels, err);
	bool nothing = ret == -ENOTSUP || ret == -ENODATA;

	if (!nothing || (*levels && import_oci_begun(*levels)))
		return ret;
	import_oci_end(*levels);
	*levels = NULL;
	err->code = 0;
	name_it(x, w->registry);
	return through_layout(w, x, spec, handle, levels, err);
}

static int cmd_pull(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct import x = IMPORT_INIT(x);
	const char *container = "", *handle = NULL;
	struct import_levels *levels = NULL;
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	struct skopeo w = SKOPEO_INIT(60);
	double seconds;
	int ret;
	const struct ctl_opt opts[] = { CTL_TEXT("container", &container),
					CTL_TEXT("as", &container),
					CTL_RATE("qos", &x.qos_mibps),
					CTL_TEXT("admission", &x.admission),
					CTL_TEXT("handle", &handle),
					CTL_TEXT("tmp", &w.tmp),
					SKOPEO_TIMEOUT(&w),
					CTL_DEV,
					CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	ret = skopeo_take(cmd, &args, 1, &w);
	if (ret)
		return ret;
	ret = import_name(cmd, &x, container);
	if (ret)
		return ret;
	x.path = w.registry;
	ctl_progress_start(&x.prog, "pull", 0);
	ret = pull(&w, &x, args.dev, handle, &levels, &err);
	seconds = ctl_progress_end(&x.prog);
	ret = ret ? ctl_fail(cmd, &err) :
		    import_print(import_oci_last(levels), handle, args.json, seconds);
	import_oci_end(levels);
	return ret;
}

const struct ctl_cmd oci_cmd_pull = {
	"pull",
	"[DEV] docker://REGISTRY/NAME:TAG [OPTIONS] [-- SKOPEO OPTIONS]",
	"fetch a checkpoint with its parents from a registry",
	"  --as NAME         whose checkpoint it is (or --container NAME); otherwise what\n"
	"                    the image says, and no retention counts it\n"
	"  --qos MIBPS       bandwidth to write with, as --zns-qos of criu\n"
	"  --admission share|wait[=S]|reject   as --zns-admission of criu\n"
	"  --handle NEWDIR   write a handle there, to restore from\n" SKOPEO_TMP_HELP,
	cmd_pull,
};
