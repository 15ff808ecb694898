// SPDX-License-Identifier: GPL-2.0-only
/* status, groups */
#include <string.h>
#include "ctl.h"
#include "zns/crypt.h"

#define RESTORES_SHOWN 5	/* the latest; --json has all */

static int one_device(const struct ctl_cmd *cmd, int argc, char **argv, struct ctl_args *args)
{
	static const struct option opts[] = { CTL_DEV_OPTION, CTL_COMMON_OPTIONS, CTL_END_OPTIONS };

	while (ctl_getopt(cmd, argc, argv, opts, args) >= 0)
		;
	if (!args->argv)
		return args->code ? args->code : -1;
	return ctl_only_dev(cmd, args);
}

static void json_detail(const ZnsPb__Status *s, size_t i, struct json_object *o)
{
	const ZnsPb__LeaseDetail *x = i < s->n_details ? s->details[i] : NULL;
	bool dump = x && x->width;

	json_object_object_add(o, "width", dump ? json_object_new_int64(x->width) : NULL);
	json_object_object_add(o, "promised", dump ? json_object_new_boolean(x->promised) : NULL);
	json_object_object_add(o, "packed", dump ? json_object_new_boolean(x->packed) : NULL);
	json_object_object_add(o, "shared_groups", dump ? json_object_new_int64(x->shared_groups) : NULL);
	json_object_object_add(o, "gained_groups", dump ? json_object_new_int64(x->gained_groups) : NULL);
	json_object_object_add(o, "tenant", dump && x->tenant ? json_object_new_string(x->tenant) : NULL);
}

static struct json_object *json_lists(const ZnsPb__Status *s, struct json_object *j)
{
	struct json_object *res = json_object_new_array(), *leases = json_object_new_array(), *o;
	struct json_object *restores = json_object_new_array();
	size_t i;

	for (i = 0; i < s->n_reservations; i++) {
		const ZnsPb__Reservation *r = s->reservations[i];

		o = json_object_new_object();
		json_object_object_add(o, "container", json_object_new_string(r->container));
		json_object_object_add(o, "groups", ctl_json_u32s(r->groups, r->n_groups));
		json_object_object_add(o, "kind", json_object_new_string(r->explicit_ ? "io" : "dump"));
		json_object_object_add(o, "qos_mibps", r->has_qos_mibps ? json_object_new_int64(r->qos_mibps) : NULL);
		json_object_object_add(o, "created", r->has_created_ns ? ctl_json_time(r->created_ns) : NULL);
		json_object_array_add(res, o);
	}
	for (i = 0; i < s->n_leases; i++) {
		const ZnsPb__LeaseLine *l = s->leases[i];

		o = json_object_new_object();
		json_object_object_add(o, "kind", json_object_new_string(l->kind));
		json_object_object_add(o, "pid", json_object_new_int64(l->pid));
		json_object_object_add(o, "container", json_object_new_string(l->container));
		json_object_object_add(o, "groups", ctl_json_u32s(l->groups, l->n_groups));
		json_object_object_add(o, "qos_mibps", l->has_qos_mibps ? json_object_new_int64(l->qos_mibps) : NULL);
		json_object_object_add(o, "since", l->has_since_ns ? ctl_json_time(l->since_ns) : NULL);
		json_object_object_add(o, "bytes", l->has_bytes ? json_object_new_int64(l->bytes) : NULL);
		json_object_object_add(o, "total", l->has_total && l->total ? json_object_new_int64(l->total) : NULL);
		json_object_object_add(o, "mibps", l->has_mibps ? json_object_new_double(l->mibps) : NULL);
		json_object_object_add(o, "limit_mibps", l->rate_mibps ? json_object_new_int64(l->rate_mibps) : NULL);
		json_object_object_add(o, "qos_max_mibps", l->qos_max_mibps ? json_object_new_int64(l->qos_max_mibps) : NULL);
		json_detail(s, i, o);
		json_object_array_add(leases, o);
	}
	for (i = 0; i < s->n_restores; i++)
		json_object_array_add(restores, ctl_json_restore(s->restores[i]));
	json_object_object_add(j, "reservations", res);
	json_object_object_add(j, "leases", leases);
	json_object_object_add(j, "restores", restores);
	json_object_object_add(j, "promised_mibps", s->has_promised_mibps ? json_object_new_int64(s->promised_mibps) : NULL);
	json_object_object_add(j, "device_mibps", s->has_device_mibps ? json_object_new_int64(s->device_mibps) : NULL);
	return j;
}

