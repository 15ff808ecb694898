/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A restore opens a handful of small images for each process. The helper's first answer contains
 * all of them, in memory that criu's processes share. An image is copied from there, without a
 * request to the helper.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cr_options.h"
#include "log.h"
#include "zns-bundle.h"
#include "zns-link.h"
#include "zns-memfd.h"
#include "zns-wire.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

static const struct zw_bundle *bundle;
static size_t size;

int zns_bundle_take(int fd)
{
	struct stat st;
	void *mem;

	if (fd < 0)
		return 0; /* without a bundle criu requests every image separately */
	mem = fstat(fd, &st) ? MAP_FAILED : mmap(NULL, st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (mem == MAP_FAILED) {
		pr_perror("Can't map the images");
		return -1;
	}
	bundle = mem;
	size = st.st_size;
	if (size >= sizeof(*bundle) &&
	    bundle->nr <= (size - sizeof(*bundle)) / sizeof(bundle->image[0]))
		return 0;
	pr_err("zns-helper and criu are of different builds: install both from one\n");
	return -1;
}

void zns_bundle_drop(void)
{
	if (bundle)
		munmap((void *)bundle, size);
	bundle = NULL;
}

static int by_name(const void *name, const void *image)
{
	return strncmp(name, ((const struct zw_bundle_image *)image)->name, ZW_NAME);
}

int zns_bundle_open(const char *name, bool pages)
{
	const struct zw_bundle_image *i;
	int fd;

	/*
	 * only a restore that is not lazy takes pages from the bundle; otherwise the helper reads
	 * them
	 */
	if (!bundle || (pages && (opts.mode != CR_RESTORE || opts.lazy_pages)))
		return -EAGAIN;
	i = bsearch(name, bundle->image, bundle->nr, sizeof(*i), by_name);
	if (!i)
		return bundle->complete ? -ENOENT : -EAGAIN;
	if (!i->off || i->off > size || i->len > size - i->off)
		return -EAGAIN;
	fd = zns_memfd("zns-image");
	if (fd < 0)
		return -errno;
	if (i->len && pwrite(fd, (const char *)bundle + i->off, i->len, 0) != i->len) {
		pr_perror("Can't copy image %s", name);
		close(fd);
		return -ENOMEM;
	}
	return fd;
}
