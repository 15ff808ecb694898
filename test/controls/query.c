/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Queries to the timing model: see controls.h. */
#include "control.h"

/* Every call below starts with this. */
static int enter(struct zns_dev *dev, struct zns_err *err)
{
	return dev->ops == &emu_ops ? emu_model_ask(emu_of(dev), err) :
				      emu_refuse_foreign(dev, err);
}

int zns_emu_model_submit(struct zns_dev *dev, enum zns_emu_op op, uint32_t zone, uint64_t bytes,
			 uint64_t issue_ns, uint64_t *done_ns, struct zns_err *err)
{
	struct emu *e = emu_of(dev);
	int rc = enter(dev, err);

	if (rc)
		return rc;
	if (op != ZNS_EMU_OP_FLUSH)
		rc = emu_check_zone(e, zone, err);
	if (!rc && ((unsigned)op > ZNS_EMU_OP_FLUSH_ZONE || bytes > GIB(1024)))
		rc = zns_fail(err, -EINVAL, "unknown command %u or too large", (unsigned)op);
	if (!rc)
		*done_ns = emu_model_run(e, op, zone, 0, bytes, issue_ns);
	emu_model_leave(e);
	return rc;
}

int zns_emu_model_load(struct zns_dev *dev, enum zns_emu_unit unit, uint32_t nr,
		       struct zns_emu_load *out, struct zns_err *err)
{
	struct emu *e = emu_of(dev);
	const struct emu_cal *c = NULL;
	uint32_t alike = 1; /* with a shared map the first die stands for all */
	int rc = enter(dev, err);

	if (rc)
		return rc;
	if (unit == ZNS_EMU_DIE && nr < e->p.channels * e->p.ways) {
		alike = e->p.map == ZNS_EMU_MAP_SHARED ? e->p.channels * e->p.ways : 1;
		c = &e->die_cal[alike > 1 ? 0 : nr];
	} else if (unit == ZNS_EMU_CHANNEL && nr < e->p.channels) {
		alike = e->p.map == ZNS_EMU_MAP_SHARED ? e->p.channels : 1;
		c = &e->channel_cal[alike > 1 ? 0 : nr];
	} else if (unit == ZNS_EMU_CONTROLLER && !nr) {
		c = &e->model->controller;
	}
	if (c)
		*out = (struct zns_emu_load){
			.busy_ns = c->busy_ns,
			.idle_from_ns = emu_cal_idle_from(c),
			.written = c->written / alike,
			.read = c->read / alike,
		};
	emu_model_leave(e);
	return c ? 0 :
		   zns_fail(err, -EINVAL, "%s: no die, channel or controller %u", dev->path, nr);
}

int zns_emu_model_clock(struct zns_dev *dev, uint64_t *out_ns, struct zns_err *err)
{
	int rc = enter(dev, err);

	if (rc)
		return rc;
	*out_ns = emu_of(dev)->model->clock_ns;
	emu_model_leave(emu_of(dev));
	return 0;
}

uint64_t zns_emu_model_stalls(struct zns_dev *dev)
{
	uint64_t n;

	if (enter(dev, NULL))
		return 0;
	n = emu_of(dev)->model->stalls;
	emu_model_leave(emu_of(dev));
	return n;
}

uint64_t zns_emu_thread_clock(struct zns_dev *dev)
{
	return dev->ops == &emu_ops ? emu_timing_issue(emu_of(dev)) : 0;
}

void zns_emu_set_thread_clock(struct zns_dev *dev, uint64_t ns)
{
	if (dev->ops == &emu_ops)
		*emu_thread_clock(emu_of(dev)) = ns;
}
