/* SPDX-License-Identifier: GPL-2.0-only */
/* The broker runs `znsctl gc` by itself, from time to time, if no other program does. */
#include "broker_fixture.h"
#include "zns/config.h"

#define HOUR 3600000u /* ms */

/* A broker whose znsctl only notes that it was run, and runs @then. The broker uses the znsctl in
 * its own directory, whatever the environment says. */
static void fake_znsctl(struct fx *f, const char *then)
{
	char dir[300], to[PATH_MAX], command[2 * PATH_MAX];
	FILE *file;

	snprintf(dir, sizeof(dir), "%s/libexec", f->dir);
	assert_int_equal(mkdir(dir, 0700), 0);
	snprintf(command, sizeof(command), "cp '%s/znsd' '%s/'", getenv("ZNS_LIBEXEC"), dir);
	assert_int_equal(system(command), 0);
	snprintf(to, sizeof(to), "%s/znsctl", dir);
	file = fopen(to, "w");
	assert_non_null(file);
	fprintf(file, "#!/bin/sh\necho $$ >%s/pid\necho \"$*\" >>%s/ran\n%s\n", f->dir, f->dir,
		then);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(to, 0700), 0);
	setenv("ZNS_LIBEXEC", dir, 1);
}

/* How often it was run; every time for this device. */
static unsigned ran(struct fx *f)
{
	char path[300], line[300], want[300], id[ZNS_UUID_STR];
	unsigned n = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s/ran", f->dir);
	snprintf(want, sizeof(want), "gc --no-programs --dev %s\n",
		 zns_uuid_format(f->reg.uuid, id));
	file = fopen(path, "r");
	for (; file && fgets(line, sizeof(line), file); n++)
		assert_string_equal(line, want);
	if (file)
		fclose(file);
	return n;
}

static pid_t pid_of(struct fx *f)
{
	char path[300];
	int pid = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s/pid", f->dir);
	file = fopen(path, "r");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%d", &pid), 1);
	fclose(file);
	return pid;
}

/* Waits until it was run @n times, and the broker has seen its end. No time passes meanwhile: after
 * ten minutes the broker would kill it. */
static void has_run(struct fx *f, struct zns_broker *b, unsigned n)
{
	until(ran(f) == n);
	until((settle(b), kill(pid_of(f), 0) && errno == ESRCH));
}

static void rule(struct zns_broker *b)
{
	ZnsPb__Retention r = ZNS_PB__RETENTION__INIT;
	REQ(q);

	r.container = (char *)"web";
	r.has_keep = 1;
	r.keep = 3;
	q.retain = &r;
	drop(ask(b, &q));
}

/* Lets the broker check; each check reads the clock anew. */
static void pass(struct zns_broker *b, unsigned ms)
{
	advance(b, ms);
	advance(b, 61000);
}

static void rarely(void **state)
{
	struct fx *f = *state;
	struct zns_broker b;

	fake_znsctl(f, "");
	b = client(f);
	pass(&b, 4 * HOUR); /* it counts from here */
	pass(&b, 4 * HOUR); /* but there is nothing that could go */
	assert_int_equal(ran(f), 0);
	rule(&b);
	pass(&b, 0);
	has_run(f, &b, 1);
	pass(&b, 1 * HOUR);
	assert_int_equal(ran(f), 1);
	pass(&b, 2 * HOUR);
	has_run(f, &b, 2);
	/* the timer does it, or a user */
	for (int i = 0; i < 5; i++) {
		zns_swept_note(f->reg.uuid);
		pass(&b, 1 * HOUR);
	}
	assert_int_equal(ran(f), 2);
	pass(&b, 2 * HOUR);
	has_run(f, &b, 3);
	zns_broker_close(&b);
}

/* Beside a dump it waits, and does it then. */
static void after_the_dump(void **state)
{
	struct fx *f = *state;
	struct zns_broker b, dump;
	ZnsPb__DumpBegin m;
	REQ(q);

	fake_znsctl(f, "");
	b = client(f);
	rule(&b);
	pass(&b, 0);
	dump = client(f);
	begin_request(&q, &m, "other", 0, NULL, NULL);
	drop(ask(&dump, &q));
	pass(&b, 4 * HOUR);
	assert_int_equal(ran(f), 0);
	abort_dump(&dump);
	zns_broker_close(&dump);
	pass(&b, 0);
	has_run(f, &b, 1);
	zns_broker_close(&b);
}

static void never(void **state)
{
	struct fx *f = *state;
	struct zns_broker b;
	struct zns_err err;

	fake_znsctl(f, "");
	assert_int_equal(zns_config_set("sweep", "0", &err), 0);
	b = client(f);
	rule(&b);
	for (int i = 0; i < 3; i++)
		pass(&b, 24 * HOUR);
	assert_int_equal(ran(f), 0);
	zns_broker_close(&b);
}

/* It is ended with its broker: it would start the next one. */
static void ends_with_its_broker(struct fx *f, bool killed)
{
	struct pollfd p = { .events = POLLIN };
	struct zns_broker b;
	pid_t pid;
	REQ(q);

	fake_znsctl(f, "exec sleep 1000");
	b = client(f);
	rule(&b);
	pass(&b, 0);
	pass(&b, 4 * HOUR);
	until(ran(f) == 1);
	pid = pid_of(f);
	p.fd = pidfd_of((uint32_t)pid);
	q.has_quit = q.quit = 1;
	if (killed)
		assert_int_equal(kill((pid_t)b.broker_pid, SIGKILL), 0);
	else
		drop(ask(&b, &q));
	zns_broker_close(&b);
	if (poll(&p, 1, UNTIL_S * 1000) != 1) {
		kill(pid, SIGKILL);
		fail_msg("gc runs on");
	}
	close(p.fd);
}

static void broker_leaves(void **state)
{
	ends_with_its_broker(*state, false);
}

static void broker_is_killed(void **state)
{
	ends_with_its_broker(*state, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(rarely, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(after_the_dump, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(never, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(broker_leaves, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(broker_is_killed, fx_setup, fx_teardown),
	};

	fx_still = true;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
