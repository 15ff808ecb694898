/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * After a migration, the pages are on zones, and all other images are plain files that somebody has
 * copied. Only the names of the images connect the two. So this checks that each task with pages
 * has its other images, and the reverse.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "zns/handle.h"

/* Returns the number in PREFIX-N.img; 0: the name does not have this form. */
static unsigned long number_in(const char *name, const char *prefix)
{
	size_t len = strlen(prefix);
	unsigned long n;
	char *end;

	if (strncmp(name, prefix, len) || name[len] < '1' || name[len] > '9')
		return 0;
	n = strtoul(name + len, &end, 10);
	return strcmp(end, ".img") ? 0 : n;
}

static bool has_image(const ZnsPb__Manifest *m, const char *name)
{
	for (size_t i = 0; i < m->n_images; i++)
		if (!strcmp(m->images[i]->name, name))
			return true;
	return false;
}

/* Does every task of the directory have pages on the zones? */
static int check_dir(int dir, const ZnsPb__Manifest *m, struct zns_err *err)
{
	struct dirent *e;
	char name[64];
	int ret = 0, fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d) {
		if (fd >= 0)
			close(fd);
		return zns_fail_sys(err, -errno, "cannot list the image directory");
	}
	while (!ret && (e = readdir(d))) {
		unsigned long n = number_in(e->d_name, "mm-");

		snprintf(name, sizeof(name), "pagemap-%lu.img", n);
		if (n && !has_image(m, name))
			ret = zns_fail(
				err, -EXDEV,
				"the images in the directory are of another dump than the pages on zones: %s has no %s there",
				e->d_name, name);
	}
	closedir(d);
	return ret;
}

int zns_plain_check(int dir, const ZnsPb__Manifest *m, struct zns_err *err)
{
	char name[64];

	if (faccessat(dir, "inventory.img", F_OK, 0))
		return zns_fail(
			err, -ENOENT,
			"only the pages of this checkpoint have come so far: copy the sender's other images into the image directory");
	for (size_t i = 0; i < m->n_images; i++) {
		unsigned long n = number_in(m->images[i]->name, "pagemap-");

		snprintf(name, sizeof(name), "mm-%lu.img", n);
		if (n && faccessat(dir, name, F_OK, 0))
			return zns_fail(
				err, -EXDEV,
				"the images in the directory are of another dump than the pages on zones, or not all of them: there is no %s",
				name);
	}
	return check_dir(dir, m, err);
}
