/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dev_conform DEV --yes-destroy [--twin DEV2] [--wear DIR] [--only TEXT] [--list]
 *
 * Runs the cases of zns/tools/selftest, and those of this directory, on one device: emu:PATH,
 * /dev/nvmeXnY, /dev/ngXnY or any other zoned block device. All its data are lost. --twin names
 * another node of the same device, --wear the configfs directory of a null_blk device, where zones
 * can be made read-only and offline. The last line is the count; exit code 0 when nothing failed, 1
 * when something did, 2 for wrong usage or a device that cannot be opened.
 */
#include <getopt.h>
#include <stdio.h>

#include "state.h"

const char *conform_wear;

static const struct conform_case *const sets[] = { data_cases, zone_cases, limit_cases, share_cases,
						   state_cases };
static unsigned int count[3];

static void said(void *arg, const char *name, enum conform_verdict v, double seconds,
		 const char *text)
{
	static const char *const word[] = { "PASS", "FAIL", "SKIP" };

	count[v]++;
	printf("%s %s (%.2f s)%s%s\n", word[v], name, seconds, *text ? ": " : "", text);
	fflush(stdout);
}

static int run_all(const char *only)
{
	struct zns_err err = ZNS_ERR_INIT;

	for (size_t s = 0; s < ZNS_ARRAY_SIZE(sets); s++)
		conform_run(sets[s], only, said, NULL);
	conform_reset(&err);
	printf("%u passed, %u failed, %u skipped\n", count[CONFORM_PASSED], count[CONFORM_FAILED],
	       count[CONFORM_SKIPPED]);
	return count[CONFORM_FAILED] || !count[CONFORM_PASSED];
}

static void list(void)
{
	for (size_t s = 0; s < ZNS_ARRAY_SIZE(sets); s++)
		for (const struct conform_case *c = sets[s]; c->name; c++)
			puts(c->name);
}

int main(int argc, char **argv)
{
	static const struct option opts[] = {
		{ "yes-destroy", no_argument, NULL, 'y' }, { "twin", required_argument, NULL, 't' },
		{ "wear", required_argument, NULL, 'w' },  { "only", required_argument, NULL, 'o' },
		{ "list", no_argument, NULL, 'l' },        { 0 },
	};
	const char *only = NULL, *spec, *twin = NULL;
	struct zns_err err = ZNS_ERR_INIT;
	bool yes = false;
	int c, rc;

	while ((c = getopt_long(argc, argv, "", opts, NULL)) >= 0) {
		switch (c) {
		case 'y':
			yes = true;
			break;
		case 't':
			twin = optarg;
			break;
		case 'w':
			conform_wear = optarg;
			break;
		case 'o':
			only = optarg;
			break;
		case 'l':
			list();
			return 0;
		default:
			return 2;
		}
	}
	if (optind != argc - 1) {
		fprintf(stderr,
			"usage: dev_conform DEV --yes-destroy [--twin DEV2] [--wear DIR] [--only TEXT] [--list]\n");
		return 2;
	}
	spec = argv[optind];
	if (!yes) {
		fprintf(stderr, "dev_conform: all data on %s would be lost; say --yes-destroy\n",
			spec);
		return 2;
	}
	if (conform_open(spec, twin, &err)) {
		fprintf(stderr, "dev_conform: %s\n", err.msg);
		return 2;
	}
	printf("%s: %s, %u zones of %llu KiB (%llu usable), blocks of %u, %u open, %u active, %u KiB a transfer, buffers on %u\n",
	       t.spec, t.d->ops->name, t.d->geo.nr_zones,
	       (unsigned long long)t.d->geo.zone_size / 1024, (unsigned long long)t.cap / 1024,
	       t.block, t.d->geo.max_open, t.d->geo.max_active, t.max_io / 1024,
	       t.d->geo.mem_align);
	rc = run_all(only);
	conform_close();
	return rc;
}
