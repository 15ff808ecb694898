/* SPDX-License-Identifier: GPL-2.0-only */
/* status, groups */
#include <string.h>
#include "lib/ctl.h"
#include "zns/crypt.h"
#include "zns/store.h"

#define RESTORES_SHOWN 5 /* how many of the last restores are printed; --json prints all */

static const char status_fields[] =
	"device path geometry={zones=nr_zones zone_size zone_capacity block_size metadata_zones!} limits={max_open max_active} "
	"nvme_reservation=host_reservation{held ours type key=} encrypted= key_id= zones_by_state= suspect_zones! "
	"bytes_live bytes_free bytes_wasted checkpoints=nr_checkpoints damaged=nr_damaged! reservations= leases= restores= scattered= "
	"promised_mibps device_mibps parked_zones! pack_zones! zones_budget zones_granted! waiting=nr_waiting! "
	"restore_cache=hot{limit used read given wrong late} "
	"log_generation! broker_pid! tenants_error=";
static const char reservation_fields[] = "container groups kind= qos_mibps created=created_ns:time";
static const char lease_fields[] =
	"kind pid container groups qos_mibps since=since_ns:time bytes total:pos mibps limit_mibps=rate_mibps:pos qos_max_mibps:pos weight:pos";
/* fields of a dump's lease */
static const char detail_fields[] = "width promised packed shared_groups gained_groups! tenant";

static const char memory_fields[] = "context live dead read zones connected";

static struct json_object *json_reservations(const ZnsPb__Status *s)
{
	struct json_object *list = json_object_new_array(), *o;

	for (size_t i = 0; i < s->n_reservations; i++) {
		o = ctl_json(s->reservations[i], reservation_fields);
		json_object_object_add(o, "kind",
				       json_object_new_string(
					       s->reservations[i]->explicit_ ? "io" : "dump"));
		json_object_array_add(list, o);
	}
	return list;
}

struct json_object *ctl_json_leases(const ZnsPb__Status *s)
{
	struct json_object *list = json_object_new_array(), *o;

	for (size_t i = 0; i < s->n_leases; i++) {
		const ZnsPb__LeaseDetail *d = s->leases[i]->detail && s->leases[i]->detail->width ?
						      s->leases[i]->detail :
						      NULL;

		o = ctl_json(s->leases[i], lease_fields);
		ctl_json_add(o, &zns_pb__lease_detail__descriptor, d, detail_fields);
		if (s->leases[i]->memory)
			json_object_object_add(o, "memory",
					       ctl_json(s->leases[i]->memory, memory_fields));
		json_object_array_add(list, o);
	}
	return list;
}

/* Adds the drive's reservation. Its key and type are valid only while a host holds the drive. */
static void json_host(struct json_object *j, const ZnsPb__HostReservation *h)
{
	char key[32];

	snprintf(key, sizeof(key), "0x%016llx", (unsigned long long)h->key);
	json_object_object_add(j, "key", h->held ? json_object_new_string(key) : NULL);
	if (!h->held)
		json_object_object_add(j, "type", NULL);
}

/*
 * Reads tenants.conf, only for its error. With an error in it no dump is admitted, so status shows
 * the error before a dump fails.
 */
static const char *tenants_error(struct zns_err *err)
{
	struct zns_tenant t;

	return zns_tenant_find("", -1, &t, err) ? err->msg : NULL;
}

/* The measured rate of the last restore, if it read this version of this checkpoint; 0: unknown. */
static double measured(const ZnsPb__Status *s, const ZnsPb__Scattered *of)
{
	for (size_t i = 0; i < s->n_restores; i++) {
		const ZnsPb__RestoreStat *r = s->restores[i];

		if (r->checkpoint.len == of->checkpoint.len &&
		    !memcmp(r->checkpoint.data, of->checkpoint.data, of->checkpoint.len))
			return r->has_achieved_mibps ? r->achieved_mibps : 0;
	}
	return 0;
}

static struct json_object *json_scattered(const ZnsPb__Status *s)
{
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; i < s->n_scattered; i++) {
		double was = measured(s, s->scattered[i]);
		struct json_object *o = ctl_json(s->scattered[i], "container checkpoint of_best");

		json_object_object_add(o, "measured_mibps",
				       was > 0 ? json_object_new_double(was) : NULL);
		json_object_array_add(list, o);
	}
	return list;
}

