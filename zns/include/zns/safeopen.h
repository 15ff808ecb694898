/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_SAFEOPEN_H
#define ZNS_SAFEOPEN_H
/*
 * Opens files in directories that another user may write to while we, often as root, work in them.
 * There, a name may turn into a link, a FIFO, a device or another file between any two of our
 * calls, and somebody may hold a lock or a lease for ever. So we open a directory once and use its
 * descriptor. In it we open plain names only, never through a link, and never in a way that blocks.
 * What was opened is checked by fstat, never by name.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include "zns/err.h"

#define ZNS_BASE_MAX 256 /* size of a name in a directory, including the NUL */

/*
 * Opens a regular file in @dirfd for reading; *st gets its state. Returns its descriptor, or
 * -errno: -ENOENT: there is none; -ELOOP: it is a link; -EISDIR: it is a directory; -EINVAL: it is
 * of another kind; -EAGAIN: another process has a lease on it. zns_open_why() explains each of
 * these errors.
 */
int zns_open_file(int dirfd, const char *name, struct stat *st);
const char *zns_open_why(int code); /* a static string, or strerror's */

/* Do both describe the same file, and was it unchanged in between? */
bool zns_same_file(const struct stat *a, const struct stat *b);

/*
 * Is it a hard link to a file of a user other than the directory's? The owner of a directory can
 * put such a link there for a file that he may not read, to have root read it for him.
 */
bool zns_planted(int dirfd, const struct stat *st);

/*
 * Opens a directory by a path that a user gave. A link is followed only if it belongs to root or to
 * the caller, so that the owner of a directory on the path cannot redirect us. Returns the
 * descriptor, or -errno.
 */
int zns_open_dir(const char *path, struct zns_err *err);

/* Opens the directory that contains the last component of @path, as zns_open_dir does; @base gets
 * that component. */
int zns_open_parent(const char *path, char base[ZNS_BASE_MAX], struct zns_err *err);

/* Opens a directory in @dirfd; a link is refused (-ENOTDIR). Returns the descriptor, or -errno. */
int zns_open_subdir(int dirfd, const char *name);

/* Creates a file in @dirfd, mode 0600, for writing. -EEXIST: the name exists, whatever it is. */
int zns_make_file(int dirfd, const char *name);

/* Creates a file with a hidden name derived from @base, which is returned in @tmp. The caller
 * renames it when it is complete. */
int zns_make_temp(int dirfd, const char *base, char tmp[ZNS_BASE_MAX]);

/*
 * Writes a file of @len bytes, mode 0600, and replaces whatever has the name (a directory:
 * -EISDIR). It is not synced, so it is for files whose contents are checked when they are read; for
 * others see zns_replace_file.
 */
int zns_put_file(int dirfd, const char *name, const void *data, size_t len);

/* Reads the target of a link, cut to @len - 1 bytes and always terminated; "" after an error. @path
 * may be relative to @dirfd, or "" if @dirfd is the link itself. Returns its length, or -errno. */
ssize_t zns_read_link(int dirfd, const char *path, char *out, size_t len);

/* Renames within one directory; -EEXIST if @to exists, instead of replacing it. */
int zns_rename_new(int dirfd, const char *from, const char *to);

/* flock with a time limit: -ETIMEDOUT if another process holds the lock for longer than @ms. */
int zns_flock(int fd, int how, unsigned ms);

#endif
