/* SPDX-License-Identifier: GPL-2.0-only */
/* Hibernation of a process that does nothing until it is asked: its states, its record. */
#include "mem_fixture.h"

#define UNITS (PAGES * PAGE / ZNS_PAGES_UNIT)

struct idler {
	pid_t pid;
	int to, from;
};

/* For each byte that it receives, checks that many 128ths of its memory, and answers with the
 * result. */
static void live(int from, int to)
{
	uint8_t *mem = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);
	uint8_t ask, wrong = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (uint32_t i = 0; i < PAGES; i++)
		page_write((uint64_t *)(mem + i * PAGE), i, 1);
	while (write(to, &wrong, 1) == 1 && read(from, &ask, 1) == 1) {
		wrong = 0;
		for (uint32_t i = 0; i < PAGES / 128 * ask; i++)
			wrong |= !page_is((uint64_t *)(mem + i * PAGE), i, 1);
	}
	_exit(0);
}

static void begin(struct idler *p)
{
	int down[2], up[2];
	uint8_t byte;

	assert_int_equal(pipe(down) | pipe(up), 0);
	p->pid = fork();
	if (!p->pid)
		live(down[0], up[1]);
	p->to = down[1];
	p->from = up[0];
	assert_int_equal(read(p->from, &byte, 1), 1);
	close(down[0]);
	close(up[1]);
}

static void ask(struct idler *p, uint8_t share)
{
	uint8_t wrong = 1;

	assert_int_equal(write(p->to, &share, 1), 1);
	assert_int_equal(read(p->from, &wrong, 1), 1);
	assert_int_equal(wrong, 0);
}

static void end(struct idler *p)
{
	kill(p->pid, SIGKILL);
	waitpid(p->pid, NULL, 0);
	close(p->to);
	close(p->from);
}

/* Waits until it is in that state; returns the status. */
static void await(struct zns_mem *m, ZnsPb__MemoryState state, ZnsPb__MemoryStatus *st)
{
	for (int i = 0; i < 6000; i++) {
		status(m, st);
		if (st->state == state)
			return;
		zns_mem_status_free(st);
		usleep(10000);
	}
	fail_msg("it never came into state %d", (int)state);
}

static uint64_t reads(struct zns_mem *m)
{
	ZnsPb__MemoryStatus st;
	uint64_t n;

	status(m, &st);
	n = st.read_units;
	zns_mem_status_free(&st);
	return n;
}

static void hibernate(struct zns_mem *m)
{
	ZnsPb__MemoryStatus st;

	zns_mem_hibernate(m);
	await(m, ZNS_PB__MEMORY_STATE__MEMORY_HIBERNATED, &st);
	if (st.evicted < PAGES * PAGE / 100 * 95)
		fail_msg("%lu bytes are out; %s; %s", (unsigned long)st.evicted, st.warning,
			 st.n_processes ? st.processes[0]->why : "no process");
	zns_mem_status_free(&st);
}

static void awake(struct zns_mem *m)
{
	ZnsPb__MemoryStatus st;

	zns_mem_wake(m);
	await(m, ZNS_PB__MEMORY_STATE__MEMORY_ACTIVE, &st);
	zns_mem_status_free(&st);
}

static void states(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;
	ZnsPb__MemoryStatus st;
	struct zns_mem_store store;
	struct shelves shelves;
	struct zns_mem *m;
	struct idler p;
	uint64_t first;

	begin(&p);
	shelf_open(&shelves, &store);
	assert_int_equal(zns_mem_new("hiber", MIB(64), &store, &m, &err), 0);
	zns_mem_predict(m, true);
	if (zns_mem_attach(m, p.pid, &err)) {
		print_message("%s\n", err.msg);
		zns_mem_leave(m);
		end(&p);
		skip();
	}
	assert_int_equal(zns_mem_start(m, &err), 0);
	hibernate(m);
	/* an eighth of its memory: more than a few units, but it has only just gone to rest */
	ask(&p, 16);
	hibernate(m); /* what came back is evicted again */
	awake(m);
	first = reads(m);
	ask(&p, 16);
	/* everything except the sample, and memory outside our array */
	assert_true(reads(m) - first <= UNITS / 8 / 4);
	hibernate(m);
	ask(&p, 128);
	/* it hibernates by itself, and a wrong record does not change that */
	zns_mem_idle(m, 1500);
	await(m, ZNS_PB__MEMORY_STATE__MEMORY_HIBERNATED, &st);
	assert_true(st.record_units > 0 && st.idle_ms == 1500);
	zns_mem_status_free(&st);
	ask(&p, 128);
	assert_int_equal(zns_mem_detach(m, &err), 0);
	ask(&p, 128);
	zns_mem_leave(m);
	assert_int_equal(shelves.s->held, 0);
	shelf_close(&shelves);
	end(&p);
}

/* Memory that cannot be written stays, with a warning; another request ends the hibernation. */
static void errors(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;
	ZnsPb__MemoryStatus st;
	struct zns_mem_store store;
	struct shelves shelves;
	struct zns_mem *m;
	struct idler p;

	begin(&p);
	shelf_open(&shelves, &store);
	assert_int_equal(zns_mem_new("hiber", MIB(64), &store, &m, &err), 0);
	if (zns_mem_attach(m, p.pid, &err)) {
		zns_mem_leave(m);
		end(&p);
		skip();
	}
	assert_int_equal(zns_mem_start(m, &err), 0);
	shelves.s->put_error = -ENOSPC;
	zns_mem_hibernate(m);
	await(m, ZNS_PB__MEMORY_STATE__MEMORY_HIBERNATED, &st);
	assert_non_null(st.warning);
	zns_mem_status_free(&st);
	ask(&p, 128);
	/* the store stays busy until the program is to wake */
	shelves.s->put_error = -EAGAIN;
	zns_mem_hibernate(m);
	usleep(300000);
	status(m, &st);
	assert_int_equal(st.state, ZNS_PB__MEMORY_STATE__MEMORY_GOING_DOWN);
	zns_mem_status_free(&st);
	awake(m);
	shelves.s->put_error = 0;
	hibernate(m);
	zns_mem_leave(m); /* killed in the middle of its rest: the process waits, and is ended */
	shelf_close(&shelves);
	end(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(states),
		cmocka_unit_test(errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
