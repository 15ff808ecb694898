/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_UTIL_H
#define ZNS_UTIL_H
/* Small things every layer needs: scope cleanup, sizes, UUIDs, hashes, whole-buffer I/O. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#define KIB(x) ((uint64_t)(x) << 10)
#define MIB(x) ((uint64_t)(x) << 20)
#define GIB(x) ((uint64_t)(x) << 30)

#define zns_align_up(x, a) ((((uint64_t)(x)) + (a)-1) / (a) * (a))
#define zns_align_down(x, a) (((uint64_t)(x)) / (a) * (a))
#define zns_min(a, b) ((a) < (b) ? (a) : (b))
#define zns_max(a, b) ((a) > (b) ? (a) : (b))
#define ZNS_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

static inline void zns_cleanup_freep(void *p)
{
	free(*(void **)p);
}
static inline void zns_cleanup_closep(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}
/* Transfers a descriptor out of a variable that would close it at the end of its scope: *@fd is -1
 * afterwards. */
static inline int zns_take_fd(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}
static inline void zns_cleanup_filep(FILE **f)
{
	if (*f)
		fclose(*f);
}
/* A variable with one of these attributes is freed or closed at the end of its scope. */
#define cleanup_free __attribute__((cleanup(zns_cleanup_freep)))
#define cleanup_close __attribute__((cleanup(zns_cleanup_closep)))
#define cleanup_file __attribute__((cleanup(zns_cleanup_filep)))

/*
 * Parses a number. The whole string must match: decimal digits, and a unit where one is allowed; no
 * sign, no blank. 0, or -EINVAL or -ERANGE, which leave *out unchanged.
 */
int zns_parse_number(const char *s, uint64_t min, uint64_t max, uint64_t *out);
/* Parses a duration: "90", "90s", "15m", "12h", "30d", "2w"; a bare number is in seconds. -ERANGE
 * if it is more than INT64_MAX nanoseconds. */
int zns_parse_duration(const char *s, uint64_t *out_s);
/* formats in the largest unit of which the duration is a multiple */
char *zns_format_duration(uint64_t s, char *buf, size_t len);
/* Parses a size as people write it or as zns_format_size prints it: "64K", "64KiB", "1.5 MiB", "12
 * B" (powers of 1024); a bare number is in bytes. */
int zns_parse_size(const char *s, uint64_t *out_bytes);

/* Parses a bandwidth: "500", "500MiB/s", "2GiB/s", "512KiB/s"; a bare number is in MiB/s. Must be
 * more than 0; rounded up to whole MiB/s. */
int zns_parse_mibps(const char *s, uint32_t *out_mibps);

/* Formats a size like "447.0 MiB" into @buf (at least 16 bytes); returns @buf. */
char *zns_format_size(uint64_t bytes, char *buf, size_t len);

/* Formats a time by RFC 3339 in UTC with seconds, e.g. 2026-11-20T23:07:00Z; @buf: at least 32
 * bytes. */
char *zns_format_time(int64_t unix_ns, char *buf, size_t len);
int64_t zns_now_ns(void); /* CLOCK_REALTIME, nanoseconds */
/* like zns_now_ns, but at least @ns + 1, even if the clock was set back */
int64_t zns_now_after(int64_t ns);
uint64_t zns_mono_ns(void); /* CLOCK_MONOTONIC, nanoseconds */

/*
 * Checks a container's name, wherever one is accepted: 1 to ZNS_NAME_MAX bytes of printable UTF-8,
 * without " and \. -EINVAL: @err says what is wrong with it.
 */
#define ZNS_NAME_MAX 200
struct zns_err;
int zns_check_container(const char *name, struct zns_err *err);
/* Checks a memory context's name: the rules for containers, and in addition no / and no leading
 * dot. The files of a context are named after it, each with a suffix; files in the same directory
 * whose names lack such a suffix belong to something else. */
int zns_check_memory(const char *name, struct zns_err *err);
/* Length of the printable UTF-8 character that @s begins with, 0 if it is none. */
int zns_printable(const char *s);

/* Makes text from another user safe for a terminal or a log. zns_clean changes it in place: control
 * characters become blanks, other bytes that are not printable UTF-8 become ?. zns_escape writes it
 * to @buf, with such bytes and backslashes as \xHH; what does not fit is cut off. */
