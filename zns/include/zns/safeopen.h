/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_SAFEOPEN_H
#define ZNS_SAFEOPEN_H
/*
 * Files in directories that somebody else may write while we, often root, work in them. There a
 * name may turn into a link, a FIFO, a device or another file between any two of our calls, and
 * somebody may hold a lock or a lease for ever. So we open a directory once and use its descriptor.
 * In it we open plain names only, never through a link, and never in a way that blocks. We look at
 * what was opened by fstat, never by name.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include "zns/err.h"

#define ZNS_BASE_MAX 256 /* a name in a directory, with the NUL */

/* Opens a regular file in @dirfd for reading; @st is its state. Returns its descriptor, or -errno:
 * -ELOOP: a link; -EISDIR; -EINVAL: any other kind; -EAGAIN: another process has a lease on it;
 * -ENOENT. zns_open_why() explains each of them. */
int zns_open_file(int dirfd, const char *name, struct stat *st);
const char *zns_open_why(int code); /* static, or strerror's */

/* Are both of the same file, and was it not changed between them? */
bool zns_same_file(const struct stat *a, const struct stat *b);

/*
 * Is it a hard link to a file of another user than the directory's? The owner of a directory can
 * link there what he may not read, and have root read it for him.
 */
bool zns_planted(int dirfd, const struct stat *st);

/*
 * Open a directory by a path that a user gave. A link is followed only if it belongs to root or to
 * the caller, so that the owner of a directory on the way cannot lead us elsewhere. Returns the
 * descriptor, or -errno.
 */
int zns_open_dir(const char *path, struct zns_err *err);

/* The directory that @path's last name is in, as zns_open_dir does; that name in @base. */
int zns_open_parent(const char *path, char base[ZNS_BASE_MAX], struct zns_err *err);

/* Open a directory in @dirfd; a link is refused (-ENOTDIR). Returns the descriptor, or -errno. */
int zns_open_subdir(int dirfd, const char *name);

/* A new file in @dirfd, mode 0600, for writing. -EEXIST if there is anything of the name. */
int zns_make_file(int dirfd, const char *name);

/* A new file with a hidden name made from @base, in @tmp; to be renamed when it is whole. */
int zns_make_temp(int dirfd, const char *base, char tmp[ZNS_BASE_MAX]);

/*
 * A file of @len bytes, mode 0600, in place of whatever has the name (a directory: -EISDIR). Not
 * synced: for what is checked when it is read. See zns_replace_file for the other kind.
 */
int zns_put_file(int dirfd, const char *name, const void *data, size_t len);

/* The text of a link, cut to @len - 1 bytes and always terminated; "" after an error. @path may be
 * relative to @dirfd, or "" for the link that @dirfd is. Returns its length, or -errno. */
ssize_t zns_read_link(int dirfd, const char *path, char *out, size_t len);

/* rename in one directory, but -EEXIST rather than in place of something. */
int zns_rename_new(int dirfd, const char *from, const char *to);

/* flock with a time limit: -ETIMEDOUT if another process keeps the lock for longer than @ms. */
int zns_flock(int fd, int how, unsigned ms);

#endif
