/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Lanes. Each writes one zone at a time, in short commands. A put is divided among the lanes; if
 * there are several lanes, each has a thread.
 */
#include <signal.h>
#include <string.h>
#include <time.h>
#include "pages_int.h"

#define FAILURES 4 /* number of failed zones in a row after which a put fails */
#define STEP_NS 50000000ull /* ns; greatest age of the broker's last answer */
#define READS_US 100 /* us between two checks whether reads of the die have ended */
#define READS_TRIES 50

void lane_let_go(struct lane *l)
{
	uint32_t zone = l->zone;

	if (zone == NO_ZONE)
		return;
	l->zone = NO_ZONE;
	pages_over(l->ps, zone, false);
	pages_close_zone(l->ps, zone);
}

static void failed(struct lane *l)
{
	struct zns_pages *ps = l->ps;
	uint32_t zone = l->zone;

	l->zone = NO_ZONE;
	pages_over(ps, zone, true);
	pages_close_zone(ps, zone);
	pthread_mutex_lock(&ps->count);
	ps->failed++;
	pthread_mutex_unlock(&ps->count);
}

/* Is this an error of the whole device, which another zone would have too? */
static bool whole_device(int ret)
{
	return ret == -EBADE || ret == -EDQUOT || ret == -ESTALE || ret == -EBADF || ret == -ENOMEM;
}

/*
 * Waits up to some milliseconds until no read of this die is under way, since threads wait for
 * reads.
 */
static void after_reads(const struct lane *l)
{
	const struct zns_pages *ps = l->ps;

	for (int i = 0;
	     i < READS_TRIES && l->zone_group < ps->reading_nr && ps->reading[l->zone_group]; i++)
		nanosleep(&(struct timespec){ .tv_nsec = READS_US * 1000 }, NULL);
}

static const void *gather(struct lane *l, uint32_t nr)
{
	const void *const *u = l->units + l->done;
	uint32_t i;

	/* encryption works in place, so it needs a copy: the caller still uses its buffer */
	for (i = l->ps->key && !l->as_is ? nr + 1 : 1; i < nr; i++)
		if ((const uint8_t *)u[i] != (const uint8_t *)u[0] + (size_t)i * ZNS_PAGES_UNIT)
			break;
	if (i == nr)
		return u[0];
	for (i = 0; i < nr; i++)
		memcpy(l->stage + (size_t)i * ZNS_PAGES_UNIT, u[i], ZNS_PAGES_UNIT);
	return l->stage;
}

/* Prepares the bytes that the device will get, encrypted or not, and their hashes in @ref. */
static int prepare(const struct lane *l, const uint8_t *unit, struct zns_pages_ref *ref,
		   uint64_t place, struct zns_err *err)
{
	uint64_t piece[ZNS_PAGES_PIECES];
	int ret = 0;

	*ref = (struct zns_pages_ref){ .place = place };
	if (l->ps->key) {
		/* @unit is in our own buffer (see gather()), so it may be encrypted in place */
		if (!l->as_is)
			ret = zns_memory_seal(l->ps->key, ref->nonce, (uint8_t *)unit,
					      ZNS_PAGES_UNIT, ref->tag, err);
		ref->hash = zns_hash(unit, ZNS_PAGES_UNIT);
		return ret;
	}
	ref->hash = zns_hash_pieces(unit, ZNS_PAGES_UNIT, ZNS_PAGES_PIECE, piece);
	for (uint32_t i = 0; i < ZNS_PAGES_PIECES; i++)
		ref->piece[i] = (uint32_t)piece[i];
	return 0;
}

