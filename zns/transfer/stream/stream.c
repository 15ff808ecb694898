/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* See zns/stream.h. */
#include <stdlib.h>
#include <string.h>
#include "../../store/store_int.h"
#include "zns/pbcopy.h"
#include "zns/stream.h"

#define SMALL_MAX KIB(64) /* largest frame of the kinds BEGIN, DONE and DROP */
#define ITEM_MAX MIB(1)
/* largest frame END, which has the rules: small, since a decoded message takes several times the
 * memory */
#define END_MAX MIB(1)
/* Bits of a stream's id, which each of its frames has in the field for the generation. */
#define IDS (ZNS_GENERATION_MAX - 1)

/* Makes room in the buffer for a frame with @len bytes. */
static int reserve(struct zns_stream *s, size_t len, struct zns_err *err)
{
	uint8_t *buf = s->buf;

	len += ZNS_FRAME_HDR;
	if (len > s->room)
		buf = realloc(s->buf, len);
	if (!buf)
		return zns_fail(err, -ENOMEM, "no memory for a frame of a stream");
	s->room = zns_max(s->room, len);
	s->buf = buf;
	return 0;
}

/* adds the frame to the stream's hash; its header is enough, since it contains a hash of the whole
 * frame */
static void add_up(struct zns_stream *s)
{
	uint8_t both[8 + ZNS_FRAME_HDR];

	memcpy(both, &s->hash, 8);
	memcpy(both + 8, s->buf, ZNS_FRAME_HDR);
	s->hash = zns_hash(both, sizeof(both));
	s->seq++;
}

static void item_free(struct zns_stream *s)
{
	if (s->item)
		zns_pb__stream_item__free_unpacked(s->item, NULL);
	s->item = NULL;
}

void zns_stream_fini(struct zns_stream *s)
{
	item_free(s);
	if (s->begin)
		zns_pb__stream_begin__free_unpacked(s->begin, NULL);
	if (s->end)
		zns_pb__stream_end__free_unpacked(s->end, NULL);
	free(s->buf);
	s->begin = NULL;
	s->end = NULL;
	s->buf = NULL;
	s->room = 0;
}

/* ---- writing ---- */

/* Sends a frame whose payload is already in the buffer, behind the room for the header. */
static int put(struct zns_stream *s, enum zns_frame_type type, size_t len, struct zns_err *err)
{
	struct zns_frame f = { .type = type,
			       .generation = s->id,
			       .seq = s->seq,
			       .payload = s->buf + ZNS_FRAME_HDR,
			       .len = (uint32_t)len };
	int ret;

	zns_frame_pack(&f, 1, s->buf);
	ret = s->io(s->arg, s->buf, ZNS_FRAME_HDR + len, err);
	if (!ret)
		add_up(s);
	return ret;
}

static int put_message(struct zns_stream *s, enum zns_frame_type type, size_t max,
		       const ProtobufCMessage *m, struct zns_err *err)
{
	size_t len = protobuf_c_message_get_packed_size(m);
	int ret;

	if (len > max)
		return zns_fail(err, -EFBIG, "%zu bytes are too long for a frame of a stream", len);
	ret = reserve(s, len, err);
	if (ret)
		return ret;
	protobuf_c_message_pack(m, s->buf + ZNS_FRAME_HDR);
	return put(s, type, len, err);
}

int zns_stream_start(struct zns_stream *s, const uint8_t device[ZNS_UUID_LEN], struct zns_err *err)
{
	ZnsPb__StreamBegin b = ZNS_PB__STREAM_BEGIN__INIT;
	uint8_t id[ZNS_UUID_LEN];
	int ret = zns_uuid_generate(id);

	if (ret)
		return zns_fail_sys(err, ret, "no random UUID");
	memcpy(&s->id, id, sizeof(s->id));
	s->id &= IDS;
	b.device = (ProtobufCBinaryData){ ZNS_UUID_LEN, (uint8_t *)device };
	b.sent_ns = zns_now_ns();
	return put_message(s, ZNS_FRAME_STREAM_BEGIN, SMALL_MAX, &b.base, err);
}

