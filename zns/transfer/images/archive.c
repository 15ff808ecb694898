/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * See archive.h. Only the tar and gzip parts of libarchive are used, so that less of its code
 * parses untrusted data.
 */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <string.h>
#include "archive.h"
#include "zns/util.h"

#define BLOCK 65536
#define NAME_MAX_BYTES 255
#define ENTRIES_MAX 1000000

static const char *const endings[] = { ".tar", ".tgz", ".tar.gz" };

size_t ctl_archive_stem(const char *path)
{
	size_t len = strlen(path);

	for (size_t i = ZNS_ARRAY_SIZE(endings); i-- > 0;) {
		size_t n = strlen(endings[i]);

		if (len > n && path[len - n - 1] != '/' && !strcmp(path + len - n, endings[i]))
			return len - n;
	}
	return len;
}

bool ctl_archive_name(const char *path)
{
	return path[ctl_archive_stem(path)] != 0;
}

static bool compressed(const char *path)
{
	const char *end = path + ctl_archive_stem(path);

	return *end && strcmp(end, ".tar") != 0;
}

/* ---- writing ---- */

struct ctl_pack {
	struct archive *a;
	struct archive_entry *e;
	const char *path;
	int64_t mtime_s;
	int fd;
	bool gave_up; /* libarchive allows no more writes */
	int (*tee)(void *arg, const void *buf, size_t len);
	void *tee_arg;
};

static la_ssize_t pack_write(struct archive *a, void *arg, const void *buf, size_t len)
{
	const struct ctl_pack *p = arg;
	int ret = p->gave_up ? -ECANCELED : 0;

	if (!ret && p->fd >= 0)
		ret = zns_write_all(p->fd, buf, len);
	if (!ret && p->tee)
		ret = p->tee(p->tee_arg, buf, len);
	if (!ret)
		return (la_ssize_t)len;
	archive_set_error(a, -ret, "write");
	return -1;
}

static int pack_failed(struct ctl_pack *p, struct zns_err *err)
{
	int code = archive_errno(p->a);

	return zns_fail_sys(err, code > 0 ? -code : -EIO, "cannot write %s",
			    strcmp(p->path, "-") ? p->path : "the archive");
}

int ctl_pack_open(int fd, const char *path, int64_t mtime_s, struct ctl_pack **out,
		  struct zns_err *err)
{
	struct ctl_pack *p = calloc(1, sizeof(*p));
	int bad;

	if (!p)
		return zns_fail(err, -ENOMEM, "no memory for the archive");
	*p = (struct ctl_pack){
		.a = archive_write_new(),
		.e = archive_entry_new(),
		.path = path,
		.mtime_s = mtime_s,
		.fd = fd,
	};
	*out = p;
	if (!p->a || !p->e)
		return zns_fail(err, -ENOMEM, "no memory for the archive");
	/* writes plain ustar headers where they suffice */
	bad = archive_write_set_format_pax_restricted(p->a);
	/*
	 * The lowest compression level: memory pages are large, so speed matters more than size.
	 * The same input always gives the same bytes.
	 */
	if (!bad && compressed(path))
		bad = archive_write_add_filter_gzip(p->a) ||
		      archive_write_set_options(p->a, "gzip:compression-level=1,gzip:!timestamp");
	if (!bad)
		bad = archive_write_set_bytes_per_block(p->a, BLOCK) ||
		      archive_write_set_bytes_in_last_block(p->a, 1) ||
		      archive_write_open(p->a, p, NULL, pack_write, NULL);
	return bad ? pack_failed(p, err) : 0;
}

static int pack_header(struct ctl_pack *p, const char *name, unsigned type, uint64_t size,
		       const char *to, struct zns_err *err)
{
	archive_entry_clear(p->e);
	archive_entry_set_pathname(p->e, name);
	archive_entry_set_filetype(p->e, type);
	archive_entry_set_perm(p->e, type == AE_IFDIR ? 0700 : 0600);
	archive_entry_set_uid(p->e, 0);
	archive_entry_set_gid(p->e, 0);
	archive_entry_set_mtime(p->e, p->mtime_s, 0);
	archive_entry_set_size(p->e, (int64_t)size);
	if (to)
		archive_entry_set_symlink(p->e, to);
	return archive_write_header(p->a, p->e) ? pack_failed(p, err) : 0;
}

