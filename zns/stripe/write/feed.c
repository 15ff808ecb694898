/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* How bytes get into an image: from the memory of a frozen task, a caller's buffer, or a file. See
 * zns/writer.h. */
#include <string.h>
#include <sys/stat.h>
#include "writer.h"

/* Makes this error the writer's, because an image that lacks bytes must never be committed. Lock
 * held. */
NEEDS_LOCK static int broken(struct zns_writer *w, const struct zns_err *e, struct zns_err *err)
{
	writer_set_error(w, e);
	return writer_tell(w, w->err.code, err);
}

/* May bytes be added? Places are computed from whole units, so nothing can follow a short unit. */
static int check_open(const struct zns_wimage *i, struct zns_err *err)
{
	if (!i->sealed && !(i->pb.size % i->w->unit))
		return 0;
	return zns_fail(err, -EINVAL, "image %s has ended and takes no more", i->pb.name);
}

/* Adds a piece of task memory to the open unit; merges it with the previous piece if they are
 * adjacent. */
static int job_add_iov(struct job *j, void *base, size_t len)
{
	if (j->nr_iov &&
	    (char *)j->iov[j->nr_iov - 1].iov_base + j->iov[j->nr_iov - 1].iov_len == base) {
		j->iov[j->nr_iov - 1].iov_len += len;
	} else {
		if (zns_grow(j->iov, j->nr_iov, j->max_iov))
			return -ENOMEM;
		j->iov[j->nr_iov++] = (struct iovec){ base, len };
	}
	j->len += (uint32_t)len;
	return 0;
}

/* Returns the open unit if it is for memory of @pid, else a new one. NULL: @err says why. Lock
 * held. */
static struct job *mem_job(struct zns_wimage *i, pid_t pid, struct zns_err *err)
{
	if (check_open(i, err))
		return NULL;
	if (!i->open) {
		i->open = job_new(i);
		if (!i->open) {
			zns_fail(err, -ENOMEM, "no memory for a unit of image %s", i->pb.name);
			return NULL;
		}
		i->open->pid = pid;
		i->ungathered++;
	}
	if (i->open->data || i->open->pid != pid) {
		zns_fail(err, -EINVAL,
			 "image %s: memory of task %d cannot be appended to its present data",
			 i->pb.name, pid);
		return NULL;
	}
	return i->open;
}

int zns_wimage_mem(struct zns_wimage *i, pid_t pid, const struct iovec *iov, uint32_t nr,
		   struct zns_err *err)
{
	struct zns_err e = ZNS_ERR_INIT;
	struct zns_writer *w = i->w;
	uint64_t left = 0;
	int ret;

	for (uint32_t n = 0; n < nr; n++)
		left += iov[n].iov_len;
	writer_lock(w);
	ret = writer_tell(w, w->err.code, err);
	for (uint32_t n = 0; n < nr && !ret; n++) {
		uint8_t *base = iov[n].iov_base;
		size_t len = iov[n].iov_len;

		while (len && !ret) {
			struct job *j = mem_job(i, pid, &e);
			size_t take;

			if (!j) {
				ret = broken(w, &e, err);
				break;
			}
			take = zns_min(len, (size_t)(w->unit - j->len));
			if (job_add_iov(j, base, take)) {
				zns_fail(&e, -ENOMEM, "no memory for a unit of image %s",
					 i->pb.name);
				ret = broken(w, &e, err);
				break;
			}
			base += take;
			len -= take;
			if (j->len == w->unit) {
				i->open = NULL;
				ret = writer_tell(
					w, enqueue(w, j, zns_max((uint64_t)1, left / w->unit)),
					err);
			}
			left -= take;
		}
	}
	writer_unlock(w);
	return ret;
}

/* Returns the open unit if it is for bytes, else a new one. NULL: @err says why. */
static struct job *data_job(struct zns_wimage *i, struct zns_err *err)
{
	if (check_open(i, err))
		return NULL;
	if (!i->open) {
		struct job *j = job_new(i);

		writer_lock(i->w);
		if (j)
			j->data = pool_get(&i->w->pool);
		writer_unlock(i->w);
		if (!j || !j->data) {
			free(j);
			zns_fail(err, -ENOMEM, "no memory for a unit of image %s", i->pb.name);
			return NULL;
		}
		i->open = j;
	}
	if (!i->open->data) {
		zns_fail(err, -EINVAL, "image %s: bytes cannot be appended to task memory",
			 i->pb.name);
		return NULL;
	}
	return i->open;
}

static int data_broken(struct zns_wimage *i, const struct zns_err *e, struct zns_err *err)
{
	int ret;

	writer_lock(i->w);
	ret = broken(i->w, e, err);
	writer_unlock(i->w);
	return ret;
}

static int data_dispatch(struct zns_wimage *i, uint64_t hint_units, struct zns_err *err)
{
	struct job *j = i->open;
	int ret;

	i->open = NULL;
	writer_lock(i->w);
	ret = writer_tell(i->w, enqueue(i->w, j, hint_units), err);
	writer_unlock(i->w);
	return ret;
}

