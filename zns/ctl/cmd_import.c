/* SPDX-License-Identifier: GPL-2.0-only */
/* import: makes a checkpoint from a plain CRIU image directory, an archive or an OCI image, in the order of a dump */
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include "archive.h"
#include "ctl.h"
#include "import.h"

/* Gets admission and starts the writer. */
static int begin(struct import *x, struct zns_err *err)
{
	ZnsPb__DumpBegin ask = ZNS_PB__DUMP_BEGIN__INIT;
	ZnsPb__Origin origin = ZNS_PB__ORIGIN__INIT;
	int ret;

	if (x->parent_id && zns_broker_resolve_id(&x->s.broker, x->parent_id, x->parent, err))
		return zns_wrap(err, "--parent");
	if (x->join && x->pages->crypt) {
		ask.has_key_id = 1;
		ask.key_id = x->pages->crypt->key_id;
	}
	ask.container = x->container;
	ask.qos_mibps = x->qos_mibps;
	ask.admission = (char *)x->admission;
	ask.has_parent = x->has_parent;
	if (x->has_parent)
		ask.parent = (ProtobufCBinaryData){ ZNS_UUID_LEN, x->parent };
	origin.kind = (char *)"import";
	ask.origin = &origin;
	ask.has_join = x->join;
	if (x->join)
		ask.join = x->pages->id;
	ret = zns_save_begin(&x->v, &ask, err);
	if (ret)
		return ret;
	if (x->v.grant->note)
		fprintf(stderr, "znsctl import: note: %s\n", x->v.grant->note);
	if (x->parent_handle && x->v.answer->n_checkpoints)
		ret = zns_handle_agrees(x->parent_handle, x->v.answer->checkpoints[0], err);
	if (!ret && x->join)
		ret = zns_writer_adopt(x->v.w, x->pages, x->pages_m, err);
	return ret;
}

/* Fail now rather than after the device was filled. */
static int check_room(const struct import *x, struct zns_err *err)
{
	char want[16], have[16];
	uint64_t room = (uint64_t)x->s.dev->geo.nr_zones * x->s.dev->geo.zone_capacity;

	if (x->prog.total <= room)
		return 0;
	return zns_fail(err, -ENOSPC, "no space: %s has images of %s, the whole device holds %s",
			x->path, zns_format_size(x->prog.total, want, sizeof(want)),
			zns_format_size(room, have, sizeof(have)));
}

/* The new record. A join starts from the old record; otherwise the client has made it. */
static int describe(struct import *x, struct zns_err *err)
{
	ZnsPb__Origin *o = x->v.c->origin;
	char path[PATH_MAX];

	if (x->join)
		return 0;
	x->v.c->has_pre_dump = x->v.c->pre_dump = x->pre_dump;
	o->image_dir = strdup(realpath(x->path, path) ? path : x->path);
	return o->image_dir ? 0 : zns_fail_sys(err, -ENOMEM, "record");
}

/* If the handle cannot be written, the import fails. */
static int write_handle(struct import *x, struct zns_err *err)
{
	int ret = import_write_copies(x, err);

	if (!ret)
		ret = zns_save_handle(&x->v, x->handle.dir, err);
	if (!ret)
		return 0;
	import_undo_copies(x);
	zns_save_roll_back(&x->v, "an import whose handle could not be written", err);
	return ret;
}

/* Opens the source and the destination. */
static int open_both(struct import *x, const char *spec, const char *handle, struct zns_err *err)
{
	int ret;

	if (x->join)
		ret = import_join_open(x, spec, err);
	else
		ret = x->archive >= 0 || (ctl_archive_name(x->path) && !ctl_is_dir(x->path)) ?
			      import_archive_scan(x, err) :
			      import_scan(x, err);
	if (!ret && handle)
		ret = ctl_outdir_open(&x->handle, handle, err);
	if (!ret && !x->join)
		ret = ctl_session_open(&x->s, spec, ZNS_WRITES, err);
	if (!ret && x->join)
		ret = import_join_scan(x, err);
	if (!ret)
		ret = check_room(x, err);
	return ret;
}

static int key(struct import *x, struct zns_err *err)
{
	if (!x->join)
		return zns_save_key(&x->v, err);
	if (x->v.crypt)
		zns_crypt_harden();
	x->v.former = x->pages_m;
	x->v.former_crypt = x->v.crypt;
	x->v.c = import_join_record(x);
	return x->v.c ? 0 : zns_fail_sys(err, -ENOMEM, "record");
}

static int run(struct import *x, const char *spec, const char *handle, struct zns_err *err)
{
	int ret = open_both(x, spec, handle, err);

	if (!ret)
		ret = key(x, err);
	if (!ret)
		ret = begin(x, err);
	if (!ret)
		ret = describe(x, err);
	if (!ret)
		ret = x->archive >= 0 ? import_read_archive(x, err) : import_read_dir(x, err);
	if (!ret)
		ret = zns_save_publish(&x->v, err);
	if (ret && x->v.w)
		zns_writer_cancel(x->v.w, ret, "the import failed");
	if (!ret && handle)
		ret = write_handle(x, err);
	if (!ret && x->join)
		ret = import_join_handle(x, err);
	if (ret)
		ctl_outdir_undo(&x->handle);
	return ret;
}

