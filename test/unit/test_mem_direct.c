/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A program whose memory is written by a device while it is evicted: it reads with O_DIRECT from a
 * slow file system, or from a file there that is never cached (FOPEN_DIRECT_IO). Meanwhile the
 * kernel holds the pages, and writes to them past the page tables. Or another process writes to its
 * memory, which holds the pages as well.
 */
#include <errno.h>
#include <linux/fuse.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "mem_life.h"

#define READ_US 3000
#define MOVE "6" /* for ZNS_MEM_REFUSED */
#define CHUNK 16U /* pages that are read at once */
#define FILE_SIZE (1ULL << 46)
#define DIR_INODE 1U
#define FILE_INODE 2U
#define PLAIN_INODE 3U /* inode of a file that is always read past the page cache */

/* ---- a file system with one file, whose page says which one it is ---- */

static char dir[] = "/tmp/zns-direct-XXXXXX";

static void answer(int fd, uint64_t unique, const void *data, size_t len)
{
	uint8_t buf[sizeof(struct fuse_out_header) + CHUNK * PAGE];
	struct fuse_out_header h = { .len = (uint32_t)(sizeof(h) + len), .unique = unique };

	if (!data)
		h.error = (int32_t)len;
	if (!data)
		h.len = sizeof(h);
	memcpy(buf, &h, sizeof(h));
	if (data)
		memcpy(buf + sizeof(h), data, len);
	if (write(fd, buf, h.len) < 0 && errno == ENODEV)
		_exit(0);
}

static struct fuse_attr attr_of(uint64_t inode)
{
	return (struct fuse_attr){ .ino = inode,
				   .size = inode == DIR_INODE ? 0 : FILE_SIZE,
				   .mode = inode == DIR_INODE ? S_IFDIR | 0755 : S_IFREG | 0644,
				   .nlink = 1,
				   .blksize = PAGE };
}

/* The file's page N has the content of the program's page N % PAGES after its write number N /
 * PAGES. */
static void answer_read(int fd, uint64_t unique, const struct fuse_read_in *in)
{
	static uint8_t data[CHUNK * PAGE];
	uint64_t first = in->offset / PAGE;
	size_t len = zns_min((size_t)in->size, sizeof(data));

	for (uint64_t i = 0; i < len / PAGE; i++)
		page_write((uint64_t *)(data + i * PAGE), (uint32_t)((first + i) % PAGES),
			   (uint32_t)((first + i) / PAGES));
	usleep(READ_US);
	answer(fd, unique, data, len);
}

static void file_system(int fd)
{
	static uint8_t buf[MIB(1)];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		const struct fuse_in_header *in = (void *)buf;
		ssize_t n = read(fd, buf, sizeof(buf));
		struct fuse_init_out init = { .major = FUSE_KERNEL_VERSION,
					      .minor = FUSE_KERNEL_MINOR_VERSION,
					      .max_write = MIB(1) / 8 };
		struct fuse_entry_out entry = { .nodeid = FILE_INODE, .entry_valid = 3600 };
		struct fuse_attr_out attr = { .attr_valid = 3600 };
		struct fuse_open_out open = { 0 };

		if (n < 0 && errno == ENODEV)
			_exit(0);
		if (n < (ssize_t)sizeof(*in))
			continue;
		entry.attr_valid = 3600;
		if (in->opcode == FUSE_LOOKUP && !strcmp((const char *)(in + 1), "plain"))
			entry.nodeid = PLAIN_INODE;
		if (in->nodeid == PLAIN_INODE)
			open.open_flags = FOPEN_DIRECT_IO;
		entry.attr = attr_of(entry.nodeid);
		attr.attr = attr_of(in->nodeid);
		if (in->opcode == FUSE_INIT)
			answer(fd, in->unique, &init, sizeof(init));
		else if (in->opcode == FUSE_LOOKUP)
			answer(fd, in->unique, &entry, sizeof(entry));
		else if (in->opcode == FUSE_GETATTR)
			answer(fd, in->unique, &attr, sizeof(attr));
		else if (in->opcode == FUSE_OPEN)
			answer(fd, in->unique, &open, sizeof(open));
		else if (in->opcode == FUSE_READ)
			answer_read(fd, in->unique, (const void *)(in + 1));
		else if (in->opcode != FUSE_FORGET && in->opcode != FUSE_INTERRUPT &&
			 in->opcode != FUSE_BATCH_FORGET)
			answer(fd, in->unique, NULL, (size_t)-ENOSYS);
	}
}

