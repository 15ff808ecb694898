/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Writes frames to one metadata zone and reads them. Writes are padded to blocks, made from aligned
 * buffers, and go to the write pointer. */
#include <string.h>
#include "store_int.h"

void *zns_store_buf(const struct zns_dev *dev, size_t len)
{
	size_t align = zns_max(zns_max((size_t)dev->geo.mem_align, (size_t)dev->geo.block_size),
			       (size_t)4096);

	return aligned_alloc(align, zns_align_up(len, align));
}

static size_t max_io(const struct zns_dev *dev)
{
	size_t block = dev->geo.block_size;

	return zns_max(zns_align_down(dev->geo.max_io_bytes ? dev->geo.max_io_bytes : ZNS_LOG_BUF,
				      block),
		       block);
}

int zns_store_read(struct zns_dev *dev, uint32_t zone, uint64_t off, uint8_t *buf, size_t len,
		   struct zns_err *err)
{
	size_t max = max_io(dev), n;
	int ret = 0;

	for (size_t done = 0; done < len && !ret; done += n) {
		n = zns_min(max, len - done);
		ret = zns_dev_read(dev, zone, off + done, buf + done, n, err);
	}
	return ret;
}

/* ---- writer ---- */

/* The log leaves a block of a zone unused, since the write pointer of a full zone tells nothing
 * (replay.c). */
uint64_t zns_log_room(const struct zns_dev *dev, uint64_t zone_capacity)
{
	uint64_t block = zns_geo_log_block(&dev->geo), cap = zns_align_down(zone_capacity, block);

	return cap - zns_min(cap, block);
}

void zns_log_init(struct zns_log *l, struct zns_dev *dev, uint32_t zone, uint64_t cap,
		  uint64_t generation)
{
	*l = (struct zns_log){ .dev = dev, .zone = zone, .generation = generation };
	l->cap = zns_log_room(dev, cap);
}

void zns_log_fini(struct zns_log *l)
{
	free(l->buf);
	l->buf = NULL;
	l->buf_cap = l->fill = 0;
}

int zns_log_put(struct zns_log *l, uint16_t type, const ProtobufCMessage *msg, struct zns_err *err)
{
	size_t n = protobuf_c_message_get_packed_size(msg), rec;
	struct zns_frame f = { .type = type, .generation = l->generation, .seq = l->seq, .len = n };
	int ret;

	if (n > ZNS_RECORD_MAX - ZNS_FRAME_HDR)
		return zns_fail(err, -EFBIG, "a record of %zu bytes is too long for the log", n);
	rec = zns_frame_size(n, zns_geo_log_block(&l->dev->geo));
	if (l->off + l->fill + rec > l->cap)
		return zns_fail(err, -ENOSPC, "metadata zone %u is full", l->zone);
	if (l->fill + rec > l->buf_cap) {
		size_t cap = zns_max(rec, (size_t)ZNS_LOG_BUF);

		ret = zns_log_write(l, err);
		if (ret)
			return ret;
		if (cap > l->buf_cap) {
			free(l->buf);
			l->buf_cap = 0;
			l->buf = zns_store_buf(l->dev, cap);
			if (!l->buf)
				return zns_fail(err, -ENOMEM,
						"no memory for a log record of %zu bytes", rec);
			l->buf_cap = cap;
		}
	}
	f.payload = l->buf + l->fill + ZNS_FRAME_HDR;
	protobuf_c_message_pack(msg, l->buf + l->fill + ZNS_FRAME_HDR);
	zns_frame_pack(&f, zns_geo_log_block(&l->dev->geo), l->buf + l->fill);
	l->fill += rec;
	l->seq++;
	return 0;
}

int zns_log_write(struct zns_log *l, struct zns_err *err)
{
	size_t max = max_io(l->dev), done, n;
	int ret;

	for (done = 0; done < l->fill; done += n) {
		n = zns_min(max, l->fill - done);
		ret = zns_dev_write(l->dev, l->zone, l->off, l->buf + done, n, err);
		if (ret) {
			l->fill = 0;
			return ret;
		}
		l->off += n;
		l->volatile_tail = true;
	}
	l->fill = 0;
	return 0;
}

int zns_log_write_durable(struct zns_log *l, struct zns_err *err)
{
	size_t len = l->fill;
	int ret;

	/* A durable write covers only this command, so it is used if nothing before it is
	 * volatile. */
	if (len > max_io(l->dev) || l->volatile_tail) {
		ret = zns_log_write(l, err);
		if (!ret)
			ret = zns_dev_flush(l->dev, err);
		l->volatile_tail = ret != 0;
		return ret;
	}
	l->fill = 0;
	ret = len ? zns_dev_write_durable(l->dev, l->zone, l->off, l->buf, len, err) : 0;
	if (!ret)
		l->off += len;
	return ret;
}

/* ---- reader ---- */

