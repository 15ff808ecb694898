/* SPDX-License-Identifier: GPL-2.0-only */
/* NVMe reservations: which host gets the drive, which one is refused, what is released. The drive
 * is fake_drive.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>
#include "../../zns/broker/requests/host.c"
#include "fake_drive.h"
#include "zns/reserve.h"
#include "zns/util.h"

#define OK(x) assert_int_equal(x, 0)

static const char *const one = "11111111111111111111111111111111",
			 *const two = "22222222222222222222222222222222";
static struct zns_dev hosts[NR_HOSTS];

static int fd_of(struct zns_dev *d)
{
	return FD0 + (int)(d - hosts);
}

static int no_fd(struct zns_dev *d)
{
	return -1;
}

static const struct zns_dev_ops ops = { .name = "fake", .nvme_fd = fd_of };
static const struct zns_dev_ops plain_ops = { .name = "plain" },
				other_ops = { .name = "other", .nvme_fd = no_fd };

static int setup(void **state)
{
	fake_reset();
	for (unsigned i = 0; i < NR_HOSTS; i++) {
		hosts[i].ops = &ops;
		snprintf(hosts[i].path, sizeof(hosts[i].path), "/dev/nvme%un1", i);
	}
	return 0;
}

static struct zns_resv on(unsigned host, const char *machine)
{
	struct zns_resv r;

	OK(zns_resv_open(&hosts[host], machine, &r, NULL));
	assert_true(r.offered);
	return r;
}

static struct zns_resv_state look(const struct zns_resv *r)
{
	struct zns_resv_state s;

	OK(zns_resv_look(r, &s, NULL));
	return s;
}

static void nothing_offered(void)
{
	struct zns_resv_state s;
	struct zns_resv r;

	OK(zns_resv_open(&hosts[0], one, &r, NULL));
	assert_false(r.offered);
	OK(zns_resv_take(&r, false, NULL, NULL));
	OK(zns_resv_take(&r, true, NULL, NULL));
	assert_false(r.held);
	OK(zns_resv_look(&r, &s, NULL));
	assert_false(s.held);
	OK(zns_resv_leave(&r, NULL));
	assert_int_equal(drive.nr, 0);
}

/* Emulators, other block devices, drives without, users without the right: as if there were no such
 * thing. */
static void not_offered(void **state)
{
	hosts[0].ops = &plain_ops;
	nothing_offered();
	hosts[0].ops = &other_ops;
	nothing_offered();
	hosts[0].ops = &ops;
	drive.reservations = false;
	nothing_offered();
	drive.reservations = true;
	drive.rescap = NVME_NS_RESCAP_PTPL | NVME_NS_RESCAP_EA; /* no type that lets others read */
	nothing_offered();
	drive.rescap = NVME_NS_RESCAP_WE;
	drive.deny = true;
	nothing_offered();
}

static void one_host(void **state)
{
	struct zns_resv a = on(0, one), b = on(1, two);
	struct zns_err err = ZNS_ERR_INIT;
	const struct zns_resv_peer known = { one, "web1" }, wrong = { two, "web2" };
	char key[32];

	assert_false(look(&a).held);
	OK(zns_resv_take(&a, false, NULL, NULL));
	assert_true(a.held && a.fresh);
	assert_true(look(&a).ours);
	assert_int_equal(look(&a).type, NVME_RESERVATION_RTYPE_WE);
	assert_true(look(&b).held && !look(&b).ours);
	assert_true(look(&b).key == zns_resv_key(one));

	assert_int_equal(zns_resv_take(&b, false, NULL, &err), -EBUSY);
	snprintf(key, sizeof(key), "0x%016llx", (unsigned long long)zns_resv_key(one));
	assert_non_null(strstr(err.msg, key));
	assert_non_null(strstr(err.msg, "another host"));
	assert_non_null(strstr(err.msg, "znsctl register --take-over /dev/nvme1n1"));
	assert_false(b.held);
	assert_int_equal(drive.nr, 1); /* a host that is refused does not stay registered */
	assert_int_equal(zns_resv_take(&b, false, &known, &err), -EBUSY);
	assert_non_null(strstr(err.msg, "host web1 "));
	assert_int_equal(zns_resv_take(&b, false, &wrong, &err), -EBUSY);
	assert_null(strstr(err.msg, "web2"));
	OK(zns_resv_leave(&b, NULL));
	assert_true(look(&a).ours);

	OK(zns_resv_leave(&a, NULL));
	assert_int_equal(drive.nr, 0);
	OK(zns_resv_leave(&a, NULL));
	OK(zns_resv_take(&b, false, NULL, NULL));
	assert_true(look(&b).ours && look(&a).held && !look(&a).ours);
}

