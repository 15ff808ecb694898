/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_ARCHIVE_H
#define ZNS_CTL_ARCHIVE_H
/* Archives of image directories, by libarchive: tar, plain or with gzip. What is read may be
 * anybody's. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>
#include "zns/err.h"

/* Does a file of this name (.tar, .tgz, .tar.gz) hold an archive? */
bool ctl_archive_name(const char *path);
/* How much of a path is its name without such an ending. */
size_t ctl_archive_stem(const char *path);

/* ---- writing: regular files, mode 0600, owner root ---- */
struct ctl_pack;
/* @path says by its ending whether it is compressed, "-": it is not. Files have the time @mtime_s.
 */
int ctl_pack_open(int fd, const char *path, int64_t mtime_s, struct ctl_pack **out,
		  struct zns_err *err);
/* Then exactly @size bytes by ctl_pack_data. */
int ctl_pack_file(struct ctl_pack *p, const char *name, uint64_t size, struct zns_err *err);
int ctl_pack_data(struct ctl_pack *p, const void *buf, size_t len, struct zns_err *err);
int ctl_pack_link(struct ctl_pack *p, const char *name, const char *to, struct zns_err *err);
/* The end of it, unless @ret is an error already; frees. @ret, or what went wrong at the end. */
int ctl_pack_close(struct ctl_pack *p, int ret, struct zns_err *err);

/* ---- reading, from front to back ---- */
struct ctl_unpack;
struct ctl_entry {
	const char *name; /* plain: no directory before it; until the next one */
	uint64_t size;
	bool link; /* symbolic; nothing is known of where it leads */
};
/* @fd is read from its beginning and stays the caller's. */
int ctl_unpack_open(int fd, const char *path, struct ctl_unpack **out, struct zns_err *err);
/*
 * The next file or symbolic link at the top: 1, 0 at the end. What lies in directories is passed
 * over; names that lead out of the directory, or that no image may have, are an error, and so is
 * what is neither file, link nor directory.
 */
int ctl_unpack_next(struct ctl_unpack *u, struct ctl_entry *e, struct zns_err *err);
/* Exactly @len bytes of it, else an error. */
int ctl_unpack_data(struct ctl_unpack *u, void *buf, size_t len, struct zns_err *err);
void ctl_unpack_close(struct ctl_unpack *u);

#endif
