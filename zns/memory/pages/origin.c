/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reads memory that is still in the checkpoint from which the processes were restored: see
 * zns/origin.h.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "origin_int.h"
#include "zns/context.h"
#include "zns/flat.h"
#include "zns/session.h"

#define PAGE 4096ULL
/*
 * The threads of the pager read single units; only images that consist of parts need more workers.
 */
#define WORKERS 4
#define CACHE 16

struct zns_origin {
	struct origin_table t;
	struct zns_session s; /* a session on the checkpoint's device */
	struct zns_chain *chain;
	struct zns_flat *flat; /* NULL: the checkpoint has no parent */
	pthread_rwlock_t reading;
	_Atomic uint64_t left;
};

/* ---- opening ---- */

static int connect_to(const uint8_t device[ZNS_UUID_LEN], struct zns_session *s, bool open,
		      struct zns_err *err)
{
	struct zns_registered reg;
	int ret = zns_registered_by_uuid(device, &reg, err);

	*s = (struct zns_session)ZNS_SESSION_INIT;
	if (ret)
		return ret;
	return open ? zns_session_open(s, &reg, ZNS_READS, err) :
		      zns_session_connect(s, &reg, 0, err);
}

int zns_origin_look(const uint8_t device[ZNS_UUID_LEN], const uint8_t checkpoint[ZNS_UUID_LEN],
		    char name[ZNS_NAME_MAX + 1], bool *encrypted, struct zns_err *err)
{
	struct zns_session s;
	ZnsPb__Response *r;
	int ret = connect_to(device, &s, false, err);

	if (!ret)
		ret = zns_session_lease(&s, checkpoint, false, &r, err);
	if (!ret) {
		snprintf(name, ZNS_NAME_MAX + 1, "%s", r->checkpoints[0]->container);
		*encrypted = r->checkpoints[0]->crypt != NULL;
		zns_pb__response__free_unpacked(r, NULL);
	}
	zns_session_close(&s);
	return ret;
}

/*
 * Opens the checkpoint. The context's lock file keeps it from being removed or moved, so the broker
 * is needed only to read its record.
 */
static int open_checkpoint(struct zns_origin *o, struct zns_err *err)
{
	const struct zns_reader_params p = { .workers = WORKERS, .cache_units = CACHE };
	ZnsPb__Response *r;
	int ret = connect_to(o->t.head->device, &o->s, true, err);

	if (!ret)
		ret = zns_session_lease(&o->s, o->t.head->checkpoint, true, &r, err);
	if (ret)
		return ret;
	ret = zns_session_chain(&o->s, r, NULL, &p, &o->chain, err);
	zns_pb__response__free_unpacked(r, NULL);
	if (!ret && zns_chain_levels(o->chain) > 1)
		ret = zns_flat_new(o->chain, &o->flat, err);
	zns_broker_close(&o->s.broker);
	if (o->s.readers >= 0)
		close(o->s.readers);
	o->s.readers = -1;
	return ret;
}

static struct zns_origin *blank(struct zns_err *err)
{
	struct zns_origin *o = calloc(1, sizeof(*o));

	if (!o) {
		zns_fail(err, -ENOMEM, "no memory for the checkpoint of a context");
		return NULL;
	}
	o->s = (struct zns_session)ZNS_SESSION_INIT;
	pthread_rwlock_init(&o->reading, NULL);
	return o;
}

int zns_origin_new(const uint8_t device[ZNS_UUID_LEN], const uint8_t checkpoint[ZNS_UUID_LEN],
		   int lock, struct zns_origin **out, struct zns_err *err)
{
	struct zns_origin *o = blank(err);
	int ret;

	if (!o)
		return -ENOMEM;
	ret = origin_table_new(&o->t);
	if (ret)
		zns_fail_sys(err, ret, "cannot make the table of a checkpoint's units");
	if (!ret) {
		memcpy(o->t.head->device, device, ZNS_UUID_LEN);
		memcpy(o->t.head->checkpoint, checkpoint, ZNS_UUID_LEN);
		/*
		 * write the checkpoint's id to the lock file first: all that is read after that
		 * stays valid
		 */
		ret = zns_context_set_origin(lock, checkpoint);
		if (ret)
			zns_fail_sys(err, ret, "cannot write the context's lock file");
	}
	if (!ret)
		ret = open_checkpoint(o, err);
	if (ret)
		zns_origin_free(o);
	else
		*out = o;
	return ret;
}

int zns_origin_take(int fd, struct zns_origin **out, struct zns_err *err)
{
	struct zns_origin *o = blank(err);
	int ret;

	if (!o)
		return -ENOMEM;
	ret = origin_table_take(&o->t, fd);
	if (ret)
		zns_fail_sys(err, ret, "cannot make the table of a checkpoint's units");
	else
		ret = open_checkpoint(o, err);
	if (ret)
		zns_origin_free(o);
	else
		*out = o;
	return ret;
}

