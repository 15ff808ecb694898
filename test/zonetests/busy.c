/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A process and its child that never stop changing their memory. Each step depends on what the
 * steps before left behind, so one page from another moment spoils all that follows. The check
 * replays all steps. zonetest: {'flavour': 'h ns'}
 */
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include "zt.h"

#define PAGES 8192ul
#define WORDS (ZT_PAGE / 8)

struct state {
	uint64_t steps, chain;
	uint64_t (*pages)[WORDS];
};
static struct state state;
static pid_t kid;

static void step(struct state *s)
{
	uint64_t(*page)[WORDS] = &s->pages[s->chain % PAGES];
	uint64_t at = s->chain >> 40;

	for (int i = 0; i < 64; i++) {
		uint64_t *w = &(*page)[(at + i * 9) % WORDS];

		s->chain = (s->chain ^ *w) * 0x9e3779b97f4a7c15ull + s->steps;
		s->chain ^= s->chain >> 31;
		*w += s->chain;
	}
	s->steps++;
}

static void begin(struct state *s, uint64_t seed)
{
	s->steps = 0;
	s->chain = seed;
	s->pages = zt_mmap(PAGES * ZT_PAGE);
	zt_fill(s->pages, PAGES * ZT_PAGE, seed);
}

static void work(void)
{
	while (!zt_asked()) {
		for (int i = 0; i < 200; i++)
			step(&state);
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
}

static void replay(uint64_t seed)
{
	struct state again;

	begin(&again, seed);
	while (again.steps < state.steps)
		step(&again);
	ZT_CHECK(again.chain == state.chain, "wrong chain after %lu steps",
		 (unsigned long)state.steps);
	for (size_t p = 0; p < PAGES; p++)
		ZT_CHECK(!memcmp(again.pages[p], state.pages[p], ZT_PAGE),
			 "page %zu is from another moment", p);
}

static void check(void)
{
	int status;

	ZT_CHECK(!kill(kid, SIGTERM) && waitpid(kid, &status, 0) == kid, "the child is gone: %m");
	ZT_CHECK(!status, "the child ended with status %#x", status);
	replay(1);
}

int main(int argc, char **argv)
{
	int ready[2];
	char byte;

	zt_init(argc, argv);
	begin(&state, 1);
	ZT_SYS(pipe(ready));
	kid = ZT_SYS(fork());
	if (!kid) {
		munmap(state.pages, PAGES * ZT_PAGE);
		begin(&state, 2);
		zt_write_all(ready[1], "x", 1);
		close(ready[0]);
		close(ready[1]);
		work();
		replay(2);
		_exit(0);
	}
	/* Its areas are compared, so all of them must exist before the dump. */
	zt_read_all(ready[0], &byte, 1, "child");
	close(ready[0]);
	close(ready[1]);
	zt_ready(NULL);
	work();
	zt_flip(&state.pages[17][5]);
	zt_finish(check);
}