/* a copy of the record without places on a device */
static ZnsPb__Checkpoint placeless(const ZnsPb__Checkpoint *from)
{
	ZnsPb__Checkpoint c = *from;

	c.n_zones = c.n_groups = c.n_metadata_groups = c.n_old_manifests = 0;
	c.manifest = NULL;
	c.has_moved = c.has_moved_ns = c.has_packed = c.has_memory_bytes = 0;
	return c;
}

int zns_stream_put(struct zns_stream *s, const ZnsPb__Checkpoint *record, const ZnsPb__Manifest *m,
		   bool pinned, struct zns_err *err)
{
	ZnsPb__Checkpoint c = placeless(record);
	ZnsPb__StreamItem item = ZNS_PB__STREAM_ITEM__INIT;
	cleanup_free uint8_t *images = NULL;
	size_t len = 0;
	int ret = zns_sealed_may(m, err);

	if (!ret)
		ret = zns_sealed_pack(m, &images, &len, err);
	if (!ret && len > zns_sealed_most(c.bytes))
		ret = zns_fail(err, -EFBIG,
			       "the checkpoint has too many small images to be sent as it is");
	if (!ret)
		ret = reserve(s, zns_max(len, (size_t)ZNS_STREAM_DATA), err);
	if (ret)
		return ret;
	item.record = &c;
	item.has_pinned = item.pinned = pinned;
	ret = put_message(s, ZNS_FRAME_STREAM_ITEM, ITEM_MAX, &item.base, err);
	if (ret)
		return ret;
	s->items++;
	memcpy(s->buf + ZNS_FRAME_HDR, images, len);
	return put(s, ZNS_FRAME_STREAM_IMAGES, len, err);
}

uint8_t *zns_stream_room(struct zns_stream *s)
{
	return s->buf + ZNS_FRAME_HDR;
}

int zns_stream_data(struct zns_stream *s, size_t len, struct zns_err *err)
{
	return put(s, ZNS_FRAME_STREAM_DATA, len, err);
}

int zns_stream_done(struct zns_stream *s, struct zns_err *err)
{
	return put(s, ZNS_FRAME_STREAM_DONE, 0, err);
}

int zns_stream_drop(struct zns_stream *s, const char *why, struct zns_err *err)
{
	size_t len = strnlen(why, ZNS_ERR_MAX);

	memcpy(s->buf + ZNS_FRAME_HDR, why, len);
	return put(s, ZNS_FRAME_STREAM_DROP, len, err);
}

int zns_stream_finish(struct zns_stream *s, ZnsPb__Retention *const *rules, size_t nr,
		      struct zns_err *err)
{
	ZnsPb__StreamEnd end = ZNS_PB__STREAM_END__INIT;

	end.items = s->items;
	end.hash = s->hash;
	end.rules = (ZnsPb__Retention **)rules;
	end.n_rules = nr;
	return put_message(s, ZNS_FRAME_STREAM_END, END_MAX, &end.base, err);
}

/* ---- reading ---- */

static size_t most(const struct zns_stream *s, uint16_t type)
{
	switch (type) {
	case ZNS_FRAME_STREAM_ITEM:
		return ITEM_MAX;
	case ZNS_FRAME_STREAM_IMAGES:
		return zns_sealed_most(s->item ? s->item->record->bytes : 0);
	case ZNS_FRAME_STREAM_DATA:
		return ZNS_STREAM_DATA;
	case ZNS_FRAME_STREAM_END:
		return END_MAX;
	default:
		return SMALL_MAX;
	}
}