void znsd_say(int priority, const struct lease *l, const char *fmt, ...)
{
}

void device_heed(struct znsd *d, const struct zns_err *why)
{
}

/* A broker has the drive before it serves anybody; that of another host does not begin. */
static void broker_takes_it(void **state)
{
	struct server s[2] = { 0 };
	struct znsd d[2] = { { .dev = &hosts[0], .server = &s[0] },
			     { .dev = &hosts[1], .server = &s[1] } };
	struct zns_err err = ZNS_ERR_INIT;

	OK(reserve(&d[0], one, NULL, &err));
	assert_true(look(&s[0].resv).ours);
	assert_int_equal(reserve(&d[1], two, NULL, &err), -EBUSY);
	host_unreserve(&d[1]);
	host_unreserve(&d[0]);
	OK(reserve(&d[1], two, NULL, &err));
	assert_true(look(&s[1].resv).ours);
}

/* After a crash, with the same host identifier or, after a reboot, another one. */
static void same_machine(void **state)
{
	struct zns_resv a = on(0, one), again = on(0, one), rebooted;

	OK(zns_resv_take(&a, false, NULL, NULL));
	OK(zns_resv_take(&again, false, NULL, NULL));
	assert_true(again.held && !again.fresh);
	assert_int_equal(drive.nr, 1);

	rebooted = on(2, one);
	OK(zns_resv_take(&rebooted, false, NULL, NULL));
	assert_true(rebooted.held && rebooted.fresh && look(&rebooted).ours);
	assert_int_equal(drive.nr, 1);
	OK(zns_resv_leave(&rebooted, NULL));
	assert_int_equal(drive.nr, 0);
}

static void take_over(void **state)
{
	struct zns_resv a = on(0, one), b = on(1, two);

	OK(zns_resv_take(&a, false, NULL, NULL));
	OK(zns_resv_take(&b, true, NULL, NULL));
	assert_int_equal(drive.aborted, 1);
	assert_true(look(&b).ours && look(&a).held && !look(&a).ours);
	OK(zns_resv_leave(&a, NULL)); /* it is not a's any more */
	assert_true(look(&b).ours);
	assert_int_equal(drive.nr, 1);
	assert_int_equal(zns_resv_take(&a, false, NULL, NULL), -EBUSY);

	drive.no_abort = true;
	OK(zns_resv_take(&a, true, NULL, NULL));
	assert_int_equal(drive.aborted, 1);
	assert_true(look(&a).ours);
	OK(zns_resv_take(&b, true, NULL, NULL));
	OK(zns_resv_leave(&b, NULL));
	assert_int_equal(drive.nr, 0);
}

/* A reservation that all registered hosts hold: key 0 preempts it. */
static void held_by_all(void **state)
{
	struct zns_resv a = on(0, one), b = on(1, two), c = on(2, "3");

	OK(zns_resv_take(&a, false, NULL, NULL));
	drive.type = NVME_RESERVATION_RTYPE_WEAR;
	memcpy(drive.reg[1].host, drive.host[1], 16);
	drive.reg[drive.nr++].key = 99;
	assert_int_equal(zns_resv_take(&c, false, NULL, NULL), -EBUSY);
	OK(zns_resv_take(&b, false, NULL, NULL)); /* it is among those that hold it */
	assert_false(b.fresh);
	OK(zns_resv_leave(&b, NULL));
	assert_int_equal(drive.nr, 2);
	OK(zns_resv_take(&c, true, NULL, NULL));
	assert_int_equal(drive.nr, 1);
	assert_true(look(&c).ours);
	assert_int_equal(look(&c).type, NVME_RESERVATION_RTYPE_WE);
}

