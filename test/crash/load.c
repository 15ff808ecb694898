/* SPDX-License-Identifier: GPL-2.0-only */
/* Drives the broker's code in this process: see load.h. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>
#include "../controls/controls.h"
#include "load.h"
#include "../../zns/crypt/crypt_priv.h"
#include "zns/pbcopy.h"
#include "zns/save.h"

#define UNIT KIB(64)

static int ask(void *arg, ZnsPb__Request *req, ZnsPb__Response **resp, struct zns_err *err)
{
	struct load_peer *p = arg;
	ZnsPb__Request *copy;
	struct reply rep;
	int ret;

	memset(&rep, 0, sizeof(rep));
	zns_pb__response__init(&rep.r);
	req->version = ZNS_BROKER_VERSION;
	copy = zns_pb_copy(&req->base, err);
	if (!copy)
		return -ENOMEM;
	ret = dispatch(p->d, &p->conn, copy, &rep);
	if (rep.later) { /* a request of a client that will not wait */
		waiter_drop(p->d, &p->conn);
		return zns_fail(err, -EBUSY, "the broker would have the dump wait");
	}
	zns_pb__request__free_unpacked(copy, NULL);
	if (ret && err)
		*err = rep.err;
	*resp = ret ? NULL : zns_pb_copy(&rep.r.base, err);
	reply_free(&rep);
	return ret || *resp ? ret : -ENOMEM;
}

void load_connect(struct load_peer *p, struct znsd *d)
{
	memset(p, 0, sizeof(*p));
	p->d = d;
	p->s = (struct zns_session)ZNS_SESSION_INIT;
	p->s.reg = d->reg;
	p->s.dev = d->dev; /* belongs to the broker: the session is never closed */
	p->s.ask = ask;
	p->s.ask_arg = p;
}

void load_hang_up(struct load_peer *p)
{
	leases_of_conn_lost(p->d, &p->conn, &(int){ -1 });
}

/* ---- chance ---- */

uint64_t load_rnd(uint64_t *s, uint64_t below)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return (*s >> 11) % below;
}

static uint64_t ids;

/* Replaces the C library's function: a checkpoint's place depends on its ID. */
ssize_t getrandom(void *buf, size_t len, unsigned int flags)
{
	uint8_t *out = buf;

	for (size_t i = 0; i < len; i++)
		out[i] = (uint8_t)load_rnd(&ids, 256);
	return (ssize_t)len;
}

/* ---- a dump ---- */

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
	struct load_peer peer;
	struct zns_save v;
	struct load_ckpt *k;
	uint32_t fed;
	struct zns_wimage *part[LOAD_PARTS];
};

static struct zns_master *new_master(void)
{
	static const uint8_t raw[ZNS_KEY_BYTES] = { 7, 7, 7 };
	struct zns_master *m;

	if (master_from_bytes(raw, &m, NULL))
		abort();
	return m;
}

const struct zns_master *load_master(void)
{
	static struct zns_master *m;

	if (!m)
		m = new_master();
	return m;
}

static int dump_begin(struct znsd *d, struct dump *u, struct load_ckpt *k, uint32_t qos_mibps,
		      struct zns_err *err)
{
	ZnsPb__DumpBegin q = ZNS_PB__DUMP_BEGIN__INIT;
	int ret;

	memset(u, 0, sizeof(*u));
	load_connect(&u->peer, d);
	u->k = k;
	u->v = (struct zns_save){ .s = &u->peer.s,
				  .unit = UNIT,
				  .workers = 1,
				  .master = k->encrypted ? new_master() : NULL };
	q.container = k->container;
	q.qos_mibps = qos_mibps;
	/* on such a device it counts as a small dump */
	q.has_expected_bytes = zns_geo_is_disk(&d->dev->geo);
	for (uint32_t i = 0; i < k->nr_img; i++)
		q.expected_bytes += k->img[i].nr_runs ? 0 : k->img[i].len;
	ret = zns_save_begin(&u->v, &q, err);
	memcpy(k->id, u->v.id, ZNS_UUID_LEN);
	return ret;
}

static int dump_feed(struct dump *u, struct zns_err *err)
{
	uint32_t n = u->fed++;
	const struct load_image *img = &u->k->img[n];
	struct zns_wimage *wi;
	int ret;

	if (img->nr_runs)
		return zns_writer_compose(u->v.w, img->name, u->part, LOAD_PARTS, img->run,
					  img->nr_runs, err);
	ret = zns_writer_image(u->v.w, img->name, img->pages, &wi, err);
	if (!ret && img->part) {
		zns_wimage_set_part(wi);
		u->part[n] = wi;
	}
	if (!ret)
		ret = zns_wimage_data(wi, img->data, img->len, err);
	return ret ? ret : zns_wimage_seal(wi, err);
}

static void dump_drop(struct dump *u)
{
	zns_save_end(&u->v);
	load_hang_up(&u->peer);
}

