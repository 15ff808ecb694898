/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_ARCHIVE_H
#define ZNS_CTL_ARCHIVE_H
/*
 * Writes and reads archives of image directories with libarchive: tar, plain or with gzip. An
 * archive that is read may come from any user.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>
#include "../patience.h"
#include "zns/err.h"

/* Does the name end in .tar, .tgz or .tar.gz? */
bool ctl_archive_name(const char *path);
/* The length of a path without the suffix of an archive. */
size_t ctl_archive_stem(const char *path);

/* ---- writing: regular files, mode 0600, owner root ---- */
struct ctl_pack;
/*
 * Begins an archive. The suffix of @path decides about compression; "-" means none. Files get the
 * time @mtime_s. @fd -1: only the function of ctl_pack_tee() gets the data.
 */
int ctl_pack_open(int fd, const char *path, int64_t mtime_s, struct ctl_pack **out,
		  struct zns_err *err);
/* Begins a file. Call ctl_pack_data() with exactly @size bytes after it. */
int ctl_pack_file(struct ctl_pack *p, const char *name, uint64_t size, struct zns_err *err);
int ctl_pack_data(struct ctl_pack *p, const void *buf, size_t len, struct zns_err *err);
int ctl_pack_link(struct ctl_pack *p, const char *name, const char *to, struct zns_err *err);
int ctl_pack_dir(struct ctl_pack *p, const char *name, struct zns_err *err); /* mode 0700 */
/*
 * From here on @tee gets all data that are written, and may end the writing by an error (-errno).
 * Call it before the first entry.
 */
void ctl_pack_tee(struct ctl_pack *p, int (*tee)(void *arg, const void *buf, size_t len),
		  void *arg);
/*
 * Writes the archive's end unless @ret is an error, and frees @p. Returns @ret, or the error of the
 * end.
 */
int ctl_pack_close(struct ctl_pack *p, int ret, struct zns_err *err);

/* ---- reading, from front to end ---- */
struct ctl_unpack;
struct ctl_entry {
	const char *name; /* without the archive's directory; valid until the next entry */
	uint64_t size;
	bool link; /* the entry is a symbolic link, whose target is not reported */
};
/* Reads @fd from the beginning of the file. The caller still owns @fd. */
int ctl_unpack_open(int fd, const char *path, struct ctl_unpack **out, struct zns_err *err);
/*
 * Reads @fd, which may be a pipe, from its present position. @tee gets all bytes as they are read.
 * @patience limits the waiting (-ETIMEDOUT); NULL: no limit.
 */
int ctl_unpack_stream(int fd, const char *path, void (*tee)(void *arg, const void *buf, size_t len),
		      void *arg, struct ctl_patience *patience, struct ctl_unpack **out,
		      struct zns_err *err);
/* Reads the bytes behind the archive's end, so that @tee gets them too. */
int ctl_unpack_rest(struct ctl_unpack *u, struct zns_err *err);
/*
 * From here on only entries in the directory @dir are reported, as if it were the top level. @dir
 * ends with a slash, and is borrowed.
 */
void ctl_unpack_inside(struct ctl_unpack *u, const char *dir);
/*
 * Gets the next file or symbolic link of the top level. Returns 1, or 0 at the end. Skips entries
 * in subdirectories. Fails if a name leads out of the directory or cannot be an image's name, or if
 * the entry is not a file, a link or a directory.
 */
int ctl_unpack_next(struct ctl_unpack *u, struct ctl_entry *e, struct zns_err *err);
/* Reads exactly @len bytes, or fails. */
int ctl_unpack_data(struct ctl_unpack *u, void *buf, size_t len, struct zns_err *err);
void ctl_unpack_close(struct ctl_unpack *u);

#endif
