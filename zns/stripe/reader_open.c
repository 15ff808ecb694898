/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Creates and frees a striping reader: its images, its buffers, its workers. See zns/reader.h. */
#include <string.h>
#include <sys/mman.h>
#include "reader.h"

/* limit of the cache, since a helper may use less than 32 MiB in all (design.md §3) */
#define CACHE_BYTES MIB(20)
#define HUGE_PAGE MIB(2)
#define SMALL_BYTES MIB(8) /* a checkpoint with fewer bytes counts as small */
#define WORKERS_MAX 64

static int image_init(struct zns_reader *r, uint32_t n, const ZnsPb__Image *pb, struct zns_err *err)
{
	struct zns_rimage *i = &r->img[n];
	int ret = 0;

	i->r = r;
	i->pb = pb;
	i->index = n;
	i->seg = calloc(pb->n_segments + 1, sizeof(*i->seg));
	if (!i->seg)
		return zns_fail(err, -ENOMEM, "no memory for image %s", pb->name);
	for (size_t s = 0; s < pb->n_segments && !ret; s++)
		ret = zns_seg_init(&i->seg[s], pb->segments[s], pb->unit, err);
	for (size_t s = 0; s < pb->n_segments && !ret; s++)
		r->width = zns_max(r->width, r->img[n].seg[s].nr);
	if (!ret && i->crypt && pb->has_memory_key) {
		ret = zns_memory_key_get(i->crypt, pb->memory_key.data, pb->memory_key.len,
					 &i->memory, err);
		if (ret)
			zns_wrap(err, "image %s", pb->name);
	}
	if (!pb->map)
		r->buf_len = zns_max(r->buf_len, (size_t)pb->unit + 2 * r->dev->geo.block_size);
	return ret;
}

/* Sets up a composed image. Its sources are images of the same level; @first is that level's first
 * image. */
static int composed_init(struct zns_rimage *i, uint32_t first, struct zns_err *err)
{
	const ZnsPb__ImageMap *map = i->pb->map;
	int ret;

	i->runs = calloc(1, sizeof(*i->runs));
	if (!i->runs)
		return zns_fail(err, -ENOMEM, "no memory for image %s", i->pb->name);
	ret = runs_init(i->runs, i->pb->name, (uint32_t)map->n_from, err);
	for (size_t n = 0; n < map->n_from && !ret; n++)
		i->runs->from[n] = &i->r->img[first + map->from[n]];
	return ret ? ret : runs_add_map(i->runs, map, err);
}

static int cmp_name(const void *a, const void *b)
{
	const struct zns_rimage *const *x = a, *const *y = b;

	if ((*x)->level != (*y)->level)
		return (*x)->level < (*y)->level ? -1 : 1;
	return strcmp((*x)->pb->name, (*y)->pb->name);
}

/* Sum of the sizes of all images, in bytes. */
static uint64_t bytes_of(const struct zns_reader *r)
{
	uint64_t all = 0;

	for (uint32_t i = 0; i < r->nr_img; i++)
		all += r->img[i].pb->map ? 0 : r->img[i].pb->size;
	return all;
}

/*
 * Chooses two workers for each zone, so that the next read of a zone is ready when one ends. Each
 * worker occupies a unit of memory, which limits their number. More workers than units, plus two
 * for reading ahead, would have nothing to do.
 */
static uint32_t choose_workers(const struct zns_reader *r, uint64_t bytes)
{
	uint32_t nr = zns_min((uint32_t)WORKERS_MAX, zns_max(8u, 2 * r->width));

	if (r->buf_len)
		nr = (uint32_t)zns_min((uint64_t)nr, bytes / r->buf_len + 2);
	return r->buf_len ? zns_min(nr, zns_max(2u, (uint32_t)(CACHE_BYTES / r->buf_len))) : nr;
}

static int images_init(struct zns_reader *r, const struct zns_reader_level *level, uint32_t nr,
		       struct zns_err *err)
{
	size_t all = 0;
	int ret = 0;

	for (uint32_t l = 0; l < nr; l++)
		all += level[l].m->n_images;
	r->img = calloc(all + 1, sizeof(*r->img));
	r->by_name = calloc(all + 1, sizeof(*r->by_name));
	if (!r->img || !r->by_name)
		return zns_fail(err, -ENOMEM, "no memory for the reader");
	for (uint32_t l = 0; l < nr; l++)
		for (uint32_t k = 0; k < level[l].m->n_images && !ret; k++) {
			struct zns_rimage *i = r->by_name[r->nr_img] = &r->img[r->nr_img];

			i->level = l;
			i->place = k;
			i->crypt = level[l].crypt;
			ret = image_init(r, r->nr_img, level[l].m->images[k], err);
			r->nr_img++;
		}
	for (uint32_t n = 0; n < r->nr_img && !ret; n++)
		if (r->img[n].pb->map)
			ret = composed_init(&r->img[n], n - r->img[n].place, err);
	if (!ret)
		qsort(r->by_name, r->nr_img, sizeof(*r->by_name), cmp_name);
	return ret;
}

