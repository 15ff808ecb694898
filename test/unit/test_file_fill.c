/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How full does a store on a disk get before a dump is refused? Checkpoints are written and
 * removed until many times the store's size was written. And how much more than the checkpoints
 * does that write? Without arguments this is a short test of the gate; with SIZE CHURN MIX QOS it
 * runs longer and prints a line of the table in devices.md. With ZNS_EMU_DATA=none in the
 * environment it stores no data, and a store of 64 GiB needs neither disk nor memory.
 */
#include <math.h>
#include "file_fixture.h"
#include "zns/emu.h"
#include "zns/grow.h"

struct mix {
	const char *name;
	uint64_t least, most; /* bytes; sizes are spread evenly over their logarithm */
	uint32_t containers;
};

static const struct mix mixes[] = {
	{ "one", MIB(44), MIB(44), 1 }, /* one name for each dump, as a newcomer has it */
	{ "large", MIB(8), GIB(1), 50 },   { "huge", GIB(1), GIB(1), 50 },
	{ "all", KIB(100), GIB(1), 5000 }, { "small", KIB(100), MIB(1), 5000 },
};

struct live {
	uint8_t id[ZNS_UUID_LEN];
	uint64_t bytes;
};

struct churn {
	struct fx f;
	struct mix mix;
	uint32_t qos, seed, nr, max;
	uint64_t room, live, written;
	struct live *v;
	double worst, sum;
	uint32_t refused;
	uint64_t ours_before; /* bytes that this process wrote before the churn */
	uint64_t in_vain; /* bytes that it wrote for dumps that were refused in the end */
	uint64_t broker, earlier_brokers; /* bytes that this broker wrote, and those before it */
	uint32_t broker_pid;
};

/* Bytes that a process has given to write calls; 0: it is gone. */
static uint64_t written_by(uint32_t pid)
{
	unsigned long long bytes = 0;
	char path[32];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%u/io", pid);
	f = fopen(path, "re");
	if (f && fscanf(f, "rchar: %*u wchar: %llu", &bytes) != 1)
		bytes = 0;
	if (f)
		fclose(f);
	return bytes;
}

/* A broker that has exited counts as far as it was observed. */
static void look_at_broker(struct churn *c, uint32_t pid)
{
	if (c->broker_pid != pid) {
		c->earlier_brokers += c->broker;
		c->broker = 0;
		c->broker_pid = pid;
	}
	c->broker = zns_max(c->broker, written_by(pid));
}

/* Bytes written to the store for each byte of checkpoints, without what dumps had written that were
 * refused in the end. */
static double amplification(const struct churn *c)
{
	uint64_t all = written_by((uint32_t)getpid()) - c->ours_before - c->in_vain + c->broker +
		       c->earlier_brokers;

	return (double)all / (double)c->written;
}

static uint64_t draw(struct churn *c)
{
	double part = rand_r(&c->seed) / (double)RAND_MAX;
	uint64_t most = zns_min(c->mix.most, zns_max(c->mix.least, c->room / 50));

	return (uint64_t)((double)c->mix.least * pow((double)most / (double)c->mix.least, part));
}

static int dump_of(struct churn *c, uint64_t bytes, uint8_t *id, struct zns_err *err)
{
	char name[32];

	snprintf(name, sizeof(name), "c%u", (unsigned)rand_r(&c->seed) % c->mix.containers);
	return save_pages(&c->f, name, c->qos, bytes, id, err);
}

static void remove_some(struct churn *c)
{
	uint32_t i = (unsigned)rand_r(&c->seed) % c->nr;
	struct zns_broker b = client(&c->f);

	rm(&b, c->v[i].id, 1);
	look_at_broker(c, b.broker_pid);
	zns_broker_close(&b);
	c->live -= c->v[i].bytes;
	c->v[i] = c->v[--c->nr];
}

/* Runs until the store was written @times times. Refused writes are retried after removals. */
static void turn_over(struct churn *c, double times)
{
	struct zns_err err = ZNS_ERR_INIT;
	uint64_t bytes = draw(c);
	uint8_t id[ZNS_UUID_LEN];
	bool again = false;

	c->worst = 1;
	while ((double)c->written < times * (double)c->room) {
		uint64_t before = written_by((uint32_t)getpid());
		int ret = dump_of(c, bytes, id, &err);

		if (ret != -ENOSPC) {
			good(ret, &err);
			assert_int_equal(zns_grow(c->v, c->nr, c->max), 0);
			memcpy(c->v[c->nr].id, id, sizeof(id));
			c->v[c->nr++].bytes = bytes;
			c->live += bytes;
			c->written += bytes;
			bytes = draw(c);
			again = false;
			continue;
		}
		c->in_vain += written_by((uint32_t)getpid()) - before;
		assert_true(c->nr);
		if (!again) { /* full, and not only not yet empty enough */
			double part = (double)c->live / (double)c->room;

			c->worst = zns_min(c->worst, part);
			c->sum += part;
			c->refused++;
		}
		again = true;
		remove_some(c);
	}
}