/* Which host the drive lets write; NULL: it does not care. */
static struct json_object *json_host(const ZnsPb__HostReservation *h)
{
	struct json_object *o;
	char key[32];

	if (!h)
		return NULL;
	o = json_object_new_object();
	snprintf(key, sizeof(key), "0x%016llx", (unsigned long long)h->key);
	json_object_object_add(o, "held", json_object_new_boolean(h->held));
	json_object_object_add(o, "ours", json_object_new_boolean(h->ours));
	json_object_object_add(o, "type", h->held ? json_object_new_string(h->type) : NULL);
	json_object_object_add(o, "key", h->held ? json_object_new_string(key) : NULL);
	return o;
}

/* No dump is admitted while there is an error in it, so it is shown before the first one fails. */
static const char *tenants_error(struct zns_err *err)
{
	struct zns_tenant t;

	return zns_tenant_find("", -1, &t, err) ? err->msg : NULL;
}

static int status_json(const ZnsPb__Status *s, const ZnsPb__Encryption *e)
{
	struct zns_err err = ZNS_ERR_INIT;
	const char *bad = tenants_error(&err);
	struct json_object *j = json_object_new_object(), *geo = json_object_new_object(),
			   *lim = json_object_new_object();

	json_object_object_add(j, "device", ctl_json_uuid(&s->device));
	json_object_object_add(j, "path", json_object_new_string(s->path));
	json_object_object_add(geo, "zones", json_object_new_int64(s->nr_zones));
	json_object_object_add(geo, "zone_size", json_object_new_int64(s->zone_size));
	json_object_object_add(geo, "zone_capacity", json_object_new_int64(s->zone_capacity));
	json_object_object_add(geo, "block_size", json_object_new_int64(s->block_size));
	json_object_object_add(geo, "metadata_zones", json_object_new_int64(s->metadata_zones));
	json_object_object_add(j, "geometry", geo);
	json_object_object_add(lim, "max_open", json_object_new_int64(s->max_open));
	json_object_object_add(lim, "max_active", json_object_new_int64(s->max_active));
	json_object_object_add(j, "limits", lim);
	json_object_object_add(j, "nvme_reservation", json_host(s->host_reservation));
	json_object_object_add(j, "encrypted", json_object_new_boolean(e != NULL));
	json_object_object_add(j, "key_id", e ? ctl_json_key_id(&e->key_id) : NULL);
	json_object_object_add(j, "zones_by_state", ctl_json_zones(s));
	json_object_object_add(j, "suspect_zones", json_object_new_int64(s->suspect_zones));
	json_object_object_add(j, "bytes_live", json_object_new_int64(s->bytes_live));
	json_object_object_add(j, "bytes_free", json_object_new_int64(s->bytes_free));
	json_object_object_add(j, "bytes_wasted", json_object_new_int64(s->bytes_wasted));
	json_object_object_add(j, "checkpoints", json_object_new_int64(s->nr_checkpoints));
	json_lists(s, j);
	json_object_object_add(j, "parked_zones", json_object_new_int64(s->parked_zones));
	json_object_object_add(j, "pack_zones", json_object_new_int64(s->pack_zones));
	json_object_object_add(j, "zones_budget", s->has_zones_budget ? json_object_new_int64(s->zones_budget) : NULL);
	json_object_object_add(j, "zones_granted", json_object_new_int64(s->zones_granted));
	json_object_object_add(j, "waiting", json_object_new_int64(s->nr_waiting));
	json_object_object_add(j, "log_generation", json_object_new_int64(s->log_generation));
	json_object_object_add(j, "broker_pid", json_object_new_int64(s->broker_pid));
	json_object_object_add(j, "tenants_error", bad ? json_object_new_string(bad) : NULL);
	return ctl_print_json(j);
}

static void print_groups(const uint32_t *g, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		printf(" %u", g[i]);
	printf("\n");
}

static void limit(char *buf, size_t len, uint32_t n)
{
	if (n)
		snprintf(buf, len, "%u", n);
	else
		snprintf(buf, len, "no limit");
}

/* What checkpoints can take, metadata not counted. */
static uint64_t space(const ZnsPb__Status *s)
{
	return s->bytes_live + s->bytes_wasted + s->bytes_free;
}

