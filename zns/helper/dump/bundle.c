/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The small images of a restore, in one memfd (struct zw_bundle). Fetching an image by itself takes
 * time of criu, the message loop and two threads, and the restore of a hundred processes opens six
 * hundred images.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "../helper.h"
#include "zns-memfd.h"
#include "zns/flat.h"

#define IMAGE_MAX MIB(1)
#define BUNDLE_MAX MIB(16)

struct reading {
	pthread_mutex_t lock;
	pthread_cond_t idle;
	uint32_t left;
	struct piece *piece;
	struct zns_err err; /* error of the first image that could not be read */
};

struct piece {
	struct reading *all;
	struct zns_rimage *img;
	struct zw_bundle_image entry;
	bool damaged;
};

static void piece_done(void *arg, const struct zns_err *err)
{
	struct piece *p = arg;
	struct reading *all = p->all;

	pthread_mutex_lock(&all->lock);
	p->damaged = err->code;
	if (err->code && err->code != -EBADMSG && !all->err.code)
		all->err = *err;
	if (!--all->left)
		pthread_cond_signal(&all->idle);
	pthread_mutex_unlock(&all->lock);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct piece *)a)->entry.name, ((const struct piece *)b)->entry.name);
}

static bool is_pages(const struct piece *p)
{
	return !strncmp(p->entry.name, "pages-", 6);
}

/*
 * Assigns each image its place in the memfd. Pages images get only the space that the other images
 * leave. Returns the total length.
 */
static uint64_t place(struct piece *p, uint32_t nr)
{
	uint64_t end = sizeof(struct zw_bundle) + nr * sizeof(struct zw_bundle_image);

	for (int pages = 0; pages < 2; pages++)
		for (uint32_t i = 0; i < nr; i++) {
			if (is_pages(&p[i]) != pages || !p[i].img || p[i].entry.len > IMAGE_MAX ||
			    end + p[i].entry.len > BUNDLE_MAX)
				continue;
			p[i].entry.off = end;
			end = zns_align_up(end + p[i].entry.len, 8);
		}
	return end;
}

/*
 * Reads all images at once. A damaged image is left out of the bundle: criu then asks the helper
 * for it, and gets the reason.
 */
static int read_all(struct reading *all, uint32_t nr, uint8_t *mem)
{
	all->left = 1;
	for (uint32_t i = 0; i < nr; i++) {
		struct piece *p = &all->piece[i];
		struct zns_part *part;

		p->all = all;
		if (!p->entry.off || !p->entry.len)
			continue;
		part = malloc(sizeof(*part));
		if (!part) {
			p->damaged = true; /* criu will ask the helper for this image */
			continue;
		}
		*part = (struct zns_part){ 0, p->entry.len, mem + p->entry.off };
		pthread_mutex_lock(&all->lock);
		all->left++;
		pthread_mutex_unlock(&all->lock);
		zns_rimage_read_parts(p->img, ZNS_TASK(0), part, 1, piece_done, p);
	}
	pthread_mutex_lock(&all->lock);
	all->left--;
	while (all->left)
		pthread_cond_wait(&all->idle, &all->lock);
	pthread_mutex_unlock(&all->lock);
	return all->err.code;
}

/*
 * Lists the images of the bundle and returns their number. *@all: the number of images that criu
 * may ask for; parts of composed images are not among them.
 */
static uint32_t list(const struct zns_chain *c, const struct zns_flat *flat, struct piece *piece,
		     uint32_t *all)
{
	const ZnsPb__Manifest *m = zns_chain_manifest(c, 0);
	uint32_t nr = 0;

	for (uint32_t n = 0; n < m->n_images; n++) {
		struct zns_rimage *img = zns_reader_image(zns_chain_reader(c), n);
		const char *name = zns_rimage_name(img);
		struct piece *p = &piece[nr];

		if (m->images[n]->part)
			continue;
		++*all;
		if (strlen(name) >= sizeof(p->entry.name))
			continue;
		memcpy(p->entry.name, name, strlen(name) + 1);
		nr++;
		/*
		 * These images are not bundled: those composed from parents' images, archives that
		 * are read through a pipe, files of plugins.
		 */
		if (m->images[n]->beside || !strstr(name, ".img") || !strncmp(name, "tmpfs-", 6) ||
		    (flat && n < zns_flat_images(flat) && zns_flat_is(flat, n)))
			continue;
		p->img = img;
		p->entry.len = zns_rimage_size(img);
	}
	return nr;
}

int bundle_make(const struct zns_chain *c, const struct zns_flat *flat, bool complete,
		struct zns_err *err)
{
	uint32_t max = (uint32_t)zns_chain_manifest(c, 0)->n_images;
	struct reading all = { .lock = PTHREAD_MUTEX_INITIALIZER,
			       .idle = PTHREAD_COND_INITIALIZER,
			       .err = ZNS_ERR_INIT };
	cleanup_free struct piece *piece = calloc(max + 1u, sizeof(*piece));
	struct zw_bundle *b = MAP_FAILED;
	cleanup_close int fd = -1;
	uint64_t len;
	uint32_t nr, all_images = 0;
	int ret;

	if (!piece)
		return zns_fail(err, -ENOMEM, "no memory for %u images", max);
	nr = list(c, flat, piece, &all_images);
	qsort(piece, nr, sizeof(*piece), by_name);
	len = place(piece, nr);
	fd = zns_memfd("zns-image");
	if (fd < 0 || ftruncate(fd, (off_t)len))
		return zns_fail_sys(err, -errno, "no memory for %u images", max);
	b = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (b == MAP_FAILED)
		return zns_fail_sys(err, -errno, "no memory for %u images", max);
	all.piece = piece;
	ret = read_all(&all, nr, (uint8_t *)b);
	b->nr = nr;
	b->complete = complete && nr == all_images;
	for (uint32_t i = 0; i < nr; i++) {
		b->image[i] = piece[i].entry;
		if (piece[i].damaged)
			b->image[i].off = 0;
	}
	munmap(b, len);
	if (ret) {
		*err = all.err;
		return ret;
	}
	return zns_take_fd(&fd);
}