int ctl_pack_file(struct ctl_pack *p, const char *name, uint64_t size, struct zns_err *err)
{
	return pack_header(p, name, AE_IFREG, size, NULL, err);
}

int ctl_pack_link(struct ctl_pack *p, const char *name, const char *to, struct zns_err *err)
{
	return pack_header(p, name, AE_IFLNK, 0, to, err);
}

int ctl_pack_dir(struct ctl_pack *p, const char *name, struct zns_err *err)
{
	return pack_header(p, name, AE_IFDIR, 0, NULL, err);
}

void ctl_pack_tee(struct ctl_pack *p, int (*tee)(void *arg, const void *buf, size_t len), void *arg)
{
	p->tee = tee;
	p->tee_arg = arg;
}

int ctl_pack_data(struct ctl_pack *p, const void *buf, size_t len, struct zns_err *err)
{
	return archive_write_data(p->a, buf, len) == (la_ssize_t)len ? 0 : pack_failed(p, err);
}

int ctl_pack_close(struct ctl_pack *p, int ret, struct zns_err *err)
{
	if (!p)
		return ret;
	if (!ret && archive_write_close(p->a))
		ret = pack_failed(p, err);
	/*
	 * do not write an end mark, so that no reader takes the archive for complete.
	 * archive_write_fail() would do that too, but then libarchive does not free its buffers.
	 */
	p->gave_up = true;
	archive_write_free(p->a);
	archive_entry_free(p->e);
	free(p);
	return ret;
}

/* ---- reading ---- */

struct ctl_unpack {
	struct archive *a;
	const char *path, *inside;
	uint32_t entries;
	int fd;
	void (*tee)(void *arg, const void *buf, size_t len);
	void *tee_arg;
	struct ctl_patience *patience;
	uint8_t block[BLOCK];
};

static int unpack_failed(struct ctl_unpack *u, struct zns_err *err)
{
	const char *why = archive_error_string(u->a);

	if (archive_errno(u->a) == ETIMEDOUT &&
	    ctl_patience_fail(u->patience, "its source sent", err))
		return zns_wrap(err, "%s", u->path);
	return zns_fail(err, -EBADMSG, "%s is damaged or no tar archive: %s", u->path,
			why ? why : "it cannot be read");
}

static ssize_t next_block(struct ctl_unpack *u)
{
	int ret = ctl_patience_wait(u->patience, u->fd);
	ssize_t n;

	if (ret) {
		errno = -ret;
		return -1;
	}
	do
		n = read(u->fd, u->block, sizeof(u->block));
	while (n < 0 && errno == EINTR);
	if (n > 0 && u->patience)
		ctl_patience_got(u->patience, (uint64_t)n);
	if (n > 0 && u->tee)
		u->tee(u->tee_arg, u->block, (size_t)n);
	return n;
}

static la_ssize_t more(struct archive *a, void *arg, const void **buf)
{
	struct ctl_unpack *u = arg;
	ssize_t n = next_block(u);

	if (n < 0)
		archive_set_error(a, errno, "%s", strerror(errno));
	*buf = u->block;
	return n;
}

int ctl_unpack_stream(int fd, const char *path, void (*tee)(void *arg, const void *buf, size_t len),
		      void *arg, struct ctl_patience *patience, struct ctl_unpack **out,
		      struct zns_err *err)
{
	struct ctl_unpack *u = calloc(1, sizeof(*u));

	if (!u)
		return zns_fail(err, -ENOMEM, "no memory for the archive");
	*out = u;
	u->path = path;
	u->fd = fd;
	u->tee = tee;
	u->tee_arg = arg;
	u->patience = patience;
	u->a = archive_read_new();
	if (!u->a)
		return zns_fail(err, -ENOMEM, "no memory for the archive");
	if (archive_read_support_format_tar(u->a) || archive_read_support_filter_gzip(u->a) ||
	    archive_read_open(u->a, u, NULL, more, NULL))
		return unpack_failed(u, err);
	return 0;
}

int ctl_unpack_open(int fd, const char *path, struct ctl_unpack **out, struct zns_err *err)
{
	return lseek(fd, 0, SEEK_SET) < 0 ? zns_fail_sys(err, -errno, "cannot read %s", path) :
					    ctl_unpack_stream(fd, path, NULL, NULL, NULL, out, err);
}

