/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * znsd and the memory that restores share: which restores get it, which zones are shared, and what
 * a reset, a lost connection or another user's connection does.
 */
#include "broker_fixture.h"
#include "zns/hot.h"
#include "zns/process.h"
#include <grp.h>

#define LEN KIB(256)

struct guest {
	struct zns_broker b;
	struct zns_hot *hot; /* descriptor of the shared memory; NULL: it got none */
};

/* A restore that asks for shared memory. @half: one of the two connections of a lazy restore. */
static struct guest part(struct fx *f, const struct grant *g, bool half)
{
	struct guest out = { .b = client(f) };
	struct zns_hot_shape shape;
	ZnsPb__RestoreBegin rb;
	struct zns_err err;
	ZnsPb__Response *r;
	ZnsPb__Request q;
	int fd = -1;

	restore_request(&q, &rb, g->id);
	rb.has_hot = rb.hot = 1;
	rb.has_half = rb.half = half;
	out.b.came = &fd;
	r = ask(&out.b, &q);
	out.b.came = NULL;
	assert_int_equal(r->hot != NULL, fd >= 0);
	if (r->hot) {
		shape = (struct zns_hot_shape){ r->hot->zones, r->hot->slots, r->hot->slot_bytes };
		assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
		assert_int_equal(zns_hot_join(fd, &shape, r->hot->owner, &out.hot, &err), 0);
	}
	drop(r);
	return out;
}

static struct guest guest(struct fx *f, const struct grant *g)
{
	return part(f, g, false);
}

static void leave(struct guest *g)
{
	zns_hot_free(g->hot);
	zns_broker_close(&g->b);
}

static struct zns_hot_unit unit_in(const struct zone *z)
{
	return (struct zns_hot_unit){ .zone = z->zone, .len = KIB(64), .off = z->start, .sum = 1 };
}

static enum zns_hot_got look(struct guest *g, const struct zone *z, bool fill,
			     struct zns_hot_place *at)
{
	static uint8_t buf[KIB(64)];
	struct zns_hot_unit u = unit_in(z);

	return zns_hot_get(g->hot, &u, buf, fill, at);
}

/* A single restore shares nothing; with a second one of the same checkpoint the zones of that one
 * are shared, and zones of other checkpoints are not. */
static void second_restore(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f);
	struct zone here, there;
	struct grant one = dump(f, &b, "one", LEN, &here);
	struct zns_broker b2 = client(f);
	struct grant two = dump(f, &b2, "two", LEN, &there);
	struct guest first = guest(f, &one), second, other;

	assert_non_null(first.hot);
	assert_false(zns_hot_wanted(first.hot, here.zone));
	other = guest(f, &two);
	assert_false(zns_hot_wanted(first.hot, here.zone));
	second = guest(f, &one);
	assert_true(zns_hot_wanted(first.hot, here.zone));
	assert_true(zns_hot_wanted(second.hot, here.zone));
	assert_false(zns_hot_wanted(other.hot, there.zone));
	leave(&second);
	/* for five seconds after the other's end, not longer */
	settle(&b);
	advance(&b, 4999);
	assert_true(zns_hot_wanted(first.hot, here.zone));
	advance(&b, 1);
	assert_false(zns_hot_wanted(first.hot, here.zone));
	leave(&first);
	leave(&other);
	zns_broker_close(&b);
	zns_broker_close(&b2);
}

/* A lazy restore is two clients, criu and its daemon, and counts as one, whichever comes and
 * goes first. Both may use units that another restore has read. */
static void two_halves(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f);
	struct zone z;
	struct grant g = dump(f, &b, "one", LEN, &z);
	struct guest daemon = guest(f, &g), criu = part(f, &g, true), other;

	assert_non_null(criu.hot);
	assert_false(zns_hot_wanted(daemon.hot, z.zone));
	leave(&criu);
	settle(&b);
	criu = part(f, &g, true);
	assert_false(zns_hot_wanted(daemon.hot, z.zone));
	other = guest(f, &g);
	assert_true(zns_hot_wanted(criu.hot, z.zone));
	leave(&other);
	leave(&criu);
	settle(&b);
	advance(&b, 4999); /* after the end of the other restore */
	assert_true(zns_hot_wanted(daemon.hot, z.zone));
	leave(&daemon);
	zns_broker_close(&b);
}

