/* SPDX-License-Identifier: GPL-2.0-only */
/* verify: reads and checks every unit of a checkpoint, its manifest and its footer */
#include <string.h>
#include "lib/ctl.h"
#include "zns/crypt.h"
#include "zns/flat.h"
#include "zns/handle.h"
#include "zns/reader.h"
#include "zns/store.h"

/* The state of one checkpoint's verification. Workers add to it under the lock. */
struct check {
	pthread_mutex_t lock;
	pthread_cond_t idle;
	uint32_t running; /* number of images being checked */
	struct ctl_progress *progress;
	struct image_check {
		uint64_t bad_units, bad_bytes;
		uint32_t zone;
		/* zone_off: offset of the first damage in its zone; off: its offset in the image */
		uint64_t zone_off, off;
		struct zns_err err;
	} * image;
	uint64_t units, bad_units;
	struct zns_err err; /* set if the check itself failed */
};

struct verdict {
	char id[ZNS_UUID_STR];
	const ZnsPb__Checkpoint *c;
	struct json_object *damage; /* array of objects */
	uint64_t units, bad_units;
	bool wrong_handle; /* a damage is in the directory on the command line, not on the device */
	double seconds;
	/*
	 * why the authenticity could not be checked; code 0: it was checked, or the checkpoint is
	 * not encrypted
	 */
	struct zns_err no_key;
};

struct totals {
	struct json_object *list;
	/* the checkpoints that were checked, with the result; parents come before their children */
	struct judged {
		uint8_t id[ZNS_UUID_LEN];
		bool intact;
	} * judged;
	size_t nr_judged;
	uint64_t bytes;
	uint32_t checkpoints, damaged;
	int id_width;
	bool json;
	/* the list of checkpoints before this run, with marks of earlier runs */
	const ZnsPb__Response *ls;
	/* the handle in the directory on the command line; NULL: none */
	const ZnsPb__Handle *handle;
};

static void add_damage(struct verdict *v, const char *image, bool placed, uint32_t zone,
		       uint64_t off, uint64_t units, const char *why)
{
	json_object_array_add(v->damage,
			      placed ? ctl_obj(J("image", image), J("zone", zone), J("offset", off),
					       J("units", units), J("error", why)) :
				       ctl_obj(J("image", image), JNULL("zone"), JNULL("offset"),
					       J("units", units), J("error", why)));
}

static void unit_checked(void *arg, const struct zns_unit_check *u)
{
	struct check *k = arg;
	struct image_check *i = &k->image[zns_rimage_index(u->image)];

	ctl_progress_add(k->progress, u->len);
	pthread_mutex_lock(&k->lock);
	k->units++;
	if (u->err->code == -ENOMEM) { /* no memory: the unit was not read, and may be intact */
		if (!k->err.code)
			k->err = *u->err;
	} else if (u->err->code) {
		if (!i->bad_units || u->off < i->off) {
			i->off = u->off;
			i->zone = u->zone;
			i->zone_off = u->zone_off;
			i->err = *u->err;
		}
		i->bad_units++;
		k->bad_units++;
	}
	pthread_mutex_unlock(&k->lock);
}

static void image_checked(void *arg, const struct zns_err *err)
{
	struct check *k = arg;

	pthread_mutex_lock(&k->lock);
	if (err->code && !k->err.code)
		k->err = *err;
	k->running--;
	pthread_cond_signal(&k->idle);
	pthread_mutex_unlock(&k->lock);
}

/*
 * Checks all images. At most 64 are checked at a time; the reader serves them in turns, unit by
 * unit.
 */
static void run_images(struct check *k, struct zns_reader *r, const ZnsPb__Manifest *m)
{
	for (uint32_t i = 0; i < m->n_images; i++) {
		pthread_mutex_lock(&k->lock);
		while (k->running >= 64)
			pthread_cond_wait(&k->idle, &k->lock);
		k->running++;
		pthread_mutex_unlock(&k->lock);
		zns_rimage_verify(zns_reader_image(r, i), unit_checked, image_checked, k);
	}
	pthread_mutex_lock(&k->lock);
	while (k->running)
		pthread_cond_wait(&k->idle, &k->lock);
	pthread_mutex_unlock(&k->lock);
}