void zns_origin_end(struct zns_origin *o)
{
	pthread_rwlock_wrlock(&o->reading);
	zns_flat_free(o->flat);
	o->flat = NULL;
	zns_chain_close(o->chain);
	o->chain = NULL;
	zns_session_close(&o->s);
	pthread_rwlock_unlock(&o->reading);
}

void zns_origin_free(struct zns_origin *o)
{
	if (!o)
		return;
	zns_origin_end(o);
	origin_table_free(&o->t);
	pthread_rwlock_destroy(&o->reading);
	free(o);
}

int zns_origin_fd(const struct zns_origin *o)
{
	return o->t.fd;
}

const uint8_t *zns_origin_checkpoint(const struct zns_origin *o)
{
	return o->t.head->checkpoint;
}

bool zns_origin_encrypted(const struct zns_origin *o)
{
	return zns_chain_crypt(o->chain, 0) != NULL;
}

/* ---- units ---- */

/* Is the image read through the flat view, because parts of it are in parents? */
static bool is_flat(const struct zns_origin *o, uint32_t image)
{
	return o->flat && image < zns_flat_images(o->flat) && zns_flat_is(o->flat, image);
}

int zns_origin_add(struct zns_origin *o, uint32_t image, const struct zns_origin_part *v, size_t nr,
		   struct zns_mem_given **out, size_t *nr_out, struct zns_err *err)
{
	struct zns_rimage *img = zns_reader_image(zns_chain_reader(o->chain), image);
	uint64_t size;
	int ret;

	if (!img && nr)
		return zns_fail(err, -EPROTO, "the checkpoint has no image %u", image);
	size = !img ? 0 : is_flat(o, image) ? zns_flat_size(o->flat, image) : zns_rimage_size(img);
	ret = origin_table_add(&o->t, image, size, v, nr, out, nr_out, err);
	if (!ret)
		o->left += *nr_out;
	return ret;
}

static void read_done(void *arg, const struct zns_err *err)
{
	*(struct zns_err *)arg = *err;
}

static int read_part(struct zns_origin *o, uint32_t image, uint64_t off, void *to, uint64_t len,
		     struct zns_err *err)
{
	struct zns_rimage *img = zns_reader_image(zns_chain_reader(o->chain), image);
	const struct iovec iov = { to, len };
	const struct zns_task self = ZNS_TASK(getpid());
	struct zns_err why = ZNS_ERR_INIT;

	if (!img)
		return zns_fail(err, -EPROTO, "the checkpoint has no image %u", image);
	if (is_flat(o, image))
		zns_flat_read_lazy(o->flat, image, off, self, &iov, ZNS_READ_FAULT_HERE, read_done,
				   &why);
	else
		zns_rimage_read_lazy(img, off, self, &iov, ZNS_READ_FAULT_HERE, read_done, &why);
	return why.code ? zns_fail(err, why.code, "%s", why.msg) : 0;
}

/* Reads the pages of one record, which are contiguous both in the unit and in the image. */
static int read_record(struct zns_origin *o, const struct origin_record *r, uint8_t *buf,
		       struct zns_err *err)
{
	uint32_t left = r->pages;
	uint64_t page = r->first;
	int ret = 0;

	while (left && !ret) {
		unsigned int at = (unsigned int)__builtin_ctz(left);
		unsigned int n = (unsigned int)__builtin_ctz(~(left >> at));

		ret = read_part(o, r->image, page * PAGE, buf + at * PAGE, n * PAGE, err);
		page += n;
		left &= ~(((1U << n) - 1) << at);
	}
	return ret;
}

int zns_origin_get(struct zns_origin *o, uint64_t place, void *buf, struct zns_err *err)
{
	const struct origin_record *r = NULL;
	uint32_t nr = origin_table_find(&o->t, place, &r);
	int ret = nr ? 0 : zns_fail(err, -EINVAL, "no such place in a checkpoint");

	memset(buf, 0, ZNS_PAGES_UNIT);
	pthread_rwlock_rdlock(&o->reading);
	if (!ret && !o->chain)
		ret = zns_fail(err, -ENOENT,
			       "this context has closed its checkpoint: no unit is left in it");
	for (uint32_t i = 0; i < nr && !ret; i++)
		ret = read_record(o, &r[i], buf, err);
	pthread_rwlock_unlock(&o->reading);
	return ret;
}

int zns_origin_hold(struct zns_origin *o, uint64_t place)
{
	const struct origin_record *r;

	if (!origin_table_find(&o->t, place, &r))
		return -EINVAL;
	o->left++;
	return 0;
}

int zns_origin_drop(struct zns_origin *o, uint64_t place)
{
	const struct origin_record *r;

	if (!origin_table_find(&o->t, place, &r))
		return -EINVAL;
	o->left--;
	return 0;
}

uint64_t zns_origin_left(const struct zns_origin *o)
{
	return o->left;
}
