/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Writes one image of an import to the checkpoint. A small image is also kept in memory, for its
 * copy beside the handle.
 */
#include <string.h>
#include "import.h"

#define CHUNK MIB(16) /* bytes between two progress reports */

/*
 * Was this file written by another program than criu? criu's images begin with a magic number, or
 * their names are known. Plugins write other files.
 */
static bool is_beside(const char *name, const uint8_t *b, uint64_t size)
{
	static const char *const raw[] = { "pages-",    "tmpfs-",    "iptables-", "ip6tables-",
					   "nftables-", "ifaddr-",   "route-",    "route6-",
					   "rule-",     "netns-ct-", "netns-exp-" };
	/* magic numbers of images, of service files, and of the inventory */
	static const uint32_t magic[] = { 0x54564319, 0x55105940, IMPORT_INVENTORY_MAGIC };
	uint32_t v;

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(raw); i++)
		if (!strncmp(name, raw[i], strlen(raw[i])))
			return false;
	if (size < 4)
		return true;
	v = b[0] | b[1] << 8 | b[2] << 16 | (uint32_t)b[3] << 24;
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(magic); i++)
		if (v == magic[i])
			return false;
	return true;
}

static bool may_copy(const struct import *x, const struct import_file *f)
{
	if (x->handle.dir < 0 && !x->join)
		return false;
	if (x->v.crypt) /* the same rule as for a dump */
		return !strcmp(f->name, "inventory.img") && f->size <= ZNS_HANDLE_COPY_MAX;
	return x->nr_copies < IMPORT_COPIES_MAX && f->size <= ZNS_HANDLE_COPY_MAX &&
	       x->copies + f->size <= ZNS_HANDLE_COPIES_MAX && strncmp(f->name, "pages-", 6);
}

/* Keeps a copy of the bytes that go to the device, so that nothing is read twice. */
static int keep_copy(struct import *x, struct import_file *f, const uint8_t *data,
		     struct zns_err *err)
{
	f->copy = malloc(f->size + 1);
	if (!f->copy)
		return zns_fail(err, -ENOMEM, "no memory for a copy of %s", f->name);
	memcpy(f->copy, data, f->size);
	x->copies += f->size;
	x->nr_copies++;
	return 0;
}

int import_image(struct import *x, struct import_file *f, import_get get, void *arg,
		 struct zns_err *err)
{
	struct zns_wimage *img;
	int ret;

	if (!x->buf)
		x->buf = malloc(CHUNK);
	if (!x->buf)
		return zns_fail(err, -ENOMEM, "no memory for a buffer");
	ret = zns_writer_image(x->v.w, f->name, !strncmp(f->name, "pages-", 6), &img, err);
	if (!ret && !f->size && is_beside(f->name, x->buf, 0))
		zns_wimage_set_beside(img);
	for (uint64_t off = 0; off < f->size && !ret; off += CHUNK) {
		size_t len = zns_min(CHUNK, f->size - off);

		ret = get(arg, x->buf, len, off, err);
		if (ret)
			return ret;
		if (!off && is_beside(f->name, x->buf, f->size))
			zns_wimage_set_beside(img);
		ret = zns_wimage_data(img, x->buf, len, err);
		ctl_progress_add(&x->prog, len);
	}
	if (!ret && may_copy(x, f))
		ret = keep_copy(x, f, x->buf, err);
	return ret ? ret : zns_wimage_seal(img, err);
}
