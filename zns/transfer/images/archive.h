/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_ARCHIVE_H
#define ZNS_CTL_ARCHIVE_H
/* Archives of image directories, by libarchive: tar, plain or with gzip. An archive that is read
 * may come from anybody. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>
#include "../patience.h"
#include "zns/err.h"

/* Does the name end in .tar, .tgz or .tar.gz? */
bool ctl_archive_name(const char *path);
/* The length of a path without an archive's suffix. */
size_t ctl_archive_stem(const char *path);

/* ---- writing: regular files, mode 0600, owner root ---- */
struct ctl_pack;
/* The suffix of @path decides about compression; "-" means none. Files get the time @mtime_s. @fd:
 * -1: only ctl_pack_tee() gets the data. */
int ctl_pack_open(int fd, const char *path, int64_t mtime_s, struct ctl_pack **out,
		  struct zns_err *err);
/* Follow it with exactly @size bytes of ctl_pack_data. */
int ctl_pack_file(struct ctl_pack *p, const char *name, uint64_t size, struct zns_err *err);
int ctl_pack_data(struct ctl_pack *p, const void *buf, size_t len, struct zns_err *err);
int ctl_pack_link(struct ctl_pack *p, const char *name, const char *to, struct zns_err *err);
int ctl_pack_dir(struct ctl_pack *p, const char *name, struct zns_err *err); /* mode 0700 */
/* @tee sees all that is written from here on, and may end it (-errno); call it before the first
 * entry. */
void ctl_pack_tee(struct ctl_pack *p, int (*tee)(void *arg, const void *buf, size_t len),
		  void *arg);
/* Writes the end unless @ret is already an error. Frees. Returns @ret or the error of the end. */
int ctl_pack_close(struct ctl_pack *p, int ret, struct zns_err *err);

/* ---- reading, from front to back ---- */
struct ctl_unpack;
struct ctl_entry {
	const char *name; /* without its directory; valid until the next entry */
	uint64_t size;
	bool link; /* a symbolic link; its target is not known */
};
/* Reads @fd from its beginning. The caller still owns @fd. */
int ctl_unpack_open(int fd, const char *path, struct ctl_unpack **out, struct zns_err *err);
/* Reads @fd, which may be a pipe, from where it is. @tee sees all bytes as they come. @patience
 * ends the wait for them (-ETIMEDOUT), unless it is NULL. */
int ctl_unpack_stream(int fd, const char *path, void (*tee)(void *arg, const void *buf, size_t len),
		      void *arg, struct ctl_patience *patience, struct ctl_unpack **out,
		      struct zns_err *err);
/* Reads the bytes behind the archive's end, so that @tee sees them too. */
int ctl_unpack_rest(struct ctl_unpack *u, struct zns_err *err);
/*
 * From here on only entries in @dir count, as if it were the top level. @dir ends with a slash, and
 * stays the caller's.
 */
void ctl_unpack_inside(struct ctl_unpack *u, const char *dir);
/*
 * The next file or symbolic link at the top level: 1, or 0 at the end. Skips what lies in
 * directories. It is an error if a name leads out of the directory or cannot be an image's name, or
 * if the entry is not a file, a link or a directory.
 */
int ctl_unpack_next(struct ctl_unpack *u, struct ctl_entry *e, struct zns_err *err);
/* Reads exactly @len bytes, or fails. */
int ctl_unpack_data(struct ctl_unpack *u, void *buf, size_t len, struct zns_err *err);
void ctl_unpack_close(struct ctl_unpack *u);

#endif
