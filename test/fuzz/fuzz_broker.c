/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Requests to znsd, through its own code: the input is a list of (connection, length of two bytes, request). Whatever
 * clients say, the broker answers, its zones stay accounted for, and a plain dump works afterwards.
 */
#include <stdlib.h>
#include <fcntl.h>
#include <string.h>
#include "../crash/inproc.h"
#include "../unit/memdev.h"

#define ZONES 16
#define CONNS 3

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct memdev *formatted(void)
{
	ZnsPb__DieGroup g[4], *list[4];
	ZnsPb__Profile p = ZNS_PB__PROFILE__INIT;
	uint32_t of[ZONES];
	struct memdev *m = memdev_new(ZONES, KIB(128), 4096);

	for (uint32_t i = 0; i < 4; i++) {
		zns_pb__die_group__init(&g[i]);
		g[i].id = i;
		list[i] = &g[i];
	}
	for (uint32_t i = 0; i < ZONES; i++)
		of[i] = i % 4;
	p.source = (char *)"vendor";
	p.zone_write_mibps = 100;
	p.zone_read_mibps = 400;
	p.confidence = 1;
	p.groups = list;
	p.n_groups = 4;
	p.zone_group = of;
	p.n_zone_group = ZONES;
	if (zns_store_format(&m->dev, NULL, &p, false, NULL, NULL))
		abort();
	return m;
}

/* true: it waits; the request is the waiter's now. */
static void ask(struct znsd *d, struct conn *c, ZnsPb__Request *req)
{
	struct reply rep;

	memset(&rep, 0, sizeof(rep));
	zns_pb__response__init(&rep.r);
	znsd_dispatch(d, c, req, &rep);
	if (!rep.later)
		zns_pb__request__free_unpacked(req, NULL);
	reply_free(&rep);
}

static void must_work(struct znsd *d)
{
	ZnsPb__DumpBegin *b = calloc(1, sizeof(*b));
	ZnsPb__Request *req = calloc(1, sizeof(*req));
	struct conn c = { 0 };

	zns_pb__request__init(req);
	zns_pb__dump_begin__init(b);
	b->container = strdup("after");
	req->version = ZNS_BROKER_VERSION;
	req->dump_begin = b;
	ask(d, &c, req);
	if (!lease_of(d, &c))
		abort();
	leases_of_conn_lost(d, &c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct memdev *m = formatted();
	struct conn conn[CONNS] = { 0 };
	struct znsd d;

	if (broker_open(&m->dev, &d, NULL))
		abort();
	while (size >= 3) {
		struct conn *c = &conn[data[0] % CONNS];
		size_t len = zns_min((size_t)(data[1] | data[2] << 8), size - 3);
		ZnsPb__Request *req = zns_pb__request__unpack(NULL, len, data + 3);

		data += 3 + len;
		size -= 3 + len;
		if (!req)
			continue;
		/* Not found by chance, and not what is looked for here. */
		req->version = ZNS_BROKER_VERSION;
		if (c->waiter)
			zns_pb__request__free_unpacked(req, NULL);
		else
			ask(&d, c, req);
		reclaim_step(&d);
	}
	for (int i = 0; i < CONNS; i++) {
		waiter_drop(&d, &conn[i]);
		leases_of_conn_lost(&d, &conn[i]);
	}
	/* A reservation for normal I/O may hold every group, by rights. */
	while (zns_store_nr_reservations(d.store))
		if (zns_store_release(d.store, zns_store_reservation(d.store, 0)->container, NULL))
			abort();
	broker_idle(&d);
	for (uint32_t i = 0; i < d.nr_zones; i++)
		if (d.zones[i].writer || d.zones[i].readers)
			abort();
	must_work(&d);
	broker_close(&d);
	memdev_close(&m->dev);
	return 0;
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	/* The broker's log is not the fuzzer's. */
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC), keep = dup(STDERR_FILENO);

	if (getenv("FUZZ_QUIET") && null >= 0 && keep >= 0)
		dup2(null, STDERR_FILENO);
	return 0;
}
