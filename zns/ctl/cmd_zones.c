// SPDX-License-Identifier: GPL-2.0-only
/* zones: as a table or a picture */
#include <string.h>
#include "ctl.h"

enum { OPT_TABLE = OPT_OWN, OPT_PICTURE };

static int zones_json(const ZnsPb__Response *r)
{
	struct json_object *j = json_object_new_object(), *list = json_object_new_array(), *o;
	size_t i;

	for (i = 0; i < r->n_zones; i++) {
		const ZnsPb__ZoneLine *z = r->zones[i];

		o = json_object_new_object();
		json_object_object_add(o, "index", json_object_new_int64(z->index));
		json_object_object_add(o, "state", json_object_new_string(zns_zone_state_name(z->state)));
		json_object_object_add(o, "wp", json_object_new_int64(z->wp));
		json_object_object_add(o, "capacity", json_object_new_int64(z->capacity));
		json_object_object_add(o, "group", json_object_new_int64(z->group));
		json_object_object_add(o, "owner", z->owner ? json_object_new_string(z->owner) : NULL);
		json_object_object_add(o, "live", json_object_new_int64(z->live));
		json_object_object_add(o, "suspect", json_object_new_boolean(z->suspect));
		json_object_array_add(list, o);
	}
	json_object_object_add(j, "zones", list);
	return ctl_print_json(j);
}

/* "(metadata)" and the like are words of ours: only a name behind them may need quotes. */
static const char *owner(const char *s, char *buf, size_t len)
{
	static const char *const words[] = { "(metadata)", "(conventional)", "(pack)", "(normal I/O)" };
	const char *name = !strncmp(s, "(writing) ", 10) ? s + 10 : s;
	size_t n = (size_t)(name - s);

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(words); i++)
		if (!strcmp(s, words[i]))
			return s;
	memcpy(buf, s, n);
	ctl_name(name, buf + n, len - n);
	return buf;
}

static void zones_table(const ZnsPb__Response *r)
{
	char wp[16], cap[16], live[16], name[CTL_NAME];
	size_t i;

	printf(" zone  group  state      %10s  %10s  %10s  owner\n", "written", "capacity", "live");
	for (i = 0; i < r->n_zones; i++) {
		const ZnsPb__ZoneLine *z = r->zones[i];

		printf("%5u  %5u  %-9s  %10s  %10s  %10s  %s%s\n", z->index, z->group, zns_zone_state_name(z->state),
		       zns_format_size(z->wp, wp, sizeof(wp)), zns_format_size(z->capacity, cap, sizeof(cap)),
		       zns_format_size(z->live, live, sizeof(live)), z->owner ? owner(z->owner, name, sizeof(name)) : "",
		       z->suspect ? " (a write failed)" : "");
	}
}

static int cmd_zones(const struct ctl_cmd *cmd, int argc, char **argv)
{
	static const struct option opts[] = {
		{ "table", no_argument, NULL, OPT_TABLE },
		{ "picture", no_argument, NULL, OPT_PICTURE },
		CTL_DEV_OPTION, CTL_COMMON_OPTIONS, CTL_END_OPTIONS,
	};
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	bool picture = isatty(STDOUT_FILENO);
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	ZnsPb__Response *r;
	int c, ret = CTL_OK;

	while ((c = ctl_getopt(cmd, argc, argv, opts, &args)) >= 0)
		picture = c == OPT_PICTURE;
	if (c == -2)
		return args.code;
	if (ctl_only_dev(cmd, &args))
		return CTL_USAGE;
	req.has_zones = req.zones = 1;
	if (ctl_call(args.dev, &req, &r, &err))
		return ctl_fail(cmd, &err);
	if (args.json)
		ret = zones_json(r);
	else if (picture)
		ctl_picture(r);
	else
		zones_table(r);
	zns_pb__response__free_unpacked(r, NULL);
	return ret;
}

const struct ctl_cmd command_zones = {
	"zones", "[DEV]", "zones: a table, or a picture on a terminal",
	"  --table         a table, also on a terminal\n  --picture       a picture, also elsewhere\n" CTL_DEV_HELP,
	cmd_zones,
};
