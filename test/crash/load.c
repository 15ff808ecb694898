// SPDX-License-Identifier: GPL-2.0-only
/* Drives the broker's code in this process: see load.h. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include "load.h"
#include "../../zns/crypt/crypt_priv.h"
#include "zns/writer.h"

#define UNIT KIB(64)

int load_ask(struct znsd *d, struct conn *c, ZnsPb__Request *req, struct reply *rep, struct zns_err *err)
{
	int ret;

	memset(rep, 0, sizeof(*rep));
	zns_pb__response__init(&rep->r);
	req->version = ZNS_BROKER_VERSION;
	ret = dispatch(d, c, req, rep);
	if (rep->later) {	/* as a client does that will not wait; the request was the waiter's */
		waiter_drop(d, c);
		return zns_fail(err, -EBUSY, "the broker would have the dump wait");
	}
	if (ret && err)
		*err = rep->err;
	return ret;
}

/* ---- a dump ---- */

uint64_t load_rnd(uint64_t *s, uint64_t below)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return (*s >> 11) % below;
}

void load_fill(struct load_image *img, uint64_t seed)
{
	uint64_t s = seed * 0x9e3779b97f4a7c15ull | 1;

	img->data = malloc(img->len + 1);
	if (!img->data)
		abort();
	for (uint32_t i = 0; i < img->len; i++) {
		if (!(i % 7))
			load_rnd(&s, 2);
		img->data[i] = (uint8_t)(s >> (8 * (i % 7)));
	}
}

struct dump {
	struct znsd *d;
	struct conn conn;
	struct zns_writer *w;
	struct load_ckpt *k;
	uint32_t fed;
	struct zns_crypt *crypt;
};

const struct zns_master *load_master(void)
{
	static const uint8_t raw[ZNS_KEY_BYTES] = { 7, 7, 7 };
	static struct zns_master *m;

	if (!m && master_from_bytes(raw, &m, NULL))
		abort();
	return m;
}

static int zone_get(void *arg, const struct zns_zone_wish *wish, struct zns_zone_slot *out, struct zns_err *err)
{
	struct dump *u = arg;
	ZnsPb__ZoneGet get = ZNS_PB__ZONE_GET__INIT;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	struct reply rep;
	int ret;

	get.group = wish->group;
	get.done_zones = (uint32_t *)wish->done;
	get.n_done_zones = wish->nr_done;
	get.not_zones = (uint32_t *)wish->bad;
	get.n_not_zones = wish->nr_bad;
	req.zone_get = &get;
	ret = load_ask(u->d, &u->conn, &req, &rep, err);
	if (!ret)
		*out = (struct zns_zone_slot){ .zone = rep.r.zone->zone, .group = rep.r.zone->group,
					       .start = rep.r.zone->start, .capacity = rep.r.zone->capacity };
	reply_free(&rep);
	return ret;
}

static int dump_begin(struct znsd *d, struct dump *u, struct load_ckpt *k, uint32_t qos_mibps, struct zns_err *err)
{
	ZnsPb__DumpBegin *begin = calloc(1, sizeof(*begin));
	ZnsPb__Request *req = calloc(1, sizeof(*req));
	struct zns_writer_params p = { .dev = d->dev, .unit = UNIT, .workers = 1, .zone_get = zone_get, .arg = u };
	uint32_t groups[ZNSD_RESET_BATCH], weights[ZNSD_RESET_BATCH];
	struct reply rep;
	int ret;

	memset(u, 0, sizeof(*u));
	u->d = d;
	u->k = k;
	zns_pb__dump_begin__init(begin);
	zns_pb__request__init(req);
	begin->container = strdup(k->container);
	begin->qos_mibps = qos_mibps;
	begin->has_min_room = 1;
	begin->min_room = UNIT;
	begin->has_key_id = k->encrypted;
	if (k->encrypted) {
		begin->key_id.len = ZNS_KEY_ID_BYTES;
		begin->key_id.data = memcpy(malloc(ZNS_KEY_ID_BYTES), zns_master_id(load_master()), ZNS_KEY_ID_BYTES);
	}
	req->dump_begin = begin;
	ret = load_ask(d, &u->conn, req, &rep, err);
	if (!rep.later)
		zns_pb__request__free_unpacked(req, NULL);
	if (!ret) {
		memcpy(k->id, rep.r.dump->checkpoint.data, ZNS_UUID_LEN);
		for (size_t i = 0; i < rep.r.dump->n_groups; i++) {
			groups[i] = rep.r.dump->groups[i]->group;
			weights[i] = rep.r.dump->groups[i]->weight;
		}
		p.nr_groups = (uint32_t)rep.r.dump->n_groups;
		p.groups = groups;
		p.weights = weights;
		if (k->encrypted)
			ret = zns_crypt_new(load_master(), k->id, &u->crypt, err);
		p.crypt = u->crypt;
		if (!ret)
			ret = zns_writer_new(&p, &u->w, err);
	}
	reply_free(&rep);
	return ret;
}

