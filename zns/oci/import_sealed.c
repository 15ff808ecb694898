/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Imports a sealed layer: an encrypted checkpoint is written to the device as it is. Its units are
 * bound to its id, so it keeps the id. No key is needed. If the key is available, wrapped key,
 * record and units must be authentic before anything is durable. Otherwise only a restore or
 * `znsctl verify` finds out whether somebody with access to the registry has forged them.
 */
#include <limits.h>
#include <string.h>
#include "../transfer/images/archive.h"
#include "import_oci.h"
#include "zns/crypt.h"
#include "zns/pbcopy.h"
#include "zns/sealed.h"
#include "zns/store.h"

#define CHUNK MIB(16) /* bytes between two progress reports */

struct sealed {
	struct import *x;
	const struct ctl_oci_layer *layer;
	struct ctl_unpack *u;
	ZnsPb__Manifest *m;
	struct zns_crypt *proof; /* the key; NULL: not available */
	struct zns_err no_key; /* why the key is not available */
};

/* ---- what is on the device already ---- */

static int same_there(struct zns_session *s, const ZnsPb__Checkpoint *c,
		      const struct ctl_oci_layer *l, struct zns_err *err)
{
	ZnsPb__Manifest *m = NULL;
	int ret = zns_manifest_read(s->dev, c, &m, err);

	if (ret)
		return ret;
	ret = m->has_seal && m->seal.len == sizeof(l->seal) &&
	      !memcmp(m->seal.data, l->seal, sizeof(l->seal));
	zns_pb__manifest__free_unpacked(m, NULL);
	return ret ? 1 :
		     zns_fail(
			     err, -EEXIST,
			     "%s has another version of checkpoint %s (joined or flattened): remove "
			     "that, or import on another device",
			     s->reg.path, l->id);
}

int import_sealed_there(const struct ctl_oci_layer *l, const char *spec, struct zns_err *err)
{
	cleanup_answer ZnsPb__Response *r = NULL;
	uint8_t id[ZNS_UUID_LEN];
	struct zns_session s;
	int ret = zns_uuid_parse(l->id, id);

	ret = ret ? zns_fail(err, ret, "%s is no checkpoint's id: 32 hexadecimal digits are",
			     l->id) :
		    ctl_session_open(&s, spec, ZNS_READS, err);
	if (ret)
		return ret;
	ret = zns_session_lease(&s, id, false, &r, err);
	if (ret == -ENOENT || ret == -ESTALE) {
		err->code = 0;
		ret = 0;
	} else if (!ret) {
		ret = same_there(&s, r->checkpoints[0], l, err);
	}
	zns_session_close(&s);
	return ret;
}

/* ---- the record ---- */

static bool is_id(bool has, const ProtobufCBinaryData *id, const char *text)
{
	char have[ZNS_UUID_STR];

	if (!has || !text)
		return !has && !text;
	return !strcmp(zns_uuid_format(id->data, have), text);
}

static int check_place(const struct sealed *z, const char *parent, struct zns_err *err)
{
	const ZnsPb__Checkpoint *c = z->m->checkpoint;

	if (!is_id(true, &c->id, z->layer->id))
		return zns_fail(err, -EBADMSG, "its record is of another checkpoint than %s",
				z->layer->id);
	if (!is_id(c->has_parent, &c->parent, parent))
		return zns_fail(err, -EBADMSG,
				"the layer before that of %s is not the layer of its parent",
				z->layer->id);
	if (memcmp(z->m->seal.data, z->layer->seal, sizeof(z->layer->seal)) != 0)
		return zns_fail(err, -EBADMSG, "its record is of another version of %s",
				z->layer->id);
	return 0;
}

/*
 * Puts the fingerprint of the master key and the wrapped key into the record. They are only in the
 * layer's annotations.
 */
static int put_key(struct sealed *z, struct zns_err *err)
{
	ZnsPb__CheckpointKey k = ZNS_PB__CHECKPOINT_KEY__INIT, *copy;

	k.cipher = z->m->checkpoint->crypt->cipher;
	k.has_key_id = k.has_wrapped = 1;
	k.key_id = (ProtobufCBinaryData){ ZNS_KEY_ID_BYTES, (uint8_t *)z->layer->key };
	k.wrapped = (ProtobufCBinaryData){ ZNS_WRAPPED_BYTES,
					   (uint8_t *)z->layer->key + ZNS_KEY_ID_BYTES };
	copy = zns_pb_copy(&k.base, err);
	if (!copy)
		return -ENOMEM;
	zns_pb__checkpoint_key__free_unpacked(z->m->checkpoint->crypt, NULL);
	z->m->checkpoint->crypt = copy;
	return 0;
}

