/* SPDX-License-Identifier: GPL-2.0-only */
/* The handle file and the plain copies beside it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>
#include "zns/frame.h"
#include "zns/handle.h"

static int dir_fsync; /* error with which fsync of a directory fails; 0: it works */

int fsync(int fd)
{
	struct stat st;

	if (dir_fsync && !fstat(fd, &st) && S_ISDIR(st.st_mode)) {
		errno = dir_fsync;
		return -1;
	}
	return (int)syscall(SYS_fsync, fd);
}

struct dir {
	char path[64];
	int fd;
};

static int setup(void **state)
{
	struct dir *d = calloc(1, sizeof(*d));

	strcpy(d->path, "/tmp/zns-test-handle-XXXXXX");
	if (!mkdtemp(d->path))
		return -1;
	d->fd = open(d->path, O_RDONLY | O_DIRECTORY);
	*state = d;
	return d->fd < 0;
}

static int teardown(void **state)
{
	static const char *names[] = { ZNS_HANDLE_NAME, "inventory.img", "core-1.img",
				       "files.img" };
	struct dir *d = *state;

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(names); i++)
		unlinkat(d->fd, names[i], 0);
	close(d->fd);
	rmdir(d->path);
	free(d);
	return 0;
}

static uint8_t dev_id[ZNS_UUID_LEN] = { 1, 2, 3 }, ck_id[ZNS_UUID_LEN] = { 9, 8, 7 };
static ZnsPb__HandleCopy copy[3];
static ZnsPb__HandleCopy *copies[3] = { &copy[0], &copy[1], &copy[2] };

static void init(ZnsPb__Handle *h)
{
	static const char *names[] = { "inventory.img", "core-1.img", "files.img" };

	zns_pb__handle__init(h);
	h->device.data = dev_id;
	h->checkpoint.data = ck_id;
	h->device.len = h->checkpoint.len = ZNS_UUID_LEN;
	h->container = (char *)"redis";
	h->created_ns = 1700000000000000000;
	h->bytes = GIB(3);
	h->page_bytes = GIB(2);
	h->nr_images = 12;
	h->copies = copies;
	h->n_copies = 3;
	for (int i = 0; i < 3; i++) {
		zns_pb__handle_copy__init(&copy[i]);
		copy[i].name = (char *)names[i];
		copy[i].size = 10 + i;
		copy[i].hash = zns_hash("0123456789abcdef", 10 + i);
	}
}

static void write_copies(int fd)
{
	for (int i = 0; i < 3; i++)
		assert_int_equal(
			zns_replace_file(fd, copy[i].name, "0123456789abcdef", 10 + i, 0600), 0);
}

static void round_trip(void **state)
{
	struct dir *d = *state;
	ZnsPb__Handle h, *r;
	struct zns_err err = ZNS_ERR_INIT;
	struct stat st;

	assert_false(zns_handle_present(d->fd));
	assert_int_equal(zns_handle_read(d->fd, &r, &err), -ENOENT);
	init(&h);
	assert_int_equal(zns_handle_write(d->fd, &h, NULL), 0);
	assert_true(zns_handle_present(d->fd));
	assert_int_equal(fstatat(d->fd, ZNS_HANDLE_NAME, &st, 0), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(zns_handle_read(d->fd, &r, NULL), 0);
	assert_memory_equal(r->device.data, dev_id, ZNS_UUID_LEN);
	assert_memory_equal(r->checkpoint.data, ck_id, ZNS_UUID_LEN);
	assert_string_equal(r->container, "redis");
	assert_true(r->created_ns == h.created_ns && r->bytes == h.bytes &&
		    r->page_bytes == h.page_bytes);
	assert_int_equal(r->nr_images, 12);
	assert_int_equal(r->n_copies, 3);
	assert_string_equal(r->copies[1]->name, "core-1.img");
	assert_true(r->copies[2]->hash == copy[2].hash);
	zns_pb__handle__free_unpacked(r, NULL);
	/* Replaced as a whole. */
	h.n_copies = 0;
	h.container = (char *)"other";
	assert_int_equal(zns_handle_write(d->fd, &h, NULL), 0);
	assert_int_equal(zns_handle_read(d->fd, &r, NULL), 0);
	assert_string_equal(r->container, "other");
	zns_pb__handle__free_unpacked(r, NULL);
}

static void names(const struct dir *d, const char *container)
{
	ZnsPb__Handle *r;

	assert_int_equal(zns_handle_read(d->fd, &r, NULL), 0);
	assert_string_equal(r->container, container);
	zns_pb__handle__free_unpacked(r, NULL);
}

static void directory_without_fsync(void **state)
{
	static const int none[] = { EOPNOTSUPP, EINVAL, ENOSYS };
	struct dir *d = *state;
	char path[80];
	ZnsPb__Handle h;

	init(&h);
	snprintf(path, sizeof(path), "%s/x", d->path);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(none); i++) {
		h.container = (char *)(i % 2 ? "odd" : "even");
		dir_fsync = none[i];
		assert_int_equal(zns_handle_write(d->fd, &h, NULL), 0);
		assert_int_equal(zns_sync_parent(path), 0);
		dir_fsync = 0;
		names(d, h.container);
	}
}