/*
 * A restore of a zone's present data must not get units that were shared before the zone was reset.
 */
static void rewritten_zone(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f), b2;
	struct zone here, again = { 0 };
	struct grant one = dump(f, &b, "one", LEN, &here), two;
	struct guest old = guest(f, &one), new;

	leave(&old);
	settle(&b);
	rm(&b, one.id, 1);
	assert_true(becomes(f, here.zone, ZNS_ZONE_EMPTY));
	for (int n = 0; n < 1000 && (!n || again.zone != here.zone); n++) {
		b2 = client(f);
		two = dump(f, &b2, "two", LEN, &again);
		zns_broker_close(&b2);
	}
	assert_int_equal(again.zone, here.zone);
	new = guest(f, &two);
	assert_false(zns_hot_wanted(new.hot, here.zone));
	leave(&new);
	zns_broker_close(&b);
}

/*
 * A restore that did not ask for the shared memory gets no descriptor, and other requests get none.
 */
static void unasked(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f);
	struct zone z;
	struct grant g = dump(f, &b, "one", LEN, &z);
	ZnsPb__RestoreBegin rb;
	ZnsPb__Response *r;
	ZnsPb__Request q;
	int fd = -1;

	b.came = &fd;
	restore_request(&q, &rb, g.id);
	r = ask(&b, &q);
	assert_null(r->hot);
	assert_int_equal(fd, -1);
	drop(r);
	zns_broker_close(&b);
}

/* A restore that reads a unit for all loses its connection: another restore may read the unit at
 * once. */
static void lost_bringer(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f);
	struct zone z;
	struct grant g = dump(f, &b, "one", LEN, &z);
	struct guest first = guest(f, &g), second = guest(f, &g);
	struct zns_hot_figures figures;
	struct zns_hot_place at;

	assert_int_equal(look(&first, &z, true, &at), ZNS_HOT_FILL);
	zns_broker_close(&first.b);
	assert_int_equal(look(&second, &z, true, &at), ZNS_HOT_FILL);
	zns_hot_figures(second.hot, &figures);
	assert_int_equal(figures.late, 0);
	zns_hot_free(first.hot);
	leave(&second);
	zns_broker_close(&b);
}

/* The zone is reset and written by another dump: its old shared units are not found. */
static void reset_zone(void **state)
{
	static uint8_t buf[KIB(64)];
	struct fx *f = *state;
	struct zns_broker b = client(f), b2;
	struct zone here, there;
	struct grant one = dump(f, &b, "one", LEN, &here), two;
	struct guest first = guest(f, &one), second = guest(f, &one), stays;
	struct zns_hot_unit u = unit_in(&here);
	struct zns_hot_place at;

	b2 = client(f);
	two = dump(f, &b2, "two", LEN, &there);
	stays = guest(f, &two);
	assert_int_equal(look(&first, &here, true, &at), ZNS_HOT_FILL);
	zns_hot_put(first.hot, &u, &at, buf);
	assert_int_equal(look(&second, &here, false, &at), ZNS_HOT_HAVE);
	leave(&first);
	leave(&second);
	assert_int_equal(look(&stays, &here, false, &at), ZNS_HOT_HAVE);
	rm(&b, one.id, 1);
	assert_true(becomes(f, here.zone, ZNS_ZONE_EMPTY));
	assert_int_equal(look(&stays, &here, false, &at), ZNS_HOT_NONE);
	leave(&stays);
	zns_broker_close(&b);
	zns_broker_close(&b2);
}

/* The broker holds a memfd of that name. */
static bool holds(uint32_t pid)
{
	char path[64], link[128];
	bool found = false;

	for (int fd = 0; fd < 64; fd++) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/%u/fd/%d", pid, fd);
		n = readlink(path, link, sizeof(link) - 1);
		if (n > 0)
			link[n] = 0;
		found |= n > 0 && strstr(link, "zns-hot");
	}
	return found;
}

/* Five seconds after the last restore the memory is given back, though the broker stays. */
static void given_back(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f);
	struct zone z;
	struct grant g = dump(f, &b, "one", LEN, &z);
	struct guest first = guest(f, &g);

	leave(&first);
	settle(&b);
	advance(&b, 4999);
	assert_true(holds(b.broker_pid));
	advance(&b, 1);
	assert_false(holds(b.broker_pid));
	first = guest(f, &g);
	assert_non_null(first.hot);
	leave(&first);
	zns_broker_close(&b);
}