static int read_record(struct sealed *z, const char *parent, struct zns_err *err)
{
	cleanup_free uint8_t *buf = NULL;
	struct ctl_entry e;
	int ret = ctl_unpack_next(z->u, &e, err);

	if (ret < 0)
		return ret;
	if (!ret || e.link || strcmp(e.name, CTL_OCI_RECORD) != 0)
		return zns_fail(err, -EBADMSG, "the layer of %s does not begin with its record",
				z->layer->id);
	if (e.size > zns_sealed_most(z->layer->size))
		return zns_fail(err, -EFBIG, "the record of %s is too long", z->layer->id);
	buf = malloc(e.size + 1);
	ret = buf ? ctl_unpack_data(z->u, buf, e.size, err) :
		    zns_fail(err, -ENOMEM, "no memory for the record");
	if (!ret)
		ret = zns_sealed_parse(buf, e.size, &z->x->s.dev->geo, false, &z->m, err);
	if (!ret)
		ret = check_place(z, parent, err);
	return ret ? zns_wrap(err, "%s", z->x->path) : put_key(z, err);
}

/* If this host has the master key, it must fit. It is not an error if the host does not have it. */
static int find_key(struct sealed *z, struct zns_err *err)
{
	struct zns_err e = ZNS_ERR_INIT;
	int ret = zns_crypt_of(&z->x->s.reg, z->x->s.broker.encrypted, z->m, &z->proof, &e);

	if (ret == -EBADMSG || ret == -EKEYREJECTED || ret == -ENOMEM || ret == -EPROTONOSUPPORT)
		return zns_fail(err, ret, "%s: %s", z->x->path, e.msg);
	if (ret)
		z->no_key = e;
	else
		zns_crypt_harden();
	z->x->authentic = !ret;
	return 0;
}

/* ---- the checkpoint ---- */

static int begin(struct sealed *z, struct zns_err *err)
{
	ZnsPb__DumpBegin ask = ZNS_PB__DUMP_BEGIN__INIT;
	ZnsPb__Origin origin = ZNS_PB__ORIGIN__INIT;
	const ZnsPb__Checkpoint *c = z->m->checkpoint;
	struct import *x = z->x;
	int ret;

	x->v.sealed = z->m;
	x->v.proof = z->proof;
	x->v.unit = c->stripe_unit;
	ask.container = x->container;
	ask.qos_mibps = x->qos_mibps;
	ask.admission = (char *)x->admission;
	ask.has_parent = c->has_parent;
	ask.parent = c->parent;
	ask.has_key_id = ask.has_sealed = 1;
	ask.key_id = c->crypt->key_id;
	ask.sealed = c->id;
	origin.kind = (char *)"import";
	origin.has_claimed = origin.claimed = !x->named;
	ask.origin = &origin;
	ret = zns_save_begin(&x->v, &ask, err);
	if (!ret && x->v.grant->note)
		fprintf(stderr, "znsctl import: note: %s\n", x->v.grant->note);
	return ret;
}

static int read_image(struct sealed *z, const ZnsPb__Image *pb, struct zns_err *err)
{
	struct import *x = z->x;
	struct zns_wimage *img;
	struct ctl_entry e;
	int ret = zns_writer_sealed(x->v.w, &img, err), more;

	if (ret || pb->map)
		return ret;
	more = pb->size ? ctl_unpack_next(z->u, &e, err) : 1;
	if (more < 0)
		return more;
	if (!more || (pb->size && (e.link || e.size != pb->size || strcmp(e.name, pb->name) != 0)))
		return zns_fail(
			err, -EBADMSG,
			"the layer of %s does not have image %s at the place that its record says",
			z->layer->id, pb->name);
	for (uint64_t off = 0; off < pb->size && !ret; off += CHUNK) {
		size_t len = zns_min(CHUNK, pb->size - off);

		ret = ctl_unpack_data(z->u, x->buf, len, err);
		if (!ret)
			ret = zns_wimage_data(img, x->buf, len, err);
		ctl_progress_add(&x->prog, len);
	}
	return ret ? ret : zns_wimage_seal(img, err);
}

