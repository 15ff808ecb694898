// SPDX-License-Identifier: GPL-2.0-only
/* One request to its handler. */
#include "../znsd.h"

static int count_members(const ZnsPb__Request *r)
{
	return !!r->dump_begin + !!r->zone_get + !!r->commit + (r->has_abort && r->abort) + !!r->restore_begin +
	       (r->has_ls && r->ls) + !!r->rm + (r->has_status && r->status) + (r->has_zones && r->zones) +
	       (r->has_profile && r->profile) + !!r->reserve + !!r->release + !!r->reset + (r->has_quit && r->quit) +
	       !!r->retain + !!r->mark + !!r->progress + !!r->encryption + !!r->rekey +
	       !!r->compact_begin + !!r->compact_zone + !!r->compact_step + !!r->compact_commit;
}

int znsd_dispatch(struct znsd *d, struct conn *c, ZnsPb__Request *r, struct reply *rep)
{
	int n = count_members(r);

	rep->r.has_device = 1;
	rep->r.device.data = d->reg.uuid;
	rep->r.device.len = ZNS_UUID_LEN;
	rep->r.encryption = (ZnsPb__Encryption *)wanted_encryption(d);
	if (r->version != ZNS_BROKER_VERSION) {
		rep->hangup = true;
		return zns_fail(&rep->err, -EPROTO, "the broker of %s (PID %d) speaks version %d, the client %u: `znsctl` and `znsd` are of different builds",
				d->reg.path, (int)getpid(), ZNS_BROKER_VERSION, r->version);
	}
	if (!n)
		return 0;
	if (n > 1)
		return zns_fail(&rep->err, -EINVAL, "a request asks for one thing, this one for %d", n);
	if (r->dump_begin)
		return handle_dump_begin(d, c, r, rep);
	if (r->progress)
		return handle_progress(d, c, r->progress, rep);
	if (r->zone_get)
		return handle_zone_get(d, c, r->zone_get, rep);
	if (r->commit)
		return handle_commit(d, c, r->commit, rep);
	if (r->has_abort && r->abort)
		return handle_abort(d, c, rep);
	if (r->restore_begin)
		return handle_restore_begin(d, c, r->restore_begin, rep);
	if (r->has_ls && r->ls)
		return handle_ls(d, rep);
	if (r->rm)
		return handle_rm(d, r->rm, rep);
	if (r->has_status && r->status)
		return handle_status(d, rep);
	if (r->has_zones && r->zones)
		return handle_zones(d, rep);
	if (r->has_profile && r->profile)
		return handle_profile(d, rep);
	if (r->reserve)
		return handle_reserve(d, r->reserve, rep);
	if (r->release)
		return handle_release(d, r->release, rep);
	if (r->reset)
		return handle_reset(d, r->reset, rep);
	if (r->retain)
		return handle_retain(d, r->retain, rep);
	if (r->mark)
		return handle_mark(d, r->mark, rep);
	if (r->encryption)
		return handle_encryption(d, r->encryption, rep);
	if (r->rekey)
		return handle_rekey(d, r->rekey, rep);
	if (r->compact_begin)
		return handle_compact_begin(d, c, r->compact_begin, rep);
	if (r->compact_zone)
		return handle_compact_zone(d, c, r->compact_zone, rep);
	if (r->compact_step)
		return handle_compact_step(d, c, r->compact_step, rep);
	if (r->compact_commit)
		return handle_compact_commit(d, c, r->compact_commit, rep);
	return handle_quit(d, rep);
}
