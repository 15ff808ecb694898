/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A program's connection to a device and its broker, and its reads from the device: see
 * zns/session.h. */
#include <string.h>
#include <unistd.h>
#include "zns/crypt.h"
#include "zns/handle.h"
#include "zns/session.h"
#include "zns/writer.h"

int zns_session_connect(struct zns_session *s, const struct zns_registered *reg, unsigned use,
			struct zns_err *err)
{
	int ret;

	s->reg = *reg;
	s->dev = NULL;
	s->readers = s->writers = -1;
	ret = zns_broker_connect(reg, &s->broker, err);
	if (!ret && (use & ZNS_READS))
		ret = zns_broker_lock_shared(reg->uuid, "readers", &s->readers, err);
	if (!ret && (use & ZNS_WRITES))
		ret = zns_broker_lock_shared(reg->uuid, "writers", &s->writers, err);
	if (ret)
		zns_session_close(s);
	return ret;
}

int zns_session_open(struct zns_session *s, const struct zns_registered *reg, unsigned use,
		     struct zns_err *err)
{
	int ret = zns_session_connect(s, reg, use, err);

	if (!ret)
		ret = zns_dev_open(reg->path, use & ZNS_WRITES ? ZNS_DEV_SERVED : ZNS_DEV_RDONLY,
				   &s->dev, err);
	if (ret)
		zns_session_close(s);
	return ret;
}

static void let_go(int *lock)
{
	if (*lock >= 0)
		close(*lock);
	*lock = -1;
}

void zns_session_close(struct zns_session *s)
{
	zns_dev_close(s->dev);
	s->dev = NULL;
	zns_hot_free(s->hot);
	s->hot = NULL;
	let_go(&s->readers);
	let_go(&s->writers);
	zns_broker_close(&s->broker);
}

int zns_session_ask(struct zns_session *s, ZnsPb__Request *req, ZnsPb__Response **resp,
		    struct zns_err *err)
{
	int ret = s->ask ? s->ask(s->ask_arg, req, resp, err) :
			   zns_broker_call(&s->broker, req, resp, err);

	/* the answer may name zones that were added after the device was opened */
	if (!ret && s->dev)
		zns_dev_follow(s->dev);
	return ret;
}

int zns_session_tell(struct zns_session *s, ZnsPb__Request *req, struct zns_err *err)
{
	ZnsPb__Response *resp;
	int ret = zns_session_ask(s, req, &resp, err);

	if (!ret)
		zns_pb__response__free_unpacked(resp, NULL);
	return ret;
}

int zns_session_lease(struct zns_session *s, const uint8_t id[ZNS_UUID_LEN], bool chain,
		      ZnsPb__Response **out, struct zns_err *err)
{
	return zns_session_lease_by(s, id, chain, 0, out, err);
}

/* Joins the cache that restores share. Errors are ignored: without the cache this restore reads
 * everything from the device. */
static void join_hot(struct zns_session *s, const ZnsPb__HotGrant *g, int fd)
{
	struct zns_hot_shape shape;

	if (g && fd >= 0) {
		shape = (struct zns_hot_shape){ g->zones, g->slots, g->slot_bytes };
		zns_hot_join(fd, &shape, g->owner, &s->hot, NULL);
	} else if (fd >= 0) {
		close(fd);
	}
}

int zns_session_lease_by(struct zns_session *s, const uint8_t id[ZNS_UUID_LEN], bool chain,
			 uint32_t weight, ZnsPb__Response **out, struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__RestoreBegin rb = ZNS_PB__RESTORE_BEGIN__INIT;
	int fd = -1, ret;

	rb.checkpoint = (ProtobufCBinaryData){ ZNS_UUID_LEN, (uint8_t *)id };
	rb.has_chain = rb.chain = chain;
	rb.has_weight = weight > 0;
	rb.weight = weight;
	rb.has_hot = rb.hot = s->shares;
	rb.has_half = rb.half = s->half;
	rb.has_qos_mibps = s->qos_mibps > 0;
	rb.qos_mibps = s->qos_mibps;
	rb.admission = (char *)s->admission;
	req.restore_begin = &rb;
	s->broker.came = s->shares ? &fd : NULL;
	ret = zns_session_ask(s, &req, out, err);
	s->broker.came = NULL;
	join_hot(s, ret ? NULL : (*out)->hot, fd);
	if (!ret && (!(*out)->n_checkpoints || !(*out)->checkpoints[0]->manifest)) {
		zns_pb__response__free_unpacked(*out, NULL);
		*out = NULL;
		ret = zns_fail(err, -EPROTO, "the broker's answer has no checkpoint");
	}
	return ret;
}

int zns_session_chain(struct zns_session *s, const ZnsPb__Response *answer, const ZnsPb__Handle *h,
		      const struct zns_reader_params *p, struct zns_chain **out,
		      struct zns_err *err)
{
	struct zns_reader_params rp = *p;
	int ret = h ? zns_handle_agrees(h, answer->checkpoints[0], err) : 0;

	rp.dev = s->dev;
	rp.hot = s->hot;
	if (!ret)
		ret = zns_chain_open(&rp, &s->reg, s->broker.encrypted, answer->checkpoints,
				     answer->n_checkpoints, out, err);
	if (ret || !h)
		return ret;
	ret = zns_crypt_check_handle(zns_chain_crypt(*out, 0), h, zns_chain_manifest(*out, 0), err);
	if (ret) {
		zns_chain_close(*out);
		*out = NULL;
	}
	return ret;
}

int zns_session_slot(struct zns_dev *dev, const ZnsPb__ZoneGrant *g, struct zns_zone_slot *out,
		     struct zns_err *err)
{
	const struct zns_geometry *geo = &dev->geo;

	if (!g || g->zone >= geo->nr_zones || g->capacity > geo->zone_capacity ||
	    g->start > g->capacity || g->start % geo->block_size)
		return zns_fail(err, -EPROTO, "znsd granted no usable zone");
	*out = (struct zns_zone_slot){
		.zone = g->zone, .group = g->group, .start = g->start, .capacity = g->capacity
	};
	if (g->has_turn)
		return zns_dev_take(dev, g->zone, g->start, g->capacity, g->turn, err);
	return 0;
}