static void configure(struct fx *f, const char *value)
{
	struct zns_err err = ZNS_ERR_INIT;

	if (zns_config_set("restore-cache", value, &err))
		fail_msg("%s", err.msg);
}

static void sizes(void **state)
{
	struct fx *f = *state;
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_broker b = client(f);
	struct guest none;
	struct zone z;
	struct grant g = dump(f, &b, "one", LEN, &z);
	uint64_t bytes;

	assert_int_equal(zns_config_restore_cache(&bytes, &err), 0);
	assert_true(bytes > 0 && bytes <= MIB(256));
	configure(f, "3G");
	assert_int_equal(zns_config_restore_cache(&bytes, &err), 0);
	assert_int_equal(bytes, MIB(3072));
	configure(f, "many");
	assert_int_equal(zns_config_restore_cache(&bytes, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "restore-cache = many: give a size"));
	none = guest(f, &g);
	assert_null(none.hot);
	leave(&none);
	configure(f, "0");
	assert_int_equal(zns_config_restore_cache(&bytes, &err), 0);
	assert_int_equal(bytes, 0);
	none = guest(f, &g);
	assert_null(none.hot);
	leave(&none);
	zns_broker_close(&b);
}

/* The broker of a user: root may talk to it, but shares no memory with that user. */
static void another_user(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f);
	struct zone z;
	struct grant g = dump(f, &b, "one", LEN, &z);
	ZnsPb__RestoreBegin rb;
	struct zns_err err = ZNS_ERR_INIT;
	ZnsPb__Response *r;
	ZnsPb__Request q;
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	char cmd[200], log[100], prog[PATH_MAX];
	char *argv[] = { "znsd", f->reg.path, "--foreground", "--idle", "20", NULL };
	int fd = -1, exe, status;
	pid_t pid;

	if (geteuid()) /* a user can become no other one */
		skip();
	kill_broker(&b);
	snprintf(cmd, sizeof(cmd), "chown -R 65534:65534 %s && chmod 755 %s", f->dir, f->dir);
	assert_int_equal(system(cmd), 0);
	snprintf(log, sizeof(log), "%s/log", f->dir);
	assert_int_equal(zns_find_program("znsd", prog, sizeof(prog)), 0);
	exe = open(prog, O_PATH | O_CLOEXEC); /* only root may be able to read the directory */
	assert_true(exe >= 0);
	pid = fork();
	if (!pid) {
		int out = open(log, O_WRONLY | O_CREAT, 0666);

		dup2(out, 2);
		if (setgroups(0, NULL) || setresgid(65534, 65534, 65534) ||
		    setresuid(65534, 65534, 65534))
			_exit(126);
		fexecve(exe, argv, environ);
		_exit(127);
	}
	assert_int_equal(zns_broker_path(f->reg.uuid, "sock", sa.sun_path, sizeof(sa.sun_path)), 0);
	b = (struct zns_broker){ .fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0),
				 .alive_fd = -1,
				 .watch_fd = -1,
				 .watch_pidfd = -1,
				 .came = &fd };
	until(!connect(b.fd, (struct sockaddr *)&sa, sizeof(sa)) ||
	      waitpid(pid, &status, WNOHANG) == pid);
	restore_request(&q, &rb, g.id);
	rb.has_hot = rb.hot = 1;
	if (zns_broker_call(&b, &q, &r, &err))
		fail_msg("%s", err.msg);
	assert_int_equal(r->n_checkpoints, 1);
	assert_null(r->hot);
	assert_int_equal(fd, -1);
	drop(r);
	close(b.fd);
	close(exe);
	kill(pid, SIGTERM);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	snprintf(cmd, sizeof(cmd), "chown -R 0:0 %s", f->dir);
	assert_int_equal(system(cmd), 0);
}

int main(void)
{
#define T(t) cmocka_unit_test_setup_teardown(t, fx_setup, fx_teardown)
	const struct CMUnitTest tests[] = {
		T(second_restore), T(two_halves),   T(rewritten_zone),
		T(unasked),        T(lost_bringer), T(reset_zone),
		T(given_back),     T(sizes),        T(another_user),
	};

	fx_still = true;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