static int check_data(struct zns_dev *dev, const ZnsPb__Manifest *m, const struct zns_crypt *crypt,
		      struct ctl_progress *p, struct verdict *v, struct zns_err *err)
{
	struct check k = { .lock = PTHREAD_MUTEX_INITIALIZER,
			   .idle = PTHREAD_COND_INITIALIZER,
			   .progress = p };
	struct zns_reader_params rp = { .dev = dev, .crypt = crypt };
	cleanup_free struct image_check *images = calloc(m->n_images + 1, sizeof(*images));
	struct zns_reader *r;
	int ret;

	if (!images)
		return zns_fail(err, -ENOMEM, "no memory for a list of images");
	k.image = images;
	ret = zns_reader_new(&rp, m, &r, err);
	if (ret)
		return ret;
	run_images(&k, r, m);
	zns_reader_free(r);
	v->units = k.units;
	v->bad_units = k.bad_units;
	for (size_t i = 0; i < m->n_images; i++)
		if (images[i].bad_units)
			add_damage(v, m->images[i]->name, images[i].zone != UINT32_MAX,
				   images[i].zone, images[i].zone_off, images[i].bad_units,
				   images[i].err.msg);
	if (k.err.code)
		*err = k.err;
	return k.err.code;
}

int ctl_verify_data(struct zns_dev *dev, const ZnsPb__Manifest *m, struct ctl_progress *p,
		    uint64_t *bad, struct zns_err *err)
{
	struct verdict v = { .damage = json_object_new_array() };
	int ret = check_data(dev, m, NULL, p, &v, err);

	*bad = v.bad_units;
	json_object_put(v.damage);
	return ret;
}

/*
 * Checks one checkpoint. Returns 0 and fills v->damage. An error means that the check itself
 * failed.
 */
static int verify_one(struct zns_session *s, const ZnsPb__Checkpoint *c, const ZnsPb__Handle *h,
		      struct ctl_progress *p, struct verdict *v, struct zns_err *err)
{
	struct zns_err e = ZNS_ERR_INIT;
	struct zns_crypt *crypt = NULL;
	ZnsPb__Manifest *m = NULL;
	uint64_t start = zns_mono_ns();
	int ret = zns_manifest_read(s->dev, c, &m, &e);

	zns_uuid_format(c->id.data, v->id);
	v->c = c;
	if (ret == -ENOMEM) {
		*err = e;
		return ret;
	}
	if (ret) {
		add_damage(v, NULL, true, c->manifest->zone, c->manifest->start, 0, e.msg);
		ctl_progress_add(p, c->bytes);
	}
	if (zns_footer_check(s->dev, c, &e))
		add_damage(v, NULL, true, c->manifest->zone,
			   c->manifest->start +
				   zns_align_up(c->manifest->len, s->dev->geo.block_size),
			   0, e.msg);
	if (m && zns_manifest_agrees(m, c, &e))
		add_damage(v, NULL, true, c->manifest->zone, c->manifest->start, 0, e.msg);
	if (m && memcmp(m->device.data, s->reg.uuid, ZNS_UUID_LEN))
		add_damage(v, NULL, true, c->manifest->zone, c->manifest->start, 0,
			   "the manifest is of another device");
	/* Without the key the checksums are still checked: they cover the bytes on the device. */
	ret = m ? zns_crypt_of(&s->reg, s->broker.encrypted, m, &crypt, &e) : 0;
	if (ret == -EBADMSG || (ret && !m->checkpoint->crypt))
		add_damage(v, NULL, true, c->manifest->zone, c->manifest->start, 0, e.msg);
	else if (m && m->checkpoint->crypt && !crypt)
		v->no_key = e;
	if (h && (zns_handle_agrees(h, c, &e) || (m && zns_crypt_check_handle(crypt, h, m, &e)))) {
		add_damage(v, NULL, false, 0, 0, 0, e.msg);
		v->wrong_handle = true;
	}
	ret = m ? check_data(s->dev, m, crypt, p, v, err) : 0;
	zns_crypt_free(crypt);
	if (m)
		zns_pb__manifest__free_unpacked(m, NULL);
	v->seconds = (double)(zns_mono_ns() - start) / 1e9;
	return ret;
}