static double use_percent(const ZnsPb__Status *s)
{
	return space(s) ? 100.0 * (double)(s->bytes_live + s->bytes_wasted) / (double)space(s) : 0;
}

/* As df prints file systems: one line for each device. */
static void df_line(const ZnsPb__Status *s)
{
	char size[16], live[16], wasted[16], avail[16];

	printf("%10s %10s %10s %10s %3.0f%% %6u  %s\n", zns_format_size(space(s), size, sizeof(size)),
	       zns_format_size(s->bytes_live, live, sizeof(live)), zns_format_size(s->bytes_wasted, wasted, sizeof(wasted)),
	       zns_format_size(s->bytes_free, avail, sizeof(avail)), use_percent(s), s->nr_checkpoints, s->path);
}

static struct json_object *df_json(const ZnsPb__Status *s)
{
	struct json_object *j = json_object_new_object();

	json_object_object_add(j, "device", ctl_json_uuid(&s->device));
	json_object_object_add(j, "path", json_object_new_string(s->path));
	json_object_object_add(j, "bytes", json_object_new_int64(space(s)));
	json_object_object_add(j, "bytes_live", json_object_new_int64(s->bytes_live));
	json_object_object_add(j, "bytes_wasted", json_object_new_int64(s->bytes_wasted));
	json_object_object_add(j, "bytes_free", json_object_new_int64(s->bytes_free));
	json_object_object_add(j, "checkpoints", json_object_new_int64(s->nr_checkpoints));
	return j;
}

static int status_all(const struct ctl_cmd *cmd, bool json)
{
	struct json_object *list = json_object_new_array(), *j;
	cleanup_free struct zns_registered *devs = NULL;
	struct zns_err err = ZNS_ERR_INIT;
	int code = CTL_OK;
	size_t nr = 0;

	if (zns_registered_list(&devs, &nr, &err)) {
		json_object_put(list);
		return ctl_fail(cmd, &err);
	}
	if (!json)
		printf("%10s %10s %10s %10s %4s %6s  %s\n", "size", "live", "wasted", "free", "use", "count", "device");
	for (size_t i = 0; i < nr; i++) {
		ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
		char id[ZNS_UUID_STR];
		ZnsPb__Response *r;

		req.has_status = req.status = 1;
		if (ctl_call(zns_uuid_format(devs[i].uuid, id), &req, &r, &err)) {
			code = ctl_fail(cmd, &err);
			continue;
		}
		if (json && r->status)
			json_object_array_add(list, df_json(r->status));
		else if (r->status)
			df_line(r->status);
		zns_pb__response__free_unpacked(r, NULL);
	}
	if (!json) {
		json_object_put(list);
		return code;
	}
	j = json_object_new_object();
	json_object_object_add(j, "devices", list);
	ctl_print_json(j);
	return code;
}

/* ": 190.0 MiB of about 603.8 MiB at 191 MiB/s" */
static void print_progress(const ZnsPb__LeaseLine *l)
{
	char a[32], b[32];

	printf(": %s", zns_format_size(l->bytes, a, sizeof(a)));
	if (l->total > l->bytes)
		printf(" of %s%s", strcmp(l->kind, "dump") ? "" : "about ", zns_format_size(l->total, b, sizeof(b)));
	printf(" at %.0f MiB/s", l->mibps);
}

static void print_host(const ZnsPb__HostReservation *h)
{
	if (!h)
		return;
	if (!h->held)
		printf("host          NOT RESERVED, though the drive can: another host may write it\n");
	else
		printf("host          reserved for %s (NVMe %s, key 0x%016llx)\n", h->ours ? "this one" : "ANOTHER ONE", h->type,
		       (unsigned long long)h->key);
}

