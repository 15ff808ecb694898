/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Parses a command's options by a table, which says how each is parsed, where its value is stored,
 * and the message for a wrong value.
 */
#include <string.h>
#include "ctl.h"

#define OPTIONS_MAX 16

static int set(const struct ctl_opt *o, const char *value)
{
	uint64_t n = 0;
	int ret = 0;

	switch (o->kind) {
	case CTL_O_FLAG:
		*o->flag = true;
		return 0;
	case CTL_O_TEXT:
		*o->text = value;
		return 0;
	case CTL_O_RATE:
		return zns_parse_mibps(value, o->rate);
	case CTL_O_NUMBER:
		ret = zns_parse_number(value, o->min, o->max, &n);
		break;
	case CTL_O_SIZE:
		ret = zns_parse_size(value, &n);
		break;
	case CTL_O_DURATION:
		ret = zns_parse_duration(value, &n);
		break;
	default:
		return -EINVAL;
	}
	if (ret || n < o->min || n > o->max)
		return -EINVAL;
	*o->number = n;
	return 0;
}

/* Options are handled in the order of the command line, so that the first mistake is reported. */
int ctl_parse(const struct ctl_cmd *cmd, int argc, char **argv, const struct ctl_opt *table,
	      struct ctl_args *args)
{
	static const struct option common[] = { CTL_COMMON_OPTIONS, CTL_END_OPTIONS };
	struct option opts[OPTIONS_MAX + ZNS_ARRAY_SIZE(common)];
	int c, n = 0;

	for (const struct ctl_opt *o = table; o->name && n < OPTIONS_MAX; o++, n++)
		opts[n] = (struct option){ o->name,
					   o->kind == CTL_O_FLAG ? no_argument : required_argument,
					   NULL, o->kind == CTL_O_DEV ? OPT_DEV : OPT_OWN + n };
	memcpy(opts + n, common, sizeof(common));
	while ((c = ctl_getopt(cmd, argc, argv, opts, args)) >= 0) {
		const struct ctl_opt *o = &table[c - OPT_OWN];

		if (c == OPT_VERBOSE) /* -v is the same as --verbose */
			for (o = table; strcmp(o->name, "verbose");)
				o++;
		if (set(o, optarg)) {
			args->code = ctl_usage(cmd, o->wrong, optarg);
			return -1;
		}
	}
	return c == -2 ? -1 : 0;
}
