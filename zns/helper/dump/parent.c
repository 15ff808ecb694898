/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Finds the parent of an incremental dump. It is named by an id, or by the handle in the directory
 * that the link `parent` leads to.
 */
#include <fcntl.h>
#include <string.h>
#include "dump_session.h"

#define PARENT_LINK "parent" /* the link that criu makes for --prev-images-dir */

static int from_dir(struct dump *d, const struct zns_registered *reg, uint8_t id[ZNS_UUID_LEN],
		    struct zns_err *err)
{
	cleanup_close int dir = openat(d->h->dir, PARENT_LINK, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct zns_err why = ZNS_ERR_INIT;
	ZnsPb__Handle *hd = NULL;
	int ret;

	if (dir < 0)
		return zns_fail_sys(err, -errno,
				    "--prev-images-dir: the image directory's link `" PARENT_LINK
				    "` leads nowhere; name "
				    "the parent by --zns-parent ID");
	ret = zns_handle_read(dir, &hd, &why);
	if (ret && !zns_handle_present(dir))
		return zns_fail(
			err, -EOPNOTSUPP,
			"--prev-images-dir: the parent is a plain image directory, a checkpoint on zones "
			"cannot follow it: `znsctl import` it first, or dump in full");
	if (ret)
		return zns_fail(
			err, ret,
			"--prev-images-dir: the parent's %s is damaged or foreign (%s); name the parent by "
			"--zns-parent ID",
			ZNS_HANDLE_NAME, why.msg);
	if (!zns_is_store(hd->device.data, reg))
		ret = zns_fail(
			err, -EXDEV,
			"--prev-images-dir: the parent is on another device than %s; an incremental checkpoint is "
			"on the device of its parents",
			reg->path);
	memcpy(id, hd->checkpoint.data, ZNS_UUID_LEN);
	d->parent_handle = hd;
	return ret;
}

int dump_parent(struct dump *d, const struct zw_begin *b, const struct zns_registered *reg,
		struct zns_err *err)
{
	uint8_t id[ZNS_UUID_LEN];
	int ret = 0;

	if (b->parent[0] && zns_broker_resolve_id(&d->h->s.broker, b->parent, d->parent, err))
		return zns_wrap(err, "--zns-parent (`znsctl ls` lists ids)");
	if (b->parent_dir)
		ret = from_dir(d, reg, id, err);
	if (ret)
		return ret;
	if (b->parent_dir && b->parent[0] && memcmp(id, d->parent, ZNS_UUID_LEN))
		return zns_fail(
			err, -EINVAL,
			"--zns-parent and --prev-images-dir name different checkpoints: give one of them");
	if (b->parent_dir)
		memcpy(d->parent, id, ZNS_UUID_LEN);
	d->has_parent = b->parent_dir || b->parent[0];
	return 0;
}

int dump_open_parents(struct dump *d, struct zns_err *err)
{
	struct zns_reader_params p = { .bucket = d->h->bucket, .workers = 2, .cache_units = 4 };
	const ZnsPb__Response *resp = d->v.answer;
	int ret;

	if (!d->has_parent)
		return 0;
	if (!resp->n_checkpoints || resp->checkpoints[0]->id.len != ZNS_UUID_LEN ||
	    memcmp(resp->checkpoints[0]->id.data, d->parent, ZNS_UUID_LEN))
		return zns_fail(
			err, -EPROTO,
			"znsd granted the dump without naming the parent that was asked for");
	ret = zns_session_chain(&d->h->s, resp, d->parent_handle, &p, &d->h->chain, err);
	return ret ? zns_wrap(err, "the parent") : 0;
}