/* Mounted in a mount namespace of our own, which ends with us. */
static int mount_it(void **state)
{
	char options[80];
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	pid_t pid;

	if (fd < 0 || unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    !mkdtemp(dir))
		return -1;
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
	if (mount("slow", dir, "fuse", 0, options))
		return -1;
	pid = fork();
	if (!pid)
		file_system(fd);
	*state = (void *)(intptr_t)pid;
	close(fd);
	return pid < 0 ? -1 : 0;
}

static int unmount_it(void **state)
{
	kill((pid_t)(intptr_t)*state, SIGKILL);
	waitpid((pid_t)(intptr_t)*state, NULL, 0);
	umount2(dir, MNT_DETACH);
	return rmdir(dir);
}

/* ---- a program ---- */

enum how {
	FLAG, /* O_DIRECT */
	PLAIN, /* a file that is never cached */
	OTHERS, /* another process reads the file and writes it here */
};

static struct order {
	_Atomic uint64_t off;
	_Atomic uintptr_t to;
	_Atomic uint32_t asked, done;
} * order;

/* The copy's source is slow, and the kernel locks the destination pages meanwhile. */
static void other(pid_t pid)
{
	char path[64];
	int fd;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(path, sizeof(path), "%s/data", dir);
	fd = open(path, O_RDONLY);
	for (uint32_t n = 1;; n++) {
		struct iovec from = { .iov_len = CHUNK * PAGE }, to = from;

		while (order->asked < n)
			usleep(50);
		from.iov_base = mmap(NULL, from.iov_len, PROT_READ, MAP_PRIVATE, fd,
				     (off_t)order->off);
		madvise(from.iov_base, from.iov_len, MADV_RANDOM);
		to.iov_base = (void *)order->to;
		if (process_vm_writev(pid, &from, 1, &to, 1, 0) != (ssize_t)from.iov_len)
			_exit(11);
		munmap(from.iov_base, from.iov_len);
		order->done = n;
	}
}

/* @fd -1: the other process reads. */
static ssize_t fetch(int fd, void *to, uint64_t off)
{
	if (fd >= 0)
		return pread(fd, to, CHUNK * PAGE, (off_t)off);
	order->off = off;
	order->to = (uintptr_t)to;
	order->asked++;
	while (order->done < order->asked)
		usleep(50);
	return CHUNK * PAGE;
}

static void read_some(struct life *l, int fd)
{
	uint32_t first = roll(&l->seed) % (PAGES / CHUNK) * CHUNK;
	ssize_t n;

	l->seq++;
	n = fetch(fd, page_of(l, first), ((uint64_t)l->seq * PAGES + first) * PAGE);
	if (n != (ssize_t)(CHUNK * PAGE))
		_exit(10);
	for (uint32_t i = first; i < first + CHUNK; i++)
		l->r->seq[0][i] = l->seq;
	l->r->writes++;
}

