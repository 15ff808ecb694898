/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Lock files of memory contexts: see zns/context.h. */
#include <dirent.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include "zns/broker.h"
#include "zns/context.h"

#define MAGIC "ZNSMEMC1"
#define INFIX ".memory-" /* part of the file's name between the device's UUID and the context's */
/* offset of the byte of the device that is locked as a mark; the device has no data there */
#define MARK (1LL << 62)

/* The file header. The file is on tmpfs and only read on this machine, so it is in host byte
 * order. */
struct head {
	char magic[8];
	uint8_t id[ZNS_UUID_LEN], device[ZNS_UUID_LEN];
	char container[ZNS_NAME_MAX + 1];
	uint8_t origin[ZNS_UUID_LEN];
	uint8_t encrypted;
};
_Static_assert(sizeof(struct head) <= ZNS_CONTEXT_HEAD, "the head has room");

int zns_context_path(const uint8_t device[ZNS_UUID_LEN], const uint8_t id[ZNS_UUID_LEN], char *out,
		     size_t len)
{
	char name[ZNS_UUID_STR + 16], text[ZNS_UUID_STR];

	snprintf(name, sizeof(name), INFIX "%s", zns_uuid_format(id, text));
	return zns_broker_path(device, name, out, len);
}

static int fill(int fd, const struct zns_context *c, uint32_t nr_zones)
{
	struct head h = { .magic = MAGIC };

	memcpy(h.id, c->id, ZNS_UUID_LEN);
	memcpy(h.device, c->device, ZNS_UUID_LEN);
	snprintf(h.container, sizeof(h.container), "%s", c->container);
	h.encrypted = c->encrypted;
	if (flock(fd, LOCK_SH | LOCK_NB) < 0 || ftruncate(fd, ZNS_CONTEXT_HEAD + nr_zones) < 0)
		return -errno;
	return zns_pwrite_all(fd, &h, sizeof(h), 0);
}

/* The file gets its name last, so that a starting broker never sees it without its lock. */
int zns_context_create(const struct zns_context *c, uint32_t nr_zones, int *fd_out,
		       struct zns_err *err)
{
	char path[4096], made[4096 + 8];
	cleanup_close int fd = -1;
	int ret = zns_broker_run_dir(err);

	if (ret)
		return ret;
	ret = zns_context_path(c->device, c->id, path, sizeof(path));
	if (ret)
		return zns_fail_sys(err, ret, "cannot name the context's file in %s",
				    zns_run_dir());
	snprintf(made, sizeof(made), "%s.new", path);
	fd = open(made, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return zns_fail_sys(err, -errno, "cannot make %s", made);
	ret = fill(fd, c, nr_zones);
	if (!ret && rename(made, path) < 0)
		ret = -errno;
	if (ret) {
		unlink(made);
		return zns_fail_sys(err, ret, "cannot write %s", path);
	}
	*fd_out = zns_take_fd(&fd);
	return 0;
}

int zns_context_read(int fd, uint32_t nr_zones, struct zns_context *out, struct zns_err *err)
{
	struct head h;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return zns_fail_sys(err, -errno,
				    "cannot read the attributes of a memory context's lock file");
	if (!S_ISREG(st.st_mode) || (st.st_uid && st.st_uid != geteuid()) || (st.st_mode & 022))
		return zns_fail(err, -EPERM,
				"a memory context's lock file: others could have written it");
	if (st.st_size <= ZNS_CONTEXT_HEAD ||
	    (nr_zones && st.st_size != ZNS_CONTEXT_HEAD + (off_t)nr_zones) ||
	    zns_pread_all(fd, &h, sizeof(h), 0) || memcmp(h.magic, MAGIC, sizeof(h.magic)) ||
	    !memchr(h.container, 0, sizeof(h.container)) || zns_check_container(h.container, NULL))
		return zns_fail(err, -EBADMSG, "this is no lock file of a memory context");
	memcpy(out->id, h.id, ZNS_UUID_LEN);
	memcpy(out->device, h.device, ZNS_UUID_LEN);
	memcpy(out->container, h.container, sizeof(out->container));
	memcpy(out->origin, h.origin, ZNS_UUID_LEN);
	out->encrypted = h.encrypted;
	return 0;
}

int zns_context_open(const uint8_t device[ZNS_UUID_LEN], const uint8_t id[ZNS_UUID_LEN],
		     uint32_t nr_zones, struct zns_context *out, int *fd_out, struct zns_err *err)
{
	cleanup_close int fd = -1;
	char path[4096];
	int ret = zns_context_path(device, id, path, sizeof(path));

	if (ret)
		return zns_fail_sys(err, ret, "cannot name the context's file in %s",
				    zns_run_dir());
	fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0 && errno == ENOENT)
		return zns_fail(err, -ESTALE, "this memory context has ended");
	if (fd < 0)
		return zns_fail_sys(err, -errno, "cannot open %s", path);
	ret = zns_context_read(fd, nr_zones, out, err);
	if (ret)
		return zns_wrap(err, "%s", path);
	if (memcmp(out->device, device, ZNS_UUID_LEN) || memcmp(out->id, id, ZNS_UUID_LEN))
		return zns_fail(err, -EBADMSG, "%s is the lock file of another context", path);
	*fd_out = zns_take_fd(&fd);
	return 0;
}

