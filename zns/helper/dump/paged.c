/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* See paged.h. */
#include <fcntl.h>
#include <string.h>
#include "../../track/scan.h"
#include "../live/live.h"
#include "zns/crypt_memory.h"
#include "zns/grow.h"
#include "zns/quiesce.h"

#define UNIT 65536ULL
#define PAGE 4096ULL
#define NAME "memory.img"

/*
 * All units that the tasks have on zones. While tasks are read, a unit's number is its index in
 * unit[], and places refer to that. In the image each unit is stored once, in the order of the
 * device.
 */
struct paged {
	struct zns_quiesce *quiesce;
	struct zns_memory_key *key; /* NULL: the units are not encrypted */
	struct zns_named *unit;
	size_t nr, max;
	uint32_t *at; /* for each unit, its number in the image */
	struct zns_wimage *image;
};

/* ---- the beginning ---- */

static int protect_zones(struct dump *d, const uint8_t *context, struct zns_err *err)
{
	ZnsPb__MemoryNaming s = ZNS_PB__MEMORY_NAMING__INIT;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;

	s.context = (ProtobufCBinaryData){ ZNS_UUID_LEN, (uint8_t *)context };
	req.memory_naming = &s;
	return zns_session_tell(&d->h->s, &req, err);
}

static int get_key(struct paged *m, struct zns_err *err)
{
	cleanup_close int fd = -1;
	int ret = zns_quiesce_key(m->quiesce, &fd, err);

	return ret || fd < 0 ?
		       ret :
		       zns_memory_key_take(fd, zns_quiesce_context(m->quiesce), &m->key, err);
}

static int check(struct dump *d, struct paged *m, struct zns_err *err)
{
	const char *name = zns_quiesce_name(m->quiesce);
	int ret;

	if (memcmp(zns_quiesce_device(m->quiesce), d->h->s.reg.uuid, ZNS_UUID_LEN))
		return zns_fail(err, -EOPNOTSUPP,
				"memory of context %s is on zones of another device than %s: dump "
				"there, or `znsctl memory detach %s` first",
				name, d->h->s.reg.path, name);
	if (d->pre_dump)
		return zns_fail(err, -EOPNOTSUPP,
				"memory of context %s is on zones, so there is little to do before "
				"a dump: make a full one (criu dump), or `znsctl memory detach %s` "
				"first",
				name, name);
	ret = get_key(m, err);
	if (!ret && !d->v.crypt != !m->key)
		ret = zns_fail(err, -EOPNOTSUPP,
			       "%s, and memory of context %s on zones is%s: `znsctl memory detach "
			       "%s` first",
			       m->key ? "this checkpoint is not encrypted" :
					"this checkpoint is encrypted",
			       name, m->key ? "" : " not", name);
	return ret ? ret : protect_zones(d, zns_quiesce_context(m->quiesce), err);
}

int paged_begin(struct dump *d, struct packet *p, struct zns_err *err)
{
	cleanup_free pid_t *pid = NULL;
	struct zw_reply r = { .kind = ZW_KIND_NONE };
	uint32_t nr;
	int ret;

	if (d->paged || d->pid <= 0)
		return zns_fail(err, -EPROTO, "criu asked for memory contexts at a wrong time");
	d->paged = calloc(1, sizeof(*d->paged));
	if (!d->paged)
		return zns_fail(err, -ENOMEM, "no memory for the dump");
	nr = task_tree(d->pid, &pid);
	ret = zns_quiesce_begin(pid, nr, &d->paged->quiesce, err);
	if (!ret && d->paged->quiesce)
		ret = check(d, d->paged, err);
	if (!ret && d->paged->quiesce) {
		r.kind = ZW_KIND_PAGES;
		snprintf(r.msg, sizeof(r.msg), "memory context %s: its units stay where they are",
			 zns_quiesce_name(d->paged->quiesce));
	} else {
		paged_end(d);
	}
	if (!ret)
		reply_send(p->nr_fd ? p->fd[0] : -1, &r, -1);
	return ret;
}