static int status_text(const ZnsPb__Status *s, const ZnsPb__Encryption *e)
{
	char a[32], b[32], id[ZNS_UUID_STR], name[CTL_NAME];
	struct zns_err err = ZNS_ERR_INIT;
	size_t i;

	printf("device        %s (%s)\n", s->path, s->device.len == ZNS_UUID_LEN ? zns_uuid_format(s->device.data, id) : "?");
	printf("geometry      %u zones of %s, %s usable, blocks of %u bytes; %u zones of metadata\n", s->nr_zones,
	       zns_format_size(s->zone_size, a, sizeof(a)), zns_format_size(s->zone_capacity, b, sizeof(b)), s->block_size,
	       s->metadata_zones);
	limit(a, sizeof(a), s->max_open);
	limit(b, sizeof(b), s->max_active);
	printf("limits        open zones: %s, active zones: %s\n", a, b);
	print_host(s->host_reservation);
	if (e && e->key_id.len == ZNS_KEY_ID_BYTES)
		printf("encryption    of all new checkpoints, with key %s\n", zns_key_id_format(e->key_id.data, id));
	printf("zones         %u empty, %u open, %u closed, %u full, %u read-only, %u offline", ctl_zones_in(s, ZNS_ZONE_EMPTY),
	       ctl_zones_in(s, ZNS_ZONE_IMP_OPEN), ctl_zones_in(s, ZNS_ZONE_CLOSED),
	       ctl_zones_in(s, ZNS_ZONE_FULL), ctl_zones_in(s, ZNS_ZONE_READ_ONLY), ctl_zones_in(s, ZNS_ZONE_OFFLINE));
	if (s->suspect_zones)
		printf("; a write failed in %u", s->suspect_zones);
	printf("\nspace         %.0f %% of %s in use: ", use_percent(s), zns_format_size(space(s), a, sizeof(a)));
	printf("%s live", zns_format_size(s->bytes_live, a, sizeof(a)));
	printf(", %s wasted", zns_format_size(s->bytes_wasted, a, sizeof(a)));
	printf("; %s free\n", zns_format_size(s->bytes_free, a, sizeof(a)));
	printf("to continue   %u partly filled zones; %u zones of small checkpoints\n", s->parked_zones, s->pack_zones);
	if (s->has_zones_budget)
		printf("in writing    %u zones granted of %u\n", s->zones_granted, s->zones_budget);
	printf("checkpoints   %u\n", s->nr_checkpoints);
	for (i = 0; i < s->n_reservations; i++) {
		const ZnsPb__Reservation *r = s->reservations[i];

		printf("reserved      %s%s, groups", ctl_name(r->container, name, sizeof(name)), r->explicit_ ? " (normal I/O)" : "");
		print_groups(r->groups, r->n_groups);
	}
	for (i = 0; i < s->n_leases; i++) {
		const ZnsPb__LeaseLine *l = s->leases[i];

		printf("%-13s %s, PID %u", l->kind, ctl_name(l->container, name, sizeof(name)), l->pid);
		if (l->has_qos_mibps && l->qos_mibps)
			printf(", %u MiB/s%s", l->qos_mibps, i < s->n_details && s->details[i]->promised ? " promised" : "");
		if (i < s->n_details && s->details[i]->packed)
			printf(", small");
		if (l->rate_mibps)
			printf(", at most %u MiB/s", l->rate_mibps);
		if (l->has_bytes)
			print_progress(l);
		printf(", groups");
		print_groups(l->groups, l->n_groups);
	}
	if (s->has_promised_mibps)
		printf("one domain    %u of %u MiB/s promised\n", s->promised_mibps, s->device_mibps);
	for (i = s->n_restores > RESTORES_SHOWN ? s->n_restores - RESTORES_SHOWN : 0; i < s->n_restores; i++) {
		printf("restored      %s: ", ctl_name(s->restores[i]->container, name, sizeof(name)));
		ctl_print_restore(s->restores[i]);
	}
	if (s->nr_waiting)
		printf("waiting       %u dumps\n", s->nr_waiting);
	if (tenants_error(&err))
		printf("tenants       NO DUMP is admitted until this is corrected: %s\n", err.msg);
	return CTL_OK;
}

static int cmd_status(const struct ctl_cmd *cmd, int argc, char **argv)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	ZnsPb__Response *r;
	int ret;

	static const struct option opts[] = {
		{ "all", no_argument, NULL, OPT_ALL }, CTL_DEV_OPTION, CTL_COMMON_OPTIONS, CTL_END_OPTIONS,
	};
	bool all = false;

	while ((ret = ctl_getopt(cmd, argc, argv, opts, &args)) >= 0)
		all |= ret == OPT_ALL;
	if (ret == -2)
		return args.code;
	if (!all && !args.dev && args.argc == 1)
		args.dev = *args.argv++, args.argc--;
	if (args.argc || (all && args.dev))
		return ctl_usage(cmd, all ? "--all stands alone" : "one device at most");
	if (all)
		return status_all(cmd, args.json);
	req.has_status = req.status = 1;
	if (ctl_call(args.dev, &req, &r, &err))
		return ctl_fail(cmd, &err);
	if (r->status)
		ret = args.json ? status_json(r->status, r->encryption) : status_text(r->status, r->encryption);
	zns_pb__response__free_unpacked(r, NULL);
	return ret;
}