/* A PCIe drive does not know its host until it is told, and forgets it in a reset. */
static void nameless_host(void **state)
{
	struct zns_resv a, b;
	uint8_t told[16];

	for (int extended = 0; extended < 2; extended++) {
		setup(NULL);
		drive.extended = extended;
		memset(drive.host[0], 0, 16);
		if (!extended)
			memset(drive.host[1] + 8, 0, 8);
		a = on(0, one);
		b = on(1, two);
		memcpy(told, drive.host[0], 16);
		assert_memory_not_equal(told, (uint8_t[8]){ 0 }, 8);
		OK(zns_resv_take(&a, false, NULL, NULL));
		assert_true(look(&a).ours && !look(&b).ours);
		memset(drive.host[0], 0, 16);
		a = on(0, one);
		assert_memory_equal(told, drive.host[0], 16);
		assert_true(look(&a).ours);
		memset(drive.host[2], 0, 16);
		b = on(2, two);
		assert_memory_not_equal(told, drive.host[2], 8);
		assert_int_equal(zns_resv_take(&b, false, NULL, NULL), -EBUSY);
	}
	memset(drive.host[3], 0, 16);
	drive.no_host_id = true;
	OK(zns_resv_open(&hosts[3], two, &b, NULL));
	assert_false(b.offered);
	assert_non_null(strstr(b.why, "no identifier"));
}

/* What an administrator or other software on this host has set up stays. */
static void foreign_key(void **state)
{
	struct zns_resv a = on(0, one);

	memcpy(drive.reg[0].host, drive.host[0], 16);
	drive.reg[0].key = 42;
	drive.nr = 1;
	OK(zns_resv_take(&a, false, NULL, NULL));
	assert_true(a.fresh && a.key == 42 && look(&a).ours);
	OK(zns_resv_leave(&a, NULL));
	assert_int_equal(drive.nr, 1);
	assert_int_equal(drive.holder, -1);

	drive.holder = 0;
	drive.type = NVME_RESERVATION_RTYPE_EA;
	OK(zns_resv_take(&a, false, NULL, NULL));
	assert_true(a.held && !a.fresh);
	OK(zns_resv_leave(&a, NULL));
	assert_int_equal(drive.holder, 0);
	assert_int_equal(drive.type, NVME_RESERVATION_RTYPE_EA);
}

static void types(void **state)
{
	struct zns_resv a;

	drive.rescap = NVME_NS_RESCAP_WERO | NVME_NS_RESCAP_PTPL;
	a = on(0, one);
	OK(zns_resv_take(&a, false, NULL, NULL));
	assert_int_equal(look(&a).type, NVME_RESERVATION_RTYPE_WERO);
	assert_int_equal(drive.persisted, 1);
	assert_string_equal(zns_resv_type_name(NVME_RESERVATION_RTYPE_WE), "write-exclusive");
	assert_string_equal(zns_resv_type_name(NVME_RESERVATION_RTYPE_EAAR),
			    "exclusive-access-all-registrants");
	assert_string_equal(zns_resv_type_name(200), "unknown");
	assert_true(zns_resv_key(one) != zns_resv_key(two));
	assert_true(zns_resv_key(one) == zns_resv_key("11111111111111111111111111111111"));
}

static void somebody_is_faster(void)
{
	memcpy(drive.reg[drive.nr].host, drive.host[1], 16);
	drive.reg[drive.nr].key = zns_resv_key(two);
	drive.holder = (int)drive.nr++;
	drive.type = NVME_RESERVATION_RTYPE_WE;
	drive.before_acquire = NULL;
}

static void race(void **state)
{
	struct zns_resv a = on(0, one), b = on(1, two);

	drive.before_acquire = somebody_is_faster;
	assert_int_equal(zns_resv_take(&a, false, NULL, NULL), -EBUSY);
	assert_false(a.held);
	assert_int_equal(drive.nr, 1);
	assert_true(look(&b).ours);
}

static void many_hosts(void **state)
{
	struct zns_resv a = on(0, one), b = on(1, two);

	for (unsigned i = 0; i < 150; i++) {
		memset(drive.reg[drive.nr].host, 50 + i, 16);
		drive.reg[drive.nr++].key = 1000 + i;
	}
	OK(zns_resv_take(&a, false, NULL, NULL)); /* number 151 */
	assert_true(look(&a).ours);
	assert_int_equal(zns_resv_take(&b, false, NULL, NULL), -EBUSY);
	OK(zns_resv_leave(&a, NULL));
	assert_int_equal(drive.nr, 150);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(not_offered, setup),
		cmocka_unit_test_setup(one_host, setup),
		cmocka_unit_test_setup(broker_takes_it, setup),
		cmocka_unit_test_setup(same_machine, setup),
		cmocka_unit_test_setup(take_over, setup),
		cmocka_unit_test_setup(held_by_all, setup),
		cmocka_unit_test_setup(nameless_host, setup),
		cmocka_unit_test_setup(foreign_key, setup),
		cmocka_unit_test_setup(types, setup),
		cmocka_unit_test_setup(race, setup),
		cmocka_unit_test_setup(many_hosts, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
