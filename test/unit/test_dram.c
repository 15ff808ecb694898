/* SPDX-License-Identifier: GPL-2.0-only */
/* How contexts divide DRAM: the arithmetic, the ages, and the table in which they tell of
 * themselves. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "../../zns/memory/pager/control.c"
#include "../../zns/memory/policy/lines.h"
#include "zns/util.h"

#define SECOND 7U /* the index of ages of about one second */
#define HOUR (HEAT_BUCKETS - 1)

static void ages(void **state)
{
	struct heat h = { 0 };

	assert_int_equal(heat_bucket(0), 0);
	assert_int_equal(heat_bucket(UINT32_MAX), HEAT_BUCKETS - 1);
	for (unsigned int b = 0; b < HEAT_BUCKETS; b++) {
		assert_int_equal(heat_bucket(heat_age(b)), b);
		assert_true(!b || heat_age(b) > heat_age(b - 1));
	}
	h.bytes[3] = MIB(8);
	h.bytes[10] = MIB(2);
	assert_int_equal(heat_cut(&h, MIB(1)), heat_age(10));
	assert_int_equal(heat_cut(&h, MIB(2)), heat_age(10));
	assert_int_equal(heat_cut(&h, MIB(3)), heat_age(3));
	assert_int_equal(heat_cut(&h, MIB(11)), 0);
}

static struct dram_line context(uint64_t young, uint64_t old)
{
	struct dram_line l = {
		.resident = young + old + MIB(2), .min = MIB(4), .stays = MIB(2), .total = GIB(1)
	};

	l.heat.bytes[SECOND] = young;
	l.heat.bytes[HOUR] = old;
	return l;
}

static uint64_t sum_of(const uint64_t *share, unsigned int nr)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < nr; i++)
		sum += share[i];
	return sum;
}

/* The idle ones give what the active one needs. */
static void oldest_first(void **state)
{
	struct dram_line l[3] = { context(MIB(60), 0), context(0, MIB(60)), context(0, MIB(30)) };
	uint64_t share[3];

	dram_divide(l, 3, MIB(100), share);
	assert_true(share[0] >= MIB(62));
	assert_true(share[1] > share[2] && share[2] >= MIB(4));
	assert_true(sum_of(share, 3) <= MIB(100) && sum_of(share, 3) > MIB(99));
	/* there is room for all: what no context needs is shared by all */
	dram_divide(l, 3, MIB(300), share);
	for (int i = 0; i < 3; i++)
		assert_true(share[i] > l[i].resident);
	/* memory that was read back lately competes with memory that others have not used */
	l[0].heat.bytes[SECOND] += MIB(20);
	dram_divide(l, 3, MIB(100), share);
	assert_true(share[0] >= MIB(82));
}

static void minima(void **state)
{
	struct dram_line l[2] = { context(MIB(500), 0), context(0, MIB(500)) };
	uint64_t share[2];

	l[1].min = MIB(64);
	dram_divide(l, 2, MIB(128), share);
	assert_true(share[1] >= MIB(64) && sum_of(share, 2) <= MIB(128));
	/* not even the minima: parts of them */
	l[0].min = MIB(192);
	dram_divide(l, 2, MIB(128), share);
	assert_true(share[0] > 2 * share[1] && sum_of(share, 2) <= MIB(128));
	/* what cannot go is no matter of wishes */
	l[0].stays = MIB(200);
	dram_divide(l, 2, MIB(128), share);
	assert_true(share[0] >= MIB(200));
}

/* A context that waits for zones is not made smaller while others can be; if none can, it is. */
static void brake(void **state)
{
	struct dram_line l[2] = { context(MIB(10), MIB(50)), context(MIB(60), 0) };
	uint64_t share[2];

	dram_divide(l, 2, MIB(90), share);
	assert_true(share[0] < l[0].resident);
	l[0].stall_permille = 300;
	dram_divide(l, 2, MIB(90), share);
	assert_true(share[0] >= l[0].resident && share[1] < l[1].resident);
	dram_divide(l, 2, MIB(50), share);
	assert_true(share[0] < l[0].resident && sum_of(share, 2) <= MIB(50));
}

static void pressure(void **state)
{
	struct dram_line l[2] = { context(0, 0), context(0, 0) };

	l[1].total = MIB(512);
	assert_true(dram_total(l, 2) == MIB(512));
	l[0].pressure = 2500;
	assert_true(dram_total(l, 2) == MIB(384));
	l[0].pressure = UINT32_MAX;
	assert_true(dram_total(l, 2) == MIB(256));
}

static void steps(void **state)
{
	struct dram_line l[2] = { context(MIB(50), 0), context(MIB(30), 0) };

	assert_true(dram_step(MIB(64), MIB(8), l, 2, MIB(100)) == MIB(56));
	assert_true(dram_step(MIB(64), MIB(60), l, 2, MIB(100)) == MIB(60));
	/* 84 MiB are used: half of the rest */
	assert_true(dram_step(MIB(30), MIB(90), l, 2, MIB(100)) == MIB(38));
	assert_true(dram_step(MIB(30), MIB(90), l, 2, MIB(50)) == MIB(30));
}

