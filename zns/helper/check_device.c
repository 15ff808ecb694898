/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * `criu check --feature zns`: checks whether a dump could begin, and which tracker it would use.
 * Does not ask for admission.
 */
#include "helper.h"
#include "zns/track.h"

int check_device(struct helper *h, struct packet *p, struct zns_err *err)
{
	const char *dev = packet_text(p);
	struct zns_registered reg;
	struct zns_track_kernel k = { .tracker = ZNS_TRACKER_NONE };
	struct zw_reply r = { 0 };
	char id[ZNS_UUID_STR];
	int ret;

	if (!dev)
		return zns_fail(err, -EPROTO, "zns-helper and criu are of different builds");
	ret = zns_resolve_device(*dev ? dev : NULL, &reg, err);
	if (!ret)
		ret = helper_attach(h, &reg, NULL, err);
	if (ret)
		return ret;
	if (zns_track_kernel(&k, NULL))
		k.tracker = ZNS_TRACKER_NONE;
	r.kind = k.tracker == ZNS_TRACKER_UFFD ? ZW_KIND_PAGES : ZW_KIND_NONE;
	snprintf(
		r.msg, sizeof(r.msg),
		"zones of %s (%s) can be used: %u zones, broker PID %u; tracker of written pages: %s",
		reg.path, zns_uuid_format(reg.uuid, id), h->s.dev->geo.nr_zones,
		h->s.broker.broker_pid, zns_tracker_name(k.tracker));
	reply_send(p->nr_fd ? p->fd[0] : -1, &r, -1);
	zns_session_close(&h->s);
	return 0;
}