static void failed_fsync_of_directory(void **state)
{
	struct dir *d = *state;
	ZnsPb__Handle h;
	struct stat st;

	init(&h);
	dir_fsync = EIO;
	assert_int_equal(zns_handle_write(d->fd, &h, NULL), -EIO);
	dir_fsync = 0;
	assert_false(zns_handle_present(d->fd));
	assert_int_equal(zns_handle_write(d->fd, &h, NULL), 0);
	h.container = (char *)"other";
	dir_fsync = EIO;
	assert_int_equal(zns_handle_write(d->fd, &h, NULL), -EIO);
	dir_fsync = 0;
	names(d, "redis");
	assert_int_equal(fstatat(d->fd, ZNS_HANDLE_NAME, &st, 0), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
}

static void damage(void **state)
{
	struct dir *d = *state;
	ZnsPb__Handle h, *r;
	cleanup_free uint8_t *buf = NULL, *more = NULL;
	size_t len;

	init(&h);
	assert_int_equal(zns_handle_write(d->fd, &h, NULL), 0);
	assert_int_equal(zns_read_file(d->fd, ZNS_HANDLE_NAME, ZNS_HANDLE_MAX, &buf, &len), 0);
	for (size_t n = 0; n < len; n++) {
		uint8_t *cut = malloc(n ? n : 1);

		memcpy(cut, buf, n);
		assert_int_equal(zns_handle_parse(cut, n, &r, NULL), -EBADMSG);
		free(cut);
		buf[n] ^= 0x20;
		assert_int_equal(zns_handle_parse(buf, len, &r, NULL), -EBADMSG);
		buf[n] ^= 0x20;
	}
	more = calloc(1, len + 1);
	memcpy(more, buf, len);
	assert_int_equal(zns_handle_parse(more, len + 1, &r, NULL), -EBADMSG);
	assert_int_equal(zns_handle_parse(more, len, &r, NULL), 0);
	zns_pb__handle__free_unpacked(r, NULL);
	/* Through the file too: cut off, empty, too large, a directory, a fifo. */
	assert_int_equal(zns_replace_file(d->fd, ZNS_HANDLE_NAME, buf, len - 1, 0600), 0);
	assert_int_equal(zns_handle_read(d->fd, &r, NULL), -EBADMSG);
	assert_int_equal(zns_replace_file(d->fd, ZNS_HANDLE_NAME, buf, 0, 0600), 0);
	assert_int_equal(zns_handle_read(d->fd, &r, NULL), -EBADMSG);
	free(more);
	more = calloc(1, ZNS_HANDLE_MAX + 1);
	memcpy(more, buf, len);
	assert_int_equal(zns_replace_file(d->fd, ZNS_HANDLE_NAME, more, ZNS_HANDLE_MAX + 1, 0600),
			 0);
	assert_int_equal(zns_handle_read(d->fd, &r, NULL), -EBADMSG);
	unlinkat(d->fd, ZNS_HANDLE_NAME, 0);
	assert_int_equal(mkdirat(d->fd, ZNS_HANDLE_NAME, 0700), 0);
	assert_int_equal(zns_handle_read(d->fd, &r, NULL), -EBADMSG);
	unlinkat(d->fd, ZNS_HANDLE_NAME, AT_REMOVEDIR);
	assert_int_equal(mkfifoat(d->fd, ZNS_HANDLE_NAME, 0600), 0);
	assert_int_equal(zns_handle_read(d->fd, &r, NULL), -EBADMSG);
}

/* Refused when written; refused when read, with a good hash around it. */
static void impossible(void **state)
{
	struct dir *d = *state;

	for (int what = 0; what < 11; what++) {
		ZnsPb__Handle h, *r;
		uint8_t buf[4096] = { 0 };
		struct zns_frame f = { .type = ZNS_FRAME_HANDLE, .payload = buf + ZNS_FRAME_HDR };

		init(&h);
		switch (what) {
		case 0:
			h.device.len = 15;
			break;
		case 1:
			h.checkpoint.len = 0;
			break;
		case 2:
			h.container = (char *)"";
			break;
		case 3:
			copy[0].name = (char *)"../x";
			break;
		case 4:
			copy[0].name = (char *)"..";
			break;
		case 5:
			copy[0].name = (char *)"";
			break;
		case 6:
			copy[0].size = ZNS_HANDLE_COPY_MAX + 1;
			break;
		case 7:
			copy[0].size = UINT64_MAX;
			break;
		case 8:
			f.type = ZNS_FRAME_MANIFEST;
			break;
		case 9:
			f.seq = 1;
			break;
		case 10:
			f.generation = 1;
			break;
		}
		if (what < 8)
			assert_int_equal(zns_handle_write(d->fd, &h, NULL), -EINVAL);
		f.len = zns_pb__handle__pack(&h, buf + ZNS_FRAME_HDR);
		zns_frame_pack(&f, 1, buf);
		assert_int_equal(zns_handle_parse(buf, zns_frame_size(f.len, 1), &r, NULL),
				 -EBADMSG);
	}
	assert_false(zns_handle_present(d->fd));
}

static void too_long(void **state)
{
	static ZnsPb__HandleCopy c = ZNS_PB__HANDLE_COPY__INIT, *many[3000];
	static char name[201];
	struct dir *d = *state;
	ZnsPb__Handle h;

	init(&h);
	memset(name, 'x', sizeof(name) - 1);
	c.name = name;
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(many); i++)
		many[i] = &c;
	h.copies = many;
	h.n_copies = ZNS_ARRAY_SIZE(many);
	assert_int_equal(zns_handle_write(d->fd, &h, NULL), -EINVAL);
	assert_false(zns_handle_present(d->fd));
}

