/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Imports an OCI image (oci.h). From an image of ours, each layer with a checkpoint is imported,
 * and sealed ones keep their ids. From other images (Podman, checkpointctl) the layer with a
 * directory `checkpoint` is imported. Either all layers are imported or none: if one fails, earlier
 * ones are removed again. Parents that the device has already are not fetched.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include "import_oci.h"

#define FOREIGN "checkpoint/"

struct level {
	struct import x;
	const struct ctl_oci_layer *layer;
	char inside[64], parent[ZNS_UUID_STR]; /* referred to by x */
	uint8_t sha[CTL_OCI_SHA_BYTES]; /* referred to by x */
	struct import_stream stream; /* referred to by x */
	struct ctl_oci_check check;
	bool there; /* the device has it already: nothing was imported */
	/* NULL: the layer is a file whose digest was compared */
	const struct ctl_oci_source *from;
};

struct import_levels {
	struct level *l; /* sorted, with the newest last */
	size_t nr, done; /* nr: number of layers; done: number of imports that were begun */
};

static int right(void *arg, struct zns_err *err)
{
	struct level *l = arg;
	int ret = ctl_oci_check_end(&l->check, err);

	if (!ret && l->from->end)
		ret = l->from->end(l->from->arg, err);
	return ret ? zns_wrap(err, "%s", l->x.path) : 0;
}

static void seen(void *arg, const void *buf, size_t len)
{
	ctl_oci_check_add(&((struct level *)arg)->check, buf, len);
}

/*
 * For layers of ours: each is read once, and its digest is compared before the checkpoint is
 * durable.
 */
static int open_stream(struct level *l, const struct import *model, struct zns_err *err)
{
	int ret = ctl_oci_check_begin(&l->check, l->layer, err);

	l->x = *model;
	l->x.v.s = &l->x.s;
	l->x.inside = l->inside;
	l->stream = (struct import_stream){ .fd = -1,
					    .bytes = l->layer->size,
					    .seen = seen,
					    .right = right,
					    .arg = l,
					    .patience = l->from->patience };
	l->x.stream = &l->stream;
	if (!ret) {
		l->stream.fd = l->from->open(l->from->arg, l->layer, err);
		ret = l->stream.fd < 0 ? zns_wrap(err, "%s", model->path) : 0;
	}
	return ret;
}

/* Called when a layer has ended too early: the source may know the reason. */
static void ask_source(const struct level *l, struct zns_err *err)
{
	struct pollfd p = { .fd = l->stream.fd, .events = POLLIN };
	struct zns_err why = ZNS_ERR_INIT;

	if (!l->from || !l->from->end || l->check.bytes >= l->layer->size)
		return;
	if (poll(&p, 1, 0) != 1 || p.revents != POLLHUP)
		return; /* not if there are more data: then the error is about their contents */
	if (!l->from->end(l->from->arg, &why))
		return;
	zns_wrap(&why, "%s", l->x.path);
	*err = why;
}

static void close_stream(struct level *l)
{
	if (!l->from)
		return;
	if (l->stream.fd >= 0)
		close(l->stream.fd);
	l->stream.fd = -1;
	ctl_oci_check_drop(&l->check);
}

/* Opens a layer of another program, whose digest was compared before. */
static int open_level(struct level *l, const struct import *model, const struct ctl_oci_image *i,
		      struct zns_err *err)
{
	l->x = *model;
	l->x.v.s = &l->x.s;
	l->x.inside = l->inside;
	l->x.archive = ctl_oci_blob(i, l->layer, &l->x.archive_st, err);
	return l->x.archive < 0 ? zns_wrap(err, "%s", model->path) : 0;
}