static void print_verdict(struct totals *t, struct verdict *v)
{
	size_t n = json_object_array_length(v->damage);
	char size[16], name[CTL_NAME];

	t->checkpoints++;
	ctl_name(v->c->container, name, sizeof(name));
	t->damaged += n > 0;
	t->bytes += v->c->bytes;
	if (!t->json && !n) {
		printf("%.*s  %-12s  %10s  intact%s%s%s\n", t->id_width, v->id, name,
		       zns_format_size(v->c->bytes, size, sizeof(size)),
		       v->no_key.code ? " by its checksums; authenticity not checked (" :
		       v->c->crypt    ? " and authentic" :
					"",
		       v->no_key.code ? v->no_key.msg : "", v->no_key.code ? ")" : "");
		json_object_put(v->damage);
		return;
	}
	for (size_t i = 0; !t->json && i < n; i++) {
		struct json_object *d = json_object_array_get_idx(v->damage, i);
		const char *image = json_object_get_string(json_object_object_get(d, "image"));

		printf("%.*s  %-12s  DAMAGED  %s: zone %s, offset %s: %s\n", t->id_width, v->id,
		       name, image ? ctl_text(image) : "(manifest)",
		       json_object_get_string(json_object_object_get(d, "zone")),
		       json_object_get_string(json_object_object_get(d, "offset")),
		       json_object_get_string(json_object_object_get(d, "error")));
	}
	if (!t->json) {
		json_object_put(v->damage);
		return;
	}
	json_object_array_add(t->list,
			      ctl_obj(J("id", v->id), J("container", v->c->container),
				      JB("intact", !n), JB("encrypted", v->c->crypt),
				      J("authentic",
					!v->c->crypt || v->no_key.code ? NULL : ctl_j_bool(!n)),
				      J("bytes", v->c->bytes), J("images", v->c->nr_images),
				      J("units", v->units), J("bad_units", v->bad_units),
				      J("seconds", v->seconds), J("damage", v->damage)));
}

static void report(struct totals *t, struct verdict *v)
{
	struct ctl_fold fold = { 0 };

	ctl_fold_begin(&fold);
	print_verdict(t, v);
	ctl_fold_end(&fold, 4);
}

/*
 * Are all parents known to be intact? Then the data that the checkpoint needs from them need not be
 * read again.
 */
static bool parents_intact(const struct totals *t, const ZnsPb__Response *chain)
{
	for (size_t i = 1; i < chain->n_checkpoints; i++) {
		size_t k = 0;

		while (k < t->nr_judged &&
		       memcmp(t->judged[k].id, chain->checkpoints[i]->id.data, ZNS_UUID_LEN))
			k++;
		if (k == t->nr_judged || !t->judged[k].intact)
			return false;
	}
	return true;
}

#define CHUNK MIB(1)

struct parts {
	struct zns_chain *chain;
	uint8_t *buf; /* CHUNK bytes */
	struct zns_err err;
};

/* Reads a piece of an image, if the piece is in a parent. */
static int read_piece(void *arg, uint32_t level, uint32_t place, uint64_t off, uint64_t len)
{
	struct parts *p = arg;
	const ZnsPb__Manifest *m = zns_chain_manifest(p->chain, level);
	struct zns_rimage *i = zns_chain_find(p->chain, level, m->images[place]->name);
	char id[ZNS_UUID_STR];
	int ret = 0;

	while (level && len && !ret) {
		size_t n = zns_min(len, (uint64_t)CHUNK);

		ret = i ? zns_rimage_read(i, off, p->buf, n, &p->err) :
			  zns_fail(&p->err, -EBADMSG, "the checkpoint has no image %s",
				   m->images[place]->name);
		off += n;
		len -= n;
	}
	return ret ? zns_wrap(&p->err, "parent %s", zns_uuid_format(m->checkpoint->id.data, id)) :
		     0;
}

static void read_of_parents(struct zns_chain *chain, const struct zns_flat *flat, struct verdict *v)
{
	cleanup_free uint8_t *buf = malloc(CHUNK);
	struct parts p = { .chain = chain, .buf = buf };

	for (uint32_t n = 0; n < zns_flat_images(flat); n++) {
		p.err = (struct zns_err)ZNS_ERR_INIT;
		if (!buf)
			zns_fail(&p.err, -ENOMEM, "no memory for a buffer");
		else if (zns_flat_is(flat, n))
			zns_flat_walk(flat, n, read_piece, &p);
		if (p.err.code)
			add_damage(v, zns_flat_name(flat, n), false, 0, 0, 0, p.err.msg);
	}
}

