/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reports progress and the present state to the caller from time to time. The run can be continued
 * from this state.
 */
#include <stdlib.h>

#include "probe_priv.h"

#define TICK_NS UINT64_C(200000000)
#define CHECKPOINT_NS UINT64_C(2000000000)

void probe_save_state(struct probe *p, uint64_t now)
{
	void *state;
	size_t len;

	p->last_checkpoint = now;
	if (!p->par->checkpoint || p->by_writes || zns_probe_save(p->map, &state, &len))
		return;
	p->par->checkpoint(p->par->arg, state, len);
	free(state);
}

void probe_tick(struct probe *p, uint32_t done, uint32_t total)
{
	uint64_t now = zns_mono_ns();
	double spent = (now - p->phase_wall0) / 1e9;

	if (now - p->last_checkpoint >= CHECKPOINT_NS && p->map->phase != ZNS_PROBE_CALIBRATE)
		probe_save_state(p, now);
	if (!p->par->progress || (now - p->last_progress < TICK_NS && done != total))
		return;
	p->last_progress = now;
	p->par->progress(p->par->arg,
			 &(struct zns_probe_progress){
				 .phase = p->map->phase,
				 .done = zns_min(done, total),
				 .total = total,
				 .groups = p->map->nr_groups,
				 .written = p->map->written,
				 .budget = p->budget,
				 .left_s = done && spent > 0.5 ?
						   spent / done * (total - zns_min(done, total)) :
						   -1,
			 });
}