static void program(struct report *r, enum how how)
{
	struct life l = { .r = r, .seed = 7 };
	char path[64];
	int fd;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(path, sizeof(path), "%s/%s", dir, how == PLAIN ? "plain" : "data");
	fd = how == OTHERS ? -1 : open(path, O_RDONLY | (how == PLAIN ? 0 : O_DIRECT));
	if (fd < 0 && how != OTHERS)
		_exit(9);
	if (how == OTHERS && !fork())
		other(getppid());
	begin_life(&l);
	r->ready = 1;
	while (!r->stop) {
		read_some(&l, fd);
		for (int i = 0; i < 8; i++)
			check(&l, roll(&l.seed) % PAGES);
		r->rounds++;
	}
	check_all(&l);
	r->done++;
	while (r->stop < 2)
		usleep(1000);
	check_all(&l);
	_exit(0);
}

/* Waits until this many units were evicted, or a page is wrong. */
static void begin(struct scene *s, const char *without, enum how how, uint64_t units)
{
	uint64_t last = 0;

	order = common(sizeof(*order));
	*s = (struct scene){ .r = common(sizeof(struct report)) };
	mem_control("ZNS_MEM_WITHOUT", without);
	shelf_open(&s->shelves, &s->store);
	s->pid = fork();
	if (!s->pid)
		program(s->r, how);
	while (!s->r->ready)
		usleep(1000);
	assert_int_equal(zns_mem_new("test", MIB(4), &s->store, &s->m, &s->err), 0);
	if (zns_mem_attach(s->m, s->pid, &s->err))
		fail_msg("%s", s->err.msg);
	assert_int_equal(zns_mem_start(s->m, &s->err), 0);
	for (int i = 0; i < WAIT_S * 100 && last < units && !s->r->wrong; i++) {
		i = evicted_units(s->m) == last ? i : 0;
		last = evicted_units(s->m);
		usleep(10000);
	}
	mem_control("ZNS_MEM_WITHOUT", NULL);
}

static void reads(enum how how, uint64_t units)
{
	struct scene s;

	begin(&s, "99", how, units);
	assert_true(evicted_units(s.m) >= units);
	finish(&s, 1, false);
}

static void reading(void **state)
{
	reads(FLAG, at_least(3000));
}

static void reading_plain(void **state)
{
	reads(PLAIN, at_least(1000));
}

/* If the kernel cannot move pages, they are compared and dropped. */
static void reading_old(void **state)
{
	mem_control("ZNS_MEM_REFUSED", MOVE);
	reads(FLAG, at_least(1000));
	mem_control("ZNS_MEM_REFUSED", NULL);
}

/* Another process holds pages while it writes to them, and does not stand still. */
static void others(void **state)
{
	struct utsname u;
	unsigned int major = 0, minor = 0;

	assert_int_equal(uname(&u), 0);
	if (sscanf(u.release, "%u.%u", &major, &minor) != 2 || major * 100 + minor < 608)
		skip(); /* a kernel that moves nothing; memory.md says what is lost then */
	reads(OTHERS, at_least(600));
}

static void must_show(const char *rule, enum how how)
{
	uint64_t wrong = 0;

	for (int i = 0; i < 10 && !wrong; i++) {
		struct scene s;

		begin(&s, rule, how, 3000);
		wrong = s.r->wrong;
		print_message("%lu units out, %lu reads, %lu wrong\n",
			      (unsigned long)s.shelves.s->put, (unsigned long)s.r->writes,
			      (unsigned long)wrong);
		scene_kill(&s);
	}
	assert_true(wrong);
}

static __attribute__((unused)) void without_same(void **state)
{
	must_show("33", PLAIN);
}

static __attribute__((unused)) void without_move(void **state)
{
	mem_control("ZNS_MEM_REFUSED", MOVE);
	must_show("99", OTHERS);
	mem_control("ZNS_MEM_REFUSED", NULL);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reading),      cmocka_unit_test(reading_plain),
		cmocka_unit_test(reading_old),  cmocka_unit_test(others),
#ifndef __SANITIZE_ADDRESS__ /* a fault has to occur only once */
		cmocka_unit_test(without_same), cmocka_unit_test(without_move),
#endif
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, mount_it, unmount_it);
}
