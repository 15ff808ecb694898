/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Runs an import in the order of a dump: first its sources are read, then the record is durable,
 * then the handle is written.
 */
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include "../../ctl/lib/ctl.h"
#include "archive.h"
#include "import.h"

int import_name(const struct ctl_cmd *cmd, struct import *x, const char *given)
{
	if (strlen(given) >= sizeof(x->container))
		return ctl_usage(cmd, "--container takes a name of 1 to %zu bytes",
				 sizeof(x->container) - 1);
	strcpy(x->container, given);
	x->named = *given;
	return 0;
}

/* Asks for admission and starts the writer. */
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
	/*
	 * who names the container or the parent by hand is responsible for it; a parent that only a
	 * link in the source names may be chosen by another user
	 */
	origin.has_claimed = origin.claimed = !x->named && (!x->parent_id || x->by_layer);
	ask.origin = &origin;
	x->v.sweeps = true;
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

/* Checks the room first, rather than fail after the device was filled. */
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

/*
 * Makes the new record. A join starts from the existing record, another import from the record that
 * zns_save_begin() has made.
 */
static int describe(struct import *x, struct zns_err *err)
{
	ZnsPb__Origin *o = x->v.c->origin;
	char path[PATH_MAX];

	if (x->join)
		return 0;
	x->v.c->has_pre_dump = x->v.c->pre_dump = x->pre_dump;
	o->has_claimed = o->claimed = !x->named;
	if (x->layer) {
		o->layer.data = malloc(IMPORT_SHA_BYTES);
		if (!o->layer.data)
			return zns_fail(err, -ENOMEM, "no memory for the record");
		memcpy(o->layer.data, x->layer, IMPORT_SHA_BYTES);
		o->layer.len = IMPORT_SHA_BYTES;
		o->has_layer = 1;
	}
	o->image_dir = strdup(realpath(x->path, path) ? path : x->path);
	return o->image_dir ? 0 : zns_fail(err, -ENOMEM, "no memory for the record");
}

/* Writes the handle. If that fails, the import fails. */
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

	if (x->stream) {
		import_stream_begin(x);
		ret = 0;
	} else if (x->join)
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
	return x->v.c ? 0 : zns_fail(err, -ENOMEM, "no memory for the record");
}

int import_run(struct import *x, const char *spec, const char *handle, struct zns_err *err)
{
	int ret = open_both(x, spec, handle, err);

	if (!ret)
		ret = key(x, err);
	if (!ret)
		ret = begin(x, err);
	if (!ret)
		ret = x->stream       ? import_read_stream(x, err) :
		      x->archive >= 0 ? import_read_archive(x, err) :
					import_read_dir(x, err);
	if (!ret)
		ret = describe(x, err);
	if (!ret)
		ret = zns_save_publish(&x->v, err);
	if (ret)
		zns_save_give_up(&x->v, ret, "the import failed");
	if (!ret && handle)
		ret = write_handle(x, err);
	if (!ret && x->join)
		ret = import_join_handle(x, err);
	if (ret)
		ctl_outdir_undo(&x->handle);
	return ret;
}

int import_print(const struct import *x, const char *handle, bool json, double seconds)
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
			printf("restore it with: criu-zns restore -D %s\n", handle);
		else
			printf("restore it with: criu-zns restore -D EMPTY_DIR --zns-checkpoint %s\n",
			       id);
		if (!x->named)
			printf("no retention counts it, since nobody here gave it the name: that does --as NAME\n");
		return CTL_OK;
	}
	return ctl_print_json(
		ctl_obj(J("id", id), J("container", x->container), J("images", c->nr_images),
			J("bytes", c->bytes), J("skipped", x->nr_skipped),
			J("handle", handle  ? handle :
				    x->join ? x->path :
					      NULL),
			JB("joined", x->join), JB("claimed", !x->named && !x->join),
			JB("encrypted", c->crypt),
			J("authentic", x->sealed && x->authentic ? ctl_j_bool(true) : NULL),
			J("seconds", seconds)));
}

void import_end(struct import *x)
{
	zns_save_end(&x->v);
	zns_session_close(&x->s);
	import_join_fini(x);
	import_fini(x);
}
