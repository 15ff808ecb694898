/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Locks between threads (mutexes) and between processes (OFD byte locks far beyond the end of the
 * file). See emu_priv.h. */
#include <fcntl.h>

#include "emu_priv.h"

#define LOCK_BASE (INT64_C(1) << 61)

enum { BYTE_INIT, BYTE_PRESENCE, BYTE_COUNT, BYTE_DURABLE, BYTE_MODEL, BYTE_ZONES = 16 };

static int ofd_lock(int fd, short type, uint64_t byte, uint64_t len, bool wait)
{
	struct flock fl = {
		.l_type = type,
		.l_whence = SEEK_SET,
		.l_start = LOCK_BASE + byte,
		.l_len = len,
	};

	while (fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &fl))
		if (errno != EINTR)
			return errno == EACCES ? -EAGAIN : -errno;
	return 0;
}

static int lock_failed(int ret, const char *what, struct zns_err *err)
{
	return zns_fail_sys(
		err, ret,
		"cannot lock %s of the emulated device: put it on a file system with byte-range locks",
		what);
}

int emu_lock_init(int fd, bool write, struct zns_err *err)
{
	int ret = ofd_lock(fd, write ? F_WRLCK : F_RDLCK, BYTE_INIT, 1, true);

	return ret ? lock_failed(ret, "the start", err) : 0;
}

void emu_unlock_init(int fd)
{
	ofd_lock(fd, F_UNLCK, BYTE_INIT, 1, false);
}

/* Waits only briefly, since a process that holds this lock exclusively also holds the init lock. */
int emu_presence_share(int fd, struct zns_err *err)
{
	int ret = ofd_lock(fd, F_RDLCK, BYTE_PRESENCE, 1, true);

	return ret ? lock_failed(ret, "the presence", err) : 0;
}

int emu_presence_try_alone(int fd)
{
	return ofd_lock(fd, F_WRLCK, BYTE_PRESENCE, 1, false) ? -EBUSY : 0;
}

/* Waits some seconds for the lock, because a dead process may hold it a little longer: with
 * io_uring a kernel worker closes the files of the process. */
int emu_presence_wait_alone(int fd)
{
	const struct timespec nap = { .tv_nsec = 10 * 1000 * 1000 };
	int ret;

	for (int left = 300; (ret = emu_presence_try_alone(fd)) && left; left--)
		nanosleep(&nap, NULL);
	return ret;
}

static pthread_mutex_t *stripe_of(struct emu *e, uint32_t zone)
{
	return &e->stripe[zone % EMU_STRIPES];
}

int emu_zone_lock_bare(struct emu *e, uint32_t zone, struct zns_err *err)
{
	int ret;

	pthread_mutex_lock(stripe_of(e, zone));
	ret = ofd_lock(e->fd, F_WRLCK, BYTE_ZONES + (uint64_t)zone, 1, true);
	if (ret) {
		pthread_mutex_unlock(stripe_of(e, zone));
		return lock_failed(ret, "a zone", err);
	}
	return 0;
}

void emu_zone_unlock(struct emu *e, uint32_t zone)
{
	ofd_lock(e->fd, F_UNLCK, BYTE_ZONES + (uint64_t)zone, 1, false);
	pthread_mutex_unlock(stripe_of(e, zone));
}

/* Locks each run of consecutive zones as one range, since thousands of single-byte locks would make
 * the kernel's list of locks long. */
static int each_run(struct emu *e, const uint32_t *zones, uint32_t nr, short type, uint32_t *done)
{
	uint32_t i = 0;

	while (i < nr) {
		uint32_t n = 1;
		int ret;

		while (i + n < nr && zones[i + n] == zones[i] + n)
			n++;
		ret = ofd_lock(e->fd, type, BYTE_ZONES + (uint64_t)zones[i], n, type != F_UNLCK);
		if (ret)
			return ret;
		i += n;
		*done = i;
	}
	return 0;
}

static void stripes(struct emu *e, const uint32_t *zones, uint32_t nr, bool lock)
{
	uint64_t want = 0;

	_Static_assert(EMU_STRIPES == 64, "a bit each");
	for (uint32_t i = 0; i < nr; i++)
		want |= UINT64_C(1) << (zones[i] % EMU_STRIPES);
	for (unsigned s = 0; s < EMU_STRIPES; s++) {
		if (!(want >> s & 1))
			continue;
		if (lock)
			pthread_mutex_lock(&e->stripe[s]);
		else
			pthread_mutex_unlock(&e->stripe[s]);
	}
}

int emu_zones_lock_bare(struct emu *e, const uint32_t *zones, uint32_t nr, struct zns_err *err)
{
	uint32_t done = 0, undone = 0;
	int ret;

	stripes(e, zones, nr, true);
	ret = each_run(e, zones, nr, F_WRLCK, &done);
	if (ret) {
		each_run(e, zones, done, F_UNLCK, &undone);
		stripes(e, zones, nr, false);
		return lock_failed(ret, "the zones", err);
	}
	return 0;
}

void emu_zones_unlock(struct emu *e, const uint32_t *zones, uint32_t nr)
{
	uint32_t done = 0;

	each_run(e, zones, nr, F_UNLCK, &done);
	stripes(e, zones, nr, false);
}

static int global_lock(struct emu *e, pthread_mutex_t *m, unsigned byte, const char *what,
		       struct zns_err *err)
{
	int ret;

	pthread_mutex_lock(m);
	ret = ofd_lock(e->fd, F_WRLCK, byte, 1, true);
	if (!ret)
		return 0;
	pthread_mutex_unlock(m);
	return lock_failed(ret, what, err);
}

static void global_unlock(struct emu *e, pthread_mutex_t *m, unsigned byte)
{
	ofd_lock(e->fd, F_UNLCK, byte, 1, false);
	pthread_mutex_unlock(m);
}

int emu_count_lock(struct emu *e, struct zns_err *err)
{
	return global_lock(e, &e->count_mutex, BYTE_COUNT, "the zone count", err);
}

void emu_count_unlock(struct emu *e)
{
	global_unlock(e, &e->count_mutex, BYTE_COUNT);
}

int emu_durable_lock(struct emu *e, struct zns_err *err)
{
	return global_lock(e, &e->durable_mutex, BYTE_DURABLE, "the durable table", err);
}

void emu_durable_unlock(struct emu *e)
{
	global_unlock(e, &e->durable_mutex, BYTE_DURABLE);
}

int emu_model_lock(struct emu *e, struct zns_err *err)
{
	return global_lock(e, &e->model_mutex, BYTE_MODEL, "the timing model", err);
}

void emu_model_unlock(struct emu *e)
{
	global_unlock(e, &e->model_mutex, BYTE_MODEL);
}
