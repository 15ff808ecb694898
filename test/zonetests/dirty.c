/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Memory of which a part changes between one dump and the next: a private and a shared mapping;
 * each page holds its own generation. When the file DIR/step is there, a check first writes one
 * page in a hundred anew (at least one), and maps and unmaps something, so that a chain also meets
 * addresses that its parents do not have. No huge pages: their dirty pages cannot be told apart.
 * zonetest: {'flavour': 'h ns'}
 */
#include "zt.h"

struct part {
	const char *name;
	uint8_t *mem;
	uint32_t *gen; /* generation of each page; 0: never written */
	size_t pages;
};

static struct part parts[2];
static uint32_t step;
static uint64_t rnd = 88172645463325252ull;
static uint8_t *extra; /* changes its place with every second step */
#define EXTRA (64 * ZT_PAGE)

static uint64_t next_random(void)
{
	rnd ^= rnd << 13;
	rnd ^= rnd >> 7;
	return rnd ^= rnd << 17;
}

static void write_page(struct part *p, size_t n, uint32_t gen)
{
	p->gen[n] = gen;
	zt_fill_at(p->mem + n * ZT_PAGE, ZT_PAGE, gen, n * ZT_PAGE);
}

static void do_step(void)
{
	step++;
	for (size_t i = 0; i < 2; i++)
		for (size_t k = 0; k < parts[i].pages / 100 + 1; k++)
			write_page(&parts[i], next_random() % parts[i].pages, step + 1);
	if (extra && step % 2) {
		ZT_SYS(munmap(extra, EXTRA));
		extra = NULL;
	} else if (!extra) {
		extra = zt_mmap(EXTRA);
		zt_fill(extra, EXTRA, 1000 + step);
	}
}

static void check(void)
{
	char path[256];

	zt_path(path, "step");
	if (!unlink(path))
		do_step();
	for (size_t i = 0; i < 2; i++) {
		struct part *p = &parts[i];

		zt_digest(p->gen, p->pages * sizeof(*p->gen));
		for (size_t n = 0; n < p->pages; n++)
			if (p->gen[n])
				zt_check_at(p->mem + n * ZT_PAGE, ZT_PAGE, p->gen[n], n * ZT_PAGE,
					    p->name);
	}
	zt_digest(&step, sizeof(step));
	if (extra)
		zt_check(extra, EXTRA, 1000 + (step - step % 2), "remapped memory");
}

static void make_part(struct part *p, const char *name, size_t len, int flags)
{
	p->name = name;
	p->pages = len / ZT_PAGE;
	p->mem = zt_mmap_at(NULL, len, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
	p->gen = zt_mmap(p->pages * sizeof(*p->gen));
	madvise(p->mem, len, MADV_NOHUGEPAGE);
	for (size_t n = 0; n < p->pages; n++)
		if (n % 16 != 15)
			write_page(p, n, 1);
}

int main(int argc, char **argv)
{
	zt_init(argc, argv);
	if (!zt_size)
		zt_size = ZT_MB(32);
	/* criu dumps all of a shared mapping again, on zones and in files: with DIRTY_PRIVATE set
	 * there is next to none. */
	size_t shared = getenv("DIRTY_PRIVATE") ? 16 * ZT_PAGE : zt_size / 16;

	make_part(&parts[0], "private memory", zt_size - shared, MAP_PRIVATE);
	make_part(&parts[1], "shared memory", shared, MAP_SHARED);
	extra = zt_mmap(EXTRA);
	zt_fill(extra, EXTRA, 1000);
	zt_ready(check);
	zt_flip(parts[0].mem + 5 * ZT_PAGE + 9);
	zt_serve(check);
}
