/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The handle file: one ZNS_FRAME_HANDLE frame, followed by nothing. It is copied between machines,
 * so all of its fields are checked. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "zns/apart.h"
#include "zns/config.h"
#include "zns/crypt.h"
#include "zns/frame.h"
#include "zns/handle.h"
#include "zns/safeopen.h"
#include "store_int.h"

static int check_handle(const ZnsPb__Handle *h, int code, struct zns_err *err)
{
	uint64_t sum = 0;

	if (h->device.len != ZNS_UUID_LEN || h->checkpoint.len != ZNS_UUID_LEN)
		return zns_fail(err, code, "handle: a UUID has the wrong length");
	if (zns_check_name("container", h->container, code, err))
		return code;
	if (h->seal && (h->seal->key_id.len != ZNS_KEY_ID_BYTES ||
			(h->seal->mac.len && h->seal->mac.len != ZNS_MAC_BYTES)))
		return zns_fail(err, code, "handle: the seal has an impossible length");
	for (size_t i = 0; i < h->n_copies; i++) {
		const ZnsPb__HandleCopy *c = h->copies[i];

		if (zns_check_file_name(c->name, code, err))
			return code;
		if (c->size > ZNS_HANDLE_COPY_MAX)
			return zns_fail(err, code, "handle: copy \"%s\" has %llu bytes", c->name,
					(unsigned long long)c->size);
		/* cannot overflow: each size is small, and a handle has room for few of them */
		sum += c->size;
		if (sum > ZNS_HANDLE_COPIES_MAX)
			return zns_fail(err, code, "handle: the copies together exceed %llu bytes",
					(unsigned long long)ZNS_HANDLE_COPIES_MAX);
	}
	return 0;
}

int zns_handle_parse(const uint8_t *buf, size_t len, ZnsPb__Handle **out, struct zns_err *err)
{
	struct zns_frame f;
	ZnsPb__Handle *h;
	int ret;

	if (len > ZNS_HANDLE_MAX)
		return zns_fail(err, -EBADMSG,
				"this is not a handle: %zu bytes are too long for one", len);
	ret = zns_frame_parse(buf, len, &f, err);
	if (ret == -ENODATA)
		return zns_fail(err, -EBADMSG, "not a handle");
	if (ret)
		return ret == -EPROTONOSUPPORT ? ret : zns_wrap(err, "handle"), ret;
	if (f.type != ZNS_FRAME_HANDLE || f.generation || f.seq)
		return zns_fail(err, -EBADMSG, "this is no handle, but a record of type %u",
				f.type);
	if (zns_frame_size(f.len, 1) != len)
		return zns_fail(err, -EBADMSG, "the handle has %zu bytes behind its end",
				len - zns_frame_size(f.len, 1));
	h = zns_pb__handle__unpack(NULL, f.len, f.payload);
	if (!h)
		return zns_fail(err, -EBADMSG, "the handle is damaged: it cannot be decoded");
	ret = check_handle(h, -EBADMSG, err);
	if (ret) {
		zns_pb__handle__free_unpacked(h, NULL);
		return ret;
	}
	*out = h;
	return 0;
}

bool zns_handle_present(int dirfd)
{
	struct stat st;

	return !fstatat(dirfd, ZNS_HANDLE_NAME, &st, AT_SYMLINK_NOFOLLOW);
}

/* Lets a child process read the directory, which may be on a file system that its user controls and
 * that never answers. The child is abandoned after a time limit (zns/apart.h). */
static int apart(zns_apart_work work, int dirfd, void *arg, void *out, size_t len,
		 struct zns_err *err)
{
	uint32_t limit_s = ZNS_DEADLINE_S;
	struct zns_err e = ZNS_ERR_INIT;
	int ret;

	if (zns_config_deadline(&limit_s, &e) || !limit_s)
		limit_s = ZNS_DEADLINE_S;
	ret = zns_apart(work, dirfd, arg, out, len, limit_s * 1000);
	return ret == -ETIMEDOUT ?
		       zns_fail(err, ret,
				"the file system of the image directory did not answer within %u s",
				limit_s) :
		       ret;
}

struct raw {
	size_t len;
	uint8_t bytes[ZNS_HANDLE_MAX];
};

static int read_raw(int dirfd, void *arg, void *out)
{
	struct raw *r = out;
	cleanup_free uint8_t *buf = NULL;
	int ret = zns_read_plain(dirfd, ZNS_HANDLE_NAME, ZNS_HANDLE_MAX, &buf, &r->len);

	if (!ret)
		memcpy(r->bytes, buf, r->len);
	return ret;
}

