/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_STREAM_H
#define ZNS_STREAM_H
/*
 * Checkpoints as one stream of bytes, for a pipe or a file (Documentation/inside/format.md,
 * "Streams"): a sequence of frames, each with its own number and the id of the stream. So a frame
 * that is damaged, missing, repeated or from another stream is detected as soon as it is read. The
 * last frame has a checksum over all of them.
 *
 *	begin (item images data* (done | drop))* end
 *
 * A stream that is read is untrusted: it may come from anybody. Single-threaded. Functions return
 * -errno with a line in @err. After an error only zns_stream_fini may be called, unless a function
 * says otherwise.
 */
#include "zns/frame.h"
#include "zns/sealed.h"

#define ZNS_STREAM_DATA MIB(4) /* most bytes of images in one frame */

/* Transfers all of @len bytes, or fails. For a reader, -ENODATA: the stream has ended before the
 * first byte. */
typedef int (*zns_stream_io)(void *arg, void *buf, size_t len, struct zns_err *err);

struct zns_stream {
	/* Set by the caller. */
	zns_stream_io io;
	void *arg;
	/* Private to the stream; a caller may read them. */
	uint64_t id, seq, hash;
	uint32_t items;
	uint16_t last; /* type of the previous frame */
	uint8_t *buf; /* buffer for one frame */
	size_t room;
	struct zns_frame f; /* when reading: the last frame, which is in buf */
	ZnsPb__StreamBegin *begin;
	ZnsPb__StreamItem *item; /* when reading: the checkpoint that the last frame belongs to */
	ZnsPb__StreamEnd *end;
};

/* ---- writing ---- */

int zns_stream_start(struct zns_stream *s, const uint8_t device[ZNS_UUID_LEN], struct zns_err *err);
/* Begins the next checkpoint: writes its record without places, and its images' manifest. If the
 * checkpoint cannot be exported (zns_sealed_may), an error is returned, but the stream can be
 * continued. */
int zns_stream_put(struct zns_stream *s, const ZnsPb__Checkpoint *record, const ZnsPb__Manifest *m,
		   bool pinned, struct zns_err *err);
/* The buffer for the next bytes of images, up to ZNS_STREAM_DATA, to be filled before
 * zns_stream_data. Images must follow in the order of the manifest, each unit as it is on the
 * device. Composed images are not sent. */
uint8_t *zns_stream_room(struct zns_stream *s);
int zns_stream_data(struct zns_stream *s, size_t len, struct zns_err *err);
/* Ends the checkpoint: it is complete (done), or it could not be read to its end (drop, with the
 * reason @why). */
int zns_stream_done(struct zns_stream *s, struct zns_err *err);
int zns_stream_drop(struct zns_stream *s, const char *why, struct zns_err *err);
int zns_stream_finish(struct zns_stream *s, ZnsPb__Retention *const *rules, size_t nr,
		      struct zns_err *err);

/* ---- reading ---- */

/*
 * Reads the next frame. Returns its type (ZNS_FRAME_STREAM_…), or -errno. -EBADMSG: damaged, cut
 * off, or in a wrong order. After ITEM, s->item has the record; after DATA, s->f.payload and
 * s->f.len are the bytes; after DROP, s->f.payload says why the sender gave up the checkpoint;
 * after END, s->end has the rules.
 */
int zns_stream_next(struct zns_stream *s, struct zns_err *err);
/*
 * To be called after a frame IMAGES: returns the manifest of s->item, with the key from its record,
 * in the form that a writer of sealed checkpoints takes (zns/writer.h). Free with
 * zns_pb__manifest__free_unpacked. -EBADMSG: no sender makes such a manifest. -EOPNOTSUPP, -ENOSPC,
 * -EPROTONOSUPPORT: it does not fit a device with geometry @geo, or this program. After any of
 * these errors the rest of the stream can still be read.
 */
int zns_stream_images(struct zns_stream *s, const struct zns_geometry *geo, ZnsPb__Manifest **out,
		      struct zns_err *err);

void zns_stream_fini(struct zns_stream *s); /* may be called twice */

#endif
