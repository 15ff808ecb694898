/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Throttling: programming heats the drive. When it is hot, it is slow until it has cooled down. */
#include "emu_priv.h"

static void cool(struct emu *e, uint64_t now)
{
	struct emu_heat *h = e->heat;
	uint64_t less;

	if (now <= h->at_ns)
		return;
	less = (uint64_t)((unsigned __int128)(now - h->at_ns) * MIB(e->p.cool_mibps) / 1000000000u);
	h->bytes -= zns_min(h->bytes, less);
	h->at_ns = now;
}

void emu_heat_add(struct emu *e, uint64_t bytes)
{
	if (e->heat)
		e->heat->bytes += bytes;
}

uint32_t emu_heat_pct(struct emu *e, uint64_t now)
{
	struct emu_heat *h = e->heat;

	if (!h)
		return 100;
	cool(e, now);
	if (!h->hot && h->bytes >= MIB(e->p.heat_mib)) {
		h->hot = 1;
		h->times++;
	} else if (h->bytes <= MIB(e->p.heat_mib) / 2) {
		h->hot = 0;
	}
	return h->hot ? e->p.throttle_pct : 100;
}

void emu_heat_clear(struct emu *e)
{
	if (e->heat)
		*e->heat = (struct emu_heat){ 0 };
}