/* Names the container if the user has not: by the annotation, else by the directory's name. */
static void name_it(struct import *x, const struct ctl_oci_image *i)
{
	const char *end = x->path + strcspn(x->path, ":"), *base = end;

	if (x->container[0])
		return;
	while (base > x->path && base[-1] != '/')
		base--;
	snprintf(x->container, sizeof(x->container), "%.*s",
		 *i->name ? (int)sizeof(x->container) - 1 : (int)(end - base),
		 *i->name ? i->name : base);
}

/* For an image of another program: does this layer contain a checkpoint? Returns 1 or 0. */
static int has_one(struct level *l, const struct import *model, const struct ctl_oci_image *i,
		   struct zns_err *err)
{
	int ret = open_level(l, model, i, err);

	if (!ret) {
		ret = import_archive_scan(&l->x, err);
		if (ret && l->x.empty)
			ret = 0;
		else if (!ret)
			ret = 1;
	}
	import_fini(&l->x);
	return ret;
}

/* Finds the layers that are checkpoints of ours, and returns their number. */
static size_t find_ours(struct level *l, const struct ctl_oci_image *i,
			const struct ctl_oci_source *from)
{
	size_t nr = 0;

	for (size_t k = 0; k < i->nr; k++) {
		if (!*i->layers[k].id)
			continue;
		l[nr].layer = &i->layers[k];
		l[nr].from = from;
		snprintf(l[nr].inside, sizeof(l->inside), "%s/%s/",
			 i->layers[k].sealed ? CTL_OCI_SEALED : CTL_OCI_CHECKPOINTS,
			 i->layers[k].id);
		nr++;
	}
	return nr;
}

/* Finds the layer with the checkpoint in an image of another program. Returns 1, or an error. */
static int find_foreign(struct level *l, const struct import *model, const struct ctl_oci_image *i,
			struct zns_err *err)
{
	int ret = 0;

	strcpy(l->inside, FOREIGN);
	/* from the last layer on, since files of upper layers hide those of lower ones */
	for (size_t k = i->nr; !ret && k-- > 0;) {
		l->layer = &i->layers[k];
		ret = has_one(l, model, i, err);
	}
	return ret ? ret :
		     zns_fail(
			     err, -EINVAL,
			     "%s is no image of a checkpoint: no layer of it has a directory checkpoint",
			     model->path);
}

static void is_there(struct level *l, const struct import *model)
{
	l->there = true;
	l->x = *model;
	l->x.v.s = &l->x.s;
}

/* Checks whether the device has this checkpoint already, so that it is not fetched. */
static int look_there(struct level *l, const struct import *model, const char *parent, bool newest,
		      const char *spec, struct zns_err *err)
{
	uint8_t id[ZNS_UUID_LEN];
	int ret = 0;

	if (l->layer->sealed)
		ret = import_sealed_there(l->layer, spec, err);
	else if (l->from && !newest)
		ret = import_there(model, l->layer, parent, spec, id, err);
	if (ret > 0 && newest)
		ret = zns_fail(err, -EEXIST, "checkpoint %s is there already: `znsctl show %s`",
			       l->layer->id, l->layer->id);
	if (ret <= 0)
		return ret ? zns_wrap(err, "%s", model->path) : 0;
	is_there(l, model);
	if (l->layer->sealed)
		return zns_uuid_parse(l->layer->id, l->x.v.id);
	memcpy(l->x.v.id, id, sizeof(id));
	return 0;
}

static int import_level(struct level *l, const struct import *model, const struct ctl_oci_image *i,
			const char *parent, bool newest, const char *spec, const char *handle,
			struct zns_err *err)
{
	int ret = look_there(l, model, parent, newest, spec, err);

	if (ret || l->there)
		return ret;
	ret = l->from ? open_stream(l, model, err) : open_level(l, model, i, err);
	if (ret)
		return ret;
	if (l->layer->sealed)
		return import_sealed_run(&l->x, l->layer, parent, newest, spec, handle, err);
	l->x.parent_id = parent;
	l->x.by_layer = true;
	if (l->from && ctl_oci_unhex(ctl_oci_digits(l->layer->digest), l->sha, sizeof(l->sha)))
		l->x.layer = l->sha;
	return import_run(&l->x, spec, handle, err);
}

