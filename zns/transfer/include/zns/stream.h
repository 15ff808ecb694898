/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_STREAM_H
#define ZNS_STREAM_H
/*
 * Checkpoints as one stream of bytes, for a pipe or a file (Documentation/inside/format.md,
 * "Streams"): frames that are numbered and bear the stream's number, so that a frame which is
 * damaged, missing, twice there or of another stream is found when it comes. The last one has a
 * checksum over all of them.
 *
 *	begin (item images data* (done | drop))* end
 *
 * A stream that is read may come from anybody. Single-threaded. Functions return -errno with a line
 * in @err. After an error only zns_stream_fini may be called, unless a function says otherwise.
 */
#include "zns/frame.h"
#include "zns/sealed.h"

#define ZNS_STREAM_DATA MIB(4) /* most bytes of images in one frame */

/* Moves all of @len bytes, or fails. A reader's -ENODATA: the stream has ended before the first of
 * them. */
typedef int (*zns_stream_io)(void *arg, void *buf, size_t len, struct zns_err *err);

struct zns_stream {
	/* The caller's. */
	zns_stream_io io;
	void *arg;
	/* Private to the stream; a caller may read them. */
	uint64_t id, seq, hash;
	uint32_t items;
	uint16_t last; /* the frame before */
	uint8_t *buf; /* one frame */
	size_t room;
	struct zns_frame f; /* reading: the last frame, in buf */
	ZnsPb__StreamBegin *begin;
	ZnsPb__StreamItem *item; /* the checkpoint that the last frame belongs to */
	ZnsPb__StreamEnd *end;
};

/* ---- writing ---- */

int zns_stream_start(struct zns_stream *s, const uint8_t device[ZNS_UUID_LEN], struct zns_err *err);
/* The next checkpoint: its record in the log, of which places are left out, and its images. What
 * cannot leave (zns_sealed_may) is an error after which the stream can be written on. */
int zns_stream_put(struct zns_stream *s, const ZnsPb__Checkpoint *record, const ZnsPb__Manifest *m,
		   bool pinned, struct zns_err *err);
/* Where the next ZNS_STREAM_DATA bytes of images are put, before zns_stream_data. Images follow in
 * the order of the manifest, each unit as it is on the device, composed ones not at all. */
uint8_t *zns_stream_room(struct zns_stream *s);
int zns_stream_data(struct zns_stream *s, size_t len, struct zns_err *err);
/* The checkpoint is complete; or it cannot be read to its end: @why. */
int zns_stream_done(struct zns_stream *s, struct zns_err *err);
int zns_stream_drop(struct zns_stream *s, const char *why, struct zns_err *err);
int zns_stream_finish(struct zns_stream *s, ZnsPb__Retention *const *rules, size_t nr,
		      struct zns_err *err);

/* ---- reading ---- */

/*
 * Read the next frame. Returns its type (ZNS_FRAME_STREAM_…), or -errno. -EBADMSG: damaged, cut
 * off, or in a wrong order. ITEM: s->item has the record; DATA: bytes are s->f.payload, s->f.len;
 * DROP: why the sender gave up the checkpoint is s->f.payload; END: s->end has the rules.
 */
int zns_stream_next(struct zns_stream *s, struct zns_err *err);
/*
 * After a frame IMAGES: returns the manifest of s->item, with the key from its record, in the form
 * that a writer of sealed checkpoints takes (zns/writer.h). Free with
 * zns_pb__manifest__free_unpacked. -EBADMSG: no sender makes such a manifest. -EOPNOTSUPP, -ENOSPC,
 * -EPROTONOSUPPORT: it does not fit a device with geometry @geo, or this program. After any of
 * these errors the rest of the stream can still be read.
 */
int zns_stream_images(struct zns_stream *s, const struct zns_geometry *geo, ZnsPb__Manifest **out,
		      struct zns_err *err);

void zns_stream_fini(struct zns_stream *s); /* twice is fine */

#endif