/*
 * For an incremental checkpoint: do its parents exist, and are the pages that it needs from them
 * readable? Damage in other data of a parent does not count.
 */
static void verify_chain(struct zns_session *s, const ZnsPb__Checkpoint *c, const struct totals *t,
			 struct verdict *v)
{
	struct zns_reader_params p = { .dev = s->dev, .workers = 2, .cache_units = 4 };
	struct zns_err e = ZNS_ERR_INIT;
	struct zns_chain *chain = NULL;
	struct zns_flat *flat = NULL;
	ZnsPb__Response *r = NULL;
	int ret = zns_session_lease(s, c->id.data, true, &r, &e);

	if (!ret)
		ret = zns_chain_open(&p, &s->reg, s->broker.encrypted, r->checkpoints,
				     r->n_checkpoints, &chain, &e);
	if (!ret)
		ret = zns_flat_new(chain, &flat, &e);
	if (!ret && !parents_intact(t, r))
		read_of_parents(chain, flat, v);
	if (ret == -ESTALE || ret == -ENOENT || ret == -EBADMSG)
		add_damage(v, NULL, false, 0, 0, 0, e.msg);
	zns_flat_free(flat);
	zns_chain_close(chain);
	if (r)
		zns_pb__response__free_unpacked(r, NULL);
}

/* Sends the result to the broker, so that `status` and `ls` show it. */
static void remember(struct zns_session *s, const struct totals *t, const struct verdict *v,
		     const ZnsPb__Checkpoint *c)
{
	bool damaged = json_object_array_length(v->damage) > v->wrong_handle;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Mark m = ZNS_PB__MARK__INIT;
	struct zns_err err = ZNS_ERR_INIT;

	if (!damaged && !ctl_damaged(t->ls, c))
		return;
	m.checkpoint = c->id;
	m.has_damaged_ns = 1;
	m.damaged_ns = damaged ? zns_now_ns() : 0;
	req.mark = &m;
	if (ctl_tell(&s->broker, &req, &err) && err.code != -ENOENT)
		fprintf(stderr, "znsctl verify: `znsctl status` will not show this result: %s\n",
			err.msg);
}

/*
 * Checks a checkpoint by id. If it was removed meanwhile, it is not counted as damaged. Each
 * checkpoint has a connection of its own, so that its lease ends with the check.
 */
static int verify_id(const char *spec, const uint8_t *id, bool may_be_gone, struct ctl_progress *p,
		     struct totals *t, struct zns_err *err)
{
	struct verdict v = { .damage = json_object_new_array() };
	ZnsPb__Response *r = NULL;
	struct zns_session s;
	int ret = ctl_session_open(&s, spec, ZNS_READS, err);

	if (!ret)
		ret = zns_session_lease(&s, id, false, &r, err);
	if (!ret)
		ret = verify_one(&s, r->checkpoints[0],
				 t->handle && !memcmp(t->handle->checkpoint.data, id,
						      ZNS_UUID_LEN) ?
					 t->handle :
					 NULL,
				 p, &v, err);
	if (!ret && r->checkpoints[0]->has_parent)
		verify_chain(&s, r->checkpoints[0], t, &v);
	if (!ret) {
		memcpy(t->judged[t->nr_judged].id, id, ZNS_UUID_LEN);
		t->judged[t->nr_judged++].intact = !json_object_array_length(v.damage);
		remember(&s, t, &v, r->checkpoints[0]);
		report(t, &v);
	} else
		json_object_put(v.damage);
	if (r)
		zns_pb__response__free_unpacked(r, NULL);
	zns_session_close(&s);
	if (ret != -ESTALE || !may_be_gone)
		return ret;
	err->code = 0;
	return 0;
}

/*
 * Sorts parents before their children, as in the list. An id that is not listed is an error, and
 * comes last.
 */