static int status_json(const ZnsPb__Status *s, const ZnsPb__Encryption *e)
{
	struct zns_err err = ZNS_ERR_INIT;
	const char *bad = tenants_error(&err);
	struct json_object *j = ctl_json(s, status_fields);

	if (s->host_reservation)
		json_host(json_object_object_get(j, "nvme_reservation"), s->host_reservation);
	ctl_json_add(j, &zns_pb__encryption__descriptor, e, "key_id");
	json_object_object_add(j, "encrypted", ctl_j_bool(e != NULL));
	json_object_object_add(j, "zones_by_state", ctl_json_zones(s));
	json_object_object_add(j, "reservations", json_reservations(s));
	json_object_object_add(j, "leases", ctl_json_leases(s));
	json_object_object_add(j, "restores",
			       ctl_json_all((void **)s->restores, s->n_restores,
					    ctl_restore_fields));
	json_object_object_add(j, "scattered", json_scattered(s));
	json_object_object_add(j, "tenants_error", ctl_j_text(bad));
	return ctl_print_json(j);
}

static void print_groups(const uint32_t *g, size_t n)
{
	if (n)
		printf(", group%s", n == 1 ? "" : "s");
	for (size_t i = 0; i < n; i++)
		printf("%s %u", i ? "," : "", g[i]);
	printf("\n");
}

static void limit(char *buf, size_t len, uint32_t n)
{
	if (n)
		snprintf(buf, len, "%u", n);
	else
		snprintf(buf, len, "no limit");
}

/* Space for checkpoints, without metadata zones. */
static uint64_t space(const ZnsPb__Status *s)
{
	return s->bytes_live + s->bytes_wasted + s->bytes_free;
}

static double use_percent(const ZnsPb__Status *s)
{
	return space(s) ? 100.0 * (double)(s->bytes_live + s->bytes_wasted) / (double)space(s) : 0;
}

/* Devices are printed one line each, as df prints file systems. */
static void cell_space(const void *row, const void *arg, char *out, size_t len)
{
	zns_format_size(space(row), out, len);
}

static void cell_path(const void *row, const void *arg, char *out, size_t len)
{
	snprintf(out, len, " %s", ((const ZnsPb__Status *)row)->path);
}

static void cell_use(const void *row, const void *arg, char *out, size_t len)
{
	snprintf(out, len, "%3.0f%%", use_percent(row));
}

static const struct ctl_column df[] = {
	{ "size", 10, NULL, cell_space },
	{ "used", 10, "bytes_live:size", NULL },
	{ "reclaimable", 11, "bytes_wasted:size", NULL },
	{ "free", 10, "bytes_free:size", NULL },
	{ "use", 4, NULL, cell_use },
	{ "count", 6, "nr_checkpoints", NULL },
	{ " device", 0, NULL, cell_path },
	CTL_COLUMNS_END,
};

static void df_line(const ZnsPb__Status *s, struct json_object *list)
{
	struct json_object *o;
	char line[CTL_ROW];

	if (!list) {
		puts(ctl_row(df, " ", s, NULL, line));
		return;
	}
	o = ctl_json(
		s,
		"device path bytes= bytes_live bytes_wasted bytes_free checkpoints=nr_checkpoints");
	json_object_object_add(o, "bytes", ctl_j_uint(space(s)));
	json_object_array_add(list, o);
}

static int status_all(const struct ctl_cmd *cmd, bool json)
{
	struct json_object *list = json ? json_object_new_array() : NULL;
	char line[CTL_ROW];
	cleanup_free struct zns_registered *devs = NULL;
	struct zns_err err = ZNS_ERR_INIT;
	int code = CTL_OK;
	size_t nr = 0;

	if (zns_registered_list(&devs, &nr, &err)) {
		json_object_put(list);
		return ctl_fail(cmd, &err);
	}
	if (!json)
		puts(ctl_row(df, " ", NULL, NULL, line));
	for (size_t i = 0; i < nr; i++) {
		ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
		cleanup_answer ZnsPb__Response *r = NULL;
		char id[ZNS_UUID_STR];

		req.has_status = req.status = 1;
		if (ctl_call(zns_uuid_format(devs[i].uuid, id), &req, &r, &err)) {
			code = ctl_fail(cmd, &err);
			continue;
		}
		if (r->status)
			df_line(r->status, list);
	}
	if (json)
		ctl_print_list("devices", list);
	return code;
}

