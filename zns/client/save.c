/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Writes a checkpoint, from its admission to its record (design.md §3 "Order"): see zns/save.h. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "zns/layout.h"
#include "zns/store.h"
#include "sweep.h"
#include "zns/save.h"

int zns_save_key(struct zns_save *v, struct zns_err *err)
{
	const struct zns_broker *b = &v->s->broker;
	int ret = zns_master_for_dump(&v->s->reg, b->encrypted ? b->key_id : NULL, &v->master, err);

	if (!ret && v->master)
		zns_crypt_harden();
	return ret;
}

static int zone_get(void *arg, const struct zns_zone_wish *wish, struct zns_zone_slot *out,
		    struct zns_err *err)
{
	struct zns_save *v = arg;
	ZnsPb__ZoneGet get = ZNS_PB__ZONE_GET__INIT;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Response *resp;
	int ret;

	get.group = wish->group;
	get.has_need = wish->need > 0;
	get.need = wish->need;
	get.done_zones = (uint32_t *)wish->done;
	get.n_done_zones = wish->nr_done;
	get.not_zones = (uint32_t *)wish->bad;
	get.n_not_zones = wish->nr_bad;
	req.zone_get = &get;
	v->asked++;
	ret = zns_session_ask(v->s, &req, &resp, err);
	if (ret)
		return ret;
	ret = zns_session_slot(v->s->dev, resp->zone, out, err);
	zns_pb__response__free_unpacked(resp, NULL);
	return ret;
}

static int admission(struct zns_save *v, ZnsPb__DumpBegin *ask, struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	const ZnsPb__DumpGrant *g;
	int ret;

	if (v->master) {
		ask->has_key_id = 1;
		ask->key_id = (ProtobufCBinaryData){ ZNS_KEY_ID_BYTES,
						     (uint8_t *)zns_master_id(v->master) };
	}
	ask->has_min_room = 1;
	ask->min_room = v->unit ? v->unit : zns_stripe_unit(&v->s->dev->geo);
	req.dump_begin = ask;
	ask->has_sweeps = ask->sweeps = v->sweeps;
	ret = zns_session_ask(v->s, &req, &v->answer, err);
	if (ret == -ENOSPC && v->sweeps) {
		/* an error is not reported, because the broker's next answer will say the same */
		zns_sweep(&v->s->reg);
		ask->has_sweeps = ask->sweeps = false;
		ret = zns_session_ask(v->s, &req, &v->answer, err);
	}
	if (ret)
		return ret;
	g = v->grant = v->answer->dump;
	if (!g || !g->n_groups || g->n_groups > ZNS_STRIPE_MAX_WIDTH || g->n_metadata_groups > 1 ||
	    g->checkpoint.len != ZNS_UUID_LEN)
		return zns_fail(
			err, -EPROTO,
			"znsd granted no usable stripe: it may be of another build than this program");
	memcpy(v->id, g->checkpoint.data, ZNS_UUID_LEN);
	return 0;
}

static int put_id(ProtobufCBinaryData *out, const uint8_t *id)
{
	out->data = malloc(ZNS_UUID_LEN);
	if (!out->data)
		return -ENOMEM;
	memcpy(out->data, id, ZNS_UUID_LEN);
	out->len = ZNS_UUID_LEN;
	return 0;
}

static int put_origin(ZnsPb__Checkpoint *c, const ZnsPb__Origin *asked)
{
	char host[64] = "";

	c->origin = malloc(sizeof(*c->origin));
	if (!c->origin)
		return -ENOMEM;
	zns_pb__origin__init(c->origin);
	gethostname(host, sizeof(host) - 1);
	c->origin->host = strdup(host);
	if (asked && asked->kind)
		c->origin->kind = strdup(asked->kind);
	if (asked) {
		c->origin->has_pid = asked->has_pid;
		c->origin->pid = asked->pid;
	}
	return c->origin->host && (!asked || !asked->kind || c->origin->kind) ? 0 : -ENOMEM;
}

