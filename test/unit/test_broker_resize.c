/* SPDX-License-Identifier: GPL-2.0-only */
/* znsd and a store on an ordinary disk that grows or shrinks while dumps and restores run. */
#include "broker_fixture.h"
#include "zns/emu.h"

#define SMALL MIB(64)
#define LARGE MIB(96)

static int setup(void **state)
{
	struct fx *f = calloc(1, sizeof(*f));
	ZnsPb__Profile p = ZNS_PB__PROFILE__INIT;
	ZnsPb__DieGroup g = ZNS_PB__DIE_GROUP__INIT, *gp = &g;
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_emu_params e;
	char spec[128];
	uint8_t uuid[ZNS_UUID_LEN];

	fx_dir(f, "/tmp");
	snprintf(spec, sizeof(spec), "file:%s/dev", f->dir);
	if (zns_file_params(SMALL, &e, &err) ||
	    zns_emu_create(spec + strlen("file:"), &e, true, &err) ||
	    zns_dev_open(spec, 0, &f->dev, &err))
		fail_msg("%s", err.msg);
	p.source = "one-domain";
	p.zone_write_mibps = p.zone_read_mibps = 1000;
	p.groups = &gp;
	p.n_groups = 1;
	p.zone_group = calloc(e.nr_zones, sizeof(*p.zone_group));
	p.n_zone_group = e.nr_zones;
	zns_uuid_generate(uuid);
	if (zns_store_format(f->dev, uuid, &p, false, f->reg.uuid, &err) ||
	    zns_register(f->reg.uuid, spec, &err) ||
	    zns_registered_by_uuid(f->reg.uuid, &f->reg, &err))
		fail_msg("%s", err.msg);
	free(p.zone_group);
	*state = f;
	return 0;
}

static uint32_t zones_for(struct fx *f, uint64_t size)
{
	struct zns_err err = ZNS_ERR_INIT;
	uint32_t nr = 0;

	if (zns_file_zones_for(f->dev, size, &nr, &err))
		fail_msg("%s", err.msg);
	return nr;
}

static void resize_request(ZnsPb__Request *q, ZnsPb__Resize *z, uint32_t zones)
{
	zns_pb__resize__init(z);
	z->zones = zones;
	q->resize = z;
}

static void resized(struct fx *f, struct zns_broker *b, uint32_t zones)
{
	ZnsPb__Response *r;
	ZnsPb__Resize z;
	REQ(q);

	resize_request(&q, &z, zones);
	r = ask(b, &q);
	if (r->code)
		fail_msg("%s", r->error);
	drop(r);
	r = status(b);
	assert_int_equal(r->status->nr_zones, zones);
	drop(r);
	zns_dev_follow(f->dev);
	assert_int_equal(f->dev->geo.nr_zones, zones);
}

static void not_resized(struct zns_broker *b, uint32_t zones, int code, const char *why)
{
	ZnsPb__Resize z;
	REQ(q);

	resize_request(&q, &z, zones);
	refused(b, &q, code, why);
}

/* A dump of several streams, all in the one group. */
static struct grant stream(struct zns_broker *b, const char *container)
{
	struct grant g = begin(b, container, 0);

	g.n = 1;
	return g;
}

/* A dump whose first zone, *z, is zone @from or later. The broker continues its search where it
 * ended last. */
static struct grant begin_behind(struct zns_broker *b, const char *container, uint32_t from,
				 struct zone *z)
{
	for (int n = 0; n < 1000; n++) {
		struct grant g = stream(b, container);

		*z = zone_get(b, 0);
		if (z->zone >= from)
			return g;
		abort_dump(b);
	}
	fail_msg("no zone behind %u", from);
	return (struct grant){ 0 };
}

static void killed(struct fx *f, struct zns_broker *b)
{
	kill_broker(b);
	zns_broker_close(b);
	*b = client(f);
}

static void grows_beside_a_dump(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), r = client(f);
	uint32_t had = f->dev->geo.nr_zones, large = zones_for(f, LARGE);
	struct grant g = stream(&a, "web");
	struct zone z[2];

	z[0] = zone_get(&a, 0);
	fill(f, &z[0], KIB(64));
	resized(f, &r, large);
	while ((z[1] = zone_get(&a, 0)).zone < had)
		;
	fill(f, &z[1], KIB(128));
	fill(f, &z[0], KIB(64));
	commit(&a, &g, z, 2);
	assert_int_equal(nr_checkpoints(&r), 1);
	/* the next broker finds it so, and so does one that comes after a reboot */
	killed(f, &r);
	assert_int_equal(nr_checkpoints(&r), 1);
	resized(f, &r, large);
	zns_broker_close(&a);
	zns_broker_close(&r);
}

static void shrinks_when_a_dump_has_ended(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), b = client(f), r = client(f);
	uint32_t had = f->dev->geo.nr_zones, least = had - 20;
	struct grant g, other;
	ZnsPb__Response *s;
	struct zone z, y;

	g = begin_behind(&a, "web", least, &z);
	not_resized(&r, least, -EBUSY, "a dump of web (PID ");
	not_resized(&b, least, -EBUSY, "another command");
	/* no dump gets a zone there from now on */
	other = stream(&b, "db");
	for (int n = 0; n < 8; n++) {
		y = zone_get(&b, 0);
		assert_in_range(y.zone, 3, least - 1);
	}
	/* a dump that has such a zone keeps it */
	fill(f, &z, KIB(256));
	commit(&a, &g, &z, 1);
	not_resized(&r, least, -ENOTEMPTY, "256.0 KiB of checkpoints are behind the new end");
	rm(&r, g.id, 1);
	resized(f, &r, least);
	fill(f, &y, KIB(64));
	commit(&b, &other, &y, 1);
	s = status(&r);
	assert_int_equal(s->status->nr_checkpoints, 1);
	drop(s);
	killed(f, &r);
	resized(f, &r, least);
	assert_int_equal(nr_checkpoints(&r), 1);
	resized(f, &r, had);
	zns_broker_close(&a);
	zns_broker_close(&b);
	zns_broker_close(&r);
}