/* Prints progress, such as ": 190.0 MiB of about 603.8 MiB at 191 MiB/s". */
static void print_progress(const ZnsPb__LeaseLine *l)
{
	char a[32], b[32];

	if (l->memory) {
		printf(": %s live, %s dead in %u zones%s",
		       zns_format_size(l->memory->live, a, sizeof(a)),
		       zns_format_size(l->memory->dead, b, sizeof(b)), l->memory->zones,
		       l->memory->connected ? "" : "; its pager is not there");
		return;
	}
	printf(": %s", zns_format_size(l->bytes, a, sizeof(a)));
	if (l->total > l->bytes)
		printf(" of %s%s", strcmp(l->kind, "dump") ? "" : "about ",
		       zns_format_size(l->total, b, sizeof(b)));
	printf(" at %.0f MiB/s", l->mibps);
}

static void print_host(const ZnsPb__HostReservation *h)
{
	if (!h)
		return;
	if (!h->held)
		printf("host          NOT RESERVED, though the drive can: another host may write it\n");
	else
		printf("host          reserved for %s (NVMe %s, key 0x%016llx)\n",
		       h->ours ? "this one" : "ANOTHER ONE", h->type, (unsigned long long)h->key);
}

static void print_zones(const ZnsPb__Status *s)
{
	char a[32], b[32];

	printf("geometry      %u zones of %s, %s usable, blocks of %u bytes; %u zones of metadata\n",
	       s->nr_zones, zns_format_size(s->zone_size, a, sizeof(a)),
	       zns_format_size(s->zone_capacity, b, sizeof(b)), s->block_size, s->metadata_zones);
	limit(a, sizeof(a), s->max_open);
	limit(b, sizeof(b), s->max_active);
	printf("limits        open zones: %s, active zones: %s\n", a, b);
	print_host(s->host_reservation);
}

static void print_zone_states(const ZnsPb__Status *s)
{
	char a[32];

	printf("zones         %u empty, %u open, %u closed, %u full, %u read-only, %u offline",
	       ctl_zones_in(s, ZNS_ZONE_EMPTY), ctl_zones_in(s, ZNS_ZONE_IMP_OPEN),
	       ctl_zones_in(s, ZNS_ZONE_CLOSED), ctl_zones_in(s, ZNS_ZONE_FULL),
	       ctl_zones_in(s, ZNS_ZONE_READ_ONLY), ctl_zones_in(s, ZNS_ZONE_OFFLINE));
	if (s->suspect_zones)
		printf("; a write failed in %u", s->suspect_zones);
	printf("\nspace         %.0f %% of %s in use: ", use_percent(s),
	       zns_format_size(space(s), a, sizeof(a)));
	printf("%s live", zns_format_size(s->bytes_live, a, sizeof(a)));
	printf(", %s wasted", zns_format_size(s->bytes_wasted, a, sizeof(a)));
	printf("; %s free\n", zns_format_size(s->bytes_free, a, sizeof(a)));
	printf("to continue   %u partly filled zones; %u zones of small checkpoints\n",
	       s->parked_zones, s->pack_zones);
	if (s->has_zones_budget)
		printf("in writing    %u zones granted of %u\n", s->zones_granted, s->zones_budget);
}

/* Prints the space of a store on a disk, in the terms of a file system. */
static void print_space(const ZnsPb__Status *s)
{
	uint64_t below;
	char a[32];

	printf("size          %s, in units of", zns_format_size(space(s), a, sizeof(a)));
	printf(" %s\n", zns_format_size(s->zone_capacity, a, sizeof(a)));
	printf("used          %s, %.0f %%\n", zns_format_size(s->bytes_live, a, sizeof(a)),
	       space(s) ? 100.0 * (double)s->bytes_live / (double)space(s) : 0);
	printf("free          %s\n", zns_format_size(s->bytes_free, a, sizeof(a)));
	if (s->bytes_wasted)
		printf("reclaimable   %s at most, by `znsctl gc --compact`\n",
		       zns_format_size(s->bytes_wasted, a, sizeof(a)));
	if (ctl_is_limited(s->path, 0, &below))
		printf("LIMITED       the file system below has room for %s only\n",
		       zns_format_size(below, a, sizeof(a)));
	printf("rate          %u MiB/s, %u of them promised\n", s->device_mibps, s->promised_mibps);
	if (s->suspect_zones)
		printf("failed        a write failed in %u units\n", s->suspect_zones);
}