int zns_reader_new(const struct zns_reader_params *p, const ZnsPb__Manifest *m,
		   struct zns_reader **out, struct zns_err *err)
{
	return zns_reader_new_levels(p, &(struct zns_reader_level){ m, p->crypt }, 1, out, err);
}

int zns_reader_new_levels(const struct zns_reader_params *p, const struct zns_reader_level *level,
			  uint32_t nr, struct zns_reader **out, struct zns_err *err)
{
	uint64_t bytes = 0;
	uint32_t workers;
	struct zns_reader *r = calloc(1, sizeof(*r));
	size_t align = zns_max((size_t)4096, (size_t)p->dev->geo.mem_align), step;
	int ret = 0;

	if (!r)
		return zns_fail(err, -ENOMEM, "no memory for the reader");
	r->dev = p->dev;
	r->bucket = p->bucket;
	r->hot = p->hot;
	r->sealed = p->sealed;
	r->urgent_tail = &r->urgent;
	r->tail = &r->queue;
	r->ahead_tail = &r->ahead;
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->work, NULL);
	pthread_cond_init(&r->change, NULL);
	ret = images_init(r, level, nr, err);
	bytes = ret ? 0 : bytes_of(r);
	workers = p->workers ? p->workers : choose_workers(r, bytes);
	r->nr_cache = 2 * workers;
	if (p->cache_units)
		r->nr_cache = zns_max(p->cache_units, workers);
	else if (r->buf_len)
		r->nr_cache = zns_max(workers,
				      zns_min(r->nr_cache, (uint32_t)(CACHE_BYTES / r->buf_len)));
	r->cache = calloc(r->nr_cache, sizeof(*r->cache));
	r->thread = calloc(workers, sizeof(*r->thread));
	if (!ret && (!r->cache || !r->thread))
		ret = zns_fail(err, -ENOMEM, "no memory for the reader");
	/* Huge pages: a direct read then pins one page instead of hundreds. For a few reads,
	 * clearing huge pages takes longer than that saves. */
	step = zns_align_up(zns_max(r->buf_len, align), align);
	r->buffers = aligned_alloc(HUGE_PAGE, zns_align_up(r->nr_cache * step, HUGE_PAGE));
	if (r->buffers && bytes > SMALL_BYTES)
		madvise(r->buffers, zns_align_up(r->nr_cache * step, HUGE_PAGE), MADV_HUGEPAGE);
	if (!r->buffers && !ret)
		ret = zns_fail(err, -ENOMEM, "no memory for %u units", r->nr_cache);
	for (uint32_t n = 0; n < r->nr_cache && !ret; n++)
		r->cache[n].buf = r->buffers + n * step;
	for (; !ret && r->nr_threads < workers; r->nr_threads++) {
		ret = -pthread_create(&r->thread[r->nr_threads], NULL, reader_worker, r);
		if (!ret)
			continue;
		if (r->nr_threads >= 2) /* fewer threads than wanted only make it slower */
			ret = 0;
		else
			zns_fail_sys(err, ret, "cannot start a worker");
		break;
	}
	if (ret) {
		zns_reader_free(r);
		return ret;
	}
	*out = r;
	return 0;
}

void zns_reader_free(struct zns_reader *r)
{
	if (!r)
		return;
	pthread_mutex_lock(&r->lock);
	r->stop = true;
	pthread_cond_broadcast(&r->work);
	pthread_mutex_unlock(&r->lock);
	for (uint32_t n = 0; n < r->nr_threads; n++)
		pthread_join(r->thread[n], NULL);
	for (uint32_t n = 0; n < r->nr_img; n++) {
		for (size_t s = 0; r->img[n].seg && s < r->img[n].pb->n_segments; s++)
			zns_seg_fini(&r->img[n].seg[s]);
		free(r->img[n].seg);
		zns_memory_key_free(r->img[n].memory);
		if (r->img[n].runs)
			runs_fini(r->img[n].runs);
		free(r->img[n].runs);
	}
	free(r->buffers);
	free(r->img);
	free(r->by_name);
	free(r->cache);
	free(r->thread);
	pthread_mutex_destroy(&r->lock);
	pthread_cond_destroy(&r->work);
	pthread_cond_destroy(&r->change);
	free(r);
}

struct zns_rimage *zns_reader_find(struct zns_reader *r, const char *name)
{
	return zns_reader_find_at(r, 0, name);
}

struct zns_rimage *zns_reader_find_at(struct zns_reader *r, uint32_t level, const char *name)
{
	ZnsPb__Image pb = { .name = (char *)name };
	struct zns_rimage key = { .pb = &pb, .level = level }, *keyp = &key, **hit;

	hit = bsearch(&keyp, r->by_name, r->nr_img, sizeof(*r->by_name), cmp_name);
	return hit && !(*hit)->pb->part ? *hit : NULL;
}

struct zns_rimage *zns_reader_image(struct zns_reader *r, uint32_t index)
{
	return index < r->nr_img ? &r->img[index] : NULL;
}

uint32_t zns_rimage_index(const struct zns_rimage *i)
{
	return i->index;
}

uint64_t zns_rimage_size(const struct zns_rimage *i)
{
	return i->pb->size;
}

const char *zns_rimage_name(const struct zns_rimage *i)
{
	return i->pb->name;
}
