/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What all parts of the writer share: its lock and its first error. */
#include "writer.h"

/* The only functions that touch the mutex. clang's analysis is turned off in them, because it would
 * see two locks: the mutex, and the name that stands for it. */
UNSHARED void writer_lock(struct zns_writer *w)
{
	pthread_mutex_lock(&w->lock);
}

UNSHARED void writer_unlock(struct zns_writer *w)
{
	pthread_mutex_unlock(&w->lock);
}

void writer_sleep(struct zns_writer *w, pthread_cond_t *c)
{
	pthread_cond_wait(c, &w->lock);
}

void writer_wake(struct zns_writer *w)
{
	pthread_cond_broadcast(&w->room);
	pthread_cond_broadcast(&w->idle);
}

void writer_set_error(struct zns_writer *w, const struct zns_err *e)
{
	if (!w->err.code)
		w->err = *e;
	zns_bucket_stop(w->bucket);
	pthread_cond_broadcast(&w->work);
	writer_wake(w);
	for (struct wzone *z = w->zones.first; z; z = z->next)
		pthread_cond_broadcast(&z->turn);
}

int writer_fail(struct zns_writer *w, const struct zns_err *e)
{
	writer_set_error(w, e);
	return w->err.code;
}

int writer_fail_nomem(struct zns_writer *w, const char *what)
{
	struct zns_err err;

	zns_fail(&err, -ENOMEM, "no memory %s", what);
	return writer_fail(w, &err);
}

int writer_tell(struct zns_writer *w, int ret, struct zns_err *err)
{
	if (ret && err && w->err.code)
		*err = w->err;
	return ret;
}
