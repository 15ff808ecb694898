/* SPDX-License-Identifier: GPL-2.0-only */
/* Exports a checkpoint as an OCI image: makes its layers */
#include <stdlib.h>
#include <string.h>
#include "export_oci.h"
#include "zns/grow.h"

/* Begins a layer with the directories that contain its files. */
static int layer_dirs(const struct export *x, struct ctl_pack *p, uint32_t level,
		      struct zns_err *err)
{
	char name[160];
	int ret = ctl_pack_dir(p, x->sealed ? CTL_OCI_SEALED : CTL_OCI_CHECKPOINTS, err);

	export_prefix(x, level, name, sizeof(name));
	return ret ? ret : ctl_pack_dir(p, name, err);
}

int export_layer(struct export *x, int fd, uint32_t level, bool link,
		 int (*tee)(void *arg, const void *buf, size_t len), void *arg, uint8_t *buf,
		 struct zns_err *err)
{
	char id[ZNS_UUID_STR], to[128];
	struct ctl_pack *p = NULL;
	/*
	 * use no time for a sealed layer, so that it is the same on every device, whenever it was
	 * copied there
	 */
	int64_t created = x->sealed ? 0 : export_level(x, level)->checkpoint->created_ns;
	int ret = ctl_pack_open(fd, "-", created / 1000000000, &p, err);

	if (!ret && tee)
		ctl_pack_tee(p, tee, arg);
	if (!ret && link) {
		export_id(x, level, id);
		snprintf(to, sizeof(to), CTL_OCI_CHECKPOINTS "/%s", id);
		ret = ctl_pack_link(p, CTL_OCI_LINK, to, err);
	} else if (!ret) {
		ret = layer_dirs(x, p, level, err);
		if (!ret)
			ret = x->sealed ? export_sealed_level(x, p, level, buf, err) :
					  export_pack_level(x, p, level, buf, err);
	}
	return ctl_pack_close(p, ret, err);
}

static int note_layer(struct export_oci *x, const struct ctl_oci *o, uint32_t level, bool link,
		      struct zns_err *err)
{
	struct export_layer *l;

	if (!x->elsewhere)
		return 0;
	if (zns_grow(x->layers, x->nr_layers, x->max_layers))
		return zns_fail(err, -ENOMEM, "no memory for the layers of the OCI image");
	l = &x->layers[x->nr_layers++];
	*l = (struct export_layer){ .level = level, .link = link };
	l->size = ctl_oci_last(o, l->digest);
	return 0;
}

/* Makes the layer of level @level of the chain, or the layer with the link to the newest level. */
static int layer(struct export_oci *e, struct ctl_oci *o, uint32_t level, bool link, uint8_t *buf,
		 struct zns_err *err)
{
	struct export *x = &e->x;
	char id[ZNS_UUID_STR];
	int fd, ret = ctl_oci_layer(o, &fd, err);

	if (ret)
		return ret;
	ret = export_layer(x, fd, level, link, ctl_oci_seen, o, buf, err);
	export_id(x, level, id);
	if (!ret)
		ret = x->sealed ? export_sealed_end(x, o, level, err) :
				  ctl_oci_layer_end(o, link ? NULL : id, NULL, NULL, err);
	return ret ? ret : note_layer(e, o, level, link, err);
}

int export_to_oci(struct export_oci *e, struct zns_err *err)
{
	struct export *x = &e->x;
	cleanup_free uint8_t *buf = malloc(EXPORT_CHUNK);
	const ZnsPb__Origin *origin = x->h.c->origin;
	struct ctl_oci *o = NULL;
	int ret = buf ? ctl_oci_open(x->target, e->elsewhere, &o, err) :
			zns_fail(err, -ENOMEM, "no memory for a buffer");

	for (uint32_t l = ret ? 0 : export_levels(x); l-- > 0 && !ret;)
		ret = layer(e, o, l, false, buf, err);
	if (!ret && !x->sealed) /* a sealed layer contains no images that criu could read */
		ret = layer(e, o, 0, true, buf, err);
	if (!ret)
		ret = ctl_oci_publish(o, x->h.c->container, origin ? origin->kind : NULL,
				      x->h.c->created_ns, e->digest, err);
	ctl_oci_close(o);
	return ret;
}

/* ---- a form of export ---- */

static int write_image(struct export *x, struct zns_err *err)
{
	return export_to_oci((struct export_oci *)x, err);
}

static const char *folder(const struct export *x)
{
	return x->sealed ? CTL_OCI_SEALED : CTL_OCI_CHECKPOINTS;
}

static const char *digest(const struct export *x)
{
	return ((const struct export_oci *)x)->digest;
}

static void advise(const struct export *x)
{
	printf("its digest is %s; send it with: skopeo copy --preserve-digests oci:%s docker://REGISTRY/NAME:TAG\n",
	       digest(x), ctl_text(x->target));
}

const struct export_form export_oci_form = { .sealed = export_is_sealed,
					     .folder = folder,
					     .write = write_image,
					     .digest = digest,
					     .advise = advise };

void export_oci_end(struct export_oci *e)
{
	export_end(&e->x);
	free(e->layers);
}