static void copies_together(void **state)
{
	struct dir *d = *state;
	ZnsPb__HandleCopy many[17], *p[17];
	ZnsPb__Handle h;

	init(&h);
	for (int i = 0; i < 17; i++) {
		many[i] = copy[0];
		many[i].size = ZNS_HANDLE_COPY_MAX;
		p[i] = &many[i];
	}
	h.copies = p;
	h.n_copies = 16;
	assert_int_equal(zns_handle_write(d->fd, &h, NULL), 0);
	h.n_copies = 17;
	assert_int_equal(zns_handle_write(d->fd, &h, NULL), -EINVAL);
}

static void check_copies(void **state)
{
	struct dir *d = *state;
	struct zns_err err = ZNS_ERR_INIT;
	ZnsPb__Handle h;

	init(&h);
	write_copies(d->fd);
	assert_int_equal(zns_handle_check_copies(d->fd, &h, &err), 0);
	assert_int_equal(err.code, 0);
	/* Edited at the same length, longer, missing, replaced by a link. */
	assert_int_equal(zns_replace_file(d->fd, "inventory.img", "012345678X", 10, 0600), 0);
	assert_int_equal(zns_handle_check_copies(d->fd, &h, &err), 1);
	assert_non_null(strstr(err.msg, "inventory.img"));
	assert_null(strstr(err.msg, "core-1.img"));
	assert_int_equal(zns_replace_file(d->fd, "core-1.img", "0123456789a+", 12, 0600), 0);
	assert_int_equal(zns_handle_check_copies(d->fd, &h, &err), 2);
	unlinkat(d->fd, "files.img", 0);
	assert_int_equal(zns_handle_check_copies(d->fd, &h, &err), 3);
	assert_non_null(strstr(err.msg, "files.img"));
	write_copies(d->fd);
	unlinkat(d->fd, "core-1.img", 0);
	assert_int_equal(symlinkat("inventory.img", d->fd, "core-1.img"), 0);
	assert_int_equal(zns_handle_check_copies(d->fd, &h, NULL), 1);
	h.n_copies = 0;
	assert_int_equal(zns_handle_check_copies(d->fd, &h, NULL), 0);
}

/* More bad names than a message holds. */
static void many_bad_copies(void **state)
{
	struct dir *d = *state;
	ZnsPb__HandleCopy many[100], *p[100];
	char name[100][48];
	struct zns_err err = ZNS_ERR_INIT;
	ZnsPb__Handle h;

	init(&h);
	for (int i = 0; i < 100; i++) {
		zns_pb__handle_copy__init(&many[i]);
		snprintf(name[i], sizeof(name[i]), "an-image-with-a-long-name-%d.img", i);
		many[i].name = name[i];
		p[i] = &many[i];
	}
	h.copies = p;
	h.n_copies = 100;
	assert_int_equal(zns_handle_check_copies(d->fd, &h, &err), 100);
	assert_non_null(strstr(err.msg, "name-0.img"));
	assert_null(strstr(err.msg, "name-99.img"));
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(round_trip),
		T(directory_without_fsync),
		T(failed_fsync_of_directory),
		T(damage),
		T(impossible),
		T(too_long),
		T(copies_together),
		T(check_copies),
		T(many_bad_copies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