/* Writes one chunk by one command. The hashes are those of the bytes that the device gets. */
static int write_chunk(struct lane *l, struct zns_err *err)
{
	struct zns_pages *ps = l->ps;
	uint32_t room = (uint32_t)zns_min((l->capacity - l->wp) / ZNS_PAGES_UNIT, 0xffffffffull),
		 nr = zns_min(zns_min(l->n - l->done, room), CHUNK_UNITS), i;
	const uint8_t *from = gather(l, nr);
	size_t len = (size_t)nr * ZNS_PAGES_UNIT;
	int ret = 0;

	for (i = 0; i < nr && !ret; i++)
		ret = prepare(l, from + (size_t)i * ZNS_PAGES_UNIT, &l->refs[l->done + i],
			      pages_place(l->zone, (uint32_t)(l->wp / ZNS_PAGES_UNIT) + i), err);
	if (ret)
		/* an error code that does not blame the zone: all other zones would fail too */
		return -EBADF;
	zns_bucket_take(ps->bucket, len, false);
	after_reads(l);
	ret = zns_dev_write(ps->s.dev, l->zone, l->wp, from, len, err);
	if (ret)
		return ret;
	pages_written(ps, l->zone, nr);
	l->wp += len;
	l->done += nr;
	return 0;
}

/* Does the lane have a zone with room for a unit? */
static bool has_room(const struct lane *l)
{
	return l->zone != NO_ZONE && l->epoch == l->ps->epoch &&
	       l->wp + ZNS_PAGES_UNIT <= l->capacity;
}

int pages_all_busy(struct zns_err *err)
{
	return zns_fail(
		err, -EAGAIN,
		"dumps or restores use all dies that this memory context writes to: wait until they have ended");
}

void lane_write(struct lane *l)
{
	struct zns_pages *ps = l->ps;
	int tries = 0, ret = 0;

	while (!ret && l->done < l->n) {
		ret = pages_step(ps, STEP_NS, &l->err);
		if (!ret && l->busy)
			ret = pages_all_busy(&l->err);
		if (!ret && ps->give_way)
			ret = zns_fail(&l->err, -EAGAIN,
				       "dumps or other contexts wait for zones of %s",
				       ps->s.reg.path);
		if (ret)
			break;
		if (!has_room(l)) {
			lane_let_go(l);
			ret = pages_ask_zone(ps, l, &l->err);
			if (ret)
				break;
		}
		ret = write_chunk(l, &l->err);
		if (!ret) {
			tries = 0;
		} else if (!whole_device(ret)) {
			failed(l);
			ret = ++tries < FAILURES ? 0 : -EIO;
		} else if (ret == -EDQUOT) {
			ret = -ENOSPC;
		} else if (ret != -ENOMEM) {
			ret = -EIO;
		}
	}
	l->ret = ret;
}

static void *lane_thread(void *arg)
{
	struct lane *l = arg;
	struct zns_pages *ps = l->ps;

	pthread_mutex_lock(&ps->jobs);
	for (;;) {
		while (!l->work && !ps->leave)
			pthread_cond_wait(&ps->job_come, &ps->jobs);
		if (ps->leave)
			break;
		pthread_mutex_unlock(&ps->jobs);
		lane_write(l);
		pthread_mutex_lock(&ps->jobs);
		l->work = false;
		pthread_cond_broadcast(&ps->job_gone);
	}
	pthread_mutex_unlock(&ps->jobs);
	return NULL;
}

int lanes_start(struct zns_pages *ps, struct zns_err *err)
{
	for (uint32_t i = 0; i < ps->nr_lanes; i++) {
		struct lane *l = &ps->lanes[i];
		int ret;

		if (posix_memalign((void **)&l->stage, 4096, CHUNK_UNITS * ZNS_PAGES_UNIT))
			return zns_fail(err, -ENOMEM, "no memory for a buffer of units");
		if (ps->nr_lanes == 1)
			/* without threads, the caller's thread writes the parts of all lanes */
			break;
		ret = pthread_create(&l->thread, NULL, lane_thread, l);
		if (ret)
			return zns_fail_sys(err, -ret, "cannot start a thread");
		l->runs = true;
	}
	return 0;
}

void lanes_stop(struct zns_pages *ps)
{
	pthread_mutex_lock(&ps->jobs);
	ps->leave = true;
	pthread_cond_broadcast(&ps->job_come);
	pthread_mutex_unlock(&ps->jobs);
	for (uint32_t i = 0; i < ps->nr_lanes; i++) {
		if (ps->lanes[i].runs)
			pthread_join(ps->lanes[i].thread, NULL);
		free(ps->lanes[i].stage);
	}
}
