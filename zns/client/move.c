/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Moves a checkpoint's data to other zones: see zns/move.h. */
#include <time.h>
#include "zns/move.h"

#define FLUSH_PATIENCE_MS 10000
#define LOOK_MS 1000u /* longest time in ms between two requests to the broker during a wait */

static int zone_get(void *arg, uint32_t group, uint64_t need, const uint32_t *done,
		    uint32_t nr_done, struct zns_zone_slot *out, struct zns_err *err)
{
	struct zns_move *m = arg;
	ZnsPb__CompactZone q = ZNS_PB__COMPACT_ZONE__INIT;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Response *r;
	int ret;

	q.group = group;
	q.need = need;
	q.not_zones = (uint32_t *)m->victims;
	q.n_not_zones = m->nr_victims;
	q.done_zones = (uint32_t *)done;
	q.n_done_zones = nr_done;
	q.has_below = m->below > 0;
	q.below = m->below;
	req.compact_zone = &q;
	ret = zns_session_ask(m->s, &req, &r, err);
	if (ret)
		return ret;
	ret = zns_session_slot(m->dev, r->zone, out, err);
	if (!ret && m->written)
		m->written[out->zone] = true;
	zns_pb__response__free_unpacked(r, NULL);
	return ret;
}

static void tell(const struct zns_move *m)
{
	if (m->tell)
		m->tell(m->arg, m->bytes);
}

/* Sets the bucket to the lower of the caller's rate and the rate @told by the broker; 0: no
 * rate. */
static void set_rate(const struct zns_move *m, uint32_t told)
{
	if (m->bucket)
		zns_bucket_set(m->bucket, told && m->rate_mibps ? zns_min(told, m->rate_mibps) :
								  told + m->rate_mibps);
}

/* Asks the broker until no other dump or restore works in the zones of @q, or until @patience_ms
 * has passed. @defer: returns -EAGAIN instead of waiting. */
static int ask(struct zns_move *m, ZnsPb__CompactStep *q, uint64_t patience_ms, bool defer,
	       struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	uint64_t begun = zns_mono_ns(), waited = 0;
	int ret;

	req.compact_step = q;
	for (;;) {
		ZnsPb__Response *r;
		uint32_t ms;

		ret = zns_session_ask(m->s, &req, &r, err);
		if (ret)
			break;
		ms = zns_min(r->wait_ms, LOOK_MS);
		set_rate(m, r->rate_mibps);
		zns_pb__response__free_unpacked(r, NULL);
		if (!ms || m->rude || waited >= patience_ms * 1000000)
			break;
		if (defer)
			return zns_fail(err, -EAGAIN, "dumps or restores work on these groups");
		nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000l }, NULL);
		tell(m);
		waited = zns_mono_ns() - begun;
	}
	m->waited_ns += waited;
	return ret;
}

/* Called before each transfer. Dumps and restores have priority: waits while any of them uses these
 * groups or their channels. */
static int step(void *arg, const uint32_t *groups, uint32_t nr, uint64_t bytes, struct zns_err *err)
{
	struct zns_move *m = arg;
	ZnsPb__CompactStep q = ZNS_PB__COMPACT_STEP__INIT;

	q.groups = (uint32_t *)groups;
	q.n_groups = nr;
	q.has_bytes = q.has_total = 1;
	q.bytes = m->bytes = bytes;
	q.total = m->total;
	tell(m);
	return ask(m, &q, UINT64_MAX / 1000000, m->defer && !bytes, err);
}

static struct zns_mover_params params(struct zns_move *m)
{
	return (struct zns_mover_params){ .dev = m->dev,
					  .bucket = m->bucket,
					  .c = m->answer->checkpoints[0],
					  .victims = m->victims,
					  .nr_victims = m->nr_victims,
					  .to_group = m->to_group,
					  .zone_group = m->zone_group,
					  .zone_get = zone_get,
					  .step = step,
					  .arg = m };
}

int zns_move_copy(struct zns_move *m, const uint8_t id[ZNS_UUID_LEN], struct zns_err *err)
{
	ZnsPb__CompactBegin q = ZNS_PB__COMPACT_BEGIN__INIT;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	struct zns_mover_params p;
	int ret;

	q.checkpoint = (ProtobufCBinaryData){ ZNS_UUID_LEN, (uint8_t *)id };
	q.has_weight = m->charged;
	q.weight = m->weight;
	req.compact_begin = &q;
	ret = zns_session_ask(m->s, &req, &m->answer, err);
	if (ret)
		return ret;
	if (m->answer->n_checkpoints != 1 || !m->answer->checkpoints[0]->manifest)
		return zns_fail(err, -EPROTO, "the broker's answer has no checkpoint");
	p = params(m);
	return zns_mover_run(&p, &m->next, &m->bytes, err);
}

int zns_move_durable(struct zns_move *m, struct zns_err *err)
{
	ZnsPb__CompactStep q = ZNS_PB__COMPACT_STEP__INIT;
	struct zns_mover_params p = params(m);
	int ret = 0;

	q.has_flush = q.flush = 1;
	if (!zns_dev_flushes_zones(m->dev))
		ret = ask(m, &q, FLUSH_PATIENCE_MS, false, err);
	return ret ? ret : zns_mover_durable(&p, m->next, err);
}

int zns_move_commit(struct zns_move *m, struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;

	req.compact_commit = m->next;
	return zns_session_tell(m->s, &req, err);
}

void zns_move_abort(struct zns_move *m)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;

	if (!m->answer)
		return; /* no lease was taken */
	req.has_abort = req.abort = 1;
	zns_session_tell(m->s, &req, NULL);
}

void zns_move_end(struct zns_move *m)
{
	if (m->next)
		zns_pb__checkpoint__free_unpacked(m->next, NULL);
	if (m->answer)
		zns_pb__response__free_unpacked(m->answer, NULL);
	m->next = NULL;
	m->answer = NULL;
}
