/* SPDX-License-Identifier: GPL-2.0-only */
/* zones: prints a table of all zones */
#include <string.h>
#include "lib/ctl.h"

/*
 * Quotes a name for the table if needed. "(metadata)" and the like are words of this program, and
 * stay as they are.
 */
static const char *name_of(const char *s, char *buf, size_t len)
{
	static const char *const words[] = { "(metadata)", "(conventional)", "(pack)",
					     "(normal I/O)" };
	const char *name = !strncmp(s, "(writing) ", 10) ? s + 10 : s;
	size_t n = (size_t)(name - s);

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(words); i++)
		if (!strcmp(s, words[i]))
			return s;
	memcpy(buf, s, n);
	ctl_name(name, buf + n, len - n);
	return buf;
}

static void owner(const void *row, const void *arg, char *out, size_t len)
{
	const ZnsPb__ZoneLine *z = row;
	char name[CTL_NAME];

	snprintf(out, len, "%s%s", z->owner ? name_of(z->owner, name, sizeof(name)) : "",
		 z->suspect ? " (a write failed)" : "");
}

static const struct ctl_column columns[] = {
	{ "zone", 5, "index", NULL },
	{ "group", 5, "group", NULL },
	{ "state", -9, "state:state", NULL },
	{ "written", 10, "wp:size", NULL },
	{ "capacity", 10, "capacity:size", NULL },
	{ "live", 10, "live:size", NULL },
	{ "owner", 0, NULL, owner },
	CTL_COLUMNS_END,
};

static int cmd_zones(const struct ctl_cmd *cmd, int argc, char **argv)
{
	const struct ctl_opt opts[] = { CTL_DEV, CTL_OPTS_END };
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	cleanup_answer ZnsPb__Response *r = NULL;
	char line[CTL_ROW];

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (ctl_only_dev(cmd, &args))
		return CTL_USAGE;
	req.has_zones = req.zones = 1;
	if (ctl_call(args.dev, &req, &r, &err))
		return ctl_fail(cmd, &err);
	if (args.json)
		return ctl_print_list(
			"zones",
			ctl_json_all((void **)r->zones, r->n_zones,
				     "index state:state wp capacity group owner live! suspect!"));
	puts(ctl_row(columns, "  ", NULL, NULL, line));
	for (size_t i = 0; i < r->n_zones; i++)
		ctl_print_cut(ctl_row(columns, "  ", r->zones[i], NULL, line));
	return CTL_OK;
}

const struct ctl_cmd command_zones = {
	"zones", "[DEV]", "each zone, its state and owner", CTL_DEV_HELP, cmd_zones,
};
