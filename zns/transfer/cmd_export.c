/* SPDX-License-Identifier: GPL-2.0-only */
/* export: writes a checkpoint as a plain CRIU image directory, a tar archive of one, or an OCI
 * image */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "images/export.h"

/* ---- a directory ---- */

static int image_to_dir(struct export *x, int dir, uint32_t level, uint32_t n, uint8_t *buf,
			struct zns_err *err)
{
	const char *name = export_level(x, level)->images[n]->name;
	cleanup_close int fd = zns_make_file(dir, name);
	uint64_t size = export_size(x, level, n);
	int ret = 0;

	if (fd < 0)
		return zns_fail_sys(err, fd, "cannot make %s/%s", x->target, name);
	x->done++;
	x->bytes += size;
	for (uint64_t off = 0; off < size && !ret; off += EXPORT_CHUNK) {
		size_t len = zns_min(EXPORT_CHUNK, size - off);

		if (!x->flat) {
			ret = zns_rimage_to_fd(zns_chain_find(x->chain, level, name), off, len, fd,
					       err);
		} else {
			ret = export_read(x, level, n, off, buf, len, err);
			if (!ret) {
				ret = zns_pwrite_all(fd, buf, len, (off_t)off);
				if (ret)
					zns_fail_sys(err, ret, "cannot write %s/%s", x->target,
						     name);
			}
		}
		if (!ret)
			ret = ctl_caught(err);
		ctl_progress_add(&x->prog, len);
	}
	if (!ret && fsync(fd))
		ret = zns_fail_sys(err, -errno, "cannot sync %s/%s", x->target, name);
	return ret;
}

static void level_back(const struct export *x, int dir, uint32_t level)
{
	const ZnsPb__Manifest *m = export_level(x, level);

	for (uint32_t n = 0; n < m->n_images; n++)
		if (!export_leaves_out(x, level, n))
			unlinkat(dir, m->images[n]->name, 0);
	unlinkat(dir, "parent", 0);
}

/*
 * Removes the written files after an error. The directory was empty before, so this command wrote
 * every file with one of these names.
 */
static void take_back(const struct export *x, int top)
{
	cleanup_close int parents = export_levels(x) > 1 ? zns_open_subdir(top, EXPORT_PARENTS) :
							   -1;
	char id[ZNS_UUID_STR];

	level_back(x, top, 0);
	for (uint32_t l = 1; l < export_levels(x) && parents >= 0; l++) {
		cleanup_close int dir = -1;

		export_id(x, l, id);
		dir = zns_open_subdir(parents, id);
		if (dir < 0)
			continue;
		level_back(x, dir, l);
		unlinkat(parents, id, AT_REMOVEDIR);
	}
	unlinkat(top, EXPORT_PARENTS, AT_REMOVEDIR);
}

static int level_to_dir(struct export *x, int dir, uint32_t level, uint8_t *buf,
			struct zns_err *err)
{
	char to[128];
	int ret = 0;

	for (uint32_t n = 0; n < export_level(x, level)->n_images && !ret; n++)
		ret = export_leaves_out(x, level, n) ? 0 : image_to_dir(x, dir, level, n, buf, err);
	if (!ret && export_link(x, level, to, sizeof(to)) && symlinkat(to, dir, "parent"))
		ret = zns_fail_sys(err, -errno, "cannot make the link parent in %s", x->target);
	if (!ret && (ret = zns_sync_dir(dir)))
		zns_fail_sys(err, ret, "cannot sync %s", x->target);
	return ret;
}

/*
 * Writes each parent into a directory of its own below EXPORT_PARENTS. EXPORT_PARENTS stays open,
 * so it does no harm if somebody renames it meanwhile.
 */
static int parents_to_dir(struct export *x, int top, uint8_t *buf, struct zns_err *err)
{
	cleanup_close int parents = ctl_make_subdir(top, EXPORT_PARENTS, err);
	char id[ZNS_UUID_STR];
	int ret = parents < 0 ? parents : 0;

	for (uint32_t l = 1; l < export_levels(x) && !ret; l++) {
		cleanup_close int dir = -1;

		export_id(x, l, id);
		dir = ctl_make_subdir(parents, id, err);
		ret = dir < 0 ? dir : level_to_dir(x, dir, l, buf, err);
	}
	if (ret < 0)
		return ret;
	ret = zns_sync_dir(parents);
	if (!ret)
		ret = zns_sync_dir(top);
	return ret ? zns_fail_sys(err, ret, "cannot sync %s", x->target) : 0;
}