static bool named(const char *device, const char *name, uint8_t id[ZNS_UUID_LEN])
{
	size_t len = strlen(device);

	return !strncmp(name, device, len) && !strncmp(name + len, INFIX, strlen(INFIX)) &&
	       !zns_uuid_parse(name + len + strlen(INFIX), id);
}

int zns_context_each(const uint8_t device[ZNS_UUID_LEN],
		     int (*fn)(void *arg, const uint8_t id[ZNS_UUID_LEN]), void *arg)
{
	DIR *dir = opendir(zns_run_dir());
	char text[ZNS_UUID_STR];
	struct dirent *e;
	int ret = 0;

	zns_uuid_format(device, text);
	while (dir && !ret && (e = readdir(dir))) {
		uint8_t id[ZNS_UUID_LEN];

		if (named(text, e->d_name, id))
			ret = fn(arg, id);
	}
	if (dir)
		closedir(dir);
	return ret;
}

bool zns_context_alive(int fd)
{
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return true;
	flock(fd, LOCK_UN);
	return false;
}

int zns_context_mark(const char *dev_path, int *fd_out, struct zns_err *err)
{
	struct flock l = { .l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = MARK, .l_len = 1 };
	cleanup_close int fd = open(zns_spec_path(dev_path), O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0 || fcntl(fd, F_OFD_SETLK, &l))
		return zns_fail_sys(err, -errno, "cannot mark %s", dev_path);
	*fd_out = zns_take_fd(&fd);
	return 0;
}

bool zns_context_marked(int dev_fd)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = MARK, .l_len = 1 };

	return !fcntl(dev_fd, F_OFD_GETLK, &l) && l.l_type != F_UNLCK;
}

int zns_context_has(int fd, uint32_t zone)
{
	uint8_t b;
	int ret = zns_pread_all(fd, &b, 1, ZNS_CONTEXT_HEAD + (off_t)zone);

	return ret ? ret : b == 1;
}

int zns_context_set(int fd, uint32_t zone, bool has)
{
	uint8_t b = has;

	return zns_pwrite_all(fd, &b, 1, ZNS_CONTEXT_HEAD + (off_t)zone);
}

int zns_context_set_origin(int fd, const uint8_t origin[ZNS_UUID_LEN])
{
	static const uint8_t none[ZNS_UUID_LEN];

	return zns_pwrite_all(fd, origin ? origin : none, ZNS_UUID_LEN,
			      offsetof(struct head, origin));
}
