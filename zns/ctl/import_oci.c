/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Import of an OCI image (oci.h): of ours, a checkpoint for each layer that is one's; of others
 * (Podman, checkpointctl), the layer that has a directory `checkpoint`. All of them or none: what
 * came first is removed if a later one fails.
 */
#include <stdlib.h>
#include <string.h>
#include "import.h"
#include "oci.h"

#define FOREIGN "checkpoint/"

struct level {
	struct import x;
	const struct ctl_oci_layer *layer;
	char inside[64], parent[ZNS_UUID_STR]; /* borrowed by x */
};

struct import_levels {
	struct level *l; /* the newest last */
	size_t nr, done; /* of them, imports that were begun */
};

/* A layer, whose digest is right. */
static int open_level(struct level *l, const struct import *model, const struct ctl_oci_image *i,
		      struct zns_err *err)
{
	l->x = *model;
	l->x.v.s = &l->x.s;
	l->x.inside = l->inside;
	l->x.archive = ctl_oci_blob(i, l->layer, &l->x.archive_st, err);
	return l->x.archive < 0 ? zns_wrap(err, "%s", model->path) : 0;
}

/* Whose image it is, if nobody said: the annotation's, else the directory's name. */
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

/* Of a stranger's image: has this layer a checkpoint? 1 yes, 0 no. */
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

/* Which layers are checkpoints: their number, or an error. */
static int find(struct level *l, const struct import *model, const struct ctl_oci_image *i,
		struct zns_err *err)
{
	int nr = 0;

	for (size_t k = 0; k < i->nr; k++) {
		if (!*i->layers[k].id)
			continue;
		l[nr].layer = &i->layers[k];
		snprintf(l[nr].inside, sizeof(l->inside), CTL_OCI_CHECKPOINTS "/%s/",
			 i->layers[k].id);
		nr++;
	}
	for (size_t k = i->nr; !nr && k-- > 0;) { /* what is above hides what is below */
		int ret;

		l->layer = &i->layers[k];
		strcpy(l->inside, FOREIGN);
		ret = has_one(l, model, i, err);
		if (ret < 0)
			return ret;
		nr = ret;
	}
	return nr ? nr :
		    zns_fail(err, -EINVAL,
			     "%s is no image of a checkpoint: no layer of it has a directory checkpoint",
			     model->path);
}

static int import_all(struct import_levels *v, const struct import *model,
		      const struct ctl_oci_image *i, const char *spec, const char *handle,
		      int (*one)(struct import *x, const char *spec, const char *handle,
				 struct zns_err *err),
		      struct zns_err *err)
{
	int ret = 0;

	while (!ret && v->done < v->nr) {
		struct level *l = &v->l[v->done++];

		ret = open_level(l, model, i, err);
		if (l != v->l) {
			zns_uuid_format(l[-1].x.v.id, l->parent);
			l->x.parent_id = l->parent;
		}
		if (!ret)
			ret = one(&l->x, spec, v->done == v->nr ? handle : NULL, err);
	}
	for (size_t k = v->done; ret && k-- > 0;)
		if (k + 1 < v->done)
			zns_save_roll_back(&v->l[k].x.v, "an import that failed later", err);
	return ret;
}

int import_oci(const struct import *model, const char *spec, const char *handle,
	       int (*one)(struct import *x, const char *spec, const char *handle,
			  struct zns_err *err),
	       struct import_levels **out, struct zns_err *err)
{
	struct import_levels *v = *out = calloc(1, sizeof(*v));
	struct ctl_oci_image i = CTL_OCI_IMAGE_INIT;
	struct import named = *model;
	int ret = v ? ctl_oci_read(model->path, &i, err) : zns_fail_sys(err, -ENOMEM, "layers");

	if (!ret) {
		name_it(&named, &i);
		v->l = calloc(i.nr, sizeof(*v->l));
		ret = v->l ? find(v->l, &named, &i, err) : zns_fail_sys(err, -ENOMEM, "layers");
	}
	if (ret > 0) {
		v->nr = (size_t)ret;
		ret = import_all(v, &named, &i, spec, handle, one, err);
	}
	ctl_oci_image_close(&i);
	return ret;
}

const struct import *import_oci_last(const struct import_levels *v)
{
	return &v->l[v->nr - 1].x;
}

void import_oci_end(struct import_levels *v)
{
	for (size_t k = v ? v->done : 0; k-- > 0;)
		import_end(&v->l[k].x);
	if (v)
		free(v->l);
	free(v);
}