/* May a frame of this type come after the previous one? */
static bool in_order(const struct zns_stream *s, uint16_t type)
{
	bool open = s->last == ZNS_FRAME_STREAM_IMAGES || s->last == ZNS_FRAME_STREAM_DATA;

	switch (type) {
	case ZNS_FRAME_STREAM_BEGIN:
		return !s->last;
	case ZNS_FRAME_STREAM_IMAGES:
		return s->last == ZNS_FRAME_STREAM_ITEM;
	case ZNS_FRAME_STREAM_DATA:
	case ZNS_FRAME_STREAM_DONE:
	case ZNS_FRAME_STREAM_DROP:
		return open;
	case ZNS_FRAME_STREAM_ITEM:
	case ZNS_FRAME_STREAM_END:
		return s->last == ZNS_FRAME_STREAM_BEGIN || s->last == ZNS_FRAME_STREAM_DONE ||
		       s->last == ZNS_FRAME_STREAM_DROP;
	default:
		return false;
	}
}

static int cut_off(const struct zns_stream *s, bool begun, int ret, struct zns_err *err)
{
	if (ret != -ENODATA)
		return ret;
	return begun ? zns_fail(err, -EBADMSG, "the stream is cut off after %llu frames",
				(unsigned long long)s->seq) :
		       zns_fail(err, -ENODATA, "nothing came: the sender has failed and says why");
}

/* Reads the header, which has the type and the length of the frame. */
static int read_header(struct zns_stream *s, uint64_t *len, struct zns_err *err)
{
	uint16_t type = 0;
	int ret = reserve(s, SMALL_MAX, err);

	if (!ret)
		ret = cut_off(s, s->last, s->io(s->arg, s->buf, ZNS_FRAME_HDR, err), err);
	if (ret)
		return ret;
	*len = zns_frame_claim(s->buf, ZNS_FRAME_HDR, &type);
	if (*len && in_order(s, type) && *len - ZNS_FRAME_HDR <= most(s, type))
		return 0;
	if (!s->last)
		return zns_fail(err, -EBADMSG, "this is no stream of `znsctl send`");
	if (!*len)
		return zns_fail(err, -EBADMSG, "the stream is damaged after %llu frames",
				(unsigned long long)s->seq);
	return zns_fail(
		err, -EBADMSG,
		"the stream has a frame of type %u and %llu bytes where no such frame may be", type,
		(unsigned long long)*len);
}

static int read_frame(struct zns_stream *s, struct zns_err *err)
{
	uint64_t len;
	int ret = read_header(s, &len, err);

	if (!ret)
		ret = reserve(s, len - ZNS_FRAME_HDR, err);
	if (!ret && len > ZNS_FRAME_HDR)
		ret = cut_off(s, true,
			      s->io(s->arg, s->buf + ZNS_FRAME_HDR, len - ZNS_FRAME_HDR, err), err);
	if (!ret)
		ret = zns_frame_parse(s->buf, len, &s->f, err);
	if (ret)
		return ret;
	if (!s->last)
		s->id = s->f.generation;
	if (s->f.generation != s->id || s->f.seq != s->seq)
		return zns_fail(
			err, -EBADMSG,
			"a frame of the stream is missing, repeated or from another stream, after %llu frames",
			(unsigned long long)s->seq);
	return 0;
}

static bool is_known(const ZnsPb__Checkpoint *c)
{
	bool known = !c->base.n_unknown_fields &&
		     (!c->origin || !c->origin->base.n_unknown_fields) &&
		     (!c->crypt || !c->crypt->base.n_unknown_fields) &&
		     (!c->live || !c->live->base.n_unknown_fields);

	for (size_t i = 0; c->live && i < c->live->n_rounds; i++)
		known &= !c->live->rounds[i]->base.n_unknown_fields;
	for (size_t i = 0; c->live && i < c->live->n_rests; i++)
		known &= !c->live->rests[i]->base.n_unknown_fields;
	return known;
}

static int check_item(const ZnsPb__StreamItem *i, struct zns_err *err)
{
	const ZnsPb__Checkpoint *c = i->record;

	if (c->id.len != ZNS_UUID_LEN || (c->has_parent && c->parent.len != ZNS_UUID_LEN) ||
	    c->n_zones || c->n_groups || c->n_metadata_groups || c->n_old_manifests ||
	    c->manifest || c->has_moved || c->has_moved_ns || c->has_memory_bytes)
		return zns_fail(err, -EBADMSG, "the stream has an impossible record");
	return zns_check_name("container", c->container, -EBADMSG, err);
}