/*
 * Does the pager have the memory from @start to @end? *@is is false if the pager answers -ENOENT.
 * @d is NULL in a sender of rounds.
 */
static int is_its(struct dump *d, pid_t pid, uint64_t start, uint64_t end, bool *is,
		  struct zns_err *err)
{
	struct zns_err e = ZNS_ERR_INIT;
	int ret = d && d->paged ? zns_quiesce_owns(d->paged->quiesce, pid, start, end, &e) :
				  -ENOENT;

	*is = !ret;
	if (!ret || ret == -ENOENT)
		return 0;
	*err = e;
	return ret;
}

int paged_owns(struct dump *d, struct packet *p, struct zns_err *err)
{
	const struct zw_iov *v = p->h.nr == 1 ? packet_iov(p) : NULL;
	struct zw_reply r = { .kind = ZW_KIND_NONE };
	bool is;
	int ret;

	if (!v || !v->len || v->base + v->len < v->base)
		return zns_fail(err, -EPROTO, "criu asked for an impossible area");
	ret = is_its(d, p->h.pid, v->base, v->base + v->len, &is, err);
	if (ret)
		return ret;
	if (is)
		r.kind = ZW_KIND_PAGES;
	reply_send(p->nr_fd ? p->fd[0] : -1, &r, -1);
	return 0;
}

int paged_has(struct dump *d, pid_t pid, bool *has, struct zns_err *err)
{
	return is_its(d, pid, 0, 0, has, err);
}

/* ---- a frozen task ---- */

struct look {
	/* there: pages that exist; content: those of them that are not zero */
	struct zns_spans there, content;
	/*
	 * Pages that are protected and swapped out, or that have only a marker because the pager
	 * has them on a zone.
	 */
	struct zns_spans maybe;
};

static int found(void *arg, uint64_t start, uint64_t end, uint64_t categories)
{
	struct look *k = arg;

	if (categories & (IS_FILE | IS_GUARD))
		return 0;
	if (!(categories & (IS_PRESENT | IS_WRITTEN)))
		return zns_spans_add(&k->maybe, start, end);
	if (zns_spans_add(&k->there, start, end))
		return -ENOMEM;
	return categories & IS_ZERO ? 0 : zns_spans_add(&k->content, start, end);
}