static int import_all(struct import_levels *v, const struct import *model,
		      const struct ctl_oci_image *i, const char *spec, const char *handle,
		      struct zns_err *err)
{
	int ret = 0;

	while (!ret && v->done < v->nr) {
		struct level *l = &v->l[v->done++];
		bool newest = v->done == v->nr;
		const char *to = newest ? handle : NULL;

		if (l != v->l)
			zns_uuid_format(l[-1].x.v.id, l->parent);
		ret = import_level(l, model, i, l != v->l ? l->parent : NULL, newest, spec, to,
				   err);
		if (ret)
			ask_source(l, err);
		close_stream(l);
	}
	for (size_t k = v->done; ret && k-- > 0;)
		if (k + 1 < v->done && !v->l[k].there)
			zns_save_roll_back(&v->l[k].x.v, "an import that failed later", err);
	return ret;
}

static struct import_levels *levels_new(const struct ctl_oci_image *i, struct zns_err *err)
{
	struct import_levels *v = calloc(1, sizeof(*v));

	if (v)
		v->l = calloc(i->nr + 1, sizeof(*v->l));
	if (v && v->l)
		return v;
	free(v);
	zns_fail(err, -ENOMEM, "no memory for a list of layers");
	return NULL;
}

int import_oci_from(const struct import *model, const struct ctl_oci_image *i,
		    const struct ctl_oci_source *from, const char *spec, const char *handle,
		    struct import_levels **out, struct zns_err *err)
{
	struct import_levels *v = *out = levels_new(i, err);
	struct import named = *model;

	if (!v)
		return -ENOMEM;
	name_it(&named, i);
	v->nr = find_ours(v->l, i, from);
	if (!v->nr)
		return zns_fail(err, -ENODATA, "%s has no layer of ours", model->path);
	return import_all(v, &named, i, spec, handle, err);
}

static int blob_of(void *arg, const struct ctl_oci_layer *l, struct zns_err *err)
{
	struct stat st;

	return ctl_oci_blob_open(arg, l, &st, err);
}

int import_oci(const struct import *model, const char *spec, const char *handle,
	       struct import_levels **out, struct zns_err *err)
{
	struct ctl_oci_image i = CTL_OCI_IMAGE_INIT;
	struct ctl_oci_source from = { .open = blob_of, .arg = &i };
	struct import named = *model;
	int ret = ctl_oci_read(model->path, &i, err);

	if (!ret)
		ret = import_oci_from(model, &i, &from, spec, handle, out, err);
	if (ret == -ENODATA && !(*out)->nr) { /* an image of another program */
		err->code = 0;
		name_it(&named, &i);
		ret = find_foreign((*out)->l, &named, &i, err);
		if (ret > 0) {
			(*out)->nr = 1;
			ret = import_all(*out, &named, &i, spec, handle, err);
		}
	}
	ctl_oci_image_close(&i);
	return ret;
}

bool import_oci_begun(const struct import_levels *v)
{
	return v->done > 0;
}

const struct import *import_oci_last(const struct import_levels *v)
{
	return &v->l[v->nr - 1].x;
}

void import_oci_end(struct import_levels *v)
{
	for (size_t k = v ? v->done : 0; k-- > 0;)
		if (v->l[k].x.v.s) /* only if its import was begun */
			import_end(&v->l[k].x);
	if (v)
		free(v->l);
	free(v);
}

static int run(const struct import *model, const char *spec, const char *handle, void **found,
	       struct zns_err *err)
{
	return import_oci(model, spec, handle, (struct import_levels **)found, err);
}

static const struct import *newest(const void *found)
{
	return import_oci_last(found);
}

static void end(void *found)
{
	import_oci_end(found);
}

const struct import_source import_oci_source = { .run = run, .newest = newest, .end = end };