/* Numbers that nobody has: no overflow, no division by zero. */
static void absurd(void **state)
{
	struct dram_line l[LINES_MAX];
	uint64_t share[LINES_MAX];

	memset(l, 0xff, sizeof(l));
	dram_divide(l, LINES_MAX, MIB(100), share);
	dram_divide(l, LINES_MAX, UINT64_MAX / 2, share);
	dram_step(UINT64_MAX / 2, 0, l, LINES_MAX, dram_total(l, LINES_MAX));
	memset(l, 0, sizeof(l));
	dram_divide(l, LINES_MAX, MIB(256), share);
	assert_true(sum_of(share, LINES_MAX) == MIB(256));
	dram_divide(l, LINES_MAX, 0, share);
	assert_true(sum_of(share, LINES_MAX) == 0);
}

static int scratch(char path[64])
{
	strcpy(path, "/tmp/zns-test-dram-XXXXXX");
	assert_non_null(mkdtemp(path));
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void table(void **state)
{
	struct lines a, b, c;
	struct dram_line l[LINES_MAX], one = context(MIB(1), MIB(2));
	struct zns_err err = ZNS_ERR_INIT;
	unsigned int own = LINES_MAX;
	char path[64], file[96];
	int dir = scratch(path), fd;

	assert_int_equal(lines_open(&a, dir, &err), 0);
	assert_int_equal(lines_open(&b, dir, &err), 0);
	assert_int_equal(lines_open(&c, dir, &err), 0);
	one.min = 1;
	assert_int_equal(lines_write(&a, &one), 0);
	one.min = 2;
	assert_int_equal(lines_write(&b, &one), 0);
	one.min = 3;
	assert_int_equal(lines_write(&c, &one), 0);
	assert_int_equal(lines_read(&b, l, &own), 3);
	assert_true(own == 1 && l[0].min == 1 && l[1].min == 2 && l[2].min == 3);
	/* the process died: its line is free, and the next process gets it */
	lines_close(&a);
	assert_int_equal(lines_read(&b, l, &own), 2);
	assert_true(own == 0 && l[1].min == 3);
	assert_int_equal(lines_open(&a, dir, &err), 0);
	assert_int_equal(a.own, 0);
	/* a damaged one is skipped, and so is what is missing */
	snprintf(file, sizeof(file), "%s/dram.table", path);
	fd = open(file, O_RDWR | O_CLOEXEC);
	assert_int_equal(pwrite(fd, "x", 1, (off_t)c.own * (lseek(fd, 0, SEEK_END) / 3) + 40), 1);
	assert_int_equal(lines_read(&b, l, &own), 2);
	assert_int_equal(ftruncate(fd, 100), 0);
	assert_int_equal(lines_read(&b, l, &own), 0);
	close(fd);
	lines_close(&a);
	lines_close(&b);
	lines_close(&c);
	unlink(file);
	rmdir(path);
	close(dir);
}

/* A file that another user could have put there is refused. */
static void not_ours(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;
	char path[64], file[96], other[96];
	int dir = scratch(path);
	struct lines t;

	snprintf(file, sizeof(file), "%s/dram.table", path);
	snprintf(other, sizeof(other), "%s/other", path);
	assert_int_equal(symlink("/etc/passwd", file), 0);
	assert_true(lines_open(&t, dir, &err) < 0);
	unlink(file);
	close(open(file, O_CREAT | O_WRONLY, 0600));
	assert_int_equal(chmod(file, 0622), 0);
	assert_int_equal(lines_open(&t, dir, &err), -EPERM);
	assert_int_equal(chmod(file, 0600), 0);
	assert_int_equal(link(file, other), 0);
	assert_int_equal(lines_open(&t, dir, &err), -EPERM);
	unlink(other);
	unlink(file);
	assert_int_equal(mkfifo(file, 0600), 0);
	assert_int_equal(lines_open(&t, dir, &err), -EPERM);
	unlink(file);
	assert_int_equal(lines_open(&t, dir, &err), 0);
	lines_close(&t);
	unlink(file);
	rmdir(path);
	close(dir);
}

int quiesce_open(struct pager *p, struct zns_err *err)
{
	return 0;
}

void quiesce_close(struct pager *p)
{
}

/* A budget below the least that a pager needs is refused, also if the pager's caller did
 * not check. */
static void least_budget(void **state)
{
	static const uint64_t dram[] = { 0, 1, MIB(1) - 1 };
	ZnsPb__MemoryRequest q = ZNS_PB__MEMORY_REQUEST__INIT;
	ZnsPb__MemoryAnswer a = ZNS_PB__MEMORY_ANSWER__INIT;
	struct zns_err err = ZNS_ERR_INIT;
	struct pager p = { 0 };
	ZnsPb__MemoryStatus st;

	q.op = ZNS_PB__MEMORY_OP__MEMORY_LIMIT;
	assert_int_equal(act(&p, &q, &a, &st, &err), -EINVAL);
	q.has_dram = 1;
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(dram); i++) {
		q.dram = dram[i];
		assert_int_equal(act(&p, &q, &a, &st, &err), -EINVAL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ages),     cmocka_unit_test(oldest_first),
		cmocka_unit_test(minima),   cmocka_unit_test(brake),
		cmocka_unit_test(pressure), cmocka_unit_test(steps),
		cmocka_unit_test(absurd),   cmocka_unit_test(table),
		cmocka_unit_test(not_ours), cmocka_unit_test(least_budget),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
