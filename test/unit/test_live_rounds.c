/* SPDX-License-Identifier: GPL-2.0-only */
/* When the rounds of a live dump end, and what the dump says of them: with tasks that write as the
 * test says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/socket.h>
#include <cmocka.h>

#include "../../zns/helper/live/live_rounds.c"

#define MANY (LIVE_ROUNDS_MAX + 4U)

/* ---- a task ---- */

static struct live live;
static struct dump dump;
static struct helper helper;
static struct live_task task;
static uint64_t writes[MANY]; /* bytes that it writes before each round */
static uint32_t armed, copied, opened; /* calls */
static int barrier_code, copy_code;

int __wrap_live_look(struct live *l, struct zns_err *err);
int __wrap_live_look(struct live *l, struct zns_err *err)
{
	return 0;
}

int __wrap_zns_track_arm(struct zns_track *t, struct zns_spans *copy, struct zns_err *err);
int __wrap_zns_track_arm(struct zns_track *t, struct zns_spans *copy, struct zns_err *err)
{
	uint64_t bytes = writes[armed++];

	if (bytes == UINT64_MAX)
		return zns_fail(err, -ESRCH, "it has ended");
	return zns_spans_add(copy, GIB(1), GIB(1) + bytes);
}

int __wrap_zns_track_barrier(struct zns_track *t, struct zns_err *err);
int __wrap_zns_track_barrier(struct zns_track *t, struct zns_err *err)
{
	return barrier_code ? zns_fail(err, barrier_code, "it does not stop") : 0;
}

void __wrap_zns_track_free(struct zns_track *t);
void __wrap_zns_track_free(struct zns_track *t)
{
}

int __wrap_live_open_part(struct live *l, struct zns_err *err);
int __wrap_live_open_part(struct live *l, struct zns_err *err)
{
	l->at = 0;
	l->nr_parts = 1;
	opened++;
	return 0;
}

int __wrap_live_copy(struct live *l, struct live_task *t, const struct zns_spans *s,
		     struct zns_err *err);
int __wrap_live_copy(struct live *l, struct live_task *t, const struct zns_spans *s,
		     struct zns_err *err)
{
	copied++;
	l->at += zns_spans_bytes(s);
	return copy_code ? zns_fail(err, copy_code, "the test says so") : 0;
}

int __wrap_zns_wimage_seal(struct zns_wimage *i, struct zns_err *err);
int __wrap_zns_wimage_seal(struct zns_wimage *i, struct zns_err *err)
{
	return 0;
}

int __wrap_zns_save_room(struct zns_save *v, uint64_t *room, struct zns_err *err);
int __wrap_zns_save_room(struct zns_save *v, uint64_t *room, struct zns_err *err)
{
	return 0;
}

int __wrap_dump_check(struct dump *d, struct zns_err *err);
int __wrap_dump_check(struct dump *d, struct zns_err *err)
{
	return 0;
}

const char *__wrap_live_hopeless(struct live *l);
const char *__wrap_live_hopeless(struct live *l)
{
	return copy_code == -ENOSPC ? "no room" : NULL;
}

int __wrap_live_give_up(struct live *l, const char *why, struct zns_err *err);
int __wrap_live_give_up(struct live *l, const char *why, struct zns_err *err)
{
	l->gave_up = why;
	return 0;
}

static int begin(void **state)
{
	static uint8_t any;

	zns_spans_free(&task.pending);
	zns_spans_free(&task.parent);
	helper = (struct helper){ .sk = -1 };
	dump = (struct dump){ .h = &helper };
	task = (struct live_task){ .pid = 1, .track = (void *)&any };
	live = (struct live){ .d = &dump, .task = &task, .nr_tasks = 1 };
	memset(writes, 0, sizeof(writes));
	armed = copied = opened = 0;
	barrier_code = copy_code = 0;
	return 0;
}

static void rounds(const uint64_t *bytes, size_t nr)
{
	struct zns_err err = ZNS_ERR_INIT;

	memcpy(writes, bytes, nr * sizeof(*bytes));
	if (all_rounds(&live, &err))
		fail_msg("%s", err.msg);
	for (uint32_t n = 0; n < live.nr_rounds && task.track; n++)
		assert_int_equal(live.round[n].bytes, writes[n]);
	assert_int_equal(opened, live.nr_rounds);
}