static int read_images(struct sealed *z, struct zns_err *err)
{
	const struct import_stream *s = z->x->stream;
	struct ctl_entry e;
	int ret = 0;

	z->x->buf = malloc(CHUNK);
	if (!z->x->buf)
		return zns_fail(err, -ENOMEM, "no memory for a buffer");
	for (size_t n = 0; n < z->m->n_images && !ret; n++)
		ret = read_image(z, z->m->images[n], err);
	if (!ret)
		ret = ctl_unpack_next(z->u, &e, err);
	if (ret > 0)
		ret = zns_fail(err, -EBADMSG,
			       "the layer of %s has data beyond what its record lists",
			       z->layer->id);
	if (!ret)
		ret = ctl_unpack_rest(z->u, err);
	return ret ? ret : s->right(s->arg, err);
}

static int describe(struct sealed *z, struct zns_err *err)
{
	const ZnsPb__Checkpoint *from = z->m->checkpoint;
	ZnsPb__Checkpoint *c = z->x->v.c;
	char path[PATH_MAX];

	c->has_pre_dump = from->has_pre_dump;
	c->pre_dump = from->pre_dump;
	c->has_post_copy = from->has_post_copy;
	c->post_copy = from->post_copy;
	c->has_parent_bytes = from->has_parent_bytes;
	c->parent_bytes = from->parent_bytes;
	c->origin->has_claimed = c->origin->claimed = !z->x->named;
	c->origin->image_dir = strdup(realpath(z->x->path, path) ? path : z->x->path);
	return c->origin->image_dir ? 0 : zns_fail(err, -ENOMEM, "no memory for the record");
}

static int write_handle(struct import *x, struct zns_err *err)
{
	int ret = zns_save_handle(&x->v, x->handle.dir, err);

	if (ret)
		zns_save_roll_back(&x->v, "an import whose handle could not be written", err);
	return ret;
}

static int run(struct sealed *z, const char *parent, const char *spec, const char *handle,
	       struct zns_err *err)
{
	struct import *x = z->x;
	int ret = handle ? ctl_outdir_open(&x->handle, handle, err) : 0;

	x->prog.total += x->stream->bytes;
	if (!ret)
		ret = ctl_session_open(&x->s, spec, ZNS_WRITES, err);
	if (!ret)
		ret = ctl_unpack_stream(x->stream->fd, x->path, x->stream->seen, x->stream->arg,
					x->stream->patience, &z->u, err);
	if (!ret) {
		ctl_unpack_inside(z->u, x->inside);
		ret = read_record(z, parent, err);
	}
	if (!ret)
		ret = find_key(z, err);
	if (!ret)
		ret = begin(z, err);
	if (!ret)
		ret = read_images(z, err);
	if (!ret)
		ret = describe(z, err);
	if (!ret)
		ret = zns_save_publish(&x->v, err);
	if (ret)
		zns_save_give_up(&x->v, ret, "the import failed");
	if (!ret && handle)
		ret = write_handle(x, err);
	if (ret)
		ctl_outdir_undo(&x->handle);
	return ret;
}

int import_sealed_run(struct import *x, const struct ctl_oci_layer *l, const char *parent,
		      bool newest, const char *spec, const char *handle, struct zns_err *err)
{
	struct sealed z = { .x = x, .layer = l };
	int ret;

	x->sealed = true;
	ret = run(&z, parent, spec, handle, err);
	if (!ret && newest && z.no_key.code)
		fprintf(stderr,
			"znsctl import: note: the checkpoint was imported, but its authenticity was not checked: %s\n",
			z.no_key.msg);
	ctl_unpack_close(z.u);
	/* call this first: the writer still uses the manifest and the key */
	zns_writer_free(x->v.w);
	x->v.w = NULL;
	x->v.sealed = NULL;
	x->v.proof = NULL;
	zns_crypt_free(z.proof);
	if (z.m)
		zns_pb__manifest__free_unpacked(z.m, NULL);
	return ret;
}