static void waits_for_a_restore(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), b = client(f), r = client(f);
	uint32_t least = f->dev->geo.nr_zones - 20;
	ZnsPb__RestoreBegin rb;
	struct grant g;
	struct zone z;
	REQ(q);

	g = begin_behind(&a, "web", least, &z);
	fill(f, &z, KIB(256));
	commit(&a, &g, &z, 1);
	restore_request(&q, &rb, g.id);
	drop(ask(&b, &q));
	not_resized(&r, least, -EBUSY, "a restore of web (PID ");
	zns_broker_close(&b);
	settle(&r);
	not_resized(&r, least, -ENOTEMPTY, "behind the new end");
	zns_broker_close(&a);
	zns_broker_close(&r);
}

/* The first zone behind the coming end is one of those that no dump gets any more. */
static void end_is_exact(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), b = client(f), r = client(f);
	uint32_t had = f->dev->geo.nr_zones;
	struct grant g;
	struct zone z;

	g = begin_behind(&a, "web", had - 2, &z);
	fill(f, &z, KIB(256));
	commit(&a, &g, &z, 1);
	begin_behind(&b, "db", had - 20, &z);
	while (z.zone >= had - 2) {
		abort_dump(&b);
		begin_behind(&b, "db", had - 20, &z);
	}
	/* the next zone would be the one behind it */
	not_resized(&r, z.zone + 1, -ENOTEMPTY, "behind the new end");
	assert_in_range(zone_get(&b, 0).zone, 3, z.zone);
	zns_broker_close(&a);
	zns_broker_close(&b);
	zns_broker_close(&r);
}

/* A resize whose command was killed leaves nothing behind. */
static void is_given_up(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), b = client(f), r = client(f);
	uint32_t had = f->dev->geo.nr_zones, least = had - 20;
	struct zone z;

	begin_behind(&a, "web", least, &z);
	not_resized(&r, least, -EBUSY, "a dump of web");
	zns_broker_close(&r);
	settle(&b);
	begin_behind(&b, "db", least, &z);
	not_resized(&b, 2, -EINVAL, "cannot have 2 zones");
	zns_broker_close(&a);
	zns_broker_close(&b);
}

/* A dump by an older program, which does not announce that it notices when the store grows. */
static void earlier_dump(struct zns_broker *b)
{
	uint8_t *in = NULL;
	uint32_t len;
	ZnsPb__Response *r;
	ZnsPb__DumpBegin d;
	REQ(q);

	begin_request(&q, &d, "web", 0, NULL, NULL);
	post(b, &q);
	assert_int_equal(zns_msg_recv(b->fd, &in, &len, NULL, NULL), 0);
	r = zns_pb__response__unpack(NULL, len, in);
	free(in);
	assert_non_null(r);
	assert_int_equal(r->code, 0);
	drop(r);
}

static void waits_for_an_earlier_build(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), r = client(f);
	uint32_t had = f->dev->geo.nr_zones, large = zones_for(f, LARGE);

	earlier_dump(&a);
	not_resized(&r, large, -EBUSY, "a program of an earlier build");
	not_resized(&r, had - 20, -EBUSY, "a program of an earlier build");
	resized(f, &r, had);
	zns_broker_close(&a);
	settle(&r);
	resized(f, &r, large);
	zns_broker_close(&r);
}

/* A dump that waits for admission has already opened the device. */
static void waits_for_an_earlier_build_in_the_queue(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), b = client(f), r = client(f);
	uint32_t large = zones_for(f, LARGE);
	ZnsPb__DumpBegin d;
	REQ(q);

	begin(&a, "db", 900);
	begin_request(&q, &d, "web", 900, "wait", NULL);
	post(&b, &q);
	until(nr_waiting(&r) == 1);
	not_resized(&r, large, -EBUSY, "a program of an earlier build");
	assert_int_equal(nr_waiting(&r), 1);
	zns_broker_close(&b);
	settle(&r);
	resized(f, &r, large);
	zns_broker_close(&a);
	zns_broker_close(&r);
}

static void refused_for_drives(void **state)
{
	struct fx *f = *state;
	struct zns_broker r = client(f);

	not_resized(&r, ZONES + 8, -EMEDIUMTYPE, "no store on a disk");
	zns_broker_close(&r);
}

int main(void)
{
#define T(t) cmocka_unit_test_setup_teardown(t, setup, fx_teardown)
	const struct CMUnitTest tests[] = {
		T(grows_beside_a_dump),
		T(shrinks_when_a_dump_has_ended),
		T(waits_for_a_restore),
		T(is_given_up),
		T(end_is_exact),
		T(waits_for_an_earlier_build),
		T(waits_for_an_earlier_build_in_the_queue),
		cmocka_unit_test_setup_teardown(refused_for_drives, fx_setup, fx_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