static int dump_feed(struct dump *u, struct zns_err *err)
{
	const struct load_image *img = &u->k->img[u->fed++];
	struct zns_wimage *wi;
	int ret;

	ret = zns_writer_image(u->w, img->name, img->pages, &wi, err);
	if (!ret)
		ret = zns_wimage_data(wi, img->data, img->len, err);
	return ret ? ret : zns_wimage_seal(wi, err);
}

static void dump_drop(struct dump *u)
{
	zns_writer_free(u->w);
	zns_crypt_free(u->crypt);
	leases_of_conn_lost(u->d, &u->conn, &(int){ -1 });
}

static int dump_commit(struct dump *u, struct trace *t, struct zns_err *err)
{
	ZnsPb__Manifest m = ZNS_PB__MANIFEST__INIT;
	ZnsPb__ExtentRef *ref = calloc(1, sizeof(*ref));
	ZnsPb__Checkpoint *c = calloc(1, sizeof(*c));
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	struct reply rep;
	int ret;

	zns_pb__extent_ref__init(ref);
	zns_pb__checkpoint__init(c);
	c->id.data = memcpy(malloc(ZNS_UUID_LEN), u->k->id, ZNS_UUID_LEN);
	c->id.len = ZNS_UUID_LEN;
	c->container = strdup(u->k->container);
	c->created_ns = zns_now_ns();
	m.device.data = u->d->reg.uuid;
	m.device.len = ZNS_UUID_LEN;
	m.checkpoint = c;
	ret = zns_writer_finish(u->w, &m, ref, err);
	c->manifest = ref;
	if (!ret)
		ret = zns_writer_durable(u->w, c, err);
	if (!ret && t)
		u->k->begun = trace_now(t);
	if (!ret) {
		req.commit = c;
		ret = load_ask(u->d, &u->conn, &req, &rep, err);
		reply_free(&rep);
	}
	if (!ret && t)
		u->k->acked = trace_now(t);
	if (c->crypt)
		memcpy(u->k->wrapped, c->crypt->wrapped.data, ZNS_WRAPPED_BYTES);
	zns_writer_free(u->w);
	zns_crypt_free(u->crypt);
	zns_pb__checkpoint__free_unpacked(c, NULL);
	return ret;
}

int load_dump(struct znsd *d, struct load_ckpt *k, uint32_t qos_mibps, struct zns_err *err)
{
	struct dump u;
	int ret = dump_begin(d, &u, k, qos_mibps, err);

	while (!ret && u.fed < k->nr_img)
		ret = dump_feed(&u, err);
	if (ret) {
		dump_drop(&u);
		return ret;
	}
	return dump_commit(&u, NULL, err);
}

/* ---- the script ---- */