#define ROUNDS(...) \
	rounds((const uint64_t[]){ __VA_ARGS__ }, sizeof((uint64_t[]){ __VA_ARGS__ }) / 8)

static const char *words(void)
{
	static char text[256];

	how_it_went(&live, text, sizeof(text));
	return text;
}

/* ---- the end ---- */

/* It goes on while each round copies less than the one before, until little is left. */
static void fewer_each_time(void **state)
{
	ROUNDS(GIB(1), MIB(500), MIB(200), MIB(17), LIVE_ENOUGH_BYTES);
	assert_int_equal(live.nr_rounds, 5);
	assert_false(live.not_converging);
	assert_string_equal(
		words(), ", 1.7 GiB copied while they ran, in 5 rounds, 16.0 MiB in the last one");
}

static void little_at_once(void **state)
{
	ROUNDS(LIVE_ENOUGH_BYTES);
	assert_int_equal(live.nr_rounds, 1);
	assert_false(live.not_converging);
}

/* What was written again is four fifths of the last round: not copied, and left to the freeze. */
static void as_fast_as_it_is_copied(void **state)
{
	ROUNDS(MIB(1000), MIB(800), MIB(641));
	assert_int_equal(live.nr_rounds, 2);
	assert_true(live.not_converging);
	assert_int_equal(live.left, MIB(641));
	assert_int_equal(zns_spans_bytes(&task.pending), MIB(641));
	assert_string_equal(
		words(),
		", 1.8 GiB copied while they ran, in 2 rounds; they write faster than they are copied: "
		"641.0 MiB were written again during the last one, so the freeze takes longer");
}

/* Little is always worth a round: that is the last one. */
static void little_but_not_less(void **state)
{
	ROUNDS(MIB(17), LIVE_ENOUGH_BYTES);
	assert_int_equal(live.nr_rounds, 2);
	assert_false(live.not_converging);
	assert_int_equal(zns_spans_bytes(&task.pending), 0);
}

/* Each round is a little smaller: the number of rounds is limited, and the last one is the
 * freeze's. */
static void too_many(void **state)
{
	uint64_t bytes[MANY], b = GIB(16);

	for (uint32_t n = 0; n < MANY; n++, b = b / 100 * 79)
		bytes[n] = b;
	rounds(bytes, MANY);
	assert_int_equal(live.nr_rounds, LIVE_ROUNDS_MAX - 1);
	assert_true(live.not_converging);
	assert_int_equal(live.left, bytes[LIVE_ROUNDS_MAX - 2]);
}

/* The round before the freeze copies even if that is no progress. */
static void one_that_must(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;

	ROUNDS(MIB(20), MIB(10), MIB(20));
	assert_int_equal(one_round(&live, true, &err), 0);
	assert_int_equal(live.nr_rounds, 3);
	assert_false(live.not_converging);
	assert_int_equal(live.round[2].bytes, MIB(20));
}

/* ---- tasks that cannot be tracked any more ---- */

static void it_ends(void **state)
{
	ROUNDS(MIB(100), UINT64_MAX);
	assert_null(task.track);
	assert_string_equal(task.why.msg, "it has ended");
	assert_int_equal(copied, 1);
	assert_int_equal(live.left, 0);
}

static void it_does_not_stop(void **state)
{
	barrier_code = -ETIMEDOUT;
	ROUNDS(MIB(100));
	assert_null(task.track);
	assert_string_equal(task.why.msg, "it does not stop");
	assert_int_equal(copied, 0);
	assert_int_equal(last_bytes(&live), 0);
}

/* ---- what was protected ---- */

/* A page that could not be read is copied in the next round, and what is copied is the parent's no
 * more. */
