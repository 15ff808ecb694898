/* SPDX-License-Identifier: GPL-2.0-only */
/* metrics as JSON */
#include <string.h>
#include "metrics.h"

static struct json_object *container(const struct metrics_container *m)
{
	const ZnsPb__Origin *o = m->c->origin;

	return ctl_obj(
		J("container", m->c->container), J("container_id", o ? o->container_id : NULL),
		J("image", o ? o->image : NULL), J("origin", o ? o->kind : NULL),
		J("checkpoints", m->nr), J("bytes", m->bytes), J("last", ctl_json_checkpoint(m->c)),
		J("last_restore", m->restore ? ctl_json(m->restore, ctl_restore_fields) : NULL));
}

struct json_object *metrics_device_json(const struct metrics_device *d)
{
	struct json_object *j, *list = json_object_new_array(), *groups = json_object_new_array();
	const ZnsPb__Status *s = ctl_view_up(&d->v) ? d->v.status->status : NULL;

	j = ctl_obj(J("device", (const char *)d->v.id), J("path", (const char *)d->v.reg.path),
		    JB("up", s));
	ctl_json_add(j, &zns_pb__status__descriptor, s,
		     "bytes_live bytes_free bytes_wasted zones_by_state= checkpoints= leases= "
		     "waiting=nr_waiting!");
	if (s) {
		json_object_object_add(j, "zones_by_state", ctl_json_zones(s));
		json_object_object_add(j, "checkpoints", ctl_j_uint(d->v.ls->n_checkpoints));
		json_object_object_add(j, "leases", ctl_j_uint(s->n_leases));
	}
	json_object_object_add(j, "counters",
			       s ? ctl_json(d->v.history->history->all, CTL_COUNTERS) : NULL);
	for (uint32_t i = 0; i < d->v.nr_groups; i++)
		json_object_array_add(groups, ctl_view_group_json(&d->v, i));
	json_object_object_add(j, "groups", groups);
	for (size_t i = 0; s && i < d->nr_containers; i++)
		json_object_array_add(list, container(&d->containers[i]));
	json_object_object_add(j, "containers", list);
	return j;
}

struct json_object *metrics_json(const struct metrics *m)
{
	struct json_object *list = json_object_new_array(), *contexts = json_object_new_array();

	for (size_t i = 0; i < m->nr; i++)
		json_object_array_add(list, metrics_device_json(&m->dev[i]));
	for (size_t i = 0; i < m->nr_contexts; i++)
		json_object_array_add(contexts, memory_json(m->context[i]->status));
	return ctl_obj(J("devices", list), J("contexts", contexts));
}
