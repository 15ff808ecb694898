/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Guard pages (MADV_GUARD_INSTALL, Linux 6.13), in private and in shared memory: some that stay,
 * and one row that comes and goes all the time, also while the program is dumped. Where the kernel
 * has none, they are plain pages. zonetest: {'flavour': 'h ns'}
 */
#include <errno.h>
#include <sys/uio.h>
#include "zt.h"

#define INSTALL 102
#define REMOVE 103
#define PAGES 64ul
#define ROW 32ul /* guard pages from here on are set and removed */

static uint8_t *mem, *shared;
static bool have, guarded[PAGES];
static const uint8_t zero[ZT_PAGE];

static void set(uint8_t *p, size_t nr, bool on)
{
	if (have)
		ZT_SYS(madvise(p, nr * ZT_PAGE, on ? INSTALL : REMOVE));
}

static bool is_guard(uint8_t *p)
{
	uint8_t byte;
	struct iovec to = { &byte, 1 }, from = { p, 1 };

	return process_vm_readv(getpid(), &to, 1, &from, 1, 0) < 0 && errno == EFAULT;
}

static void check(void)
{
	for (size_t i = 0; i < PAGES; i++) {
		bool want = have && guarded[i];

		ZT_CHECK(is_guard(mem + i * ZT_PAGE) == want, "page %zu is %s guard page", i,
			 want ? "no" : "a");
		if (want)
			continue;
		if (i < ROW)
			zt_check(mem + i * ZT_PAGE, ZT_PAGE, 1 + i, "page between guard pages");
		else /* not in the digest, which must be the same each time */
			ZT_CHECK(!memcmp(mem + i * ZT_PAGE, zero, ZT_PAGE),
				 "page %zu was a guard page, and is not zero", i);
	}
	ZT_CHECK(is_guard(shared + ZT_PAGE) == have, "shared memory has no guard page");
	zt_check(shared, ZT_PAGE, 77, "shared memory");
}

/* A page is noted when it has changed. A dump in between changes nothing: we go on afterwards. */
static void change(size_t i)
{
	if (have && guarded[i]) {
		set(mem + i * ZT_PAGE, 1, false);
		guarded[i] = false;
	} else {
		set(mem + i * ZT_PAGE, 1, true);
		guarded[i] = true;
	}
}

int main(int argc, char **argv)
{
	zt_init(argc, argv);
	mem = zt_mmap(PAGES * ZT_PAGE);
	shared = zt_mmap_at(NULL, 4 * ZT_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			    -1, 0);
	have = !madvise(mem, ZT_PAGE, INSTALL) && !madvise(shared + ZT_PAGE, ZT_PAGE, INSTALL);
	madvise(mem, ZT_PAGE, REMOVE);
	for (size_t i = 0; i < ROW; i++)
		zt_fill(mem + i * ZT_PAGE, ZT_PAGE, 1 + i);
	zt_fill(shared, ZT_PAGE, 77);
	for (size_t i = 3; i < ROW; i += 5)
		change(i);
	zt_ready(check);
	zt_flip(mem + 5);
	for (size_t i = 0; !zt_asked(); i++) {
		change(ROW + i % (PAGES - ROW));
		usleep(200);
	}
	zt_finish(check);
}