static void parents_first(struct ctl_pick *p)
{
	size_t n = 0, k;

	for (size_t i = 0; i < p->ls->n_checkpoints; i++) {
		uint8_t id[ZNS_UUID_LEN];

		for (k = n; k < p->nr; k++)
			if (!memcmp(p->ids[k], p->ls->checkpoints[i]->id.data, ZNS_UUID_LEN))
				break;
		if (k == p->nr)
			continue;
		memcpy(id, p->ids[k], ZNS_UUID_LEN);
		memmove(p->ids[n + 1], p->ids[n], (k - n) * ZNS_UUID_LEN);
		memcpy(p->ids[n++], id, ZNS_UUID_LEN);
	}
}

/* Adds the parents of checkpoints that were named by id. Returns the number of bytes to check. */
static uint64_t add_parents(struct ctl_pick *p)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < p->nr; i++) {
		const ZnsPb__Checkpoint *c = ctl_listed(p->ls, p->ids[i]);

		if (!c)
			continue;
		bytes += c->bytes;
		if (p->by_id && c->has_parent && c->parent.len == ZNS_UUID_LEN &&
		    p->nr < p->ls->n_checkpoints)
			memcpy(p->ids[p->nr++], c->parent.data, ZNS_UUID_LEN);
	}
	return bytes;
}

/* Sorts the results in the order of @ids, with parents of each behind it. */
static void in_order(struct totals *t, const uint8_t (*ids)[ZNS_UUID_LEN], size_t nr)
{
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; t->json && i < nr; i++)
		for (size_t k = 0; k < t->nr_judged; k++)
			if (!memcmp(ids[i], t->judged[k].id, ZNS_UUID_LEN))
				json_object_array_add(
					list,
					json_object_get(json_object_array_get_idx(t->list, k)));
	json_object_put(t->list);
	t->list = list;
}

static int finish(const struct ctl_cmd *cmd, struct totals *t, double seconds, struct zns_err *err)
{
	char size[16];

	if (t->json) {
		ctl_print_json(ctl_obj(J("checkpoints", json_object_get(t->list)),
				       J("damaged", t->damaged), J("bytes", t->bytes),
				       J("seconds", seconds)));
	} else if (t->checkpoints != 1 && !err->code) {
		printf("%u checkpoints, %s in %.1f s (%.0f MiB/s), %u damaged\n", t->checkpoints,
		       zns_format_size(t->bytes, size, sizeof(size)), seconds,
		       t->bytes / (double)MIB(1) / seconds, t->damaged);
	}
	if (err->code)
		return ctl_fail(cmd, err);
	return t->damaged ? CTL_FAILED : CTL_OK;
}

static int cmd_verify(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	struct ctl_progress prog;
	struct totals t = { 0 };
	struct ctl_pick p = { 0 };
	cleanup_free uint8_t(*asked)[ZNS_UUID_LEN] = NULL;
	int ret;
	const struct ctl_opt opts[] = { CTL_PICKS(&p), CTL_DEV, CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	ret = ctl_pick_open(cmd, &args, &p, 1);
	if (ret) {
		ctl_pick_end(&p);
		return ret;
	}
	zns_broker_close(&p.broker);
	t.handle = p.argc ? p.handle[0] : NULL;
	t.ls = p.ls;
	t.id_width = ctl_id_width(p.ls);
	t.json = args.json;
	t.list = json_object_new_array();
	ctl_progress_start(&prog, "verify", add_parents(&p));
	asked = calloc(p.nr + 1, sizeof(*asked));
	t.judged = calloc(p.nr + 1, sizeof(*t.judged));
	if (!asked || !t.judged)
		ret = zns_fail(&err, -ENOMEM, "no memory for a list of checkpoints");
	else
		memcpy(asked, p.ids, p.nr * sizeof(*asked));
	parents_first(&p);
	for (size_t i = 0; i < p.nr && !ret; i++)
		ret = verify_id(args.dev, p.ids[i], !p.by_id, &prog, &t, &err);
	if (asked)
		in_order(&t, asked, p.nr);
	if (ret && !t.checkpoints) {
		ctl_progress_end(&prog);
		ret = ctl_fail(cmd, &err);
	} else {
		ret = finish(cmd, &t, ctl_progress_end(&prog), &err);
	}
	free(t.judged);
	json_object_put(t.list);
	ctl_pick_end(&p);
	return ret;
}

const struct ctl_cmd command_verify = {
	"verify",
	"[DEV] " CTL_PICK,
	"read and check every byte of checkpoints",
	CTL_PICK_HELP CTL_DEV_HELP,
	cmd_verify,
};