static int dump_commit(struct dump *u, struct trace *t, struct zns_err *err)
{
	int ret = zns_save_finish(&u->v, err);

	if (!ret)
		ret = zns_save_durable(&u->v, err);
	if (!ret && t)
		u->k->begun = trace_now(t);
	if (!ret)
		ret = zns_save_commit(&u->v, err);
	if (!ret && t)
		u->k->acked = trace_now(t);
	if (u->v.c->crypt)
		memcpy(u->k->wrapped, u->v.c->crypt->wrapped.data, ZNS_WRAPPED_BYTES);
	zns_save_end(&u->v);
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

/* Rounds of a live dump, and a task's pages composed of them; some of the rounds' bytes are in
 * no image. */
static void fill_live(struct load *l, struct load_ckpt *k, const struct load_size *size)
{
	struct load_image *task = &k->img[LOAD_PARTS];
	uint32_t pages = zns_max(2u, size->max_len / ZNS_MAP_PAGE / 2);

	for (uint32_t i = 0; i < LOAD_PARTS; i++) {
		snprintf(k->img[i].name, sizeof(k->img[i].name), "live-%u.img", i);
		k->img[i].part = k->img[i].pages = true;
		k->img[i].len = (1 + (uint32_t)load_rnd(&l->rng, pages)) * ZNS_MAP_PAGE;
		load_fill(&k->img[i], load_rnd(&l->rng, 1u << 30));
	}
	snprintf(task->name, sizeof(task->name), "pages-1.img");
	task->data = malloc((size_t)LOAD_RUNS_MAX * pages * ZNS_MAP_PAGE);
	if (!task->data)
		abort();
	task->nr_runs = 1 + (uint32_t)load_rnd(&l->rng, LOAD_RUNS_MAX);
	for (uint32_t r = 0; r < task->nr_runs; r++) {
		uint32_t source = (uint32_t)load_rnd(&l->rng, LOAD_PARTS);
		uint32_t there = k->img[source].len / ZNS_MAP_PAGE;
		uint32_t at = (uint32_t)load_rnd(&l->rng, there);
		uint32_t len = 1 + (uint32_t)load_rnd(&l->rng, there - at);

		task->run[r] = (struct zns_image_run){ (uint64_t)len * ZNS_MAP_PAGE, source,
						       (uint64_t)at * ZNS_MAP_PAGE };
		memcpy(task->data + task->len, k->img[source].data + task->run[r].at,
		       task->run[r].len);
		task->len += (uint32_t)task->run[r].len;
	}
}

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
	if (k->nr_img > LOAD_PARTS && load_rnd(&l->rng, 2))
		fill_live(l, k, size);
	for (uint32_t i = k->img[0].part ? LOAD_PARTS + 1 : 0; i < k->nr_img; i++) {
		struct load_image *img = &k->img[i];

		snprintf(img->name, sizeof(img->name), "image-%u.img", i);
		img->pages = load_rnd(&l->rng, 2);
		/* Small images are packed, others take units. */
		img->len = (uint32_t)load_rnd(&l->rng, load_rnd(&l->rng, 2) ? size->max_len : 3000);
		load_fill(img, load_rnd(&l->rng, 1u << 30));
	}
	k->encrypted = load_rnd(&l->rng, 3) == 0;
	l->encrypted += k->encrypted;
	l->composed += k->img[0].part;
	k->begun = k->acked = k->rm_begun = k->rm_acked = LOAD_NEVER;
	return l->nr++;
}

static uint32_t qos_of(struct load *l, const struct load_size *size)
{
	return 100 * (1 + (uint32_t)load_rnd(&l->rng, zns_min(3u, size->nr_groups)));
}

static int one_dump(struct znsd *d, struct trace *t, struct load *l, const struct load_size *size,
		    bool commit, struct zns_err *err)
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

/* Two dumps at the same time; the second commits first, or not at all. */
static int two_dumps(struct znsd *d, struct trace *t, struct load *l, const struct load_size *size,
		     struct zns_err *err)
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
		bool first = v.fed == l->ckpt[b].nr_img ||
			     (u.fed < l->ckpt[a].nr_img && load_rnd(&l->rng, 2));

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
	struct load_peer peer;
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
	load_connect(&peer, d);
	ret = zns_session_tell(&peer.s, &req, err);
	if (!ret)
		k->rm_acked = trace_now(t);
	l->removes++;
	return ret;
}

/* Between the copy and its commit something else happens: a dump, or the removal of the
 * checkpoint that is being moved. */
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

static int compact(struct znsd *d, struct trace *t, struct load *l, const struct load_size *size,
		   struct zns_err *err)
{
	struct between b = { t, l, size };

	return load_compact(d, t, l, 70, meanwhile, &b, err);
}

static int step(struct znsd *d, struct trace *t, struct load *l, const struct load_size *size,
		struct zns_err *err)
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
	/* A full device is no failure: it makes room, as a user would. */
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

/* The model depends on the time, too: each step of a load takes equally long. */
#define STEP_NS 10000000

static void stop_clock(void)
{
	static bool stopped;
	char file[32];
	int fd;

	if (stopped)
		return;
	fd = memfd_create("clock", MFD_CLOEXEC);
	snprintf(file, sizeof(file), "/proc/self/fd/%d", fd);
	zns_clock_stop(file);
	close(fd);
	stopped = true;
}

struct trace *load_run(const struct load_size *size, uint64_t seed, enum trace_omit omit,
		       struct load *l, struct zns_err *err)
{
	struct trace *t = trace_new(size->nr_zones, size->capacity, size->max_active, 3,
				    size->disk);
	struct znsd d;
	int ret;

	memset(l, 0, sizeof(*l));
	ids = l->rng = seed * 0x9e3779b97f4a7c15ull | 1;
	t->omit = omit;
	stop_clock();
	ret = format(t, size, err);
	trace_begin(t);
	if (!ret)
		ret = broker_open(&t->dev, &d, err);
	for (uint32_t i = 0; i < size->steps && !ret; i++) {
		zns_clock_advance(STEP_NS);
		ret = step(&d, t, l, size, err);
	}
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
