/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Finds layers that need not be fetched, because the device already has a checkpoint that was
 * imported from the same layer: from an image of the same chain, or by an import that was killed
 * halfway. The data of a checkpoint stay equal to its layer, unless it is flattened: that removes
 * its parent, so it does not match any more.
 */
#include <string.h>
#include "import_oci.h"

static bool is_parent(const ZnsPb__Checkpoint *c, const char *parent)
{
	char id[ZNS_UUID_STR];

	if (!c->has_parent || !parent)
		return !c->has_parent && !parent;
	return !strcmp(zns_uuid_format(c->parent.data, id), parent);
}

static bool came_in(const ZnsPb__Checkpoint *c, const uint8_t sha[CTL_OCI_SHA_BYTES])
{
	return c->origin && c->origin->has_layer && c->origin->layer.len == CTL_OCI_SHA_BYTES &&
	       !memcmp(c->origin->layer.data, sha, CTL_OCI_SHA_BYTES);
}

int import_there(const struct import *x, const struct ctl_oci_layer *l, const char *parent,
		 const char *spec, uint8_t id[ZNS_UUID_LEN], struct zns_err *err)
{
	cleanup_answer ZnsPb__Response *ls = NULL;
	uint8_t sha[CTL_OCI_SHA_BYTES];
	struct zns_session s;
	int ret;

	if (!ctl_oci_unhex(ctl_oci_digits(l->digest), sha, sizeof(sha)))
		return 0;
	ret = ctl_session_open(&s, spec, ZNS_READS, err);
	if (ret)
		return ret;
	ret = ctl_ls(&s.broker, &ls, err);
	for (size_t i = 0; !ret && i < ls->n_checkpoints; i++) {
		const ZnsPb__Checkpoint *c = ls->checkpoints[i];

		/*
		 * an import without a name does not use a checkpoint whose container was named by a
		 * user: it would become the parent of a checkpoint of unknown origin
		 */
		if (came_in(c, sha) && (x->named || c->origin->claimed) && is_parent(c, parent) &&
		    !strcmp(c->container, x->container)) {
			memcpy(id, c->id.data, ZNS_UUID_LEN);
			ret = 1;
		}
	}
	zns_session_close(&s);
	return ret;
}
