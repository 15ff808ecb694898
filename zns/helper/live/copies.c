/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Plain copies of small images. A file system needs about a millisecond to make a file, and the
 * tasks are frozen. So a thread writes the copies under temporary names while data and record
 * become durable. Afterwards they are only renamed.
 */
#include <stdlib.h>
#include <string.h>
#include "../dump/dump_session.h"
#include "zns/safeopen.h"

struct copying {
	struct dump *d;
	pthread_t thread;
	bool started;
	struct zns_err err;
};

static void part_name(const struct copy *k, char out[ZW_NAME + 16])
{
	snprintf(out, ZW_NAME + 16, "%s.zns-part", k->name);
}

/*
 * Writes one copy. It is not synced: copies are only a convenience for tools, and the hash in the
 * handle reveals a stale or torn copy.
 */
static int write_part(int dir, const struct copy *k)
{
	char part[ZW_NAME + 16];

	part_name(k, part);
	return zns_put_file(dir, part, k->data, k->len);
}

static void *run(void *arg)
{
	struct copying *c = arg;
	int ret = 0;

	for (const struct copy *k = c->d->copies; k && !ret; k = k->next) {
		ret = k->beside ? 0 : write_part(c->d->h->dir, k);
		if (ret)
			zns_fail_sys(&c->err, ret, "cannot write %s into the image directory",
				     k->name);
	}
	return NULL;
}

int copies_begin(struct dump *d, struct zns_err *err)
{
	struct copying *c = calloc(1, sizeof(*c));

	if (!c)
		return zns_fail(err, -ENOMEM, "no memory for copies of images");
	c->d = d;
	d->copying = c;
	c->started = !pthread_create(&c->thread, NULL, run, c);
	if (!c->started)
		run(c);
	return 0;
}

int copies_end(struct dump *d, bool keep, struct zns_err *err)
{
	struct copying *c = d->copying;
	char part[ZW_NAME + 16];
	int ret;

	if (!c)
		return 0;
	if (c->started)
		pthread_join(c->thread, NULL);
	ret = c->err.code;
	if (ret && keep)
		*err = c->err;
	for (const struct copy *k = d->copies; k; k = k->next) {
		if (k->beside)
			continue;
		part_name(k, part);
		if (!keep || ret)
			unlinkat(d->h->dir, part, 0);
		else if (renameat(d->h->dir, part, d->h->dir, k->name))
			ret = zns_fail_sys(err, -errno, "cannot write %s into the image directory",
					   k->name);
	}
	free(c);
	d->copying = NULL;
	return ret;
}
