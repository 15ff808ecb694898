/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Packs small images together into one unit, the pack unit. */
#include <string.h>
#include "writer.h"

#define PACK_ALIGN 8u

struct packed {
	struct zns_wimage *img;
	uint32_t off; /* offset in the pack unit in bytes */
};

int pack_flush(struct zns_writer *w)
{
	cleanup_free struct packed *list = NULL;
	struct job *j;
	uint32_t nr;
	int ret;

	feeder_wait_room(w, true);
	j = w->pack.unit;
	if (!j || w->err.code)
		return w->err.code;
	/* Placing may drop the lock, and another image may begin the next pack unit meanwhile. So
	 * take the list away first. */
	list = w->pack.list;
	nr = w->pack.nr;
	w->pack.unit = NULL;
	w->pack.list = NULL;
	w->pack.nr = w->pack.max = 0;
	ret = lanes_place_run(w, j->len, &j->wz, &j->off);
	for (uint32_t n = 0; n < nr && !ret; n++) {
		struct zns_wimage *i = list[n].img;
		ZnsPb__Segment *s = image_add_segment(i, 0, 1);

		if (!s) {
			ret = -ENOMEM;
			break;
		}
		s->len = i->pb.size;
		s->extents[0]->zone = j->wz->slot.zone;
		s->extents[0]->start = j->off + list[n].off;
	}
	if (ret) {
		struct zns_err e;

		job_free(w, j);
		zns_fail(&e, ret, "no memory for the layout of small images");
		/* keeps an error that lanes_place_run() has set */
		writer_set_error(w, &e);
		return w->err.code;
	}
	return enqueue(w, j, 1);
}

int pack_add(struct zns_writer *w, struct zns_wimage *i, struct job *j, uint64_t csum,
	     const uint8_t *tag)
{
	uint32_t at;
	int ret;

	/* repeated, because pack_flush() may drop the lock, and another image may meanwhile begin
	 * the next pack unit and fill it */
	while (w->pack.unit && zns_align_up(w->pack.unit->len, PACK_ALIGN) + j->len > w->unit) {
		ret = pack_flush(w);
		if (ret)
			return ret;
	}
	at = w->pack.unit ? (uint32_t)zns_align_up(w->pack.unit->len, PACK_ALIGN) : 0;
	if (!w->pack.unit) {
		w->pack.unit = job_new(NULL);
		if (!w->pack.unit)
			return -ENOMEM;
		w->pack.unit->data = pool_get(&w->pool);
		if (!w->pack.unit->data)
			return -ENOMEM;
	}
	if (zns_grow(w->pack.list, w->pack.nr, w->pack.max))
		return -ENOMEM;
	memset(w->pack.unit->data + w->pack.unit->len, 0, at - w->pack.unit->len);
	memcpy(w->pack.unit->data + at, j->data, j->len);
	w->pack.unit->len = at + j->len;
	w->pack.list[w->pack.nr++] = (struct packed){ i, at };
	rescue_keep_data(w, i, 0, j->data, j->len, true);
	i->nr_units = 1;
	i->pb.size = j->len;
	w->stats.bytes += j->len;
	if (i->pages)
		w->stats.page_bytes += j->len;
	return image_put_csum(i, 0, csum, tag);
}

void pack_fini(struct zns_writer *w)
{
	job_free(w, w->pack.unit);
	free(w->pack.list);
}