int zns_wimage_data(struct zns_wimage *i, const void *buf, size_t len, struct zns_err *err)
{
	struct zns_err e = ZNS_ERR_INIT;
	const uint8_t *p = buf;
	int ret = zns_writer_error(i->w, err);

	while (len && !ret) {
		struct job *j = data_job(i, &e);
		size_t take;

		if (!j)
			return data_broken(i, &e, err);
		take = zns_min(len, (size_t)(i->w->unit - j->len));
		memcpy(j->data + j->len, p, take);
		j->len += (uint32_t)take;
		p += take;
		len -= take;
		if (j->len == i->w->unit)
			ret = data_dispatch(i, len / i->w->unit + 1, err);
	}
	return ret;
}

int zns_wimage_room(struct zns_wimage *i, uint8_t **buf, size_t *len, struct zns_err *err)
{
	struct zns_err e = ZNS_ERR_INIT;
	int ret = zns_writer_error(i->w, err);
	struct job *j;

	if (ret)
		return ret;
	j = data_job(i, &e);
	if (!j)
		return data_broken(i, &e, err);
	*buf = j->data + j->len;
	*len = i->w->unit - j->len;
	return 0;
}

int zns_wimage_filled(struct zns_wimage *i, size_t len, struct zns_err *err)
{
	struct zns_err e = ZNS_ERR_INIT;
	struct job *j = i->open;

	if (!j || !j->data || len > i->w->unit - j->len) {
		zns_fail(&e, -EINVAL, "image %s: more bytes than there is room for", i->pb.name);
		return data_broken(i, &e, err);
	}
	j->len += (uint32_t)len;
	return j->len == i->w->unit ? data_dispatch(i, UINT64_MAX, err) :
				      zns_writer_error(i->w, err);
}

int zns_wimage_from_fd(struct zns_wimage *i, int fd, struct zns_err *err)
{
	struct stat st;
	bool known = !fstat(fd, &st) && S_ISREG(st.st_mode);
	struct zns_err e = ZNS_ERR_INIT;
	uint64_t left = 0;
	int ret = zns_writer_error(i->w, err);

	if (ret)
		return ret;
	if (known) {
		left = (uint64_t)st.st_size;
		if (lseek(fd, 0, SEEK_SET) < 0) {
			zns_fail_sys(&e, -errno, "image %s: cannot rewind", i->pb.name);
			return data_broken(i, &e, err);
		}
	}
	for (;;) {
		struct job *j = data_job(i, &e);
		ssize_t n;

		if (!j)
			return data_broken(i, &e, err);
		n = read(fd, j->data + j->len, i->w->unit - j->len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			zns_fail_sys(&e, -errno, "image %s: cannot read what criu wrote",
				     i->pb.name);
			return data_broken(i, &e, err);
		}
		if (!n)
			return 0;
		j->len += (uint32_t)n;
		left -= zns_min(left, (uint64_t)n);
		if (j->len < i->w->unit)
			continue;
		ret = data_dispatch(i, known ? left / i->w->unit + 1 : UINT64_MAX, err);
		if (ret)
			return ret;
	}
}

int zns_wimage_settle(struct zns_wimage *i, struct zns_err *err)
{
	struct zns_writer *w = i->w;
	int ret;

	writer_lock(w);
	/* the open unit is the last one of task memory, which is short */
	if (i->open && !i->open->data) {
		struct job *j = i->open;

		i->open = NULL;
		enqueue(w, j, 1);
	}
	while (i->ungathered && !w->err.code)
		feeder_wait(w, false);
	/* After an error, waits for workers that still read the task's memory, because the task may
	 * continue to run only when they have stopped. */
	while (w->err.code && w->queue.nr_running)
		writer_sleep(w, &w->idle);
	ret = writer_tell(w, w->err.code, err);
	writer_unlock(w);
	return ret;
}

void zns_wimage_set_beside(struct zns_wimage *i)
{
	i->pb.has_beside = i->pb.beside = 1;
}

void zns_wimage_set_part(struct zns_wimage *i)
{
	i->pb.has_part = i->pb.part = 1;
}

int zns_wimage_seal(struct zns_wimage *i, struct zns_err *err)
{
	struct zns_writer *w = i->w;
	struct job *j = i->open;
	bool small = j && j->len && j->data && !i->nr_units && j->len <= w->unit / 2;
	struct zns_err e = ZNS_ERR_INIT;
	uint8_t tag[ZNS_TAG_BYTES];
	int ret = small ? image_outgoing(i, 0, j->data, j->len, tag, &e) : 0;
	uint64_t csum = 0;

	if (small && !ret)
		ret = image_csum(i, 0, j->data, j->len, &csum);
	writer_lock(w);
	i->open = NULL;
	if (ret) {
		writer_set_error(w, &e);
		job_free(w, j);
	} else if (small) {
		ret = w->err.code ? w->err.code : pack_add(w, i, j, csum, tag);
		job_free(w, j);
	} else if (j && j->len) {
		ret = enqueue(w, j, 1);
	} else {
		job_free(w, j);
	}
	i->sealed = true;
	if (ret && !w->err.code) {
		zns_fail(&e, ret, "image %s: no memory", i->pb.name);
		writer_set_error(w, &e);
	}
	ret = writer_tell(w, w->err.code, err);
	writer_unlock(w);
	return ret;
}