static void status_text(const ZnsPb__Status *s, const ZnsPb__Encryption *e)
{
	char a[32], b[32], id[ZNS_UUID_STR], name[CTL_NAME];
	bool disk = zns_spec_on_disk(s->path);
	struct zns_err err = ZNS_ERR_INIT;
	size_t i;

	printf("device        %s (%s)\n", s->path,
	       s->device.len == ZNS_UUID_LEN ? zns_uuid_format(s->device.data, id) : "?");
	if (!disk)
		print_zones(s);
	if (e && e->key_id.len == ZNS_KEY_ID_BYTES)
		printf("encryption    of all new checkpoints, with key %s\n",
		       zns_key_id_format(e->key_id.data, id));
	if (disk)
		print_space(s);
	else
		print_zone_states(s);
	printf("checkpoints   %u\n", s->nr_checkpoints);
	if (s->nr_damaged)
		printf("DAMAGED       %u checkpoints, when `znsctl verify` read them last; `znsctl ls` marks them with d\n",
		       s->nr_damaged);
	for (i = 0; i < s->n_reservations; i++) {
		const ZnsPb__Reservation *r = s->reservations[i];

		printf("reserved      %s%s", ctl_name(r->container, name, sizeof(name)),
		       r->explicit_ ? " (normal I/O)" : "");
		print_groups(r->groups, r->n_groups);
	}
	for (i = 0; i < s->n_leases; i++) {
		const ZnsPb__LeaseLine *l = s->leases[i];

		printf("%-13s %s, PID %u", l->kind, ctl_name(l->container, name, sizeof(name)),
		       l->pid);
		if (l->has_qos_mibps && l->qos_mibps)
			printf(", %u MiB/s%s", l->qos_mibps,
			       l->detail && l->detail->promised ? " promised" : "");
		if (l->detail && l->detail->packed)
			printf(", small");
		if (l->rate_mibps)
			printf(", at most %u MiB/s", l->rate_mibps);
		if (l->has_bytes || l->memory)
			print_progress(l);
		if (disk) {
			printf("\n");
			continue;
		}
		print_groups(l->groups, l->n_groups);
	}
	if (s->has_promised_mibps && !disk)
		printf("one domain    %u of %u MiB/s promised\n", s->promised_mibps,
		       s->device_mibps);
	for (i = s->n_restores > RESTORES_SHOWN ? s->n_restores - RESTORES_SHOWN : 0;
	     i < s->n_restores; i++) {
		printf("restored      %s: ",
		       ctl_name(s->restores[i]->container, name, sizeof(name)));
		ctl_print_restore(s->restores[i]);
	}
	if (s->hot && s->hot->given)
		printf("restore cache %s of %s; %llu units read once, handed out %llu times\n",
		       zns_format_size(s->hot->used, a, sizeof(a)),
		       zns_format_size(s->hot->limit, b, sizeof(b)),
		       (unsigned long long)s->hot->read, (unsigned long long)s->hot->given);
	for (i = 0; i < s->n_scattered; i++) {
		double was = measured(s, s->scattered[i]);

		printf("scattered     %s: restores at %.0f %% at most of what its groups could give",
		       ctl_name(s->scattered[i]->container, name, sizeof(name)),
		       100 * s->scattered[i]->of_best);
		if (was > 0)
			printf(", the last time with %.0f MiB/s", was);
		printf(", see `znsctl show --layout`\n");
	}
	if (s->nr_waiting)
		printf("waiting       %u dumps\n", s->nr_waiting);
	if (tenants_error(&err))
		printf("tenants       NO DUMP is admitted until this is corrected: %s\n", err.msg);
}

