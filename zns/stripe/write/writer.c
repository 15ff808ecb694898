/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Creates and frees a writer, and returns its figures. See zns/writer.h. */
#include "writer.h"

#define SMALL_DUMP MIB(8) /* for a dump with fewer bytes, huge pages cost more than they save */

static int start(struct zns_writer *w, const struct zns_writer_params *p, struct zns_err *err)
{
	int ret;

	writer_lock(w);
	ret = workers_init(w, p, err);
	writer_unlock(w);
	return ret;
}

UNSHARED int zns_writer_new(const struct zns_writer_params *p, struct zns_writer **out,
			    struct zns_err *err)
{
	struct zns_writer *w;
	uint32_t least;
	int ret;

	if (!p->nr_groups || p->nr_groups > ZNS_STRIPE_MAX_WIDTH)
		return zns_fail(err, -EINVAL, "a stripe has 1 to %d zones, not %u",
				ZNS_STRIPE_MAX_WIDTH, p->nr_groups);
	least = p->sealed || zns_geo_is_disk(&p->dev->geo) ? ZNS_UNIT_LEAST : ZNS_STRIPE_UNIT_MIN;
	if (p->unit < least || p->unit > ZNS_STRIPE_UNIT_MAX || p->unit % p->dev->geo.block_size ||
	    p->unit % 4096)
		return zns_fail(
			err, -EINVAL,
			"stripe unit of %u bytes: it must be 64K to 4M and a multiple of the block",
			p->unit);
	w = calloc(1, sizeof(*w));
	if (!w)
		return zns_fail(err, -ENOMEM, "no memory for the writer");
	w->dev = p->dev;
	w->bucket = p->bucket;
	w->crypt = p->crypt;
	w->sealed = p->sealed;
	w->proof = p->proof;
	w->unit = p->unit;
	w->zone_mibps = p->zone_mibps;
	w->block = p->dev->geo.block_size;
	w->pool = (struct pool){ .unit = p->unit,
				 .align = p->dev->geo.mem_align,
				 .huge = !p->expected || p->expected > SMALL_DUMP };
	w->zone_get = p->zone_get;
	w->arg = p->arg;
	w->images.tail = &w->images.first;
	w->queue.tail = &w->queue.first;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->work, NULL);
	pthread_cond_init(&w->room, NULL);
	pthread_cond_init(&w->idle, NULL);
	w->lanes.v = calloc(ZNS_STRIPE_MAX_WIDTH + 1, sizeof(*w->lanes.v));
	ret = w->lanes.v ? 0 : zns_fail(err, -ENOMEM, "no memory for the writer");
	for (uint32_t i = 0; i < p->nr_groups && !ret; i++) {
		w->lanes.v[i].group = p->groups[i];
		w->lanes.v[i].weight = p->weights[i];
		w->lanes.nr++;
		if (!p->weights[i] || p->weights[i] > ZNS_STRIPE_MAX_WEIGHT)
			ret = zns_fail(err, -EINVAL, "weight %u of group %u is out of range",
				       p->weights[i], p->groups[i]);
	}
	if (!ret && p->metadata_group) {
		w->lanes.meta = &w->lanes.v[ZNS_STRIPE_MAX_WIDTH];
		*w->lanes.meta = (struct lane){ .group = *p->metadata_group, .weight = 1 };
	}
	if (!ret)
		ret = start(w, p, err);
	if (ret) {
		zns_writer_free(w);
		return ret;
	}
	*out = w;
	return 0;
}

UNSHARED static void free_jobs(struct zns_writer *w, struct job **list)
{
	while (*list) {
		struct job *j = *list;

		*list = j->next;
		job_free(w, j);
	}
}

UNSHARED void zns_writer_free(struct zns_writer *w)
{
	if (!w)
		return;
	zns_writer_cancel(w, -ECANCELED, "the dump ended");
	workers_stop(w);
	free_jobs(w, &w->queue.first);
	free_jobs(w, &w->queue.orphans);
	while (w->images.first) {
		struct zns_wimage *i = w->images.first;

		w->images.first = i->next;
		image_free(i);
	}
	while (w->zones.first) {
		struct wzone *z = w->zones.first;

		w->zones.first = z->next;
		pthread_cond_destroy(&z->turn);
		free(z);
	}
	zns_seg_fini(&w->cur.seg);
	pack_fini(w);
	pool_fini(&w->pool);
	free(w->lanes.v);
	free(w->unsteady.v);
	free(w->images.named);
	free(w->crew.thread);
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->work);
	pthread_cond_destroy(&w->room);
	pthread_cond_destroy(&w->idle);
	free(w);
}

int zns_writer_error(struct zns_writer *w, struct zns_err *err)
{
	int ret;

	writer_lock(w);
	ret = w->err.code;
	if (ret && err)
		*err = w->err;
	writer_unlock(w);
	return ret;
}

void zns_writer_cancel(struct zns_writer *w, int code, const char *why)
{
	struct zns_err err;

	zns_fail(&err, code, "%s", why);
	writer_lock(w);
	writer_set_error(w, &err);
	writer_unlock(w);
}

void zns_writer_stats_get(struct zns_writer *w, struct zns_writer_stats *out)
{
	writer_lock(w);
	*out = w->stats;
	/* the gaps between small images are written too, but do not count */
	out->written = zns_min(out->written, out->bytes);
	out->nr_images = w->images.nr;
	out->nr_zones = w->zones.nr;
	out->nr_bad = w->zones.nr_bad;
	out->bad[0] = 0;
	if (w->zones.nr_bad == 1)
		snprintf(out->bad, sizeof(out->bad), "zone %u failed and was replaced: %s",
			 w->zones.bad[0], w->zones.bad_err.msg);
	else if (w->zones.nr_bad)
		snprintf(out->bad, sizeof(out->bad),
			 "%u zones failed and were replaced, the last one: %s", w->zones.nr_bad,
			 w->zones.bad_err.msg);
	writer_unlock(w);
}

void zns_writer_rate(struct zns_writer *w, ZnsPb__Checkpoint *c)
{
	struct zns_writer_stats st;

	zns_writer_stats_get(w, &st);
	if (st.last_complete_ns <= st.first_submit_ns)
		return;
	c->has_data_phase_us = 1;
	c->data_phase_us = (st.last_complete_ns - st.first_submit_ns) / 1000;
	c->qos_achieved_mibps = zns_rate_mibps(st.page_bytes, c->data_phase_us);
	c->has_qos_achieved_mibps = c->qos_achieved_mibps > 0;
}