const struct ctl_cmd command_status = {
	"status", "[DEV]|--all", "the device, its space, reservations and leases",
	"  --all           the space of every registered device, as df\n" CTL_DEV_HELP,
	cmd_status,
};

static struct json_object *group_zones(const ZnsPb__Profile *p, uint32_t g)
{
	struct json_object *a = json_object_new_array();
	size_t i;

	for (i = 0; i < p->n_zone_group; i++)
		if (p->zone_group[i] == g)
			json_object_array_add(a, json_object_new_int64(i));
	return a;
}

static int groups_json(const ZnsPb__Profile *p)
{
	struct json_object *j = json_object_new_object(), *list = json_object_new_array(), *o;
	size_t i;

	json_object_object_add(j, "source", json_object_new_string(p->source));
	json_object_object_add(j, "zone_write_mibps", json_object_new_int64(p->zone_write_mibps));
	json_object_object_add(j, "zone_read_mibps", json_object_new_int64(p->zone_read_mibps));
	json_object_object_add(j, "confidence", json_object_new_double(p->confidence));
	if (p->method)
		json_object_object_add(j, "method", json_object_new_string(p->method));
	if (p->has_scaling)
		json_object_object_add(j, "scaling", json_object_new_double(p->scaling));
	if (p->has_device_write_mibps)
		json_object_object_add(j, "device_write_mibps", json_object_new_int64(p->device_write_mibps));
	if (p->has_created_ns)
		json_object_object_add(j, "created", ctl_json_time(p->created_ns));
	json_object_object_add(j, "unknown_zones", p->has_unknown_group ? group_zones(p, p->unknown_group) : json_object_new_array());
	for (i = 0; i < p->n_groups; i++) {
		if (p->has_unknown_group && p->unknown_group == i)
			continue;
		o = json_object_new_object();
		json_object_object_add(o, "id", json_object_new_int64(i));
		if (i < p->n_group_confidence)
			json_object_object_add(o, "confidence", json_object_new_double(p->group_confidence[i]));
		json_object_object_add(o, "channel",
				       p->groups[i]->has_channel ? json_object_new_int64(p->groups[i]->channel) : NULL);
		json_object_object_add(o, "zones", group_zones(p, i));
		json_object_array_add(list, o);
	}
	json_object_object_add(j, "groups", list);
	return ctl_print_json(j);
}

static int groups_text(const ZnsPb__Profile *p)
{
	size_t i, k, n, at;

	printf("source %s, confidence %.2f; one zone: %u MiB/s written, %u MiB/s read\n", ctl_text(p->source), p->confidence,
	       p->zone_write_mibps, p->zone_read_mibps);
	if (p->method)
		printf("%s\n", ctl_text(p->method));
	printf("group  channel  zones\n");
	for (i = 0; i < p->n_groups; i++) {
		char channel[16] = "?";

		if (p->groups[i]->has_channel)
			snprintf(channel, sizeof(channel), "%u", p->groups[i]->channel);
		if (p->has_unknown_group && p->unknown_group == i)
			printf("    ?        ? ");
		else
			printf("%5zu  %7s ", i, channel);
		for (k = n = 0, at = 15; k < p->n_zone_group; k++)
			if (p->zone_group[k] == i && n++ < 12 && at < 62)	/* room for one more, and for how many there are */
				at += (size_t)printf(" %zu", k);
		printf(n > 12 || at >= 62 ? " … (%zu)\n" : "\n", n);
	}
	return CTL_OK;
}

static int cmd_groups(const struct ctl_cmd *cmd, int argc, char **argv)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	ZnsPb__Response *r;
	int ret;

	ret = one_device(cmd, argc, argv, &args);
	if (ret)
		return ret < 0 ? CTL_OK : ret;
	req.has_profile = req.profile = 1;
	if (ctl_call(args.dev, &req, &r, &err))
		return ctl_fail(cmd, &err);
	if (r->profile)
		ret = args.json ? groups_json(r->profile) : groups_text(r->profile);
	zns_pb__response__free_unpacked(r, NULL);
	return ret;
}

const struct ctl_cmd command_groups = {
	"groups", "[DEV]", "groups of zones that share a die", CTL_DEV_HELP,
	cmd_groups,
};
