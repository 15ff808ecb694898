/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared memory objects of different kinds that have one number: shared anonymous memory, a mapped
 * memfd and a memfd that is only open, and three System V segments whose ids are their inode
 * numbers. CRIU calls the images of all by that number. zonetest: {'flavour': 'ns'}
 */
#include <fcntl.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include "zt.h"

#define KINDS 3
/* Sizes differ, so that no image would do for another one; some segments are the larger ones. */
static const size_t object_len[KINDS] = { ZT_MB(2), ZT_MB(1), ZT_MB(3) };
static const size_t segment_len[KINDS] = { ZT_MB(1), ZT_MB(2), 5 * ZT_PAGE };

static uint8_t *object[KINDS], *segment[KINDS], *buf;
static int open_fd, id[KINDS];

/* The inode of the mapping at @p, from /proc/self/maps. */
static unsigned long inode_at(const void *p)
{
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned long start, ino;
	char line[512];

	if (!f)
		zt_die("/proc/self/maps: %m");
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%*x %*s %*x %*x:%*x %lu", &start, &ino) == 2 &&
		    start == (unsigned long)p) {
			fclose(f);
			return ino;
		}
	zt_die("no mapping at %p", p);
}

/* A segment whose id is that number: the kernel takes the next id from this file, as CRIU's restore
 * has it. */
static int make_segment(unsigned long number, size_t len)
{
	int fd = ZT_SYS(open("/proc/sys/kernel/shm_next_id", O_WRONLY | O_CLOEXEC)), made;
	char text[32];

	if (number > INT32_MAX)
		zt_skip("inode %lu is no id of a segment", number);
	zt_write_all(fd, text, snprintf(text, sizeof(text), "%lu", number));
	close(fd);
	made = ZT_SYS(shmget(IPC_PRIVATE, len, IPC_CREAT | 0600));
	if (made != (int)number)
		zt_die("the segment's id is %d, not %lu", made, number);
	return made;
}

static void make_objects(void)
{
	struct stat st;
	int fd;

	object[0] = zt_mmap_at(NULL, object_len[0], PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	fd = ZT_SYS(memfd_create("mapped", 0));
	ZT_SYS(ftruncate(fd, object_len[1]));
	object[1] = zt_mmap_at(NULL, object_len[1], PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	open_fd = ZT_SYS(memfd_create("open", 0));
	zt_fill(buf, object_len[2], 3);
	zt_write_all(open_fd, buf, object_len[2]);
	for (int i = 0; i < 2; i++) {
		zt_fill(object[i], object_len[i], 1 + i);
		id[i] = make_segment(inode_at(object[i]), segment_len[i]);
	}
	ZT_SYS(fstat(open_fd, &st));
	id[2] = make_segment(st.st_ino, segment_len[2]);
}

static void fill_segments(void)
{
	for (int i = 0; i < KINDS; i++) {
		segment[i] = ZT_SYS((uint8_t *)shmat(id[i], NULL, 0));
		zt_fill(segment[i], segment_len[i], 11 + i);
	}
	/* One is attached nowhere. */
	ZT_SYS(shmdt(segment[1]));
}

static void check(void)
{
	zt_check(object[0], object_len[0], 1, "shared anonymous memory");
	zt_check(object[1], object_len[1], 2, "mapped memfd");
	ZT_CHECK(pread(open_fd, buf, object_len[2], 0) == (ssize_t)object_len[2],
		 "short read of a memfd");
	zt_check(buf, object_len[2], 3, "open memfd");
	zt_check(segment[0], segment_len[0], 11, "segment beside shared anonymous memory");
	zt_check(segment[2], segment_len[2], 13, "segment beside an open memfd");
	segment[1] = shmat(id[1], NULL, 0);
	ZT_CHECK(segment[1] != (void *)-1, "the unattached segment is gone: %m");
	zt_check(segment[1], segment_len[1], 12, "unattached segment beside a mapped memfd");
	ZT_CHECK(!shmdt(segment[1]), "shmdt: %m");
}

int main(int argc, char **argv)
{
	zt_init(argc, argv);
	buf = zt_mmap(object_len[2]);
	make_objects();
	fill_segments();
	zt_ready(check);
	zt_flip(segment[0] + 77);
	zt_serve(check);
}