static uint32_t new_ckpt(struct load *l, const struct load_size *size)
{
	static const char *const who[] = { "web", "db", "cache" };
	struct load_ckpt *k;

	if (l->nr == l->max) {
		l->max = l->max ? 2 * l->max : 64;
		l->ckpt = realloc(l->ckpt, l->max * sizeof(*l->ckpt));
		if (!l->ckpt)
			abort();
	}
	k = &l->ckpt[l->nr];
	memset(k, 0, sizeof(*k));
	strcpy(k->container, who[load_rnd(&l->rng, ZNS_ARRAY_SIZE(who))]);
	k->nr_img = 1 + (uint32_t)load_rnd(&l->rng, LOAD_IMAGES_MAX);
	for (uint32_t i = 0; i < k->nr_img; i++) {
		struct load_image *img = &k->img[i];

		snprintf(img->name, sizeof(img->name), "image-%u.img", i);
		img->pages = load_rnd(&l->rng, 2);
		/* Small ones are packed, others take units. */
		img->len = (uint32_t)load_rnd(&l->rng, load_rnd(&l->rng, 2) ? size->max_len : 3000);
		load_fill(img, load_rnd(&l->rng, 1u << 30));
	}
	k->encrypted = load_rnd(&l->rng, 3) == 0;
	l->encrypted += k->encrypted;
	k->begun = k->acked = k->rm_begun = k->rm_acked = LOAD_NEVER;
	return l->nr++;
}

static uint32_t qos_of(struct load *l, const struct load_size *size)
{
	return 100 * (1 + (uint32_t)load_rnd(&l->rng, zns_min(3u, size->nr_groups)));
}

static int one_dump(struct znsd *d, struct trace *t, struct load *l, const struct load_size *size, bool commit,
		    struct zns_err *err)
{
	uint32_t k = new_ckpt(l, size);
	struct dump u;
	int ret = dump_begin(d, &u, &l->ckpt[k], qos_of(l, size), err);

	while (!ret && u.fed < l->ckpt[k].nr_img)
		ret = dump_feed(&u, err);
	if (ret || !commit) {
		dump_drop(&u);
		l->aborts += !ret;
		return ret;
	}
	l->dumps++;
	return dump_commit(&u, t, err);
}

/* Two that overlap; the second commits first, or not at all. */
static int two_dumps(struct znsd *d, struct trace *t, struct load *l, const struct load_size *size, struct zns_err *err)
{
	uint32_t a = new_ckpt(l, size), b = new_ckpt(l, size);
	bool second = load_rnd(&l->rng, 4);
	struct dump u, v;
	int ret;

	ret = dump_begin(d, &u, &l->ckpt[a], qos_of(l, size), err);
	if (ret) {
		dump_drop(&u);
		return ret;
	}
	ret = dump_begin(d, &v, &l->ckpt[b], qos_of(l, size), err);
	while (!ret && (u.fed < l->ckpt[a].nr_img || v.fed < l->ckpt[b].nr_img)) {
		bool first = v.fed == l->ckpt[b].nr_img || (u.fed < l->ckpt[a].nr_img && load_rnd(&l->rng, 2));

		ret = dump_feed(first ? &u : &v, err);
	}
	if (ret) {
		dump_drop(&v);
		dump_drop(&u);
		return ret;
	}
	l->pairs++;
	if (second)
		ret = dump_commit(&v, t, err);
	else
		dump_drop(&v);
	if (ret)
		dump_drop(&u);
	return ret ? ret : dump_commit(&u, t, err);
}

static int remove_one(struct znsd *d, struct trace *t, struct load *l, struct zns_err *err)
{
	ZnsPb__Rm rm = ZNS_PB__RM__INIT;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ProtobufCBinaryData id = { .len = ZNS_UUID_LEN };
	struct load_ckpt *k = NULL;
	struct conn c = { 0 };
	struct reply rep;
	int ret;

	for (uint32_t i = 0, from = (uint32_t)load_rnd(&l->rng, l->nr + 1); i < l->nr && !k; i++) {
		k = &l->ckpt[(from + i) % l->nr];
		if (k->acked == LOAD_NEVER || k->rm_begun != LOAD_NEVER)
			k = NULL;
	}
	if (!k)
		return 0;
	id.data = k->id;
	rm.n_checkpoints = 1;
	rm.checkpoints = &id;
	rm.by = (char *)"the load";
	k->secure = k->encrypted && load_rnd(&l->rng, 2);
	rm.has_secure = rm.secure = k->secure;
	l->erased += k->secure;
	req.rm = &rm;
	k->rm_begun = trace_now(t);
	ret = load_ask(d, &c, &req, &rep, err);
	reply_free(&rep);
	if (!ret)
		k->rm_acked = trace_now(t);
	l->removes++;
	return ret;
}