static int put_metadata_group(ZnsPb__Checkpoint *c, const ZnsPb__DumpGrant *g)
{
	if (!g->n_metadata_groups)
		return 0;
	c->metadata_groups = malloc(sizeof(*c->metadata_groups));
	if (!c->metadata_groups)
		return -ENOMEM;
	c->metadata_groups[0] = g->metadata_groups[0]->group;
	c->n_metadata_groups = 1;
	return 0;
}

static int new_record(struct zns_save *v, const ZnsPb__DumpBegin *ask, struct zns_err *err)
{
	ZnsPb__Checkpoint *c = v->c = malloc(sizeof(*c));

	if (!c)
		return zns_fail(err, -ENOMEM, "no memory for the record");
	zns_pb__checkpoint__init(c);
	c->container = strdup(ask->container);
	if (!c->container || put_id(&c->id, v->id) || put_origin(c, ask->origin) ||
	    put_metadata_group(c, v->grant) ||
	    (ask->has_parent && put_id(&c->parent, ask->parent.data)))
		return zns_fail(err, -ENOMEM, "no memory for the record");
	c->has_parent = ask->has_parent;
	c->has_qos_requested_mibps = ask->qos_mibps > 0;
	c->qos_requested_mibps = ask->qos_mibps;
	c->has_weight = ask->weight > 0;
	c->weight = ask->weight;
	c->has_qos_max_mibps = ask->has_qos_max_mibps;
	c->qos_max_mibps = ask->qos_max_mibps;
	c->has_shared_groups = 1;
	c->shared_groups = v->grant->shared_groups;
	return 0;
}

static int new_writer(struct zns_save *v, const struct zns_crypt *crypt, uint64_t expected,
		      struct zns_writer **out, struct zns_err *err)
{
	uint32_t groups[ZNS_STRIPE_MAX_WIDTH], weights[ZNS_STRIPE_MAX_WIDTH];
	const ZnsPb__DumpGrant *g = v->grant;
	struct zns_writer_params p = { .dev = v->s->dev,
				       .crypt = crypt,
				       .sealed = v->sealed,
				       .proof = v->proof,
				       .bucket = v->bucket,
				       .unit = v->unit,
				       .workers = v->workers,
				       .expected = expected,
				       .nr_groups = (uint32_t)g->n_groups,
				       .groups = groups,
				       .weights = weights,
				       .zone_mibps = g->zone_write_mibps,
				       .zone_get = zone_get,
				       .arg = v };

	for (size_t i = 0; i < g->n_groups; i++) {
		groups[i] = g->groups[i]->group;
		weights[i] = g->groups[i]->weight;
	}
	if (g->n_metadata_groups)
		p.metadata_group = &g->metadata_groups[0]->group;
	if (!p.unit && g->packed && zns_geo_is_disk(&v->s->dev->geo))
		p.unit = zns_unit_small(expected, g->scattered);
	if (!p.unit)
		p.unit = zns_writer_unit(&v->s->dev->geo, p.nr_groups);
	return zns_writer_new(&p, out, err);
}

int zns_save_begin(struct zns_save *v, ZnsPb__DumpBegin *ask, struct zns_err *err)
{
	int ret = admission(v, ask, err);

	if (!ret && !v->c)
		ret = new_record(v, ask, err);
	if (ret)
		return ret;
	v->c->has_packed = v->c->packed = v->grant->packed;
	if (v->master) {
		ret = zns_crypt_new(v->master, v->id, &v->crypt, err);
		if (ret)
			return ret;
		zns_master_free(v->master);
		v->master = NULL;
	}
	return new_writer(v, v->crypt, ask->has_expected_bytes ? ask->expected_bytes : 0, &v->w,
			  err);
}

static int ask_room(struct zns_save *v, bool anew, uint64_t *out, struct zns_err *err)
{
	ZnsPb__DumpRoom room = ZNS_PB__DUMP_ROOM__INIT;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Response *resp;
	int ret;

	room.has_anew = room.anew = anew;
	req.dump_room = &room;
	ret = zns_session_ask(v->s, &req, &resp, err);
	if (ret)
		return ret;
	*out = resp->room;
	zns_pb__response__free_unpacked(resp, NULL);
	return 0;
}

