/* SPDX-License-Identifier: GPL-2.0-only */
/* show --layout: how fast checkpoints can be read as they lie */
#include "../ctl/lib/print.h"
#include "layout.h"

static int profile_of(struct zns_broker *b, ZnsPb__Response **out, struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;

	req.has_profile = req.profile = 1;
	return zns_broker_call(b, &req, out, err);
}

/* Tells how one checkpoint can be read: adds it to @list, or prints text. */
static int show_layout(struct ctl_hold *h, struct json_object *list, struct zns_err *err)
{
	char id[ZNS_UUID_STR], name[CTL_NAME];
	ZnsPb__Response *r = NULL;
	struct layout l = { 0 };
	int ret = profile_of(&h->s.broker, &r, err);

	if (!ret)
		ret = layout_of(h->m, r->profile, &l, err);
	zns_uuid_format(h->c->id.data, id);
	if (!ret && list) {
		json_object_array_add(list,
				      ctl_json_join(ctl_obj(J("id", (const char *)id),
							    J("container", h->c->container)),
						    layout_json(&l, h->c, h->answer->restore)));
	} else if (!ret) {
		printf("checkpoint  %s\ncontainer   %s\n", id,
		       ctl_name(h->c->container, name, sizeof(name)));
		layout_print(&l, h->c, h->answer->restore);
	}
	layout_fini(&l);
	if (r)
		zns_pb__response__free_unpacked(r, NULL);
	return ret;
}

int show_layouts(const char *dev, const struct ctl_pick *p, struct json_object *list,
		 struct zns_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < p->nr && !ret; i++) {
		char id[ZNS_UUID_STR];
		struct ctl_hold h;

		ret = ctl_hold_open(&h, dev, zns_uuid_format(p->ids[i], id), err);
		if (ret == -ESTALE) { /* removed meanwhile */
			ret = err->code = 0;
			continue;
		}
		if (!ret)
			ret = show_layout(&h, list, err);
		ctl_hold_close(&h);
	}
	return ret;
}