static int print(const struct import *x, const char *handle, bool json, double seconds)
{
	const ZnsPb__Checkpoint *c = x->v.c;
	char id[ZNS_UUID_STR], size[16];

	zns_uuid_format(x->v.id, id);
	if (!json && x->join) {
		printf("joined %zu images of %s with the pages of checkpoint %s of %s: %u images, %s in %.1f s\n",
		       x->nr_files, x->path, id, x->container, c->nr_images,
		       zns_format_size(c->bytes, size, sizeof(size)), seconds);
		return CTL_OK;
	}
	if (!json) {
		printf("imported %s as checkpoint %s of %s: %u images, %s in %.1f s\n",
		       ctl_text(x->path), id, ctl_text(x->container), c->nr_images,
		       zns_format_size(c->bytes, size, sizeof(size)), seconds);
		if (handle)
			printf("restore it with: criu restore -D %s\n", handle);
		else
			printf("restore it with: criu restore -D EMPTY_DIR --zns-checkpoint %s\n",
			       id);
		return CTL_OK;
	}
	return ctl_print_json(ctl_obj(J("id", id), J("container", x->container),
				      J("images", c->nr_images), J("bytes", c->bytes),
				      J("skipped", x->nr_skipped),
				      J("handle", handle  ? handle :
						  x->join ? x->path :
							    NULL),
				      JB("joined", x->join), J("seconds", seconds)));
}

/* The directory's real name, however it was spelled. */
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

void import_end(struct import *x)
{
	zns_save_end(&x->v);
	zns_session_close(&x->s);
	import_join_fini(x);
	import_fini(x);
}

static int cmd_import(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct import x = { .s = ZNS_SESSION_INIT,
			    .v.s = &x.s,
			    .dir = -1,
			    .archive = -1,
			    .handle = CTL_OUTDIR_INIT };
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	const char *handle = NULL, *container = "";
	struct import_levels *levels = NULL;
	const struct import *newest = &x;
	bool oci = false;
	double seconds;
	int ret;
	const struct ctl_opt opts[] = { CTL_TEXT("container", &container),
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
	if (strlen(container) >= sizeof(x.container))
		return ctl_usage(cmd, "--container takes a name of 1 to %zu bytes",
				 sizeof(x.container) - 1);
	strcpy(x.container, container);
	if (args.argc > 1)
		ctl_take_dev(&args);
	if (args.argc != 1 || !*args.argv[0])
		return ctl_usage(
			cmd, "one image directory, an archive of one (.tar, .tgz), or --oci DIR[:TAG] is wanted");
	if (x.join && (handle || x.container[0]))
		return ctl_usage(
			cmd,
			"--join goes to the checkpoint that the directory's handle names: no --handle, no --container");
	x.path = args.argv[0];
	if (oci && (x.join || x.parent_id))
		return ctl_usage(
			cmd,
			"an OCI image has its parents with it: leave out --join and --parent, or --oci");
	if (x.join && ctl_archive_name(x.path) && !ctl_is_dir(x.path))
		return ctl_usage(cmd,
				 "--join takes the directory that has the handle, not an archive");
	if (!x.join && !oci)
		default_container(&x);
	ctl_progress_start(&x.prog, "import", 0);
	ret = oci ? import_oci(&x, args.dev, handle, run, &levels, &err) :
		    run(&x, args.dev, handle, &err);
	if (oci && !ret)
		newest = import_oci_last(levels);
	seconds = ctl_progress_end(&x.prog);
	ret = ret ? ctl_fail(cmd, &err) : print(newest, handle, args.json, seconds);
	import_oci_end(levels);
	import_end(&x);
	return ret;
}

const struct ctl_cmd command_import = {
	"import",
	"[DEV] DIR|FILE.tar|FILE.tgz|--oci DIR[:TAG] [OPTIONS]",
	"a plain CRIU image directory, archive of one, or OCI image becomes a checkpoint on zones",
	"  --container NAME  whose checkpoint it is; otherwise the directory's or archive's name\n"
	"  --qos MIBPS       bandwidth to write with, as --zns-qos of criu\n"
	"  --admission share|wait[=S]|reject   as --zns-admission of criu\n"
	"  --handle NEWDIR   write a handle there, to restore from\n"
	"  --parent ID       of an incremental dump: the checkpoint that its parent was imported as\n"
	"  --oci             the image of a tag in an OCI layout, as export --oci or skopeo copy writes it, with its parents\n"
	"  --join            DIR is a page server's, with the sender's other images copied into it: add these images\n"
	"                    to the checkpoint that has the pages\n" CTL_DEV_HELP,
	cmd_import,
};