static int take_begin(struct zns_stream *s, struct zns_err *err)
{
	s->begin = zns_pb__stream_begin__unpack(NULL, s->f.len, s->f.payload);
	return s->begin && s->begin->device.len == ZNS_UUID_LEN ?
		       0 :
		       zns_fail(err, -EBADMSG, "the stream's beginning cannot be decoded");
}

static int take_item(struct zns_stream *s, struct zns_err *err)
{
	item_free(s);
	s->item = zns_pb__stream_item__unpack(NULL, s->f.len, s->f.payload);
	s->items++;
	return s->item ? check_item(s->item, err) :
			 zns_fail(err, -EBADMSG, "a record of the stream cannot be decoded");
}

static int take_end(struct zns_stream *s, struct zns_err *err)
{
	int ret = 0;

	s->end = zns_pb__stream_end__unpack(NULL, s->f.len, s->f.payload);
	if (!s->end)
		return zns_fail(err, -EBADMSG, "the stream's end cannot be decoded");
	if (s->end->items != s->items || s->end->hash != s->hash)
		return zns_fail(err, -EBADMSG, "the stream's checksum does not match");
	for (size_t i = 0; i < s->end->n_rules && !ret; i++)
		ret = zns_check_retention(s->end->rules[i], -EBADMSG, err);
	return ret;
}

int zns_stream_next(struct zns_stream *s, struct zns_err *err)
{
	int ret = read_frame(s, err);

	if (!ret && s->f.type == ZNS_FRAME_STREAM_BEGIN)
		ret = take_begin(s, err);
	else if (!ret && s->f.type == ZNS_FRAME_STREAM_ITEM)
		ret = take_item(s, err);
	else if (!ret && s->f.type == ZNS_FRAME_STREAM_END)
		ret = take_end(s, err);
	if (ret)
		return ret;
	add_up(s);
	s->last = s->f.type;
	return s->f.type;
}

static bool agree(const ZnsPb__Checkpoint *a, const ZnsPb__Checkpoint *b)
{
	return !memcmp(a->id.data, b->id.data, ZNS_UUID_LEN) && a->has_parent == b->has_parent &&
	       (!a->has_parent || !memcmp(a->parent.data, b->parent.data, ZNS_UUID_LEN)) &&
	       a->bytes == b->bytes && a->nr_images == b->nr_images &&
	       a->stripe_unit == b->stripe_unit && !a->crypt == !b->crypt &&
	       (!a->crypt || a->crypt->cipher == b->crypt->cipher);
}

/* Copies the key from the record to the manifest, as zns_manifest_read does. */
static int put_key(ZnsPb__Checkpoint *to, const ZnsPb__Checkpoint *from, struct zns_err *err)
{
	ZnsPb__CheckpointKey *key;

	if (!to->crypt)
		return 0;
	key = zns_pb_copy(&from->crypt->base, err);
	if (!key)
		return -ENOMEM;
	zns_pb__checkpoint_key__free_unpacked(to->crypt, NULL);
	to->crypt = key;
	return 0;
}

int zns_stream_images(struct zns_stream *s, const struct zns_geometry *geo, ZnsPb__Manifest **out,
		      struct zns_err *err)
{
	ZnsPb__Manifest *m;
	int ret = is_known(s->item->record) ?
			  zns_sealed_parse(s->f.payload, s->f.len, geo, true, &m, err) :
			  zns_fail(err, -EPROTONOSUPPORT,
				   "its record has fields that this program does not know: a newer "
				   "one sent it, use that");

	if (ret)
		return ret;
	if (!agree(m->checkpoint, s->item->record))
		ret = zns_fail(err, -EBADMSG, "its images are of another checkpoint");
	else
		ret = put_key(m->checkpoint, s->item->record, err);
	if (!ret)
		ret = zns_sealed_may(m, err);
	if (ret)
		zns_pb__manifest__free_unpacked(m, NULL);
	else
		*out = m;
	return ret;
}