int zns_save_room(struct zns_save *v, uint64_t *out, struct zns_err *err)
{
	return ask_room(v, false, out, err);
}

/* Makes a new key for another writer of the same checkpoint. Its units have the same numbers as
 * those of the first writer, so the same key would use nonces twice. */
static int new_key(struct zns_save *v, struct zns_crypt **out, struct zns_err *err)
{
	int ret = zns_save_key(v, err);

	if (!ret && !v->master)
		ret = zns_fail(err, -ENOKEY, "the device's key has gone");
	if (!ret)
		ret = zns_crypt_new(v->master, v->id, out, err);
	zns_master_free(v->master);
	v->master = NULL;
	return ret;
}

int zns_save_anew(struct zns_save *v, uint64_t expected, pthread_mutex_t *lock, uint64_t *room,
		  struct zns_err *err)
{
	struct zns_crypt *old_crypt = v->crypt, *crypt = NULL;
	struct zns_writer *old = v->w, *w;
	int ret = 0;

	if (old_crypt)
		ret = new_key(v, &crypt, err);
	if (!ret)
		ret = new_writer(v, crypt, expected, &w, err);
	if (ret) {
		zns_crypt_free(crypt);
		return ret;
	}
	pthread_mutex_lock(lock);
	v->w = w;
	v->crypt = crypt;
	pthread_mutex_unlock(lock);
	zns_writer_free(old); /* returns when the old writer's writes have ended */
	zns_crypt_free(old_crypt);
	return ask_room(v, true, room, err);
}

uint32_t zns_save_told(struct zns_save *v, const ZnsPb__Response *r)
{
	uint32_t used = 0;

	zns_writer_crowded(v->w, r->crowded);
	for (size_t i = 0; i < r->n_writers; i++)
		zns_writer_told(v->w, r->writers[i]->group, r->writers[i]->weight);
	for (size_t i = 0; i < r->n_more_zones; i++) {
		struct zns_zone_slot slot;

		/* if a zone cannot be used, it stays with the lease until the connection ends */
		if (!zns_session_slot(v->s->dev, r->more_zones[i], &slot, NULL))
			used += !zns_writer_gain(v->w, &slot, r->more_zones[i]->writers, NULL);
	}
	return used;
}

int zns_save_finish(struct zns_save *v, struct zns_err *err)
{
	ZnsPb__Manifest m = ZNS_PB__MANIFEST__INIT;
	ZnsPb__ExtentRef *ref = malloc(sizeof(*ref));
	int ret = 0;

	if (!ref)
		return zns_fail(err, -ENOMEM, "no memory for the record");
	zns_pb__extent_ref__init(ref);
	m.device = (ProtobufCBinaryData){ ZNS_UUID_LEN, v->s->reg.uuid };
	m.checkpoint = v->c;
	/* a checkpoint with @former or @keeps_record keeps time and rate of the original dump */
	if (!v->former && !v->keeps_record) {
		v->c->created_ns = zns_now_ns();
		zns_writer_rate(v->w, v->c);
	} else if (v->former && v->crypt) {
		ret = zns_crypt_former_macs(v->former_crypt, v->former, &m.former_macs,
					    &m.n_former_macs, err);
	}
	if (v->former || v->sealed)
		zns_record_newer(v->c, v->former, v->grant->deleted_ns);
	if (v->sealed) {
		m.former_macs = v->sealed->former_macs;
		m.n_former_macs = v->sealed->n_former_macs;
	}
	if (!ret)
		ret = zns_writer_finish(v->w, &m, ref, err);
	if (!v->sealed)
		free(m.former_macs);
	v->c->manifest = ref;
	if (!v->former && !v->keeps_record)
		zns_writer_rate(v->w, v->c);
	return ret;
}

int zns_save_durable(struct zns_save *v, struct zns_err *err)
{
	return zns_writer_durable(v->w, v->c, err);
}