static int to_dir(struct export *x, struct zns_err *err)
{
	cleanup_free uint8_t *buf = malloc(EXPORT_CHUNK);
	int ret = buf ? ctl_outdir_open(&x->out, x->target, err) :
			zns_fail(err, -ENOMEM, "no memory for a buffer");

	if (!ret) {
		ret = level_to_dir(x, x->out.dir, 0, buf, err);
		if (!ret && export_levels(x) > 1)
			ret = parents_to_dir(x, x->out.dir, buf, err);
		if (!ret)
			ret = ctl_outdir_sync(&x->out, err);
		if (ret)
			take_back(x, x->out.dir);
	}
	if (ret)
		ctl_outdir_undo(&x->out);
	ctl_outdir_close(&x->out);
	return ret;
}

/* ---- the command ---- */

static int run(struct export *x, struct zns_err *err)
{
	int ret = export_begin(x, err);

	if (!ret)
		ret = x->form   ? x->form->write(x, err) :
		      x->packed ? export_to_archive(x, err) :
				  to_dir(x, err);
	export_end(x);
	return ret;
}

static int print(const struct export *x, bool json, double seconds)
{
	char id[ZNS_UUID_STR], size[16];

	zns_uuid_format(x->h.c->id.data, id);
	if (x->to_stdout)
		return CTL_OK;
	if (!json) {
		printf("exported %s of %s to %s: %u images, %s in %.1f s\n", id,
		       ctl_text(x->h.c->container), ctl_text(x->target), x->done,
		       zns_format_size(x->bytes, size, sizeof(size)), seconds);
		if (x->form)
			x->form->advise(x);
		return CTL_OK;
	}
	return ctl_print_json(
		ctl_obj(J("id", id), J("container", x->h.c->container), J("target", x->target),
			J("images", x->done), J("bytes", x->bytes),
			J("digest", x->form ? x->form->digest(x) : (const char *)NULL),
			JB("encrypted", x->sealed), J("seconds", seconds)));
}

int export_command(const struct ctl_cmd *cmd, int argc, char **argv, struct export *x)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	bool oci = false;
	double seconds;
	int ret;
	const struct ctl_opt opts[] = { CTL_FLAG("flatten", &x->flatten),
					CTL_FLAG("metadata-only", &x->metadata_only),
					CTL_FLAG("oci", &oci),
					CTL_FLAG("decrypt", &x->decrypt),
					CTL_DEV,
					CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (oci && !x->form)
		return ctl_become(cmd, "znsctl-oci", argv);
	if (args.argc > 2)
		ctl_take_dev(&args);
	if (args.argc != 2 || !*args.argv[0] || !*args.argv[1])
		return ctl_usage(
			cmd,
			"a checkpoint and a target are wanted: ID, and DIR, FILE.tar, FILE.tgz or - for a tar on standard output");
	x->target = args.argv[1];
	if (oci && x->metadata_only)
		return ctl_usage(
			cmd,
			"an image without memory pages restores nothing: leave out --oci or --metadata-only");
	if (x->decrypt && !oci)
		return ctl_usage(
			cmd,
			"every export without --oci decrypts: leave out --decrypt, or add --oci");
	x->to_stdout = !oci && !strcmp(x->target, "-");
	x->packed = x->to_stdout || ctl_archive_name(x->target);
	if (x->to_stdout && (args.json || isatty(STDOUT_FILENO)))
		return ctl_usage(
			cmd,
			"- writes an archive to standard output: redirect it, and leave out --json");
	ret = ctl_hold_open(&x->h, args.dev, args.argv[0], &err);
	if (ret)
		return ctl_fail(cmd, &err);
	ctl_catch_signals();
	ctl_progress_start(&x->prog, "export",
			   x->metadata_only ? x->h.c->bytes - x->h.c->page_bytes : x->h.c->bytes);
	ret = run(x, &err);
	seconds = ctl_progress_end(&x->prog);
	ret = ret ? ctl_fail(cmd, &err) : print(x, args.json, seconds);
	ctl_hold_close(&x->h);
	return ret;
}

static int cmd_export(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct export x = { .out = CTL_OUTDIR_INIT };

	return export_command(cmd, argc, argv, &x);
}

const struct ctl_cmd transfer_export = {
	"export",
	"[DEV] ID|DIRECTORY DIR|FILE.tar|FILE.tgz|-|--oci DIR[:TAG] [--flatten] [--decrypt]",
	"a checkpoint as a plain CRIU image directory, archive or OCI image",
	"  ID may be the beginning of one, or a directory that holds a handle\n"
	"  DIR is new or empty; FILE.tgz (or .tar.gz) is compressed; - is a tar archive\n"
	"  on standard output\n"
	"  --flatten       write an incremental checkpoint as if dumped in full\n"
	"  --oci           an image in an OCI layout, for registries; DIR may have others\n"
	"                  already. TAG is latest, if not given. Each parent is a layer\n"
	"                  of its own. An encrypted checkpoint stays encrypted, and needs\n"
	"                  no key\n"
	"  --decrypt       with --oci: as plain images, that other programs read too\n"
	"  --metadata-only leave out the images of memory pages\n" CTL_DEV_HELP,
	cmd_export,
};