char *zns_clean(char *s);
bool zns_is_printable(const char *s);
char *zns_escape(const char *s, char *buf, size_t len);

#define ZNS_UUID_LEN 16 /* bytes, RFC 4122 order */
#define ZNS_UUID_STR 37 /* length including the NUL */
int zns_uuid_generate(uint8_t out[ZNS_UUID_LEN]); /* random (version 4); -errno */
char *zns_uuid_format(const uint8_t uuid[ZNS_UUID_LEN], char out[ZNS_UUID_STR]);
int zns_uuid_parse(const char *s, uint8_t out[ZNS_UUID_LEN]); /* 0 or -EINVAL */

/* XXH3, 64 bits: the checksum of every record and every stripe unit. */
uint64_t zns_hash(const void *data, size_t len);
/* Returns the zns_hash() of all @len bytes, and fills @out with the hash of each piece of @piece
 * bytes; the last piece may be shorter. */
uint64_t zns_hash_pieces(const void *data, size_t len, size_t piece, uint64_t *out);
uint64_t zns_hash_seeded(const void *data, size_t len, uint64_t seed);

/* Rate in MiB/s of @bytes in @us. 0 if @us is less than a second, which is too short to measure a
 * rate (design.md §5). */
static inline double zns_rate_mibps(uint64_t bytes, uint64_t us)
{
	return us >= 1000000 ? (double)bytes / (double)MIB(1) / ((double)us / 1e6) : 0;
}

/* Read or write whole buffers; retry short transfers and EINTR. 0 or -errno; -ENODATA: the file
 * ends early. */
int zns_pread_all(int fd, void *buf, size_t len, off_t off);
int zns_pwrite_all(int fd, const void *buf, size_t len, off_t off);
int zns_write_all(int fd, const void *buf, size_t len);

/* To be called first by programs. Opens /dev/null, for reading only, on each of the descriptors 0,
 * 1 and 2 that is closed. Otherwise a device or socket that is opened later could get such a
 * number, and output would be written to it. 0 or -errno. */
int zns_std_fds(void);

/*
 * Read a whole file of at most @max bytes relative to @dirfd (AT_FDCWD allowed).
 * *out is malloc'ed (NUL-terminated one past the end) and owned by the caller.
 * -EFBIG if larger, else -errno.
 */
int zns_read_file(int dirfd, const char *path, size_t max, uint8_t **out, size_t *out_len);
/* Like zns_read_file, for an open file (zns_read_fd), and for a name in a directory that others may
 * write to (zns_read_plain, which follows no link; see safeopen.h). */
int zns_read_fd(int fd, size_t max, uint8_t **out, size_t *out_len);
int zns_read_plain(int dirfd, const char *name, size_t max, uint8_t **out, size_t *out_len);

/*
 * Replaces a file so that after a crash either the old or the new one exists: temporary file,
 * fsync, rename, fsync of the directory. After an error the old file is there, or none if there was
 * none. @mode is the mode of the new file. 0 or -errno.
 */
int zns_replace_file(int dirfd, const char *path, const void *data, size_t len, unsigned mode);

/* fsync of a directory. Some file systems (gocryptfs and other FUSE ones) do not support it; that
 * is not an error, since nothing more can be done there. 0 or -errno. */
int zns_sync_dir(int fd);
/* Syncs the directory that contains @path, so that a new name in it is durable. 0 or -errno. */
int zns_sync_parent(const char *path);

/*
 * The full path of one of our programs ("znsd", "zns-helper"): $ZNS_LIBEXEC, then the
 * directory of the running binary, then its ../libexec/zns-criu. 0 or -ENOENT.
 */
int zns_find_program(const char *name, char *out, size_t len);
/* The same, with a line in @err if the program is missing. @what: "the broker" and the like. */
int zns_need_program(const char *what, const char *name, char *out, size_t len,
		     struct zns_err *err);
/* The full path of znsctl, which may be in PREFIX/bin while the others are in
 * PREFIX/libexec/zns-criu. 0 or -errno */
int zns_find_znsctl(char *out, size_t len);
/* like zns_find_program, but ignores the environment */
int zns_own_program(const char *name, char *out, size_t len);

#endif