static void churn(struct churn *c, uint64_t size, double times)
{
	const bool stores = !getenv("ZNS_EMU_DATA");
	uint64_t bytes;

	unsetenv("ZNS_EMU_DATA"); /* but the catalogue is */
	c->room = fx_open_file(&c->f, size);
	if (!stores)
		setenv("ZNS_EMU_DATA", "none", 1);
	c->ours_before = written_by((uint32_t)getpid());
	turn_over(c, times);
	bytes = c->written;
	printf("%-8s QoS %4u: written %5.1f x its size; full %u times, live then: %.1f %% mean, %.1f %% at least",
	       c->mix.name, c->qos, (double)bytes / (double)c->room, c->refused,
	       c->refused ? 100 * c->sum / c->refused : 0, 100 * c->worst);
	if (!stores) { /* what is not stored is not counted */
		printf("\n");
		return;
	}
	printf("; %.3f bytes written for each, and %.3f by refused dumps\n", amplification(c),
	       (double)c->in_vain / (double)bytes);
	assert_in_range(1000 * amplification(c), 1000, 1100);
	assert_true(10 * c->in_vain < bytes);
}

static void run(struct churn *c, uint64_t size, double times)
{
	churn(c, size, times);
	free(c->v);
	fx_close(&c->f);
}

static void fills_to_the_brim(void **state)
{
	struct churn c = { .seed = 1, .mix = { "gate", MIB(4), MIB(10), 40 } };

	run(&c, MIB(512), 2.5);
	assert_true(c.refused > 0);
	assert_true(c.worst > 0.95);
}

/* Small ones go where others were removed. They are whole then, and those that were removed do not
 * come back from a store without its log. */
static void small_ones(void **state)
{
	struct churn c = { .seed = 4, .mix = { "gate small", KIB(100), MIB(1), 40 } };
	ZnsPb__Response *r;
	struct zns_broker b;
	char dev[300], args[400];
	REQ(q);

	churn(&c, MIB(64), 3);
	assert_true(c.refused > 0);
	assert_true(c.worst > 0.94);
	snprintf(dev, sizeof(dev), "%s", c.f.dev->path);
	ctl("verify --all");
	snprintf(args, sizeof(args), "fsck --rebuild --force %s", dev);
	ctl(args);
	ctl("verify --all");
	b = client(&c.f);
	q.has_ls = q.ls = 1;
	r = ask(&b, &q);
	assert_int_equal(r->n_checkpoints, c.nr);
	for (uint32_t i = 0, k; i < c.nr; i++) {
		for (k = 0; k < c.nr && memcmp(r->checkpoints[k]->id.data, c.v[i].id, 16); k++)
			;
		assert_true(k < c.nr);
	}
	zns_pb__response__free_unpacked(r, NULL);
	zns_broker_close(&b);
	free(c.v);
	fx_close(&c.f);
}

/* One name for each dump: a new one needs no zone of its own predecessor's. */
static void one_name(void **state)
{
	struct churn c = { .seed = 2, .mix = { "gate one", MIB(44), MIB(44), 1 } };

	run(&c, GIB(1), 1.2);
	assert_true(c.refused > 0);
	/* 22 or 21 of 1 GiB */
	assert_true(c.worst > 0.89);
}

/* Its rate was measured once: a sharing dump is not refused for asking more. A promise is. */
static void more_than_the_disk(void **state)
{
	struct churn c = { .seed = 3, .mix = { "rate", MIB(1), MIB(1), 1 }, .qos = 2000 };
	struct zns_err err = ZNS_ERR_INIT;
	ZnsPb__DumpBegin m;
	struct zns_broker b;
	uint8_t id[ZNS_UUID_LEN];
	REQ(q);

	c.room = fx_open_file(&c.f, MIB(64));
	good(dump_of(&c, MIB(1), id, &err), &err);
	b = client(&c.f);
	begin_request(&q, &m, "c0", 2000, "reject", NULL);
	refused(&b, &q, -ERANGE, "which is all that its disk writes");
	zns_broker_close(&b);
	fx_close(&c.f);
}

/* What can never fit is refused before it is written, and what another dump has may come back. */
static void more_than_the_room(void **state)
{
	struct churn c = { .seed = 5, .mix = { "room", MIB(1), MIB(1), 1 } };
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_broker b, other;
	ZnsPb__DumpBegin m;
	uint8_t id[ZNS_UUID_LEN];
	REQ(q);

	c.room = fx_open_file(&c.f, MIB(64));
	good(dump_of(&c, c.room / 2, id, &err), &err);
	other = client(&c.f);
	begin_request(&q, &m, "other", 0, NULL, NULL);
	m.has_expected_bytes = m.has_least_bytes = 1;
	m.expected_bytes = m.least_bytes = c.room / 2 - MIB(2);
	drop(ask(&other, &q));
	b = client(&c.f);
	drop(ask(&b, &q));
	abort_dump(&b);
	m.least_bytes = c.room / 2 + MIB(2);
	refused(&b, &q, -ENOSPC, "no room for ");
	abort_dump(&other);
	zns_broker_close(&other);
	zns_broker_close(&b);
	fx_close(&c.f);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fills_to_the_brim),  cmocka_unit_test(small_ones),
		cmocka_unit_test(one_name),           cmocka_unit_test(more_than_the_disk),
		cmocka_unit_test(more_than_the_room),
	};
	uint64_t size;

	if (argc < 5)
		return cmocka_run_group_tests(tests, NULL, NULL);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(mixes); i++) {
		struct churn c = { .seed = 1, .mix = mixes[i], .qos = (uint32_t)atoi(argv[4]) };

		if (strcmp(argv[3], mixes[i].name))
			continue;
		if (zns_parse_size(argv[1], &size))
			return 2;
		run(&c, size, atof(argv[2]));
	}
	return 0;
}
