/* SPDX-License-Identifier: GPL-2.0-only */
/* metrics of containers: their number of checkpoints, the last checkpoint, the last restore */
#include <string.h>
#include "metrics.h"

/* A negative value means unknown, and is left out. */
static double c_count(const struct metrics_container *m)
{
	return (double)m->nr;
}

static double c_all(const struct metrics_container *m)
{
	return (double)m->bytes;
}

static double c_bytes(const struct metrics_container *m)
{
	return (double)m->c->bytes;
}

static double c_time(const struct metrics_container *m)
{
	return (double)m->c->created_ns / 1e9;
}

static double c_asked(const struct metrics_container *m)
{
	return m->c->qos_requested_mibps * (double)MIB(1);
}

static double c_got(const struct metrics_container *m)
{
	return m->c->has_qos_achieved_mibps ? m->c->qos_achieved_mibps * (double)MIB(1) : -1;
}

static double c_data(const struct metrics_container *m)
{
	return m->c->has_data_phase_us ? (double)m->c->data_phase_us / 1e6 : -1;
}

static double c_frozen(const struct metrics_container *m)
{
	return m->c->has_frozen_us ? (double)m->c->frozen_us / 1e6 : -1;
}

static double r_time(const struct metrics_container *m)
{
	return m->restore ? (double)m->restore->ended_ns / 1e9 : -1;
}

static double r_bytes(const struct metrics_container *m)
{
	return m->restore ? (double)m->restore->bytes : -1;
}

static double r_got(const struct metrics_container *m)
{
	return m->restore && m->restore->has_achieved_mibps ?
		       m->restore->achieved_mibps * (double)MIB(1) :
		       -1;
}

static double r_data(const struct metrics_container *m)
{
	return m->restore && m->restore->has_data_us ? (double)m->restore->data_us / 1e6 : -1;
}

static void line(FILE *f, const char *name, const struct metrics_device *d,
		 const struct metrics_container *m, double value)
{
	const ZnsPb__Origin *o = m->c->origin;

	metrics_line(f, name, value, "device", d->v.id, "container", m->c->container,
		     "container_id", o ? o->container_id : "", "image", o ? o->image : "", "origin",
		     o ? o->kind : "", NULL);
}

void metrics_all_containers(FILE *f, const struct metrics *m)
{
	static const struct {
		const char *name, *help;
		double (*value)(const struct metrics_container *);
	} t[] = {
		{ "zns_container_checkpoints", "Checkpoints of the container.", c_count },
		{ "zns_container_bytes", "Bytes of all its checkpoints.", c_all },
		{ "zns_container_last_checkpoint_bytes", "Bytes of its last checkpoint.", c_bytes },
		{ "zns_container_last_checkpoint_timestamp_seconds",
		  "When its last checkpoint was committed.", c_time },
		{ "zns_container_last_checkpoint_requested_bytes_per_second",
		  "Bandwidth that its last checkpoint asked for; 0: none.", c_asked },
		{ "zns_container_last_checkpoint_achieved_bytes_per_second",
		  "Bandwidth that it got; absent if too short to rate.", c_got },
		{ "zns_container_last_checkpoint_data_seconds",
		  "From the first write of page data to the last completion.", c_data },
		{ "zns_container_last_checkpoint_frozen_seconds",
		  "How long criu kept the tasks frozen.", c_frozen },
		{ "zns_container_last_restore_timestamp_seconds",
		  "When its last restore ended, here since the boot.", r_time },
		{ "zns_container_last_restore_bytes", "Bytes that it read.", r_bytes },
		{ "zns_container_last_restore_achieved_bytes_per_second",
		  "Bandwidth that it got; absent if too short to rate.", r_got },
		{ "zns_container_last_restore_data_seconds",
		  "From its first read to the last completion.", r_data },
	};

	for (size_t k = 0; k < ZNS_ARRAY_SIZE(t); k++) {
		metrics_head(f, t[k].name, "gauge", t[k].help);
		for (const struct metrics_device *d = m->dev; d < m->dev + m->nr; d++)
			for (size_t i = 0; i < d->nr_containers; i++)
				if (t[k].value(&d->containers[i]) >= 0)
					line(f, t[k].name, d, &d->containers[i],
					     t[k].value(&d->containers[i]));
	}
}