static int look(pid_t pid, const struct zns_spans *area, struct look *k, struct zns_err *err)
{
	struct scan_query q = { .anyof = IS_PRESENT | IS_SWAPPED,
				.returned = IS_PRESENT | IS_SWAPPED | IS_FILE | IS_GUARD | IS_ZERO |
					    IS_WRITTEN };
	cleanup_close int fd = -1;
	char path[48];
	int ret = 0;

	snprintf(path, sizeof(path), "/proc/%d/pagemap", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return zns_fail_sys(err, -errno, "cannot look into process %d", pid);
	for (size_t n = 0; n < area->nr && !ret; n++) {
		ret = scan_range(fd, &q, area->s[n].start, area->s[n].end, found, k);
		if (ret != -EINVAL || !(q.returned & IS_GUARD))
			continue;
		/* kernels before Linux 6.15 do not know this flag */
		q.returned &= ~(uint64_t)IS_GUARD;
		ret = scan_range(fd, &q, area->s[n].start, area->s[n].end, found, k);
	}
	return ret ? zns_fail_sys(err, ret, "cannot list the pages of process %d", pid) : 0;
}

/*
 * Adds the places of a unit's pages to @batch, which is sorted by address. If a page comes before
 * the last one in @batch, @batch is first moved to @t->places and begun anew.
 */
static int add_pages(struct live_task *t, struct places *batch, const struct zns_quiesce_unit *u,
		     uint64_t at, struct zns_spans *clean, struct zns_spans *out)
{
	uint32_t mask = u->mask | u->clean;

	for (unsigned int i = 0; mask >> i; i++) {
		uint64_t addr = u->addr + i * PAGE;
		const struct place *last = batch->nr ? &batch->p[batch->nr - 1] : NULL;

		if (!(mask >> i & 1))
			continue;
		if (last && last->vaddr + last->len > addr) {
			if (places_put(&t->places, batch->p, batch->nr))
				return -ENOMEM;
			places_free(batch);
		}
		if (places_append(batch, (struct place){ addr, PAGE, at + i * PAGE, LIVE_PAGED }))
			return -ENOMEM;
		if (zns_spans_add(u->clean >> i & 1 ? clean : out, addr, addr + PAGE))
			return -ENOMEM;
	}
	return 0;
}

static int take_units(struct paged *m, struct live_task *t, const struct zns_quiesce_unit *u,
		      size_t nr, struct zns_spans *clean, struct zns_spans *out)
{
	struct places batch = { 0 };
	int ret = 0;

	for (size_t n = 0; n < nr && !ret; n++) {
		ret = add_pages(t, &batch, &u[n], m->nr * UNIT, clean, out);
		if (!ret)
			ret = zns_grow(m->unit, m->nr, m->max);
		if (ret)
			break;
		m->unit[m->nr] = (struct zns_named){ u[n].zone, u[n].off, u[n].hash, { 0 }, { 0 } };
		memcpy(m->unit[m->nr].nonce, u[n].nonce, sizeof(u[n].nonce));
		memcpy(m->unit[m->nr++].tag, u[n].tag, sizeof(u[n].tag));
	}
	if (!ret)
		ret = places_put(&t->places, batch.p, batch.nr);
	places_free(&batch);
	return ret;
}

/* Treats swapped-out pages like present ones. */
static int add_swapped(struct look *k, const struct zns_spans *out)
{
	struct zns_spans swapped = { 0 };
	int ret = zns_spans_without(&k->maybe, out, &swapped);

	if (!ret)
		ret = zns_spans_join(&k->there, &swapped);
	if (!ret)
		ret = zns_spans_join(&k->content, &swapped);
	zns_spans_free(&swapped);
	return ret;
}

/*
 * Divides the pages in memory: all are copied, except those that are known to be equal to their
 * copy on zones.
 */
static int divide(struct live_task *t, const struct live_areas *a, const struct look *k,
		  const struct zns_spans *clean, struct zns_spans *rest)
{
	struct zns_spans truth = { 0 };
	int ret = zns_spans_without(&k->there, clean, &truth);

	if (!ret)
		ret = places_drop(&t->places, truth.s, truth.nr);
	if (!ret)
		ret = places_keep(&t->places, a->all.s, a->all.nr);
	if (!ret)
		ret = zns_spans_without(&k->content, clean, rest);
	if (!ret)
		ret = zns_spans_join(rest, &a->whole);
	zns_spans_free(&truth);
	return ret;
}

int paged_rest(struct paged *m, struct live_task *t, const struct live_areas *a,
	       struct zns_spans *rest, struct zns_err *err)
{
	cleanup_free struct zns_quiesce_unit *u = NULL;
	struct zns_spans clean = { 0 }, out = { 0 };
	struct look k = { 0 };
	size_t nr;
	/*
	 * Ask the pager before reading the page tables. A page that comes back into memory in
	 * between is then found in both, and both copies are right.
	 */
	int ret = zns_quiesce_units(m->quiesce, t->pid, &u, &nr, err);

	if (!ret)
		ret = look(t->pid, &a->all, &k, err);
	if (!ret && (take_units(m, t, u, nr, &clean, &out) || add_swapped(&k, &out) ||
		     divide(t, a, &k, &clean, rest)))
		ret = zns_fail(err, -ENOMEM, "no memory for the places of pages");
	zns_spans_free(&clean);
	zns_spans_free(&out);
	zns_spans_free(&k.maybe);
	zns_spans_free(&k.there);
	zns_spans_free(&k.content);
	return ret;
}

/* ---- the image ---- */

static int by_place(const void *a, const void *b, void *arg)
{
	const struct zns_named *v = arg, *x = &v[*(const uint32_t *)a],
			       *y = &v[*(const uint32_t *)b];

	if (x->zone != y->zone)
		return x->zone < y->zone ? -1 : 1;
	return x->off < y->off ? -1 : x->off > y->off;
}

/*
 * Marks the units that places still refer to. The other units are left out: all of their pages were
 * in memory as well.
 */
static void mark_used(const struct live *l, uint8_t *used)
{
	for (size_t n = 0; n < l->nr_tasks; n++)
		for (size_t i = 0; i < l->task[n].places.nr; i++) {
			const struct place *p = &l->task[n].places.p[i];

			for (uint64_t k = p->at / UNIT;
			     p->source == LIVE_PAGED && k * UNIT < p->at + p->len; k++)
				used[k] = 1;
		}
}

static int order(struct paged *m, const struct live *l, struct zns_named **out, size_t *nr)
{
	cleanup_free uint32_t *by = malloc((m->nr + 1) * sizeof(*by));
	cleanup_free uint8_t *used = calloc(m->nr + 1, 1);
	struct zns_named *v = malloc((m->nr + 1) * sizeof(*v));
	size_t n = 0;

	m->at = calloc(m->nr + 1, sizeof(*m->at));
	*out = v;
	*nr = 0;
	if (!by || !used || !v || !m->at || m->nr > UINT32_MAX)
		return -ENOMEM;
	mark_used(l, used);
	for (size_t i = 0; i < m->nr; i++)
		if (used[i])
			by[n++] = (uint32_t)i;
	qsort_r(by, n, sizeof(*by), by_place, m->unit);
	for (size_t i = 0; i < n; i++) {
		const struct zns_named *u = &m->unit[by[i]];

		if (!*nr || v[*nr - 1].zone != u->zone || v[*nr - 1].off != u->off)
			v[(*nr)++] = *u;
		m->at[by[i]] = (uint32_t)(*nr - 1);
	}
	return 0;
}

int paged_name(struct dump *d, struct zns_err *err)
{
	struct paged *m = d->paged;
	struct zns_named *v = NULL;
	size_t nr;
	int ret = 0;

	if (!m || !m->nr)
		return 0;
	if (order(m, d->live, &v, &nr))
		ret = zns_fail(err, -ENOMEM, "no memory for a list of units");
	if (!ret && nr)
		ret = zns_writer_named(d->v.w, NAME, zns_quiesce_context(m->quiesce), m->key, v, nr,
				       &m->image, err);
	free(v);
	return ret;
}

struct zns_wimage *paged_image(struct paged *m)
{
	return m ? m->image : NULL;
}

int paged_add(struct runs *r, uint64_t len, uint32_t source, uint64_t at)
{
	if (zns_grow(r->v, r->nr, r->max))
		return -ENOMEM;
	r->v[r->nr++] = (struct zns_image_run){ len, source, at };
	return 0;
}

int paged_runs(const struct paged *m, const struct place *p, uint32_t source, struct runs *r)
{
	uint64_t at = p->at, len = p->len;
	int ret = 0;

	while (len && !ret) {
		uint64_t in = at % UNIT, part = zns_min(len, UNIT - in);

		ret = paged_add(r, part, source, m->at[at / UNIT] * UNIT + in);
		at += part;
		len -= part;
	}
	return ret;
}

void paged_end(struct dump *d)
{
	struct paged *m = d->paged;

	d->paged = NULL;
	if (!m)
		return;
	zns_memory_key_free(m->key);
	zns_quiesce_end(m->quiesce);
	free(m->unit);
	free(m->at);
	free(m);
}
