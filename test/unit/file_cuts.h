/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef FILE_CUTS_H
#define FILE_CUTS_H
/*
 * Simulates all power cuts of a store in a file. The operations on the file are recorded. For each
 * of them a copy of the original file gets all operations up to that one, once with and once
 * without the operations that were not synced yet.
 */
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "emu_common.h"
#include "../../zns/dev/file_priv.h"
#include "zns/grow.h"

/*
 * After a power cut, everything before the last sync exists, and any part of what came after it.
 * The calls below replace the C library's, in the store's code too.
 */
struct op {
	enum { OP_WRITE, OP_TRUNCATE, OP_PUNCH, OP_SYNC } kind;
	uint64_t off, len;
	void *data;
};
static struct op *ops;
static size_t nr_ops, max_ops;
static bool recording;

static inline void note(int kind, uint64_t off, uint64_t len, const void *data)
{
	struct op *o;

	if (!recording)
		return;
	assert_int_equal(zns_grow(ops, nr_ops, max_ops), 0);
	o = &ops[nr_ops++];
	*o = (struct op){ kind, off, len, data ? malloc(len) : NULL };
	if (data)
		memcpy(o->data, data, len);
}

ssize_t pwrite(int fd, const void *buf, size_t len, off_t off)
{
	ssize_t n = syscall(SYS_pwrite64, fd, buf, len, off);

	if (n > 0)
		note(OP_WRITE, (uint64_t)off, (uint64_t)n, buf);
	return n;
}

int ftruncate(int fd, off_t len)
{
	note(OP_TRUNCATE, (uint64_t)len, 0, NULL);
	return (int)syscall(SYS_ftruncate, fd, len);
}

int fallocate(int fd, int mode, off_t off, off_t len)
{
	if (mode & FALLOC_FL_PUNCH_HOLE)
		note(OP_PUNCH, (uint64_t)off, (uint64_t)len, NULL);
	return (int)syscall(SYS_fallocate, fd, mode, off, len);
}

int fdatasync(int fd)
{
	note(OP_SYNC, 0, 0, NULL);
	return 0; /* no power cut is simulated */
}

int fsync(int fd)
{
	return fdatasync(fd);
}

static inline void redo(int fd, const struct op *o)
{
	if (o->kind == OP_WRITE)
		assert_int_equal(syscall(SYS_pwrite64, fd, o->data, o->len, o->off), o->len);
	else if (o->kind == OP_TRUNCATE)
		assert_int_equal(syscall(SYS_ftruncate, fd, o->off), 0);
	else if (o->kind == OP_PUNCH)
		assert_int_equal(syscall(SYS_fallocate, fd,
					 FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, o->off,
					 o->len),
				 0);
}

/* The file's content, without the parts that read as zeroes anyway. */
static inline void copy_to(const char *from, const char *to)
{
	int in = open(from, O_RDONLY | O_CLOEXEC),
	    out = open(to, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	static uint8_t buf[KIB(64)];
	off_t at = 0, end;
	struct stat st;

	assert_true(in >= 0 && out >= 0 && !fstat(in, &st));
	assert_int_equal(syscall(SYS_ftruncate, out, st.st_size), 0);
	while ((at = lseek(in, at, SEEK_DATA)) >= 0) {
		end = lseek(in, at, SEEK_HOLE);
		while (at < end) {
			ssize_t n = pread(in, buf, zns_min((size_t)(end - at), sizeof(buf)), at);

			assert_true(n > 0);
			assert_int_equal(syscall(SYS_pwrite64, out, buf, n, at), n);
			at += n;
		}
	}
	close(in);
	close(out);
}

/* What a power cut does to memory: the live tables belong to another boot. */
static inline void lose_power(void)
{
	struct zns_emu_params p;
	struct emu_layout lay;
	uint8_t uuid[ZNS_UUID_LEN], other[64] = "another boot";
	int fd = open(dev_path, O_RDWR);

	assert_ok(emu_header_read(fd, dev_spec, &p, uuid, &err));
	emu_layout_of(&p, &lay);
	assert_int_equal(pwrite(fd, other, sizeof(other), (off_t)lay.live_off), sizeof(other));
	close(fd);
}

typedef void (*cut_check)(void *arg, size_t cut);

struct cuts {
	char before[sizeof(dev_path) + 8], after[sizeof(dev_path) + 8];
};
static struct cuts cuts;

/* From here on operations on the file are recorded. No process may have it open. */
static inline void cuts_begin(void)
{
	snprintf(cuts.before, sizeof(cuts.before), "%s.before", dev_path);
	snprintf(cuts.after, sizeof(cuts.after), "%s.after", dev_path);
	copy_to(dev_path, cuts.before);
	recording = true;
}

/* Of the operations up to @cut that were not synced, only @lost is lost; or all are lost except
 * @kept. */
static inline void look_after_cut(cut_check look, void *arg, size_t cut, size_t lost, size_t kept)
{
	size_t durable = cut;
	int fd;

	while (durable && ops[durable - 1].kind != OP_SYNC)
		durable--;
	copy_to(cuts.before, dev_path);
	fd = open(dev_path, O_RDWR | O_CLOEXEC);
	for (size_t i = 0; i < cut; i++)
		if (i < durable || (i != lost && (kept == SIZE_MAX || i == kept)))
			redo(fd, &ops[i]);
	close(fd);
	lose_power();
	look(arg, cut);
}

/* Checks every state that a cut could have left, then restores the original content. No process
 * may have the file open. */
static inline void cuts_end(cut_check look, void *arg)
{
	recording = false;
	copy_to(dev_path, cuts.after);
	assert_true(nr_ops > 2);
	for (size_t cut = 0; cut <= nr_ops; cut++) {
		look_after_cut(look, arg, cut, SIZE_MAX, SIZE_MAX); /* all arrived */
		if (cut && ops[cut - 1].kind == OP_SYNC)
			continue;
		look_after_cut(look, arg, cut, SIZE_MAX, nr_ops); /* none */
		for (size_t i = cut; i-- && ops[i].kind != OP_SYNC;) {
			look_after_cut(look, arg, cut, i, SIZE_MAX);
			look_after_cut(look, arg, cut, SIZE_MAX, i);
		}
	}
	copy_to(cuts.after, dev_path);
	unlink(cuts.before);
	unlink(cuts.after);
	while (nr_ops)
		free(ops[--nr_ops].data);
	free(ops);
	ops = NULL;
	max_ops = 0;
}

#endif