int ctl_unpack_rest(struct ctl_unpack *u, struct zns_err *err)
{
	ssize_t n;

	do
		n = next_block(u);
	while (n > 0);
	if (n && errno == ETIMEDOUT)
		archive_set_error(u->a, errno, "rest");
	return !n                 ? 0 :
	       errno == ETIMEDOUT ? unpack_failed(u, err) :
				    zns_fail_sys(err, -errno, "cannot read %s", u->path);
}

void ctl_unpack_inside(struct ctl_unpack *u, const char *dir)
{
	u->inside = dir;
}

/*
 * Refuses paths that lead to the root or above the directory, and characters that would control a
 * terminal or spoil a log.
 */
static int check_path(const struct ctl_unpack *u, const char *name, struct zns_err *err)
{
	if (*name == '/')
		return zns_fail(err, -EBADMSG, "%s holds \"%s\", which is no name in a directory",
				u->path, name);
	for (const char *p = name; *p; p += strcspn(p, "/"), p += *p == '/')
		if (p[0] == '.' && p[1] == '.' && (!p[2] || p[2] == '/'))
			return zns_fail(err, -EBADMSG,
					"%s holds \"%s\", which leads outside of the directory",
					u->path, name);
	for (const char *p = name; *p; p++)
		if (*p < ' ' || *p > '~')
			return zns_fail(err, -EBADMSG,
					"%s holds a file whose name is not plain ASCII", u->path);
	return 0;
}

static int take_entry(const struct ctl_unpack *u, struct archive_entry *ae, const char *name,
		      struct ctl_entry *e, struct zns_err *err)
{
	unsigned type = archive_entry_filetype(ae);

	*e = (struct ctl_entry){ .name = name, .link = type == AE_IFLNK };
	if (archive_entry_hardlink(ae))
		return zns_fail(err, -EBADMSG,
				"%s: %.*s is a hard link: an archive of images has files only",
				u->path, NAME_MAX_BYTES, name);
	if (type != AE_IFREG && type != AE_IFLNK)
		return zns_fail(err, -EBADMSG, "%s: %.*s is neither file nor directory", u->path,
				NAME_MAX_BYTES, name);
	if (strlen(name) > NAME_MAX_BYTES)
		return zns_fail(err, -EBADMSG, "%s: a name of %zu bytes is too long", u->path,
				strlen(name));
	if (type == AE_IFLNK)
		return 1;
	if (!archive_entry_size_is_set(ae) || archive_entry_size(ae) < 0)
		return zns_fail(err, -EBADMSG, "%s: %s has no size", u->path, name);
	e->size = (uint64_t)archive_entry_size(ae);
	return 1;
}

int ctl_unpack_next(struct ctl_unpack *u, struct ctl_entry *e, struct zns_err *err)
{
	struct archive_entry *ae;
	const char *name;
	int ret;

	for (;;) {
		ret = archive_read_next_header(u->a, &ae);
		if (ret == ARCHIVE_EOF)
			return 0;
		if (ret != ARCHIVE_OK) /* a warning means that a name could not be converted */
			return unpack_failed(u, err);
		if (++u->entries > ENTRIES_MAX)
			return zns_fail(err, -E2BIG, "%s holds more than %d files", u->path,
					ENTRIES_MAX);
		name = archive_entry_pathname(ae);
		if (!name || !*name)
			return zns_fail(err, -EBADMSG, "%s holds a file without a name", u->path);
		ret = check_path(u, name, err);
		if (ret)
			return ret;
		while (name[0] == '.' && name[1] == '/')
			for (name++; *name == '/'; name++)
				;
		if (u->inside && strncmp(name, u->inside, strlen(u->inside)) != 0)
			continue;
		name += u->inside ? strlen(u->inside) : 0;
		if (*name && !strchr(name, '/') && archive_entry_filetype(ae) != AE_IFDIR)
			return take_entry(u, ae, name, e, err);
	}
}

int ctl_unpack_data(struct ctl_unpack *u, void *buf, size_t len, struct zns_err *err)
{
	uint8_t *p = buf;

	while (len) {
		la_ssize_t n = archive_read_data(u->a, p, len);

		if (n < 0)
			return unpack_failed(u, err);
		if (!n)
			return zns_fail(err, -EBADMSG, "%s ends in the middle of a file", u->path);
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

void ctl_unpack_close(struct ctl_unpack *u)
{
	if (!u)
		return;
	archive_read_free(u->a);
	free(u);
}