int zns_save_commit(struct zns_save *v, struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Response *resp;
	char id[ZNS_UUID_STR];
	int ret;

	req.commit = v->c;
	ret = zns_session_ask(v->s, &req, &resp, err);
	if (ret == -ETIMEDOUT)
		return zns_wrap(err, "checkpoint %s may or may not exist, `znsctl ls` tells",
				zns_uuid_format(v->id, id));
	if (ret)
		return ret;
	/* other dumps got zones in the groups of this dump while it ran */
	if (resp->has_shared_groups)
		v->c->shared_groups = resp->shared_groups;
	zns_pb__response__free_unpacked(resp, NULL);
	return 0;
}

int zns_save_settle(struct zns_save *v, struct zns_err *err)
{
	struct zns_err again = ZNS_ERR_INIT;
	struct zns_session *s = v->s;
	ZnsPb__Response *resp;
	char id[ZNS_UUID_STR];
	int ret;

	zns_uuid_format(v->id, id);
	/* a checkpoint with this id exists anyway, so asking for it would not tell whether the
	 * commit was done */
	if (v->former)
		return zns_fail(
			err, -EPIPE,
			"znsd died during the commit; run the command again, unless `znsctl show %s` says that "
			"it was done",
			id);
	/* a new broker waits for this lock; it can start, since none of our writes is under way */
	if (s->writers >= 0)
		close(s->writers);
	s->writers = -1;
	zns_broker_close(&s->broker);
	if (zns_broker_connect(&s->reg, &s->broker, &again))
		return zns_fail(
			err, -EPIPE,
			"znsd died during the commit and cannot be started again (%s); `znsctl ls` will tell "
			"whether checkpoint %s exists",
			again.msg, id);
	ret = zns_session_lease(s, v->id, false, &resp, &again);
	if (ret == -ENOENT)
		return zns_fail(err, -EPIPE,
				"znsd died during the commit; the dump was dropped, run it again");
	if (ret)
		return zns_fail(
			err, -EPIPE,
			"znsd died during the commit and the next one does not answer (%s); `znsctl ls` will "
			"tell whether checkpoint %s exists",
			again.msg, id);
	zns_pb__response__free_unpacked(resp, NULL);
	return 0;
}

int zns_save_publish(struct zns_save *v, struct zns_err *err)
{
	int ret = zns_save_finish(v, err);

	if (!ret)
		ret = zns_save_durable(v, err);
	if (!ret)
		ret = zns_save_commit(v, err);
	return ret == -EPIPE ? zns_save_settle(v, err) : ret;
}

void zns_save_roll_back(struct zns_save *v, const char *by, struct zns_err *err)
{
	ProtobufCBinaryData id = { ZNS_UUID_LEN, v->id };
	ZnsPb__Rm rm = ZNS_PB__RM__INIT;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	char text[ZNS_UUID_STR];

	rm.n_checkpoints = 1;
	rm.checkpoints = &id;
	rm.by = (char *)by;
	req.rm = &rm;
	/* if the removal fails too, the checkpoint only takes up space until somebody removes it */
	if (zns_session_tell(v->s, &req, NULL))
		zns_wrap(err, "checkpoint %s stays without a handle, `znsctl rm` removes it",
			 zns_uuid_format(v->id, text));
}

void zns_save_give_up(struct zns_save *v, int why, const char *text)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;

	if (!v->w)
		return;
	zns_writer_cancel(v->w, why, text);
	zns_writer_free(v->w);
	v->w = NULL;
	req.has_abort = req.abort = 1;
	/* an error is ignored: the lease ends with the connection anyway */
	zns_session_tell(v->s, &req, NULL);
}

void zns_save_end(struct zns_save *v)
{
	zns_writer_free(v->w);
	zns_crypt_free(v->crypt);
	zns_master_free(v->master);
	if (v->c)
		zns_pb__checkpoint__free_unpacked(v->c, NULL);
	if (v->answer)
		zns_pb__response__free_unpacked(v->answer, NULL);
	free(v->copies);
	*v = (struct zns_save){ .s = v->s };
}
