/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * import --join: completes a checkpoint of which a page server has written only the pages to zones.
 * The user has copied the sender's other images beside the handle. This command writes these images
 * too, and a new record of the whole checkpoint. The old record is valid until then, and the handle
 * stays valid.
 */
#include <string.h>
#include "import.h"
#include "zns/crypt.h"
#include "zns/handle.h"
#include "zns/pbcopy.h"
#include "zns/store.h"

static int find_pages(struct import *x, struct zns_err *err)
{
	char id[ZNS_UUID_STR];
	int ret = zns_session_lease(&x->s, x->old_handle->checkpoint.data, false, &x->answer, err);

	if (ret)
		return ret;
	x->pages = x->answer->checkpoints[0];
	ret = zns_handle_agrees(x->old_handle, x->pages, err);
	if (ret)
		return ret;
	if (!x->pages->pages_only)
		return zns_fail(err, -EEXIST, "checkpoint %s is whole: there is nothing to join",
				zns_uuid_format(x->pages->id.data, id));
	if (strlen(x->pages->container) >= sizeof(x->container))
		return zns_fail(err, -ENAMETOOLONG, "the container's name is too long");
	strcpy(x->container, x->pages->container);
	if (!x->qos_mibps && x->pages->has_qos_requested_mibps)
		x->qos_mibps = x->pages->qos_requested_mibps;
	return 0;
}

int import_join_open(struct import *x, const char *spec, struct zns_err *err)
{
	char dev[ZNS_UUID_STR];
	int ret;

	x->dir = zns_open_dir(x->path, err);
	if (x->dir < 0)
		return x->dir;
	ret = zns_handle_read(x->dir, &x->old_handle, err);
	if (ret)
		return zns_wrap(err, "%s is no page server's directory", x->path);
	zns_uuid_format(x->old_handle->device.data, dev);
	ret = ctl_session_open(&x->s, spec ? spec : dev, ZNS_WRITES, err);
	if (!ret && !zns_is_store(x->old_handle->device.data, &x->s.reg))
		ret = zns_fail(err, -EXDEV, "the handle is of another device than %s",
			       x->s.reg.path);
	return ret ? ret : find_pages(x, err);
}

int import_join_scan(struct import *x, struct zns_err *err)
{
	int ret = zns_manifest_read(x->s.dev, x->pages, &x->pages_m, err);

	if (!ret)
		ret = zns_manifest_agrees(x->pages_m, x->pages, err);
	if (!ret)
		ret = zns_plain_check(x->dir, x->pages_m, err);
	if (!ret) /* the new images of an encrypted checkpoint use its key */
		ret = zns_crypt_of(&x->s.reg, x->s.broker.encrypted, x->pages_m, &x->v.crypt, err);
	if (!ret)
		ret = zns_crypt_check_handle(x->v.crypt, x->old_handle, x->pages_m, err);
	return ret ? ret : import_list(x, x->pages_m, err);
}

/*
 * Lists the zone of the old footer among the checkpoint's zones. If the log is lost, a rebuild
 * finds the old footer, and must also find there that the checkpoint was removed.
 */
static int note_footer(ZnsPb__Checkpoint *c)
{
	uint32_t *v = realloc(c->old_manifests, (c->n_old_manifests + 1) * sizeof(*v));

	if (!v)
		return -ENOMEM;
	c->old_manifests = v;
	v[c->n_old_manifests++] = c->manifest->zone;
	return 0;
}

ZnsPb__Checkpoint *import_join_record(const struct import *x)
{
	ZnsPb__Checkpoint *c = zns_pb_copy(&x->pages->base, NULL);

	if (!c)
		return NULL;
	if (note_footer(c)) {
		zns_pb__checkpoint__free_unpacked(c, NULL);
		return NULL;
	}
	zns_pb__extent_ref__free_unpacked(c->manifest, NULL);
	c->manifest = NULL;
	if (c->crypt)
		zns_pb__checkpoint_key__free_unpacked(c->crypt, NULL);
	c->crypt = NULL; /* zns_writer_finish() sets it again */
	c->has_pages_only = c->pages_only = 0;
	return c;
}

int import_join_handle(struct import *x, struct zns_err *err)
{
	const ZnsPb__Handle *old = x->old_handle;
	uint64_t sum = 0;
	int ret = 0;

	for (size_t i = 0; i < old->n_copies && !ret; i++) {
		ret = zns_save_copy(&x->v, old->copies[i]->name, old->copies[i]->size,
				    old->copies[i]->hash, err);
		sum += old->copies[i]->size;
	}
	for (size_t i = 0; i < x->nr_files && x->v.nr_copies < IMPORT_COPIES_MAX && !ret; i++) {
		const struct import_file *f = &x->files[i];

		if (!f->copy || sum + f->size > ZNS_HANDLE_COPIES_MAX)
			continue;
		ret = zns_save_copy(&x->v, f->name, f->size, zns_hash(f->copy, f->size), err);
		sum += f->size;
	}
	if (!ret)
		ret = zns_save_handle(&x->v, x->dir, err);
	if (!ret && x->v.crypt)
		fprintf(stderr,
			"znsctl import: note: the sender's images in %s are not encrypted; the handle needs none of them\n",
			x->path);
	return ret ? zns_wrap(
			     err,
			     "the checkpoint is whole, and its handle restores it, but could not be renewed") :
		     0;
}

void import_join_fini(struct import *x)
{
	if (x->old_handle)
		zns_pb__handle__free_unpacked(x->old_handle, NULL);
	if (x->pages_m)
		zns_pb__manifest__free_unpacked(x->pages_m, NULL);
	if (x->answer)
		zns_pb__response__free_unpacked(x->answer, NULL);
}