static int cmd_status(const struct ctl_cmd *cmd, int argc, char **argv)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	cleanup_answer ZnsPb__Response *r = NULL;
	struct ctl_fold fold = { 0 };
	bool all = false;
	const struct ctl_opt opts[] = { CTL_FLAG("all", &all), CTL_DEV, CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (!all && !args.dev && args.argc == 1)
		args.dev = *args.argv++, args.argc--;
	if (args.argc || (all && args.dev))
		return ctl_usage(cmd, all ? "--all shows every device: leave out the device" :
					    "give one device at most");
	if (all)
		return status_all(cmd, args.json);
	req.has_status = req.status = 1;
	if (ctl_call(args.dev, &req, &r, &err))
		return ctl_fail(cmd, &err);
	if (!r->status) {
		zns_fail(&err, -EPROTO, "the broker's answer has no status");
		return ctl_fail(cmd, &err);
	}
	if (args.json)
		return status_json(r->status, r->encryption);
	ctl_fold_begin(&fold);
	status_text(r->status, r->encryption);
	ctl_fold_end(&fold, 14);
	return CTL_OK;
}

const struct ctl_cmd command_status = {
	"status",
	"[DEV]|--all",
	"the device, its space, reservations and leases",
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
	struct json_object *j, *list = json_object_new_array(), *o;
	uint32_t rate, promised;

	j = ctl_json(
		p,
		"source zone_write_mibps zone_read_mibps confidence method? scaling? device_write_mibps? "
		"created=created_ns?:time promise_mibps= promise_groups= unknown_zones= groups=");
	rate = zns_profile_promise(p, &promised);
	json_object_object_add(j, "promise_mibps", ctl_j_uint(rate));
	json_object_object_add(j, "promise_groups", ctl_j_uint(promised));
	for (size_t i = 0; i < p->n_groups; i++) {
		if (p->has_unknown_group && p->unknown_group == i)
			continue;
		o = ctl_obj(J("id", i));
		if (i < p->n_group_confidence)
			json_object_object_add(o, "confidence",
					       json_object_new_double(p->group_confidence[i]));
		json_object_object_add(o, "write_mibps",
				       ctl_j_uint(zns_profile_group_mibps(p, (uint32_t)i)));
		if (i < p->n_group_read_mibps && p->group_read_mibps[i])
			json_object_object_add(o, "read_mibps", ctl_j_uint(p->group_read_mibps[i]));
		ctl_json_add(o, p->groups[i]->base.descriptor, p->groups[i], "channel");
		json_object_object_add(o, "zones", group_zones(p, i));
		json_object_array_add(list, o);
	}
	json_object_object_add(j, "unknown_zones",
			       p->has_unknown_group ? group_zones(p, p->unknown_group) :
						      json_object_new_array());
	json_object_object_add(j, "groups", list);
	return ctl_print_json(j);
}

static int groups_text(const ZnsPb__Profile *p)
{
	uint32_t promised, rate = zns_profile_promise(p, &promised);
	struct ctl_fold fold;
	size_t i, k, n, at;

	ctl_fold_begin(&fold);
	printf("source %s, confidence %.2f; one zone: %u MiB/s written, %u MiB/s read\n",
	       ctl_text(p->source), p->confidence, rate, p->zone_read_mibps);
	if (promised + !!p->has_unknown_group < p->n_groups)
		printf("%zu groups are slower, and in no promise\n",
		       p->n_groups - promised - !!p->has_unknown_group);
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
		/* leave room in the line for one more zone and for the number of the others */
		for (k = n = 0, at = 15; k < p->n_zone_group; k++)
			if (p->zone_group[k] == i && n++ < 12 && at < 62)
				at += (size_t)printf(" %zu", k);
		printf(n > 12 || at >= 62 ? " … (%zu)\n" : "\n", n);
	}
	ctl_fold_end(&fold, 4);
	return CTL_OK;
}

static int cmd_groups(const struct ctl_cmd *cmd, int argc, char **argv)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	cleanup_answer ZnsPb__Response *r = NULL;
	const struct ctl_opt opts[] = { CTL_DEV, CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (ctl_only_dev(cmd, &args))
		return CTL_USAGE;
	req.has_profile = req.profile = 1;
	if (ctl_call(args.dev, &req, &r, &err))
		return ctl_fail(cmd, &err);
	if (!r->profile) {
		zns_fail(
			&err, -EPROTO,
			"the broker's answer has no profile: znsctl and znsd may be of different builds");
		return ctl_fail(cmd, &err);
	}
	return args.json ? groups_json(r->profile) : groups_text(r->profile);
}

const struct ctl_cmd command_groups = {
	"groups", "[DEV]", "groups of zones that share a die", CTL_DEV_HELP, cmd_groups,
};
