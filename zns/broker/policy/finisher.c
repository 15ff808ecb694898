/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Finishes zones in threads of their own, since a device may take up to a second to pad a zone, and
 * requests must not wait for that. Each zone has its own thread, several run at once, and they
 * share a device handle.
 */
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include "policy.h"

#define AT_ONCE 4

struct finishing {
	struct finisher *f;
	pthread_t thread;
	uint32_t zone;
	int ret;
	struct zns_err err;
};

struct finisher {
	struct zns_dev *dev;
	int pipe[2]; /* passes pointers to completed jobs to the poll loop */
	uint32_t nr; /* number of running threads */
};

int finisher_new(struct znsd *d, struct zns_err *err)
{
	struct finisher *f = znsd_alloc(sizeof(*f));
	int ret;

	ret = zns_dev_open(d->reg.path, ZNS_DEV_SERVED, &f->dev, err);
	if (!ret && pipe2(f->pipe, O_CLOEXEC | O_NONBLOCK) < 0) {
		ret = zns_fail_sys(err, -errno, "cannot make a pipe");
		zns_dev_close(f->dev);
	}
	if (ret) {
		free(f);
		return ret;
	}
	d->policy->finisher = f;
	return 0;
}

int finisher_fd(const struct znsd *d)
{
	return d->policy->finisher ? d->policy->finisher->pipe[0] : -1;
}

uint32_t finisher_running(const struct znsd *d)
{
	return d->policy->finisher ? d->policy->finisher->nr : 0;
}

static void *run(void *arg)
{
	struct finishing *job = arg;

	job->ret = zns_dev_finish(job->f->dev, job->zone, &job->err);
	while (write(job->f->pipe[1], &job, sizeof(job)) < 0 && errno == EINTR)
		;
	return NULL;
}

bool finisher_start(struct znsd *d, uint32_t zone)
{
	struct finisher *f = d->policy->finisher;
	struct finishing *job;

	if (!f || f->nr == AT_ONCE)
		return false;
	zns_dev_follow(f->dev);
	job = znsd_alloc(sizeof(*job));
	job->f = f;
	job->zone = zone;
	if (pthread_create(&job->thread, NULL, run, job)) {
		free(job);
		return false;
	}
	f->nr++;
	d->zones[zone].finishing = true;
	return true;
}

void finisher_reap(struct znsd *d)
{
	struct finisher *f = d->policy->finisher;
	struct zns_err err = ZNS_ERR_INIT;
	struct finishing *job;
	bool any = false;

	while (f && read(f->pipe[0], &job, sizeof(job)) == sizeof(job)) {
		struct zn_zone *z = &d->zones[job->zone];

		pthread_join(job->thread, NULL);
		f->nr--;
		any = true;
		z->finishing = false;
		if (job->ret) {
			znsd_warn("finishing zone %u: %s", job->zone, job->err.msg);
			device_heed(d, &job->err);
			z->retry_ns = zns_mono_ns() + ZNSD_RETRY_NS;
		} else {
			zone_filled(d, job->zone);
			d->policy->room_wanted -= d->policy->room_wanted > 0;
		}
		if (zones_refresh(d, job->zone, 1, &err))
			znsd_warn("zone %u: %s", job->zone, err.msg);
		free(job);
	}
	if (any)
		d->park_check = d->sweep = d->freed = true;
}

void finisher_free(struct znsd *d)
{
	struct finisher *f = d->policy ? d->policy->finisher : NULL;

	while (f && f->nr) {
		usleep(1000);
		finisher_reap(d);
	}
	if (f) {
		close(f->pipe[0]);
		close(f->pipe[1]);
		zns_dev_close(f->dev);
	}
	free(f);
	if (d->policy)
		d->policy->finisher = NULL;
}