void zns_log_reader_init(struct zns_log_reader *r, struct zns_dev *dev, const struct zns_zone *z)
{
	*r = (struct zns_log_reader){ .dev = dev,
				      .zone = z->index,
				      .exact = zns_zone_is_active(z->state) };
	/* The write pointer that a read-only zone reports may be meaningless. */
	r->limit = zns_align_down(zns_min(z->wp, z->capacity), zns_geo_log_block(&dev->geo));
	if (z->state == ZNS_ZONE_OFFLINE)
		r->limit = 0;
}

void zns_log_reader_fini(struct zns_log_reader *r)
{
	free(r->buf);
	*r = (struct zns_log_reader){ 0 };
}

/* Reads the bytes [off, off + n) of the zone into the buffer, unless they are there already. */
static int need(struct zns_log_reader *r, uint64_t off, size_t n, struct zns_err *err)
{
	size_t block = zns_geo_log_block(&r->dev->geo), cap, len;
	uint64_t start = zns_align_down(off, block);
	int ret;

	if (off >= r->buf_off && off + n <= r->buf_off + r->buf_len)
		return 0;
	cap = zns_max(zns_align_up(off - start + n, block),
		      (size_t)zns_align_up(ZNS_LOG_BUF, block));
	if (cap > r->buf_cap) {
		free(r->buf);
		r->buf_cap = r->buf_len = 0;
		r->buf = zns_store_buf(r->dev, cap);
		if (!r->buf)
			return zns_fail(err, -ENOMEM, "no memory to read the log");
		r->buf_cap = cap;
	}
	r->buf_len = 0;
	len = zns_min(r->buf_cap, r->limit - start);
	len = zns_align_down(len, block);
	ret = zns_store_read(r->dev, r->zone, start, r->buf, len, err);
	if (ret == -ENODATA && len > zns_align_up(off - start + n, block)) {
		/* The write pointer was wrong, so read only what is needed. */
		len = zns_align_up(off - start + n, block);
		ret = zns_store_read(r->dev, r->zone, start, r->buf, len, err);
	}
	if (ret)
		return ret;
	r->buf_off = start;
	r->buf_len = len;
	return 0;
}

/* Is there a complete, intact frame at @off? 1: yes; 0: no, and *why is -ENODATA (no header),
 * -EMSGSIZE (cut off) or -EBADMSG (damaged). Otherwise a device error, or -EPROTONOSUPPORT. */
static int frame_at(struct zns_log_reader *r, uint64_t off, struct zns_frame *f, int *why,
		    struct zns_err *err)
{
	uint64_t claim;
	int ret;

	ret = need(r, off, zns_geo_log_block(&r->dev->geo), err);
	if (ret)
		return ret;
	*why = -ENODATA;
	claim = zns_frame_claim(r->buf + (off - r->buf_off), zns_geo_log_block(&r->dev->geo), NULL);
	if (!claim)
		return 0;
	*why = -EMSGSIZE;
	if (claim > r->limit - off)
		return 0;
	*why = -EBADMSG;
	if (claim > ZNS_RECORD_MAX)
		return 0;
	ret = need(r, off, claim, err);
	if (ret)
		return ret;
	ret = zns_frame_parse(r->buf + (off - r->buf_off), claim, f, NULL);
	if (ret == -EPROTONOSUPPORT)
		return zns_frame_parse(r->buf + (off - r->buf_off), claim, f, err);
	return !ret;
}

int zns_log_peek(struct zns_log_reader *r, struct zns_frame *f, struct zns_err *err)
{
	int ret, why = 0;

	if (r->off >= r->limit)
		return 0;
	ret = frame_at(r, r->off, f, &why, err);
	r->cut_off = !ret && why == -EMSGSIZE;
	if (ret == 0 || ret == -ENODATA)
		return zns_fail(err, -EBADMSG, "metadata zone %u: %s at byte %llu", r->zone,
				why == -ENODATA ? "no record" : "damaged record",
				(unsigned long long)r->off);
	return ret;
}

int zns_log_later(struct zns_log_reader *r, uint64_t generation, uint64_t seq, uint64_t max_bytes,
		  uint64_t *found_generation, struct zns_err *err)
{
	uint64_t block = zns_geo_log_block(&r->dev->geo), off, end = r->limit;
	struct zns_frame f = { 0 };
	int ret, why, found = 0;

	if (end - r->off > max_bytes)
		end = r->off + max_bytes;
	for (off = r->off + block; off < end; off += block) {
		ret = frame_at(r, off, &f, &why, err);
		if (ret == -ENODATA)
			break;
		if (ret < 0)
			return ret;
		if (!ret || (generation && (f.generation != generation || f.seq < seq)))
			continue;
		if (!found || f.generation > *found_generation)
			*found_generation = f.generation;
		found = 1;
		if (generation)
			break;
	}
	return found;
}