static void pending_and_parent(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_spans copy = { 0 };

	writes[0] = MIB(1);
	zns_spans_add(&task.pending, GIB(2), GIB(2) + 4096);
	zns_spans_add(&task.parent, GIB(1), GIB(1) + MIB(3));
	zns_spans_add(&task.parent, GIB(2), GIB(2) + 8192);
	assert_int_equal(live_protect(&task, &copy, &err), 0);
	assert_int_equal(copy.nr, 2);
	assert_int_equal(zns_spans_bytes(&copy), MIB(1) + 4096);
	assert_true(zns_spans_has(&copy, GIB(2)));
	assert_int_equal(zns_spans_bytes(&task.parent), MIB(2) + 4096);
	assert_false(zns_spans_has(&task.parent, GIB(1)));
	assert_false(zns_spans_has(&task.parent, GIB(2)));
	zns_spans_free(&copy);
}

/* Where copies are given up, the freeze copies what this round had protected. */
static void no_room(void **state)
{
	copy_code = -ENOSPC;
	ROUNDS(MIB(100));
	assert_string_equal(live.gave_up, "no room");
	assert_int_equal(zns_spans_bytes(&task.pending), MIB(100));
	live.given_up = MIB(100);
	assert_string_equal(words(),
			    "; no room, 100.0 MiB were given up: the freeze copies everything");
}

static void cannot_be_copied(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;

	copy_code = -EIO;
	writes[0] = MIB(100);
	assert_int_equal(all_rounds(&live, &err), -EIO);
	assert_string_equal(err.msg, "the test says so");
	assert_null(live.gave_up);
}

/* ---- --zns-live-slow fail ---- */

static void slow_fails(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;

	live.slow_fails = true;
	writes[0] = MIB(100);
	writes[1] = MIB(90);
	assert_int_equal(prepare(&live, ZW_ROUNDS_COPY, &err), -EBUSY);
	live.round[0].us = 1500000;
	assert_int_equal(too_slow(&live, &err), -EBUSY);
	assert_string_equal(
		err.msg,
		"the tasks write faster than they are copied (--zns-live-slow fail): while round 1 copied "
		"100.0 MiB in 1.5 s, 90.0 MiB were written again; dump them with --zns-live=no, or give the "
		"dump more bandwidth");
}

/* ---- what criu asks for ---- */

static void at_a_wrong_time(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;
	static struct packet p;

	dump.live = &live;
	assert_int_equal(live_rounds(&dump, &p, &err), -EPROTO); /* the dump has no task */
	dump.pid = 1;
	live.root = 1; /* a second time */
	assert_int_equal(live_rounds(&dump, &p, &err), -EPROTO);
	assert_string_equal(err.msg, "criu asked for rounds of a live dump at a wrong time");
}

static void without_a_tracker(void **state)
{
	static struct packet p;
	struct zw_reply r;
	int sk[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sk), 0);
	p.fd[0] = sk[1];
	p.nr_fd = 1;
	leave_to_criu(ZW_ROUNDS_COPY, &p, "an old kernel");
	assert_int_equal(recv(sk[0], &r, sizeof(r), MSG_DONTWAIT), sizeof(r));
	assert_int_equal(r.kind, ZW_KIND_NONE);
	assert_true(r.warn);
	assert_string_equal(r.msg, "live: an old kernel; all memory is copied in the freeze");
	leave_to_criu(ZW_ROUNDS_TRACK, &p, "an old kernel");
	assert_int_equal(recv(sk[0], &r, sizeof(r), MSG_DONTWAIT), sizeof(r));
	assert_false(r.warn);
	close(sk[0]);
	close(sk[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(fewer_each_time, begin),
		cmocka_unit_test_setup(little_at_once, begin),
		cmocka_unit_test_setup(as_fast_as_it_is_copied, begin),
		cmocka_unit_test_setup(little_but_not_less, begin),
		cmocka_unit_test_setup(too_many, begin),
		cmocka_unit_test_setup(one_that_must, begin),
		cmocka_unit_test_setup(it_ends, begin),
		cmocka_unit_test_setup(it_does_not_stop, begin),
		cmocka_unit_test_setup(pending_and_parent, begin),
		cmocka_unit_test_setup(no_room, begin),
		cmocka_unit_test_setup(cannot_be_copied, begin),
		cmocka_unit_test_setup(slow_fails, begin),
		cmocka_unit_test_setup(at_a_wrong_time, begin),
		cmocka_unit_test_setup(without_a_tracker, begin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) + begin(NULL);
}