/* Between the copy and its commit others go on: a dump, or the removal of what is being moved. */
struct between {
	struct trace *t;
	struct load *l;
	const struct load_size *size;
};

static int meanwhile(void *arg, struct znsd *d, struct zns_err *err)
{
	struct between *b = arg;
	uint64_t what = load_rnd(&b->l->rng, 8);
	int ret = 0;

	if (what == 0)
		ret = one_dump(d, b->t, b->l, b->size, true, err);
	else if (what == 1)
		ret = remove_one(d, b->t, b->l, err);
	return ret == -ENOSPC || ret == -EBUSY ? 0 : ret;
}

static int compact(struct znsd *d, struct trace *t, struct load *l, const struct load_size *size, struct zns_err *err)
{
	struct between b = { t, l, size };

	return load_compact(d, t, l, 70, meanwhile, &b, err);
}

static int step(struct znsd *d, struct trace *t, struct load *l, const struct load_size *size, struct zns_err *err)
{
	uint64_t what = load_rnd(&l->rng, 16);
	int ret;

	if (what < 6)
		ret = one_dump(d, t, l, size, true, err);
	else if (what < 8)
		ret = two_dumps(d, t, l, size, err);
	else if (what < 9)
		ret = one_dump(d, t, l, size, false, err);
	else if (what < 12)
		ret = remove_one(d, t, l, err);
	else if (what < 14)
		ret = compact(d, t, l, size, err);
	else
		ret = (broker_idle(d), 0);
	/* A full device is no failure: make room, as a user would. */
	if (ret == -ENOSPC || ret == -EBUSY)
		ret = remove_one(d, t, l, err);
	return ret;
}

static int format(struct trace *t, const struct load_size *size, struct zns_err *err)
{
	ZnsPb__Profile p = ZNS_PB__PROFILE__INIT;
	ZnsPb__DieGroup group[16], *list[16];
	cleanup_free uint32_t *of = calloc(size->nr_zones, sizeof(*of));

	for (uint32_t i = 0; i < size->nr_groups; i++) {
		zns_pb__die_group__init(&group[i]);
		group[i].id = i;
		list[i] = &group[i];
	}
	for (uint32_t i = 0; i < size->nr_zones; i++)
		of[i] = i % size->nr_groups;
	p.source = (char *)"vendor";
	p.zone_write_mibps = 100;
	p.zone_read_mibps = 400;
	p.confidence = 1;
	p.groups = list;
	p.n_groups = size->nr_groups;
	p.zone_group = of;
	p.n_zone_group = size->nr_zones;
	return zns_store_format(&t->dev, NULL, &p, false, NULL, err);
}

struct trace *load_run(const struct load_size *size, uint64_t seed, enum trace_omit omit, struct load *l,
		       struct zns_err *err)
{
	struct trace *t = trace_new(size->nr_zones, size->capacity, size->max_active, 3);
	struct znsd d;
	int ret;

	memset(l, 0, sizeof(*l));
	l->rng = seed * 0x9e3779b97f4a7c15ull | 1;
	t->omit = omit;
	ret = format(t, size, err);
	trace_begin(t);
	if (!ret)
		ret = broker_open(&t->dev, &d, err);
	for (uint32_t i = 0; i < size->steps && !ret; i++)
		ret = step(&d, t, l, size, err);
	if (!ret)
		l->rolls = (uint32_t)zns_store_generation(d.store) - 1;
	broker_close(&d);
	trace_end(t);
	if (!ret)
		return t;
	trace_free(t);
	load_free(l);
	return NULL;
}

void load_free(struct load *l)
{
	for (uint32_t k = 0; k < l->nr; k++)
		for (uint32_t i = 0; i < l->ckpt[k].nr_img; i++)
			free(l->ckpt[k].img[i].data);
	free(l->ckpt);
	memset(l, 0, sizeof(*l));
}
