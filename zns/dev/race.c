/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Runs several clients at once by the wall clock: one thread for each, started together. */
#include <pthread.h>
#include <stdlib.h>

#include "race_priv.h"
#include "zns/util.h"

#define MAX_CLIENTS 4096u

struct start {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	uint32_t ready;
	bool go;
};

struct client {
	struct zns_dev *dev;
	const struct zns_race *r;
	struct start *start;
	uint64_t began_ns;
	pthread_t thread;
	struct zns_err err;
	int ret;
};

static void *run(void *arg)
{
	struct client *c = arg;
	const struct zns_race *r = c->r;

	pthread_mutex_lock(&c->start->lock);
	c->start->ready++;
	pthread_cond_broadcast(&c->start->cond);
	while (!c->start->go)
		pthread_cond_wait(&c->start->cond, &c->start->lock);
	pthread_mutex_unlock(&c->start->lock);
	c->began_ns = zns_mono_ns();
	for (uint32_t k = 0; k < r->count && !c->ret; k++) {
		uint64_t off = r->off + (uint64_t)k * (r->step ? r->step : r->len);

		c->ret = r->write ? zns_dev_write(c->dev, r->zone, off, r->buf, r->len, &c->err) :
				    zns_dev_read(c->dev, r->zone, off, r->buf, r->len, &c->err);
		r->done_ns[k] = zns_mono_ns();
	}
	return NULL;
}

/* Converts all times so that they count from the first command of the first client. */
static int collect(struct client *c, uint32_t nr, struct zns_err *err)
{
	uint64_t zero = UINT64_MAX;

	for (uint32_t i = 0; i < nr; i++)
		zero = zns_min(zero, c[i].began_ns);
	for (uint32_t i = 0; i < nr; i++) {
		if (c[i].ret)
			return zns_fail(err, c[i].ret, "%s", c[i].err.msg);
		for (uint32_t k = 0; k < c[i].r->count; k++)
			c[i].r->done_ns[k] -= zero;
	}
	return 0;
}

int zns_race_threads(struct zns_dev *d, const struct zns_race *r, uint32_t nr, struct zns_err *err)
{
	struct start start = { .lock = PTHREAD_MUTEX_INITIALIZER,
			       .cond = PTHREAD_COND_INITIALIZER };
	cleanup_free struct client *c = calloc(nr, sizeof(*c));
	uint32_t n;
	int ret = 0;

	if (!c)
		return zns_fail(err, -ENOMEM, "no memory for %u clients", nr);
	for (n = 0; n < nr && !ret; n++) {
		c[n] = (struct client){ .dev = d, .r = &r[n], .start = &start };
		ret = pthread_create(&c[n].thread, NULL, run, &c[n]);
	}
	if (ret)
		n--;
	pthread_mutex_lock(&start.lock);
	while (!ret && start.ready < n)
		pthread_cond_wait(&start.cond, &start.lock);
	start.go = true;
	pthread_cond_broadcast(&start.cond);
	pthread_mutex_unlock(&start.lock);
	for (uint32_t i = 0; i < n; i++)
		pthread_join(c[i].thread, NULL);
	pthread_cond_destroy(&start.cond);
	pthread_mutex_destroy(&start.lock);
	return ret ? zns_fail_sys(err, -ret, "cannot start %u threads", nr) : collect(c, n, err);
}

int zns_dev_race(struct zns_dev *d, const struct zns_race *r, uint32_t nr, struct zns_err *err)
{
	if (!nr)
		return 0;
	if (nr > MAX_CLIENTS)
		return zns_fail(err, -EINVAL, "%u clients at once: at most %u", nr, MAX_CLIENTS);
	return d->ops->race ? d->ops->race(d, r, nr, err) : zns_race_threads(d, r, nr, err);
}

uint64_t zns_dev_now_ns(struct zns_dev *d)
{
	return d->ops->now_ns ? d->ops->now_ns(d) : zns_mono_ns();
}