int zns_handle_read(int dirfd, ZnsPb__Handle **out, struct zns_err *err)
{
	cleanup_free struct raw *r = malloc(sizeof(*r));
	int ret;

	if (!r)
		return zns_fail(err, -ENOMEM, "no memory for a handle");
	ret = apart(read_raw, dirfd, NULL, r, sizeof(*r), err);
	if (ret == -ETIMEDOUT)
		return ret;
	if (ret == -ENOENT)
		return zns_fail(err, ret, "no handle of a checkpoint is there (%s)",
				ZNS_HANDLE_NAME);
	if (ret == -EFBIG)
		return zns_fail(err, -EBADMSG, "%s is too large for a handle", ZNS_HANDLE_NAME);
	if (ret == -ELOOP || ret == -EISDIR || ret == -EINVAL)
		return zns_fail(err, -EBADMSG, "%s: %s", ZNS_HANDLE_NAME, zns_open_why(ret));
	if (ret)
		return zns_fail(err, ret, "%s: %s", ZNS_HANDLE_NAME, zns_open_why(ret));
	return zns_handle_parse(r->bytes, r->len, out, err);
}

void zns_handle_describe(ZnsPb__Handle *h, const ZnsPb__Checkpoint *c)
{
	h->container = c->container;
	h->created_ns = c->created_ns;
	h->bytes = c->bytes;
	h->page_bytes = c->page_bytes;
	h->nr_images = c->nr_images;
}

int zns_handle_agrees(const ZnsPb__Handle *h, const ZnsPb__Checkpoint *c, struct zns_err *err)
{
	char id[ZNS_UUID_STR], then[32];

	if (h->checkpoint.len == c->id.len && !memcmp(h->checkpoint.data, c->id.data, c->id.len) &&
	    !strcmp(h->container, c->container) && h->created_ns == c->created_ns)
		return 0;
	/* The message does not quote the record, so that a user who forged the handle learns
	 * nothing from it. */
	return zns_fail(
		err, -EXDEV,
		"%s says container %.100s, %s, but checkpoint %s is another one's, or of another time: the handle was "
		"changed; `znsctl ls` lists checkpoints",
		ZNS_HANDLE_NAME, h->container, zns_format_time(h->created_ns, then, sizeof(then)),
		zns_uuid_format(c->id.data, id));
}

int zns_handle_write(int dirfd, const ZnsPb__Handle *h, struct zns_err *err)
{
	struct zns_frame f = { .type = ZNS_FRAME_HANDLE };
	cleanup_free uint8_t *buf = NULL;
	size_t n, len;
	int ret;

	ret = check_handle(h, -EINVAL, err);
	if (ret)
		return ret;
	n = zns_pb__handle__get_packed_size(h);
	len = zns_frame_size(n, 1);
	if (len > ZNS_HANDLE_MAX)
		return zns_fail(err, -EINVAL, "a handle of %zu bytes is too large", len);
	buf = malloc(len);
	if (!buf)
		return zns_fail(err, -ENOMEM, "no memory for the handle");
	zns_pb__handle__pack(h, buf + ZNS_FRAME_HDR);
	f.payload = buf + ZNS_FRAME_HDR;
	f.len = n;
	zns_frame_pack(&f, 1, buf);
	ret = zns_replace_file(dirfd, ZNS_HANDLE_NAME, buf, len, 0600);
	return ret ? zns_fail_sys(err, ret, "cannot write %s", ZNS_HANDLE_NAME) : 0;
}

static bool copy_is_good(int dirfd, const ZnsPb__HandleCopy *c, bool *missing)
{
	cleanup_free uint8_t *buf = NULL;
	size_t len;
	int ret = zns_read_plain(dirfd, c->name, c->size, &buf, &len);

	*missing = ret == -ENOENT;
	if (ret)
		return false;
	return len == c->size && zns_hash(buf, len) == c->hash;
}

static int check_copies(int dirfd, const ZnsPb__Handle *h, struct zns_err *err)
{
	char names[ZNS_ERR_MAX / 2] = "";
	size_t used = 0;
	int bad = 0;

	for (size_t i = 0; i < h->n_copies; i++) {
		const char *name = h->copies[i]->name;
		bool missing;
		int n;

		if (zns_check_file_name(name, -EINVAL, NULL) == 0 &&
		    copy_is_good(dirfd, h->copies[i], &missing))
			continue;
		bad++;
		n = snprintf(names + used, sizeof(names) - used, "%s%s", used ? ", " : "", name);
		if (n > 0 && used + n < sizeof(names))
			used += n;
		else
			names[used] = 0; /* cut off a name that does not fit completely */
	}
	if (bad)
		zns_fail(err, -ESTALE, "%d of %zu plain copies differ from the device's: %s%s", bad,
			 h->n_copies, names, used && bad > 3 ? " …" : "");
	return bad;
}

static int check_all(int dirfd, void *arg, void *out)
{
	return check_copies(dirfd, arg, out);
}

int zns_handle_check_copies(int dirfd, const ZnsPb__Handle *h, struct zns_err *err)
{
	struct zns_err e = ZNS_ERR_INIT, why = ZNS_ERR_INIT;
	int bad = h->n_copies ? apart(check_all, dirfd, (void *)h, &e, sizeof(e), &why) : 0;

	if (bad < 0) { /* whatever the reason is, the copies cannot be used */
		bad = (int)h->n_copies;
		zns_fail(&e, -ESTALE, "the plain copies cannot be read: %s",
			 why.code ? why.msg : strerror(EIO));
	}
	if (bad && err)
		*err = e;
	return bad;
}
