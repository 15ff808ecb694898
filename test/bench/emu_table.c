/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The timing model against its own parameters: emu_table [MIB]. For each profile what a client gets
 * alone, beside another on its die, beside another on its channel but not its die, and what all get
 * together with one on each die; written and read, in model time, so exact and independent of this
 * machine. Each client keeps two commands of 256 KiB in flight and moves MIB (1024).
 */
#include <string.h>
#include <unistd.h>

#include "emu_drive.h"

struct row {
	const char *title, *profile;
	void (*change)(struct zns_emu_params *p);
};

static void channel_150(struct zns_emu_params *p)
{
	p->channel_mibps = 150;
}

static void one_buffer(struct zns_emu_params *p)
{
	p->buffer_units = 1;
}

static void no_gc(struct zns_emu_params *p)
{
	p->gc_every_mib = p->gc_stall_ms = 0;
}

static const struct row rows[] = {
	{ "default", "default", NULL },
	{ "default, channel 150", "default", channel_150 },
	{ "default, 1 buffer unit", "default", one_buffer },
	{ "paper-conf", "paper-conf", NULL },
	{ "paper-draft", "paper-draft", NULL },
	{ "paper-draft-18", "paper-draft-18", NULL },
	{ "large-zone", "large-zone", NULL },
	{ "small-zone", "small-zone", NULL },
	{ "conventional", "conventional", NULL },
	{ "conventional, no gc", "conventional", no_gc },
};

/* The rates that the parameters promise to one client alone, to one of two, and to all together. */
static void expect(const struct zns_emu_params *p, bool write, double want[4])
{
	bool wide = p->map == ZNS_EMU_MAP_SHARED;
	double dies = p->channels * p->ways, die = write ? p->die_write_mibps : p->die_read_mibps,
	       channel = p->channel_mibps;
	double limit = p->controller_mibps ? p->controller_mibps : 1e9, one;

	if (write && p->gc_every_mib)
		limit = p->gc_every_mib / (p->gc_every_mib / limit + p->gc_stall_ms / 1e3);
	if (wide) {
		die *= dies;
		channel *= p->channels;
	}
	one = write && p->buffer_units == 1 ? 1 / (1 / die + 1 / channel) : die;
	want[0] = zns_min(zns_min(one, channel), limit);
	want[1] = zns_min(zns_min(die / 2, channel / 2), limit / 2);
	want[2] = wide ? want[1] : zns_min(zns_min(one, channel / 2), limit / 2);
	want[3] = wide ? zns_min(zns_min(die, channel), limit) :
			 zns_min(zns_min(dies * one, channel * p->channels), limit);
}

/* Runs @nr clients on these zones, from an idle device. Returns MiB/s of the first client, or of
 * all. */
static double run(struct zns_dev *d, enum zns_emu_op op, const uint32_t *zone, unsigned nr,
		  uint64_t total, bool sum)
{
	struct client *c = calloc(nr, sizeof(*c));
	struct zns_err err = ZNS_ERR_INIT;
	uint64_t start, last = 0;
	double got;

	if (!c)
		abort();
	drive_check(zns_emu_power_cut(d, &err), &err);
	drive_check(zns_emu_model_clock(d, &start, &err), &err);
	for (unsigned i = 0; i < nr; i++)
		c[i] = (struct client){
			.op = op, .zone = zone[i], .size = KIB(256), .total = total, .depth = 2
		};
	drive(d, c, nr, start);
	for (unsigned i = 0; i < nr; i++)
		last = zns_max(last, c[i].done_ns);
	got = sum ? drive_mibps(nr * total, last - start) :
		    drive_mibps(total, c[0].done_ns - start);
	free(c);
	return got;
}

static void measure(const struct row *r, bool write, const char *path, uint64_t total)
{
	enum zns_emu_op op = write ? ZNS_EMU_OP_WRITE : ZNS_EMU_OP_READ;
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_dev *d = NULL;
	struct zns_emu_params p;
	uint32_t dies, zone[1024], two[2];
	double want[4], got[4];
	char spec[256], limit[32] = "-";

	drive_check(zns_emu_profile(r->profile, &p, &err), &err);
	if (r->change)
		r->change(&p);
	dies = p.channels * p.ways;
	p.timing = true;
	p.prealloc = ZNS_EMU_SPARSE;
	p.nr_zones = 2 * dies;
	drive_check(zns_emu_create(path, &p, true, &err), &err);
	snprintf(spec, sizeof(spec), "emu:%s", path);
	drive_check(zns_dev_open(spec, 0, &d, &err), &err);
	expect(&p, write, want);
	for (uint32_t i = 0; i < dies; i++)
		zone[i] = i;
	got[0] = run(d, op, zone, 1, total, false);
	two[0] = 0;
	two[1] = dies; /* the same die again */
	got[1] = run(d, op, two, 2, total, false);
	two[1] = p.channels; /* the next die of the channel */
	got[2] = run(d, op, two, 2, total, false);
	got[3] = run(d, op, zone, dies, total, true);
	if (p.controller_mibps)
		snprintf(limit, sizeof(limit), "%u%s", p.controller_mibps,
			 p.gc_every_mib ? "+gc" : "");
	printf("| %-22s | %5s | %2u x %u%s | %3u | %4u | %7s |", r->title, write ? "write" : "read",
	       p.channels, p.ways, p.map == ZNS_EMU_MAP_SHARED ? " as one" : "",
	       write ? p.die_write_mibps : p.die_read_mibps, p.channel_mibps, limit);
	for (int i = 0; i < 4; i++)
		printf(" %7.1f / %7.1f |", want[i], got[i]);
	printf("\n");
	zns_dev_close(d);
	unlink(path);
}

int main(int argc, char **argv)
{
	uint64_t mib = argc > 1 ? strtoull(argv[1], NULL, 10) : 1024;
	const char *tmp = getenv("TMPDIR");
	char path[200];
	int fd;

	snprintf(path, sizeof(path), "%s/zns-emu-table-XXXXXX", tmp ? tmp : "/tmp");
	fd = mkstemp(path);
	if (fd < 0 || !mib) {
		fprintf(stderr, "usage: emu_table [MIB]\n");
		return 2;
	}
	close(fd);
	printf("MiB/s in model time, parameters say / got; each client with 2 commands of 256 KiB in flight, %llu MiB\n\n",
	       (unsigned long long)mib);
	printf("| profile | | channels x ways | die | channel | controller | one client | two on one die, each | two on one channel, each | one per die, all |\n");
	printf("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
	for (int write = 1; write >= 0; write--)
		for (unsigned i = 0; i < ZNS_ARRAY_SIZE(rows); i++)
			measure(&rows[i], write, path, MIB(mib));
	return 0;
}
